//! How an amnesiac stabilizer recovers the payloads that it acknowledged.
//!
//! It acknowledges new payloads at once: those it does hold. For the older ones it counts as failed
//! until it has copied everything that a read quorum of the others holds, none of which lost its
//! memory in turn.
//!
//! That is enough. A payload P counts as stable when a disseminator has acknowledgements of a write
//! quorum W, and none of those that it counts came with the news that a member of W has begun a
//! later life than the one in which it acknowledged P. Suppose that some members of W become whole
//! again without P while P is needed; let X be the first of them, in its life m. A read quorum
//! meets W, and the one that X copied from does not contain X: so some Y other than X is in both. Y
//! writes down that X lives its life m, a vital record, before it answers (the fence).
//!
//! - *Y acknowledged P after that*. It said with the acknowledgement that X lives its life m,
//!   though it may itself have lost its memory in between. What X acknowledged before is struck
//!   out, so X is not in W.
//! - *Y acknowledged P before that, and holds it when it answers*: X has copied P from Y.
//! - *Y acknowledged P before that, and does not hold it when it answers.* Then it has lost its
//!   memory in between, and was whole again without P before X was. But X was the first.
//!
//! What Y knows of X must survive Y's memory: if it did not, one stabilizer after another could
//! lose its memory, each whole again but for what is on its way, and a payload would seem stable
//! that one of them holds.
//!
//! As long as no read quorum without X answers, X counts as failed. With majorities and f=1 both
//! others must answer, which is right: P might be on X and one of them alone.

use super::super::message::PayloadId;
use crate::spaxos::id::StabilizerId;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// How far the copies have come.
#[derive(Default)]
pub(super) struct Copying {
    reached: SmallMap<StabilizerId, Reached>,
    complete: Set<StabilizerId>,
    next_timer: Instant,
}

/// How long the answer to the first question may take, in resend times: a page is larger than other
/// messages.
const PATIENCE: u32 = 4;

/// How often that doubles while no page comes.
const DOUBLES: u32 = 8;

/// But no answer is waited for longer than this, unless `resend_after` says so: the other may have
/// been away for most of the time that its last page took, and is back. One page (1 MiB) takes as
/// long over a link of 35 kB/s.
const LONGEST: Duration = Duration::from_secs(30);

/// How far one has told what it holds.
#[derive(Clone, Copy, Default)]
struct Reached {
    after: Option<PayloadId>,
    /// When it was first asked for the next page.
    since: Instant,
    ask_at: Instant,
    attempts: u32,
    /// How long the last page took. The next will take as long, and a second copy of it even
    /// longer.
    took: Duration,
}

impl Copying {
    /// Those who have told everything.
    pub(super) fn complete(&self) -> Set<StabilizerId> {
        self.complete
    }

    /// One has told everything up to `reached`; the rest is asked for at once. A page that comes
    /// twice does no harm.
    pub(super) fn on_page(
        &mut self,
        now: Instant,
        from: StabilizerId,
        reached: Option<PayloadId>,
        last: bool,
    ) {
        let place = self.reached.entry(from).or_default();
        if last {
            self.complete.insert(from);
        } else if reached > place.after {
            let took = now.since(place.since);
            *place = Reached {
                after: reached,
                since: now,
                ask_at: now,
                attempts: 0,
                took,
            };
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
        let patience = resend_after * PATIENCE;
        for other in others.without(self.complete).iter() {
            let place = self.reached.entry(other).or_insert(Reached {
                since: now,
                ..Reached::default()
            });
            if place.ask_at <= now {
                let wait =
                    patience.max(LONGEST.min(2 * place.took)) * (1 << place.attempts.min(DOUBLES));
                place.ask_at = now + wait.min(patience.max(LONGEST));
                place.attempts += 1;
                asked.push((other, place.after));
            }
        }
        // Those that are not members any more are asked for nothing.
        let asked_later = others.without(self.complete);
        let left = self
            .reached
            .iter()
            .filter(|(other, _)| asked_later.contains(**other));
        self.next_timer = left
            .map(|(_, place)| place.ask_at)
            .min()
            .unwrap_or(now + patience);
        asked
    }

    /// The stabilizers to ask have changed.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.next_timer = now;
    }

