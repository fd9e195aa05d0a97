//! The rare branches of CRAQ.

use crate::branches::branches;

branches! {
    HANDED_ON = "chain node: a write comes to another node than the head, which hands it on",
    READ_HANDED_ON = "chain node: a read comes to a node that is not in the chain",
    QUEUED = "chain node: a write waits at the head, because the window is full",
    DIRTY = "chain node: a read touches what is not known to be committed",
    QUERY_AGAIN = "chain node: the tail is asked again what is committed",
    READ_AT_TAIL = "chain node: a dirty read is executed by the tail",
    WAITS = "chain node: a sequential read waits for what its client has seen",
    GAP = "chain node: entries come that do not follow what it has",
    RESENT = "chain node: entries are sent again",
    OTHER_EPOCH = "chain node: a message of another epoch is ignored",
    HEAD_DIED = "chain node: it becomes the head",
    MIDDLE_DIED = "chain node: it gets another predecessor",
    TAIL_DIED = "chain node: it becomes the tail, and commits what it has received",
    REMOVED = "chain node: it is no longer in the chain",
    DISCARDS = "chain node: what it has received is void, because it is no longer in the chain",
    SUSPECTS = "chain node: it has its neighbour removed",
    SLOW_JOIN = "chain node: the last member takes too long to become full",
    NEW_LIFE = "chain node: it begins a new life, without its memory",
    FETCHES_ENTRIES = "chain node: it copies entries, to join the chain",
    FETCHES_SNAPSHOT = "chain node: it copies the state, to join the chain",
    INSTALLS = "chain node: it takes over the state of another node",
    SNAPSHOT_GONE = "chain node: asked for a piece of a snapshot that is gone",
    READY = "chain node: it asks to become the tail",
    FULL = "chain node: it has all that was acknowledged, and serves as the tail",
    FAR_BEHIND = "chain node: the last member lacks what its predecessor has forgotten",
    RESYNC = "chain node: one that restarted finds its neighbours again in the same epoch",
    MASTER_SILENT = "chain node: the master leaves a question unanswered",
}
