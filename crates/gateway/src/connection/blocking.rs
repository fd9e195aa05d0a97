//! XREAD with BLOCK: a command that is answered when a stream grows, or when its time is over.
//!
//! ```text
//! XREAD BLOCK -> asked -> something to read: answered
//!                  ^  \-> nothing: waits for `ask_again`, which `waiting.rs` calls
//!                  \____________/
//! ```
//!
//! While a client waits, its further commands wait behind it, as in Redis.

use super::{Connection, Note};
use crate::transaction::Expected;
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_machines::kv::{Command, Compound};
use std::time::{Duration, Instant};

/// A client that waits asks again after this time, at its own level, although nothing has grown.
/// So a client of a gateway that is cut off from the cluster learns of it.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// After an answer without entries, or a refusal, a client that waits is woken no sooner. A replica
/// that is behind the one that the gateway asks may answer many times without them.
const REST: Duration = Duration::from_millis(50);

/// Memory of each stream that a client waits for, besides its name: in the command, which also gets
/// an ID, and in the gateway's table.
const BYTES_PER_STREAM: usize = 160;

/// A command that waits, or may.
pub(super) struct Blocked {
    command: Command,
    /// The streams that it names.
    keys: Vec<Bytes>,
    /// Memory of all this.
    bytes: usize,
    /// When it is answered in any case.
    deadline: Option<Instant>,
    asked_at: Instant,
    /// Whether there was nothing to read. Otherwise its request is in flight.
    waits: bool,
    /// From when on it may be woken; `None` before the first answer.
    rests_until: Option<Instant>,
}

impl Connection {
    /// Asks for what XREAD with BLOCK reads; nothing is in flight.
    pub(super) fn block(&mut self, command: Command, note: Note) {
        let now = Instant::now();
        let ms = command.block_ms().filter(|ms| *ms > 0);
        let keys = command.read_keys();
        let tracked = note.tracked.iter();
        let tracked: usize = tracked.map(|key| key.len() + size_of::<Bytes>()).sum();
        // The table has names of its own.
        let bytes = 2 * command.encoded_len() + keys.len() * BYTES_PER_STREAM + tracked;
        self.host.awaited.borrow_mut().add(&keys);
        self.client.blocked.set(true);
        // The rest would retain the whole read.
        self.input = Bytes::copy_from_slice(&self.input);
        self.blocked = Some(Blocked {
            // A deadline that no clock can express is none.
            deadline: ms.and_then(|ms| now.checked_add(Duration::from_millis(ms))),
            keys,
            bytes: bytes + size_of::<Blocked>(),
            command: command.clone(),
            asked_at: now,
            waits: false,
            rests_until: None,
        });
        self.flight_notes = vec![note];
        self.ask(command);
    }

    fn ask(&mut self, mut command: Command) {
        let mut judged = None;
        if let Some(note) = self.flight_notes.first_mut() {
            if let Err(text) = note.judgement.renew(&self.host, &self.client) {
                command = Command::refused(text);
            }
            judged = Some(note.judgement.epoch());
        }
        self.submit(&Compound::Pipeline(vec![command]), judged);
        self.flight = Some(Expected::Blocking);
    }

    /// Takes the reply to such a command: true if there is nothing to read, or if the cluster was
    /// too busy to answer a client that has waited before, so that the client waits; false if the
    /// reply is the client's.
    pub(super) fn waits_after(
        &mut self,
        outcome: &Result<Bytes, Refusal>,
        notes: &mut Vec<Note>,
    ) -> bool {
        let now = Instant::now();
        let Some(blocked) = &mut self.blocked else {
            return false;
        };
        match outcome {
            Ok(reply) => {
                let ids = reply
                    .strip_prefix(b"+")
                    .and_then(|rest| rest.strip_suffix(b"\r\n"));
                let Some(next) = ids.and_then(|ids| blocked.command.read_after(ids)) else {
                    return false;
                };
                blocked.command = next;
            }
            Err(Refusal::Busy) => {
                let has_time = blocked.deadline.is_none_or(|deadline| now < deadline);
                if blocked.rests_until.is_none() || !has_time {
                    return false;
                }
            }
            Err(_) => return false,
        }
        // The first answer comes before anything was known of the streams.
        let rest = if blocked.rests_until.is_some() {
            REST
        } else {
            Duration::ZERO
        };
        blocked.rests_until = Some(now + rest);
        blocked.waits = true;
        self.flight_notes = std::mem::take(notes);
        // As in Redis, a client that is gone waits for nothing.
        self.closing |= self.ended;
        true
    }

    /// The command is answered, or its client is gone.
    pub(super) fn unblock(&mut self) {
        if let Some(blocked) = self.blocked.take() {
            self.host.awaited.borrow_mut().remove(&blocked.keys);
            self.client.blocked.set(false);
        }
    }

    /// The memory of the command.
    pub(super) fn blocked_bytes(&self) -> usize {
        self.blocked.as_ref().map_or(0, |blocked| blocked.bytes)
    }

    /// The command of a client that waits until a stream grows.
    pub(crate) fn waits_for(&self) -> Option<&Command> {
        let blocked = self.blocked.as_ref().filter(|blocked| blocked.waits)?;
        Some(&blocked.command)
    }

    /// For a client that waits, but not without end: when it has waited long enough.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        let blocked = self.blocked.as_ref().filter(|blocked| blocked.waits)?;
        blocked.deadline
    }

    /// Asks again if a stream that the client waits for has grown, given the greatest IDs of
    /// streams. Returns whether it does; then [`advance`](Self::advance) is to follow.
    pub(crate) fn on_tails(&mut self, tail: impl Fn(&[u8]) -> Option<Bytes>) -> bool {
        let rested = |blocked: &&Blocked| {
            let rests = blocked
                .rests_until
                .is_some_and(|until| Instant::now() < until);
            blocked.waits && !rests
        };
        let blocked = self.blocked.as_ref().filter(rested);
        let asks = blocked.is_some_and(|blocked| blocked.command.reads_up_to(tail));
        if asks {
            self.ask_again(false);
        }
        asks
    }

    /// Asks again if the time is over, for the last time, or if it was asked long ago. `leaves`
    /// says that clients must leave: then the time is over at once. Returns whether it asks.
    pub(crate) fn on_waiting(&mut self, now: Instant, leaves: bool) -> bool {
        let Some(blocked) = self.blocked.as_ref().filter(|blocked| blocked.waits) else {
            return false;
        };
        let is_over = leaves || blocked.deadline.is_some_and(|deadline| deadline <= now);
        let asks = is_over || now.duration_since(blocked.asked_at) >= ASK_AT_LEAST_EVERY;
        if asks {
            self.ask_again(is_over);
        }
        asks
    }

    /// Asks again; if it is the last time, the reply is the client's in any case.
    fn ask_again(&mut self, is_last: bool) {
        let Some(blocked) = &mut self.blocked else {
            return;
        };
        blocked.waits = false;
        blocked.asked_at = Instant::now();
        let command = blocked.command.clone();
        self.ask(match is_last {
            true => command.without_block(),
            false => command,
        });
    }
}
