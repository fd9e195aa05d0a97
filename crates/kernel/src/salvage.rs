//! What a protocol makes of the records of stopped nodes, when more nodes are lost than it
//! tolerates.

use crate::id::Slot;
use crate::layout::{Address, Layout, LayoutError};
use crate::wire::WireError;
use alloc::collections::BTreeMap;
use alloc::string::String;
use bytes::Bytes;

/// Reads records, and says what the log holds by them.
/// [`Protocol::salvage`](crate::protocol::Protocol::salvage) makes one.
pub trait Salvage {
    /// Takes in a record that `author` wrote on this node. The records of a node come oldest first,
    /// and those of one node after those of another.
    ///
    /// # Errors
    /// If the record cannot be read.
    fn read(&mut self, node: &str, author: Address, record: &Bytes) -> Result<(), WireError>;

    /// What the log holds from slot `start` on. `known` is the newest layout that is known, if any
    /// is.
    ///
    /// # Errors
    /// If the layout is not a deployment of the protocol, or the protocol needs one and none is
    /// known.
    fn finish(&self, start: Slot, known: Option<Layout>) -> Result<Salvaged, LayoutError>;
}

/// What a log holds by the records of some of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// By slot, the value that would be executed there, encoded: one that may be chosen and which
    /// no other value can be chosen in place of, if the records [are enough](Self::is_complete).
    /// `None` where there is one that these records do not contain.
    pub values: BTreeMap<Slot, Option<Bytes>>,
    /// Whether the records contain every acknowledged write, but for what is
    /// [forgotten](Self::forgotten). Then a slot without a value holds none.
    pub is_complete: bool,
    /// In slots below this one, records may be gone, because replicas keep what was chosen there.
    pub forgotten: Slot,
    /// Whose records these are, in words: "the votes of 2 acceptors".
    pub sources: String,
}
