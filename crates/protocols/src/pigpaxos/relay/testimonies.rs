//! A candidate's question through a relay: whether acceptors have not heard of a leader either.
//! Each answer is passed on as it is: what follows depends on which acceptors gave them.

use super::Relay;
use super::gathering::{Answered, Gathered};
use crate::multipaxos::{Envelope, acceptor, leader};
use crate::pigpaxos::message::Testimony;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};

/// What acceptors say of a leader, each for itself.
#[derive(Default)]
pub(super) struct Testimonies(pub(super) Vec<Testimony>);

impl Gathered for Testimonies {
    type Answer = (bool, Round);

    fn add(&mut self, from: AcceptorId, (gone, promise): (bool, Round)) {
        self.0.push(Testimony {
            from,
            gone,
            promise,
        });
    }
}

impl Relay {
    /// A candidate asks these acceptors whether the leader is gone.
    pub(super) fn on_pre_vote(
        &mut self,
        now: Instant,
        from: LeaderId,
        (members, patience): (AcceptorSet, Duration),
        out: &mut Out<'_, Self>,
    ) {
        let waits = self.waits(patience);
        if !self.testimonies.begin(now, from, members, waits) {
            return self.is_full(out);
        }
        let message = acceptor::In::RelayedPreVote {
            from: self.id,
            leader: from,
        };
        out.send(Envelope::ToAcceptors(members, message));
    }

    /// An acceptor answers a candidate.
    pub(super) fn on_pre_vote_reply(
        &mut self,
        now: Instant,
        (from, leader): (AcceptorId, LeaderId),
        answer: (bool, Round),
        out: &mut Out<'_, Self>,
    ) {
        self.suspicion.heard(from);
        let suspects = self.suspicion.suspects();
        if let Some(answered) = self.testimonies.add(now, leader, from, answer, suspects) {
            self.testify(leader, answered, out);
        }
    }

    pub(super) fn testify(
        &self,
        leader: LeaderId,
        answered: Answered<Testimonies>,
        out: &mut Out<'_, Self>,
    ) {
        let message = leader::In::Testimonies {
            from: self.id,
            testimonies: answered.gathered.0,
            missing: answered.missing,
        };
        let leader = Set::one(leader).and(self.config.leaders());
        out.send(Envelope::ToLeaders(leader, message));
    }
}
