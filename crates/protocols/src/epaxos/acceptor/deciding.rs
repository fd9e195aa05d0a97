//! What an acceptor does with decisions, and with what it finds again after a crash.

use super::returning::Return;
use super::{Acceptor, Known, Record};
use crate::epaxos::instance::{Ballot, Deps, InstanceId};
use crate::epaxos::message::{Choice, Evidence, Learned, Payload, Replier};
use crate::epaxos::{Envelope, branch, leader, replica};
use ionian_kernel::id::{LeaderId, Set};
use ionian_kernel::role::Out;

impl Acceptor {
    /// The leader of this node decides on the fast path, unless this acceptor has promised another
    /// ballot: a recovery that has its promise takes it that ballot 0 decides nothing more.
    pub(super) fn on_decide(&mut self, id: InstanceId, deps: Deps, out: &mut Out<'_, Self>) {
        let to = id.space.leader;
        let is_own = self.leader() == Some(to);
        let Some(known) = self.store.get(id).filter(|_| is_own) else {
            return;
        };
        match (&known.decided, &known.pre_accepted, known.promised) {
            (Some(Choice::Command { deps: before, .. }), _, _) if *before == deps => {}
            (Some(choice), _, _) => {
                let noop = matches!(choice, Choice::Noop {});
                return self.tell(to, leader::In::Learned { id, noop }, out);
            }
            (None, Some(answer), promised) if promised == Ballot::default() => {
                let payload = answer.payload.clone();
                self.keep(id, Choice::Command { payload, deps }, out);
                self.store.known(id).is_certain = false;
            }
            (None, _, promised) => {
                out.reached(branch::DECIDE_REFUSED);
                return self.refuse(to, id, promised, out);
            }
        }
        self.tell(to, leader::In::Decided { id }, out);
    }

    /// An instance is decided: replicas of this node learn it.
    pub(super) fn on_commit(
        &mut self,
        id: InstanceId,
        learned: Learned,
        replier: Replier,
        out: &mut Out<'_, Self>,
    ) {
        if self.store.get(id).is_none() && self.kept.covers(id) {
            // It has no part in the instance any more. The replica beside it may be one that does
            // not keep it, and would need a snapshot.
            match self.whole(id, learned) {
                Some(choice) => {
                    out.reached(branch::KEPT_BEFORE_COMMIT);
                    self.pass_on(id, choice, replier, out);
                }
                None => self.stale += 1,
            }
            return;
        }
        match self.whole(id, learned) {
            Some(choice) => self.learn(id, choice, replier, out),
            None => out.reached(branch::COMMIT_WITHOUT_PAYLOAD),
        }
    }

    /// Takes in what an instance is decided to be.
    pub(super) fn learn(
        &mut self,
        id: InstanceId,
        choice: Choice,
        replier: Replier,
        out: &mut Out<'_, Self>,
    ) {
        let known = self.store.get(id);
        let is_certain = known.is_some_and(|known| known.is_certain);
        let decided = known.and_then(|known| known.decided.as_ref());
        let is_decided = decided.is_some();
        // No correct peer says so: `invariants.rs` compares the decisions of all acceptors.
        if decided.is_some_and(|before| *before != choice) {
            self.stale += 1;
            return;
        }
        if !is_decided {
            self.keep(id, choice.clone(), out);
        }
        if !is_certain {
            self.ascertain(id, &choice);
        }
        // What its leader had it decide, that one knows.
        if !is_decided || is_certain {
            self.tell_leader(id, &choice, out);
        }
        self.pass_on(id, choice, replier, out);
    }

    /// Adds the command to a decision that came without.
    fn whole(&self, id: InstanceId, learned: Learned) -> Option<Choice> {
        Some(match learned {
            Learned::Noop {} => Choice::Noop {},
            Learned::Whole { payload, deps } => Choice::Command { payload, deps },
            Learned::Deps { deps } => Choice::Command {
                payload: self.store.get(id)?.payload()?.clone(),
                deps,
            },
        })
    }

    /// Keeps a decision.
    fn keep(&mut self, id: InstanceId, choice: Choice, out: &mut Out<'_, Self>) {
        let has_payload = self
            .store
            .get(id)
            .is_some_and(|known| known.payload().is_some());
        let learned = match has_payload {
            true => choice.brief(),
            false => choice.clone().into(),
        };
        let at = self.store.place(id);
        out.persist(Record::Decided { at, id, learned });
        let mut known = self.store.known(id);
        // A decision is all that is asked for.
        (known.pre_accepted, known.vote, known.copied) = (None, None, None);
        known.decided = Some(choice);
    }

