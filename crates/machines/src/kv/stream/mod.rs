//! Streams: the second type of value. A stream is a log of entries, each with an ID that is greater
//! than those before and with fields and values.
//!
//! The commands are those of Redis 7 without consumer groups. `XADD key 0-* field value` gives the
//! entries the IDs `0-1`, `0-2`, `0-3`, ...: positions without gaps. Where a stream differs from
//! Redis: trimming with `~` removes multiples of [`NODE`] entries, whatever their size is.

pub(super) mod codec;
mod entries;
mod id;
pub(super) mod parse;
pub(super) mod read;
pub(super) mod write;

pub(super) use entries::{IN_GROUP, Item, is_body};
pub(super) use id::Id;

use entries::Entries;

/// Trimming with `~` removes entries in such portions. Redis removes whole nodes, which have this
/// many entries if these are small.
const NODE: u64 = 100;

/// Bytes of one stream in the reply to XREAD, besides its key and its entries.
const STREAM_IN_REPLY: usize = 32;

/// What a stream is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask<B> {
    /// XLEN.
    Len(B),
    /// XRANGE, and XREVRANGE if `reverse`.
    Range {
        key: B,
        from: Id,
        to: Id,
        /// At most this many; all if there is none.
        count: Option<u64>,
        reverse: bool,
    },
    /// XREAD.
    Read {
        streams: Vec<(B, After)>,
        /// At most this many of each; zero for all.
        count: u64,
        /// The argument of BLOCK in milliseconds, zero for no end. The machine does not wait. With
        /// BLOCK it answers, instead of null, the IDs after which the client waits.
        block: Option<u64>,
        /// Whether the reply is a map of RESP3.
        maps: bool,
    },
    /// XINFO STREAM.
    Info { key: B, maps: bool },
    /// The greatest ID of each of these streams; `0-0` if there is none.
    Tails(Vec<B>),
}

/// After which ID a client reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Id(Id),
    /// `$`: after what the stream has now.
    Last,
}

/// What changes a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed<B> {
    /// XADD.
    Add {
        key: B,
        /// Whether a missing stream is created: not with NOMKSTREAM.
        create: bool,
        id: NewId,
        trim: Option<Trim>,
        /// Fields and values in turn.
        words: Vec<B>,
    },
    /// XTRIM.
    Trim { key: B, trim: Trim },
    /// XDEL.
    Delete { key: B, ids: Vec<Id> },
    /// XSETID.
    SetId {
        key: B,
        id: Id,
        added: Option<u64>,
        max_deleted: Option<Id>,
    },
}

/// The ID that XADD gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// `*`: the time of the log.
    Time,
    /// `ms-*`: the next one of this millisecond.
    Next(u64),
    Exactly(Id),
}

/// What is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) keep: Keep,
    /// With `~`: whole portions of [`NODE`] entries, and at most this many entries if it is not
    /// zero.
    pub(super) roughly: Option<u64>,
}

/// Which entries remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// MAXLEN: the last ones, this many.
    Newest(u64),
    /// MINID: those from this ID on.
    From(Id),
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    entries: Entries,
    /// The greatest ID that was ever given, or the one that XSETID gave.
    last: Id,
    /// The greatest ID of those that XDEL removed.
    max_deleted: Id,
    /// How many entries were ever added.
    added: u64,
}

/// What a stream knows besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last: Id,
    pub(super) max_deleted: Id,
    pub(super) added: u64,
}

impl Stream {
    /// A stream without entries.
    pub(super) fn new(head: Head) -> Stream {
        Stream {
            entries: Entries::default(),
            last: head.last,
            max_deleted: head.max_deleted,
            added: head.added,
        }
    }

    pub(super) fn head(&self) -> Head {
        Head {
            last: self.last,
            max_deleted: self.max_deleted,
            added: self.added,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes the entries take in memory, roughly and on all machines alike.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// The entries from this ID on.
    pub(super) fn from(&self, id: Id) -> impl Iterator<Item = &Item> {
        self.entries.from(id)
    }

    /// How many entries have smaller IDs than this one.
    pub(super) fn count_before(&self, id: Id) -> u64 {
        self.entries.count_before(id) as u64
    }

    /// Puts in an entry of a snapshot; false if its ID is out of order.
    pub(super) fn restore(&mut self, item: Item) -> bool {
        let last = self.entries.last().map_or(Id::MIN, |last| last.id);
        let in_order = last < item.id && item.id <= self.last;
        if in_order {
            self.entries.push(item);
        }
        in_order
    }

    /// How many entries a trim removes.
    pub(super) fn excess(&self, trim: Trim) -> u64 {
        let len = self.len() as u64;
        let excess = match trim.keep {
            Keep::Newest(count) => len.saturating_sub(count),
            Keep::From(id) => self.count_before(id),
        };
        let allowed = match trim.roughly {
            None => return excess,
            Some(0) => excess,
            Some(limit) => excess.min(limit),
        };
        // The last portion may have fewer entries.
        if allowed == len {
            return len;
        }
        allowed / NODE * NODE
    }

    /// The ID of the next entry; `None` if it would not be greater than all before.
    fn next_id(&self, id: NewId, now: u64) -> Option<Id> {
        let id = match id {
            NewId::Time if now > self.last.ms => Id { ms: now, seq: 0 },
            NewId::Time => self.last.next()?,
            NewId::Next(ms) if ms == self.last.ms => Id {
                ms,
                seq: self.last.seq.checked_add(1)?,
            },
            NewId::Next(ms) => Id { ms, seq: 0 },
            NewId::Exactly(id) => id,
        };
        (id > self.last).then_some(id)
    }
}

impl<B> Ask<B> {
    /// The keys that it reads.
    pub(super) fn keys(&self) -> impl Iterator<Item = &B> {
        let (one, streams, keys) = match self {
            Ask::Len(key) | Ask::Range { key, .. } | Ask::Info { key, .. } => {
                (Some(key), &[][..], &[][..])
            }
            Ask::Read { streams, .. } => (None, &streams[..], &[][..]),
            Ask::Tails(keys) => (None, &[][..], &keys[..]),
        };
        let streams = streams.iter().map(|(key, _)| key);
        one.into_iter().chain(streams).chain(keys)
    }
}

impl<B> Deed<B> {
    /// The key that it writes.
    pub(super) fn key(&self) -> &B {
        match self {
            Deed::Add { key, .. }
            | Deed::Trim { key, .. }
            | Deed::Delete { key, .. }
            | Deed::SetId { key, .. } => key,
        }
    }

    /// Whether it may need more memory.
    pub(super) fn grows(&self) -> bool {
        matches!(self, Deed::Add { .. } | Deed::SetId { .. })
    }

    /// Whether it uses the time of the log.
    pub(super) fn is_timed(&self) -> bool {
        matches!(
            self,
            Deed::Add {
                id: NewId::Time,
                ..
            }
        )
    }
}
