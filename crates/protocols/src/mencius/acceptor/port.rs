//! The messages of the part that promises and votes in one stripe.

use super::{Acceptor, Record};
use crate::mencius::message::Reserved;
use crate::mencius::stripe::{Stripe, StripePosition, Stripes};
use crate::mencius::{Envelope, leader, proxy_leader, replica};
use crate::multipaxos;
use crate::multipaxos::message::Votes;
use crate::parts;
use crate::parts::acceptor::AcceptorPort;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::Value;

/// See the top of this file.
pub(super) struct Port<'a, 'b> {
    pub(super) id: AcceptorId,
    pub(super) stripes: Stripes,
    pub(super) stripe: Stripe,
    /// What leaders have reserved of the stripe: told to those that ask for votes.
    pub(super) reserved: &'a [Reserved],
    /// By stripe: the first position whose record is needed.
    pub(super) released: &'a mut [StripePosition],
    pub(super) out: &'a mut Out<'b, Acceptor>,
}

impl Port<'_, '_> {
    fn to_leaders(&self, to: Set<LeaderId>, message: multipaxos::leader::In) -> Envelope {
        let stripe = self.stripe;
        Envelope::ToLeaders(to, leader::In::InStripe { stripe, message })
    }

    #[inline]
    fn to_proxy_leader(
        &self,
        to: ProxyLeaderId,
        message: multipaxos::proxy_leader::In,
    ) -> Envelope {
        let stripe = self.stripe;
        Envelope::ToProxyLeaders(Set::one(to), proxy_leader::In::InStripe { stripe, message })
    }
}

impl AcceptorPort for Port<'_, '_> {
    type Envelope = Envelope;
    type Requester = ProxyLeaderId;
    type Candidate = LeaderId;

    #[inline]
    fn send(&mut self, envelope: Envelope) {
        self.out.send(envelope);
    }

    // The part says why.
    #[inline]
    fn send_unfenced(&mut self, envelope: Envelope) {
        self.out.send_unfenced(envelope);
    }

    #[inline]
    fn persist(&mut self, record: parts::acceptor::Record) {
        let stripe = self.stripe;
        self.out.persist(Record::InStripe { stripe, record });
    }

    fn persist_vital(&mut self, record: parts::acceptor::Record) {
        let stripe = self.stripe;
        self.out.persist_vital(Record::InStripe { stripe, record });
    }

    fn release_below(&mut self, position: Slot) {
        let released = &mut self.released[usize::from(self.stripe.0)];
        *released = StripePosition::of_part(position).max(*released);
        let all = self.released.iter().min().expect("a log has stripes");
        self.out.release_below(all.0);
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }

    fn phase1b(&self, to: LeaderId, round: Round, votes: Votes, clock: Timestamp) -> Envelope {
        let message = leader::In::Phase1b {
            from: self.id,
            stripe: self.stripe,
            round,
            votes,
            reserved: self.reserved.to_vec(),
            clock,
        };
        Envelope::ToLeaders(Set::one(to), message)
    }

    #[inline]
    fn phase2b(&self, to: ProxyLeaderId, slot: Slot, round: Round) -> Envelope {
        let message = multipaxos::proxy_leader::In::Phase2b {
            from: self.id,
            slot,
            round,
        };
        self.to_proxy_leader(to, message)
    }

    fn nack_leaders(&self, to: Set<LeaderId>, promise: Round) -> Envelope {
        self.to_leaders(to, multipaxos::leader::In::Nack { round: promise })
    }

    fn nack_requester(&self, to: ProxyLeaderId, promise: Round) -> Envelope {
        self.to_proxy_leader(to, multipaxos::proxy_leader::In::Nack { round: promise })
    }

    fn forgotten(&self, to: ProxyLeaderId, below: Slot) -> Envelope {
        self.to_proxy_leader(to, multipaxos::proxy_leader::In::Forgotten { below })
    }

    /// Replicas learn slots of the log, not positions.
    #[inline]
    fn chosen(
        &self,
        to: Set<ReplicaId>,
        position: Slot,
        value: Value,
        replier: ReplicaId,
    ) -> Envelope {
        let message = multipaxos::replica::In::Chosen {
            slot: self
                .stripes
                .slot(self.stripe, StripePosition::of_part(position)),
            value,
            replier,
        };
        Envelope::ToReplicas(to, replica::In::OfLog { message })
    }

    fn pre_vote_reply(&self, to: LeaderId, gone: bool, promise: Round) -> Envelope {
        let message = multipaxos::leader::In::PreVoteReply {
            from: self.id,
            gone,
            promise,
        };
        self.to_leaders(Set::one(to), message)
    }

    fn rejoin(&self, to: Set<LeaderId>, nonce: u64, promise: Round) -> Envelope {
        let message = multipaxos::leader::In::Rejoin {
            from: self.id,
            nonce,
            promise,
        };
        self.to_leaders(to, message)
    }
}
