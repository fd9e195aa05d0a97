//! The commands on streams, from the words of a client, with the errors of Redis 7 in its order.

use super::super::command::Op;
use super::super::number;
use super::super::parse::{Parsing, Refused, SYNTAX, integer, is, wrong_number};
use super::id;
use super::{After, Ask, Deed, Id, Keep, NODE, NewId, Trim};
use bytes::Bytes;

const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";
const TWO_TRIMS: &str =
    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
const NO_TRIM_TO_LIMIT: &str =
    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
const NO_TRIM: &str = "ERR syntax error, XTRIM must be called with a trimming strategy";
const LIMIT_OF_EXACT: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

/// The entries that a trim with `~` removes at most, if it does not say so.
const LIMIT: u64 = 100 * NODE;

/// Why a command of Redis on streams is unknown here.
pub(in super::super) fn refused(name: &[u8]) -> Option<&'static str> {
    const GROUPS: [&str; 6] = [
        "xack",
        "xautoclaim",
        "xclaim",
        "xgroup",
        "xpending",
        "xreadgroup",
    ];
    GROUPS
        .iter()
        .any(|group| is(name, group))
        .then_some("ERR consumer groups are not supported, use XREAD with the last ID read")
}

/// An ID in a place where `-` and `+` mean nothing.
fn strict(word: &[u8], seq: u64) -> Result<Id, Refused> {
    Id::parse(word, seq).ok_or_else(|| INVALID_ID.into())
}

/// The options of XADD and XTRIM before the ID.
#[derive(Default)]
struct Options {
    no_create: bool,
    keep: Option<Keep>,
    roughly: bool,
    limit: Option<u64>,
}

impl Options {
    /// Reads MAXLEN or MINID with its argument.
    fn keep<'a>(
        &mut self,
        is_len: bool,
        words: &mut impl Iterator<Item = &'a Bytes>,
        more: usize,
    ) -> Result<(), Refused> {
        if self.keep.is_some() {
            return Err(TWO_TRIMS.into());
        }
        let mut word = words.next().ok_or(SYNTAX)?;
        self.roughly = more >= 2 && &word[..] == b"~";
        if self.roughly || more >= 2 && &word[..] == b"=" {
            word = words.next().ok_or(SYNTAX)?;
        }
        self.keep = Some(match is_len {
            true => match u64::try_from(integer(word)?) {
                Ok(count) => Keep::Newest(count),
                Err(_) => return Err("ERR The MAXLEN argument must be >= 0.".into()),
            },
            false => Keep::From(strict(word, 0)?),
        });
        Ok(())
    }

    fn limit(&mut self, word: &[u8]) -> Result<(), Refused> {
        match u64::try_from(integer(word)?) {
            Ok(limit) => self.limit = Some(limit),
            Err(_) => return Err("ERR The LIMIT argument must be >= 0.".into()),
        }
        Ok(())
    }

    /// What is trimmed, once all options are known.
    fn trim(&self, is_add: bool) -> Result<Option<Trim>, Refused> {
        let Some(keep) = self.keep else {
            return match self.limit {
                Some(1..) => Err(NO_TRIM_TO_LIMIT.into()),
                Some(0) if is_add => Err(LIMIT_OF_EXACT.into()),
                _ => Ok(None),
            };
        };
        if self.limit.is_some() && !self.roughly {
            return Err(LIMIT_OF_EXACT.into());
        }
        Ok(Some(Trim {
            keep,
            roughly: self.roughly.then_some(self.limit.unwrap_or(LIMIT)),
        }))
    }

    /// The options in front of `words`, and where the ID is; without one for XTRIM.
    fn parse(words: &[Bytes], is_add: bool) -> Result<(Options, Option<usize>), Refused> {
        let mut options = Options::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let more = rest.len();
            if is_add && &word[..] == b"*" {
                return Ok((options, Some(words.len() - more - 1)));
            } else if is(word, "maxlen") && more > 0 {
                options.keep(true, &mut rest, more)?;
            } else if is(word, "minid") && more > 0 {
                options.keep(false, &mut rest, more)?;
            } else if is(word, "limit")
                && let Some(limit) = rest.as_slice().first()
            {
                options.limit(limit)?;
                rest.next();
            } else if is_add && is(word, "nomkstream") {
                options.no_create = true;
            } else if is_add {
                return Ok((options, Some(words.len() - more - 1)));
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok((options, None))
    }
}

fn new_id(word: &[u8]) -> Result<NewId, Refused> {
    if word == b"*" {
        return Ok(NewId::Time);
    }
    match word.strip_suffix(b"-*") {
        Some(ms) => match id::number(ms) {
            Some(ms) => Ok(NewId::Next(ms)),
            None => Err(INVALID_ID.into()),
        },
        None => strict(word, 0).map(NewId::Exactly),
    }
}

pub(in super::super) fn add(argv: &[Bytes]) -> Parsing {
    let (options, at) = Options::parse(&argv[2..], true)?;
    let id = at.map(|at| new_id(&argv[2 + at])).transpose()?;
    let trim = options.trim(true)?;
    let words = at.map_or(&[][..], |at| &argv[3 + at..]);
    let Some(id) = id.filter(|_| !words.is_empty() && words.len().is_multiple_of(2)) else {
        return Err(Refused::WhenExecuted(wrong_number("xadd")));
    };
    if id == NewId::Exactly(Id::MIN) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    Ok(Op::StreamWrite(Deed::Add {
        key: argv[1].clone(),
        create: !options.no_create,
        id,
        trim,
        words: words.to_vec(),
    }))
}

