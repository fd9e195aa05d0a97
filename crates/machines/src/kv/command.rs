//! The commands, typed: what a client asked for, validated as far as that needs no state.

use super::budget::{self, GROWTH, WORK};
use super::codec;
use super::long_double::LongDouble;
use super::object::Fact;
use super::parse;
use super::stream::{After, Ask, Deed, Id};
use bytes::Bytes;
use ionian_kernel::level::Level;

/// No value grows beyond this: the counterpart of Redis's `proto-max-bulk-len`. Values live in
/// memory on every replica and travel through the log, which half a gigabyte would stall for
/// seconds.
pub const MAX_VALUE_LEN: usize = 64 << 20;

/// One parsed, validated command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command(pub(super) Op<Bytes>);

impl Command {
    /// The command that `argv` spells; `argv[0]` is the name, in any case.
    ///
    /// # Errors
    /// The text of Redis's error reply, without the leading `-` and without the line end.
    pub fn parse(argv: &[Bytes]) -> Result<Command, String> {
        match parse::parse(argv) {
            Ok(op) => Ok(Command(op)),
            Err(parse::Refused::AtOnce(text) | parse::Refused::WhenExecuted(text)) => Err(text),
        }
    }

    /// Parses a command that MULTI queues. Redis refuses there only commands that it does not know
    /// or that have the wrong number of arguments; other mistakes are answered by EXEC, in their
    /// place, and the commands around them are executed. Such a command is parsed to one that is a
    /// read and answers the error.
    ///
    /// # Errors
    /// The text of Redis's error reply, upon which EXEC has to be refused.
    pub fn parse_queued(argv: &[Bytes]) -> Result<Command, String> {
        match parse::parse(argv) {
            Ok(op) => Ok(Command(op).without_block()),
            Err(parse::Refused::AtOnce(text)) => Err(text),
            Err(parse::Refused::WhenExecuted(text)) => Ok(Command::refused(text)),
        }
    }

    /// The query for the greatest IDs of these streams: an array of them, `0-0` for what is no
    /// stream.
    pub fn tails(keys: Vec<Bytes>) -> Command {
        Command(Op::StreamRead(Ask::Tails(keys)))
    }

    /// How long XREAD with BLOCK waits, in milliseconds; zero means without end. The machine does
    /// not wait: if there is nothing to read, it answers a simple string with the IDs after which
    /// the streams are read, with spaces between them. Its caller waits, and asks [after
    /// these](Command::read_after) again.
    pub fn block_ms(&self) -> Option<u64> {
        match &self.0 {
            Op::StreamRead(Ask::Read { block, .. }) => *block,
            _ => None,
        }
    }

