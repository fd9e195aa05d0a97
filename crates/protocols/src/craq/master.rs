//! The master: a replica of MultiPaxos that executes the log of chain configurations.
//!
//! Its state machine is the [chain](Chain) itself. Each command is a [step](Step), each answer the
//! chain after it, whether or not the step fitted.
//!
//! Which steps fit. A new chain is a part of the old one in the same order, or the old one and one
//! node more, which holds all that the member before it holds (`chain_node/sealing.rs`). So each
//! member holds everything that was acknowledged. Two rules say whom a suspicion may remove:
//!
//! - One member remains, always.
//! - At least f+1 remain, or n - f where that is less, n being the number of chain nodes. Of f+1
//!   one is up whichever f nodes are down, and beside one that is up every other node that is up
//!   can join; then those that are down can be removed
//!   (`docs/decisions/0046-members-of-a-chain.md`). With n < 2f+1 a suspicion that is wrong costs a
//!   copy that f failures may need.
//!
//! Where nodes answer reads under leases (`chain_node/lease.rs`), no member is removed at once. A
//! suspicion that fits is *announced*: from then on no inquiry gives that member a lease. When the
//! member that announced it, or another one that suspects it, has waited until all leases are over
//! that were given before, it asks for the removal, and names the announcement: which must still be
//! there. The announcement ends when it is withdrawn, or when the member that made it is removed:
//! others make their own, and wait anew.
//!
//! A node that has lost its memory says itself that its earlier life is over: that needs no number
//! of members, for it is certain. Another node that has got its number says it too: where there are
//! leases that is not certain, and its neighbours have it removed.
//!
//! When the membership of the cluster changes, which chain nodes count changes (`roster.rs`).

use super::Taken;
use super::id::ChainNodeId;
use super::message::{Announcement, Chain, Leaving, Member, Step, birth_of};
use super::roster::Roster;
use crate::multipaxos::replica;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
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
    roster: Roster,
}

impl ChainMaster {
    /// Begins with this chain, of which suspicions leave this number of members. Where inquiries
    /// give `leases`, members are announced as leaving first.
    pub fn new(chain: Chain, least: usize, leases: bool) -> Self {
        ChainMaster {
            roster: Roster::founding(chain.nodes()),
            chain,
            least,
            leases,
        }
    }

    /// Which nodes count.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The chain now.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Takes a step, if it fits.
    pub fn step(&mut self, step: Step) {
        self.take_step(step);
        self.roster.hand_over(&self.chain, self.least);
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
            Step::Join {
                epoch,
                node,
                life,
                behind,
            } => {
                if let Some(place) = self.chain.place_of(behind)
                    && epoch == self.chain.epoch
                    && self.chain.place_of(node).is_none()
                    && self.admits(node, life)
                {
                    let member = Member { node, life };
                    self.chain.members.insert(place + 1, member);
                    self.next_epoch();
                }
            }
            Step::Renew { epoch, from, life } => {
                let is_here = epoch == self.chain.epoch;
                if is_here && (self.chain.place(from, life).is_some() || self.admits(from, life)) {
                    self.next_epoch();
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
            Step::Members { epoch, now, next } => self.roster.follow(epoch, (now, next)),
        }
    }

    /// A node has begun a life.
    fn begin(&mut self, node: ChainNodeId, life: u64) {
        self.roster.hear(node, life);
        let leases = self.leases;
        let is_over = |member: &Member| {
            // One that began in another epoch of the membership is of another machine.
            let is_certain = !leases || birth_of(member.life) == birth_of(life);
            member.node == node && member.life < life && is_certain
        };
        let place = self.chain.members.iter().position(is_over);
        if let Some(place) = place.filter(|_| self.chain.members.len() > 1) {
            self.remove(place);
        }
    }

    /// Whether a node may be a member: in a configuration that is in force, and in its last life.
    fn admits(&mut self, node: ChainNodeId, life: u64) -> bool {
        let is_known = self.roster.lists(node) && birth_of(life) <= self.roster.epoch;
        is_known && self.roster.hear(node, life)
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

    /// A member is suspected, by this one. Where it may have a lease it is announced as leaving.
    fn suspect(&mut self, place: usize, by: ChainNodeId) {
        if !self.leases {
            return self.take_out(place);
        }
        let node = self.chain.members[place].node;
        if self.may_go(place) && self.chain.leaving_of(node).is_none() {
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

    /// Whether suspicions may remove the member at this place.
    fn may_go(&self, place: usize) -> bool {
        self.roster.spares(&self.chain, place, self.least)
    }

    /// Takes a member out, if that fits.
    fn take_out(&mut self, place: usize) {
        if self.may_go(place) {
            self.remove(place);
        }
    }

    /// Removes a member. Announcements of it, and those that it has made, are void.
    fn remove(&mut self, place: usize) {
        let node = self.chain.members.remove(place).node;
        let is_other = |it: &Leaving| it.node != node && it.by != node;
        self.chain.leaving.retain(is_other);
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
        self.roster.encode(out);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let restored = restored(&Bytes::copy_from_slice(snapshot));
        let restored = restored.map_err(|error| RestoreError(error.to_string()))?;
        (self.chain, self.roster) = restored;
        Ok(())
    }
}

/// What a snapshot has.
fn restored(snapshot: &Bytes) -> Result<(Chain, Roster), WireError> {
    let mut reader = Reader::new(snapshot);
    let restored = (Chain::decode(&mut reader)?, Roster::decode(&mut reader)?);
    match reader.remaining() {
        0 => Ok(restored),
        count => Err(WireError::TrailingBytes { count }),
    }
}
