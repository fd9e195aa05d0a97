//! Files that are replaced atomically: snapshots.
//!
//! ```text
//! header  magic "IONSNAPS", u16 format, u32 crc32c of these 10 bytes,
//!         u32 length of the stamp, u32 crc32c of that length and the stamp, stamp
//! chunk   u32 length, u32 crc32c of the chunk's number (u64), the length and the bytes, bytes
//! end     u32 2^32 - 1, u64 number of chunks, u64 sum of their lengths, u32 crc32c of all their bytes,
//!         u32 crc32c of these 24 bytes
//! ```
//!
//! A snapshot is written to `NAME.tmp`. When it is whole and on disk, `NAME` becomes
//! `NAME.previous` and `NAME.tmp` becomes `NAME`. A crash at any moment leaves the new one, or the
//! one before it under one of the two names.
//!
//! Two are kept, so that one may be damaged. That helps only if what the newer one replaced is
//! still there: the log should be truncated to what the *previous* snapshot covers.

use crate::error::{WalError, io_error};
use crate::read_only::ReadOnly;
use crate::storage::{Directory, Disk, Storage, StorageFile, read_full, write_all};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"IONSNAPS";
const FORMAT: u16 = 1;
const STAMP_AT: usize = 22;
const CHUNK_HEADER: usize = 8;
const END: usize = 28;
const END_MARK: u32 = u32::MAX;
/// The largest chunk.
pub const MAX_CHUNK: usize = 1 << 30;

/// The snapshots of one name in a directory, which can be the log's. One process and one writer at
/// a time, as the caller sees to.
#[derive(Clone, Debug)]
pub struct Snapshots<S: Storage = Disk> {
    directory: Directory<S>,
    name: String,
}

impl Snapshots<Disk> {
    /// The snapshots `name` in the existing directory `path`. Only those with the same stamp are
    /// read.
    pub fn new(path: &Path, name: &str, stamp: &[u8]) -> Self {
        Self::new_in(Disk, path, name, stamp)
    }
}

impl<S: Storage> Snapshots<S> {
    /// As [`new`](Snapshots::new), on any file system.
    pub fn new_in(storage: S, path: &Path, name: &str, stamp: &[u8]) -> Self {
        Snapshots {
            directory: Directory {
                storage,
                path: path.to_owned(),
                stamp: stamp.into(),
            },
            name: name.into(),
        }
    }

    /// Begins to write a snapshot; an unfinished one is removed. The writer may move to another
    /// thread.
    ///
    /// A writer has read first: [`load_latest`](Self::load_latest) moves a damaged snapshot
    /// out of the way, which else would replace the sound previous one.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn begin(&self) -> Result<SnapshotWriter<S>, WalError> {
        self.remove_unfinished()?;
        let draft = self.file("tmp");
        let file = self.directory.create(&draft)?;
        let path = self.directory.path.join(&draft);
        let whole = Totals::default();
        let mut writer = SnapshotWriter {
            snapshots: self.clone(),
            file,
            path,
            at: 0,
            whole,
            buffer: Vec::new(),
            failed: false,
        };
        writer.write_header()?;
        Ok(writer)
    }

    /// Removes an unfinished snapshot, if there is one.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn remove_unfinished(&self) -> Result<(), WalError> {
        let draft = self.file("tmp");
        match self.directory.list()?.contains(&draft) {
            true => self.directory.remove(&draft),
            false => Ok(()),
        }
    }

    /// Opens the newest snapshot that is sound; `None` if there never was one. The file is read
    /// through and checked before this returns.
    ///
    /// # Errors
    /// When there are snapshots and none is sound, when they are not the caller's, or the disk
    /// fails.
    pub fn load_latest(&self) -> Result<Option<Loaded<S>>, WalError> {
        let names = self.directory.list()?;
        // A process may have died between a rename and its sync: then the name is there now, but a
        // power failure could still take it, and with it what the caller is about to rely on.
        self.directory.sync()?;
        let mut rejected = None;
        for name in [self.name.clone(), self.file("previous")] {
            if !names.contains(&name) {
                continue;
            }
            match self.check(&name) {
                Ok(reader) => {
                    if rejected.is_some() {
                        self.directory.rename(&self.name, &self.file("damaged"))?;
                    }
                    return Ok(Some(Loaded { reader, rejected }));
                }
                Err(error @ (WalError::Corrupt { .. } | WalError::NotOurs { .. })) => {
                    rejected.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        rejected.map_or(Ok(None), Err)
    }

    fn file(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.name)
    }

    /// Reads a file to its end, and returns a reader at its beginning.
    fn check(&self, name: &str) -> Result<SnapshotReader<S>, WalError> {
        for chunk in self.open(name)? {
            chunk?;
        }
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<SnapshotReader<S>, WalError> {
        let file = self.directory.open(name)?;
        let reader = SnapshotReader::begin(file, self.directory.path.join(name))?;
        match reader.stamp == *self.directory.stamp {
            true => Ok(reader),
            false => Err(WalError::foreign(
                &reader.path,
                &reader.stamp,
                &self.directory.stamp,
            )),
        }
    }
}

/// A snapshot that was found.
pub struct Loaded<S: Storage = Disk> {
    /// Its chunks.
    pub reader: SnapshotReader<S>,
    /// What is wrong with the newer one, if this is the previous; that was renamed to
    /// `NAME.damaged`.
    pub rejected: Option<WalError>,
}

/// What the end of a snapshot says of its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    chunks: u64,
    bytes: u64,
    sum: u32,
}

impl Totals {
    fn add(&mut self, chunk: &[u8]) {
        self.chunks += 1;
        self.bytes += chunk.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, chunk);
    }

    fn encode(&self) -> Vec<u8> {
        let mut end = END_MARK.to_le_bytes().to_vec();
        end.extend_from_slice(&self.chunks.to_le_bytes());
        end.extend_from_slice(&self.bytes.to_le_bytes());
        end.extend_from_slice(&self.sum.to_le_bytes());
        end.extend_from_slice(&crc32c::crc32c(&end).to_le_bytes());
        end
    }
}

