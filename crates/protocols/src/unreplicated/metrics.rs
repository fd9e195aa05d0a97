//! What the roles of the unreplicated server report.

use ionian_kernel::status::Metric;

pub(super) const CLIENT: &[Metric] = &[Metric::gauge(
    "in_flight",
    "commands",
    "commands that have no answer yet",
)];

pub(super) const BATCHER: &[Metric] = &[
    Metric::counter("batches", "batches", "batches that were closed"),
    Metric::gauge("in_flight", "batches", "batches that are under way"),
];

pub(super) const SERVER: &[Metric] = &[
    Metric::gauge("sessions", "sessions", "sessions of clients"),
    Metric::counter(
        "failed_reads",
        "reads",
        "reads in which the state machine panicked",
    ),
];

pub(super) const UNBATCHER: &[Metric] = &[Metric::counter(
    "batches",
    "batches",
    "batches of results taken apart",
)];