    /// The keys that XREAD reads; those of all other commands are where the table says.
    pub fn read_keys(&self) -> Vec<Bytes> {
        match &self.0 {
            Op::StreamRead(Ask::Read { streams, .. }) => {
                streams.iter().map(|(key, _)| key.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same XREAD after these IDs, one for each stream, as the answer to the one with BLOCK has
    /// them. `None` if they are something else.
    pub fn read_after(&self, ids: &[u8]) -> Option<Command> {
        let mut command = self.clone();
        if let Op::StreamRead(Ask::Read { streams, .. }) = &mut command.0 {
            let mut ids = ids.split(|byte| *byte == b' ');
            for (_, after) in streams {
                *after = After::Id(Id::parse(ids.next()?, 0)?);
            }
            return ids.next().is_none().then_some(command);
        }
        None
    }

    /// Whether XREAD would read something, given the [greatest IDs](Command::tails) of its streams.
    pub fn reads_up_to(&self, tail: impl Fn(&[u8]) -> Option<Bytes>) -> bool {
        let Op::StreamRead(Ask::Read { streams, .. }) = &self.0 else {
            return false;
        };
        streams.iter().any(|(key, after)| {
            let tail = tail(key).and_then(|tail| Id::parse(&tail, 0));
            matches!(after, After::Id(after) if tail > Some(*after))
        })
    }

    /// A read of how many keys have a deadline. Redis has no such command.
    pub fn expiring() -> Command {
        Command(Op::Expiring)
    }

    /// A read that answers this error: for a command that must not be executed, in its place.
    pub fn refused(text: String) -> Command {
        Command(Op::Fail(text.into()))
    }

    /// The same command without BLOCK.
    #[must_use]
    pub fn without_block(mut self) -> Command {
        if let Op::StreamRead(Ask::Read { block, .. }) = &mut self.0 {
            *block = None;
        }
        self
    }

    /// The same command for a client of RESP3, which gets maps where a client of RESP2 gets arrays.
    #[must_use]
    pub fn with_maps(mut self) -> Command {
        if let Op::StreamRead(Ask::Read { maps, .. } | Ask::Info { maps, .. }) = &mut self.0 {
            *maps = true;
        }
        self
    }

    /// Whether a client of RESP3 gets another reply than one of RESP2.
    pub fn has_maps(&self) -> bool {
        matches!(self.0, Op::StreamRead(Ask::Read { .. } | Ask::Info { .. }))
    }

    /// Whether the command leaves the state as it is.
    pub fn is_read(&self) -> bool {
        self.0.is_read()
    }

    /// The level of the cluster since which its replicas know the command.
    pub fn since(&self) -> Level {
        self.0.since()
    }

    /// The bytes that the command takes in the log.
    pub fn encoded_len(&self) -> usize {
        codec::encoded_len(&self.0)
    }
}

/// What is executed as one: nothing happens between its parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Compound {
    /// Commands each for itself; the reply is that of the first, then that of the second, and so
    /// on.
    Pipeline(Vec<Command>),
    /// MULTI ... EXEC: all commands, if the watched keys still have the given versions, else none.
    Transaction {
        /// Keys and the versions that they had when they were watched.
        watched: Vec<(Bytes, u64)>,
        /// What is executed, each command for itself: the error of one does not undo another.
        commands: Vec<Command>,
    },
    /// The versions of keys, for WATCH: an array of integers. A key that was changed, or came and
    /// went, has another one.
    Versions(Vec<Bytes>),
    /// ACL SETUSER: changes a user by rules in their order, all or none. Passwords are hashes.
    /// The reply is that of Redis. From level 18 on.
    SetUser {
        /// The name of the user.
        name: Bytes,
        /// The rules.
        rules: Vec<Bytes>,
    },
    /// ACL DELUSER: the reply is that of Redis. From level 18 on.
    DeleteUsers(Vec<Bytes>),
    /// The users of the cluster, unless this epoch of them is the present one
    /// ([`known_users`](super::known_users)). From level 18 on.
    Users {
        /// The epoch that is known; the greatest number if none is.
        known: u64,
    },
    /// Sets how many bytes keys and values may take, zero for any number, and measures how many
    /// they take. The reply is that of Redis. From level 18 on.
    SetLimit(u64),
    /// Measures how many bytes keys and values take. The reply is that of `Room`. From level 18 on.
    Measure,
    /// The limit, and how much was used when it was measured last
    /// ([`Room::of_reply`](super::Room::of_reply)). From level 18 on.
    Room,
}

/// What the commands of a compound may do besides what their own bytes pay for, at most, whatever
/// the state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The steps that each replica takes: elements that are looked at, and each 128 bytes that are
    /// copied.
    pub work: u64,
    /// The steps of a read, which one replica takes.
    pub read: u64,
    /// By how many bytes the state may grow.
    pub growth: u64,
}

impl Demand {
    /// The most work of any compound.
    pub const MOST_WORK: u64 = WORK;
}

impl Compound {
    /// Whether the state is left as it is, so that the compound may be sent as a read.
    pub fn is_read(&self) -> bool {
        match self {
            Compound::Pipeline(commands) | Compound::Transaction { commands, .. } => {
                commands.iter().all(Command::is_read)
            }
            Compound::Versions(_) | Compound::Users { .. } | Compound::Room => true,
            Compound::SetUser { .. }
            | Compound::DeleteUsers(_)
            | Compound::SetLimit(_)
            | Compound::Measure => false,
        }
    }

    /// What it may do besides what its bytes pay for, at most.
    pub fn demand(&self) -> Demand {
        let mut demand = Demand::default();
        if let Compound::Pipeline(commands) | Compound::Transaction { commands, .. } = self {
            let is_read = self.is_read();
            for Command(op) in commands {
                demand.growth = demand.growth.saturating_add(op.growth()).min(GROWTH);
                let steps = match is_read {
                    false => &mut demand.work,
                    true if budget::looks(op) => &mut demand.read,
                    // A reply pays for the rest of what is only read.
                    true => continue,
                };
                *steps = steps.saturating_add(budget::most(op)).min(WORK);
            }
        }
        demand
    }

    /// The bytes of the state machine command, or of the query if it is a read.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_at(0)
    }

    /// The same, judged at this epoch of the users: as [`judged_at`](super::judged_at) makes it of
    /// an encoding.
    pub fn encode_at(&self, epoch: u64) -> Vec<u8> {
        codec::encode(self, epoch)
    }
}

/// A command over bytes of either kind: shared ones when it comes from a client, borrowed ones when
/// it comes from the log, so that executing it copies nothing but what the map keeps.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op<B> {
    // Reads.
    /// Answers an error: see `Command::parse_queued`.
    Fail(B),
    Get(B),
    MGet(Vec<B>),
    /// EXISTS and TOUCH.
    Exists(Vec<B>),
    StrLen(B),
    /// GETRANGE and SUBSTR.
    GetRange {
        key: B,
        start: i64,
        end: i64,
    },
    /// TTL, PTTL, EXPIRETIME, PEXPIRETIME.
    Ttl {
        key: B,
        seconds: bool,
        relative: bool,
    },
    Type(B),
    DbSize,
    /// How many keys have a deadline. From level 18 on.
    Expiring,
    Keys(B),
    Scan {
        cursor: u64,
        count: u64,
        kind: Kind,
        pattern: Option<B>,
    },
    RandomKey,
    /// MEMORY USAGE, and OBJECT. From level 18 on.
    Object {
        key: B,
        fact: Fact,
    },
    /// The commands on streams that change nothing.
    StreamRead(Ask<B>),
    // Writes.
    Set {
        key: B,
        value: B,
        form: SetForm,
        condition: Condition,
        expiry: Expiry,
    },
    MSet(Vec<(B, B)>),
    MSetNx(Vec<(B, B)>),
    GetDel(B),
    GetEx {
        key: B,
        expiry: Expiry,
    },
    /// DEL and UNLINK.
    Del(Vec<B>),
    /// INCR, DECR, INCRBY, DECRBY.
    IncrBy {
        key: B,
        by: i64,
    },
    IncrByFloat {
        key: B,
        /// `None` is an infinite one, which is refused, but only when the value is a number.
        by: Option<LongDouble>,
    },
    Append {
        key: B,
        value: B,
    },
    SetRange {
        key: B,
        offset: u64,
        value: B,
    },
    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT.
    Expire {
        key: B,
        when: When,
        only: Only,
    },
    Persist(B),
    /// RENAME, and RENAMENX if `only_new`.
    Rename {
        from: B,
        to: B,
        only_new: bool,
    },
    Copy {
        from: B,
        to: B,
        replace: bool,
    },
    /// FLUSHALL and FLUSHDB: there is one database.
    FlushAll,
    /// The commands on streams that change them.
    StreamWrite(Deed<B>),
}

