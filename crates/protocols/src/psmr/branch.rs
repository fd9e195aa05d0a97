//! The rare branches of P-SMR itself; each group has those of MultiPaxos too.

use crate::branches::branches;

branches! {
    SPANNING_READ = "client: a read of several parts is ordered in g_all",
    MARKS_AGAIN = "leader: a marker that replicas lack is proposed again",
    BARRIER = "leader: a noop in g_all, so that all workers stop",
    BARRIER_COMES = "leader: a barrier is wanted and on its way already",
    WAITS_FOR_MARKERS = "replica: something of g_all waits for markers",
    WANTS_MARKER = "replica: asks for a marker that does not come",
    WANTS_MARKER_AGAIN = "replica: asks again for a marker",
    HOLE_BELOW_MARKER = "replica: workers wait for a slot of g_all that is missing",
    STAYS = "replica: a worker waits on, because its marker is higher than another's",
    PASSES = "replica: a worker passes a marker, because nothing below it touches its part",
    SOME_STOP = "replica: what touches some parts is executed while other workers go on",
    NEEDS_STATE = "replica: it needs the state of all logs from a peer",
    STATE_AT_HAND = "replica: a peer that needs the state gets the one at hand",
    STATE_AFTER_BARRIER = "replica: a peer that needs the state waits for a barrier",
    ADOPTS = "replica: its groups take over a peer's state",
}
