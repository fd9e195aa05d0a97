//! The master: a replica of MultiPaxos that executes the log of chain configurations.
//!
//! Its state machine is the [chain](Chain) itself. Each command is a [step](Step), each answer the
//! chain after it, whether or not the step fitted.
//!
//! Which steps fit. A new chain is a part of the old one in the same order, or the old one and one
//! node at the end. Two rules say whom a suspicion may remove:
//!
//! - One full member remains, always: it alone holds what was acknowledged.
//! - At least n - f full ones remain, n being the number of chain nodes: no more than f are dead,
//!   so what would be removed beyond that is alive, and every copy less is a failure less that the
//!   cluster survives.
//!
//! One case needs more. The last member is not full, the member before it, which it gets its state
//! from, is dead, and there are no more than n - f full ones: the last member would wait without
//! end. So the suspected one is put *aside*: it is no member, and counts as full. That is right for
//! as long as the last member is not full, for the tail commits nothing before the master has said
//! that it is full. If the next one dies that the last member gets its state from, the two change
//! places: the first may have been suspected by mistake. If the last member is removed, the one
//! that stands aside is a member again, where it was. When the last member is full it is forgotten.
//! While a node stands aside the head numbers nothing, so what a member holds is still a beginning
//! of what each holds that stood before it, whichever of the two was aside.
//!
//! A node that has lost its memory says itself that its earlier life is over: that needs no number
//! of members, for it is certain.

use super::Taken;
use super::message::{Aside, Chain, Member, Step};
use crate::multipaxos::replica;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Wire, decode_all};

pub use crate::multipaxos::replica::In;

/// A replica of the master's log.
pub type Master = Taken<replica::Replica>;

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct ChainMaster {
    chain: Chain,
    /// The fewest members that suspicions leave.
    least: usize,
}

impl ChainMaster {
    /// Begins with this chain, of which suspicions leave this number of members.
    pub fn new(chain: Chain, least: usize) -> Self {
        ChainMaster { chain, least }
    }

    /// The chain now.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Takes a step, if it fits.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Suspect {
                epoch,
                from,
                life,
                node,
            } => {
                let here = epoch == self.chain.epoch && self.chain.place(from, life).is_some();
                let is_it = |member: &Member| member.node == node;
                if let Some(place) = self.chain.members.iter().position(is_it)
                    && here
                {
                    self.suspect(place);
                }
            }
            Step::Begin { node, life } => {
                let is_over = |member: &Member| member.node == node && member.life < life;
                self.chain.aside.take_if(|aside| is_over(&aside.member));
                if let Some(place) = self.chain.members.iter().position(is_over) {
                    self.end(place);
                }
            }
            Step::Ready { epoch, node, life } => {
                let members = &mut self.chain.members;
                let is_it = |member: &Member| member.node == node;
                let is_whole = members.iter().all(|member| member.full);
                if epoch == self.chain.epoch && is_whole && !members.iter().any(is_it) {
                    let full = false;
                    members.push(Member { node, life, full });
                    self.chain.epoch = epoch.next();
                }
            }
            Step::Full { epoch, node, life } => {
                // What it had in an earlier epoch it may have dropped when it entered this one.
                if let Some(place) = self.chain.place(node, life)
                    && epoch == self.chain.epoch
                    && !self.chain.members[place].full
                {
                    self.chain.members[place].full = true;
                    self.chain.aside = None;
                }
            }
        }
    }

    /// How many full members there are beside the one at `place`.
    fn full_besides(&self, place: usize) -> usize {
        let others = self.chain.members.iter().enumerate();
        others
            .filter(|(other, member)| *other != place && member.full)
            .count()
    }

    /// A member is suspected.
    fn suspect(&mut self, place: usize) {
        let members = &self.chain.members;
        if !members[place].full {
            return self.remove(place);
        }
        let (full, aside) = (self.full_besides(place), self.chain.aside);
        let feeds_the_last = members.len() == place + 2 && !members[place + 1].full;
        if full > 0 && full + usize::from(aside.is_some()) >= self.least {
            self.remove(place);
        } else if feeds_the_last && aside.is_some() {
            self.exchange(place);
        } else if feeds_the_last && full > 0 {
            let (member, before) = (self.chain.members[place], false);
            self.remove(place);
            self.chain.aside = Some(Aside { member, before });
        }
    }

    /// The life of a member is over.
    fn end(&mut self, place: usize) {
        let is_full = self.chain.members[place].full;
        if !is_full || self.full_besides(place) > 0 {
            self.remove(place);
        } else if self.chain.aside.is_some() {
            self.exchange(place);
            self.chain.aside = None;
        }
    }

    /// The one that stands aside takes the place of a member, which stands aside.
    fn exchange(&mut self, place: usize) {
        if let Some(aside) = &mut self.chain.aside {
            core::mem::swap(&mut aside.member, &mut self.chain.members[place]);
            aside.before = !aside.before;
            self.chain.epoch = self.chain.epoch.next();
        }
    }

    /// Removes a member. If it is the last one, and not full, the one that stands aside comes back.
    fn remove(&mut self, place: usize) {
        let members = &mut self.chain.members;
        let removed = members.remove(place);
        // The one that stands aside stood beside the last member but one. If that is gone, it stood
        // behind the one that is the last but one now.
        if let Some(aside) = &mut self.chain.aside
            && removed.full
            && place + 1 == members.len()
        {
            aside.before = false;
        }
        if let Some(aside) = self.chain.aside.take_if(|_| !removed.full) {
            let place = members.len() - usize::from(aside.before);
            members.insert(place, aside.member);
        }
        self.chain.epoch = self.chain.epoch.next();
    }
}

impl StateMachine for ChainMaster {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        if let Ok(step) = decode_all::<Step>(&Bytes::copy_from_slice(command)) {
            self.step(step);
        }
        self.chain.encode(reply);
    }

    fn read(&self, _: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.chain.encode(reply);
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.chain.encode(out);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let chain = decode_all(&Bytes::copy_from_slice(snapshot));
        self.chain = chain.map_err(|error| RestoreError(error.to_string()))?;
        Ok(())
    }
}
