//! How a node becomes a member of the chain, through a member that is *sealed*.
//!
//! The node copies what is committed (`joining.rs`). When it lacks little it asks a member, any
//! that it hears, to be sealed: the member takes nothing more in this epoch, neither from its
//! predecessor nor, as the head, from clients, and writes that down. The node copies all that the
//! sealed member holds, committed or not, and then asks the master for the place behind it
//! (`Step::Join`). That begins another epoch, in which nothing is sealed.
//!
//! # Why that is safe
//!
//! What a member holds contains what each member behind it holds (`chain_node.rs`). The node holds
//! what the sealed member holds until that enters the next epoch. So behind it the order is the
//! same in the new chain. And each entry that is committed in the epoch, or was in an earlier one,
//! has passed the sealed member before it was sealed: the node has it, and is a member like any
//! other from its first moment on.
//!
//! The step may be taken late. So the node writes down that it has asked for the place, keeps what
//! it holds until it enters another epoch, also over a crash, and asks for no other place in this
//! one. It drops what is not committed if it is no member in the next. If it loses its memory, the
//! master knows of its next life, and refuses a place for this one, or has removed the member.
//!
//! # Why it ends
//!
//! It takes one member that is up, and that the node hears: no other member has to answer, and the
//! suspected ones can be removed when the node is there (`master.rs`). If the node does not come,
//! the member asks for another epoch (`Step::Renew`), and so does a node whose step is not taken.
//! Each time that a seal was for nothing the member waits longer before it takes the next.

use super::joining::{ATTEMPTS, DOUBLINGS};
use super::{ChainNode, In, Record};
use crate::craq::branch;
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::message::{Chain, Step, birth_of};
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;

/// A step of the master is waited for this many times longer than an answer of a member.
const STEP_PATIENCE: u32 = 8;

/// See the top of this file.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// As a member: it takes nothing more in this epoch.
    seal: Option<Seal>,
    /// How many seals one after another were for nothing, and until when it takes no other.
    failures: u32,
    not_before: Instant,
    /// As a node outside the chain: its attempt to join.
    attempt: Option<Attempt>,
    /// How many attempts have failed: the next one is at another place.
    turn: usize,
    /// When the master has said last what the chain is.
    pub(super) looked: Option<Instant>,
}

#[derive(Debug)]
struct Seal {
    /// The first entry that a node has asked for last.
    start: Slot,
    /// When the member asks for another epoch.
    until: Instant,
}

#[derive(Debug)]
struct Attempt {
    /// The member to stand behind. Not known after a restart.
    behind: Option<ChainNodeId>,
    /// Whether it has asked the master for the place.
    has_asked: bool,
    /// When it asks again.
    at: Instant,
    unanswered: u32,
}

impl Sealing {
    /// Whether the member takes nothing more. Another epoch may have begun without its knowledge.
    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Whether the node holds what a sealed member holds, or copies that.
    pub(super) fn is_joining(&self) -> bool {
        self.attempt.is_some()
    }

    /// The member was sealed before a crash, in the epoch in which it is.
    pub(super) fn recover_seal(&mut self) {
        let (start, until) = (Slot::ZERO, Instant::ZERO);
        self.seal = Some(Seal { start, until });
    }

    /// The node had asked the master for a place before a crash, in the epoch in which it is.
    pub(super) fn recover_attempt(&mut self) {
        self.attempt = Some(Attempt {
            behind: None,
            has_asked: true,
            at: Instant::ZERO,
            unanswered: 0,
        });
    }

    /// After a restart the node asks for another epoch at once.
    pub(super) fn start(&mut self, now: Instant) {
        if let Some(attempt) = &mut self.attempt {
            attempt.at = now;
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.attempt.as_ref().map(|attempt| attempt.at)
    }
}

impl ChainNode {
    /// Writes again what must be known in this epoch after a crash.
    pub(super) fn write_seal(&self, out: &mut Out<'_, Self>) {
        let epoch = self.chain.epoch;
        if self.sealing.is_sealed() {
            out.persist(Record::Sealed { epoch });
        }
        if self.sealing.attempt.as_ref().is_some_and(|it| it.has_asked) {
            out.persist(Record::Joins { epoch });
        }
    }

    /// Enters this chain, of another epoch: the seal is void, and so is an attempt.
    pub(super) fn open_seal(&mut self, now: Instant, chain: &Chain) {
        if self.sealing.seal.take().is_some() {
            self.sealing.failures = match chain.members == self.chain.members {
                true => self.sealing.failures + 1,
                false => 0,
            };
            if let Some(doublings) = self.sealing.failures.checked_sub(1) {
                let silence = self.config.options().election_timeout;
                self.sealing.not_before = now + doubled(silence, doublings, DOUBLINGS);
            }
        }
        if self.sealing.attempt.take().is_some() {
            self.sealing.turn += 1;
        }
    }

