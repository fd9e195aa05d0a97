//! What acceptors note beside votes, where a protocol has them do so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::{Round, Slot};
use ionian_replication::batch::Value;

/// What a leader learns in phase 1 beside votes, and what follows from it. A protocol whose
/// acceptors note nothing else uses `()`.
pub trait Notes: Default {
    /// What comes with each page of votes.
    type Page;

    /// Whether a leader may propose new values as soon as it leads. If not, it waits for
    /// [`open_below`](super::LeaderCore::open_below).
    const PROPOSES_AT_ONCE: bool;

    /// Takes in what came with a page of votes.
    fn add(&mut self, page: Self::Page);

    /// Whether a vote of `round` in `slot` says what may have been chosen there. It does not, where
    /// a leader of a later round may have put a noop there without a vote.
    fn counts(&self, slot: Slot, round: Round) -> bool;

    /// Whether a slot that is chosen, and in which no member of a read quorum has voted, is known
    /// to hold a noop by the leader of `round`.
    fn is_noop_without_votes(&self, round: Round) -> bool;

    /// The first slot that no earlier leader may have used without a vote.
    fn unused_from(&self) -> Slot;

    /// The runs of slots from `start` up to `end`, lowest first, that a new leader does not fill
    /// with noops: it has found none of these `values` there.
    fn left_out(start: Slot, end: Slot, values: &BTreeMap<Slot, Value>) -> Vec<(Slot, Slot)>;
}

/// Acceptors note votes alone.
impl Notes for () {
    type Page = ();

    const PROPOSES_AT_ONCE: bool = true;

    fn add(&mut self, (): ()) {}

    fn counts(&self, _: Slot, _: Round) -> bool {
        true
    }

    fn is_noop_without_votes(&self, _: Round) -> bool {
        false
    }

    fn unused_from(&self) -> Slot {
        Slot::ZERO
    }

    fn left_out(_: Slot, _: Slot, _: &BTreeMap<Slot, Value>) -> Vec<(Slot, Slot)> {
        Vec::new()
    }
}
