//! The log as its owner sees it.

use crate::error::WalError;
use crate::extent::{self, ExtentFile, LateSync};
use crate::options::{HandOff, Options};
use crate::record::{self, RECORD_HEADER};
use crate::recovery::{self, Opened, Recovery};
use crate::segment::{
    HEADER_BLOCK, MAX_STAMP, SECTOR, Segment, Spare, make_spare_if_room, retire, spare_name,
};
use crate::storage::{Directory, Disk, Storage};
use crate::sync::Worker;
use crate::writer::{Job, Outcome, Source, Writer};
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The size of a log's first segment, unless all are smaller: it is filled with zeros while the
/// opener waits, and many a log never gets a record.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// What [`Wal::flush`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flush {
    /// Everything that was appended is on disk.
    Done,
    /// A sync runs. [`Options::on_complete`] is called when it is over, and
    /// [`Wal::poll_completed`] then does what is left to do.
    Started,
}

/// An append-only log of records in a directory. See the crate's documentation.
///
/// After an error it is unknown what is on disk. So the first error stops the log for good: every
/// later call fails with [`WalError::Poisoned`], and [`durable`](Self::durable) never moves again.
///
/// What was not flushed when the log is dropped is lost.
pub struct Wal<S: Storage = Disk> {
    directory: Directory<S>,
    /// What there is of the log, in a second place.
    extent: Arc<ExtentFile<S>>,
    late_sync: Option<LateSync>,
    options: Options,
    /// Away while the sync thread writes.
    writer: Option<Writer<S>>,
    syncer: Worker<Outcome<S>>,
    keeper: Worker<Result<Vec<Spare>, WalError>>,

    /// Records that no write has been begun for. Limited by what the owner appends between two
    /// syncs.
    gathered: Vec<u8>,
    /// A buffer that is not in use.
    idle: Vec<u8>,
    /// `durable <= begun <= written`, and `gathered` holds what is between the last two.
    durable: u64,
    begun: u64,
    written: u64,
    /// Up to where the owner wants records on disk.
    wanted: u64,

    /// Full segments, oldest first.
    closed: VecDeque<Segment>,
    /// The one that is written to.
    active: Segment,
    /// How many bytes still fit into it.
    left: u64,
    spares: Vec<Spare>,
    /// Whether the disk has no room for a spare.
    is_short: bool,
    /// Whether the keeper makes a spare.
    makes_spare: bool,
    /// Numbers the names of spare files.
    files_made: u64,
    /// Records below this are not needed.
    low: u64,
    syncs: u64,
    hands_off_all: bool,
    /// The first error.
    poison: Option<String>,
}

impl Wal<Disk> {
    /// Opens the log in the existing directory `path`, or makes one there. The directory may hold
    /// other files, but no other log, and the caller sees to it that no other process has it.
    ///
    /// The stamp says whose log it is; only one with the same stamp is opened again.
    ///
    /// # Errors
    /// When the log is damaged, is not the caller's, or the disk fails.
    pub fn open(path: &Path, options: Options, stamp: &[u8]) -> Result<(Self, Recovery), WalError> {
        Self::open_in(Disk, path, options, stamp)
    }
}

