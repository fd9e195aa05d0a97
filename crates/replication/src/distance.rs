//! Which of several instances answer soonest: a role that may choose whom it asks asks those.

use alloc::collections::VecDeque;
use ionian_kernel::id::{Id, Set};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// So often one request goes to all, and the time that each takes to answer is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The distance is the least of the last times, because the others say more about what a node was
/// doing than about where it is.
const SAMPLES: usize = 8;

/// Those that answer within this time of the nearest one are as near. Queues of a data center are
/// shorter, and regions farther apart: if all left a node for its queue, all would come to the
/// next.
const ALIKE: Duration = Duration::from_millis(5);

/// How long the instances of one role take to answer.
#[derive(Clone, Debug)]
pub struct Distances<I: Id> {
    /// The last times of those that have answered.
    took: SmallMap<I, VecDeque<Duration>>,
    /// The request that is measured, and when it left.
    measured: Option<(u64, Instant)>,
    /// Not before this time another one is measured: not the first, which may be what connects.
    next: Option<Instant>,
}

impl<I: Id> Default for Distances<I> {
    fn default() -> Self {
        Distances {
            took: SmallMap::new(),
            measured: None,
            next: None,
        }
    }
}

impl<I: Id> Distances<I> {
    /// The request with this number leaves. If it is to be measured, all are to be asked.
    pub fn asks(&mut self, now: Instant, number: u64) -> bool {
        let is_due = self.next.is_some_and(|next| next <= now);
        if is_due {
            self.measured = Some((number, now));
        }
        if is_due || self.next.is_none() {
            self.next = Some(now + MEASURE_EVERY);
        }
        is_due
    }

    /// `from` has answered the request with this number.
    pub fn answered(&mut self, now: Instant, from: I, number: u64) {
        let Some((_, at)) = self.measured.filter(|(measured, _)| *measured == number) else {
            return;
        };
        let took = self.took.entry(from).or_default();
        took.truncate(SAMPLES - 1);
        took.push_front(now.since(at));
    }

    /// Those of `all` that are the nearest, or about as near; all of them while nothing is known of
    /// any.
    fn nearest(&self, all: Set<I>) -> Set<I> {
        let least = |(id, took): (&I, &VecDeque<Duration>)| Some((*id, *took.iter().min()?));
        let all_known = self.took.iter().filter_map(least);
        let known = all_known.filter(|(id, _)| all.contains(*id));
        let Some(nearest) = known.clone().map(|(_, took)| took).min() else {
            return all;
        };
        let limit = (nearest * 2).max(nearest + ALIKE);
        known
            .filter(|(_, took)| *took <= limit)
            .map(|(id, _)| id)
            .collect()
    }

    /// `count` instances, or all if there are fewer: those of the first set before those of the
    /// others, of one set the nearest first, and of those that are as near the one whose turn it
    /// is.
    pub fn choose(&self, sets: &[Set<I>], count: usize, turn: u64) -> Set<I> {
        let mut chosen = Set::EMPTY;
        for set in sets {
            let mut near = Set::EMPTY;
            while chosen.len() < count {
                if near.is_empty() {
                    near = self.nearest(set.without(chosen));
                }
                let Some(next) = near.pick(turn) else { break };
                near.remove(next);
                chosen.insert(next);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::AcceptorId;

    type Ids = Set<AcceptorId>;

    fn ids(ids: &[u8]) -> Ids {
        ids.iter().copied().map(AcceptorId).collect()
    }

    fn ms(ms: u64) -> Instant {
        Instant(1_000_000_000 + ms * 1000)
    }

    /// Four that answer the first request after these milliseconds.
    fn measured(after: [u64; 4]) -> Distances<AcceptorId> {
        let mut distances = Distances::default();
        assert!(!distances.asks(ms(0), 6), "the first one is not measured");
        assert!(distances.asks(ms(1000), 7));
        for (id, after) in (0..).zip(after) {
            distances.answered(ms(1000 + after), AcceptorId(id), 7);
        }
        distances
    }

    #[test]
    fn the_nearest_are_chosen_first_and_those_that_are_as_near_in_turn() {
        let all = ids(&[0, 1, 2, 3]);
        let distances = measured([80, 9, 10, 200]);
        let chosen = |count, turn| distances.choose(&[all], count, turn);
        assert_eq!((chosen(1, 0), chosen(1, 1)), (ids(&[1]), ids(&[2])));
        assert_eq!((chosen(2, 0), chosen(2, 1)), (ids(&[1, 2]), ids(&[1, 2])));
        assert_eq!(
            (chosen(3, 0), chosen(3, 1)),
            (ids(&[0, 1, 2]), ids(&[0, 1, 2]))
        );
        assert_eq!(chosen(9, 0), all);
        // A set comes before the next one, however far its members are.
        let sets = [ids(&[3]), all];
        assert_eq!(distances.choose(&sets, 2, 0), ids(&[1, 3]));
        assert_eq!(distances.choose(&[Ids::EMPTY, all], 1, 0), ids(&[1]));
    }

    #[test]
    fn all_are_as_near_while_nothing_is_known_and_within_five_milliseconds() {
        let all = ids(&[0, 1, 2]);
        for distances in [Distances::default(), measured([0, 1, 2, 9])] {
            for turn in 0..3 {
                let expected = ids(&[turn as u8]);
                assert_eq!(distances.choose(&[all], 1, turn), expected);
            }
        }
    }

    /// One that has not answered is not known to be near.
    #[test]
    fn one_request_a_second_is_measured_and_its_answers_only() {
        let mut distances = Distances::default();
        assert!(!distances.asks(ms(0), 6));
        assert!(distances.asks(ms(1000), 7));
        assert!(!distances.asks(ms(1999), 8));
        distances.answered(ms(1999), AcceptorId(1), 8);
        distances.answered(ms(1500), AcceptorId(2), 7);
        let all = ids(&[1, 2]);
        assert_eq!(distances.choose(&[all], 1, 0), ids(&[2]));
        assert!(distances.asks(ms(2000), 9));
        distances.answered(ms(2100), AcceptorId(1), 9);
        assert_eq!(distances.choose(&[all], 1, 0), ids(&[1]));
        // One that is slow at times is as near as before; one that stays slow is farther.
        for number in 10..18 {
            assert_eq!(distances.choose(&[all], 1, 0), ids(&[1]));
            let at = number * 1000;
            assert!(distances.asks(ms(at), number));
            distances.answered(ms(at + 900), AcceptorId(1), number);
            distances.answered(ms(at + 250), AcceptorId(2), number);
        }
        assert_eq!(distances.choose(&[all], 1, 0), ids(&[2]));
    }
}
