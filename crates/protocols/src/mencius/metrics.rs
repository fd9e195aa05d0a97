//! What the roles of Mencius report beside what their parts report.

use ionian_kernel::status::Metric;

pub(super) const LEADER: &[Metric] = &[
    Metric::gauge(
        "frontier",
        "slot",
        "the highest slot that any leader is known to use, and 1",
    ),
    Metric::counter(
        "skipped",
        "slots",
        "slots skipped in the stripes that it leads",
    ),
    Metric::gauge(
        "untold_skips",
        "slots",
        "skipped slots that not all replicas have been told of",
    ),
];

pub(super) const REPLICA: &[Metric] = &[Metric::counter(
    "executed_early",
    "commands",
    "commands executed before an earlier slot was known",
)];
