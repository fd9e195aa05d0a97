//! Phase 1 through a relay: promises of acceptors and pages of their votes (PigPaxos 3.2).
//!
//! A page of several acceptors has, of each slot in it, the vote of the highest round that any of
//! them has cast there (s1), and ends where the first of their pages ends. So it holds for each
//! acceptor that it names: none of them has a vote in these slots of a higher round than the page
//! shows. It says the same whatever the order in which pages come.

use super::Relay;
use super::gathering::{Answered, Gathered};
use crate::multipaxos::{Envelope, acceptor, leader};
use crate::parts::acceptor::{MAX_VOTES, PHASE1B_BYTES, page_bytes};
use crate::parts::message::{Vote, Votes};
use crate::pigpaxos::message::Promises;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_replication::page;

/// The round, and the slots that a leader asks about.
pub(super) type Key = (Round, Slot, Slot);

/// See the top of this file.
pub(super) struct Page {
    promised: Vec<(AcceptorId, Timestamp)>,
    next: Slot,
    votes: BTreeMap<Slot, Vote>,
    forgotten: Slot,
    watermark: Slot,
}

impl Default for Page {
    fn default() -> Self {
        Page {
            promised: Vec::new(),
            next: Slot::MAX,
            votes: BTreeMap::new(),
            forgotten: Slot::ZERO,
            watermark: Slot::ZERO,
        }
    }
}

impl Gathered for Page {
    type Answer = (Votes, Timestamp);

    fn add(&mut self, from: AcceptorId, (votes, clock): (Votes, Timestamp)) {
        self.promised.push((from, clock));
        self.forgotten = self.forgotten.max(votes.forgotten);
        self.watermark = self.watermark.max(votes.watermark);
        self.next = self.next.min(votes.next);
        for (slot, vote) in votes.votes {
            let highest = self.votes.get(&slot);
            if highest.is_none_or(|highest| highest.round < vote.round) {
                self.votes.insert(slot, vote);
            }
        }
        self.cut();
    }
}

impl Page {
    /// Drops what lies beyond its end, which is no later than with a page of one acceptor.
    fn cut(&mut self) {
        let mut page = page::Page::new(PHASE1B_BYTES);
        let beyond = (self.votes.iter())
            .find(|(slot, vote)| **slot >= self.next || !page.takes(page_bytes(vote)));
        if let Some(slot) = beyond.map(|(slot, _)| *slot) {
            self.next = self.next.min(slot);
            self.votes.split_off(&slot);
        }
    }
}

impl Relay {
    /// A leader asks these acceptors for promises, and for the votes in some slots.
    pub(super) fn on_phase1a(
        &mut self,
        now: Instant,
        (members, patience): (AcceptorSet, Duration),
        (round, start, end): Key,
        out: &mut Out<'_, Self>,
    ) {
        let waits = self.waits(patience);
        if !self
            .promises
            .begin(now, (round, start, end), members, waits)
        {
            return self.is_full(out);
        }
        let from = self.id;
        let message = acceptor::In::RelayedPhase1a {
            from,
            round,
            start,
            end,
        };
        out.send(Envelope::ToAcceptors(members, message));
    }

    /// An acceptor promises, and tells a page of its votes.
    pub(super) fn on_phase1b(
        &mut self,
        now: Instant,
        (from, round): (AcceptorId, Round),
        votes: Votes,
        clock: Timestamp,
        out: &mut Out<'_, Self>,
    ) {
        self.suspicion.heard(from);
        // No acceptor votes so far, and the leader would not take the page in.
        if votes.watermark.distance(votes.forgotten) > MAX_VOTES as u64 {
            return;
        }
        let (key, suspects) = ((round, votes.start, votes.end), self.suspicion.suspects());
        let answer = (votes, clock);
        if let Some(answered) = self.promises.add(now, key, from, answer, suspects) {
            self.promise(key, answered, out);
        }
    }

    pub(super) fn promise(
        &self,
        (round, start, end): Key,
        answered: Answered<Page>,
        out: &mut Out<'_, Self>,
    ) {
        let Page {
            promised,
            next,
            votes,
            forgotten,
            watermark,
        } = answered.gathered;
        let promises = Promises {
            promised,
            votes: Votes {
                start,
                end,
                next,
                votes: votes.into_iter().collect(),
                forgotten,
                watermark,
            },
            missing: answered.missing,
        };
        let message = leader::In::Promises {
            from: self.id,
            round,
            promises: Box::new(promises),
        };
        out.send(Envelope::ToLeaders(self.leader_of(round), message));
    }

    /// The leader of a round, if there is one.
    pub(super) fn leader_of(&self, round: Round) -> Set<LeaderId> {
        Set::one(round.leader()).and(self.config.leaders())
    }

    /// Notifies the leaders of lower rounds than an acceptor has promised. They get no promises:
    /// those of others would come too late (3.2).
    pub(super) fn end_phase1(&mut self, promised: Round, out: &mut Out<'_, Self>) -> bool {
        let over = self.promises.end_all(|(round, ..)| *round < promised);
        let leaders: Set<LeaderId> = over.map(|(round, ..)| round.leader()).collect();
        let leaders = leaders.and(self.config.leaders());
        if leaders.is_empty() {
            return false;
        }
        let message = leader::In::Nack { round: promised };
        out.send(Envelope::ToLeaders(leaders, message));
        true
    }
}
