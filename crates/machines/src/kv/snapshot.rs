//! The picture of the whole state: the same bytes for the same state, whatever led to it.
//!
//! ```text
//! version of the format: u8 | modifications: u64 | per key, in the order of positions:
//!     key length: u32 | key | value length: u32 | value | version: u64 | deadline: u64, zero for none
//! ```
//! What has expired is left out, so that the picture does not show how far its removal has come.

use super::store::{self, Key, Segment, Store};
use ionian_kernel::machine::{Frozen, RestoreError};
use std::sync::Arc;
use std::vec;

const FORMAT: u8 = 1;
/// How much is written at once: enough that the work of a piece outweighs that of asking for it, and a
/// fraction of a millisecond.
const PIECE: usize = 256 << 10;

/// The state at one moment. It shares each segment with the store until it has written it.
pub(super) struct Picture {
    now: u64,
    /// What comes before the segments, until it is written.
    head: Vec<u8>,
    /// The segments that are not completely written.
    segments: vec::IntoIter<Arc<Segment>>,
    /// Of the first of them, once it is begun: where the entries are that are not completely written.
    entries: Option<vec::IntoIter<usize>>,
    /// How much of the value of the first of these is written; all before it is, too, if it is anything.
    written: usize,
}

impl Picture {
    pub(super) fn new(store: &Store, now: u64) -> Picture {
        let head = [&[FORMAT][..], &store.modifications().to_le_bytes()].concat();
        Picture { now, head, segments: store.share().into_iter(), entries: None, written: 0 }
    }
}

impl Frozen for Picture {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.append(&mut self.head);
        while out.len() - start < PIECE
            && let Some(segment) = self.segments.as_slice().first()
        {
            let entries = self.entries.get_or_insert_with(|| store::order(segment, self.now).into_iter());
            let Some(entry) = entries.as_slice().first().and_then(|index| segment.get_bucket(*index)) else {
                // From now on the store need not copy the segment any more.
                self.segments.next();
                self.entries = None;
                continue;
            };
            let (key, value) = (entry.key(), entry.value());
            if self.written == 0 {
                out.extend_from_slice(&(key.len() as u32).to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            }
            // A long value is parted. Some of it always follows its length, which must not come twice.
            let room = PIECE.saturating_sub(out.len() - start).max(1);
            let end = value.len().min(self.written + room);
            out.extend_from_slice(&value[self.written..end]);
            self.written = end;
            if end == value.len() {
                out.extend_from_slice(&entry.version().to_le_bytes());
                out.extend_from_slice(&entry.deadline().unwrap_or(0).to_le_bytes());
                entries.next();
                self.written = 0;
            }
        }
        out.len() > start
    }
}

pub(super) fn read(snapshot: &[u8]) -> Result<Store, RestoreError> {
    parse(snapshot).map_err(|what| RestoreError(what.to_owned()))
}

const CUT: &str = "it ends too early";

fn parse(mut input: &[u8]) -> Result<Store, &'static str> {
    if take::<1>(&mut input)? != [FORMAT] {
        return Err("its format is unknown");
    }
    let mut store = Store::default();
    store.set_modifications(u64::from_le_bytes(take(&mut input)?));
    let mut last: Option<(u64, &[u8])> = None;
    while !input.is_empty() {
        let (key, value) = (take_bytes(&mut input)?, take_bytes(&mut input)?);
        let version = u64::from_le_bytes(take(&mut input)?);
        let deadline = u64::from_le_bytes(take(&mut input)?);
        if version == 0 || version > i64::MAX as u64 || deadline > i64::MAX as u64 {
            return Err("a version or a deadline is out of range");
        }
        let entry = store::Entry::new(Key::new(key), value, version, (deadline > 0).then_some(deadline));
        // In this order no key comes twice, which `insert` relies on.
        let position = entry.order().0;
        if last.is_some_and(|last| last >= (position, key)) {
            return Err("its keys are not in order");
        }
        last = Some((position, key));
        store.insert(entry);
    }
    Ok(store)
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, rest) = input.split_first_chunk().ok_or(CUT)?;
    *input = rest;
    Ok(*head)
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let len = u32::from_le_bytes(take(input)?);
    let (head, rest) = input.split_at_checked(len as usize).ok_or(CUT)?;
    *input = rest;
    Ok(head)
}
