//! Batches of commands and of answers. Only the first and the last roles look inside; for all
//! others a batch is one slice of a receive buffer.

mod by_client;

use alloc::vec::Vec;
pub use by_client::AnswersByClient;
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Index, ReplicaId, SessionId, Slot};
use ionian_kernel::layout::Options;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{Reader, Wire, WireError, encode_varint, varint_len};
use ionian_kernel::wire_struct;

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The state machine executes it, once: it has a number in this session.
    Execute(SessionId),
    /// This session is still in use. The command has no number and no payload.
    KeepAlive(SessionId),
    /// It opens a session. Its number is a nonce that the answer repeats.
    Open,
    /// It changes the membership. It needs no session: the same change twice is one change.
    Change,
    /// It reads. It needs no session: it can be repeated at will.
    Read,
    /// A role of the protocol wrote it, and only that protocol's roles can read it.
    Internal,
}

/// The codes of purposes without a session; a session's code is its number and this many more.
const PURPOSES: u64 = 5;

impl Purpose {
    /// The session in which the command is executed or which it keeps open.
    pub fn session(self) -> Option<SessionId> {
        match self {
            Purpose::Execute(session) | Purpose::KeepAlive(session) => Some(session),
            Purpose::Open | Purpose::Change | Purpose::Read | Purpose::Internal => None,
        }
    }

    /// As [`put`](Self::put) writes it: a code, and a session where the code does not say which.
    fn code(self) -> (u64, Option<u64>) {
        match self {
            Purpose::Open => (0, None),
            Purpose::Change => (1, None),
            Purpose::Read => (2, None),
            Purpose::Internal => (3, None),
            Purpose::KeepAlive(session) => (4, Some(session.0)),
            Purpose::Execute(session) => (session.0.saturating_add(PURPOSES), None),
        }
    }

    fn byte_len(self) -> usize {
        let (code, session) = self.code();
        varint_len(code) + session.map_or(0, varint_len)
    }

    fn put(self, out: &mut Vec<u8>) {
        let (code, session) = self.code();
        encode_varint(code, out);
        if let Some(session) = session {
            encode_varint(session, out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match reader.varint()? {
            0 => Purpose::Open,
            1 => Purpose::Change,
            2 => Purpose::Read,
            3 => Purpose::Internal,
            4 => Purpose::KeepAlive(SessionId(reader.varint()?)),
            code => Purpose::Execute(SessionId(code - PURPOSES)),
        })
    }
}

/// Appends what is often short behind its length.
fn put_short(bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// How long the part is that comes next.
fn read_length(reader: &mut Reader<'_>) -> Result<usize, WireError> {
    usize::try_from(reader.varint()?).map_err(|_| WireError::Truncated)
}

/// One command of a client, with the id under which it is executed at most once. Its payload is
/// shared with the message that it came in, or (`P` being a slice) borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<P = Bytes> {
    /// The client lane that the answer goes to.
    pub client: ClientId,
    /// What it is for.
    pub purpose: Purpose,
    /// Its number. Those of a session start at 0 and leave no gaps; so do those of a lane's reads
    /// and changes.
    pub number: u64,
    /// The client has answers to all its commands below this number, and wants none of them again.
    pub floor: u64,
    /// Bytes for the state machine.
    pub payload: P,
}

impl<'a> Command<&'a [u8]> {
    /// Reads a command off the front, without counting a reference to its bytes.
    fn borrow(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let (client, purpose) = (ClientId::decode(reader)?, Purpose::read(reader)?);
        let (number, floor) = (reader.varint()?, reader.varint()?);
        let length = read_length(reader)?;
        Ok(Command {
            client,
            purpose,
            number,
            floor,
            payload: reader.take(length)?,
        })
    }

    /// The same, with a copy of its bytes.
    pub fn to_owned(&self) -> Command {
        let Command {
            client,
            purpose,
            number,
            floor,
            payload,
        } = *self;
        Command {
            client,
            purpose,
            number,
            floor,
            payload: Bytes::copy_from_slice(payload),
        }
    }
}

impl<P: AsRef<[u8]>> Command<P> {
    fn put(&self, out: &mut Vec<u8>) {
        // Exactly: a lone command's buffer is then as long as the command, and costs one
        // allocation.
        let length = self.payload.as_ref().len();
        let numbers = [self.number, self.floor, length as u64];
        let numbers_len: usize = numbers.map(varint_len).iter().sum();
        out.reserve(1 + self.purpose.byte_len() + numbers_len + length);
        self.client.encode(out);
        self.purpose.put(out);
        encode_varint(self.number, out);
        encode_varint(self.floor, out);
        put_short(self.payload.as_ref(), out);
    }
}

/// Commands one after the other; without any, it is the paper's noop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    count: u32,
    commands: Bytes,
}

