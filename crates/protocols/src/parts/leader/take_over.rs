//! Leading where another leads: a leader that is to lead where it can takes over from the one that
//! led in its absence.

use super::{LeaderCore, LeaderPort, Notes, State};
use crate::multipaxos::config::Highest;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

/// Which acceptors have answered since a leader has wanted to take over, and the highest rounds
/// that they have promised.
#[derive(Default)]
pub(super) struct Returns {
    answered: AcceptorSet,
    promised: Highest<Round>,
}

impl<N: Notes> LeaderCore<N> {
    /// Whether it neither leads nor stands for election.
    pub fn is_standby(&self) -> bool {
        matches!(self.state, State::Standby)
    }

    /// Begins a round of its own, though another leads and lives: it is to lead where it can. Also
    /// when it is a candidate: one that began a round while it was cut off hears of no lower one,
    /// and the acceptors say that another lives. First it asks whether it reaches those without
    /// whom it could only depose the other, and not lead.
    pub fn take_over(&mut self, now: Instant, port: &mut impl LeaderPort) {
        if !self.may_return(now) {
            return;
        }
        self.returns = Some(Returns::default());
        self.ask_witnesses(port);
    }

    fn may_return(&self, now: Instant) -> bool {
        let stands = matches!(self.state, State::Candidate { .. });
        (self.is_standby() || stands) && !self.succession.drains() && !self.window.is_cut_off(now)
    }

    /// An acceptor answers, which has promised `promised`. When enough have answered: the epoch of
    /// the round in which it takes over, and the highest round that they have promised. Enough are
    /// a write quorum, and those that phase 1 asks; while the membership is changing those of the
    /// configuration before are enough, as for an election.
    pub(super) fn returns_with(
        &mut self,
        now: Instant,
        from: AcceptorId,
        promised: Round,
    ) -> Option<(Epoch, Round)> {
        let Returns {
            answered,
            promised: highest,
        } = self.returns.as_mut()?;
        answered.insert(from);
        highest.raise(&self.config, from, promised);
        let (answered, highest) = (*answered, highest.at_least(self.round));
        let (epoch, above) =
            self.handover
                .electable(now, &self.config, (answered, highest), &self.progress)?;
        let quorums = self.config.quorums_of(epoch.first_round())?;
        if !quorums.is_write_quorum(answered) {
            return None;
        }
        self.returns = None;
        self.may_return(now).then_some((epoch, above))
    }
}
