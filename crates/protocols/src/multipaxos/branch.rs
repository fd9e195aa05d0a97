//! The rare branches of MultiPaxos's roles.

use crate::branches::branches;

branches! {
    FULL_QUEUE = "leader: a batch is dropped because too many wait",
    FILLS_UP = "leader: noops up to a slot that was voted for beyond its own last (l5)",
    HANDS_OVER_RECOVERED = "leader: a slot that a replica misses is handed over again",
    REPAIR_BEGINS = "leader: a repair begins",
    REPAIR_WITHOUT_VALUE = "leader: votes for a slot in repair came and settled nothing",
    REPAIR_ENDS = "leader: a slot is repaired",
    CLOCK_NOOP = "leader: a noop carries the time",
    ROUND_FOR_ADMISSION = "leader: a round is begun to admit an acceptor that lost its votes",
    PAGE_OF_VOTES = "leader: an acceptor is asked for its next stretch of votes",
    PHASE_1_ASKED_AGAIN = "leader: phase 1 is asked again",
    PROPOSES_AGAIN = "leader: a new leader proposes what a predecessor may have chosen",
    FILLS_HOLE = "leader: a new leader fills a hole with a noop",
    DEPOSED_WITH_QUEUE = "leader: deposed while batches waited",
    DEPOSED_IN_PHASE_1 = "leader: deposed before phase 1 was over",
    CANDIDATE_HEARS_LEADER = "leader: a candidate hears of the leader",
    TURNS_AWAY = "leader: one that does not lead turns a batch away",
    JOINT_ROUND = "leader: the round of a change begins while it leads",
    JOINT_LED = "leader: leads by the quorums of both configurations",
    PHASE_1A_REFUSED = "acceptor: a leader of an old round is refused",
    PHASE_2A_REFUSED = "acceptor: a vote in an old round is refused",
    PHASE_2A_FORGOTTEN = "acceptor: asked to vote in a slot that it has forgotten",
    VOTES_FULL = "acceptor: asked to vote too far ahead of what it remembers",
    VOTES_ANEW = "acceptor: votes for another value in a slot than before",
    ADMITTED = "acceptor: takes part again without the votes of its earlier life",
    VOTES_IN_PAGES = "acceptor: its votes do not fit one message",
    LEARN_UNKNOWN = "acceptor: told that a vote is chosen that it does not have",
    SECOND_QUORUM = "proxy leader: another write quorum is asked",
    ASKS_ALL = "proxy leader: all acceptors are asked",
    ROUND_LEFT = "proxy leader: a nack ends its round with slots pending",
    SLOTS_FORGOTTEN = "proxy leader: acceptors have forgotten slots that it had pending",
    FETCHES = "replica: asks a peer for what it misses",
    RECOVERS = "replica: asks the leader for what it misses",
    FETCHES_SNAPSHOT = "replica: asks again for a piece of a snapshot",
    OFFERS_SNAPSHOT = "replica: gives a peer a snapshot",
    INSTALLS = "replica: installs a peer's snapshot",
    PEER_WAITS = "replica: a peer waits for slots that are not here yet",
    FETCHES_MORE = "replica: asks for more at once",
    ASKS_CLOCK = "replica: asks for the time",
    OFFER_WAITS = "replica: a snapshot waits for what was executed early",
    OFFER_GONE = "replica: asked for a piece of a snapshot that is gone",
}

/// Those of changes of the membership.
pub(crate) const OF_CHANGES: &[&str] = &[JOINT_ROUND, JOINT_LED];
