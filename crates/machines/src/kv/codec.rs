//! The encoding of a compound in the log. All numbers are little endian; a length comes before what
//! it counts, in as many bytes as it needs, seven bits in each; the first byte is the version of
//! the format. What is decoded may be any bytes: every field is checked, and nothing is allocated
//! beyond a small multiple of the input.

use super::command::{Command, Compound, Condition, Expiry, Kind, Only, Op, SetForm, When};
use super::decoded::{Decoded, Ops};
use super::long_double::LongDouble;
use super::object::Fact;
use super::stream::codec as stream;

pub(super) const FORMAT: u8 = 2;

const PIPELINE: u8 = 0;
const TRANSACTION: u8 = 1;
const VERSIONS: u8 = 2;
// From level 18 on.
const SET_USER: u8 = 3;
const DELETE_USERS: u8 = 4;
const USERS: u8 = 5;
const SET_LIMIT: u8 = 7;
const MEASURE: u8 = 8;
const ROOM: u8 = 9;
/// Stands before the others, with the epoch of the users by which a gateway judged; without it the
/// epoch is zero.
pub(super) const JUDGED: u8 = 6;

pub(super) fn encode(compound: &Compound, epoch: u64) -> Vec<u8> {
    let len = match compound {
        Compound::Pipeline(commands) | Compound::Transaction { commands, .. } => {
            commands.iter().map(Command::encoded_len).sum()
        }
        _ => 0,
    };
    let mut out = Vec::with_capacity(len + 25);
    out.push(FORMAT);
    if epoch > 0 {
        out.push(JUDGED);
        out.put(&epoch.to_le_bytes());
    }
    match compound {
        Compound::Pipeline(commands) => {
            out.push(PIPELINE);
            list(&mut out, commands, |out, command| op(out, &command.0));
        }
        Compound::Transaction { watched, commands } => {
            out.push(TRANSACTION);
            list(&mut out, watched, |out, (key, version)| {
                bytes(out, key);
                out.put(&version.to_le_bytes());
            });
            list(&mut out, commands, |out, command| op(out, &command.0));
        }
        Compound::Versions(keys) => {
            out.push(VERSIONS);
            list(&mut out, keys, |out, key| bytes(out, key));
        }
        Compound::SetUser { name, rules } => {
            out.push(SET_USER);
            bytes(&mut out, name);
            list(&mut out, rules, |out, rule| bytes(out, rule));
        }
        Compound::DeleteUsers(names) => {
            out.push(DELETE_USERS);
            list(&mut out, names, |out, name| bytes(out, name));
        }
        Compound::Users { known } => {
            out.push(USERS);
            out.put(&known.to_le_bytes());
        }
        Compound::SetLimit(limit) => {
            out.push(SET_LIMIT);
            out.put(&limit.to_le_bytes());
        }
        Compound::Measure => out.push(MEASURE),
        Compound::Room => out.push(ROOM),
    }
    out
}

pub(super) fn encoded_len<B: AsRef<[u8]>>(command: &Op<B>) -> usize {
    let mut len = Len(0);
    op(&mut len, command);
    len.0
}

/// Takes the encoding: a buffer, or what only counts its length.
pub(super) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

struct Len(usize);