    pub(super) fn next_timer(&self) -> Instant {
        self.next_timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaxos::id::{DisseminatorId, PayloadNumber};

    const RESEND: Duration = Duration::from_millis(10);

    fn id(number: u64) -> PayloadId {
        PayloadId {
            disseminator: DisseminatorId(0),
            life: 0,
            number: PayloadNumber(number),
        }
    }

    /// When it asks, of its own accord, between two moments, in ms, and for what comes after which
    /// payload.
    fn asks(copying: &mut Copying, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut asked = Vec::new();
        for ms in from..to {
            for (_, after) in copying.overdue(Instant(ms * 1000), Set::one(StabilizerId(1)), RESEND)
            {
                asked.push((ms, after.map_or(0, |id| id.number.0)));
            }
        }
        asked
    }

    #[test]
    fn the_wait_for_a_page_doubles_and_the_next_page_is_given_the_time_that_this_one_took() {
        let mut copying = Copying::default();
        assert_eq!(
            asks(&mut copying, 0, 1000),
            [(0, 0), (40, 0), (120, 0), (280, 0), (600, 0)]
        );
        // It comes over a slow link, and so do its copies.
        copying.on_page(Instant(1_000_000), StabilizerId(1), Some(id(7)), false);
        assert_eq!(asks(&mut copying, 1000, 2500), [(1000, 7)]);
        for ms in [2000, 2100, 2200] {
            copying.on_page(Instant(ms * 1000), StabilizerId(1), Some(id(7)), false);
        }
        assert_eq!(asks(&mut copying, 2500, 8000), [(3000, 7), (7000, 7)]);
        // Over a link that is fast again the next ones are asked for quickly.
        copying.on_page(Instant(8_000_000), StabilizerId(1), Some(id(8)), false);
        assert_eq!(asks(&mut copying, 8000, 8010), [(8000, 8)]);
        copying.on_page(Instant(8_010_000), StabilizerId(1), Some(id(9)), false);
        assert_eq!(asks(&mut copying, 8010, 8100), [(8010, 9), (8050, 9)]);
        copying.on_page(Instant(8_100_000), StabilizerId(1), None, true);
        assert_eq!(asks(&mut copying, 8100, 9999), []);
    }

    /// Else its timer would be due at once, again and again.
    #[test]
    fn one_that_is_not_a_member_any_more_is_not_waited_for() {
        let mut copying = Copying::default();
        let both: Set<StabilizerId> = [1, 2].map(StabilizerId).into_iter().collect();
        assert_eq!(copying.overdue(Instant(0), both, RESEND).len(), 2);
        let stays = Set::one(StabilizerId(1));
        copying.look_again(Instant(100_000));
        copying.overdue(Instant(100_000), stays, RESEND);
        assert!(copying.next_timer() > Instant(100_000));
    }

    /// The time for which it was away is not the time that a page takes.
    #[test]
    fn one_that_was_away_for_an_hour_is_asked_soon_after_it_is_back() {
        const HOUR: u64 = 3_600_000;
        let mut copying = Copying::default();
        let asked = asks(&mut copying, 0, HOUR);
        let longest = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).max();
        assert_eq!(
            longest,
            Some(10 * 4 * (1 << DOUBLES)),
            "as long as it takes to double so often"
        );
        copying.on_page(Instant(HOUR * 1000), StabilizerId(1), Some(id(7)), false);
        // The answer is lost, and what is asked then is too.
        let asked = asks(&mut copying, HOUR, HOUR + 100_000);
        assert_eq!(
            asked,
            [0, 30, 60, 90].map(|seconds| (HOUR + 1000 * seconds, 7))
        );
        // The wait is as long as the operator has it.
        let patience = Duration::from_secs(60) * PATIENCE;
        let mut copying = Copying::default();
        assert_eq!(
            copying
                .overdue(Instant(0), Set::one(StabilizerId(1)), patience / PATIENCE)
                .len(),
            1
        );
        assert_eq!(copying.next_timer(), Instant::ZERO + patience);
    }
}
