//! A shared log for any number of writers and readers, in a cluster of [`Kv`](crate::Kv) machines.

use crate::{Client, ReadLevel, Refusal};
use bytes::Bytes;
use ionian_machines::kv::{Compound, log};
use std::collections::VecDeque;
use std::time::Duration;

pub use log::{Position, Unexpected};

/// A subscription reads this many entries at once, unless they are large.
const AT_ONCE: u64 = 1000;

/// [`SharedLog::read`] asks for at most this many entries. If their replies are too large, it asks
/// for half as many, then again.
const MOST: u64 = 1 << 20;

/// The pauses between two questions of a subscription that has read everything: each is twice the
/// one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A shared log. Entries have the positions 1, 2, 3, ... without gaps, in the order in which the
/// cluster executed the appends. Clones are handles of the same log.
///
/// It is the stream `name` of the key-value machine, in which a Redis client appends with
/// `XADD name 0-* e ENTRY`. An entry that another client appends with another ID, such as that of
/// `XADD name *`, is the last one of the log: reads give what precedes it, and later appends fail.
/// After `DEL name`, and whatever else removes the key, positions begin with 1 again.
#[derive(Clone)]
pub struct SharedLog {
    client: Client,
    name: Bytes,
}

/// Why a log did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SharedLogError {
    /// The cluster refused the command; the refusal says whether it may have been executed.
    #[error("{0}")]
    Refused(Refusal),
    /// The key is not such a log, or its machine is not [`Kv`](crate::Kv).
    #[error("the machine answered something else than a log: {0:?}")]
    NoLog(Unexpected),
}

impl From<Refusal> for SharedLogError {
    fn from(refusal: Refusal) -> Self {
        SharedLogError::Refused(refusal)
    }
}

impl From<Unexpected> for SharedLogError {
    fn from(unexpected: Unexpected) -> Self {
        SharedLogError::NoLog(unexpected)
    }
}

type Result<T> = std::result::Result<T, SharedLogError>;

fn payload(compound: &Compound) -> Bytes {
    compound.encode().into()
}

impl SharedLog {
    /// The log of this name. It need not exist: the first append creates it.
    pub fn new(client: Client, name: impl Into<Bytes>) -> Self {
        SharedLog {
            client,
            name: name.into(),
        }
    }

    /// Appends an entry, exactly once, and returns its position.
    ///
    /// # Errors
    /// When the cluster refuses it, or the key is no log. After [`Refusal::Unknown`] the entry may
    /// have been appended.
    pub async fn append(&self, entry: impl Into<Bytes>) -> Result<Position> {
        let positions = self.append_all([entry]).await?;
        positions
            .first()
            .copied()
            .ok_or(Unexpected::Malformed.into())
    }

    /// Appends entries as one command: all or none, at positions that follow one another.
    ///
    /// # Errors
    /// As [`append`](Self::append); [`Refusal::TooLarge`] if they do not fit into one command.
    pub async fn append_all<E: Into<Bytes>>(
        &self,
        entries: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Position>> {
        let entries = entries.into_iter().map(Into::into);
        let compound = log::append(&self.name, entries);
        Ok(log::appended(self.client.write(payload(&compound)).await?)?)
    }

    /// Reads the entries at `from` and behind it, at most `limit` of them and at most 1,048,576, or
    /// fewer if they are large. It sees every append that was acknowledged before, also through
    /// other nodes. Entries that were trimmed are left out.
    ///
    /// # Errors
    /// When the cluster refuses it, or the key is no log.
    pub async fn read(&self, from: Position, limit: u64) -> Result<Vec<(Position, Bytes)>> {
        self.read_at(from, limit, ReadLevel::Linearizable).await
    }

    async fn read_at(
        &self,
        from: Position,
        limit: u64,
        level: ReadLevel,
    ) -> Result<Vec<(Position, Bytes)>> {
        let mut limit = limit.min(MOST);
        loop {
            let query = payload(&log::read(&self.name, from, limit));
            match log::entries(&self.client.read(query, level).await?) {
                Err(Unexpected::TooLarge) if limit > 1 => limit /= 2,
                entries => return Ok(entries?),
            }
        }
    }

    /// Reads all entries at `from` and behind it, and those that are appended later: each once, in
    /// the order of the positions, without gaps unless entries are trimmed before they are read.
    pub fn subscribe(&self, from: Position) -> Subscription {
        Subscription {
            log: self.clone(),
            next: Some(from),
            entries: VecDeque::new(),
        }
    }

    /// Removes the entries before `up_to`, and returns how many there were. Their positions are not
    /// given again.
    ///
    /// # Errors
    /// When the cluster refuses it, or the key is no log.
    pub async fn trim(&self, up_to: Position) -> Result<u64> {
        let compound = log::trim(&self.name, up_to);
        Ok(log::trimmed(self.client.write(payload(&compound)).await?)?)
    }
}

/// The entries of a log from some position on, without an end.
pub struct Subscription {
    log: SharedLog,
    next: Option<Position>,
    entries: VecDeque<(Position, Bytes)>,
}

impl Subscription {
    /// The position from which it goes on; `None` after the entry at the greatest position.
    pub fn next_position(&self) -> Option<Position> {
        self.next
    }

    /// The next entry, as soon as there is one; never after the entry at the greatest position, as
    /// the log cannot grow behind it. Call it in a tokio runtime with timers. If it is
    /// cancelled, no entry is lost.
    ///
    /// It asks a replica with sequential reads: while it has read everything, after pauses of one
    /// to fifty milliseconds.
    ///
    /// # Errors
    /// When the cluster refuses a read, or the key is no log. The next call goes on at the same
    /// position.
    pub async fn next(&mut self) -> Result<(Position, Bytes)> {
        let mut pause = PAUSES.0;
        loop {
            if let Some((position, entry)) = self.entries.pop_front() {
                self.next = position.checked_add(1);
                return Ok((position, entry));
            }
            let Some(next) = self.next else {
                return std::future::pending().await;
            };
            let found = self.log.read_at(next, AT_ONCE, ReadLevel::Sequential);
            self.entries = found.await?.into();
            if self.entries.is_empty() {
                tokio::time::sleep(pause).await;
                pause = PAUSES.1.min(pause * 2);
            }
        }
    }
}
