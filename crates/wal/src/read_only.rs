//! Logs and snapshots that must not be written to: those of a stopped node.

use crate::error::{WalError, io_error};
use crate::recovery::{self, Recovery};
use crate::segment::{HEADER_BLOCK, parse_name, stamp_of};
use crate::storage::{Directory, Disk, Storage, StorageFile, read_full};
use std::fs::File;
use std::io;
use std::path::Path;

/// The operating system's files, unchanged whatever happens: code that would repair a file or
/// rename one believes that it was done. What is read does not depend on that, because nothing is
/// read from where something was repaired.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnly;

/// A file of [`ReadOnly`].
#[derive(Debug)]
pub struct ReadOnlyFile(File);

impl Storage for ReadOnly {
    type File = ReadOnlyFile;

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        Disk.list(directory)
    }

    fn create(&self, _: &Path) -> io::Result<ReadOnlyFile> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, path: &Path) -> io::Result<ReadOnlyFile> {
        File::open(path).map(ReadOnlyFile)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn nonce(&self) -> u64 {
        Disk.nonce()
    }
}

impl StorageFile for ReadOnlyFile {
    fn len(&self) -> io::Result<u64> {
        StorageFile::len(&self.0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        StorageFile::read_at(&self.0, offset, buffer)
    }

    fn write_at(&mut self, _: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The records of the log in the directory `path`, of any owner, without changing
/// anything; `None` if there is no log. No process may write to it meanwhile.
///
/// # Errors
/// When the log is damaged or cannot be read.
pub fn read_log(path: &Path) -> Result<Option<Recovery<ReadOnly>>, WalError> {
    let mut directory = Directory {
        storage: ReadOnly,
        path: path.to_owned(),
        stamp: [].into(),
    };
    let names = directory.list()?;
    let Some(first) = names.iter().filter(|name| parse_name(name).is_some()).min() else {
        return Ok(None);
    };
    let segment = path.join(first);
    let file = ReadOnly
        .open(&segment)
        .map_err(io_error("open", &segment))?;
    let mut block = vec![0; HEADER_BLOCK as usize];
    let read = read_full(&file, &segment, 0, &mut block)?;
    // What it says is checked when the segment is read.
    directory.stamp = stamp_of(&block[..read]).unwrap_or_default().into();
    Ok(recovery::open(&directory)?.map(|opened| opened.recovery))
}
