//! Leading where another leads: a leader that is to lead where it can takes over from the one that
//! led in its absence.

use super::{LeaderCore, LeaderPort, Notes, State};
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

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
        self.returns = Some(AcceptorSet::EMPTY);
        self.ask_witnesses(port);
    }

    fn may_return(&self, now: Instant) -> bool {
        let stands = matches!(self.state, State::Candidate { .. });
        (self.is_standby() || stands) && !self.succession.drains() && !self.window.is_cut_off(now)
    }

    /// Whether so many acceptors have answered, this one now, that it can take over: a write
    /// quorum, and all whom phase 1 asks.
    pub(super) fn returns_with(&mut self, now: Instant, from: AcceptorId) -> bool {
        let Some(answered) = &mut self.returns else {
            return false;
        };
        answered.insert(from);
        let quorums = &self.config.quorums;
        if !quorums.is_write_quorum(*answered) || !quorums.is_read_quorum(*answered) {
            return false;
        }
        self.returns = None;
        self.may_return(now)
    }
}