impl Sink for Len {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

pub(super) fn length(out: &mut impl Sink, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        out.put(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    out.put(&[rest as u8]);
}

pub(super) fn bytes(out: &mut impl Sink, bytes: &[u8]) {
    length(out, bytes.len());
    out.put(bytes);
}

pub(super) fn list<S: Sink, T>(out: &mut S, items: &[T], item: impl Fn(&mut S, &T)) {
    length(out, items.len());
    items.iter().for_each(|each| item(out, each));
}

fn when(out: &mut impl Sink, when: When) {
    out.put(&when.amount.to_le_bytes());
    out.put(&[u8::from(when.seconds) | u8::from(when.relative) << 1]);
}

fn expiry(out: &mut impl Sink, expiry: Expiry) {
    match expiry {
        Expiry::Clear => out.put(&[0]),
        Expiry::Keep => out.put(&[1]),
        Expiry::At(time) => {
            out.put(&[2]);
            when(out, time);
        }
        Expiry::NotANumber => out.put(&[3]),
    }
}

/// The number of a kind of command in the log; it never changes its meaning.
fn tag<B>(command: &Op<B>) -> u8 {
    match command {
        Op::Fail(_) => 0,
        Op::Get(_) => 1,
        Op::MGet(_) => 2,
        Op::Exists(_) => 3,
        Op::StrLen(_) => 4,
        Op::GetRange { .. } => 5,
        Op::Ttl { .. } => 6,
        Op::Type(_) => 7,
        Op::DbSize => 8,
        Op::Keys(_) => 9,
        Op::Scan { .. } => 10,
        Op::RandomKey => 11,
        Op::StreamRead(ask) => stream::tag_of_ask(ask),
        // From level 18 on.
        Op::Object { .. } => 17,
        Op::Expiring => 18,
        Op::Set { .. } => 32,
        Op::MSet(_) => 33,
        Op::MSetNx(_) => 34,
        Op::GetDel(_) => 35,
        Op::GetEx { .. } => 36,
        Op::Del(_) => 37,
        Op::IncrBy { .. } => 38,
        Op::IncrByFloat { .. } => 39,
        Op::Append { .. } => 40,
        Op::SetRange { .. } => 41,
        Op::Expire { .. } => 42,
        Op::Persist(_) => 43,
        Op::Rename { .. } => 44,
        Op::Copy { .. } => 45,
        Op::FlushAll => 46,
        Op::StreamWrite(deed) => stream::tag_of_deed(deed),
    }
}

fn op<S: Sink, B: AsRef<[u8]>>(out: &mut S, command: &Op<B>) {
    out.put(&[tag(command)]);
    match command {
        Op::DbSize | Op::Expiring | Op::RandomKey | Op::FlushAll => {}
        Op::StreamRead(ask) => stream::ask(out, ask),
        Op::StreamWrite(deed) => stream::deed(out, deed),
        Op::Fail(one)
        | Op::Get(one)
        | Op::StrLen(one)
        | Op::Type(one)
        | Op::Keys(one)
        | Op::GetDel(one)
        | Op::Persist(one) => bytes(out, one.as_ref()),
        Op::MGet(keys) | Op::Exists(keys) | Op::Del(keys) => {
            list(out, keys, |out, key| bytes(out, key.as_ref()));
        }
        Op::MSet(pairs) | Op::MSetNx(pairs) => list(out, pairs, |out, (key, value)| {
            bytes(out, key.as_ref());
            bytes(out, value.as_ref());
        }),
        Op::Rename {
            from,
            to,
            only_new: flag,
        }
        | Op::Copy {
            from,
            to,
            replace: flag,
        } => {
            bytes(out, from.as_ref());
            bytes(out, to.as_ref());
            out.put(&[u8::from(*flag)]);
        }
        Op::Scan {
            cursor,
            count,
            kind,
            pattern,
        } => {
            out.put(&cursor.to_le_bytes());
            out.put(&count.to_le_bytes());
            out.put(&[*kind as u8, u8::from(pattern.is_some())]);
            pattern
                .iter()
                .for_each(|pattern| bytes(out, pattern.as_ref()));
        }
        Op::GetRange { key, .. }
        | Op::Ttl { key, .. }
        | Op::Object { key, .. }
        | Op::Set { key, .. }
        | Op::GetEx { key, .. }
        | Op::IncrBy { key, .. }
        | Op::IncrByFloat { key, .. }
        | Op::Append { key, .. }
        | Op::SetRange { key, .. }
        | Op::Expire { key, .. } => {
            bytes(out, key.as_ref());
            fields(out, command);
        }
    }
}

/// What follows the key of the commands on one key.
fn fields<S: Sink, B: AsRef<[u8]>>(out: &mut S, command: &Op<B>) {
    match command {
        Op::GetRange { start, end, .. } => {
            out.put(&start.to_le_bytes());
            out.put(&end.to_le_bytes());
        }
        Op::Ttl {
            seconds, relative, ..
        } => out.put(&[u8::from(*seconds), u8::from(*relative)]),
        Op::Object { fact, .. } => out.put(&[*fact as u8]),
        Op::Set {
            value,
            form,
            condition,
            expiry: deadline,
            ..
        } => {
            bytes(out, value.as_ref());
            out.put(&[*form as u8, *condition as u8]);
            expiry(out, *deadline);
        }
        Op::GetEx {
            expiry: deadline, ..
        } => expiry(out, *deadline),
        Op::IncrBy { by, .. } => out.put(&by.to_le_bytes()),
        Op::IncrByFloat { by: None, .. } => out.put(&[2]),
        Op::IncrByFloat { by: Some(by), .. } => {
            let (negative, mantissa, exponent) = by.parts();
            out.put(&[u8::from(negative)]);
            out.put(&mantissa.to_le_bytes());
            out.put(&exponent.to_le_bytes());
        }
        Op::Append { value, .. } => bytes(out, value.as_ref()),
        Op::SetRange { offset, value, .. } => {
            out.put(&offset.to_le_bytes());
            bytes(out, value.as_ref());
        }
        Op::Expire {
            when: time, only, ..
        } => {
            when(out, *time);
            let flags = [only.missing, only.present, only.greater, only.less];
            out.put(&flags.map(u8::from));
        }
        _ => {}
    }
}

/// The compound that `input` encodes, borrowed from it, and by which epoch of the users it was
/// judged; `None` if it encodes none.
pub(super) fn decode(input: &[u8]) -> Option<(u64, Decoded<'_>)> {
    let mut input = Input(input);
    if input.byte()? != FORMAT {
        return None;
    }
    let (judged_at, kind) = match input.byte()? {
        JUDGED => (input.u64().filter(|epoch| *epoch > 0)?, input.byte()?),
        kind => (0, kind),
    };
    let decoded = match kind {
        PIPELINE => Decoded::Pipeline(input.pipeline()?),
        TRANSACTION => Decoded::Transaction {
            watched: input.list(|input| Some((input.bytes()?, input.u64()?)))?,
            commands: input.list(Input::op)?,
        },
        VERSIONS => Decoded::Versions(input.list(Input::bytes)?),
        SET_USER => Decoded::SetUser {
            name: input.bytes()?,
            rules: input.list(Input::bytes)?,
        },
        DELETE_USERS => Decoded::DeleteUsers(input.list(Input::bytes)?),
        USERS => Decoded::Users {
            known: input.u64()?,
        },
        SET_LIMIT => Decoded::SetLimit(input.u64()?),
        MEASURE => Decoded::Measure,
        ROOM => Decoded::Room,
        _ => return None,
    };
    input.0.is_empty().then_some((judged_at, decoded))
}

pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// At most 32 bits: there is nothing that is longer.
    fn length(&mut self) -> Option<u32> {
        let mut length = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            let bits = u32::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            length |= bits << shift;
            if byte < 0x80 {
                return Some(length);
            }
        }
        None
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.length()?;
        let (head, rest) = self.0.split_at_checked(len as usize)?;
        self.0 = rest;
        Some(head)
    }

