//! A node's data directory: one process at a time.

use crate::log::{LogError, io_error};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::{Path, PathBuf};

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
        // `File::try_lock` of the standard library does the same, but came after the oldest Rust that
        // the workspace promises to build with.
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(DataDirectory { path: path.to_owned(), _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LogError::Locked { path: path.to_owned() }),
            Err((_, errno)) => Err(io_error("lock the directory", &lock_path)(errno.into())),
        }
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

/// Makes the names of the directory and of those that it is in durable, as far as this process may.
fn sync_parents(path: &Path) {
    for parent in path.ancestors().skip(1).take(3).filter(|parent| !parent.as_os_str().is_empty()) {
        // Directories that belong to somebody else were not made by this process.
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
}
