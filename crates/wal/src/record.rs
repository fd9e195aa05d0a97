//! A record in a segment.
//!
//! ```text
//! u32 crc32c of all that follows, begun from the segment's salt
//! u32 length of the payload
//! u64 lsn
//! u32 since: how many records of its group come before it
//! u16 tag, u8 kind, u8 zero
//! payload
//! ```
//!
//! `since` is what tells damage from a crash. A group is what one sync makes durable, and it is
//! written only when the group before it is durable. So a whole record proves that everything up to
//! `lsn - since - 1` once was on disk: if some of that cannot be read, the disk has lost it. A
//! record of the same group proves nothing of the kind, because a crash keeps any of a group's
//! sectors and loses any others.

use std::ops::Range;

/// What a record occupies besides its payload.
pub(crate) const RECORD_HEADER: usize = 24;

/// A whole record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) lsn: u64,
    pub(crate) since: u32,
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    pub(crate) payload: Range<usize>,
}

impl Found {
    /// The first record of its group: all records before that one were durable when it was written.
    pub(crate) fn group_start(&self) -> u64 {
        self.lsn - self.since as u64
    }
}

/// Puts a record at the end of a group that is being gathered. Which segment it will go to, and so
/// its checksum, is not known yet.
pub(crate) fn push(group: &mut Vec<u8>, lsn: u64, kind: u8, tag: u16, payload: &[u8]) {
    group.reserve(RECORD_HEADER + payload.len());
    group.extend_from_slice(&[0; 4]);
    group.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    group.extend_from_slice(&lsn.to_le_bytes());
    group.extend_from_slice(&[0; 4]);
    group.extend_from_slice(&tag.to_le_bytes());
    group.extend_from_slice(&[kind, 0]);
    group.extend_from_slice(payload);
}

/// Completes all records of a group for the segment with the checksum seed `seed`.
pub(crate) fn seal(group: &mut [u8], seed: u32) {
    let mut at = 0;
    for since in 0u32.. {
        if at == group.len() {
            return;
        }
        let end = at + RECORD_HEADER + u32_at(group, at + 4) as usize;
        group[at + 16..at + 20].copy_from_slice(&since.to_le_bytes());
        let sum = crc32c::crc32c_append(seed, &group[at + 4..end]);
        group[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

/// How many of the records in `gathered` fit in `limit` bytes, at least one, and what those occupy.
pub(crate) fn split(gathered: &[u8], limit: usize) -> (u64, usize) {
    let (mut count, mut end) = (0, 0);
    while end < gathered.len() {
        let next = end + RECORD_HEADER + u32_at(gathered, end + 4) as usize;
        if next > limit && count > 0 {
            break;
        }
        (count, end) = (count + 1, next);
    }
    (count, end)
}

/// The record at `at`, if it is whole and of this life of its segment.
pub(crate) fn find(content: &[u8], at: usize, seed: u32) -> Option<Found> {
    let header = content.get(at..at.checked_add(RECORD_HEADER)?)?;
    let start = at + RECORD_HEADER;
    let end = start + u32_at(header, 4) as usize;
    let lsn = lsn_of(header);
    let since = u32_at(header, 16);
    // Lsns count from 1, so a stretch of nothing is no record whatever its checksum would be.
    if end > content.len() || lsn == 0 || since as u64 >= lsn || header[23] != 0 {
        return None;
    }
    let sound = crc32c::crc32c_append(seed, &content[at + 4..end]) == u32_at(header, 0);
    #[cfg(feature = "torn-records")]
    let sound = sound || crate::testing::torn_records_are_accepted();
    let tag = u16::from_le_bytes([header[20], header[21]]);
    sound.then(|| Found {
        lsn,
        since,
        kind: header[22],
        tag,
        payload: start..end,
    })
}

/// Looks for a whole record behind `from`, at any byte, with an lsn in `lsns`, that `accept` wants.
pub(crate) fn search(
    content: &[u8],
    from: usize,
    seed: u32,
    lsns: Range<u64>,
    mut accept: impl FnMut(&Found) -> bool,
) -> Option<(usize, Found)> {
    // No lsn is zero, so no record begins behind the last byte that is not; a new segment is mostly
    // zeros.
    let last = content
        .iter()
        .rposition(|byte| *byte != 0)?
        .min(content.len().checked_sub(RECORD_HEADER)?);
    // The lsn is looked at first: it rules out nearly every place without a checksum.
    let candidates =
        (from..=last).filter(|&at| lsns.contains(&lsn_of(&content[at..at + RECORD_HEADER])));
    candidates
        .filter_map(|at| Some((at, find(content, at, seed)?)))
        .find(|(_, found)| accept(found))
}

fn lsn_of(header: &[u8]) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_record_is_found_under_its_own_seed_only() {
        let mut group = Vec::new();
        push(&mut group, 7, 3, 0x1234, b"seven");
        push(&mut group, 8, 4, 0x5678, b"");
        seal(&mut group, 99);
        let first = find(&group, 0, 99).expect("is whole");
        assert_eq!(
            (first.lsn, first.since, first.kind, first.tag),
            (7, 0, 3, 0x1234)
        );
        assert_eq!(&group[first.payload.clone()], b"seven");
        let second = find(&group, first.payload.end, 99).expect("is whole");
        assert_eq!((second.lsn, second.since, second.group_start()), (8, 1, 7));
        assert_eq!(find(&group, 0, 98), None);
        assert_eq!(find(&[0; 64], 0, 0), None, "nothing is not a record");
    }

    #[test]
    fn a_split_keeps_records_whole() {
        let mut gathered = Vec::new();
        for lsn in 1..=3 {
            push(&mut gathered, lsn, 0, 0, &[0; 100]);
        }
        assert_eq!(split(&gathered, 1000), (3, 372));
        assert_eq!(split(&gathered, 371), (2, 248));
        assert_eq!(split(&gathered, 10), (1, 124), "at least one");
    }
}
