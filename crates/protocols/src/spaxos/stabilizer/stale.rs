//! When payloads of rounds that are over become too many.
//!
//! A new leader has disseminators store all that is in flight under new names. What it was called
//! before is needed until replicas keep every slot in which it would not be void: an acceptor may
//! have a vote for it that a later leader finds. Where commands are many, the log passes these
//! slots within a second. Where they are few and large, or nobody writes any more, such payloads
//! would stay for ever, and every leader change would add to them: the stabilizer asks the leader
//! to carry the log past them, with noops.

use ionian_kernel::id::Round;
use ionian_kernel::time::{Duration, Instant};

/// By this time after a leader starts, nearly all renamed payloads are ordered; the rest are stale.
/// Also the interval between requests to the leader.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Stale {
    /// The highest round of which a leader has said that it leads in it.
    round: Round,
    look_at: Option<Instant>,
}

impl Stale {
    pub(super) fn round(&self) -> Round {
        self.round
    }

    /// Somebody leads in this round.
    pub(super) fn follow(&mut self, now: Instant, round: Round) {
        if round > self.round {
            *self = Stale {
                round,
                look_at: Some(now + LOOK_AFTER),
            };
        }
    }

    /// Whether to look for payloads of earlier rounds now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// There are too many: it looks again.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.look_at = Some(now + LOOK_AFTER);
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.look_at
    }
}
