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
        "some replica has executed all slots below",
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
        "window_room",
        "slots",
        "slots for which its window has memory",
    ),
    Metric::gauge(
        "window_bytes",
        "bytes",
        "bytes proposed that replicas have not executed",
    ),
    Metric::gauge(
        "carried",
        "slots",
        "slots of earlier rounds that it has still to propose, noops included",
    ),
    Metric::gauge(
        "queued",
        "proposals",
        "proposals that wait for room in the window",
    ),
    Metric::counter(
        "handed_over_again",
        "slots",
        "slots given to a proxy leader again",
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
    Metric::counter(
        "retries",
        "slots",
        "slots for which votes were requested again",
    ),
    Metric::gauge(
        "suspected_acceptors",
        "acceptors",
        "acceptors that have not answered since a request; 0 when nothing was requested for 10 s",
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
    Metric::gauge("vote_room", "slots", "slots for whose votes it has memory"),
    Metric::gauge("vote_bytes", "bytes", "bytes of the values of these votes"),
    Metric::counter("votes_cast", "votes", "votes given"),
    Metric::counter(
        "refused",
        "messages",
        "messages refused: an old round, an epoch without this acceptor, or no room",
    ),
];

/// The work of a replica.
pub(crate) const REPLICA: &[Metric] = &[
    Metric::gauge(
        "retained",
        "slots",
        "executed slots kept for replicas that missed them",
    ),
    Metric::gauge(
        "log_room",
        "slots",
        "slots for which its part of the log has memory",
    ),
    Metric::gauge("sessions", "sessions", "sessions of clients"),
    Metric::counter("reads", "reads", "reads received"),
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
    Metric::counter("holes_asked", "requests", "requests for missing slots"),
    Metric::counter("stale", "messages", "messages discarded"),
    Metric::counter(
        "digests_compared",
        "digests",
        "digests of other replicas that it has compared with its own",
    ),
    Metric::gauge(
        "diverged_replicas",
        "replicas",
        "replicas that are known to have diverged",
    ),
];

/// The work of the threads that execute (`workers`).
pub(crate) const WORKERS: &[Metric] = &[
    Metric::gauge("workers", "threads", "threads that execute commands"),
    Metric::counter(
        "handed_to_workers",
        "commands",
        "commands and queries that went to another thread",
    ),
    Metric::counter(
        "spanning",
        "commands",
        "commands and queries that waited for several threads",
    ),
];
