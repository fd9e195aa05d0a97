//! Where a chain node stands: its place in the chain, its neighbours, and what it holds.

use super::ChainNode;
use crate::craq::id::ChainNodeId;
use crate::craq::message::Chain;
use ionian_kernel::id::Slot;
use ionian_replication::batch::Value;

impl ChainNode {
    /// The chain that it has entered.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Its place in the chain, if it is a member of it.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// Whether it is a member that holds all that was acknowledged.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether its predecessor in the chain has found that it has no more than that, or there is
    /// none.
    pub fn is_synced(&self) -> bool {
        self.up.synced
    }

    /// Every entry below this one is applied.
    pub fn applied(&self) -> Slot {
        self.history.applied()
    }

    /// It has received every entry below this one.
    pub fn received(&self) -> Slot {
        self.history.end()
    }

    /// The entries from this one on that it holds.
    pub fn entries_from(&self, start: Slot) -> impl Iterator<Item = (Slot, &Value)> {
        self.history.iter_from(start)
    }

    pub(super) fn is_head(&self) -> bool {
        self.place == Some(0)
    }

    /// Whether what it has received is committed.
    pub(super) fn is_tail(&self) -> bool {
        let is_last = |place| place + 1 == self.chain.members.len();
        self.whole && self.place.is_some_and(is_last)
    }

    pub(super) fn predecessor(&self) -> Option<ChainNodeId> {
        self.chain.at(self.place?.checked_sub(1)?)
    }

    pub(super) fn successor(&self) -> Option<ChainNodeId> {
        self.chain.at(self.place? + 1)
    }
}
