//! What an acceptor does for leaders: it records commands, votes, and promises.

use super::{Acceptor, In, Known, Record};
use crate::epaxos::instance::{Ballot, Deps, InstanceId, OWN};
use crate::epaxos::message::{Choice, Payload, PreAccepted, Vote};
use crate::epaxos::{Envelope, branch, leader, proxy_leader};
use alloc::boxed::Box;
use ionian_kernel::id::{AcceptorSet, LeaderId, ProxyLeaderId, Set};
use ionian_kernel::role::Out;

impl Acceptor {
    /// Whether an instance is none of its business any more; says so to the leader.
    pub(super) fn is_closed(
        &mut self,
        to: LeaderId,
        id: InstanceId,
        out: &mut Out<'_, Self>,
    ) -> bool {
        if self.store.get(id).is_some() {
            return false;
        }
        if self.kept.covers(id) {
            out.reached(branch::ASKED_FOR_FORGOTTEN);
            self.tell(to, leader::In::Kept { id }, out);
            return true;
        }
        false
    }

    /// Whether it has room to record a command that it does not know.
    ///
    /// A barrier that is executed makes room, after everything that is under way: so there is
    /// always room for barriers, of which each leader has one, and for promises and votes, of which
    /// there are as many as leaders have instances under way and recover. What a leader begins
    /// waits at its own acceptor; where the roles are apart, what dependency nodes turn away is
    /// recovered as a noop.
    fn has_room(&self, from: LeaderId, payload: &Payload) -> bool {
        let begins = self.config.is_apart() || self.leader() == Some(from);
        payload.is_barrier()
            || match begins {
                true => !self.store.is_full(),
                false => !self.store.is_crammed(),
            }
    }

    /// A leader asks about something that is decided: its own acceptor learns it; itself, where it
    /// has none.
    pub(super) fn tell_decision(
        &self,
        to: LeaderId,
        id: InstanceId,
        choice: &Choice,
        out: &mut Out<'_, Self>,
    ) {
        let Some(acceptor) = self.config.acceptor_of(to) else {
            let noop = matches!(choice, Choice::Noop {});
            return self.tell(to, leader::In::Learned { id, noop }, out);
        };
        let message = In::Commit {
            id,
            learned: choice.clone().into(),
            replier: None,
        };
        out.send(Envelope::ToAcceptors(Set::one(acceptor), message));
    }

    /// A leader wants a command recorded. Only the first time is the answer computed.
    pub(super) fn on_pre_accept(
        &mut self,
        from: LeaderId,
        id: InstanceId,
        (payload, past, fast): (Payload, Deps, AcceptorSet),
        out: &mut Out<'_, Self>,
    ) {
        if from != id.space.leader || self.is_closed(from, id, out) {
            return;
        }
        let known = self.store.get(id);
        let is_decided = known.is_some_and(|known| known.decided.is_some());
        if !is_decided && self.is_silent(id) {
            return self.turn_away(id, out);
        }
        if known.is_none() && self.is_over(id) {
            return out.reached(branch::OVER);
        }
        match self.store.get(id) {
            Some(Known {
                decided: Some(choice),
                ..
            }) => self.tell_decision(from, id, choice, out),
            Some(known) if known.pre_accepted.is_some() && known.promised == Ballot::default() => {
                out.reached(branch::PRE_ACCEPT_AGAIN);
                self.answer(from, id, out);
            }
            Some(known) => {
                let promised = known.promised;
                out.reached(branch::PRE_ACCEPT_REFUSED);
                self.refuse(from, id, promised, out);
            }
            None if !self.has_room(from, &payload) => out.reached(branch::FULL),
            None => {
                let mut deps = self.note(id, &payload);
                deps.union(&past);
                let answer = PreAccepted {
                    payload,
                    deps,
                    fast,
                };
                let at = self.store.place(id);
                out.persist(Record::PreAccepted {
                    at,
                    id,
                    answer: answer.clone(),
                });
                self.store.known(id).pre_accepted = Some(answer);
                self.answer(from, id, out);
            }
        }
    }

