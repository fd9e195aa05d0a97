//! When payloads that no leader orders become too many.
//!
//! A new leader has disseminators store all that is in flight under new names. What it was called
//! before is needed until replicas keep every slot in which it would not be void: an acceptor may
//! have a vote for it that a later leader finds. A disseminator that crashes leaves such payloads
//! behind too, in the present round: another may have proposed them. Where commands are many, the
//! log passes these slots within a second. Where they are few and large, or no client writes any
//! more, such payloads would stay permanently, and every leader change and crash would add to them.
//!
//! So the stabilizer asks the leader to carry the log past them, with noops. It does when those of
//! earlier rounds hold more than `stale_bytes`; and when half of its room is used, for the older
//! half of all that is not known to be chosen, whatever the round. Nothing depends on that being a
//! good choice: a payload whose command waits, and that becomes void so, is stored under a new name
//! by its disseminator. Noops need no stabilizer: the log goes on even if all of them are full.

use ionian_kernel::id::Round;
use ionian_kernel::time::{Duration, Instant};

/// By this time after a leader starts, nearly all renamed payloads are ordered; the rest are stale.
/// Also the least interval between requests to the leader.
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

    /// A leader leads in this round.
    pub(super) fn follow(&mut self, now: Instant, round: Round) {
        if round > self.round {
            *self = Stale {
                round,
                look_at: Some(now + LOOK_AFTER),
            };
        }
    }

    /// Whether to look for stale payloads now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// There are many payloads: it looks after a while, if it does not already.
    pub(super) fn look_soon(&mut self, now: Instant) {
        self.look_at.get_or_insert(now + LOOK_AFTER);
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.look_at
    }
}
