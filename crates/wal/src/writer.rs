//! The end of the log: the one segment that is written to. The writing thread owns it; it is handed
//! to the sync thread and back, so that no lock is needed.

use crate::error::{WalError, io_error};
use crate::extent::ExtentFile;
use crate::record;
use crate::recovery::Tail;
use crate::segment::{
    HEADER_BLOCK, Header, SECTOR, Segment, Spare, file_name, make_spare, next_sector, promote,
};
use crate::storage::{Directory, Storage, StorageFile, write_all};
use std::path::PathBuf;
use std::sync::Arc;

/// The segment that is written to.
pub(crate) struct Writer<S: Storage> {
    directory: Directory<S>,
    extent: Arc<ExtentFile<S>>,
    file: S::File,
    header: Header,
    path: PathBuf,
    /// Where the next group goes: the beginning of a sector.
    at: u64,
}

/// Which file becomes the next segment.
#[derive(Debug)]
pub(crate) enum Source {
    /// One that is ready.
    Spare(Spare),
    /// One that has to be made first.
    New { name: String, bytes: u64 },
}

impl<S: Storage> Writer<S> {
    pub(crate) fn new(directory: Directory<S>, extent: Arc<ExtentFile<S>>, end: Tail<S>) -> Self {
        let Tail { file, header, at } = end;
        let path = directory.path.join(file_name(header.sequence));
        Writer {
            directory,
            extent,
            file,
            header,
            path,
            at,
        }
    }

    /// A writer at the beginning of a segment that it makes.
    pub(crate) fn start(
        directory: &Directory<S>,
        extent: &Arc<ExtentFile<S>>,
        source: Source,
        sequence: u64,
        first_lsn: u64,
    ) -> Result<Self, WalError> {
        let spare = match source {
            Source::Spare(spare) => spare,
            Source::New { name, bytes } => make_spare(directory, &name, bytes)?,
        };
        let (file, header) = promote(directory, &spare, sequence, first_lsn)?;
        extent.note(|extent| extent.last = sequence)?;
        extent.sync()?;
        Ok(Self::new(
            directory.clone(),
            extent.clone(),
            Tail {
                file,
                header,
                at: HEADER_BLOCK,
            },
        ))
    }

    /// How large a file must be to take a group of `length` bytes.
    pub(crate) fn bytes_for(length: usize) -> u64 {
        HEADER_BLOCK + next_sector(length as u64)
    }

    pub(crate) fn fits(&self, length: usize) -> bool {
        self.at + next_sector(length as u64) <= self.header.bytes
    }

    /// How many bytes still fit into the segment.
    pub(crate) fn left(&self) -> u64 {
        self.header.bytes - self.at
    }

    /// Whether it is time to get the next segment ready.
    pub(crate) fn is_half_full(&self) -> bool {
        self.at > self.header.bytes / 2
    }

    pub(crate) fn segment(&self) -> Segment {
        let Header {
            sequence,
            first_lsn,
            bytes,
            ..
        } = self.header;
        Segment {
            sequence,
            first_lsn,
            bytes,
        }
    }

    /// Goes on to a new segment that begins with record `first_lsn`; returns the old one. All of
    /// that is on disk: the next group is only begun when the one before it is.
    fn roll(&mut self, source: Source, first_lsn: u64) -> Result<Segment, WalError> {
        let closed = self.segment();
        *self = Self::start(
            &self.directory,
            &self.extent,
            source,
            self.header.sequence + 1,
            first_lsn,
        )?;
        Ok(closed)
    }

    /// Writes a group that ends with record `last`; on return it is on disk.
    fn write(&mut self, group: &mut Vec<u8>, last: u64) -> Result<(), WalError> {
        record::seal(group, self.header.seed());
        let end = self.at + next_sector(group.len() as u64);
        assert!(
            end <= self.header.bytes,
            "the group does not fit into the segment"
        );
        // Old records behind the group must not look like the beginning of a torn one.
        let zeros = if self.header.recycled && end < self.header.bytes {
            SECTOR
        } else {
            0
        };
        group.resize((end + zeros - self.at) as usize, 0);
        write_all(&mut self.file, &self.path, self.at, group)?;
        // A failed sync is never tried again: the system may have dropped what it could not write.
        self.file
            .sync_data()
            .map_err(io_error("sync", &self.path))?;
        self.at = end;
        self.extent.note(|extent| extent.durable = last)
    }
}

/// A group on its way to the disk.
pub(crate) struct Job<S: Storage> {
    pub(crate) writer: Writer<S>,
    pub(crate) group: Vec<u8>,
    /// The first and the last record of the group.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Where the group does not fit any more.
    pub(crate) next_segment: Option<Source>,
}

/// What came of it.
pub(crate) struct Outcome<S: Storage> {
    pub(crate) writer: Writer<S>,
    /// Emptied, to be used again.
    pub(crate) group: Vec<u8>,
    pub(crate) last: u64,
    /// The segment that was full, if one was, or the error.
    pub(crate) result: Result<Option<Segment>, WalError>,
}

impl<S: Storage> Job<S> {
    pub(crate) fn run(self) -> Outcome<S> {
        let Job {
            mut writer,
            mut group,
            first,
            last,
            next_segment,
        } = self;
        let rolled = next_segment
            .map(|source| writer.roll(source, first))
            .transpose();
        let result = rolled.and_then(|closed| writer.write(&mut group, last).map(|()| closed));
        group.clear();
        Outcome {
            writer,
            group,
            last,
            result,
        }
    }
}
