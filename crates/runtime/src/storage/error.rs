//! What is wrong with a data directory.

use ionian_wal::WalError;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("the data directory {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The file belongs to another node.
    #[error("{} is not a file of this node: {text}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What shows that.
        text: String,
    },
    /// The file was damaged, and not by a crash in the middle of a write.
    #[error(
        "{} is damaged at byte {offset}: {text}. What this node promised may be lost, so it must not run from this \
         directory",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The position in bytes.
        offset: u64,
        /// What is wrong there.
        text: String,
    },
    /// The cluster has a level that this program does not support.
    #[error("{}: {text}", path.display())]
    Level {
        /// The file that says so.
        path: PathBuf,
        /// The levels.
        text: String,
    },
    /// The directory was used with the other durability.
    #[error(
        "{} was used with durability \"{used}\" and cannot be used with durability \"{wanted}\": use another directory, \
         or the durability that it had",
        path.display()
    )]
    OtherDurability {
        /// The directory.
        path: PathBuf,
        /// The durability that it was used with.
        used: &'static str,
        /// The durability that the node is to run with.
        wanted: &'static str,
    },
    /// The directory is not that of a stopped node.
    #[error("{} is not the data directory of a node with durability \"disk\": {text}", path.display())]
    NoNode {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        text: String,
    },
    /// The directory to be created is not empty.
    #[error("{} is not empty: what is in it would be lost. Use another directory", path.display())]
    Used {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot take the place of a lost one.
    #[error("{} cannot take the place of a lost directory: {text}", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Why.
        text: String,
    },
    /// A part of the directory is missing.
    #[error(
        "{} is missing, though {} shows that it existed. What this node promised may be lost, so it must not run from \
         this directory: put back what is missing, or replace the node by one of another name",
        lost.display(), proof.display()
    )]
    Lost {
        /// The missing file or directory.
        lost: PathBuf,
        /// The file or directory that shows that it existed.
        proof: PathBuf,
    },
    /// The write-ahead log, or a snapshot, cannot be opened or written.
    #[error(transparent)]
    Wal(WalError),
    /// Bytes of the write-ahead log or of a snapshot are lost that were on disk.
    #[error(
        "{0}. What this node promised may be lost, so it must not run from this directory as it \
         is: put back what is missing, or replace the node by one of another name (ionian member replace; \
         docs/operations.md says what to do where that cannot be)"
    )]
    Damaged(WalError),
}

impl LogError {
    /// Whether the disk has no room.
    pub(crate) fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            LogError::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            LogError::Wal(error) => error.is_full(),
            _ => false,
        }
    }
}

impl From<WalError> for LogError {
    fn from(error: WalError) -> Self {
        match error.is_damage() {
            true => LogError::Damaged(error),
            false => LogError::Wal(error),
        }
    }
}

/// For `map_err`: adds what was tried, and on which file.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io {
        action,
        path,
        source,
    }
}
