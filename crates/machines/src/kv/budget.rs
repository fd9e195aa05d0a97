//! What the commands of one compound may do together: how much work, and by how much the state may
//! grow beyond the bytes that the commands have. Both are bounded before a command is executed, by
//! rules that follow from the command and from what clients see, so that all replicas refuse the
//! same commands. Without this a short command could keep all replicas busy for minutes, or use up
//! the memory of all machines.
//!
//! A pipeline stops where its next command has no room, and its gateway sends the others again, as
//! the next compound. Between MULTI and EXEC such a command is answered with an error and not
//! executed; the others are.

use super::command::Op;
use super::entry::Entry;
use super::glob::MAX_PATTERN;
use super::shard::Key;
use super::store::Store;
use super::stream::{After, Ask, Id, Stream};
use super::{MAX_REPLY_BYTES, MAX_VALUE_LEN};

/// The steps of one compound: elements that are looked at, and each 64 bytes that are copied. Some
/// hundredths of a second; the largest value can be copied once, with room for what is small.
pub(super) const WORK: u64 = 1 << 21;

/// The bytes by which one compound may let the state grow, besides those in its commands.
pub(super) const GROWTH: u64 = 2 * MAX_VALUE_LEN as u64;

/// KEYS looks at all keys, and is refused if there are more.
pub(super) const KEYS: usize = 100_000;

/// SCAN looks at no more keys at once; a larger COUNT means this one.
pub(super) const COUNT: usize = 1000;

/// The steps of matching after which SCAN ends its page.
pub(super) const PAGE: u64 = 1 << 17;

/// The steps of matching beyond which KEYS is refused.
pub(super) const MATCHING: u64 = 1 << 24;

/// What a command counts that looks at a part of the map: SCAN, RANDOMKEY, DBSIZE.
const LOOK: u64 = 1 << 12;

/// The bytes of an entry of a stream in a reply, at least: no reply has more entries than fit.
const ENTRY_IN_REPLY: usize = 96;

/// A value that changes in part is not copied each time: the part of such a copy that each change
/// costs.
const AMORTIZED: u64 = 16;

const TOO_MUCH_WORK: &str =
    "ERR too much work for one MULTI (2097152 steps), the command was not executed";
const TOO_MUCH_GROWTH: &str =
    "ERR too much memory for one MULTI (128 MiB), the command was not executed";
const LONG_PATTERN: &str = "ERR the pattern is longer than 1024 bytes";
pub(super) const TOO_MANY_KEYS: &str =
    "ERR too much to do for KEYS (more than 100000 keys, or long ones), use SCAN";

/// What a command is expected to do, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) work: u64,
    pub(super) growth: u64,
}

/// What is left for the commands of a compound.
#[derive(Debug)]
pub(super) struct Budget {
    work: u64,
    growth: u64,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget {
            work: WORK,
            growth: GROWTH,
        }
    }

    /// How much the commands so far have let the state grow.
    pub(super) fn grown(&self) -> u64 {
        GROWTH - self.growth
    }

    /// Takes what a command costs.
    ///
    /// # Errors
    /// The error text, if too little is left.
    pub(super) fn take(&mut self, cost: Cost) -> Result<(), &'static str> {
        let growth = self.growth.checked_sub(cost.growth);
        let growth = growth.ok_or(TOO_MUCH_GROWTH)?;
        self.work = self.work.checked_sub(cost.work).ok_or(TOO_MUCH_WORK)?;
        self.growth = growth;
        Ok(())
    }

    /// Takes the steps of matching that a command has needed. Eight of them take about as long as
    /// one other step.
    pub(super) fn matched(&mut self, steps: u64) {
        self.work = self.work.saturating_sub(steps / 8);
    }
}