    /// Gives its answer to a PreAccept.
    fn answer(&mut self, to: LeaderId, id: InstanceId, out: &mut Out<'_, Self>) {
        let known = self
            .store
            .get(id)
            .and_then(|known| known.pre_accepted.as_ref());
        let Some(PreAccepted { deps, .. }) = known else {
            return;
        };
        self.answered += 1;
        let deps = deps.clone();
        let message = leader::In::PreAccepted {
            from: self.id,
            lives: self.lives.clone(),
            id,
            deps,
        };
        self.tell(to, message, out);
    }

    pub(super) fn refuse(
        &mut self,
        to: LeaderId,
        id: InstanceId,
        promised: Ballot,
        out: &mut Out<'_, Self>,
    ) {
        self.refused += 1;
        let message = leader::In::Refused {
            from: self.id,
            id,
            promised,
        };
        self.tell(to, message, out);
    }

    /// A leader asks for a vote.
    pub(super) fn on_accept(
        &mut self,
        (from, proxy): (LeaderId, Option<ProxyLeaderId>),
        id: InstanceId,
        vote: Vote,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_closed(from, id, out) {
            return;
        }
        let ballot = vote.ballot;
        let (promised, voted) = match self.store.get(id) {
            Some(Known {
                decided: Some(choice),
                ..
            }) => return self.tell_decision(from, id, choice, out),
            Some(known) => (known.promised, known.vote.as_ref().map(|vote| vote.ballot)),
            // Its proxy leader may still ask: see `returning.rs`.
            None if ballot == OWN && self.is_over(id) => return out.reached(branch::OVER),
            None => (OWN, None),
        };
        if self.is_silent(id) {
            return;
        }
        if ballot < promised {
            out.reached(branch::ACCEPT_REFUSED);
            return self.refuse(from, id, promised, out);
        }
        if voted != Some(ballot) {
            if let Choice::Command { payload, .. } = &vote.choice {
                self.note(id, payload);
            }
            let at = self.store.place(id);
            out.persist(Record::Voted {
                at,
                id,
                vote: vote.clone(),
            });
            let mut known = self.store.known(id);
            (known.promised, known.vote) = (ballot, Some(vote));
        }
        let voter = self.id;
        if let Some(proxy) = proxy.filter(|_| ballot == OWN) {
            let message = proxy_leader::In::Accepted { from: voter, id };
            return out.send(Envelope::ToProxyLeaders(Set::one(proxy), message));
        }
        let message = leader::In::Accepted {
            from: voter,
            id,
            ballot,
        };
        self.tell(from, message, out);
    }

    /// A recovery asks for a promise. It keeps its vote, whose ballot is another than the one that
    /// it promises: with one ballot for both a decided value can be lost (Sutra 2019).
    pub(super) fn on_prepare(
        &mut self,
        (from, asked_in): (LeaderId, u32),
        id: InstanceId,
        ballot: Ballot,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_closed(from, id, out) {
            return;
        }
        let known = self.store.get(id);
        let promised = known.map_or(Ballot::default(), |known| known.promised);
        let decided = known.is_some_and(|known| known.decided.is_some());
        if !decided && self.is_silent(id) {
            return;
        }
        if ballot <= promised && !decided {
            out.reached(branch::PREPARE_REFUSED);
            return self.refuse(from, id, promised, out);
        }
        if !decided {
            let at = self.store.place(id);
            out.persist(Record::Promised { at, id, ballot });
            self.store.known(id).promised = ballot;
        }
        let evidence = self.store.get(id).map(Known::evidence).unwrap_or_default();
        let message = leader::In::Prepared {
            from: self.id,
            lives: self.lives.clone(),
            id,
            ballot,
            asked_in,
            evidence: Box::new(evidence),
        };
        self.tell(from, message, out);
    }
}
