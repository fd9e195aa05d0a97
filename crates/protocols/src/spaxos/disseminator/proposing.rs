//! What a disseminator tells the leader, and what follows from what the leader says.

use super::{Disseminator, InFlight, PROPOSE_AGAIN_AFTER};
use crate::spaxos::id::PayloadNumber;
use crate::spaxos::{Envelope, branch, leader};
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Instant, earliest};
use ionian_replication::settled;

impl Disseminator {
    /// Has the leader order a stable payload.
    pub(super) fn propose(&mut self, now: Instant, number: PayloadNumber, out: &mut Out<'_, Self>) {
        let floor = self.floor();
        let payload = self.in_flight.get_mut(&number);
        let payload = payload.expect("proposes a payload in flight");
        payload.due = now + PROPOSE_AGAIN_AFTER * (1 << payload.attempts.min(3));
        payload.attempts += 1;
        self.check_at = earliest(self.check_at, Some(payload.due));
        let near = self.neighbours.replicas;
        let message = leader::In::propose(&payload.ticket(floor), payload.stored, near);
        let leader = self.config.ordering.leader(payload.round, 0);
        out.send(Envelope::ToLeaders(Set::one(leader), message));
    }

    /// These payloads are chosen, in slots below `below`: some may be void there.
    pub(super) fn on_chosen(
        &mut self,
        now: Instant,
        numbers: &[PayloadNumber],
        below: Slot,
        out: &mut Out<'_, Self>,
    ) {
        self.reached = self.reached.max(below);
        let mut void = Vec::new();
        for number in numbers {
            match self.in_flight.entry(*number) {
                Entry::Vacant(_) => {}
                Entry::Occupied(payload) if below > payload.get().void_from => void.push(*number),
                Entry::Occupied(payload) => {
                    let payload = payload.remove();
                    self.in_flight_bytes -= payload.batch.byte_len();
                    if let Some((batcher, number)) = payload.from {
                        self.chosen_batches.entry(batcher).or_default().push(number);
                    }
                }
            }
        }
        self.disseminate_again(now, void, out);
    }

    /// Uses the leader of `round`. What an earlier leader has accepted and not ordered gets another
    /// name.
    pub(super) fn follow(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        if round > self.round {
            self.round = round;
            self.disseminate_all_again(now, out);
        } else {
            out.reached(branch::LEADER_AGAIN);
            let stable = self.numbers_of(|payload| payload.stable);
            stable
                .into_iter()
                .for_each(|number| self.propose(now, number, out));
        }
    }

    fn disseminate_all_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.executed.is_some() {
            let all = self.in_flight.keys().copied().collect();
            self.disseminate_again(now, all, out);
        }
    }

    /// The leader of `round` is alive, and some replica has executed every slot below `executed`.
    pub(super) fn on_progress(
        &mut self,
        now: Instant,
        round: Round,
        executed: Slot,
        out: &mut Out<'_, Self>,
    ) {
        let is_first = self.executed.is_none();
        self.executed = self.executed.max(Some(executed));
        if round > self.round {
            self.follow(now, round, out);
        } else if is_first {
            self.disseminate_all_again(now, out);
        }
    }

    /// Drops what no client waits for any more, and copies of what is in flight. The leader learns
    /// it by the lowest number in flight, and batchers as if it were chosen.
    pub(super) fn drop_settled(&mut self) {
        let in_flight = self.in_flight.iter();
        for number in settled::needless(in_flight.map(|(number, it)| (*number, &it.batch))) {
            let from = self.remove(number).and_then(|payload| payload.from);
            if let Some((batcher, number)) = from {
                self.chosen_batches.entry(batcher).or_default().push(number);
            }
        }
    }

    pub(super) fn numbers_of(&self, which: impl Fn(&InFlight) -> bool) -> Vec<PayloadNumber> {
        let all = self.in_flight.iter().filter(|(_, payload)| which(payload));
        all.map(|(number, _)| *number).collect()
    }
}