pub(in super::super) fn trim(argv: &[Bytes]) -> Parsing {
    let (options, _) = Options::parse(&argv[2..], false)?;
    let trim = options.trim(false)?.ok_or(NO_TRIM)?;
    Ok(Op::StreamWrite(Deed::Trim {
        key: argv[1].clone(),
        trim,
    }))
}

pub(in super::super) fn delete(argv: &[Bytes]) -> Parsing {
    let ids: Result<Vec<Id>, Refused> = argv[2..].iter().map(|word| strict(word, 0)).collect();
    Ok(Op::StreamWrite(Deed::Delete {
        key: argv[1].clone(),
        ids: ids?,
    }))
}

pub(in super::super) fn set_id(argv: &[Bytes]) -> Parsing {
    let id = strict(&argv[2], 0)?;
    let (mut added, mut max_deleted) = (None, None);
    let mut words = argv[3..].iter();
    while let Some(word) = words.next() {
        let argument = words.next().ok_or(SYNTAX)?;
        if is(word, "entriesadded") {
            let Ok(count) = u64::try_from(integer(argument)?) else {
                return Err("ERR entries_added must be positive".into());
            };
            added = Some(count);
        } else if is(word, "maxdeletedid") {
            let deleted = strict(argument, 0)?;
            if id < deleted {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
                        .into(),
                );
            }
            max_deleted = Some(deleted);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(Op::StreamWrite(Deed::SetId {
        key: argv[1].clone(),
        id,
        added,
        max_deleted,
    }))
}

/// One end of an interval, and whether it is excluded.
fn end(word: &[u8], seq: u64) -> Result<(Id, bool), Refused> {
    match word {
        b"-" => Ok((Id::MIN, false)),
        b"+" => Ok((Id::MAX, false)),
        [b'(', rest @ ..] if !rest.is_empty() => Ok((strict(rest, seq)?, true)),
        _ => Ok((strict(word, seq)?, false)),
    }
}

pub(in super::super) fn range(argv: &[Bytes], reverse: bool) -> Parsing {
    let (from, to) = match reverse {
        true => (&argv[3], &argv[2]),
        false => (&argv[2], &argv[3]),
    };
    let from = match end(from, 0)? {
        (id, false) => id,
        (id, true) => id.next().ok_or("ERR invalid start ID for the interval")?,
    };
    let to = match end(to, u64::MAX)? {
        (id, false) => id,
        (id, true) => id.previous().ok_or("ERR invalid end ID for the interval")?,
    };
    let mut count = None;
    for option in argv[4..].chunks(2) {
        match option {
            [word, argument] if is(word, "count") => {
                count = Some(integer(argument)?.max(0) as u64);
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(Op::StreamRead(Ask::Range {
        key: argv[1].clone(),
        from,
        to,
        count,
        reverse,
    }))
}

/// The argument of BLOCK.
fn milliseconds(word: &[u8]) -> Result<u64, Refused> {
    let amount = number::integer(word).ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(amount).map_err(|_| "ERR timeout is negative".into())
}

pub(in super::super) fn read(argv: &[Bytes]) -> Parsing {
    let (mut count, mut block) = (0, None);
    let mut words = argv[1..].iter();
    while let Some(word) = words.next() {
        if is(word, "block")
            && let Some(argument) = words.as_slice().first()
        {
            block = Some(milliseconds(argument)?);
            words.next();
        } else if is(word, "count")
            && let Some(argument) = words.as_slice().first()
        {
            count = integer(argument)?.max(0) as u64;
            words.next();
        } else if is(word, "streams") && words.len() > 0 {
            return Ok(Op::StreamRead(Ask::Read {
                streams: after(words.as_slice())?,
                count,
                block,
                maps: false,
            }));
        } else if is(word, "group") || is(word, "noack") {
            let option = String::from_utf8_lossy(word).to_uppercase();
            return Err(Refused::WhenExecuted(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
            )));
        } else {
            return Err(SYNTAX.into());
        }
    }
    Err(SYNTAX.into())
}

/// The keys behind STREAMS, each with the ID after which it is read.
fn after(words: &[Bytes]) -> Result<Vec<(Bytes, After)>, Refused> {
    if !words.len().is_multiple_of(2) {
        return Err(
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
                .into(),
        );
    }
    let (keys, ids) = words.split_at(words.len() / 2);
    let after = |(key, id): (&Bytes, &Bytes)| {
        match &id[..] {
        b"$" => Ok((key.clone(), After::Last)),
        b">" => Err(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
                .into(),
        ),
        id => Ok((key.clone(), After::Id(strict(id, 0)?))),
    }
    };
    keys.iter().zip(ids).map(after).collect()
}

pub(in super::super) fn info(argv: &[Bytes]) -> Parsing {
    let key = || {
        let key = argv.get(2).filter(|_| argv.len() == 3).cloned();
        key.ok_or_else(|| Refused::AtOnce(wrong_number("xinfo|stream")))
    };
    match &argv[1] {
        word if is(word, "stream") && argv.get(3).is_some_and(|word| is(word, "full")) => {
            Err("ERR XINFO STREAM FULL is not supported, use XINFO STREAM".into())
        }
        word if is(word, "stream") => Ok(Op::StreamRead(Ask::Info {
            key: key()?,
            maps: false,
        })),
        word if is(word, "groups") || is(word, "consumers") => {
            Err("ERR consumer groups are not supported".into())
        }
        word => {
            let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
            let text = format!("ERR unknown subcommand '{word}'. Try XINFO HELP.");
            Err(Refused::AtOnce(text.replace(['\r', '\n'], " ")))
        }
    }
}
