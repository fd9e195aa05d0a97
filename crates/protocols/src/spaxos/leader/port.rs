//! The messages of the leader's part, and what follows from them for the roles that MultiPaxos does
//! not have.

use super::change::Change;
use super::taken::Taken;
use super::{In, Leader, Record};
use crate::multipaxos;
use crate::multipaxos::message::Proposer;
use crate::parts::leader::{Heartbeat, LeaderPort};
use crate::pigpaxos::leading::Leading;
use crate::spaxos::config::Config;
use crate::spaxos::id::{PayloadNumber, of_batcher, of_batchers};
use crate::spaxos::message::Reference;
use crate::spaxos::{Envelope, acceptor, client, disseminator, proxy_leader, replica, stabilizer};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::settled::Floors;

/// See the top of this file.
pub(super) struct Port<'a, 'b> {
    pub(super) id: LeaderId,
    pub(super) now: Instant,
    pub(super) leading: &'a mut Leading,
    pub(super) config: &'a Config,
    pub(super) taken: &'a mut Taken,
    pub(super) change: &'a mut Change,
    /// The log is to be carried to this slot.
    pub(super) carry_to: Slot,
    pub(super) out: &'a mut Out<'b, Leader>,
}

impl Port<'_, '_> {
    fn tell_leaders(&mut self, to: Set<LeaderId>, message: multipaxos::leader::In) {
        let message = In::Ordering { message };
        self.out.send(Envelope::ToLeaders(to, message));
    }
}

impl LeaderPort for Port<'_, '_> {
    fn persist_vital(&mut self, record: Record) {
        self.out.persist_vital(record);
    }

    fn phase1a(&mut self, to: AcceptorSet, round: Round, (start, end): (Slot, Slot), again: bool) {
        self.leading.phase1a(
            (self.now, self.id),
            (to, again),
            (round, start, end),
            self.out,
        );
    }

    /// A payload has its slot.
    #[inline]
    fn phase2a(
        &mut self,
        to: ProxyLeaderId,
        (slot, round): (Slot, Round),
        value: Value,
        proposer: Proposer,
        replier: ReplicaId,
    ) {
        if let Proposer::Batcher { id, number } = proposer {
            self.taken
                .placed(of_batcher(id), PayloadNumber(number), slot);
        }
        let message = multipaxos::proxy_leader::In::Phase2a {
            slot,
            round,
            value,
            proposer,
            replier,
        };
        let message = proxy_leader::In::Ordering { message };
        self.out
            .send(Envelope::ToProxyLeaders(Set::one(to), message));
    }

    fn pre_vote(&mut self, to: AcceptorSet) {
        let message = acceptor::In::PreVote { from: self.id };
        self.out.send(Envelope::ToAcceptors(to, message));
    }

    /// Stabilizers learn what is kept, disseminators how far the log is executed. While the
    /// membership is changing stabilizers are asked to take over, but only when the replicas of the
    /// new configuration are ready: payloads of kept slots need no take-over.
    fn heartbeat(&mut self, mut heartbeat: Heartbeat) {
        // Stabilizers forget void payloads once replicas keep those slots.
        heartbeat.keep = heartbeat.keep.max(self.carry_to);
        let heartbeat = self
            .leading
            .heartbeat(self.now, self.id, heartbeat, self.out);
        let Heartbeat {
            leaders,
            acceptors,
            replicas,
            round,
            executed,
            kept,
            keep,
            time,
            replicas_are_ready,
        } = heartbeat;
        self.tell_leaders(leaders, multipaxos::leader::In::Heartbeat { round });
        let stabilizers = self.config.stabilizers.members();
        let message = stabilizer::In::Kept { round, kept };
        self.out.send(Envelope::ToStabilizers(stabilizers, message));
        let message = acceptor::In::Heartbeat { round, kept };
        self.out.send(Envelope::ToAcceptors(acceptors, message));
        let disseminators = self.config.disseminators;
        let message = disseminator::In::Progress { round, executed };
        self.out
            .send(Envelope::ToDisseminators(disseminators, message));
        if replicas_are_ready {
            self.out.send(self.change.take_over(round, self.config));
        }
        let message = replica::In::Heartbeat {
            round,
            executed,
            keep,
            time,
        };
        self.out.send(Envelope::ToReplicas(replicas, message));
    }

    fn new_leader(&mut self, round: Round) {
        let clients = self.config.ordering.all(multipaxos::kind::Client);
        let message = client::In::NewLeader { round };
        self.out.send(Envelope::ToClients(clients, message));
        let message = disseminator::In::NewLeader { round };
        self.out.send(Envelope::ToDisseminators(
            self.config.disseminators,
            message,
        ));
    }

    /// No client proposes to it.
    fn not_leader(&mut self, _: Set<ClientId>, batchers: Set<BatcherId>, round: Round) {
        if !batchers.is_empty() {
            let message = disseminator::In::NotLeader { round };
            self.out
                .send(Envelope::ToDisseminators(of_batchers(batchers), message));
        }
    }

    fn admit(&mut self, to: AcceptorId, nonce: u64, round: Round, frontier: Slot) {
        let message = acceptor::In::Admit {
            nonce,
            round,
            frontier,
        };
        self.out.send(Envelope::ToAcceptors(Set::one(to), message));
    }

    fn take_over(&mut self, to: LeaderId, round: Round) {
        let from = self.id;
        self.tell_leaders(
            Set::one(to),
            multipaxos::leader::In::TakeOver { from, round },
        );
    }

    fn decline(&mut self, to: LeaderId) {
        let from = self.id;
        self.tell_leaders(Set::one(to), multipaxos::leader::In::Declined { from });
    }

    /// Disseminators say which of their payloads no client waits for.
    fn settles(&self, _: &Floors, batch: &Batch) -> bool {
        Reference::of(batch).is_some_and(|reference| self.taken.is_past(reference.id))
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}
