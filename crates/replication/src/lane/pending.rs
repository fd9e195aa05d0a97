//! A request that is not answered yet.

use super::{Due, DueWrite};
use crate::backoff::doubled;
use crate::batch::{Command, Purpose};
use bytes::Bytes;
use ionian_kernel::client::Operation;
use ionian_kernel::id::{ClientId, Index};
use ionian_kernel::time::{Duration, Instant};

/// See the top of this file.
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) operation: Operation,
    pub(super) payload: Bytes,
    pub(super) give_up_at: Instant,
    /// When it was sent last.
    pub(super) asked_at: Instant,
    pub(super) ask_at: Instant,
    pub(super) asked: u32,
    /// Whether it was sent to those who serve now: it counts as under way.
    pub(super) sent: bool,
    /// What the client had answers to when it was sent first. It says the same each time, so that
    /// its copies are the same bytes, and a driver that still has the first need not queue another.
    pub(super) floor: u64,
    /// The index of the instance that it was sent to last.
    pub(super) via: Option<Index>,
    /// Whether it goes through the log without a session.
    pub(super) logged: bool,
}

impl Pending {
    /// Has a command sent that needs no session.
    pub(super) fn send_sessionless(
        &self,
        lane: ClientId,
        number: u64,
        via: Option<Index>,
        due: &mut Due,
    ) {
        let purpose = match self.operation {
            Operation::Read(_) => Purpose::Read,
            Operation::Change => Purpose::Change,
            Operation::Write => unreachable!("writes have a session"),
        };
        let command = self.command(lane, purpose, number, 0);
        match self.operation {
            Operation::Read(level) if !self.logged => due.reads.push((level, command, via)),
            _ => due.writes.push(DueWrite {
                command,
                via,
                again: self.asked > 1,
            }),
        }
    }

    /// The wait doubles with each time of asking, up to eight times the first.
    pub(super) fn mark_asked(&mut self, now: Instant, retry_after: Duration) {
        self.asked_at = now;
        self.ask_at = now + doubled(retry_after, self.asked, 3);
        self.asked += 1;
    }

    /// When it is to be asked again. The allowance for what is under way doubles like the wait: it
    /// may be too small.
    pub(super) fn due(&self, transit: Duration) -> Instant {
        self.ask_at + doubled(transit, self.asked.saturating_sub(1), 3)
    }

    pub(super) fn command(
        &self,
        client: ClientId,
        purpose: Purpose,
        number: u64,
        floor: u64,
    ) -> Command {
        Command {
            client,
            purpose,
            number,
            floor,
            payload: self.payload.clone(),
        }
    }
}
