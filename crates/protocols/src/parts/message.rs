//! What several messages are made of.

use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::Timestamp;
use ionian_kernel::{wire_enum, wire_struct};
use ionian_replication::batch::Value;

/// The proposer of a batch; it learns when the batch is chosen, or that another leader leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposer {
    /// A client lane; its answer tells it all it needs.
    Client {
        /// The lane.
        id: ClientId,
    },
    /// A batcher.
    Batcher {
        /// The batcher.
        id: BatcherId,
        /// Its number for the batch.
        number: u64,
    },
    /// The leader itself, of a noop or of a value found in phase 1: no role waits for it.
    Leader {},
}

wire_enum! { Proposer { 0 => Client { id }, 1 => Batcher { id, number }, 2 => Leader {} } }

/// Who asks acceptors for their watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReaderId {
    /// A client lane that has no read batcher.
    Client {
        /// The lane.
        id: ClientId,
    },
    /// A read batcher.
    ReadBatcher {
        /// The read batcher.
        id: ReadBatcherId,
    },
}

wire_enum! { ReaderId { 0 => Client { id }, 1 => ReadBatcher { id } } }

/// What a replica knows of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// What its own clock shows; zero says nothing.
    pub clock: Timestamp,
    /// The time that the log has got to: the largest stamp executed.
    pub log: Timestamp,
}

wire_struct! { Times { clock, log } }

/// An acceptor's vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The round in which it voted last.
    pub round: Round,
    /// What it voted for.
    pub value: Value,
}

wire_struct! { Vote { round, value } }

/// A stretch of an acceptor's votes, in answer to Phase1a. Large logs come in several, so that no
/// frame is unbounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Votes {
    /// The stretch begins here, as asked, and has no votes below `forgotten`.
    pub start: Slot,
    /// Where what was asked for ends: it tells the answers of one phase 1 from those of another of
    /// the same round.
    pub end: Slot,
    /// The stretch ends before this slot; [`Slot::MAX`] when nothing comes after it.
    pub next: Slot,
    /// The votes.
    pub votes: Vec<(Slot, Vote)>,
    /// Everything below this slot is chosen, kept by f+1 replicas, and forgotten here.
    pub forgotten: Slot,
    /// The vote watermark: the slot after the highest in which this acceptor has ever voted.
    pub watermark: Slot,
}

wire_struct! { Votes { start, end, next, votes, forgotten, watermark } }

/// The most slots that a replica asks the leaders for in one message. A leader ignores those
/// beyond.
pub const RECOVER_SLOTS: usize = 32;

/// Slots and their chosen values, from one replica to another.
pub type ChosenSlots = Vec<(Slot, Value)>;
