//! What the roles of S-Paxos report beside [what their parts do](crate::parts::metrics).

use ionian_kernel::status::Metric;

pub(super) const DISSEMINATOR: &[Metric] = &[
    Metric::counter("payloads", "payloads", "payloads formed"),
    Metric::gauge("in_flight", "payloads", "payloads not known to be chosen"),
    Metric::gauge("in_flight_bytes", "bytes", "bytes of these"),
    Metric::counter(
        "disseminated_again",
        "payloads",
        "payloads given a new name",
    ),
    Metric::counter(
        "helped",
        "payloads",
        "payloads of other disseminators proposed for them",
    ),
    Metric::gauge(
        "suspected_stabilizers",
        "stabilizers",
        "stabilizers that do not answer; 0 when nothing was requested for 10 s",
    ),
    Metric::counter(
        "dropped_commands",
        "commands",
        "commands dropped for want of room",
    ),
];

pub(super) const LEADER: &[Metric] = &[
    Metric::gauge(
        "payloads_taken",
        "payloads",
        "payloads accepted in this round",
    ),
    Metric::counter(
        "repeated_proposals",
        "payloads",
        "payloads proposed again or beyond its limit",
    ),
    Metric::counter(
        "late_proposals",
        "payloads",
        "payloads that would be void at their turn",
    ),
    Metric::gauge(
        "carried_to",
        "slot",
        "it proposes noops up to this slot to make payloads void",
    ),
];

pub(super) const STABILIZER: &[Metric] = &[
    Metric::gauge("payloads", "payloads", "payloads that it holds"),
    Metric::gauge("payload_bytes", "bytes", "bytes of these"),
    Metric::gauge(
        "kept",
        "slot",
        "it has dropped the payloads of all slots below this one",
    ),
    Metric::counter("taken_in", "payloads", "payloads stored"),
    Metric::counter("delivered", "payloads", "payloads sent to replicas"),
    Metric::gauge(
        "waiting",
        "slots",
        "slots that wait for a payload that it does not hold",
    )
    .settling(),
    Metric::counter(
        "fetched",
        "payloads",
        "chosen payloads fetched from other stabilizers",
    ),
    Metric::counter(
        "void",
        "payloads",
        "references chosen in a slot where they are void",
    ),
    Metric::counter(
        "refused",
        "payloads",
        "payloads refused: void, sealed, or no room",
    ),
];