/// Why a command is refused whatever else there is in its compound.
pub(super) fn refusal(store: &Store, now: u64, op: &Op<&[u8]>) -> Option<&'static str> {
    let is_long = |pattern: &[u8]| pattern.len() > MAX_PATTERN;
    match op {
        Op::Keys(pattern)
        | Op::Scan {
            pattern: Some(pattern),
            ..
        } if is_long(pattern) => Some(LONG_PATTERN),
        Op::Keys(_) if store.live_len(now) > KEYS => Some(TOO_MANY_KEYS),
        _ => None,
    }
}

/// What a command costs, besides work and memory in proportion to its own bytes.
pub(super) fn cost(store: &Store, now: u64, op: &Op<&[u8]>) -> Cost {
    let find = |key: &[u8]| store.get(Key::new(key), now);
    let (mut work, mut growth) = (1, 0);
    match op {
        // Now and then the value is copied: where there is no room behind it, or a picture has it.
        Op::Append { key, .. } => work += len(find(key)) / 64 / AMORTIZED,
        Op::SetRange { key, offset, .. } => {
            let before = len(find(key));
            if *offset <= MAX_VALUE_LEN as u64 {
                growth = offset.saturating_sub(before);
            }
            work += before / 64 / AMORTIZED + growth / 64;
        }
        Op::Rename { from, .. } => work += find(from).map_or(0, string_bytes) / 64,
        Op::Copy { from, .. } => {
            let entry = find(from);
            work += entry.map_or(0, string_bytes) / 64;
            growth = entry.map_or(0, Entry::bytes);
        }
        Op::Keys(_) => work += LOOK + 2 * store.live_len(now) as u64,
        Op::Scan { count, .. } => work += LOOK + (*count).min(COUNT as u64),
        Op::RandomKey | Op::DbSize | Op::Expiring | Op::FlushAll => work += LOOK,
        Op::StreamRead(ask) => work += of_ask(ask, &find),
        _ => {}
    }
    Cost { work, growth }
}

/// The length of a string.
fn len(entry: Option<&Entry>) -> u64 {
    let value = entry.and_then(|entry| entry.string().ok());
    value.map_or(0, |value| value.len() as u64)
}

/// The bytes of a string; the entries of a stream are not copied.
fn string_bytes(entry: &Entry) -> u64 {
    entry.string().map_or(0, |value| value.len() as u64)
}

fn of_ask<'a>(ask: &Ask<&[u8]>, find: &impl Fn(&[u8]) -> Option<&'a Entry>) -> u64 {
    let stream = |key: &[u8]| find(key).and_then(|entry| entry.stream().ok());
    let most = |entries: u64| 1 + entries.min((MAX_REPLY_BYTES / ENTRY_IN_REPLY) as u64);
    match ask {
        Ask::Range {
            key,
            from,
            to,
            count,
            ..
        } => most(stream(key).map_or(0, |stream| {
            between(stream, *from, *to, count.unwrap_or(u64::MAX))
        })),
        Ask::Read { streams, count, .. } => {
            let count = if *count == 0 { u64::MAX } else { *count };
            let entries = streams
                .iter()
                .map(|(key, after)| match (stream(key), after) {
                    (Some(stream), After::Id(id)) => between(stream, *id, Id::MAX, count),
                    _ => 0,
                });
            streams.len() as u64 + most(entries.fold(0, u64::saturating_add))
        }
        Ask::Tails(keys) => keys.len() as u64,
        Ask::Len(_) | Ask::Info { .. } => 1,
    }
}

/// At least how many entries are looked at, of those from one ID to another. What is few is not
/// counted exactly.
fn between(stream: &Stream, from: Id, to: Id, count: u64) -> u64 {
    const FEW: u64 = 128;
    let most = count.min(stream.len() as u64);
    if from > to {
        return 0;
    }
    if most <= FEW {
        return most;
    }
    let behind = to
        .next()
        .map_or(stream.len() as u64, |next| stream.count_before(next));
    most.min(behind.saturating_sub(stream.count_before(from)))
}
