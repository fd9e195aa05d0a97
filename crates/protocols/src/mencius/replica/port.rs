//! The messages of the part that executes the log.

use super::Replica;
use super::skipped::Skipped;
use crate::mencius::config::Config;
use crate::mencius::{Envelope, client, leader, read_batcher, replica, unbatcher};
use crate::multipaxos;
use crate::multipaxos::message::{ChosenSlots, Times};
use crate::parts::replica::ReplicaPort;
use crate::parts::replica::divergence::Mark;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::role::Out;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::Answers;

/// See the top of this file.
pub(super) struct Port<'a, 'b> {
    pub(super) id: ReplicaId,
    pub(super) config: &'a Config,
    /// What was skipped, by stripe: it need not be asked for.
    pub(super) skipped: &'a [Skipped],
    /// The highest round heard of, by stripe.
    pub(super) rounds: &'a [Round],
    pub(super) out: &'a mut Out<'b, Replica>,
}

impl Port<'_, '_> {
    fn tell_replica(&mut self, to: ReplicaId, message: multipaxos::replica::In) {
        self.tell_replicas(Set::one(to), message);
    }

    fn tell_replicas(&mut self, to: Set<ReplicaId>, message: multipaxos::replica::In) {
        let message = replica::In::OfLog { message };
        self.out.send(Envelope::ToReplicas(to, message));
    }

    fn tell_leaders(&mut self, message: leader::In) {
        let leaders = self.config.leaders();
        self.out.send(Envelope::ToLeaders(leaders, message));
    }
}

impl ReplicaPort for Port<'_, '_> {
    #[inline]
    fn results(&mut self, to: UnbatcherId, answers: Answers) {
        let message = unbatcher::In::Results { answers };
        self.out.send(Envelope::ToUnbatchers(Set::one(to), message));
    }

    #[inline]
    fn answers(&mut self, to: ClientId, answers: Answers) {
        let message = client::In::Answers { answers };
        self.out.send(Envelope::ToClients(Set::one(to), message));
    }

    fn fetch(&mut self, to: ReplicaId, (start, end): (Slot, Slot), waits: bool) {
        let message = multipaxos::replica::In::Fetch {
            from: self.id,
            start,
            end,
            waits,
        };
        self.tell_replica(to, message);
    }

    fn fetched(&mut self, to: ReplicaId, slots: ChosenSlots) {
        let from = self.id;
        self.tell_replica(to, multipaxos::replica::In::Fetched { from, slots });
    }

    fn fetch_snapshot(&mut self, to: ReplicaId, executed: Slot, offset: u64) {
        let message = multipaxos::replica::In::FetchSnapshot {
            from: self.id,
            executed,
            offset,
        };
        self.tell_replica(to, message);
    }

    fn snapshot_chunk(
        &mut self,
        to: ReplicaId,
        executed: Slot,
        offset: u64,
        last: bool,
        bytes: Bytes,
    ) {
        let message = multipaxos::replica::In::SnapshotChunk {
            from: self.id,
            executed,
            offset,
            last,
            bytes,
        };
        self.tell_replica(to, message);
    }

    fn recover(&mut self, mut slots: Vec<Slot>) {
        slots.retain(|slot| {
            let (stripe, position) = self.config.stripes.place(*slot);
            self.skipped[usize::from(stripe.0)].end_from(position) == position
        });
        let from = self.id;
        self.tell_leaders(leader::In::Recover { from, slots });
    }

    fn report_executed(&mut self, executed: Slot, kept: Slot, times: Times) {
        let message = leader::In::Executed {
            from: self.id,
            executed,
            kept,
            rounds: self.rounds.to_vec(),
            times,
        };
        self.tell_leaders(message);
    }

    fn advance_clock(&mut self, deadline: Timestamp) {
        self.tell_leaders(leader::In::AdvanceClock { deadline });
    }

    fn alive(&mut self, to: Set<ReadBatcherId>) {
        let message = read_batcher::In::ReplicaAlive { from: self.id };
        self.out.send(Envelope::ToReadBatchers(to, message));
    }

    fn mark(&mut self, to: Set<ReplicaId>, mark: Mark) {
        let message = multipaxos::replica::In::mark(self.id, mark);
        self.tell_replicas(to, message);
    }

    fn announce(&mut self, membership: Membership) {
        self.out.announce(membership);
    }

    fn store_snapshot(&mut self, stamp: u64, frozen: Box<dyn Frozen>) {
        self.out.store_snapshot(stamp, frozen);
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}