    /// No crash takes a decision back: commands to come need not depend on what this one depends
    /// on. Not before: the instance may yet be a noop, behind which nothing would be found.
    fn ascertain(&mut self, id: InstanceId, choice: &Choice) {
        match choice {
            _ if !self.duty.records() => {}
            Choice::Noop {} => self.index.on_committed(id, None),
            Choice::Command { payload, deps } => {
                self.index.on_committed(id, Some((payload, deps)));
            }
        }
        self.store.known(id).is_certain = true;
        self.store.count_learned();
    }

    /// Takes in a decision from before a crash.
    fn recover_decision(&mut self, id: InstanceId, choice: Choice) {
        let mut known = self.store.known(id);
        (known.pre_accepted, known.vote, known.copied) = (None, None, None);
        known.decided = Some(choice.clone());
        drop(known);
        self.ascertain(id, &choice);
    }

    /// The leader of this node learns how its own instances are decided, and those that it
    /// recovers.
    fn tell_leader(&self, id: InstanceId, choice: &Choice, out: &mut Out<'_, Self>) {
        let promised = self.store.get(id).map(|known| known.promised);
        let recovers = promised.filter(|it| *it != Ballot::default());
        let recovers = recovers.map(Ballot::leader);
        let noop = matches!(choice, Choice::Noop {});
        let waits = |me: &LeaderId| id.space.leader == *me || recovers == Some(*me);
        if let Some(me) = self.leader().filter(waits) {
            // As in `pass_on`.
            let message = leader::In::Learned { id, noop };
            out.send_unfenced(Envelope::ToLeaders(Set::one(me), message));
        }
    }

    fn pass_on(&self, id: InstanceId, choice: Choice, replier: Replier, out: &mut Out<'_, Self>) {
        let beside = self.config.replicas_beside(self.id);
        if !beside.is_empty() {
            let message = replica::In::Committed {
                id,
                choice,
                replier,
            };
            // A crash of this acceptor takes no decision back: the sender of the Commit sent it
            // after the record of the leader's acceptor, or f + 1 votes, were durable.
            out.send_unfenced(Envelope::ToReplicas(beside, message));
        }
    }

    /// Takes in a record from before a crash.
    pub(super) fn recover_record(&mut self, record: Record) {
        match record {
            Record::Life { life } => self.life = self.life.max(life),
            Record::Returning {
                copied,
                boundaries,
                over,
            } => self.returning = Some(Return::kept(copied, &boundaries, over)),
            Record::Peers { lives, closed } => {
                self.lives = lives;
                let closed = closed.iter().map(|space| (space.leader, space.life));
                self.closed = closed.collect();
            }
            Record::Copied { at, id, payload } => {
                self.store.placed(at, id);
                self.recover_copied(id, payload);
            }
            Record::Kept { next, reaches } => {
                self.store.begin_at(next);
                self.kept.learn(&reaches);
            }
            Record::PreAccepted { at, id, answer } => {
                self.store.placed(at, id);
                self.note(id, &answer.payload);
                self.store.known(id).pre_accepted = Some(answer);
            }
            Record::Promised { at, id, ballot } => {
                self.store.placed(at, id);
                self.store.known(id).promised = ballot;
            }
            Record::Voted { at, id, vote } => {
                self.store.placed(at, id);
                if let Choice::Command { payload, .. } = &vote.choice {
                    self.note(id, payload);
                }
                let mut known = self.store.known(id);
                (known.promised, known.vote) = (vote.ballot, Some(vote));
            }
            Record::Decided { at, id, learned } => {
                self.store.placed(at, id);
                match self.whole(id, learned) {
                    Some(choice) => self.recover_decision(id, choice),
                    // Its command was in a record that is dropped, because replicas keep it.
                    None => self.store.remove(id),
                }
            }
            Record::Whole {
                at,
                id,
                promised,
                evidence,
                copied,
            } => self.recover_whole((at, id), promised, *evidence, copied),
        }
    }

    fn recover_whole(
        &mut self,
        (at, id): (u64, InstanceId),
        promised: Ballot,
        evidence: Evidence,
        copied: Option<Option<Payload>>,
    ) {
        self.store.remove(id);
        self.store.placed(at, id);
        let mut known = self.store.known(id);
        (known.promised, known.vote) = (promised, evidence.vote);
        known.pre_accepted = evidence.pre_accepted;
        drop(known);
        if let Some(payload) = copied {
            self.store.copied(id, payload);
        }
        let payload = self.store.get(id).and_then(Known::payload).cloned();
        if let Some(payload) = payload {
            self.note(id, &payload);
        }
        if let Some(choice) = evidence.decided {
            self.recover_decision(id, choice);
        }
    }
}
