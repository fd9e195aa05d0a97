//! What the roles of EPaxos report beside what every protocol has.

use ionian_kernel::status::Metric;

pub(super) const CLIENT: &[Metric] = &[Metric::gauge(
    "in_flight",
    "commands",
    "commands that have no answer yet",
)];

pub(super) const LEADER: &[Metric] = &[
    Metric::gauge("in_flight", "instances", "instances that are not decided").settling(),
    Metric::gauge(
        "in_flight_bytes",
        "bytes",
        "bytes of their commands and dependencies",
    ),
    Metric::gauge(
        "unexecuted",
        "instances",
        "instances that no replica has reported as executed",
    )
    .settling(),
    Metric::gauge(
        "queued",
        "commands",
        "commands that wait for room, or for one on the same key to be executed",
    )
    .settling(),
    Metric::gauge("next", "instance", "the number of its next instance"),
    Metric::gauge("life", "", "how often it has started"),
    Metric::counter("fast", "instances", "instances decided on the fast path"),
    Metric::counter("slow", "instances", "instances that took the slow path"),
    Metric::counter(
        "proposed_again",
        "commands",
        "commands proposed again after their instance became a noop",
    ),
    Metric::gauge("recovering", "instances", "instances that it recovers").settling(),
    Metric::counter("recoveries", "recoveries", "recoveries begun"),
    Metric::counter("dropped", "commands", "commands dropped for want of room"),
    Metric::counter(
        "repeated",
        "commands",
        "copies of commands that were in flight already",
    ),
    Metric::counter("stale", "messages", "messages discarded"),
    Metric::gauge(
        "clock_corrected_ms",
        "ms",
        "difference between its clock and what it stamps",
    ),
];

pub(super) const PROXY_LEADER: &[Metric] = &[
    Metric::gauge("in_flight", "instances", "instances that it gets votes for").settling(),
    Metric::gauge(
        "in_flight_bytes",
        "bytes",
        "bytes of their commands and dependencies",
    ),
    Metric::counter("chosen", "instances", "instances decided"),
    Metric::counter("retries", "instances", "instances asked for again"),
    Metric::counter("dropped", "instances", "instances dropped for want of room"),
];

pub(super) const ACCEPTOR: &[Metric] = &[
    Metric::gauge("instances", "instances", "instances that it keeps"),
    Metric::gauge(
        "instance_bytes",
        "bytes",
        "bytes of their commands and dependencies",
    ),
    Metric::gauge(
        "undecided",
        "instances",
        "instances whose decision it is still to learn",
    )
    .settling(),
    Metric::gauge(
        "index",
        "instances",
        "instances that commands to come may have to depend on",
    ),
    Metric::gauge("life", "", "how often it has started without its memory"),
    Metric::counter(
        "answered",
        "instances",
        "commands recorded, with their dependencies",
    ),
    Metric::counter("refused", "messages", "messages of old ballots refused"),
    Metric::counter("stale", "messages", "messages discarded"),
];

pub(super) const REPLICA: &[Metric] = &[
    Metric::gauge(
        "pending",
        "instances",
        "decided instances that are not executed",
    )
    .settling(),
    Metric::gauge(
        "pending_bytes",
        "bytes",
        "bytes of their commands and dependencies",
    ),
    Metric::gauge("sessions", "sessions", "sessions of clients"),
    Metric::counter("reads", "reads", "reads received"),
    Metric::counter(
        "proposed_reads",
        "reads",
        "linearizable reads of several keys, which become instances",
    ),
    Metric::counter(
        "failed_reads",
        "reads",
        "reads in which the state machine panicked",
    ),
    Metric::gauge(
        "deferred_reads",
        "reads",
        "batches of reads that wait for instances to be executed",
    )
    .settling(),
    Metric::counter("holes_asked", "requests", "requests for missing instances"),
    Metric::counter(
        "recoveries_asked",
        "requests",
        "requests to recover missing instances",
    ),
    Metric::counter("stale", "messages", "messages discarded"),
];