    /// The count is not trusted with memory: most lists are short, and a long one grows as its
    /// items, each of one byte at least, turn out to be there.
    pub(super) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.length()?;
        let mut items = Vec::with_capacity(count.min(16) as usize);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Some(items)
    }

    fn pipeline(&mut self) -> Option<Ops<'a>> {
        let ahead = self.0;
        if self.length()? == 1 {
            return self.op().map(Ops::One);
        }
        self.0 = ahead;
        self.list(Input::op).map(Ops::Many)
    }

    fn keys(&mut self) -> Option<Vec<&'a [u8]>> {
        self.list(Input::bytes)
    }

    fn pairs(&mut self) -> Option<Vec<(&'a [u8], &'a [u8])>> {
        self.list(|input| Some((input.bytes()?, input.bytes()?)))
    }

    fn when(&mut self) -> Option<When> {
        let amount = self.i64()?;
        let flags = self.byte()?;
        (flags < 4).then_some(When {
            amount,
            seconds: flags & 1 == 1,
            relative: flags & 2 == 2,
        })
    }

    fn expiry(&mut self) -> Option<Expiry> {
        match self.byte()? {
            0 => Some(Expiry::Clear),
            1 => Some(Expiry::Keep),
            2 => self.when().map(Expiry::At),
            3 => Some(Expiry::NotANumber),
            _ => None,
        }
    }

    fn set_form(&mut self) -> Option<SetForm> {
        const FORMS: [SetForm; 5] = [
            SetForm::Set,
            SetForm::SetGet,
            SetForm::SetNx,
            SetForm::SetEx,
            SetForm::PSetEx,
        ];
        FORMS.get(usize::from(self.byte()?)).copied()
    }

    fn condition(&mut self) -> Option<Condition> {
        const CONDITIONS: [Condition; 3] = [
            Condition::Always,
            Condition::IfMissing,
            Condition::IfPresent,
        ];
        CONDITIONS.get(usize::from(self.byte()?)).copied()
    }

    /// A number or, within, `None` for an infinite one.
    fn long_double(&mut self) -> Option<Option<LongDouble>> {
        let negative = match self.byte()? {
            2 => return Some(None),
            sign @ 0..=1 => sign == 1,
            _ => return None,
        };
        let mantissa = self.u64()?;
        LongDouble::from_parts(negative, mantissa, self.take().map(i32::from_le_bytes)?).map(Some)
    }

    fn only(&mut self) -> Option<Only> {
        Some(Only {
            missing: self.flag()?,
            present: self.flag()?,
            greater: self.flag()?,
            less: self.flag()?,
        })
    }

    fn scan(&mut self) -> Option<Op<&'a [u8]>> {
        const KINDS: [Kind; 4] = [Kind::Other, Kind::Any, Kind::String, Kind::Stream];
        let (cursor, count) = (self.u64()?, self.u64()?);
        let kind = *KINDS.get(usize::from(self.byte()?))?;
        let pattern = if self.flag()? {
            Some(self.bytes()?)
        } else {
            None
        };
        (count > 0).then_some(Op::Scan {
            cursor,
            count,
            kind,
            pattern,
        })
    }

    /// The fields are decoded in the order in which they are written here.
    fn op(&mut self) -> Option<Op<&'a [u8]>> {
        Some(match self.byte()? {
            0 => Op::Fail(self.bytes()?),
            1 => Op::Get(self.bytes()?),
            2 => Op::MGet(self.keys()?),
            3 => Op::Exists(self.keys()?),
            4 => Op::StrLen(self.bytes()?),
            5 => Op::GetRange {
                key: self.bytes()?,
                start: self.i64()?,
                end: self.i64()?,
            },
            6 => Op::Ttl {
                key: self.bytes()?,
                seconds: self.flag()?,
                relative: self.flag()?,
            },
            7 => Op::Type(self.bytes()?),
            8 => Op::DbSize,
            9 => Op::Keys(self.bytes()?),
            10 => self.scan()?,
            11 => Op::RandomKey,
            tag @ stream::LEN..=stream::TAILS => Op::StreamRead(stream::decode_ask(tag, self)?),
            17 => Op::Object {
                key: self.bytes()?,
                fact: *Fact::ALL.get(usize::from(self.byte()?))?,
            },
            18 => Op::Expiring,
            32 => Op::Set {
                key: self.bytes()?,
                value: self.bytes()?,
                form: self.set_form()?,
                condition: self.condition()?,
                expiry: self.expiry()?,
            },
            33 => Op::MSet(self.pairs()?),
            34 => Op::MSetNx(self.pairs()?),
            35 => Op::GetDel(self.bytes()?),
            36 => Op::GetEx {
                key: self.bytes()?,
                expiry: self.expiry()?,
            },
            37 => Op::Del(self.keys()?),
            38 => Op::IncrBy {
                key: self.bytes()?,
                by: self.i64()?,
            },
            39 => Op::IncrByFloat {
                key: self.bytes()?,
                by: self.long_double()?,
            },
            40 => Op::Append {
                key: self.bytes()?,
                value: self.bytes()?,
            },
            41 => Op::SetRange {
                key: self.bytes()?,
                offset: self.u64()?,
                value: self.bytes()?,
            },
            42 => Op::Expire {
                key: self.bytes()?,
                when: self.when()?,
                only: self.only()?,
            },
            43 => Op::Persist(self.bytes()?),
            44 => Op::Rename {
                from: self.bytes()?,
                to: self.bytes()?,
                only_new: self.flag()?,
            },
            45 => Op::Copy {
                from: self.bytes()?,
                to: self.bytes()?,
                replace: self.flag()?,
            },
            46 => Op::FlushAll,
            tag @ stream::ADD..=stream::SET_ID => Op::StreamWrite(stream::decode_deed(tag, self)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
