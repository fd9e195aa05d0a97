//! The consistency level of reads, as a flag.

use clap::ValueEnum;
use ionian_kernel::client::ReadLevel;

/// The consistency of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Every write acknowledged before the read began
    Linearizable,
    /// Everything that went through the same node before
    Sequential,
    /// Some earlier state
    Eventual,
}

impl Level {
    /// The name in the command `IONIAN CONSISTENCY` and in flags.
    pub fn name(self) -> &'static str {
        match self {
            Level::Linearizable => "linearizable",
            Level::Sequential => "sequential",
            Level::Eventual => "eventual",
        }
    }

    /// The level for client lanes.
    pub fn read_level(self) -> ReadLevel {
        match self {
            Level::Linearizable => ReadLevel::Linearizable,
            Level::Sequential => ReadLevel::Sequential,
            Level::Eventual => ReadLevel::Eventual,
        }
    }
}
