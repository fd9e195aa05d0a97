//! The rare branches of Scalog's own roles.

use crate::branches::branches;

branches! {
    PASSED_ON = "server: its shard is closed, and commands go on to a server of another",
    HELD = "server: no shard is open, and commands wait",
    BACKUP_GAP = "server: records of a peer are missing before those that come",
    BACKS_UP_AGAIN = "server: records that are not ordered are sent to the peers again",
    NEXT_AGGREGATOR = "server: turns to the next aggregator",
    LEFT = "server: a generation in which it took part is over",
    VOID = "server: records that no cut covers are dropped, and their commands go on",
    WHOLE = "server: one that lost its memory is not relied on any more",
    TRIMMED = "server: asked for records that replicas keep",
    CLOSES_SILENT = "aggregator: closes the shard of a silent server",
    CLOSES_FORGETFUL = "aggregator: closes the shard of a server that lost its memory",
    CLOSES_STANDING = "aggregator: closes a shard whose servers do not get each other's records",
    CLOSES_LATE = "aggregator: closes a shard whose records come late to replicas",
    CLOSES_SURPLUS = "aggregator: closes a shard because more are open than are to be",
    OPENS_SPARE = "aggregator: opens a spare shard in place of another",
    OPENS_AGAIN = "aggregator: opens a shard that was closed",
    PROPOSES_AGAIN = "aggregator: proposes again what was not chosen",
    CLOSED = "replica: a shard was closed",
    FETCHES_RECORDS = "replica: asks a server for records that it misses",
    FETCHED = "replica: takes in records that were missing",
    TAKES_OVER_CUT = "replica: takes over the cut of a peer",
    NO_ROOM = "replica: records that come too early are dropped",
}
