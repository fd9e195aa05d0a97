//! The rare branches of Mencius's own roles.

use crate::branches::branches;

branches! {
    SKIPS_FOR_ANOTHER = "leader: a stand-in skips slots of another's stripe",
    VACANT_SKIPPED = "leader: slots that a predecessor left are skipped when it is known that they may be",
    GAP_SKIPPED = "leader: slots that predecessors left below what was voted for are skipped together",
    COMES_BACK = "leader: tries to take its own stripe back",
    SKIPS_FOR_REPLICA = "leader: skips because a replica waits for it",
    SAYS_SKIP_AGAIN = "leader: says again that slots were skipped",
    MISSES_LEADER = "leader: asks the others to pass on how far one is that it does not hear",
    HEARS_FRONTIER = "leader: hears where earlier epochs end in a stripe that another leads",
    FINISHES_CHANGE = "leader: finishes a change of members",
    PASSES_ON = "leader: passes on how far another is",
    RESERVE_REFUSED = "acceptor: a reservation of a deposed leader is refused",
    RESERVED_ALREADY = "acceptor: a reservation that it knows",
    RESERVATIONS_FULL = "acceptor: asked to note more reservations of a stripe than it keeps",
    READ_WHILE_FORGETFUL = "acceptor: does not answer readers before it takes part again in all stripes",
    PASSES_OVER = "replica: passes over more skipped slots than it retains",
    SKIP_OF_KNOWN = "replica: told that slots are skipped of which it knows some",
    RUNS_AHEAD = "replica: executes a command before its turn",
}