    /// A node wants to join behind this member.
    pub(super) fn on_seal(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        start: Slot,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        let (base, end) = (self.history.base(), self.history.end());
        let is_other = self.others().contains(from) && self.chain.place_of(from).is_none();
        let is_early = !self.sealing.is_sealed() && now < self.sealing.not_before;
        if !is_other || is_early || !(base..=end).contains(&start) {
            self.stale += 1;
            return;
        }
        let until = now + self.config.options().election_timeout;
        match &mut self.sealing.seal {
            None => {
                out.reached(branch::SEALED);
                out.persist(Record::Sealed { epoch });
                self.sealing.seal = Some(Seal { start, until });
            }
            // The node goes on: it is waited for. There is an end to that, for the end is fixed.
            Some(seal) if start > seal.start => *seal = Seal { start, until },
            Some(_) => {}
        }
        self.joining.copying.insert(from, (start, now));
        let message = In::Sealed {
            from: self.id,
            epoch,
            start,
            values: self.history.some(start, end),
            end,
        };
        self.send(from, message, out);
    }

    /// With each heartbeat: a node that does not come is waited for no longer.
    pub(super) fn unseal(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.sealing.seal.as_ref().is_some_and(|it| it.until <= now) {
            out.reached(branch::UNSEALS);
            self.renew(now, out);
        }
    }

    fn renew(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (epoch, from, life) = (self.chain.epoch, self.id, self.life);
        self.link.step(now, Step::Renew { epoch, from, life }, out);
    }

    /// This node, outside the chain, lacks little: it has a member sealed, if it may join.
    pub(super) fn ask_for_seal(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.may_join(now) {
            return;
        }
        if let Some(behind) = self.choose_place(now) {
            self.sealing.attempt = Some(Attempt {
                behind: Some(behind),
                has_asked: false,
                at: now,
                unanswered: 0,
            });
            self.seal_again(now, out);
        }
    }

    /// Whether the master answers, and would admit this node; and whether the node hears enough
    /// others, so that it is not removed again, or is needed.
    fn may_join(&self, now: Instant) -> bool {
        let limit = self.config.options().election_timeout;
        let is_recent = |at: Instant| now.since(at) <= limit;
        let roster = self.changing.roster();
        let is_known = roster.lists(self.id) && birth_of(self.life) <= roster.epoch;
        let is_added = self.config.added().contains(self.id);
        self.chain.place_of(self.id).is_none()
            && !self.snapshots.is_busy()
            && is_known
            && self.sealing.looked.is_some_and(is_recent)
            && self.joining.not_before <= now
            && (self.hears_enough(now) || is_added || self.is_needed())
    }

    /// Whether a member is suspected that cannot be removed before another node has joined.
    fn is_needed(&self) -> bool {
        let mut members = self.chain.members.iter().enumerate();
        members.any(|(place, it)| self.is_suspected(it.node) && !self.may_be_removed(place))
    }

    /// A member that the node hears, the last one first. It must hear the next member too, if there
    /// is one: otherwise each would take the other for dead. Unless other nodes take that one for
    /// dead already.
    fn choose_place(&self, now: Instant) -> Option<ChainNodeId> {
        let fits = |place: &usize| {
            let next = self.chain.at(place + 1);
            let is_free = next.is_none_or(|it| self.hears(it, now) || self.is_suspected(it));
            is_free && self.chain.at(*place).is_some_and(|it| self.hears(it, now))
        };
        let places: Vec<_> = (0..self.chain.members.len()).rev().filter(fits).collect();
        let turn = self.sealing.turn.checked_rem(places.len())?;
        self.chain.at(places[turn])
    }

    /// Asks the member or the master again.
    pub(super) fn seal_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let wait = self.config.options().resend_after;
        let Some(attempt) = self.sealing.attempt.as_mut().filter(|it| it.at <= now) else {
            return;
        };
        attempt.unanswered += 1;
        let is_silent = attempt.unanswered > ATTEMPTS;
        let patience = if attempt.has_asked { STEP_PATIENCE } else { 1 };
        attempt.at = now + wait * patience;
        let (epoch, node, life) = (self.chain.epoch, self.id, self.life);
        match (attempt.behind.filter(|_| !is_silent), attempt.has_asked) {
            (Some(behind), true) => {
                let step = Step::Join {
                    epoch,
                    node,
                    life,
                    behind,
                };
                self.link.step(now, step, out);
            }
            (None, true) => self.renew(now, out),
            (Some(behind), false) => {
                let (from, start) = (node, self.history.end());
                self.send(behind, In::Seal { from, epoch, start }, out);
            }
            (None, false) => self.give_up_place(now, out),
        }
    }

    /// The member does not answer: the node copies what is committed, and tries another place.
    fn give_up_place(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        out.reached(branch::SEAL_SILENT);
        self.sealing.attempt = None;
        self.sealing.turn += 1;
        self.history.truncate(self.history.applied());
        self.joining.restart(now);
    }

    /// A member is sealed, and sends what it holds.
    pub(super) fn on_sealed(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        (start, values): (Slot, Vec<Value>),
        end: Slot,
        out: &mut Out<'_, Self>,
    ) {
        let known = self.history.end();
        let is_here = epoch == self.chain.epoch && start <= known && known <= end;
        let attempt = self.sealing.attempt.as_mut();
        let attempt = attempt.filter(|it| !it.has_asked && it.behind == Some(from) && is_here);
        let Some(attempt) = attempt else {
            self.stale += 1;
            return;
        };
        (attempt.unanswered, attempt.at) = (0, now);
        attempt.has_asked = start.plus(values.len() as u64).max(known) == end;
        let has_all = attempt.has_asked;
        self.receive_all(start, values, out);
        if has_all {
            out.reached(branch::JOINS);
            out.persist(Record::Joins { epoch });
        }
        self.seal_again(now, out);
    }
}