/// A chunk in another place than its own is as wrong as another chunk.
fn chunk_sum(number: u64, chunk: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(
        crc32c::crc32c_append(sum, &(chunk.len() as u32).to_le_bytes()),
        chunk,
    )
}

/// A snapshot that is being written, chunk by chunk. Dropped before [`finish`](Self::finish), it
/// never was.
pub struct SnapshotWriter<S: Storage = Disk> {
    snapshots: Snapshots<S>,
    file: S::File,
    path: PathBuf,
    at: u64,
    whole: Totals,
    buffer: Vec<u8>,
    failed: bool,
}

impl<S: Storage> SnapshotWriter<S> {
    /// Writes the next chunk. The reader gets the same chunks.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    ///
    /// # Panics
    /// When the chunk is larger than [`MAX_CHUNK`].
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), WalError> {
        assert!(chunk.len() <= MAX_CHUNK, "a chunk of {} bytes", chunk.len());
        self.buffer.clear();
        self.buffer
            .extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        self.buffer
            .extend_from_slice(&chunk_sum(self.whole.chunks, chunk).to_le_bytes());
        self.buffer.extend_from_slice(chunk);
        self.write_buffer()?;
        self.whole.add(chunk);
        Ok(())
    }

    /// How many bytes were pushed.
    pub fn bytes(&self) -> u64 {
        self.whole.bytes
    }

    /// Makes this the latest snapshot. On return it is, even after a crash.
    ///
    /// # Errors
    /// When the disk fails, now or earlier. The snapshots before it are then as they were.
    pub fn finish(mut self) -> Result<(), WalError> {
        self.buffer = self.whole.encode();
        self.write_buffer()?;
        self.file.sync_all().map_err(io_error("sync", &self.path))?;
        let Snapshots { directory, name } = &self.snapshots;
        // Each rename is durable before the next: whatever a crash undoes, it leaves one of the
        // two.
        if directory.list()?.contains(name) {
            directory.rename(name, &self.snapshots.file("previous"))?;
        }
        directory.rename(&self.snapshots.file("tmp"), name)
    }

    fn write_header(&mut self) -> Result<(), WalError> {
        let stamp = self.snapshots.directory.stamp.clone();
        self.buffer.extend_from_slice(MAGIC);
        self.buffer.extend_from_slice(&FORMAT.to_le_bytes());
        let sum = crc32c::crc32c(&self.buffer);
        let length = (stamp.len() as u32).to_le_bytes();
        for word in [
            sum.to_le_bytes(),
            length,
            stamp_sum(length, &stamp).to_le_bytes(),
        ] {
            self.buffer.extend_from_slice(&word);
        }
        self.buffer.extend_from_slice(&stamp);
        self.write_buffer()
    }

    fn write_buffer(&mut self) -> Result<(), WalError> {
        if self.failed {
            let first = "an earlier chunk of the snapshot could not be written".into();
            return Err(WalError::Poisoned { first });
        }
        let result = write_all(&mut self.file, &self.path, self.at, &self.buffer);
        self.failed = result.is_err();
        self.at += self.buffer.len() as u64;
        result
    }
}

