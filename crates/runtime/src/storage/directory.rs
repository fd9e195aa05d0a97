//! A node's data directory: one process at a time.

use super::error::{LogError, io_error};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of the log. It exists only on nodes with durability "disk".
pub(crate) const LOG: &str = "wal";
/// The directory of the snapshots of a node with durability "disk".
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// The directory of the log of vital records. It exists only on nodes with durability "memory".
pub(crate) const VITAL: &str = "vital";

/// A data directory, locked while this value exists. The operating system releases the lock when
/// the process ends, even after a crash.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

/// Creates a directory, and those above it, for the user of this process only. What exists stays as
/// its owner has made it.
pub(super) fn private(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the names of files in a directory durable.
pub(super) fn sync(path: &Path) -> Result<(), LogError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(io_error("sync the directory", path))
}

impl DataDirectory {
    /// Creates the directory if needed, locks it, and removes unfinished snapshots: on a full disk
    /// they take the room that a node needs to start.
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        private(path).map_err(io_error("create the directory", path))?;
        sync_parents(path);
        let lock_path = path.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(io_error("open the lock file", &lock_path))?;
        let lock = lock(path, file)?;
        remove_drafts(&path.join(SNAPSHOTS))?;
        Ok(DataDirectory {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Makes sure that no process uses the directory, which may be read-only. The lock that is
    /// returned keeps it so; without a lock file there never was a process.
    pub(crate) fn look(path: &Path) -> Result<Option<Flock<File>>, LogError> {
        let lock_path = path.join("lock");
        let file = match File::open(&lock_path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open the lock file", &lock_path)(error)),
        };
        lock(path, file).map(Some)
    }

    /// Creates a directory in it. On return its name is durable.
    pub(crate) fn make(&self, path: &Path) -> Result<(), LogError> {
        private(path).map_err(io_error("create the directory", path))?;
        self.sync()
    }

    /// Refuses a directory that was used with another durability: it contains `file` then.
    pub(crate) fn refuse_durability(
        &self,
        file: &str,
        used: &'static str,
        wanted: &'static str,
    ) -> Result<(), LogError> {
        let file = self.path.join(file);
        match fs::exists(&file).map_err(io_error("look for", &file))? {
            true => Err(LogError::OtherDurability {
                path: self.path.clone(),
                used,
                wanted,
            }),
            false => Ok(()),
        }
    }

    /// Makes sure that there is a log in the directory `path` if the node has taken part.
    /// `identity` is the identity file if it says so.
    pub(crate) fn check_log(path: &Path, identity: Option<PathBuf>) -> Result<(), LogError> {
        match identity {
            Some(proof) if !has_log(path)? => Err(LogError::Lost {
                lost: path.to_owned(),
                proof,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the names of files in the directory durable.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        sync(&self.path)
    }
}

/// Removes the snapshots in this directory, if there is one, that a process did not finish.
fn remove_drafts(snapshots: &Path) -> Result<(), LogError> {
    let entries = match fs::read_dir(snapshots) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error("list the directory", snapshots))?,
    };
    for entry in entries {
        let path = entry
            .map_err(io_error("list the directory", snapshots))?
            .path();
        if path.extension().is_some_and(|kind| kind == "tmp") {
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
        }
    }
    Ok(())
}

/// Locks the lock file of the directory `path`.
///
/// `File::try_lock` of the standard library does the same, but is newer than the oldest Rust that
/// the workspace supports.
fn lock(path: &Path, file: File) -> Result<Flock<File>, LogError> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => Err(LogError::Locked {
            path: path.to_owned(),
        }),
        Err((_, errno)) => Err(io_error("lock the directory", path)(errno.into())),
    }
}

/// Makes the names of the directory and of its parents durable, as far as this process is allowed
/// to.
fn sync_parents(path: &Path) {
    for parent in path
        .ancestors()
        .skip(1)
        .take(3)
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        // It fails for directories of other users, which this process has not created.
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
}

/// Whether the directory holds more than files that the log has prepared for later use.
fn has_log(path: &Path) -> Result<bool, LogError> {
    let entries = fs::read_dir(path).map_err(io_error("list the directory", path))?;
    Ok(entries
        .flatten()
        .any(|entry| !entry.file_name().to_string_lossy().starts_with("spare-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_snapshots_are_removed_before_anything_is_written() {
        let data = std::env::temp_dir().join(format!("ionian-drafts-{}", std::process::id()));
        let snapshots = data.join(SNAPSHOTS);
        fs::create_dir_all(&snapshots).unwrap();
        let names = ["replica-0", "replica-0.previous", "replica-0.tmp"];
        for name in names {
            fs::write(snapshots.join(name), name).unwrap();
        }
        let open = DataDirectory::open(&data).unwrap();
        let left = names.map(|name| snapshots.join(name).exists());
        assert_eq!(left, [true, true, false]);
        fs::write(snapshots.join("replica-0.tmp"), "").unwrap();
        assert!(
            DataDirectory::open(&data).is_err(),
            "another process writes it"
        );
        assert!(snapshots.join("replica-0.tmp").exists());
        drop(open);
        fs::remove_dir_all(data).unwrap();
    }
}
