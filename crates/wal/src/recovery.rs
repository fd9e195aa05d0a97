//! What an earlier life of the log has left: checked, repaired at its end, and read back.
//!
//! Reading goes from the first segment on as long as lsns follow each other. Where it stops there
//! are two cases. If something that was written only after the missing record was durable can be
//! read (a later segment, or a record of a later group), the disk has lost what it had: the log is
//! refused. If nothing of the kind can, a crash has interrupted the last write: the rest is cut
//! off.
//!
//! Damage to the very last group looks exactly like an interrupted write, and so does a log without
//! its newest segment. What the file `extent` says tells them apart.

use crate::error::{WalError, io_error};
use crate::extent::{self, Extent};
use crate::record::{self, Found, RECORD_HEADER};
use crate::segment::{
    HEADER_BLOCK, Header, Segment, file_name, next_sector, parse_name, write_zeros,
};
use crate::storage::{Directory, Disk, Storage, StorageFile, read_full, write_all};
use std::collections::VecDeque;
use std::path::PathBuf;

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub lsn: u64,
    /// As appended.
    pub kind: u8,
    /// As appended.
    pub tag: u16,
    /// As appended.
    pub record: Vec<u8>,
}

/// The end of a write that was interrupted. As far as anything here can tell, none of it was
/// reported durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub path: PathBuf,
    /// Where the last whole record ends.
    pub offset: u64,
    /// How many bytes behind it were overwritten with zeros; in a file that was used before, old
    /// records are counted too.
    pub bytes: u64,
}

/// All records that an earlier life of the log has left, oldest first.
///
/// It reads segment by segment, so it must be used up before [`Wal::truncate_below`] is called.
///
/// [`Wal::truncate_below`]: crate::Wal::truncate_below
#[derive(Debug)]
pub struct Recovery<S: Storage = Disk> {
    directory: Directory<S>,
    segments: VecDeque<Segment>,
    current: Option<Reading>,
    existed: bool,
    first: u64,
    /// The lsn that the next entry has.
    next: u64,
    /// The lsn behind the last entry.
    end: u64,
    cut: Option<Cut>,
}

#[derive(Debug)]
struct Reading {
    content: Vec<u8>,
    seed: u32,
    at: usize,
}

impl<S: Storage> Recovery<S> {
    /// Whether there was an earlier life, be it without a record.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// The lsn of the oldest record that is left; one more than [`last_lsn`](Self::last_lsn) if
    /// none is. Everything before it was truncated.
    pub fn first_lsn(&self) -> u64 {
        self.first
    }

    /// The lsn of the newest record.
    pub fn last_lsn(&self) -> u64 {
        self.end - 1
    }

    /// Whose log it is.
    pub fn stamp(&self) -> &[u8] {
        &self.directory.stamp
    }

    /// What was cut off.
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    fn read_next(&mut self) -> Result<Option<Entry>, WalError> {
        loop {
            if self.next == self.end {
                return Ok(None);
            }
            if let Some(Reading { content, seed, at }) = &mut self.current
                && let Some(found) = step(content, *seed, at, self.next)
            {
                self.next += 1;
                let Found {
                    lsn,
                    kind,
                    tag,
                    payload,
                    ..
                } = found;
                return Ok(Some(Entry {
                    lsn,
                    kind,
                    tag,
                    record: content[payload].to_vec(),
                }));
            }
            let Some(segment) = self.segments.pop_front() else {
                let text = format!(
                    "record {} could be read a moment ago and cannot any more",
                    self.next
                );
                return Err(WalError::corrupt(&self.directory.path, 0, text));
            };
            let (header, content) = load(&self.directory, segment.sequence)?.contents();
            self.current = Some(Reading {
                content,
                seed: header.seed(),
                at: HEADER_BLOCK as usize,
            });
        }
    }
}

impl<S: Storage> Iterator for Recovery<S> {
    type Item = Result<Entry, WalError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        let result = self.read_next();
        if result.is_err() {
            self.next = self.end;
        }
        result.transpose()
    }
}

