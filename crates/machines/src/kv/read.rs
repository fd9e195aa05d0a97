//! The commands that leave the state as it is.

use super::MAX_REPLY_BYTES;
use super::budget;
use super::command::{Kind, Op};
use super::entry::Entry;
use super::glob::Glob;
use super::hash;
use super::object;
use super::reply;
use super::shard::Key;
use super::store::Store;
use super::stream;

/// A page of SCAN ends behind this many bytes of keys.
const PAGE_BYTES: usize = 1 << 20;

/// Answers a command that is a read. A write is never given to it. Within bounds KEYS takes this
/// many steps of work; without, it and SCAN answer as programs of level 17 do. Returns how many
/// steps it took to match patterns, and to pass over keys that have expired.
pub(super) fn answer(
    store: &Store,
    now: u64,
    op: &Op<&[u8]>,
    bounds: Option<u64>,
    out: &mut Vec<u8>,
) -> u64 {
    let find = |key: &[u8]| store.get(Key::new(key), now);
    // MGET has no value for what is no string.
    let string = |key: &[u8]| find(key).and_then(|entry| entry.string().ok());
    let checked = |key: &[u8]| find(key).map(Entry::string).transpose();
    match op {
        Op::Fail(text) => reply::error(out, text),
        Op::Get(key) => match checked(key) {
            Ok(value) => reply::bulk_or_null(out, value),
            Err(text) => reply::error(out, text.as_bytes()),
        },
        Op::MGet(keys)
            if is_too_large(keys.iter().map(|key| string(key).map_or(0, <[u8]>::len))) =>
        {
            reply::error(out, reply::TOO_LARGE.as_bytes());
        }
        Op::MGet(keys) => {
            reply::array(out, keys.len());
            keys.iter()
                .for_each(|key| reply::bulk_or_null(out, string(key)));
        }
        Op::Exists(keys) => {
            let count = keys.iter().filter(|key| find(key).is_some()).count();
            reply::integer(out, count as i64);
        }
        Op::StrLen(key) => match checked(key) {
            Ok(value) => reply::integer(out, value.map_or(0, |value| value.len() as i64)),
            Err(text) => reply::error(out, text.as_bytes()),
        },
        Op::GetRange { key, start, end } => match checked(key) {
            Ok(value) => reply::bulk(out, value.map_or(&[], |value| range(value, *start, *end))),
            Err(text) => reply::error(out, text.as_bytes()),
        },
        Op::Ttl {
            key,
            seconds,
            relative,
        } => {
            let from = if *relative { now } else { 0 };
            reply::integer(out, time_left(find(key), from, *seconds));
        }
        Op::Type(key) => {
            let name = find(key).map_or("none", |entry| match entry.stream() {
                Ok(_) => "stream",
                Err(_) => "string",
            });
            reply::simple(out, name);
        }
        Op::DbSize => reply::integer(out, store.live_len(now) as i64),
        Op::Expiring => reply::integer(out, store.expiring(now) as i64),
        Op::Keys(pattern) => return keys(store, now, pattern, bounds, out),
        Op::Scan { .. } => return scan(store, now, op, bounds, out),
        Op::RandomKey => {
            let mut patience = u64::MAX;
            reply::bulk_or_null(out, random_key(store, now, &mut patience));
            return u64::MAX - patience;
        }
        Op::Object { key, fact } => object::answer(find(key), *fact, out),
        Op::StreamRead(ask) => stream::read::answer(store, now, ask, out),
        _ => debug_assert!(false, "a write was given to be answered as a read"),
    }
    0
}

fn keys(store: &Store, now: u64, pattern: &[u8], bounds: Option<u64>, out: &mut Vec<u8>) -> u64 {
    let (glob, mut steps, mut keys) = (Glob::new(pattern), 0, Vec::new());
    for entry in store.in_order(now) {
        let is_long = bounds.is_some() && is_too_long(&glob, entry.key());
        steps += if is_long {
            1
        } else {
            glob.steps(entry.key().len())
        };
        if bounds.is_some_and(|left| steps > budget::MATCHING.min(8 * left)) {
            reply::error(out, budget::too_many_keys().as_bytes());
            return steps;
        }
        if !is_long && glob.matches(entry.key()) {
            keys.push(entry.key());
        }
    }
    if is_too_large(keys.iter().map(|key| key.len())) {
        reply::error(out, reply::TOO_LARGE.as_bytes());
        return steps;
    }
    reply::array(out, keys.len());
    keys.iter().for_each(|key| reply::bulk(out, key));
    steps
}