fn stamp_sum(length: [u8; 4], stamp: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), stamp)
}

/// The chunks of a snapshot, in the order in which they were pushed. Each is checked again as it is
/// read.
pub struct SnapshotReader<S: Storage = Disk> {
    file: S::File,
    path: PathBuf,
    at: u64,
    length: u64,
    stamp: Vec<u8>,
    seen: Totals,
    done: bool,
}

impl SnapshotReader<ReadOnly> {
    /// Opens one file, of any owner, without changing anything.
    ///
    /// # Errors
    /// When it cannot be read, or does not begin as a snapshot.
    pub fn open(path: &Path) -> Result<Self, WalError> {
        let file = ReadOnly.open(path).map_err(io_error("open", path))?;
        Self::begin(file, path.to_owned())
    }
}

impl<S: Storage> SnapshotReader<S> {
    fn begin(file: S::File, path: PathBuf) -> Result<Self, WalError> {
        let length = file.len().map_err(io_error("find the length of", &path))?;
        let (stamp, seen) = (Vec::new(), Totals::default());
        let mut reader = SnapshotReader {
            file,
            path,
            at: 0,
            length,
            stamp,
            seen,
            done: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn stamp(&self) -> &[u8] {
        &self.stamp
    }

    /// The size of the file.
    pub fn file_bytes(&self) -> u64 {
        self.length
    }

    fn read_header(&mut self) -> Result<(), WalError> {
        // A file that is shorter than any header belongs to another program as well.
        let header = self.take(STAMP_AT.min(self.length as usize))?;
        if !header.starts_with(MAGIC) {
            return Err(WalError::NotOurs {
                path: self.path.clone(),
                what: "snapshot",
            });
        }
        if header.len() < STAMP_AT {
            return Err(self.damaged("it is cut off"));
        }
        // All formats begin like this, so that one that is too new is not taken for a damaged one.
        if crc32c::crc32c(&header[..10]) != word(&header, 10) {
            return Err(self.damaged("the checksum of its format is wrong"));
        }
        let format = u16::from_le_bytes([header[8], header[9]]);
        if format != FORMAT {
            return Err(WalError::Format {
                path: self.path.clone(),
                found: format,
                known: FORMAT,
            });
        }
        let stamp = self.take(word(&header, 14) as usize)?;
        if stamp_sum(word(&header, 14).to_le_bytes(), &stamp) != word(&header, 18) {
            return Err(self.damaged("the checksum of its stamp is wrong"));
        }
        self.stamp = stamp;
        Ok(())
    }

    fn read_next(&mut self) -> Result<Option<Vec<u8>>, WalError> {
        let header = self.take(CHUNK_HEADER)?;
        if word(&header, 0) == END_MARK {
            self.at -= CHUNK_HEADER as u64;
            return self.check_end().map(|()| None);
        }
        let chunk = self.take(word(&header, 0) as usize)?;
        if chunk_sum(self.seen.chunks, &chunk) != word(&header, 4) {
            return Err(self.damaged("the checksum of a chunk is wrong"));
        }
        self.seen.add(&chunk);
        Ok(Some(chunk))
    }

    fn check_end(&mut self) -> Result<(), WalError> {
        if self.take(END)? != self.seen.encode() {
            return Err(self.damaged("it does not end where it says"));
        }
        match self.at == self.length {
            true => Ok(()),
            false => Err(self.damaged("something follows its end")),
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, WalError> {
        // Before memory is allocated for what a damaged length says.
        if count as u64 > self.length - self.at {
            return Err(self.damaged("it is cut off"));
        }
        let mut bytes = vec![0; count];
        if read_full(&self.file, &self.path, self.at, &mut bytes)? < count {
            return Err(self.damaged("it became shorter while it was read"));
        }
        self.at += count as u64;
        Ok(bytes)
    }

    fn damaged(&self, text: &str) -> WalError {
        WalError::corrupt(&self.path, self.at, text)
    }
}

impl<S: Storage> Iterator for SnapshotReader<S> {
    type Item = Result<Vec<u8>, WalError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = self.read_next();
        self.done = !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
