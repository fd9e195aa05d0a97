//! What is wrong with a data directory.

use ionian_wal::WalError;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system says no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("the data directory {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not this node's.
    #[error("{} is not a file of this node: {text}", path.display())]
    Foreign {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
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
        /// Where.
        offset: u64,
        /// What is wrong there.
        text: String,
    },
    /// The directory was used with the other durability.
    #[error(
        "{} was used with durability \"{used}\" and cannot be used with durability \"{wanted}\": take another directory, \
         or the durability that it had",
        path.display()
    )]
    OtherDurability {
        /// The directory.
        path: PathBuf,
        /// What it has files of.
        used: &'static str,
        /// What the node is to run with.
        wanted: &'static str,
    },
    /// What should be the directory of a node that does not run is none.
    #[error("{} is no directory of a node with durability \"disk\": {text}", path.display())]
    NoNode {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        text: String,
    },
    /// The directory is to be made, and there is something in it.
    #[error("{} is not empty: what is in it would be lost. Take another directory", path.display())]
    Used {
        /// The directory.
        path: PathBuf,
    },
    /// A part of the directory is gone.
    #[error(
        "{} is not there, though {} says that it was. What this node promised may be lost, so it must not run from \
         this directory: put back what is missing, or replace the node by one of another name",
        lost.display(), proof.display()
    )]
    Lost {
        /// What should be there.
        lost: PathBuf,
        /// What proves that it was.
        proof: PathBuf,
    },
    /// The write-ahead log, or a snapshot, cannot be opened or written.
    #[error(transparent)]
    Wal(WalError),
    /// Something is lost that was on disk, of the write-ahead log or a snapshot.
    #[error(
        "{0}. What this node promised on the strength of it may be lost, so it must not run from this directory as it \
         is: put back what is missing, or replace the node by one of another name (ionian member replace; \
         docs/operations.md says what to do where that cannot be)"
    )]
    Damaged(WalError),
}

impl From<WalError> for LogError {
    fn from(error: WalError) -> Self {
        match error.is_damage() {
            true => LogError::Damaged(error),
            false => LogError::Wal(error),
        }
    }
}

/// For `map_err`: says what was tried on what.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io {
        action,
        path,
        source,
    }
}
