//! What OBJECT and MEMORY USAGE tell of a key. The answers follow from the value alone, so that
//! they are the same on every replica, and after a restart.
//!
//! A string has the encoding that Redis gives to a value that is written as a whole or loaded from
//! disk. A running Redis also remembers how a value came about: what APPEND or SETRANGE has changed
//! is `raw` there, and what INCRBYFLOAT has left is `embstr`, until it is loaded again.

use super::command::Op;
use super::entry::Entry;
use super::number;
use super::parse::{Parsing, SYNTAX, integer, is};
use super::reply;
use bytes::Bytes;

/// The longest string that Redis calls `embstr`.
const EMBEDDED: usize = 44;

/// The error of Redis with any policy but `allkeys-lfu` and `volatile-lfu`.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
    tracked. Please note that when switching between policies at runtime LRU and LFU data will \
    take some time to adjust.";

/// Reads leave no trace: a replica that answered a read would otherwise differ from the others.
const NO_IDLE_TIME: &str = "ERR idle time not tracked: reads of keys are not recorded";

/// What is asked about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// MEMORY USAGE: the bytes that count against the limit of memory.
    Usage,
    Encoding,
    RefCount,
    IdleTime,
    Freq,
}

impl Fact {
    /// All of them, in the order of their numbers in the log.
    pub(super) const ALL: [Fact; 5] = [
        Fact::Usage,
        Fact::Encoding,
        Fact::RefCount,
        Fact::IdleTime,
        Fact::Freq,
    ];
}

/// OBJECT with a subcommand about a key.
pub(super) fn object(argv: &[Bytes], fact: Fact) -> Parsing {
    let key = argv[2].clone();
    Ok(Op::Object { key, fact })
}

/// MEMORY USAGE. No type has elements that could be sampled, so the number is only checked.
pub(super) fn usage(argv: &[Bytes]) -> Parsing {
    for option in argv[3..].chunks(2) {
        match option {
            [word, count] if is(word, "samples") => {
                if integer(count)? < 0 {
                    return Err(SYNTAX.into());
                }
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    object(argv, Fact::Usage)
}

pub(super) fn answer(entry: Option<&Entry>, fact: Fact, out: &mut Vec<u8>) {
    let Some(entry) = entry else {
        return reply::null(out);
    };
    match fact {
        Fact::Usage => reply::integer(out, entry.bytes() as i64),
        Fact::Encoding => reply::bulk(out, encoding(entry).as_bytes()),
        Fact::RefCount => reply::integer(out, 1),
        Fact::IdleTime => reply::error(out, NO_IDLE_TIME.as_bytes()),
        Fact::Freq => reply::error(out, NO_FREQUENCY.as_bytes()),
    }
}

fn encoding(entry: &Entry) -> &'static str {
    match entry.string() {
        Err(_) => "stream",
        Ok(value) if number::integer(value).is_some() => "int",
        Ok(value) if value.len() <= EMBEDDED => "embstr",
        Ok(_) => "raw",
    }
}
