//! What the parts report of their work beside what every protocol has.

use ionian_kernel::status::Metric;

/// Positions of a leader in the log.
pub(crate) const LEADER_POSITIONS: &[Metric] = &[
    Metric::gauge(
        "next_slot",
        "slot",
        "the first slot in which it has not proposed",
    ),
    Metric::gauge(
        "executed_by_replicas",
        "slot",
        "enough replicas have executed all slots below",
    ),
];

/// The work of a leader.
pub(crate) const LEADER: &[Metric] = &[
    Metric::gauge("drains", "", "1 while it is to hand over to another leader"),
    Metric::gauge(
        "window",
        "slots",
        "slots proposed that replicas have not executed",
    ),
    Metric::gauge(
        "window_bytes",
        "bytes",
        "bytes proposed that replicas have not executed",
    ),
    Metric::gauge(
        "carried",
        "values",
        "values of earlier rounds that it has still to propose",
    ),
    Metric::gauge(
        "queued",
        "proposals",
        "proposals that wait for room in the window",
    ),
    Metric::counter(
        "handed_over_again",
        "slots",
        "slots given to another proxy leader",
    ),
    Metric::gauge(
        "failing_proxy_leaders",
        "proxy leaders",
        "proxy leaders that it passes over",
    ),
    Metric::counter(
        "repaired",
        "slots",
        "slots proposed again for replicas that miss them",
    ),
    Metric::counter("dropped", "proposals", "proposals dropped for want of room"),
    Metric::counter(
        "repeated",
        "proposals",
        "copies of proposals that were queued already",
    ),
    Metric::gauge(
        "clock_corrected_ms",
        "ms",
        "difference between its clock and the log's",
    ),
];

/// The work of a proxy leader.
pub(crate) const PROXY_LEADER: &[Metric] = &[
    Metric::gauge("pending", "slots", "slots that wait for votes").settling(),
    Metric::counter("chosen", "slots", "slots in which a value was chosen"),
    Metric::counter("retries", "messages", "acceptors asked again for a vote"),
    Metric::gauge(
        "suspected_acceptors",
        "acceptors",
        "acceptors that do not answer",
    )
    .of_the_highest(),
];

/// Positions of an acceptor in the log.
pub(crate) const ACCEPTOR_POSITIONS: &[Metric] = &[Metric::gauge(
    "forgotten",
    "slot",
    "it has forgotten its votes in all slots below this one",
)];

/// The work of an acceptor.
pub(crate) const ACCEPTOR: &[Metric] = &[
    Metric::gauge("votes", "slots", "slots of which it keeps a vote"),
    Metric::counter("votes_cast", "votes", "votes given"),
    Metric::counter(
        "refused",
        "messages",
        "messages of rounds below the one that it has promised",
    ),
];

/// The work of a replica.
pub(crate) const REPLICA: &[Metric] = &[
    Metric::gauge(
        "retained",
        "slots",
        "executed slots kept for replicas that missed them",
    ),
    Metric::gauge("sessions", "sessions", "sessions of clients"),
    Metric::counter("reads", "reads", "reads answered"),
    Metric::counter(
        "failed_reads",
        "reads",
        "reads in which the state machine panicked",
    ),
    Metric::gauge(
        "deferred_reads",
        "reads",
        "reads that wait for slots to be executed",
    )
    .settling(),
    Metric::counter("holes_asked", "slots", "missing slots asked of others"),
    Metric::counter(
        "stale",
        "messages",
        "values of slots that it had executed already",
    ),
];
