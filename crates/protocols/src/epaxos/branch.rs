//! The rare branches of EPaxos.

use crate::branches::branches;

branches! {
    PROPOSES_BARRIER = "leader: a barrier gives the time, or lets acceptors forget",
    CROWDED = "leader: a command waits because too many on its key are undecided",
    ASKS_SPARES = "leader: acceptors outside the fast quorum are asked",
    PROPOSES_AGAIN = "leader: a command whose instance became a noop is proposed again",
    RECOVERS_OWN = "leader: recovers an instance of its own",
    RECOVERS = "leader: recovers an instance",
    RECOVERY_DECIDED = "leader: recovers what an acceptor knows as decided",
    RECOVERY_VOTED = "leader: recovers what was voted for",
    RECOVERY_LEADER_ANSWERS = "leader: recovers a noop, for the instance's leader has not decided",
    RECOVERY_UNKNOWN = "leader: recovers a noop, for no acceptor knows the command",
    RECOVERY_BROKEN = "leader: recovers a noop, for a member of the fast quorum does not know it",
    RECOVERY_MAY_BE_DECIDED = "leader: recovers a command that may be decided on the fast path",
    PRE_ACCEPT_AGAIN = "acceptor: gives an answer again",
    PRE_ACCEPT_REFUSED = "acceptor: a command comes after its instance is recovered",
    ACCEPT_REFUSED = "acceptor: asked to vote in an old ballot",
    DECIDE_REFUSED = "acceptor: its leader decides after it has promised another ballot",
    PREPARE_REFUSED = "acceptor: a recovery in an old ballot",
    COMMIT_WITHOUT_PAYLOAD = "acceptor: told what is decided without the command, which it lacks",
    RECORDED_ANEW = "acceptor: writes an old record again",
    ASKED_FOR_FORGOTTEN = "acceptor: asked for an instance that replicas keep in snapshots",
    FETCHES = "replica: asks an acceptor for what it misses",
    ASKS_FOR_RECOVERY = "replica: asks a leader to recover what it misses",
    FETCHES_SNAPSHOT = "replica: asks a peer for a snapshot",
    OFFER_GONE = "replica: asked for a snapshot that it no longer has",
    INSTALLS = "replica: takes over a peer's snapshot",
    READ_ASKED_AGAIN = "replica: acceptors are asked again for what a read must see",
}
