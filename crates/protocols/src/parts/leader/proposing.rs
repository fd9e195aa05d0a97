//! Giving batches their slots, or turning them away.

use super::{LeaderCore, LeaderPort, Notes, State};
use crate::parts::branch;
use crate::parts::message::Proposer;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::queue;

/// A batch, and who waits for it.
pub struct Proposal {
    /// Who proposes it.
    pub proposer: Proposer,
    /// The replicas on the proposer's node: an answer given there has the shortest way.
    pub near: Set<ReplicaId>,
    /// The batch.
    pub batch: Batch,
}

impl queue::Proposal for Proposal {
    fn batch(&self) -> &Batch {
        &self.batch
    }
}

impl<N: Notes> LeaderCore<N> {
    /// A batch to get chosen; `again` says whether its proposer has proposed it before, here or
    /// elsewhere. Returns whether it is in hand now: not if another leader leads, or if there is no
    /// room for it.
    pub fn on_propose(
        &mut self,
        now: Instant,
        proposal: Proposal,
        again: bool,
        port: &mut impl LeaderPort,
    ) -> bool {
        if matches!(
            self.state,
            State::Standby | State::Candidate { in_vain: true, .. }
        ) {
            port.reached(branch::TURNS_AWAY);
            self.turn_away(proposal.proposer, port);
            return false;
        }
        if again && self.has(&proposal.batch) {
            return true;
        }
        match self.state {
            State::Leading
                if self.queue.is_empty() && self.may_propose(proposal.batch.byte_len()) =>
            {
                let Proposal {
                    proposer,
                    near,
                    batch,
                } = proposal;
                self.propose(now, proposer, near, batch, port);
                return true;
            }
            // A batch that comes during an election or phase 1 waits (l3).
            _ => {}
        }
        self.held.add(&proposal.batch);
        let class = self.window.flow.class(proposal.batch.byte_len());
        if let Err(proposal) = self.queue.push(class, proposal) {
            self.held.remove(&proposal.batch);
            self.dropped += 1;
            port.reached(branch::FULL_QUEUE);
            return false;
        }
        self.propose_queued(now, port);
        true
    }

    /// Whether a batch that is proposed once more is in hand already: then it is neither queued nor
    /// proposed again.
    pub(super) fn has(&mut self, batch: &Batch) -> bool {
        let found = self.carried.batches().chain(self.window.batches());
        let has = self.held.has(batch, &self.queue, found);
        self.repeated += u64::from(has);
        has
    }

    /// Whether a batch of this size, in bytes, may be proposed.
    pub(super) fn may_propose(&self, bytes: usize) -> bool {
        self.is_open() && self.window.flow.has_room(bytes)
    }

    /// Whether a small batch need not wait for what was proposed before.
    pub fn has_room(&self) -> bool {
        self.queue.is_empty() && self.may_propose(0)
    }

    /// Whether anything new may be proposed: not before what was found in phase 1.
    pub(super) fn is_open(&self) -> bool {
        self.carried.is_empty() && self.window.is_open(self.progress.executed())
    }

    /// Proposes again what was found in phase 1, as far as there is room for it.
    pub(super) fn propose_carried(&mut self, now: Instant, port: &mut impl LeaderPort) {
        while let Some((slot, _)) = self
            .carried
            .peek()
            .filter(|(slot, bytes)| self.window.has_room_for(*slot, *bytes))
        {
            let value = self.carried.take();
            port.reached(if value.is_some() {
                branch::PROPOSES_AGAIN
            } else {
                branch::FILLS_HOLE
            });
            // A noop has no time of its own, so that each leader that fills the slot puts the same
            // into it.
            let value = value.unwrap_or_default();
            self.window.propose(
                now,
                self.round,
                slot,
                value,
                Proposer::Leader {},
                Set::EMPTY,
                port,
            );
        }
    }

    /// Proposes what waits, as far as there is room for it and clients wait for it.
    pub(super) fn propose_queued(&mut self, now: Instant, port: &mut impl LeaderPort) {
        let Self { queue, held, .. } = self;
        queue.drop_settled(
            now,
            |floors, proposal| port.settles(floors, &proposal.batch),
            |proposal| held.remove(&proposal.batch),
        );
        while self.is_leading() && !self.queue.is_empty() && self.is_open() {
            let Some(next) = self.queue.pop(|bytes| self.window.flow.has_room(bytes)) else {
                return;
            };
            let Proposal {
                proposer,
                near,
                batch,
            } = next;
            self.propose_held(now, proposer, near, batch, port);
        }
    }

    pub(super) fn propose(
        &mut self,
        now: Instant,
        proposer: Proposer,
        near: Set<ReplicaId>,
        batch: Batch,
        port: &mut impl LeaderPort,
    ) {
        self.held.add(&batch);
        self.propose_held(now, proposer, near, batch, port);
    }

    /// Proposes a batch that is noted as in hand.
    pub(super) fn propose_held(
        &mut self,
        now: Instant,
        proposer: Proposer,
        near: Set<ReplicaId>,
        batch: Batch,
        port: &mut impl LeaderPort,
    ) {
        let value = Value {
            stamp: self.clock.stamp(now),
            batch,
        };
        let slot = self.window.next_slot;
        self.window.next_slot = slot.next();
        self.window
            .propose(now, self.round, slot, value, proposer, near, port);
    }

    pub(super) fn propose_noop(&mut self, now: Instant, port: &mut impl LeaderPort) {
        self.propose(now, Proposer::Leader {}, Set::EMPTY, Batch::default(), port);
    }

    /// Tells a proposer that this leader does not lead.
    pub fn turn_away(&self, proposer: Proposer, port: &mut impl LeaderPort) {
        match proposer {
            Proposer::Client { id } => port.not_leader(Set::one(id), Set::EMPTY, self.round),
            Proposer::Batcher { id, .. } => {
                port.not_leader(Set::EMPTY, Set::one(id), self.round);
            }
            Proposer::Leader {} => {}
        }
    }
}
