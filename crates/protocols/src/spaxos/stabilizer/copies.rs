//! Which life a stabilizer lives; what it tells another that lost its memory, or that takes over in
//! a change of the membership, and what it does when it lost its own. The argument is in
//! `copying.rs`.

use super::{COPY_BYTES, Copying, In, Record, Stabilizer};
use crate::spaxos::Envelope;
use crate::spaxos::branch;
use crate::spaxos::config::Stabilizers;
use crate::spaxos::id::StabilizerId;
use crate::spaxos::lives::first_of;
use crate::spaxos::message::{Payload, PayloadId};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Stabilizer {
    /// Whether its process begins as a new stabilizer: it finds no records, or those of another
    /// that had its number on this node before.
    pub(super) fn is_new(&self, has_lived: bool) -> bool {
        let first = first_of(self.config.epoch());
        !has_lived || (self.config.is_new(self.id) && self.lives.of(self.id) < first)
    }

    /// The first of the lives that it can live in this configuration. It is above all that another
    /// counted that had its number in an earlier one, while the node of this one was down: what is
    /// known of those lives does not make this one of the past. One that was there all along begins
    /// another life too, because it cannot tell. That costs little: what it has acknowledged and is
    /// not stable yet is asked for again.
    pub(super) fn first_life(&self, is_new: bool) -> u64 {
        first_of(match is_new || self.config.is_new(self.id) {
            true => self.config.epoch(),
            false => self.config.since(),
        })
    }

    /// Begins this life, unless it lives a later one.
    pub(super) fn begin_life(&mut self, life: u64, out: &mut Out<'_, Self>) {
        if self.lives.learn(self.id, life) {
            out.persist_vital(Record::Begun { life });
        }
    }

    /// Answers one that lost its memory, or that takes over and `seals` this one.
    pub(super) fn on_copy(
        &mut self,
        from: StabilizerId,
        life: u64,
        (seals, after): (Option<Epoch>, Option<PayloadId>),
        out: &mut Out<'_, Self>,
    ) {
        // Whatever this one acknowledges from now on comes too late for that copy.
        if self.lives.learn(from, life) {
            out.persist_vital(Record::Renewed {
                stabilizer: from,
                life,
            });
        }
        let is_now = |epoch| self.config.is_joint() && epoch == self.config.epoch();
        if !seals.is_none_or(is_now) {
            // Of a change that is over here.
            return;
        }
        if self.is_amnesiac() {
            return out.reached(branch::COPY_REFUSED);
        }
        if let Some(epoch) = seals {
            self.seal(epoch, out);
        }
        let (payloads, last) = self.payloads.page(after, seals, COPY_BYTES);
        if !last {
            out.reached(branch::COPY_IN_PAGES);
        }
        let message = In::Copied {
            from: self.id,
            life,
            seals,
            payloads,
            last,
        };
        // Fenced: it is held by this one, and not only by its memory; and so are the life of the
        // one that asks, and the seal.
        let from = Set::one(from).and(self.others());
        out.send(Envelope::ToStabilizers(from, message));
    }

    /// Takes in a page of what another holds.
    pub(super) fn on_copied(
        &mut self,
        now: Instant,
        from: StabilizerId,
        seals: Option<Epoch>,
        (payloads, last): (Vec<Payload>, bool),
        out: &mut Out<'_, Self>,
    ) {
        let reached = payloads.last().map(|payload| payload.id);
        let wanted = match seals {
            None => self.copying.as_mut(),
            Some(epoch) => self
                .taking_over
                .as_mut()
                .and_then(|taking_over| taking_over.copying_of(epoch)),
        };
        let Some(copying) = wanted else {
            return;
        };
        copying.on_page(now, from, reached, last);
        for payload in payloads {
            if payload.void_from > self.kept && !self.holds(payload.id) {
                self.keep(now, payload, out);
            }
        }
        match seals {
            None => self.go_on_copying(now, out),
            Some(_) => self.on_taken_over(now, out),
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure_copies(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.forget_taking_over();
        if let Some(copying) = &mut self.copying {
            copying.look_again(now);
        }
        self.go_on_copying(now, out);
    }

    /// Of which stabilizers one that lost its memory copies: a read quorum of these. While the
    /// membership is changing those of the configuration before are enough for all that this one
    /// ever acknowledged, because payloads of both epochs are stored by a write quorum of them; but
    /// not if it may have told a leader that it has taken over.
    fn sources(&self) -> &Stabilizers {
        match self.config.stabilizers_before() {
            Some(before) if self.sealed < self.config.epoch() => before,
            _ => &self.config.stabilizers,
        }
    }

    /// Whether a read quorum has told everything; if not, asks for more.
    fn go_on_copying(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let complete = self.copying.as_ref().map(Copying::complete);
        if complete.is_some_and(|complete| self.sources().is_read_quorum(complete)) {
            self.copying = None;
            out.reached(branch::WHOLE);
            self.alive_at = now;
        } else {
            self.ask_for_copies(now, out);
        }
    }

    /// Asks those that have not told everything, when their answers are overdue.
    pub(super) fn ask_for_copies(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let sources = self.sources().members().without(Set::one(self.id));
        let resend_after = self.config.layout().options.resend_after;
        let (from, life) = (self.id, self.lives.of(self.id));
        let Some(copying) = &mut self.copying else {
            return;
        };
        for (other, after) in copying.overdue(now, sources, resend_after) {
            let message = In::Copy {
                from,
                life,
                seals: None,
                after,
            };
            out.send(Envelope::ToStabilizers(Set::one(other), message));
        }
    }
}