/// Takes the record `lsn` at `at`, or, if a group ends there, at the sector behind.
fn step(content: &[u8], seed: u32, at: &mut usize, lsn: u64) -> Option<Found> {
    let places = [*at, next_sector(*at as u64) as usize];
    let found = places
        .into_iter()
        .find_map(|at| record::find(content, at, seed).filter(|found| found.lsn == lsn))?;
    *at = found.payload.end;
    Some(found)
}

/// A segment in memory.
struct Loaded<F> {
    path: PathBuf,
    file: F,
    header: Header,
    content: Vec<u8>,
}

impl<F> Loaded<F> {
    fn contents(self) -> (Header, Vec<u8>) {
        (self.header, self.content)
    }
}

fn load<S: Storage>(directory: &Directory<S>, sequence: u64) -> Result<Loaded<S::File>, WalError> {
    let name = file_name(sequence);
    let path = directory.path.join(&name);
    let file = directory.open(&name)?;
    let length = file.len().map_err(io_error("find the length of", &path))?;
    let mut content = vec![0; length as usize];
    let read = read_full(&file, &path, 0, &mut content)?;
    content.truncate(read);
    let header = Header::decode(&content, &path, sequence, &directory.stamp)?;
    let (found, bytes) = (content.len() as u64, header.bytes.max(HEADER_BLOCK));
    if found < bytes {
        return Err(WalError::CutOff { path, found, bytes });
    }
    content.truncate(bytes as usize);
    Ok(Loaded {
        path,
        file,
        header,
        content,
    })
}

/// Where the records of a segment end.
struct End {
    at: usize,
    /// Where the last group begins.
    group_at: usize,
    next_lsn: u64,
}

fn walk(header: &Header, content: &[u8]) -> End {
    let start = HEADER_BLOCK as usize;
    let mut end = End {
        at: start,
        group_at: start,
        next_lsn: header.first_lsn,
    };
    while let Some(found) = step(content, header.seed(), &mut end.at, end.next_lsn) {
        end.next_lsn += 1;
        if found.since == 0 {
            end.group_at = found.payload.start - RECORD_HEADER;
        }
    }
    end
}

/// A log that was opened.
pub(crate) struct Opened<S: Storage> {
    pub(crate) end: Tail<S>,
    pub(crate) closed: VecDeque<Segment>,
    pub(crate) recovery: Recovery<S>,
    /// What is there, all of it synced.
    pub(crate) extent: Extent,
}

/// Where the next group goes.
pub(crate) struct Tail<S: Storage> {
    pub(crate) file: S::File,
    pub(crate) header: Header,
    /// The beginning of a sector.
    pub(crate) at: u64,
}

/// Checks and repairs what is in the directory; `None` if there is no log.
pub(crate) fn open<S: Storage>(directory: &Directory<S>) -> Result<Option<Opened<S>>, WalError> {
    let names = directory.list()?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| parse_name(name)).collect();
    sequences.sort_unstable();
    let extent = extent::read(directory, &names, &sequences).or_else(|error| {
        // Whose log it is, is said best by the log.
        sequences
            .first()
            .map_or(Ok(()), |first| load(directory, *first).map(drop))?;
        Err(error)
    })?;
    // A process may have died between a rename and its sync: then the name is there now, but a
    // power failure could still take it.
    directory.sync()?;
    let mut segments = VecDeque::new();
    let mut before: Option<(PathBuf, End)> = None;
    for &sequence in &sequences {
        let loaded = load(directory, sequence)?;
        if let Some((path, end)) = &before {
            let previous = sequence - 1;
            if segments
                .back()
                .is_some_and(|segment: &Segment| segment.sequence != previous)
            {
                let path = directory.path.join(file_name(previous));
                return Err(WalError::Missing {
                    path,
                    behind: loaded.path,
                });
            }
            follows(path, end, &loaded.path, &loaded.header)?;
        }
        let Header {
            first_lsn, bytes, ..
        } = loaded.header;
        segments.push_back(Segment {
            sequence,
            first_lsn,
            bytes,
        });
        let end = walk(&loaded.header, &loaded.content);
        if sequences.last() == Some(&sequence) {
            return repair(directory, segments, loaded, end, extent).map(Some);
        }
        before = Some((loaded.path, end));
    }
    Ok(None)
}

