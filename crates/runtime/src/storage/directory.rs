//! A node's data directory: one process at a time.

use super::error::{LogError, io_error};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The directory of the log, and with it the mark of a node with durability "disk".
pub(crate) const LOG: &str = "wal";
/// The directory of the snapshots of a node with durability "disk".
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// The directory of the log of vital records, and with it the mark of a node with durability
/// "memory".
pub(crate) const VITAL: &str = "vital";

/// The directory, locked as long as this lives. The lock goes with the process however that ends.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

impl DataDirectory {
    /// Makes the directory where needed and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        std::fs::create_dir_all(path).map_err(io_error("create the directory", path))?;
        sync_parents(path);
        let lock_path = path.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(io_error("open the lock file", &lock_path))?;
        Ok(DataDirectory {
            path: path.to_owned(),
            _lock: lock(path, file)?,
        })
    }

    /// Makes sure that no process has the directory, which may be one that cannot be written to.
    /// Held as long as the lock that is returned lives; without a lock file there never was a
    /// process.
    pub(crate) fn look(path: &Path) -> Result<Option<Flock<File>>, LogError> {
        let lock_path = path.join("lock");
        let file = match File::open(&lock_path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open the lock file", &lock_path)(error)),
        };
        lock(path, file).map(Some)
    }

    /// Makes a directory in it, for good.
    pub(crate) fn make(&self, path: &Path) -> Result<(), LogError> {
        std::fs::create_dir_all(path).map_err(io_error("create the directory", path))?;
        self.sync()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the names of files in the directory durable.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        let sync = File::open(&self.path).and_then(|directory| directory.sync_all());
        sync.map_err(io_error("sync the directory", &self.path))
    }
}

/// Locks the lock file of the directory `path`.
///
/// `File::try_lock` of the standard library does the same, but came after the oldest Rust that the
/// workspace promises to build with.
fn lock(path: &Path, file: File) -> Result<Flock<File>, LogError> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => Err(LogError::Locked {
            path: path.to_owned(),
        }),
        Err((_, errno)) => Err(io_error("lock the directory", path)(errno.into())),
    }
}

/// Makes the names of the directory and of those that it is in durable, as far as this process may.
fn sync_parents(path: &Path) {
    for parent in path
        .ancestors()
        .skip(1)
        .take(3)
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        // Directories that belong to somebody else were not made by this process.
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
}

/// Whether there is anything but files that the log has prepared for later use.
pub(crate) fn has_log(path: &Path) -> Result<bool, LogError> {
    let entries = fs::read_dir(path).map_err(io_error("list the directory", path))?;
    Ok(entries
        .flatten()
        .any(|entry| !entry.file_name().to_string_lossy().starts_with("spare-")))
}
