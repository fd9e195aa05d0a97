//! What can go wrong, in words for the operator who has to repair it.

use std::io;
use std::path::{Path, PathBuf};

/// Why the log, or a snapshot, cannot be opened or go on.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
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
    /// The file was not written by this crate.
    #[error("{} does not begin as a {what}; move it out of the directory", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it was taken for.
        what: &'static str,
    },
    /// The file was written by another version of the program.
    #[error("{} has format {found}, this program knows format {known}; run the version that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
        /// The format of this program.
        known: u16,
    },
    /// The file was written for another purpose, or another node.
    #[error("{} is stamped '{found}', this is '{own}'; is it the right directory?", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The stamp it has, printable.
        found: String,
        /// The caller's stamp, printable.
        own: String,
    },
    /// The file was damaged, and not by a crash in the middle of a write.
    #[error("{} is damaged at byte {offset}: {text}. A crash cannot have done this", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        text: String,
    },
    /// A segment between two others is not there.
    #[error("{} is missing, though {} comes behind it. A crash cannot have done this", path.display(), behind.display())]
    Missing {
        /// The file that should be there.
        path: PathBuf,
        /// The file that proves it.
        behind: PathBuf,
    },
    /// The first or the last of the files is not there.
    #[error("{} is missing, though {} says that it was there. A crash cannot have done this", path.display(), proof.display())]
    Gone {
        /// The file that should be there.
        path: PathBuf,
        /// The file that proves it.
        proof: PathBuf,
    },
    /// A file is shorter than it was made.
    #[error(
        "{} has {found} bytes, and had {bytes} before anything was written to it. A crash cannot have done this",
        path.display()
    )]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The length that its header tells.
        bytes: u64,
    },
    /// The newest records are not there, or cannot be read.
    #[error(
        "{} ends with record {found} at byte {offset}, though {} says that record {durable} was on disk. A crash \
         cannot have done this",
        path.display(), extent.display()
    )]
    Short {
        /// The file in which the next record should be.
        path: PathBuf,
        /// Where it should be.
        offset: u64,
        /// The last record that can be read.
        found: u64,
        /// The last record that was durable.
        durable: u64,
        /// The file that proves it.
        extent: PathBuf,
    },
    /// The caller appended more than the log was configured to take.
    #[error("a record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The record.
        bytes: usize,
        /// `Options::max_record_bytes`.
        limit: usize,
    },
    /// An earlier call failed. It is unknown what is on disk, so nothing continues.
    #[error("the log has stopped at an earlier error: {first}")]
    Poisoned {
        /// The text of that error.
        first: String,
    },
    /// A thread of the log panicked.
    #[error("the thread that {task} has died")]
    ThreadDied {
        /// What it was for.
        task: &'static str,
    },
}

impl WalError {
    /// Whether something is lost that was on disk.
    pub fn is_damage(&self) -> bool {
        use WalError::{Corrupt, CutOff, Gone, Missing, Short};
        matches!(
            self,
            Corrupt { .. } | Missing { .. } | Gone { .. } | CutOff { .. } | Short { .. }
        )
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, text: impl Into<String>) -> Self {
        WalError::Corrupt {
            path: path.to_owned(),
            offset,
            text: text.into(),
        }
    }

    /// Whether the disk has no room, or the user's share of it.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, WalError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// The stamp in a file is not the caller's.
    pub(crate) fn foreign(path: &Path, found: &[u8], own: &[u8]) -> Self {
        let printable = |stamp: &[u8]| stamp.escape_ascii().to_string();
        WalError::Foreign {
            path: path.to_owned(),
            found: printable(found),
            own: printable(own),
        }
    }
}

/// For `map_err`: says what was tried on what.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WalError {
    let path = path.to_owned();
    move |source| WalError::Io {
        action,
        path,
        source,
    }
}
