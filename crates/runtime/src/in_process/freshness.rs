//! How fresh a read must be, as users of a node in this process say it.

use ionian_kernel::client::{ReadLevel, Refusal};
use ionian_kernel::id::Slot;

/// What the cluster had executed when it answered: a later read can [ask](Freshness::After) to see
/// all of that, on any node of the cluster.
///
/// It is a position in the log. With EPaxos there is no log, and with P-SMR there are several: a
/// read after a receipt is linearizable there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(u64);

impl Receipt {
    /// The receipt with this [`position`](Self::position): for one that was sent elsewhere as a
    /// number.
    pub fn at(position: u64) -> Self {
        Receipt(position)
    }

    /// The slot after the last that was executed; 0 where there is no log.
    pub fn position(self) -> u64 {
        self.0
    }
}

impl From<Slot> for Receipt {
    fn from(seen: Slot) -> Self {
        Receipt(seen.0)
    }
}

/// How fresh a read must be: a [`ReadLevel`], or the [`Receipt`] of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As the level says.
    Level(ReadLevel),
    /// Sees the write or read of this receipt, and all before it; also everything that the client
    /// lane has completed. If the replica that is asked has not executed that far, the read is a
    /// linearizable one. A receipt of another cluster says nothing.
    After(Receipt),
}

impl From<ReadLevel> for Freshness {
    fn from(level: ReadLevel) -> Self {
        Freshness::Level(level)
    }
}

impl From<Receipt> for Freshness {
    fn from(receipt: Receipt) -> Self {
        Freshness::After(receipt)
    }
}

/// Why a closure has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalReadError {
    /// The cluster refused the read.
    #[error("the read was refused: {0}")]
    Refused(#[from] Refusal),
    /// No replica of this process has answered: there is none, it does not run, or it is far
    /// behind.
    #[error("no replica in this process has answered: it has none, or it is behind")]
    NoReplica,
    /// The state machine is of another type than that of the closure.
    #[error("the state machine is not of the type that the closure reads")]
    OtherMachine,
}
