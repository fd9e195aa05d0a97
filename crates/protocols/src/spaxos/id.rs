//! The names of the instances of roles that S-Paxos alone has.

ionian_kernel::ids! {
    /// A disseminator.
    DisseminatorId "disseminator"
    /// A stabilizer.
    StabilizerId "stabilizer"
}
