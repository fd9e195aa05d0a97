//! The session of a lane: asking for one, keeping it alive, and replacing it.

use super::in_flight::InFlight;
use super::{Due, DueWrite, Lane};
use crate::backoff::doubled;
use crate::batch::{Command, Purpose};
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_kernel::id::{Index, SessionId};
use ionian_kernel::time::Instant;

/// The session of a lane.
pub(super) enum Session {
    /// Asked for with this nonce.
    Opening {
        nonce: u64,
        ask_at: Instant,
        asked: u32,
        /// The index of the instance that was asked last.
        via: Option<Index>,
    },
    /// Open under this id.
    Open(SessionId),
}

impl Lane {
    /// The cluster has forgotten the session. What was sent in it may have been executed before
    /// that; what was not is sent in the next one.
    pub(super) fn lose_session(&mut self, now: Instant, due: &mut Due) {
        for pending in core::mem::replace(&mut self.writes, InFlight::new(0)).into_pending() {
            if pending.asked > 0 {
                self.refuse(pending.token, Refusal::Unknown, due);
            } else {
                self.writes.push(pending);
            }
        }
        self.requeue();
        self.session = Session::Opening {
            nonce: self.random.any(),
            ask_at: now,
            asked: 0,
            via: None,
        };
        self.ask_for_session(now, false, due);
        self.watch(now);
    }

    /// A process that was paused for long comes back to a session that has expired: what is sent in
    /// it would be answered with doubt though it was not executed. So another is opened first.
    pub(super) fn replace_stale_session(&mut self, now: Instant, due: &mut Due) {
        let unused = now >= self.keep_alive_at + self.keep_alive_every * 2;
        if unused && matches!(self.session, Session::Open(_)) {
            self.lose_session(now, due);
        }
    }

    /// Asks for a session, if none is open; `overdue` if the instance that was asked has left it
    /// unanswered.
    pub(super) fn ask_for_session(&mut self, now: Instant, overdue: bool, due: &mut Due) {
        if let Session::Opening {
            nonce,
            ask_at,
            asked,
            via,
        } = &mut self.session
        {
            // The wait doubles when all have been asked, up to sixteen times the first: a cluster
            // that cannot serve for long should not find a heap of such requests when it can. (A
            // new leader is asked at once.)
            *ask_at = now + doubled(self.limits.retry_after, *asked / self.turns, 4);
            let again = *asked > 0;
            *asked += 1;
            let command = Command {
                client: self.id,
                purpose: Purpose::Open,
                number: *nonce,
                floor: 0,
                payload: Bytes::new(),
            };
            due.writes.push(DueWrite {
                command,
                via: via.filter(|_| overdue),
                again,
            });
        }
    }

    pub(super) fn keep_alive(&mut self, now: Instant, session: SessionId, due: &mut Due) {
        self.keep_alive_at = now + self.keep_alive_every;
        let command = Command {
            client: self.id,
            purpose: Purpose::KeepAlive(session),
            number: 0,
            floor: self.writes.floor,
            payload: Bytes::new(),
        };
        due.writes.push(DueWrite {
            command,
            via: None,
            again: false,
        });
    }
}
