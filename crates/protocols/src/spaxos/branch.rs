//! The rare branches of S-Paxos's own roles.

use crate::branches::branches;

branches! {
    VOID_ANEW = "disseminator: a payload gets a new name (new round, void, or first progress)",
    EARLIER_LIFE = "disseminator: an acknowledgement of an earlier life of a stabilizer does not count",
    LIFE_RENEWED = "disseminator: a stabilizer has lost its memory, and what it acknowledged is struck out",
    LEADER_AGAIN = "disseminator: the same leader asks for what is stable again",
    ASKS_ALL = "disseminator: all stabilizers are asked",
    OF_OLD_ROUND = "leader: a payload of an earlier round is refused",
    REPEATED = "leader: a payload that it has taken comes again",
    LATE = "leader: a payload would be void by the time of its turn",
    CARRIES = "leader: carries the log on past stale payloads",
    VOID = "stabilizer: a reference was chosen too late and stands for nothing",
    WAITS = "stabilizer: a payload that was chosen is not here",
    KEPT_ANSWER = "stabilizer: says that a payload is kept by replicas",
    NO_ANSWER = "stabilizer: asked for a payload that it does not have",
    FETCHED = "stabilizer: takes in a payload that was missing",
    COPY_REFUSED = "stabilizer: one that lost its memory is asked for a copy",
    COPY_IN_PAGES = "stabilizer: a copy does not fit one message",
    WHOLE = "stabilizer: has copied what it had lost",
    ACKNOWLEDGES_FORGETFUL = "stabilizer: takes in a payload before it has copied what it lost",
    SEALED = "stabilizer: a payload of an epoch is refused whose payloads others have taken over",
    TAKES_OVER = "stabilizer: takes over the payloads of the configuration before",
    TAKEN_OVER = "leader: a write quorum of the new stabilizers has taken over",
    STALE = "stabilizer: stale payloads hold too much",
}