/// The types of keys that SCAN lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No key has the type.
    Other,
    Any,
    String,
    Stream,
}

/// Which command sets the value: this decides on the reply, and on the name in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetForm {
    Set,
    /// SET with GET, and GETSET: answers the old value.
    SetGet,
    SetNx,
    SetEx,
    PSetEx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    IfMissing,
    IfPresent,
}

/// What becomes of the deadline of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Clear,
    Keep,
    At(When),
    /// Of GETEX: not a number, which is refused, but only when there is such a key.
    NotANumber,
}

/// A point in time as a client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) amount: i64,
    pub(super) seconds: bool,
    /// Counted from now, not from 1970.
    pub(super) relative: bool,
}

impl When {
    /// Whether SET and its relatives may accept it at some time.
    pub(super) fn is_possible(self) -> bool {
        self.amount > 0 && !(self.seconds && self.amount > i64::MAX / 1000)
    }

    /// The time in milliseconds since 1970; `None` if it is too large or too small to be said.
    pub(super) fn deadline(self, now: u64) -> Option<i64> {
        let amount = if self.seconds {
            self.amount.checked_mul(1000)?
        } else {
            self.amount
        };
        if !self.relative {
            return Some(amount);
        }
        amount.checked_add(i64::try_from(now).ok()?)
    }
}