wire_struct! { Batch { count, commands } }

impl Batch {
    /// A batch of one command.
    pub fn one(command: &Command) -> Self {
        let mut builder = BatchBuilder::default();
        builder.push(command);
        builder.take()
    }

    /// How many commands it says that it holds.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it is a noop.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes its commands take.
    pub fn byte_len(&self) -> usize {
        self.commands.len()
    }

    /// What is left of it behind the first `count` commands. It shares their memory.
    pub fn after(&self, count: usize) -> Batch {
        let mut reader = Reader::new(&self.commands);
        let skipped = (0..count)
            .take_while(|_| Command::borrow(&mut reader).is_ok())
            .count();
        let left = if skipped == count {
            reader.remaining()
        } else {
            0
        };
        let count = self.count.saturating_sub(count as u32);
        Batch {
            count,
            commands: self.commands.slice(self.commands.len() - left..),
        }
    }

    /// The bytes of its commands, shared.
    pub(crate) fn bytes(&self) -> Bytes {
        self.commands.clone()
    }

    /// Where in these bytes a part of one of its commands lies.
    pub(crate) fn place_of(&self, part: &[u8]) -> (u32, u32) {
        let start = part.as_ptr() as usize - self.commands.as_ptr() as usize;
        (start as u32, (start + part.len()) as u32)
    }

    /// The commands, in order. A malformed one ends the batch: the sender's mistake, which is
    /// the same on every replica and must not stop the log.
    pub fn commands(&self) -> impl Iterator<Item = Command<&[u8]>> {
        let mut reader = Reader::new(&self.commands);
        core::iter::from_fn(move || {
            (reader.remaining() > 0).then(|| Command::borrow(&mut reader).ok())?
        })
    }
}

/// Gathers commands into a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    count: u32,
    commands: Vec<u8>,
}

impl BatchBuilder {
    /// Adds a command.
    pub fn push<P: AsRef<[u8]>>(&mut self, command: &Command<P>) {
        command.put(&mut self.commands);
        self.count += 1;
    }

    /// Adds all commands of a batch, without looking inside.
    pub fn append(&mut self, batch: &Batch) {
        self.commands.extend_from_slice(&batch.commands);
        self.count += batch.count;
    }

    /// How many commands were added.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they take.
    pub fn byte_len(&self) -> usize {
        self.commands.len()
    }

    /// The batch; the builder is empty again.
    pub fn take(&mut self) -> Batch {
        let commands = Bytes::from(core::mem::take(&mut self.commands));
        Batch {
            count: core::mem::take(&mut self.count),
            commands,
        }
    }
}

/// A batch in the making, and since when. It closes on size, on time, or at once when little is
/// under way ahead of it: a lone command waits for nothing, and under load a batch grows to what
/// came in while earlier ones were served.
#[derive(Debug, Default)]
pub struct OpenBatch {
    builder: BatchBuilder,
    opened_at: Instant,
}

impl OpenBatch {
    /// Adds commands.
    pub fn append(&mut self, now: Instant, commands: &Batch) {
        if self.builder.is_empty() {
            self.opened_at = now;
        }
        self.builder.append(commands);
    }

    /// Adds one command.
    pub fn push(&mut self, now: Instant, command: &Command) {
        if self.builder.is_empty() {
            self.opened_at = now;
        }
        self.builder.push(command);
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// How many bytes it holds.
    pub fn byte_len(&self) -> usize {
        self.builder.byte_len()
    }

    /// Whether it is to be closed at the end of a burst, with this many batches in flight.
    pub fn is_due(&self, now: Instant, under_way: usize, options: &Options) -> bool {
        let idle = under_way < options.batches_in_flight;
        !self.is_empty()
            && (idle
                || self.is_full(options)
                || self.closes_at(options).is_some_and(|at| at <= now))
    }

    /// Whether it is to be closed at once.
    pub fn is_full(&self, options: &Options) -> bool {
        self.builder.len() >= options.batch_commands
            || self.builder.byte_len() >= options.batch_bytes
    }

    /// When it is to be closed at the latest.
    pub fn closes_at(&self, options: &Options) -> Option<Instant> {
        (!self.is_empty()).then(|| self.opened_at + options.batch_delay)
    }

    /// Closes it; a new one is open.
    pub fn take(&mut self) -> Batch {
        self.builder.take()
    }
}

/// What became of a command. The reply is shared with the message that it came in, or (`R` being a
/// slice) borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<R = Bytes> {
    /// The state machine's reply.
    Done(R),
    /// The session is open under this id.
    Opened(SessionId),
    /// The session is not known: it expired, or it never was. The command was not executed now.
    NoSession,
    /// The command came as a read and is none. It was not executed.
    NotARead,
    /// The state machine failed on the query, or was never given the command because it does.
    /// Nothing was executed.
    Failed,
}

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<R = Bytes> {
    /// The client lane that it goes to.
    pub client: ClientId,
    /// The purpose of the command.
    pub purpose: Purpose,
    /// The number of the command.
    pub number: u64,
    /// What became of it.
    pub outcome: Outcome<R>,
}

