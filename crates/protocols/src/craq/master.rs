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
//! While a node stands aside the head numbers nothing, and no full member is passed what the head
//! has numbered before (`ChainNode::holds_back`): so what a member holds is still a beginning of
//! what each holds that stood before it, whichever of the two was aside. Without the second, a full
//! member would get an entry that was under way, in the place of the one that stands aside; that
//! comes back before it and lacks the entry; a node that joins behind them takes the entry over, is
//! full and commits it; and when those die that stood before the one that lacks it, that one is the
//! head, and numbers another entry so.
//!
//! Where nodes answer reads under leases (`chain_node/lease.rs`), no full member is removed or put
//! aside at once. A suspicion that fits is *announced*: from then on no inquiry gives that member a
//! lease. When the member that announced it, or another one that suspects it, has waited until all
//! leases are over that were given before, it asks for the removal, and names the announcement:
//! which must still be there. The announcement ends when it is withdrawn, or when the member that
//! made it is removed: others make their own, and wait anew.
//!
//! A node that has lost its memory says itself that its earlier life is over: that needs no number
//! of members, for it is certain. Another node that has got its number says it too: where there are
//! leases that is not certain, and its neighbours have it removed.
//!
//! When the membership of the cluster changes, which chain nodes count changes (`roster.rs`).

use super::Taken;
use super::id::ChainNodeId;
use super::message::{Announcement, Aside, Chain, FIRST_LIFE, Leaving, Member, Step, birth_of};
use super::roster::{Roster, counted};
use crate::multipaxos::replica;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::Set;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire, WireError, decode_all};

pub use crate::multipaxos::replica::In;

/// A replica of the master's log.
pub type Master = Taken<replica::Replica>;

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct ChainMaster {
    chain: Chain,
    /// The fewest members that suspicions leave.
    least: usize,
    /// Whether inquiries give leases.
    leases: bool,
    /// Which nodes count, once the membership has changed.
    roster: Option<Roster>,
}

/// What a suspicion does to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is removed.
    Removed,
    /// It is put aside.
    Aside,
    /// It changes places with the one that stands aside.
    Exchanged,
}

/// What becomes of the member at this place if it is suspected, where suspicions leave at least
/// this number of members that count. Nothing, if the suspicion does not fit.
pub fn outcome(
    chain: &Chain,
    place: usize,
    least: usize,
    roster: Option<&Roster>,
) -> Option<Outcome> {
    let members = &chain.members;
    let Member { node, full, .. } = members[place];
    if !full {
        return Some(Outcome::Removed);
    }
    let besides = full_besides(chain, place);
    let aside = chain.aside.as_ref().map(|aside| aside.member.node);
    let all: Vec<_> = counted(chain, roster)
        .filter(|counted| counted.contains(node))
        .map(|counted| {
            let aside = aside.is_some_and(|aside| counted.contains(aside));
            let left = besides.and(counted).len() + usize::from(aside);
            (left >= least, counted)
        })
        .collect();
    let feeds_the_last = members.len() == place + 2 && !members[place + 1].full;
    // The last member is to count in its place.
    let is_replaced = || {
        let last = members[place + 1].node;
        let mut all = all.iter();
        all.all(|(enough, counted)| *enough || counted.contains(last))
    };
    if !besides.is_empty() && all.iter().all(|(enough, _)| *enough) {
        Some(Outcome::Removed)
    } else if feeds_the_last && aside.is_some() && is_replaced() {
        Some(Outcome::Exchanged)
    } else if feeds_the_last && !besides.is_empty() && is_replaced() {
        Some(Outcome::Aside)
    } else {
        None
    }
}

/// The full members beside the one at `place`.
fn full_besides(chain: &Chain, place: usize) -> Set<ChainNodeId> {
    let node = chain.members[place].node;
    chain.full().without(Set::one(node))
}

impl ChainMaster {
    /// Begins with this chain, of which suspicions leave this number of members. Where inquiries
    /// give `leases`, full members are announced as leaving first.
    pub fn new(chain: Chain, least: usize, leases: bool) -> Self {
        ChainMaster {
            chain,
            least,
            leases,
            roster: None,
        }
    }

