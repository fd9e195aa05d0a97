//! What the log needs of a file system, as a trait, so that tests can put a faulty one in its
//! place.

use crate::error::{WalError, io_error};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system. Clones are the same one: the log's threads hold one each.
pub trait Storage: Clone + Send + 'static {
    /// An open file.
    type File: StorageFile;

    /// The names of the files in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Makes a new empty file and opens it; fails when there is one of that name.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Renames a file, replacing any of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, removals and renames in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// A number that cannot be guessed and that was never returned before.
    fn nonce(&self) -> u64;
}

/// An open file of a [`Storage`].
#[expect(clippy::len_without_is_empty, reason = "not needed")]
pub trait StorageFile: Send + 'static {
    /// How long the file is.
    fn len(&self) -> io::Result<u64>;
    /// Reads at most as much as fits in `buffer`; 0 at the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes some of `bytes`, at least one, and says how many.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Makes durable what was written, and as much about the file as is needed to read it.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Makes durable what was written and everything about the file.
    fn sync_all(&mut self) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    type File = File;

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            // They hold all data.
            .mode(0o600)
            .open(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    /// The standard library keys its hash maps from the operating system's random numbers.
    #[expect(
        clippy::disallowed_types,
        reason = "the storage of real files is where randomness comes in"
    )]
    fn nonce(&self) -> u64 {
        std::hash::RandomState::new().build_hasher().finish()
    }
}

impl StorageFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        File::sync_all(self)
    }
}

/// A directory with what every file in it is stamped with.
#[derive(Clone, Debug)]
pub(crate) struct Directory<S> {
    pub(crate) storage: S,
    pub(crate) path: PathBuf,
    pub(crate) stamp: Arc<[u8]>,
}

impl<S: Storage> Directory<S> {
    pub(crate) fn list(&self) -> Result<Vec<String>, WalError> {
        self.storage
            .list(&self.path)
            .map_err(io_error("list the directory", &self.path))
    }

    pub(crate) fn create(&self, name: &str) -> Result<S::File, WalError> {
        let path = self.path.join(name);
        self.storage
            .create(&path)
            .map_err(io_error("create", &path))
    }

    pub(crate) fn open(&self, name: &str) -> Result<S::File, WalError> {
        let path = self.path.join(name);
        self.storage.open(&path).map_err(io_error("open", &path))
    }

    /// Renames a file; on return it has its new name even after a crash.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), WalError> {
        let path = self.path.join(from);
        self.storage
            .rename(&path, &self.path.join(to))
            .map_err(io_error("rename", &path))?;
        self.sync()
    }

    /// Removes a file; on return it is gone even after a crash.
    pub(crate) fn remove(&self, name: &str) -> Result<(), WalError> {
        let path = self.path.join(name);
        self.storage
            .remove(&path)
            .map_err(io_error("remove", &path))?;
        self.sync()
    }

    pub(crate) fn sync(&self) -> Result<(), WalError> {
        self.storage
            .sync_directory(&self.path)
            .map_err(io_error("sync the directory", &self.path))
    }
}

/// Writes all of `bytes`, however few the file takes at once.
pub(crate) fn write_all(
    file: &mut impl StorageFile,
    path: &Path,
    mut at: u64,
    mut bytes: &[u8],
) -> Result<(), WalError> {
    while !bytes.is_empty() {
        match file.write_at(at, bytes) {
            Ok(0) => return Err(io_error("write to", path)(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                at += count as u64;
                bytes = &bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error("write to", path)(error)),
        }
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns how much it read.
pub(crate) fn read_full(
    file: &impl StorageFile,
    path: &Path,
    at: u64,
    buffer: &mut [u8],
) -> Result<usize, WalError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(at + filled as u64, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error("read", path)(error)),
        }
    }
    Ok(filled)
}