fn scan(store: &Store, now: u64, op: &Op<&[u8]>, bounds: Option<u64>, out: &mut Vec<u8>) -> u64 {
    let Op::Scan {
        cursor,
        count,
        kind,
        pattern,
    } = op
    else {
        return 0;
    };
    let limit = usize::try_from(*count).unwrap_or(usize::MAX);
    let (limit, patience) = match bounds {
        Some(_) => (limit.min(budget::COUNT), budget::PAGE),
        None => (limit, u64::MAX),
    };
    let mut left = patience;
    let (page, mut next) = store.page(*cursor, limit, now, &mut left);
    let glob = Glob::new(pattern.unwrap_or(b"*"));
    let (mut steps, mut bytes, mut keys, mut last) = (0, 0, Vec::new(), *cursor);
    for entry in page {
        let is_full = steps > budget::PAGE || bytes > PAGE_BYTES;
        if bounds.is_some() && is_full && entry.position != last {
            next = entry.position;
            break;
        }
        last = entry.position;
        let is_long = bounds.is_some() && is_too_long(&glob, entry.key());
        if is_of(entry, *kind) && !is_long {
            steps += glob.steps(entry.key().len());
            if glob.matches(entry.key()) {
                bytes += entry.key().len();
                keys.push(entry.key());
            }
        }
    }
    reply::array(out, 2);
    reply::bulk(out, next.to_string().as_bytes());
    reply::array(out, keys.len());
    keys.iter().for_each(|key| reply::bulk(out, key));
    steps + (patience - left)
}

/// Whether it would take too long to match a key.
fn is_too_long(glob: &Glob, key: &[u8]) -> bool {
    key.len() > budget::MATCHED && !glob.matches_all()
}

fn is_of(entry: &Entry, kind: Kind) -> bool {
    match kind {
        Kind::Any => true,
        Kind::Other => false,
        Kind::String => entry.string().is_ok(),
        Kind::Stream => entry.stream().is_ok(),
    }
}

/// Whether a reply of values of these lengths is larger than a reply can be.
fn is_too_large(lengths: impl Iterator<Item = usize>) -> bool {
    // Each value comes with its length and two line ends.
    lengths.map(|length| length + 16).sum::<usize>() > MAX_REPLY_BYTES
}

/// The answer of TTL and its relatives: -2 for no key, -1 for no deadline. Seconds are rounded.
fn time_left(entry: Option<&Entry>, from: u64, seconds: bool) -> i64 {
    let Some(entry) = entry else { return -2 };
    let Some(deadline) = entry.deadline() else {
        return -1;
    };
    let left = deadline.saturating_sub(from);
    if seconds {
        ((left + 500) / 1000) as i64
    } else {
        left as i64
    }
}

/// The part of `value` from `start` to `end`, both included; negative ones count from the end.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    let index = |at: i64| {
        if at < 0 {
            at.saturating_add(len).max(0)
        } else {
            at
        }
    };
    // Both before the beginning would both become zero, and then mean one byte.
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let (start, end) = (index(start), index(end).min(len - 1));
    if start > end {
        &[]
    } else {
        &value[start as usize..=end as usize]
    }
}

/// Some key, the same on every replica in this state; another one after the next change.
fn random_key<'a>(store: &'a Store, now: u64, patience: &mut u64) -> Option<&'a [u8]> {
    let from = hash::sip13(store.modifications(), now, b"randomkey");
    let mut first = |from| {
        let (page, _) = store.page(from, 1, now, patience);
        page.first().map(|entry| entry.key())
    };
    first(from).or_else(|| first(0))
}