impl<S: Storage> Wal<S> {
    /// As [`open`](Wal::open), on any file system.
    ///
    /// # Errors
    /// As [`open`](Wal::open).
    ///
    /// # Panics
    /// When an option makes no sense, or the stamp has more than 4044 bytes.
    pub fn open_in(
        storage: S,
        path: &Path,
        mut options: Options,
        stamp: &[u8],
    ) -> Result<(Self, Recovery<S>), WalError> {
        assert!(
            options.segment_bytes.is_multiple_of(SECTOR),
            "a segment consists of sectors"
        );
        assert!(
            (2 * HEADER_BLOCK..=1 << 30).contains(&options.segment_bytes),
            "segments of 8 KiB to 1 GiB"
        );
        assert!(
            options.max_record_bytes <= 1 << 30,
            "records of at most 1 GiB"
        );
        assert!(stamp.len() <= MAX_STAMP, "the stamp is too long");
        let directory = Directory {
            storage,
            path: path.to_owned(),
            stamp: stamp.into(),
        };
        let opened = recovery::open(&directory)?;
        // It is unknown how far the creation of these came.
        for spare in directory
            .list()?
            .iter()
            .filter(|name| name.starts_with("spare-") && name.ends_with(".wal"))
        {
            directory.remove(spare)?;
        }
        let notify = std::mem::replace(&mut options.on_complete, Box::new(|| {}));
        let reached = opened
            .as_ref()
            .map_or(extent::EMPTY, |opened| opened.extent);
        let extent = Arc::new(ExtentFile::open(&directory, reached)?);
        let (writer, closed, recovery) = match opened {
            Some(Opened {
                end,
                closed,
                recovery,
                ..
            }) => (
                Writer::new(directory.clone(), extent.clone(), end),
                closed,
                recovery,
            ),
            None => {
                let bytes = options.segment_bytes.min(FIRST_SEGMENT_BYTES);
                let source = Source::New {
                    name: spare_name(0),
                    bytes,
                };
                let writer = Writer::start(&directory, &extent, source, 1, 1)?;
                (writer, VecDeque::new(), recovery::nothing(&directory))
            }
        };
        let written = recovery.last_lsn();
        let wal = Wal {
            late_sync: match options.hand_off {
                HandOff::Never => None,
                HandOff::From(_) => Some(LateSync::start(extent.clone())?),
            },
            directory,
            extent,
            options,
            active: writer.segment(),
            left: writer.left(),
            writer: Some(writer),
            syncer: Worker::new("syncs the log", notify),
            // No caller waits for its work: it is looked at when something else has happened.
            keeper: Worker::new("makes and drops segments", Box::new(|| {})),
            gathered: Vec::new(),
            idle: Vec::new(),
            durable: written,
            begun: written,
            written,
            wanted: written,
            closed,
            spares: Vec::new(),
            is_short: false,
            makes_spare: false,
            files_made: 1,
            low: 0,
            syncs: 0,
            hands_off_all: false,
            poison: None,
        };
        Ok((wal, recovery))
    }

