//! The encoding of commands on streams in the log.

use super::super::codec::{Input, Sink, bytes, length, list};
use super::{After, Ask, Deed, Id, Keep, NewId, Trim};

/// Tags of commands, which never change their meaning. Those of all commands are in `codec.rs`.
pub(in super::super) const LEN: u8 = 12;
const RANGE: u8 = 13;
const READ: u8 = 14;
const INFO: u8 = 15;
pub(in super::super) const TAILS: u8 = 16;
pub(in super::super) const ADD: u8 = 47;
const TRIM: u8 = 48;
const DELETE: u8 = 49;
pub(in super::super) const SET_ID: u8 = 50;

pub(in super::super) fn tag_of_ask<B>(ask: &Ask<B>) -> u8 {
    match ask {
        Ask::Len(_) => LEN,
        Ask::Range { .. } => RANGE,
        Ask::Read { .. } => READ,
        Ask::Info { .. } => INFO,
        Ask::Tails(_) => TAILS,
    }
}

pub(in super::super) fn tag_of_deed<B>(deed: &Deed<B>) -> u8 {
    match deed {
        Deed::Add { .. } => ADD,
        Deed::Trim { .. } => TRIM,
        Deed::Delete { .. } => DELETE,
        Deed::SetId { .. } => SET_ID,
    }
}

fn id(out: &mut impl Sink, id: Id) {
    out.put(&id.ms.to_le_bytes());
    out.put(&id.seq.to_le_bytes());
}

fn number(out: &mut impl Sink, number: u64) {
    out.put(&number.to_le_bytes());
}

fn option<S: Sink, T>(out: &mut S, value: Option<T>, put: impl Fn(&mut S, T)) {
    out.put(&[u8::from(value.is_some())]);
    value.into_iter().for_each(|value| put(out, value));
}

fn trim(out: &mut impl Sink, trim: Trim) {
    match trim.keep {
        Keep::Newest(count) => {
            out.put(&[0]);
            number(out, count);
        }
        Keep::From(from) => {
            out.put(&[1]);
            id(out, from);
        }
    }
    option(out, trim.roughly, number);
}

pub(in super::super) fn ask<S: Sink, B: AsRef<[u8]>>(out: &mut S, ask: &Ask<B>) {
    match ask {
        Ask::Len(key) => bytes(out, key.as_ref()),
        Ask::Range {
            key,
            from,
            to,
            count,
            reverse,
        } => {
            bytes(out, key.as_ref());
            id(out, *from);
            id(out, *to);
            option(out, *count, number);
            out.put(&[u8::from(*reverse)]);
        }
        Ask::Read {
            streams,
            count,
            block,
            maps,
        } => {
            list(out, streams, |out, (key, after)| {
                bytes(out, key.as_ref());
                let after = match after {
                    After::Id(after) => Some(*after),
                    After::Last => None,
                };
                option(out, after, id);
            });
            number(out, *count);
            option(out, *block, number);
            out.put(&[u8::from(*maps)]);
        }
        Ask::Info { key, maps } => {
            bytes(out, key.as_ref());
            out.put(&[u8::from(*maps)]);
        }
        Ask::Tails(keys) => list(out, keys, |out, key| bytes(out, key.as_ref())),
    }
}

pub(in super::super) fn deed<S: Sink, B: AsRef<[u8]>>(out: &mut S, deed: &Deed<B>) {
    bytes(out, deed.key().as_ref());
    match deed {
        Deed::Add {
            create,
            id: new,
            trim: trimmed,
            words,
            ..
        } => {
            out.put(&[u8::from(*create)]);
            match new {
                NewId::Time => out.put(&[0]),
                NewId::Next(ms) => {
                    out.put(&[1]);
                    number(out, *ms);
                }
                NewId::Exactly(exactly) => {
                    out.put(&[2]);
                    id(out, *exactly);
                }
            }
            option(out, *trimmed, trim);
            list(out, words, |out, word| bytes(out, word.as_ref()));
        }
        Deed::Trim { trim: trimmed, .. } => trim(out, *trimmed),
        Deed::Delete { ids, .. } => {
            length(out, ids.len());
            ids.iter().for_each(|each| id(out, *each));
        }
        Deed::SetId {
            id: new,
            added,
            max_deleted,
            ..
        } => {
            id(out, *new);
            option(out, *added, number);
            option(out, *max_deleted, id);
        }
    }
}

/// What these tags begin with; `None` if what follows is malformed.
pub(in super::super) fn decode_ask<'a>(tag: u8, input: &mut Input<'a>) -> Option<Ask<&'a [u8]>> {
    Some(match tag {
        LEN => Ask::Len(input.bytes()?),
        RANGE => Ask::Range {
            key: input.bytes()?,
            from: input.id()?,
            to: input.id()?,
            count: input.option(Input::u64)?,
            reverse: input.flag()?,
        },
        READ => Ask::Read {
            streams: input.list(|input| {
                let key = input.bytes()?;
                let after = input.option(Input::id)?;
                Some((key, after.map_or(After::Last, After::Id)))
            })?,
            count: input.u64()?,
            block: input.option(Input::u64)?,
            maps: input.flag()?,
        },
        INFO => Ask::Info {
            key: input.bytes()?,
            maps: input.flag()?,
        },
        TAILS => Ask::Tails(input.list(Input::bytes)?),
        _ => return None,
    })
}

/// What these tags begin with; `None` if what follows is malformed.
pub(in super::super) fn decode_deed<'a>(tag: u8, input: &mut Input<'a>) -> Option<Deed<&'a [u8]>> {
    let key = input.bytes()?;
    Some(match tag {
        ADD => {
            let (create, id) = (input.flag()?, input.new_id()?);
            let (trim, words) = (input.option(Input::trim)?, input.list(Input::bytes)?);
            let is_pairs = !words.is_empty() && words.len().is_multiple_of(2);
            is_pairs.then_some(Deed::Add {
                key,
                create,
                id,
                trim,
                words,
            })?
        }
        TRIM => Deed::Trim {
            key,
            trim: input.trim()?,
        },
        DELETE => Deed::Delete {
            key,
            ids: input.list(Input::id)?,
        },
        SET_ID => Deed::SetId {
            key,
            id: input.id()?,
            added: input.option(Input::u64)?,
            max_deleted: input.option(Input::id)?,
        },
        _ => return None,
    })
}

impl Input<'_> {
    fn id(&mut self) -> Option<Id> {
        Some(Id {
            ms: self.u64()?,
            seq: self.u64()?,
        })
    }

    /// A value if there is one; the outer `None` says that the input is malformed.
    fn option<T>(&mut self, value: impl Fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.flag()? {
            true => value(self).map(Some),
            false => Some(None),
        }
    }

    fn new_id(&mut self) -> Option<NewId> {
        Some(match self.byte()? {
            0 => NewId::Time,
            1 => NewId::Next(self.u64()?),
            2 => NewId::Exactly(self.id().filter(|id| *id != Id::MIN)?),
            _ => return None,
        })
    }

    fn trim(&mut self) -> Option<Trim> {
        let keep = match self.byte()? {
            0 => Keep::Newest(self.u64()?),
            1 => Keep::From(self.id()?),
            _ => return None,
        };
        Some(Trim {
            keep,
            roughly: self.option(Input::u64)?,
        })
    }
}
