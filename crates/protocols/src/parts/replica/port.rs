//! What a replica asks of the role that it is part of.

use super::divergence::Mark;
use crate::parts::message::{ChosenSlots, Times};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::Answers;

/// What a replica has done for it by the role that it is part of. Nothing of it depends on a
/// record: it keeps none.
pub trait ReplicaPort {
    /// Answers for clients, to be sent on by an unbatcher.
    fn results(&mut self, to: UnbatcherId, answers: Answers);
    /// Answers for a client.
    fn answers(&mut self, to: ClientId, answers: Answers);
    /// Asks a peer for the slots from one up to another; `waits` says whether it is to be answered
    /// later, if it cannot be answered now.
    fn fetch(&mut self, to: ReplicaId, slots: (Slot, Slot), waits: bool);
    /// Slots that a peer has asked for.
    fn fetched(&mut self, to: ReplicaId, slots: ChosenSlots);
    /// Asks a peer for a piece of its snapshot of the state before the slot `executed`.
    fn fetch_snapshot(&mut self, to: ReplicaId, executed: Slot, offset: u64);
    /// A piece of the snapshot of the state before the slot `executed`.
    fn snapshot_chunk(
        &mut self,
        to: ReplicaId,
        executed: Slot,
        offset: u64,
        last: bool,
        bytes: Bytes,
    );
    /// Asks the leaders for slots that peers do not have.
    fn recover(&mut self, slots: Vec<Slot>);
    /// Tells the leaders that every slot below `executed` is executed, and that those below `kept`
    /// would be found again after a crash.
    fn report_executed(&mut self, executed: Slot, kept: Slot, times: Times);
    /// Asks the leaders for the time: the answers of the state machine change at `deadline`.
    fn advance_clock(&mut self, deadline: Timestamp);
    /// Tells read batchers that it is alive.
    fn alive(&mut self, to: Set<ReadBatcherId>);
    /// Tells other replicas what a stretch of the log has led to.
    fn mark(&mut self, to: Set<ReplicaId>, mark: Mark);
    /// The log has led to this membership.
    fn announce(&mut self, membership: Membership);
    /// Stores a picture of the state before the slot `stamp`.
    fn store_snapshot(&mut self, stamp: u64, frozen: Box<dyn Frozen>);
    /// A rare branch was taken.
    fn reached(&mut self, branch: &'static str);
}
