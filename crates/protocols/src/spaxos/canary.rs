//! Defects of S-Paxos built in on purpose, to test the tests: the simulator must catch every one,
//! by itself or in a play. Those of the roles that it shares with MultiPaxos are
//! [there](crate::multipaxos::canary). A deployment file cannot name them.

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// A disseminator proposes as soon as one stabilizer holds the payload.
    ProposesUnstable,
    /// A stabilizer says that it holds a payload before it would find it again.
    UnfencedStore,
    /// A stabilizer forgets a payload once it has handed it to the replicas.
    ForgetsDelivered,
    /// A leader gives a payload that is proposed twice two slots.
    ProposesTwice,
    /// A payload may be chosen in whatever slot, and has its effect there.
    DeliversVoid,
    /// A stabilizer that lost its payloads counts as one that holds them.
    AmnesiacCounts,
    /// A disseminator counts what a stabilizer acknowledged before it lost its memory. So rare that
    /// it takes a play.
    CountsEarlierLives,
    /// A stabilizer that loses its memory forgets that others had lost theirs before. It takes a
    /// play too.
    ForgetsOthersLives,
}

impl Canary {
    /// All of them, with the names by which the command line knows them.
    pub const ALL: &'static [(&'static str, Canary)] = &[
        ("unstable", Canary::ProposesUnstable),
        ("unfenced", Canary::UnfencedStore),
        ("forgets", Canary::ForgetsDelivered),
        ("twice", Canary::ProposesTwice),
        ("void", Canary::DeliversVoid),
        ("amnesia", Canary::AmnesiacCounts),
        ("lives", Canary::CountsEarlierLives),
        ("others-lives", Canary::ForgetsOthersLives),
    ];

    /// The defect of this name, if it is one of S-Paxos itself.
    pub fn named(name: &str) -> Option<Canary> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, canary)| *canary)
    }
}