    /// Makes everything durable that was appended, and with it the note beside the log of how far
    /// that is (`extent`), so that whatever is removed from it from now on is missed. For an
    /// orderly end.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    pub fn seal(&mut self) -> Result<(), WalError> {
        self.sync()?;
        self.extent.sync()
    }

    /// Appends a record and returns its lsn: the first record has 1, and each the next number. This
    /// only puts it in memory; [`flush`](Self::flush) starts its way to the disk.
    ///
    /// Never fails, so that it can be called from deep inside the owner. A record over the limit
    /// stops the log: the next call that can fail says so.
    pub fn append(&mut self, kind: u8, tag: u16, record: &[u8]) -> u64 {
        self.written += 1;
        let limit = self.options.max_record_bytes;
        if self.poison.is_none() && record.len() > limit {
            let error = WalError::TooLarge {
                bytes: record.len(),
                limit,
            };
            self.poison = Some(error.to_string());
        }
        if self.poison.is_none() {
            record::push(&mut self.gathered, self.written, kind, tag, record);
        }
        self.written
    }

    /// The lsn of the last record that was appended.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Everything up to this lsn is on disk.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// How many bytes were appended that no write has been begun for. An owner that appends faster
    /// than the disk takes it should stop reading at some point.
    pub fn gathered_bytes(&self) -> usize {
        self.gathered.len()
    }

    /// How many syncs have made records durable: one for each group.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// The size of all files of the log.
    pub fn size(&self) -> u64 {
        let segments =
            self.closed.iter().map(|segment| segment.bytes).sum::<u64>() + self.active.bytes;
        segments + self.spares.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    /// Whether the log's thread syncs groups of any size from now on: its owner does not wait for a
    /// slow disk then.
    pub fn hand_off_all(&mut self, all: bool) {
        self.hands_off_all = all;
    }

    /// Starts to make everything durable that was appended. If a sync runs already, the rest is
    /// begun by the [`poll_completed`](Self::poll_completed) that finds it done.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    pub fn flush(&mut self) -> Result<Flush, WalError> {
        self.check()?;
        self.wanted = self.written;
        let result = self.advance();
        self.noted(result)
    }

    /// Takes note of a sync that is done. Returns whether [`durable`](Self::durable) has moved.
    /// Begins the next sync if one was asked for meanwhile.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    pub fn poll_completed(&mut self) -> Result<bool, WalError> {
        self.check()?;
        let before = self.durable;
        let result = self.take_completed();
        self.noted(result)?;
        Ok(self.durable > before)
    }

    /// Makes everything durable that was appended, and waits for it.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    pub fn sync(&mut self) -> Result<(), WalError> {
        self.check()?;
        let result = self.sync_here();
        self.noted(result)
    }

    /// Says that records below `lsn` are not needed any more. Segments that hold nothing else are
    /// dropped, now or when they are full. What replaces the records must be durable already.
    ///
    /// # Errors
    /// When the disk fails, now or earlier.
    ///
    /// # Panics
    /// When `lsn` was not even appended: records that were never written cannot be superfluous.
    pub fn truncate_below(&mut self, lsn: u64) -> Result<(), WalError> {
        assert!(lsn <= self.written + 1, "record {lsn} is not written yet");
        self.check()?;
        self.low = self.low.max(lsn);
        let result = self.keep_house();
        self.noted(result)
    }

    fn check(&self) -> Result<(), WalError> {
        match &self.poison {
            Some(first) => Err(WalError::Poisoned {
                first: first.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Stops the log at the first error.
    fn noted<T>(&mut self, result: Result<T, WalError>) -> Result<T, WalError> {
        if let Err(error) = &result {
            self.poison = Some(error.to_string());
        }
        result
    }

    /// Begins groups as long as records are wanted on disk and the writer is at hand.
    fn advance(&mut self) -> Result<Flush, WalError> {
        self.take_kept()?;
        while self.begun < self.wanted {
            let Some(writer) = self.writer.take() else {
                break;
            };
            let job = self.next_job(writer);
            if self.hands_off(job.group.len()) {
                self.syncer.start(move || job.run())?;
            } else {
                self.take_in(job.run())?;
            }
        }
        Ok(if self.durable < self.wanted {
            Flush::Started
        } else {
            Flush::Done
        })
    }

    fn hands_off(&self, bytes: usize) -> bool {
        let hands_off = |least| self.hands_off_all || bytes >= least;
        matches!(self.options.hand_off, HandOff::From(least) if hands_off(least))
    }

    fn sync_here(&mut self) -> Result<(), WalError> {
        self.wanted = self.written;
        while self.durable < self.wanted {
            let outcome = match self.writer.take() {
                Some(writer) => self.next_job(writer).run(),
                None => self.syncer.wait()?,
            };
            self.take_in(outcome)?;
        }
        Ok(())
    }

    fn take_completed(&mut self) -> Result<(), WalError> {
        if let Some(outcome) = self.syncer.poll()? {
            self.take_in(outcome)?;
        }
        // Before the owner deals with what has become durable: the disk works meanwhile.
        self.advance().map(|_| ())
    }

    /// Makes a group of what was gathered: all of it, unless that would not fit into a segment.
    fn next_job(&mut self, writer: Writer<S>) -> Job<S> {
        let first = self.begun + 1;
        let limit = (self.options.segment_bytes - HEADER_BLOCK) as usize;
        if self.gathered.len() <= limit {
            self.begun = self.written;
        } else {
            let (count, end) = record::split(&self.gathered, limit);
            self.begun += count;
            self.idle = self.gathered.split_off(end);
        }
        let group = std::mem::replace(&mut self.gathered, std::mem::take(&mut self.idle));
        let next_segment = (!writer.fits(group.len())).then(|| self.next_source(group.len()));
        Job {
            writer,
            group,
            first,
            last: self.begun,
            next_segment,
        }
    }

    fn next_source(&mut self, length: usize) -> Source {
        let bytes = Writer::<S>::bytes_for(length).max(self.options.segment_bytes);
        if bytes == self.options.segment_bytes
            && let Some(spare) = self.spares.pop()
        {
            return Source::Spare(spare);
        }
        Source::New {
            name: self.new_name(),
            bytes,
        }
    }

    fn new_name(&mut self) -> String {
        self.files_made += 1;
        spare_name(self.files_made)
    }

    /// Takes back the writer from a group that is done.
    fn take_in(&mut self, outcome: Outcome<S>) -> Result<(), WalError> {
        let Outcome {
            writer,
            group,
            last,
            result,
        } = outcome;
        let closed = result?;
        self.durable = last;
        self.syncs += 1;
        (self.active, self.left) = (writer.segment(), writer.left());
        // What is left of a small first segment may be gone sooner than a large one is made.
        let due = writer.is_half_full() || self.active.bytes < self.options.segment_bytes;
        self.writer = Some(writer);
        // A rare giant must not keep its memory.
        if group.capacity() as u64 <= 2 * self.options.segment_bytes {
            self.idle = group;
        }
        self.closed.extend(closed);
        self.late_sync.as_ref().map_or(Ok(()), LateSync::wants)?;
        self.keep_house()?;
        if due { self.prepare() } else { Ok(()) }
    }

    /// Drops segments that are not needed.
    fn keep_house(&mut self) -> Result<(), WalError> {
        self.take_kept()?;
        // One job at a time: were one to fail with the next already begun, newer segments would be
        // dropped and older ones left, and the log would have a gap. This is called again at the
        // next group.
        if self.keeper.is_busy() {
            return Ok(());
        }
        // The records of a segment end where the next segment begins.
        let ends = self
            .closed
            .iter()
            .skip(1)
            .chain([&self.active])
            .map(|next| next.first_lsn);
        let count = self
            .closed
            .iter()
            .zip(ends)
            .take_while(|(_, end)| *end <= self.low)
            .count();
        if count == 0 {
            return Ok(());
        }
        let segments: Vec<Segment> = self.closed.drain(..count).collect();
        let room = self.options.spares.saturating_sub(self.spares.len());
        let names: Vec<String> = (0..room).map(|_| self.new_name()).collect();
        let first = self.closed.front().unwrap_or(&self.active).sequence;
        let (directory, extent, bytes) = (
            self.directory.clone(),
            self.extent.clone(),
            self.options.segment_bytes,
        );
        self.keep(move || {
            extent.note(|extent| extent.first = first)?;
            extent.sync()?;
            retire(&directory, &segments, bytes, &names)
        })
    }

    /// Gets a file ready before it is needed: to fill one with zeros takes many times longer than
    /// to sync a group.
    fn prepare(&mut self) -> Result<(), WalError> {
        if self.is_short || self.options.hand_off == HandOff::Never {
            return Ok(());
        }
        self.make_spare()
    }

    /// Whether the disk gets full: it has no room for a file that will be needed. The owner should
    /// write only what frees some, and now and then [`make_spare`](Self::make_spare). The log goes
    /// on to the end of the files that it has.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// How many bytes of groups still fit into the files that it has.
    pub fn left(&self) -> u64 {
        let spares = self.spares.iter();
        self.left + spares.map(|it| it.bytes - HEADER_BLOCK).sum::<u64>()
    }

    /// How many files are to be ready. Disks of one size do not get full at the same record: with a
    /// second file a log goes on until the others have noticed, too. The third is for what a node
    /// writes though clients may write no more. A small log needs none.
    fn spares_wanted(&self) -> usize {
        let is_small = self.active.bytes < self.options.segment_bytes;
        if is_small {
            1
        } else {
            3.min(self.options.spares.max(1))
        }
    }

    /// Gets one more file ready, if one is wanted.
    ///
    /// # Errors
    /// When the disk fails, but not when it has no room.
    pub fn make_spare(&mut self) -> Result<(), WalError> {
        if self.spares.len() >= self.spares_wanted() || self.keeper.is_busy() {
            return Ok(());
        }
        self.makes_spare = true;
        let (directory, name, bytes) = (
            self.directory.clone(),
            self.new_name(),
            self.options.segment_bytes,
        );
        self.keep(move || {
            let made = make_spare_if_room(&directory, &name, bytes)?;
            Ok(made.into_iter().collect())
        })
    }

    fn keep(
        &mut self,
        job: impl FnOnce() -> Result<Vec<Spare>, WalError> + Send + 'static,
    ) -> Result<(), WalError> {
        if self.options.hand_off == HandOff::Never {
            self.spares.extend(job()?);
            return Ok(());
        }
        self.keeper.start(job)
    }

    fn take_kept(&mut self) -> Result<(), WalError> {
        while let Some(spares) = self.keeper.poll()? {
            let spares = spares?;
            let found_no_room = std::mem::take(&mut self.makes_spare) && spares.is_empty();
            self.spares.extend(spares);
            self.is_short =
                (self.is_short || found_no_room) && self.spares.len() < self.spares_wanted();
        }
        Ok(())
    }
}

impl<S: Storage> fmt::Debug for Wal<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wal {
            directory,
            durable,
            begun,
            written,
            ..
        } = self;
        let mut debug = formatter.debug_struct("Wal");
        debug
            .field("path", &directory.path)
            .field("durable", durable)
            .field("begun", begun);
        debug.field("written", written).finish_non_exhaustive()
    }
}

const _: () = assert!(
    RECORD_HEADER as u64 <= SECTOR,
    "the zeros behind a group cover a header"
);