/// The options of EXPIRE: with any of them set, the deadline is changed only if it is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Only {
    pub(super) missing: bool,
    pub(super) present: bool,
    pub(super) greater: bool,
    pub(super) less: bool,
}

impl<B> Op<B> {
    /// The one key of the commands that are most frequent.
    pub(super) fn key(&self) -> Option<&B> {
        match self {
            Op::Get(key) | Op::Set { key, .. } | Op::IncrBy { key, .. } => Some(key),
            Op::StreamWrite(deed) => Some(deed.key()),
            _ => None,
        }
    }

    pub(super) fn since(&self) -> Level {
        match self {
            Op::Object { .. } | Op::Expiring => Level(18),
            _ => Level::FIRST,
        }
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Op::Fail(_)
            | Op::Get(_)
            | Op::MGet(_)
            | Op::Exists(_)
            | Op::StrLen(_)
            | Op::GetRange { .. }
            | Op::Ttl { .. }
            | Op::Type(_)
            | Op::DbSize
            | Op::Expiring
            | Op::Keys(_)
            | Op::Scan { .. }
            | Op::RandomKey
            | Op::Object { .. }
            | Op::StreamRead(_) => true,
            Op::Set { .. }
            | Op::MSet(_)
            | Op::MSetNx(_)
            | Op::GetDel(_)
            | Op::GetEx { .. }
            | Op::Del(_)
            | Op::IncrBy { .. }
            | Op::IncrByFloat { .. }
            | Op::Append { .. }
            | Op::SetRange { .. }
            | Op::Expire { .. }
            | Op::Persist(_)
            | Op::Rename { .. }
            | Op::Copy { .. }
            | Op::FlushAll
            | Op::StreamWrite(_) => false,
        }
    }

    /// The key whose value is in the reply, if it is a write.
    pub(super) fn answers_value_of(&self) -> Option<&B> {
        match self {
            Op::Set { key, form, .. } if *form == SetForm::SetGet => Some(key),
            Op::GetEx { key, .. } | Op::GetDel(key) => Some(key),
            _ => None,
        }
    }

    /// By how many bytes it may let the state grow besides its own, whatever the state is.
    fn growth(&self) -> u64 {
        let most = MAX_VALUE_LEN as u64;
        match self {
            // What is beyond is refused.
            Op::SetRange { offset, .. } if *offset <= most => *offset,
            Op::Copy { .. } => most,
            _ => 0,
        }
    }

    /// Whether it may need more memory, so that it is refused when none is left: the flag `denyoom`
    /// of Redis.
    pub(super) fn grows(&self) -> bool {
        match self {
            Op::Set { .. }
            | Op::MSet(_)
            | Op::MSetNx(_)
            | Op::IncrBy { .. }
            | Op::IncrByFloat { .. }
            | Op::Append { .. }
            | Op::SetRange { .. }
            | Op::Copy { .. } => true,
            Op::StreamWrite(deed) => deed.grows(),
            _ => false,
        }
    }
}
