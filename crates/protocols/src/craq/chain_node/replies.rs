//! The answers of a chain node: the tail's to writes, each node's to reads.
//!
//! A client lane that the tail's answers do not reach sends its writes again, to another chain node
//! than the head. That node hands them on, and answers them as well when it applies them. So one
//! broken link between the tail and a lane stops no write of the lane.

use super::ChainNode;
use crate::craq::config::Config;
use crate::craq::{Envelope, client, kind, unbatcher};
use alloc::collections::BTreeSet;
use ionian_kernel::id::*;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{AnswersByClient, Batch, Purpose};
use ionian_replication::suspicion::{PRESENT_FOR, Presence};

/// After this many commands that a node has noted it forgets those that it noted before them.
/// Their clients ask again.
const NOTED: usize = 1024;

/// What names a command.
type Name = (ClientId, Purpose, u64);

/// What a chain node keeps for its answers.
pub(super) struct Replies {
    pub(super) answers: AnswersByClient,
    /// The unbatchers on its node.
    near: Set<UnbatcherId>,
    present: Presence<UnbatcherId>,
    turn: u64,
    /// The commands that clients have sent here and that are not applied here.
    noted: BTreeSet<Name>,
    /// The same, noted earlier.
    noted_before: BTreeSet<Name>,
}

impl Replies {
    pub(super) fn new(config: &Config, birth: &Birth<'_>) -> Self {
        Replies {
            answers: AnswersByClient::default(),
            near: config.near(kind::Unbatcher, birth.node),
            present: Presence::new(config.all(kind::Unbatcher), PRESENT_FOR),
            turn: 0,
            noted: BTreeSet::new(),
            noted_before: BTreeSet::new(),
        }
    }

    /// The membership has changed; `near` are the unbatchers on its node.
    pub(super) fn reconfigure(&mut self, config: &Config, near: Set<UnbatcherId>) {
        self.near = near;
        self.present.reconfigure(config.all(kind::Unbatcher));
    }

    /// All unbatchers count as present.
    pub(super) fn start(&mut self, now: Instant) {
        self.present.start(now);
    }

    /// An unbatcher lives.
    pub(super) fn heard(&mut self, now: Instant, from: UnbatcherId) {
        self.present.heard(from, now);
    }

    /// Clients have sent these commands to this node.
    pub(super) fn note(&mut self, batch: &Batch) {
        for command in batch.commands() {
            if self.noted.len() >= NOTED {
                self.noted_before = core::mem::take(&mut self.noted);
            }
            let name = (command.client, command.purpose, command.number);
            self.noted.insert(name);
        }
    }

    /// Where the answers to a batch go that is applied now: nowhere, unless this node `answers` all
    /// or was sent a command of it.
    pub(super) fn to(&mut self, batch: &Batch, answers: bool) -> Option<&mut AnswersByClient> {
        let mut is_noted = false;
        // As most often.
        if !self.noted.is_empty() || !self.noted_before.is_empty() {
            for command in batch.commands() {
                let name = (command.client, command.purpose, command.number);
                is_noted |= self.noted.remove(&name) | self.noted_before.remove(&name);
            }
        }
        (answers || is_noted).then_some(&mut self.answers)
    }
}

impl ChainNode {
    /// Sends the answers that there are, or (`all`) those to all that was begun; before `until`, if
    /// that is given.
    pub(super) fn flush_answers(
        &mut self,
        now: Instant,
        all: bool,
        until: Option<Instant>,
        out: &mut Out<'_, Self>,
    ) {
        let mut exit = Exit {
            now,
            until,
            from: self.id.index(),
            executed: self.history.applied(),
            near: self.replies.near,
            present: &self.replies.present,
            turn: &mut self.replies.turn,
        };
        let give = &mut |answers: &mut _| exit.send(answers, out);
        match all {
            true => self.executor.finish(give),
            false => self.executor.collect(give),
        }
        give(&mut self.replies.answers);
    }

    /// Where the answers to reads are gathered. They leave before `until`, if that is given.
    pub(super) fn read_batch(
        &mut self,
        now: Instant,
        reads: &Batch,
        until: Option<Instant>,
        out: &mut Out<'_, Self>,
    ) {
        let clock = self.clock.read(now);
        let mut rest = self.executor.read(clock, reads, &mut self.replies.answers);
        while let Some(reads) = rest {
            self.flush_answers(now, false, until, out);
            rest = self.executor.read(clock, &reads, &mut self.replies.answers);
        }
    }
}

/// Where answers leave.
struct Exit<'a> {
    now: Instant,
    until: Option<Instant>,
    from: Index,
    executed: Slot,
    near: Set<UnbatcherId>,
    present: &'a Presence<UnbatcherId>,
    turn: &'a mut u64,
}

impl Exit<'_> {
    fn send(&mut self, answers: &mut AnswersByClient, out: &mut Out<'_, ChainNode>) {
        if answers.is_empty() {
            return;
        }
        *self.turn += 1;
        match self.present.pick(self.near, self.now, *self.turn) {
            Some(unbatcher) => {
                while !answers.is_empty() {
                    let answers = answers.take_some(self.from, self.executed);
                    let message = unbatcher::In::Results { answers };
                    let envelope = Envelope::ToUnbatchers(Set::one(unbatcher), message);
                    self.let_go(envelope, out);
                }
            }
            None => {
                for (client, answers) in answers.drain(self.from, self.executed) {
                    let message = client::In::Answers { answers };
                    self.let_go(Envelope::ToClients(Set::one(client), message), out);
                }
            }
        }
    }

    /// What is applied is committed, so every member's disk has it: no crash undoes it.
    fn let_go(&self, envelope: Envelope, out: &mut Out<'_, ChainNode>) {
        match self.until {
            Some(until) => out.send_until(envelope, until),
            None => out.send_unfenced(envelope),
        }
    }
}
