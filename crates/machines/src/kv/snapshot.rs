//! The picture of the whole state: the same bytes for the same state, whatever led to it.
//!
//! ```text
//! version of the format: u8 | modifications: u64 | per key, in the order of positions:
//!     key length: u32 | key | value length: u32 | value | version: u64 | deadline: u64, zero for none
//! ```
//! What has expired is left out, so that the picture does not show how far its removal has come.

use super::store::{Entry, Key, Store};
use ionian_kernel::machine::RestoreError;

const FORMAT: u8 = 1;

pub(super) fn write(store: &Store, now: u64, out: &mut Vec<u8>) {
    out.push(FORMAT);
    out.extend_from_slice(&store.modifications().to_le_bytes());
    for entry in store.in_order(now) {
        for bytes in [entry.key(), entry.value()] {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out.extend_from_slice(&entry.version().to_le_bytes());
        out.extend_from_slice(&entry.deadline().unwrap_or(0).to_le_bytes());
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
        let entry = Entry::new(Key::new(key), value, version, (deadline > 0).then_some(deadline));
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
