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
use ionian_machines::kv::{Command, Compound};
use std::time::{Duration, Instant};

/// A client that waits asks again after this time, at its own level, although nothing has grown.
/// So a client of a gateway that is cut off from the cluster learns of it.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// A command that waits, or may.
pub(super) struct Blocked {
    command: Command,
    /// The number of streams that it names.
    streams: usize,
    /// When it is answered in any case.
    deadline: Option<Instant>,
    asked_at: Instant,
    /// Whether there was nothing to read. Otherwise its request is in flight.
    waits: bool,
}

impl Connection {
    /// Asks for what XREAD with BLOCK reads; nothing is in flight.
    pub(super) fn block(&mut self, command: Command, note: Note) {
        let now = Instant::now();
        let ms = command.block_ms().filter(|ms| *ms > 0);
        self.host.blocked.set(self.host.blocked.get() + 1);
        self.blocked = Some(Blocked {
            // A deadline that no clock can express is none.
            deadline: ms.and_then(|ms| now.checked_add(Duration::from_millis(ms))),
            streams: command.read_keys().len(),
            command: command.clone(),
            asked_at: now,
            waits: false,
        });
        self.flight_notes = vec![note];
        self.ask(command);
    }

    fn ask(&mut self, command: Command) {
        self.submit(&Compound::Pipeline(vec![command]));
        self.flight = Some(Expected::Blocking);
    }

    /// Takes the reply to such a command: true if there is nothing to read, so that the client
    /// waits; false if the reply is the client's.
    pub(super) fn waits_after(&mut self, reply: &[u8], notes: &mut Vec<Note>) -> bool {
        let ids = reply
            .strip_prefix(b"+")
            .and_then(|rest| rest.strip_suffix(b"\r\n"));
        let next = ids.and_then(|ids| self.blocked.as_ref()?.command.read_after(ids));
        let Some((blocked, next)) = self.blocked.as_mut().zip(next) else {
            return false;
        };
        blocked.command = next;
        blocked.waits = true;
        self.flight_notes = std::mem::take(notes);
        true
    }

    /// The command is answered, or its client is gone.
    pub(super) fn unblock(&mut self) {
        if self.blocked.take().is_some() {
            self.host.blocked.set(self.host.blocked.get() - 1);
        }
    }

    /// The memory of the command.
    pub(super) fn blocked_bytes(&self) -> usize {
        self.blocked.as_ref().map_or(0, |blocked| {
            blocked.command.encoded_len() + size_of::<Blocked>()
        })
    }

    /// The command of a client that waits until a stream grows.
    pub(crate) fn waits_for(&self) -> Option<&Command> {
        let blocked = self.blocked.as_ref().filter(|blocked| blocked.waits)?;
        Some(&blocked.command)
    }

    /// For a client that waits: when it has waited long enough, if it does not wait without end,
    /// and for how many streams.
    pub(crate) fn waits_until(&self) -> Option<(Option<Instant>, usize)> {
        let blocked = self.blocked.as_ref().filter(|blocked| blocked.waits)?;
        Some((blocked.deadline, blocked.streams))
    }

    /// Asks again if a stream that the client waits for has grown, given the greatest IDs of
    /// streams. Returns whether it does; then [`advance`](Self::advance) is to follow.
    pub(crate) fn on_tails(&mut self, tail: impl Fn(&[u8]) -> Option<Bytes>) -> bool {
        let asks = self
            .waits_for()
            .is_some_and(|command| command.reads_up_to(tail));
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
