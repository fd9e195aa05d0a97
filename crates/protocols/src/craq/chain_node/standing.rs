//! Where a chain node stands: its place in the chain, its neighbours, and what it holds.

use super::{ChainNode, In};
use crate::craq::Envelope;
use crate::craq::id::ChainNodeId;
use crate::craq::message::Chain;
use ionian_kernel::id::{Set, Slot};
use ionian_kernel::role::Out;
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

    pub(super) fn to(&self, nodes: Set<ChainNodeId>, message: In) -> Envelope {
        Envelope::ToChainNodes(nodes, message)
    }

    pub(super) fn send(&self, to: ChainNodeId, message: In, out: &mut Out<'_, Self>) {
        out.send(self.to(Set::one(to), message));
    }

    /// Sends what reveals nothing that a crash could undo: reads, and what is committed, which is
    /// on every member's disk.
    pub(super) fn send_at_once(&self, to: ChainNodeId, message: In, out: &mut Out<'_, Self>) {
        out.send_unfenced(self.to(Set::one(to), message));
    }

    /// All other chain nodes.
    pub(super) fn others(&self) -> Set<ChainNodeId> {
        self.config.nodes().without(Set::one(self.id))
    }

    pub(super) fn is_member(&self) -> bool {
        self.place.is_some()
    }

    pub(super) fn is_head(&self) -> bool {
        self.place == Some(0)
    }

    /// Whether what it has received is committed.
    pub(super) fn is_tail(&self) -> bool {
        self.place.is_some() && self.successor().is_none()
    }

    pub(super) fn predecessor(&self) -> Option<ChainNodeId> {
        self.chain.at(self.place?.checked_sub(1)?)
    }

    pub(super) fn successor(&self) -> Option<ChainNodeId> {
        self.chain.at(self.place? + 1)
    }
}
