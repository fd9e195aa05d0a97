//! Commands and replies, as bytes.

/// A command, or a query if it changes nothing. Keys and values are any 8-byte numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answers [`Reply::Value`], or [`Reply::NotFound`].
    Read {
        /// The key.
        key: u64,
    },
    /// Replaces the value of a key: [`Reply::Done`], or [`Reply::NotFound`].
    Update {
        /// The key.
        key: u64,
        /// Its value from now on.
        value: u64,
    },
    /// Adds a key: [`Reply::Done`], or [`Reply::Exists`], and the key keeps its value.
    Insert {
        /// The key.
        key: u64,
        /// Its value.
        value: u64,
    },
    /// Removes a key: [`Reply::Done`], or [`Reply::NotFound`].
    Delete {
        /// The key.
        key: u64,
    },
    /// Answers [`Reply::Entries`] with the first entries whose keys lie between two keys.
    Scan {
        /// The least key.
        from: u64,
        /// The largest key.
        to: u64,
        /// How many entries, at most [`MAX_SCAN`]: the reply to a larger limit has that many.
        limit: u32,
    },
    /// Answers the number of keys as a [`Reply::Value`].
    Count,
}

/// The most entries in the reply to a scan, which is then 16 KiB long.
pub const MAX_SCAN: u32 = 1024;

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The change was made.
    Done,
    /// The value of a key, or the number of keys.
    Value(u64),
    /// The key is not there. Nothing was changed.
    NotFound,
    /// The key is there already. Nothing was changed.
    Exists,
    /// The bytes are not a command. Nothing was changed.
    Malformed,
    /// The entries of a scan.
    Entries {
        /// Keys in ascending order, and their values.
        entries: Vec<(u64, u64)>,
        /// Whether there are more: the next scan begins behind the last key.
        more: bool,
    },
}

/// The number of a kind of command: the first byte of a command, and its index in a table of
/// dependencies.
pub mod kind {
    /// The number of [`Read`](super::Command::Read).
    pub const READ: usize = 0;
    /// The number of [`Update`](super::Command::Update).
    pub const UPDATE: usize = 1;
    /// The number of [`Insert`](super::Command::Insert).
    pub const INSERT: usize = 2;
    /// The number of [`Delete`](super::Command::Delete).
    pub const DELETE: usize = 3;
    /// The number of [`Scan`](super::Command::Scan).
    pub const SCAN: usize = 4;
    /// The number of [`Count`](super::Command::Count).
    pub const COUNT: usize = 5;
}

impl Command {
    /// The kind of the command, of those in [`kind`].
    pub fn kind(&self) -> usize {
        match self {
            Command::Read { .. } => kind::READ,
            Command::Update { .. } => kind::UPDATE,
            Command::Insert { .. } => kind::INSERT,
            Command::Delete { .. } => kind::DELETE,
            Command::Scan { .. } => kind::SCAN,
            Command::Count => kind::COUNT,
        }
    }

    /// The key that the command names, if it names one.
    pub fn key(&self) -> Option<u64> {
        match *self {
            Command::Read { key }
            | Command::Update { key, .. }
            | Command::Insert { key, .. }
            | Command::Delete { key } => Some(key),
            Command::Scan { .. } | Command::Count => None,
        }
    }

    /// Whether the command changes nothing, so that it can be a query.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Command::Read { .. } | Command::Scan { .. } | Command::Count
        )
    }

    /// The bytes of the command.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.kind() as u8];
        let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        match *self {
            Command::Read { key } | Command::Delete { key } => put(key),
            Command::Update { key, value } | Command::Insert { key, value } => {
                put(key);
                put(value);
            }
            Command::Scan { from, to, limit } => {
                put(from);
                put(to);
                out.extend_from_slice(&limit.to_le_bytes());
            }
            Command::Count => {}
        }
        out
    }

    /// The command with these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Command> {
        let (kind, rest) = bytes.split_first()?;
        let (numbers, rest) = rest.as_chunks();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next();
        let command = match usize::from(*kind) {
            kind::READ => Command::Read { key: next()? },
            kind::UPDATE => Command::Update {
                key: next()?,
                value: next()?,
            },
            kind::INSERT => Command::Insert {
                key: next()?,
                value: next()?,
            },
            kind::DELETE => Command::Delete { key: next()? },
            kind::SCAN => Command::Scan {
                from: next()?,
                to: next()?,
                limit: u32::from_le_bytes(rest.try_into().ok()?),
            },
            kind::COUNT => Command::Count,
            _ => return None,
        };
        let is_whole = rest.is_empty() || matches!(command, Command::Scan { .. });
        (next().is_none() && is_whole).then_some(command)
    }
}

/// The first bytes of replies.
const DONE: u8 = 0;
const VALUE: u8 = 1;
const NOT_FOUND: u8 = 2;
const EXISTS: u8 = 3;
const MALFORMED: u8 = 4;
const ENTRIES: u8 = 5;
const MORE: u8 = 6;

impl Reply {
    /// Appends the bytes of the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Done => out.push(DONE),
            Reply::Value(value) => {
                out.push(VALUE);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Reply::NotFound => out.push(NOT_FOUND),
            Reply::Exists => out.push(EXISTS),
            Reply::Malformed => out.push(MALFORMED),
            Reply::Entries { entries, more } => {
                out.push(if *more { MORE } else { ENTRIES });
                for (key, value) in entries {
                    out.extend_from_slice(&key.to_le_bytes());
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    /// The reply with these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let (first, rest) = bytes.split_first()?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some(match (*first, rest) {
            (DONE, []) => Reply::Done,
            (VALUE, rest) => Reply::Value(number(rest)?),
            (NOT_FOUND, []) => Reply::NotFound,
            (EXISTS, []) => Reply::Exists,
            (MALFORMED, []) => Reply::Malformed,
            (ENTRIES | MORE, rest) => {
                let entries = rest.chunks(16).map(|entry| {
                    let (key, value) = entry.split_at_checked(8)?;
                    Some((number(key)?, number(value)?))
                });
                Reply::Entries {
                    entries: entries.collect::<Option<_>>()?,
                    more: *first == MORE,
                }
            }
            _ => return None,
        })
    }
}
