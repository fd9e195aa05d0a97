//! A segment: a file of fixed size, filled with zeros before its first use.
//!
//! ```text
//! header   magic "IONIANWL", u16 format, u16 flags, u32 length of the stamp, u64 sequence,
//!          u64 first lsn, u64 salt, u64 bytes of the file, u32 crc32c of all this and the stamp, stamp
//! groups   from byte 4096, each on a sector of its own: records, then zeros up to the next sector
//! ```
//!
//! A file gets its segment's name only when its header is on disk, and the first group goes into it
//! only when the name is. So a segment with a broken header is damaged, never unfinished.
//!
//! A group begins on a sector of its own, so that no sector with durable records is ever written
//! again.
//!
//! A file that was a segment before is used again without zeroing it. Its salt is new, so none of
//! the old records is valid; and every group is followed by a sector of zeros, so that the end of
//! the log does not look like a torn record.

use crate::error::{WalError, io_error};
use crate::storage::{Directory, Storage, StorageFile, write_all};
use std::path::Path;

/// What a disk writes wholly or not at all.
pub(crate) const SECTOR: u64 = 512;
/// Where the first group begins.
pub(crate) const HEADER_BLOCK: u64 = 4096;
/// The longest stamp.
pub(crate) const MAX_STAMP: usize = HEADER_BLOCK as usize - STAMP_AT;

const MAGIC: &[u8; 8] = b"IONIANWL";
const FORMAT: u16 = 1;
const FLAG_RECYCLED: u16 = 1;
const SUM_AT: usize = 48;
const STAMP_AT: usize = 52;

/// What a segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Segments are numbered without gaps.
    pub(crate) sequence: u64,
    /// The lsn of its first record, if it ever gets one.
    pub(crate) first_lsn: u64,
    /// Different in every life of the file.
    pub(crate) salt: u64,
    /// The size of the file.
    pub(crate) bytes: u64,
    /// Whether the file was a segment before, and so may hold old records.
    pub(crate) recycled: bool,
}

impl Header {
    /// Where the checksums of its records begin.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.salt.to_le_bytes())
    }

    fn encode(&self, stamp: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity((HEADER_BLOCK + SECTOR) as usize);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&FORMAT.to_le_bytes());
        block.extend_from_slice(&(if self.recycled { FLAG_RECYCLED } else { 0 }).to_le_bytes());
        block.extend_from_slice(&(stamp.len() as u32).to_le_bytes());
        for number in [self.sequence, self.first_lsn, self.salt, self.bytes] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&block), stamp);
        block.extend_from_slice(&sum.to_le_bytes());
        block.extend_from_slice(stamp);
        // The sector behind the header marks the end of the log until a group overwrites it.
        block.resize((HEADER_BLOCK + SECTOR) as usize, 0);
        block
    }

    /// Reads the header of the segment at `path`, which begins with `block`, and checks that it is
    /// the one that `sequence` and `stamp` say.
    pub(crate) fn decode(
        block: &[u8],
        path: &Path,
        sequence: u64,
        stamp: &[u8],
    ) -> Result<Self, WalError> {
        if block.len() >= MAGIC.len() && &block[..MAGIC.len()] != MAGIC {
            return Err(WalError::NotOurs {
                path: path.to_owned(),
                what: "log segment",
            });
        }
        let damaged = |text: &str| WalError::corrupt(path, 0, text);
        if block.len() < STAMP_AT {
            return Err(damaged("the header of the segment is cut off"));
        }
        let short = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let long =
            |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let word =
            |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        // The format comes before the checksum: another format may keep that elsewhere.
        if short(8) != FORMAT {
            return Err(WalError::Format {
                path: path.to_owned(),
                found: short(8),
                known: FORMAT,
            });
        }
        let found = STAMP_AT
            .checked_add(word(12) as usize)
            .and_then(|end| block.get(STAMP_AT..end));
        let found = found.ok_or_else(|| damaged("the header of the segment is cut off"))?;
        if crc32c::crc32c_append(crc32c::crc32c(&block[..SUM_AT]), found) != word(SUM_AT) {
            return Err(damaged("the checksum of the segment's header is wrong"));
        }
        if found != stamp {
            return Err(WalError::foreign(path, found, stamp));
        }
        let recycled = short(10) & FLAG_RECYCLED != 0;
        let header = Header {
            sequence: long(16),
            first_lsn: long(24),
            salt: long(32),
            bytes: long(40),
            recycled,
        };
        if header.sequence != sequence {
            return Err(damaged(&format!(
                "its header says that it is {}",
                file_name(header.sequence)
            )));
        }
        Ok(header)
    }
}

/// The stamp in the header of a segment, unchecked.
pub(crate) fn stamp_of(block: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(block.get(12..16)?.try_into().ok()?) as usize;
    block.get(STAMP_AT..STAMP_AT.checked_add(length)?)
}

