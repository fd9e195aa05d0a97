//! How a stabilizer that lost its memory comes to hold again what it had said it holds.
//!
//! It acknowledges new payloads at once: those it does hold. For the older ones it counts as failed until it has copied
//! everything that a read quorum of the others holds, none of which lost its memory in turn.
//!
//! That is enough. A payload P counts as stable when a disseminator has acknowledgements of a write quorum W, and none of
//! those that it counts came with the news that a member of W has begun a later life than the one in which it acknowledged
//! P. Suppose that some members of W become whole again without P while P is needed; let X be the first of them, in its
//! life m. A read quorum meets W, and the one that X copied from does not contain X: so some Y other than X is in both. Y
//! writes down that X lives its life m, a vital record, before it answers (the fence).
//!
//! - *Y acknowledged P after that*. It said with the acknowledgement that X lives its life m, though it may itself have
//!   lost its memory in between. What X acknowledged before is struck out, so X is not in W.
//! - *Y acknowledged P before that, and holds it when it answers*: X has copied P from Y.
//! - *Y acknowledged P before that, and does not hold it when it answers.* Then it has lost its memory in between, and was
//!   whole again without P before X was. But X was the first.
//!
//! What Y knows of X must survive Y's memory: if it did not, one stabilizer after another could lose its memory, each
//! whole again but for what is on its way, and a payload would seem stable that one of them holds.
//!
//! As long as no read quorum without X answers, X counts as failed. With majorities and f=1 both others must answer,
//! which is right: P might be on X and one of them alone.

use super::super::message::PayloadId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Instant};

/// How far the copies have come.
#[derive(Default)]
pub(super) struct Copying {
    reached: BTreeMap<StabilizerId, Reached>,
    complete: Set<StabilizerId>,
    next_timer: Instant,
}

/// How far one has told what it holds.
#[derive(Clone, Copy, Default)]
struct Reached {
    after: Option<PayloadId>,
    ask_at: Instant,
}

impl Copying {
    /// Those who have told everything.
    pub(super) fn complete(&self) -> Set<StabilizerId> {
        self.complete
    }

    /// One has told everything up to `reached`; the rest is asked for at once. A page that comes twice does no harm.
    pub(super) fn on_page(&mut self, now: Instant, from: StabilizerId, reached: Option<PayloadId>, last: bool) {
        let place = self.reached.entry(from).or_default();
        if last {
            self.complete.insert(from);
        } else if reached > place.after {
            *place = Reached { after: reached, ask_at: now };
            self.next_timer = now;
        }
    }

    /// Whom to ask now, and for what comes after which payload.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        others: Set<StabilizerId>,
        resend_after: Duration,
    ) -> Vec<(StabilizerId, Option<PayloadId>)> {
        let mut asked = Vec::new();
        if self.next_timer > now {
            return asked;
        }
        // A page is larger than other messages.
        let again_at = now + resend_after * 4;
        for other in others.without(self.complete).iter() {
            let place = self.reached.entry(other).or_default();
            if place.ask_at <= now {
                place.ask_at = again_at;
                asked.push((other, place.after));
            }
        }
        let left = self.reached.iter().filter(|(other, _)| !self.complete.contains(**other));
        self.next_timer = left.map(|(_, place)| place.ask_at).min().unwrap_or(again_at);
        asked
    }

    pub(super) fn next_timer(&self) -> Instant {
        self.next_timer
    }
}