impl<R> Outcome<R> {
    fn put(&self, out: &mut Vec<u8>)
    where
        R: AsRef<[u8]>,
    {
        match self {
            Outcome::Done(reply) => {
                out.push(0);
                put_short(reply.as_ref(), out);
            }
            Outcome::Opened(session) => {
                out.push(1);
                session.encode(out);
            }
            Outcome::NoSession => out.push(2),
            Outcome::NotARead => out.push(3),
            Outcome::Failed => out.push(4),
        }
    }

    /// Reads one off the front; `reply` reads a reply of the given length.
    fn read<'a>(
        reader: &mut Reader<'a>,
        reply: impl FnOnce(&mut Reader<'a>, usize) -> Result<R, WireError>,
    ) -> Result<Self, WireError> {
        match u8::decode(reader)? {
            0 => {
                let length = read_length(reader)?;
                reply(reader, length).map(Outcome::Done)
            }
            1 => SessionId::decode(reader).map(Outcome::Opened),
            2 => Ok(Outcome::NoSession),
            3 => Ok(Outcome::NotARead),
            4 => Ok(Outcome::Failed),
            tag => Err(WireError::UnknownTag {
                what: "outcome",
                tag,
            }),
        }
    }
}

impl Wire for Outcome {
    fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Outcome::read(reader, Reader::slice)
    }
}

impl<R> Answer<R> {
    fn put(&self, out: &mut Vec<u8>)
    where
        R: AsRef<[u8]>,
    {
        self.client.encode(out);
        self.purpose.put(out);
        encode_varint(self.number, out);
        self.outcome.put(out);
    }

    /// Reads one off the front; `reply` reads a reply of the given length.
    fn read<'a>(
        reader: &mut Reader<'a>,
        reply: impl FnOnce(&mut Reader<'a>, usize) -> Result<R, WireError>,
    ) -> Result<Self, WireError> {
        let (client, purpose) = (ClientId::decode(reader)?, Purpose::read(reader)?);
        Ok(Answer {
            client,
            purpose,
            number: reader.varint()?,
            outcome: Outcome::read(reader, reply)?,
        })
    }
}

/// Answers of one replica, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The replica (or server) that gave them.
    pub from: Index,
    /// The slot after the last that was executed before they were given.
    pub executed: Slot,
    answers: Bytes,
}

impl Wire for Answers {
    fn encode(&self, out: &mut Vec<u8>) {
        self.from.encode(out);
        self.executed.encode(out);
        self.answers.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let ReplicaId(from) = Wire::decode(reader)?;
        Ok(Answers {
            from,
            executed: Wire::decode(reader)?,
            answers: Wire::decode(reader)?,
        })
    }
}

impl Answers {
    /// The answers, in order; a malformed one ends them.
    pub fn iter(&self) -> impl Iterator<Item = Answer> {
        let mut reader = Reader::new(&self.answers);
        core::iter::from_fn(move || {
            (reader.remaining() > 0).then(|| Answer::read(&mut reader, Reader::slice).ok())?
        })
    }

    /// As [`iter`](Self::iter), for a caller that keeps none of them.
    pub fn borrowed(&self) -> impl Iterator<Item = Answer<&[u8]>> {
        let mut reader = Reader::new(&self.answers);
        core::iter::from_fn(move || {
            (reader.remaining() > 0).then(|| Answer::read(&mut reader, Reader::take).ok())?
        })
    }
}

/// A value of the log: a batch and the time that the leader stamped on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The leader's time when it proposed the batch.
    pub stamp: ionian_kernel::time::Timestamp,
    /// The commands; none for a noop.
    pub batch: Batch,
}

wire_struct! { Value { stamp, batch } }
