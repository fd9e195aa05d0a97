//! What the roles of MultiPaxos report beside what every protocol has.

use ionian_kernel::status::Metric;

const DROPPED_READS: Metric = Metric::counter(
    "dropped_reads",
    "reads",
    "linearizable reads dropped for want of room",
);

pub(crate) const CLIENT: &[Metric] = &[
    Metric::gauge("in_flight", "commands", "commands that have no answer yet"),
    Metric::gauge(
        "seen_slot",
        "slot",
        "sequential reads see all slots below this one",
    ),
    Metric::gauge(
        "inquiries",
        "inquiries",
        "questions to acceptors for linearizable reads",
    )
    .settling(),
    DROPPED_READS,
];

/// The batches of a batcher.
pub(crate) const BATCHES: &[Metric] = &[
    Metric::counter("batches", "batches", "batches that were closed"),
    Metric::gauge("in_flight", "batches", "batches that are under way"),
    Metric::counter(
        "dropped_commands",
        "commands",
        "commands dropped for want of room",
    ),
];

pub(crate) const READ_BATCHER: &[Metric] = &[
    Metric::counter("batches", "batches", "batches of reads that were closed"),
    Metric::gauge(
        "inquiries",
        "inquiries",
        "questions to acceptors for these batches",
    )
    .settling(),
    DROPPED_READS,
];

pub(crate) const UNBATCHER: &[Metric] = &[Metric::counter(
    "batches",
    "batches",
    "batches of results taken apart",
)];
