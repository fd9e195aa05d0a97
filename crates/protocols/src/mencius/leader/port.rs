//! The messages of the part that does the work of one stripe.

use super::{In, Leader, Record, Served};
use crate::mencius::config::Config;
use crate::mencius::stripe::{Stripe, StripePosition};
use crate::mencius::{Envelope, acceptor, batcher, client, proxy_leader, replica};
use crate::multipaxos;
use crate::multipaxos::message::Proposer;
use crate::parts;
use crate::parts::leader::{Heartbeat, LeaderPort};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_replication::batch::Value;

/// See the top of this file.
pub(super) struct Port<'a, 'b> {
    pub(super) id: LeaderId,
    pub(super) config: &'a Config,
    pub(super) stripe: Stripe,
    /// The other stripes that the leader serves.
    pub(super) others: (&'a [Served], &'a [Served]),
    /// In the leader's own stripe: the slot after the last that it suggested.
    pub(super) suggested: Option<&'a mut Slot>,
    /// How far the log is used.
    pub(super) frontier: Slot,
    /// What replicas are to keep through a crash as soon as they can, for a change of members.
    pub(super) keep: Slot,
    pub(super) out: &'a mut Out<'b, Leader>,
}

impl Port<'_, '_> {
    fn ask_acceptors(&mut self, to: AcceptorSet, message: multipaxos::acceptor::In) {
        let stripe = self.stripe;
        let message = acceptor::In::InStripe { stripe, message };
        self.out.send(Envelope::ToAcceptors(to, message));
    }

    fn tell_leaders(&mut self, to: Set<LeaderId>, message: multipaxos::leader::In) {
        let stripe = self.stripe;
        let message = In::InStripe { stripe, message };
        self.out.send(Envelope::ToLeaders(to, message));
    }
}

impl LeaderPort for Port<'_, '_> {
    fn persist_vital(&mut self, record: parts::leader::Record) {
        let stripe = self.stripe;
        self.out.persist_vital(Record { stripe, record });
    }

    fn phase1a(&mut self, to: AcceptorSet, round: Round, (start, end): (Slot, Slot), _: bool) {
        let message = multipaxos::acceptor::In::Phase1a {
            from: self.id,
            round,
            start,
            end,
        };
        self.ask_acceptors(to, message);
    }

    /// In its own stripe that is a suggestion: it will not use the slots below for anything else
    /// (Rule 1).
    #[inline]
    fn phase2a(
        &mut self,
        to: ProxyLeaderId,
        (position, round): (Slot, Round),
        value: Value,
        proposer: Proposer,
        replier: ReplicaId,
    ) {
        let stripe = self.stripe;
        if let Some(suggested) = &mut self.suggested {
            let position = StripePosition::of_part(position);
            let slot = self.config.stripes.slot(stripe, position);
            **suggested = slot.next().max(**suggested);
        }
        let message = multipaxos::proxy_leader::In::Phase2a {
            slot: position,
            round,
            value,
            proposer,
            replier,
        };
        let message = proxy_leader::In::InStripe { stripe, message };
        self.out
            .send(Envelope::ToProxyLeaders(Set::one(to), message));
    }

    fn pre_vote(&mut self, to: AcceptorSet) {
        let from = self.id;
        self.ask_acceptors(to, multipaxos::acceptor::In::PreVote { from });
    }

    fn heartbeat(&mut self, heartbeat: Heartbeat) {
        // Of the whole log, not of the stripe (`keep`): only when the ends of all are known. Roles
        // other than replicas have nothing to take over.
        let Heartbeat {
            leaders,
            acceptors,
            replicas,
            round,
            executed,
            kept,
            keep: _,
            time,
            replicas_are_ready: _,
        } = heartbeat;
        self.tell_leaders(leaders, multipaxos::leader::In::Heartbeat { round });
        self.ask_acceptors(
            acceptors,
            multipaxos::acceptor::In::Heartbeat { round, kept },
        );
        // Below the frontier everything is used or skipped sooner or later: a replica that was not
        // told so, because the message was lost, is to ask.
        let executed = StripePosition::of_part(executed);
        let end = self.config.stripes.end(self.stripe, executed);
        let message = replica::In::Heartbeat {
            stripe: self.stripe,
            round,
            executed: end.max(self.frontier),
            keep: self.keep,
            time,
        };
        self.out.send(Envelope::ToReplicas(replicas, message));
    }

    /// Those that propose in other stripes have other leaders to follow.
    fn new_leader(&mut self, round: Round) {
        let clients = self.config.clients(self.stripe);
        let message = client::In::NewLeader { round };
        self.out.send(Envelope::ToClients(clients, message));
        let batchers = self.config.batchers(self.stripe);
        let message = batcher::In::NewLeader { round };
        self.out.send(Envelope::ToBatchers(batchers, message));
    }

    /// Commands of all stripes wait in its own: those that propose in another learn of a round
    /// of that one.
    fn not_leader(&mut self, clients: Set<ClientId>, batchers: Set<BatcherId>, round: Round) {
        let (config, own) = (self.config, (self.stripe, round));
        for (round, clients) in rounds(|of| config.clients(of), own, self.others, clients) {
            let message = client::In::NotLeader { round };
            self.out.send(Envelope::ToClients(clients, message));
        }
        for (round, batchers) in rounds(|of| config.batchers(of), own, self.others, batchers) {
            let message = batcher::In::NotLeader { round };
            self.out.send(Envelope::ToBatchers(batchers, message));
        }
    }

    fn admit(&mut self, to: AcceptorId, nonce: u64, round: Round, frontier: Slot) {
        let message = multipaxos::acceptor::In::Admit {
            nonce,
            round,
            frontier,
        };
        self.ask_acceptors(Set::one(to), message);
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

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}

/// Of `whom`, those that propose in a stripe and in each of the others that are served, with what
/// is known of its rounds.
fn rounds<'a, I: Id + 'a>(
    proposers: impl Fn(Stripe) -> Set<I> + 'a,
    own: (Stripe, Round),
    (before, after): (&'a [Served], &'a [Served]),
    whom: Set<I>,
) -> impl Iterator<Item = (Round, Set<I>)> + 'a {
    let others = before
        .iter()
        .chain(after)
        .map(|served| (served.stripe, served.core.round()));
    let each = core::iter::once(own).chain(others);
    each.map(move |(stripe, round)| (round, whom.and(proposers(stripe))))
        .filter(|(_, some)| !some.is_empty())
}
