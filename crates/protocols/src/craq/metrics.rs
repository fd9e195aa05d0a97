//! What the roles of CRAQ report of themselves.

use ionian_kernel::status::Metric;

pub(super) const CLIENT: &[Metric] = &[
    Metric::gauge("in_flight", "commands", "commands that have no answer yet"),
    Metric::gauge(
        "seen_slot",
        "slot",
        "sequential reads see all entries below this one",
    ),
];

pub(super) const BATCHER: &[Metric] = &[
    Metric::counter("batches", "batches", "batches that were closed"),
    Metric::gauge("in_flight", "batches", "batches that are under way"),
];

pub(super) const CHAIN_NODE: &[Metric] = &[
    Metric::gauge(
        "chain",
        "chain",
        "the chain that it is in: how many came before",
    ),
    Metric::gauge("members", "chain nodes", "members of that chain"),
    Metric::gauge(
        "place",
        "place",
        "its place in the chain, 1 is the head; 0 outside it",
    ),
    Metric::gauge(
        "pending",
        "entries",
        "entries that are received and not applied",
    )
    .settling(),
    Metric::gauge("pending_bytes", "bytes", "what these entries take").settling(),
    Metric::gauge("waiting_reads", "batches", "batches of reads that wait").settling(),
    Metric::counter(
        "clean_reads",
        "reads",
        "linearizable reads that it answered at once",
    ),
    Metric::counter(
        "dirty_reads",
        "reads",
        "linearizable reads for which it asked the tail",
    ),
    Metric::counter(
        "leased_reads",
        "reads",
        "clean reads that it answered under a lease",
    ),
    Metric::counter("queries", "questions", "questions to the tail"),
    Metric::counter("dropped", "batches", "batches dropped for want of room"),
    Metric::counter(
        "repeated",
        "batches",
        "batches that came again while the first copy waited",
    ),
    Metric::gauge("sessions", "sessions", "sessions of clients"),
    Metric::counter(
        "failed_reads",
        "reads",
        "reads in which the state machine panicked",
    ),
    Metric::counter(
        "stale",
        "messages",
        "messages that were too late to be of use",
    ),
    Metric::gauge(
        "clock_corrected_ms",
        "ms",
        "difference between its clock and the log's",
    ),
    Metric::gauge(
        "sealed",
        "0 or 1",
        "1: it takes nothing more in this epoch, for a node that joins",
    ),
];
