//! The rare branches of relays.

use crate::branches::branches;

branches! {
    GIVES_UP = "relay: answers before all that it waits for have voted",
    SECOND_LAYER = "relay: divides its acceptors among further relays",
    RELAY_REFUSED = "relay: a newer round cuts a request short",
    TOO_MANY = "relay: a request is dropped because too many are under way",
    RELAY_SUSPECTED = "proxy leader: a relay has not answered",
    RELAY_PROBED = "proxy leader: a suspected relay is given a request",
    ASKS_DIRECTLY = "proxy leader: acceptors are asked without a relay after two attempts",
    GROUP_STRANDED = "proxy leader, leader or reader: no relay of a group answers",
    COMMITS_ALONE = "proxy leader: no request came for what is chosen to ride on",
    COMMIT_EARLY = "acceptor: told that a value is chosen before it has voted for it",
}
