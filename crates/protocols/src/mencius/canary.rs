//! Defects of Mencius built in on purpose, to test the tests; those of the roles that it shares
//! with MultiPaxos are [there](crate::multipaxos::canary). A deployment file cannot name them.

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// A leader counts positions by the number of leaders that serve its stripe and not by the
    /// number of stripes.
    S3WrongStripes,
    /// A leader skips slots that it has not reserved, and whoever follows it may use them.
    SkipsUnreserved,
    /// An acceptor forgets what was reserved when it restarts.
    ReservationLost,
    /// An acceptor lets a leader reserve slots though it has promised a higher round.
    S12ReservesForTheDeposed,
    /// A replica gives up on a range of skipped slots at the first that it already knows.
    L6RangeStopsAtKnown,
    /// A leader that is behind waits for commands to fill its slots.
    NeverSkips,
    /// A replica executes commands early though an earlier one that is not known yet may be in
    /// their way.
    CommutesWithTheUnknown,
    /// Servers that do not reach each other are not told by a third what they cannot tell each
    /// other.
    PassesNothingOn,
    /// A leader that has lost its stripe leaves it to others for ever.
    StaysAway,
}

impl Canary {
    /// All of them, with the names by which the command line knows them.
    pub const ALL: &'static [(&'static str, Canary)] = &[
        ("s3", Canary::S3WrongStripes),
        ("unreserved", Canary::SkipsUnreserved),
        ("reservation", Canary::ReservationLost),
        ("s12", Canary::S12ReservesForTheDeposed),
        ("l6", Canary::L6RangeStopsAtKnown),
        ("never-skips", Canary::NeverSkips),
        ("commutes", Canary::CommutesWithTheUnknown),
        ("passes-on", Canary::PassesNothingOn),
        ("stays-away", Canary::StaysAway),
    ];

    /// The defect of this name, if it is one of Mencius itself.
    pub fn named(name: &str) -> Option<Canary> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, canary)| *canary)
    }
}