    /// Which nodes count, once the membership has changed.
    pub fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    /// The chain now.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Takes a step, if it fits.
    pub fn step(&mut self, step: Step) {
        self.take_step(step);
        if let Some(roster) = &mut self.roster {
            roster.hand_over(&self.chain, self.least);
        }
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Suspect {
                epoch,
                from,
                life,
                node,
            } => {
                let here = epoch == self.chain.epoch && self.chain.place(from, life).is_some();
                if let Some(place) = self.chain.place_of(node)
                    && here
                {
                    self.suspect(place, from);
                }
            }
            Step::Begin { node, life } => self.begin(node, life),
            Step::Ready { epoch, node, life } => {
                let is_it = |member: &Member| member.node == node;
                let is_whole = self.chain.members.iter().all(|member| member.full);
                let is_member = self.chain.members.iter().any(is_it);
                let fits = epoch == self.chain.epoch && is_whole && !is_member;
                if fits && self.admits(node, life) {
                    let full = false;
                    self.chain.members.push(Member { node, life, full });
                    self.next_epoch();
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
                    self.chain.revision += 1;
                }
            }
            Step::Remove {
                from,
                life,
                announced,
            } => {
                let leaving = self.announced(announced).map(|leaving| leaving.node);
                let place = leaving.and_then(|node| self.chain.place_of(node));
                if let Some(place) = place.filter(|_| self.chain.place(from, life).is_some()) {
                    self.take_out(place);
                }
            }
            Step::Withdraw {
                from,
                life,
                announced,
            } => {
                let own = self.announced(announced).filter(|it| it.by == from);
                if own.is_some() && self.chain.place(from, life).is_some() {
                    self.chain.leaving.retain(|it| it.announced != announced);
                    self.chain.revision += 1;
                }
            }
            Step::Members { epoch, now, next } => {
                let roster = self.roster.get_or_insert_default();
                roster.follow(epoch, (now, next));
            }
        }
    }

    /// A node has begun a life.
    fn begin(&mut self, node: ChainNodeId, life: u64) {
        if let Some(roster) = &mut self.roster {
            roster.hear(node, life);
        }
        let leases = self.leases;
        let is_over = |member: &Member| {
            // One that was born in another epoch of the membership is of another machine. A member
            // that is not full has no lease.
            let is_same = birth_of(member.life) == birth_of(life);
            let is_certain = !leases || !member.full || is_same;
            member.node == node && member.life < life && is_certain
        };
        let aside = &mut self.chain.aside;
        if aside.take_if(|aside| is_over(&aside.member)).is_some() {
            self.chain.revision += 1;
        }
        if let Some(place) = self.chain.members.iter().position(is_over) {
            self.end(place);
        }
    }

    /// Whether a node may be a member: in a configuration that is in force, and in its last life.
    fn admits(&mut self, node: ChainNodeId, life: u64) -> bool {
        match &mut self.roster {
            None => birth_of(life) == birth_of(FIRST_LIFE),
            Some(roster) => {
                let is_known = roster.lists(node) && birth_of(life) <= roster.epoch;
                is_known && roster.hear(node, life)
            }
        }
    }

    fn announced(&self, announced: Announcement) -> Option<&Leaving> {
        let mut leaving = self.chain.leaving.iter();
        leaving.find(|leaving| leaving.announced == announced)
    }

    /// The members are others from now on.
    fn next_epoch(&mut self) {
        self.chain.epoch = self.chain.epoch.next();
        self.chain.revision = 0;
    }

    /// A member is suspected, by this one. One that may have a lease is announced as leaving.
    fn suspect(&mut self, place: usize, by: ChainNodeId) {
        let Member { node, full, .. } = self.chain.members[place];
        if !full || !self.leases {
            return self.take_out(place);
        }
        let fits = outcome(&self.chain, place, self.least, self.roster.as_ref()).is_some();
        if fits && self.chain.leaving_of(node).is_none() {
            self.chain.revision += 1;
            let (epoch, revision) = self.chain.order();
            let announced = Announcement { epoch, revision };
            let leaving = Leaving {
                node,
                by,
                announced,
            };
            self.chain.leaving.push(leaving);
        }
    }

    /// Takes a member out, if that fits.
    fn take_out(&mut self, place: usize) {
        match outcome(&self.chain, place, self.least, self.roster.as_ref()) {
            Some(Outcome::Removed) => self.remove(place),
            Some(Outcome::Exchanged) => self.exchange(place),
            Some(Outcome::Aside) => {
                let (member, before) = (self.chain.members[place], false);
                self.remove(place);
                self.chain.aside = Some(Aside { member, before });
            }
            None => {}
        }
    }

    /// Announcements of this member, and those that it has made, are void.
    fn forget(&mut self, node: ChainNodeId) {
        let is_other = |it: &Leaving| it.node != node && it.by != node;
        self.chain.leaving.retain(is_other);
    }

    /// The life of a member is over.
    fn end(&mut self, place: usize) {
        let is_full = self.chain.members[place].full;
        if !is_full || !full_besides(&self.chain, place).is_empty() {
            self.remove(place);
        } else if self.chain.aside.is_some() {
            self.exchange(place);
            self.chain.aside = None;
        }
    }

    /// The one that stands aside takes the place of a member, which stands aside.
    fn exchange(&mut self, place: usize) {
        let node = self.chain.members[place].node;
        if let Some(aside) = &mut self.chain.aside {
            core::mem::swap(&mut aside.member, &mut self.chain.members[place]);
            aside.before = !aside.before;
            self.forget(node);
            self.next_epoch();
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
        self.forget(removed.node);
        self.next_epoch();
    }
}

impl StateMachine for ChainMaster {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        if let Ok(step) = decode_all::<Step>(&Bytes::copy_from_slice(command)) {
            self.step(step);
        }
        self.chain.encode(reply);
    }

    /// A query with anything in it asks which nodes count.
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match query {
            [] => self.chain.encode(reply),
            _ => self.roster.encode(reply),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.chain.encode(out);
        // As programs wrote it that knew no changes of the membership, as long as there was none.
        if let Some(roster) = &self.roster {
            roster.encode(out);
        }
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let restored = restored(&Bytes::copy_from_slice(snapshot));
        let restored = restored.map_err(|error| RestoreError(error.to_string()))?;
        (self.chain, self.roster) = restored;
        Ok(())
    }
}

/// What a snapshot has.
fn restored(snapshot: &Bytes) -> Result<(Chain, Option<Roster>), WireError> {
    let mut reader = Reader::new(snapshot);
    let chain = Chain::decode(&mut reader)?;
    let roster = match reader.remaining() {
        0 => None,
        _ => Some(Roster::decode(&mut reader)?),
    };
    match reader.remaining() {
        0 => Ok((chain, roster)),
        count => Err(WireError::TrailingBytes { count }),
    }
}
