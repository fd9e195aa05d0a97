//! How the stabilizers of one configuration hand payloads over to those of the next.
//!
//! In the rounds of the epoch in which both configurations are in force, new payloads are stored by
//! a write quorum of each. What remains are payloads of earlier rounds: an acceptor may have a vote
//! for one of them that no read quorum has told yet, and a leader that finds it has it chosen, at
//! any later time, in a slot beyond those that replicas keep already. So before the change is
//! finished, each stabilizer of a write quorum of the new configuration copies all payloads of
//! earlier epochs that a read quorum of those before holds, and each of these *seals* itself before
//! it answers: it acknowledges no further payload of earlier epochs. The argument is in
//! `docs/protocols/spaxos.md`, "Membership".

use super::{Copying, In, Record, Stabilizer};
use crate::spaxos::branch;
use crate::spaxos::id::StabilizerId;
use crate::spaxos::{Envelope, kind, leader};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

/// What a stabilizer of the new configuration copies from those of the one before.
pub(super) struct TakingOver {
    /// Of the leader that asked for it.
    round: Round,
    copying: Copying,
    /// Whether a read quorum has told everything.
    is_done: bool,
}

impl TakingOver {
    /// The copying, if it is of this epoch's change.
    pub(super) fn copying_of(&mut self, epoch: Epoch) -> Option<&mut Copying> {
        (self.round.epoch() == epoch).then_some(&mut self.copying)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        (!self.is_done).then(|| self.copying.next_timer())
    }
}

impl Stabilizer {
    /// From now on acknowledges payloads of rounds of this epoch and later ones alone.
    pub(super) fn seal(&mut self, epoch: Epoch, out: &mut Out<'_, Self>) {
        if epoch > self.sealed {
            self.sealed = epoch;
            out.persist_vital(Record::Sealed { epoch });
        }
    }

    /// A leader leads by the quorums of both configurations.
    pub(super) fn on_take_over(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        let epoch = round.epoch();
        let after = self.config.stabilizers_after();
        let is_due = epoch == self.config.epoch()
            && after.is_some_and(|after| after.members().contains(self.id));
        // What it has lost it must hold again first.
        if !is_due || self.is_amnesiac() {
            return;
        }
        match &mut self.taking_over {
            Some(taking_over) => taking_over.round = taking_over.round.max(round),
            None => {
                out.reached(branch::TAKES_OVER);
                self.seal(epoch, out);
                self.taking_over = Some(TakingOver {
                    round,
                    copying: Copying::default(),
                    is_done: false,
                });
            }
        }
        self.go_on_taking_over(now, out);
    }

    /// A page of what another holds has come.
    pub(super) fn on_taken_over(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let is_done = |taking_over: &TakingOver| taking_over.is_done;
        if !self.taking_over.as_ref().is_some_and(is_done) {
            self.go_on_taking_over(now, out);
        }
    }

    /// Tells the leader when a read quorum has told everything; if not, asks for more.
    fn go_on_taking_over(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (Some(taking_over), Some(before)) =
            (&mut self.taking_over, self.config.stabilizers_before())
        else {
            return;
        };
        // It knows what it holds itself, if that counts in the configuration before.
        let told = taking_over.copying.complete().or(Set::one(self.id));
        if !before.is_read_quorum(told) {
            return self.ask_for_rest(now, out);
        }
        taking_over.is_done = true;
        let round = taking_over.round;
        let message = leader::In::TookOver {
            from: self.id,
            round,
            lives: self.lives.all(),
        };
        let leader = Set::one(round.leader()).and(self.config.all(kind::Leader));
        // Fenced behind the records of what was copied.
        out.send(Envelope::ToLeaders(leader, message));
    }

    /// Asks those that have not told everything, when their answers are overdue.
    pub(super) fn ask_for_rest(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (Some(taking_over), Some(before)) =
            (&mut self.taking_over, self.config.stabilizers_before())
        else {
            return;
        };
        if taking_over.is_done {
            return;
        }
        let sources: Set<StabilizerId> = before.members().without(Set::one(self.id));
        let resend_after = self.config.layout().options.resend_after;
        let (from, life) = (self.id, self.lives.of(self.id));
        let seals = Some(taking_over.round.epoch());
        for (other, after) in taking_over.copying.overdue(now, sources, resend_after) {
            let message = In::Copy {
                from,
                life,
                seals,
                after,
            };
            out.send(Envelope::ToStabilizers(Set::one(other), message));
        }
    }

    /// The membership has changed: what was to be taken over was so in another epoch.
    pub(super) fn forget_taking_over(&mut self) {
        let epoch = self.config.epoch();
        self.taking_over
            .take_if(|taking_over| taking_over.round.epoch() != epoch);
    }
}