/// Checks that a segment begins where the one before it ends. It was only made when all of that was
/// on disk.
fn follows(
    before: &std::path::Path,
    end: &End,
    path: &std::path::Path,
    header: &Header,
) -> Result<(), WalError> {
    if end.next_lsn < header.first_lsn {
        let (lost, first) = (end.next_lsn, header.first_lsn);
        let text = format!(
            "record {lost} cannot be read, though {} begins with record {first}",
            path.display()
        );
        return Err(WalError::corrupt(before, end.at as u64, text));
    }
    if end.next_lsn > header.first_lsn {
        let text = format!(
            "it begins with record {}, which {} has too",
            header.first_lsn,
            before.display()
        );
        return Err(WalError::corrupt(path, 0, text));
    }
    Ok(())
}

/// Makes the last segment one that can be written to.
fn repair<S: Storage>(
    directory: &Directory<S>,
    segments: VecDeque<Segment>,
    mut last: Loaded<S::File>,
    end: End,
    extent: Extent,
) -> Result<Opened<S>, WalError> {
    let cut = find_cut(&last, &end)?;
    let found = end.next_lsn - 1;
    if extent.durable > found {
        let (path, durable, extent) =
            (last.path, extent.durable, directory.path.join(extent::NAME));
        return Err(WalError::Short {
            path,
            offset: end.at as u64,
            found,
            durable,
            extent,
        });
    }
    let (path, bytes) = (&last.path, last.header.bytes);
    if cut.is_some() {
        write_zeros(&mut last.file, path, end.at as u64, bytes)?;
    }
    // The last group may have been written by a process that died before the sync; and if its sync
    // failed, the system holds the pages for clean, and another sync would do nothing. Written
    // again they are dirty again. The bytes are the same, so a crash in this write does no harm.
    write_all(
        &mut last.file,
        path,
        end.group_at as u64,
        &last.content[end.group_at..end.at],
    )?;
    last.file.sync_all().map_err(io_error("sync", path))?;
    let first = segments[0].first_lsn;
    let recovery = Recovery {
        directory: directory.clone(),
        segments: segments.clone(),
        current: None,
        existed: true,
        first,
        next: first,
        end: end.next_lsn,
        cut,
    };
    let extent = Extent {
        first: segments[0].sequence,
        last: last.header.sequence,
        durable: found,
    };
    let mut closed = segments;
    closed.pop_back();
    let end = Tail {
        file: last.file,
        header: last.header,
        at: next_sector(end.at as u64),
    };
    Ok(Opened {
        end,
        closed,
        recovery,
        extent,
    })
}

/// Looks at what is behind the last record that can be read.
fn find_cut<F>(last: &Loaded<F>, end: &End) -> Result<Option<Cut>, WalError> {
    let Loaded {
        path,
        header,
        content,
        ..
    } = last;
    let rest = &content[end.at..];
    let lsns = end.next_lsn..end.next_lsn + 2 + (rest.len() / RECORD_HEADER) as u64;
    let mut same_group = false;
    let later = record::search(content, end.at, header.seed(), lsns, |found| {
        same_group |= found.group_start() <= end.next_lsn;
        found.group_start() > end.next_lsn
    });
    if let Some((at, found)) = later {
        let text = format!(
            "record {} cannot be read, though record {} at byte {at}, written when that was on disk, can",
            end.next_lsn, found.lsn
        );
        return Err(WalError::corrupt(path, end.at as u64, text));
    }
    // In a file that was used before, only the place where the next record would be is known to be
    // zero.
    let next = next_sector(end.at as u64) as usize - end.at + RECORD_HEADER;
    let watched = if header.recycled {
        &rest[..rest.len().min(next)]
    } else {
        rest
    };
    let torn = same_group || watched.iter().any(|&byte| byte != 0);
    let bytes = rest
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last as u64 + 1);
    Ok(torn.then(|| Cut {
        path: path.clone(),
        offset: end.at as u64,
        bytes,
    }))
}

/// The recovery of a log that did not exist.
pub(crate) fn nothing<S: Storage>(directory: &Directory<S>) -> Recovery<S> {
    Recovery {
        directory: directory.clone(),
        segments: VecDeque::new(),
        current: None,
        existed: false,
        first: 1,
        next: 1,
        end: 1,
        cut: None,
    }
}
