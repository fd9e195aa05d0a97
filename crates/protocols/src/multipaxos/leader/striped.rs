//! What Mencius asks of a leader beside what MultiPaxos does: each of its leaders does this work
//! for a stripe of the log (`crate::mencius::leader`).

use super::{Leader, State};
use crate::multipaxos::canary::Canary;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// The slot of the next proposal.
    pub(crate) fn next_slot(&self) -> Slot {
        self.window.next_slot
    }

    /// Whether another leads, or nobody, and it does nothing about it.
    pub(crate) fn is_standby(&self) -> bool {
        matches!(self.state, State::Standby)
    }

    /// When it began to lead: from the first of these slots up to the other one it proposed
    /// nothing, and nobody else can have proposed anything but a noop.
    pub(crate) fn vacant(&self) -> (Slot, Slot) {
        self.vacant
    }

    /// The long runs of slots below those in which it proposes again what phase 1 has found, and
    /// between them: as above.
    pub(crate) fn gaps(&self) -> &[(Slot, Slot)] {
        &self.gaps
    }

    /// Goes on at `slot` and leaves all slots below it that it has not used.
    pub(crate) fn skip_to(&mut self, slot: Slot) {
        self.window.next_slot = self.window.next_slot.max(slot);
    }

    /// New values can be proposed in slots below `limit`.
    pub(crate) fn open_below(&mut self, now: Instant, limit: Slot, out: &mut Out<'_, Self>) {
        self.window.limit = limit;
        self.propose_queued(now, out);
    }

    /// From `slot` on, the end of the slots that it has left: `None` when `slot` is not one, or so
    /// old that this leader cannot know.
    pub(crate) fn left_until(&self, slot: Slot) -> Option<Slot> {
        let knows = self.is_leading() && !self.carried.has(slot);
        knows.then(|| self.window.left_until(slot)).flatten()
    }

    /// Begins a round of its own, though another leads and lives: it is to lead where it can. Also
    /// when it is a candidate: one that began a round while it was cut off hears of no lower one,
    /// and the acceptors say that another lives. First it asks whether it reaches those without
    /// whom it could only depose the other, and not lead.
    pub(crate) fn take_over(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.may_return(now) {
            return;
        }
        if self.config.has(Canary::DeposesBlindly) {
            return self.begin_phase1(now, self.round, self.config.epoch(), out);
        }
        self.returns = Some(AcceptorSet::EMPTY);
        self.ask_witnesses(out);
    }

    fn may_return(&self, now: Instant) -> bool {
        let stands =
            matches!(self.state, State::Candidate { .. }) && !self.config.has(Canary::NeverReturns);
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