/// What the log remembers of a segment that it no longer writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    pub(crate) first_lsn: u64,
    pub(crate) bytes: u64,
}

/// A file that can become a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) recycled: bool,
}

/// The name of a segment; sorted, names are in order.
pub(crate) fn file_name(sequence: u64) -> String {
    format!("{sequence:016x}.wal")
}

/// The number of the segment of that name, if it is one.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let sequence = u64::from_str_radix(name.strip_suffix(".wal")?, 16).ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// The name of a spare file.
pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number}.wal")
}

/// The next beginning of a sector at or behind `at`.
pub(crate) fn next_sector(at: u64) -> u64 {
    at.next_multiple_of(SECTOR)
}

/// Overwrites a stretch of a file with zeros.
pub(crate) fn write_zeros(
    file: &mut impl StorageFile,
    path: &Path,
    mut at: u64,
    end: u64,
) -> Result<(), WalError> {
    let zeros = vec![0; end.saturating_sub(at).min(1 << 20) as usize];
    while at < end {
        let count = (end - at).min(zeros.len() as u64);
        write_all(file, path, at, &zeros[..count as usize])?;
        at += count;
    }
    Ok(())
}

/// Makes a spare file, unless the disk has no room for one.
pub(crate) fn make_spare_if_room<S: Storage>(
    directory: &Directory<S>,
    name: &str,
    bytes: u64,
) -> Result<Option<Spare>, WalError> {
    match make_spare(directory, name, bytes) {
        Err(error) if error.is_full() => {
            if directory.list()?.iter().any(|it| it == name) {
                directory.remove(name)?;
            }
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// Makes a spare file. Zeros are really written, because a file whose blocks are only reserved
/// still costs the file system a journal entry at every sync that first writes to them.
pub(crate) fn make_spare<S: Storage>(
    directory: &Directory<S>,
    name: &str,
    bytes: u64,
) -> Result<Spare, WalError> {
    let mut file = directory.create(name)?;
    let path = directory.path.join(name);
    write_zeros(&mut file, &path, 0, bytes)?;
    file.sync_all().map_err(io_error("sync", &path))?;
    Ok(Spare {
        name: name.to_owned(),
        bytes,
        recycled: false,
    })
}

/// Makes a spare file a segment; on return it is one even after a crash.
pub(crate) fn promote<S: Storage>(
    directory: &Directory<S>,
    spare: &Spare,
    sequence: u64,
    first_lsn: u64,
) -> Result<(S::File, Header), WalError> {
    let (bytes, recycled) = (spare.bytes, spare.recycled);
    let header = Header {
        sequence,
        first_lsn,
        salt: directory.storage.nonce(),
        bytes,
        recycled,
    };
    let path = directory.path.join(&spare.name);
    let mut file = directory.open(&spare.name)?;
    write_all(&mut file, &path, 0, &header.encode(&directory.stamp))?;
    file.sync_all().map_err(io_error("sync", &path))?;
    directory.rename(&spare.name, &file_name(sequence))?;
    Ok((file, header))
}

/// Drops segments, oldest first, so that a crash in between leaves no gap. The first `keep` of
/// those that have `bytes` bytes become spare files with the given names.
pub(crate) fn retire<S: Storage>(
    directory: &Directory<S>,
    segments: &[Segment],
    bytes: u64,
    names: &[String],
) -> Result<Vec<Spare>, WalError> {
    let mut names = names.iter();
    let mut spares = Vec::new();
    for segment in segments {
        let old = file_name(segment.sequence);
        let name = if segment.bytes == bytes {
            names.next()
        } else {
            None
        };
        match name {
            Some(name) => {
                directory.rename(&old, name)?;
                spares.push(Spare {
                    name: name.clone(),
                    bytes,
                    recycled: true,
                });
            }
            None => directory.remove(&old)?,
        }
    }
    Ok(spares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_every_flipped_bit_of_it_is_refused() {
        let header = Header {
            sequence: 3,
            first_lsn: 17,
            salt: 0xfeed,
            bytes: 8192,
            recycled: true,
        };
        let block = header.encode(b"node 1");
        let path = Path::new("0000000000000003.wal");
        assert_eq!(
            Header::decode(&block, path, 3, b"node 1").expect("is whole"),
            header
        );
        for bit in 0..(STAMP_AT + 6) * 8 {
            let mut broken = block.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Header::decode(&broken, path, 3, b"node 1").is_err(),
                "bit {bit}"
            );
        }
        for length in 0..STAMP_AT + 6 {
            assert!(
                Header::decode(&block[..length], path, 3, b"node 1").is_err(),
                "cut to {length}"
            );
        }
    }

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(parse_name(&file_name(0xabc)), Some(0xabc));
        for name in [
            "abc.wal",
            "0000000000000ABC.wal",
            "spare-1.wal",
            "0000000000000abc.wal.bak",
            "vital",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
