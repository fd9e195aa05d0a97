//! The linearizability checker: Wing and Gong's search with Lowe's memory of what was tried, for
//! one key at a time (linearizability is local, so keys can be checked alone), or for several that
//! some operation touches together.

use crate::model::Specification;
use ionian_kernel::time::Timestamp;
use std::fmt::Write;

/// One operation of a client on one key, or on keys that are checked together.
pub struct Interval<S: Specification> {
    /// The client, for the report.
    pub client: String,
    /// What was asked.
    pub action: S::Action,
    /// The time in the log at which it was executed; irrelevant for services without time.
    pub at: Timestamp,
    /// The moment of the request.
    pub invoked: u64,
    /// The moment and the value of the answer; without an answer the operation may take effect at
    /// any later time or never.
    pub result: Option<(u64, S::Answer)>,
}

// By hand, because the derived implementation would require `Clone` of the specification as well.
impl<S: Specification> Clone for Interval<S> {
    fn clone(&self) -> Self {
        let Interval {
            client,
            action,
            at,
            invoked,
            result,
        } = self;
        Interval {
            client: client.clone(),
            action: action.clone(),
            at: *at,
            invoked: *invoked,
            result: result.clone(),
        }
    }
}

/// The result of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order explains every answer.
    Linearizable,
    /// No order does: the shortest prefix of the history without such an order.
    Violation(String),
    /// The search was abandoned after this number of steps.
    Unknown(u64),
}

/// Checks the operations on one key, or on keys that are checked together.
pub fn check<S: Specification>(intervals: &[Interval<S>], limit: u64) -> Verdict {
    match search(intervals, limit) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Violation(table(&shortest_prefix(intervals, limit))),
        None => Verdict::Unknown(limit),
    }
}

/// The history up to and including moment `end`.
fn cut<S: Specification>(intervals: &[Interval<S>], end: u64) -> Vec<Interval<S>> {
    let begun = intervals
        .iter()
        .filter(|interval| interval.invoked <= end)
        .cloned();
    begun
        .map(|mut interval| {
            interval.result = interval.result.filter(|(completed, _)| *completed <= end);
            interval
        })
        .collect()
}

/// Prefixes of a linearizable history are linearizable, so a binary search finds the shortest bad
/// one.
fn shortest_prefix<S: Specification>(intervals: &[Interval<S>], limit: u64) -> Vec<Interval<S>> {
    let mut ends: Vec<u64> = intervals
        .iter()
        .filter_map(|interval| Some(interval.result.as_ref()?.0))
        .collect();
    ends.sort_unstable();
    let good = ends.partition_point(|end| search(&cut(intervals, *end), limit) != Some(false));
    match ends.get(good) {
        Some(end) => cut(intervals, *end),
        None => intervals.to_vec(),
    }
}

fn table<S: Specification>(intervals: &[Interval<S>]) -> String {
    let mut sorted: Vec<_> = intervals.iter().collect();
    sorted.sort_by_key(|interval| interval.invoked);
    let mut table = String::from("no order of these operations explains every answer:\n");
    for interval in sorted {
        let (end, answer) = match &interval.result {
            Some((end, answer)) => (end.to_string(), answer.to_string()),
            None => ("...".into(), "?".into()),
        };
        let span = format!("{}-{end}", interval.invoked);
        let _ = writeln!(
            table,
            "  {:<4} {span:>13}  {:<22} -> {answer}",
            interval.client,
            interval.action.to_string()
        );
    }
    table
}

/// The moments of a history as a list from which operations can be removed and restored.
struct Moments {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The operation, and whether this is its start. The head of the list has none.
    what: Vec<Option<(usize, bool)>>,
    begins: Vec<usize>,
    ends: Vec<Option<usize>>,
}

impl Moments {
    const HEAD: usize = 0;

    fn new<S: Specification>(intervals: &[Interval<S>]) -> Self {
        let begins = intervals
            .iter()
            .enumerate()
            .map(|(operation, interval)| (interval.invoked, operation, true));
        let ends = intervals.iter().enumerate();
        let ends = ends.filter_map(|(operation, interval)| {
            Some((interval.result.as_ref()?.0, operation, false))
        });
        let mut sorted: Vec<(u64, usize, bool)> = begins.chain(ends).collect();
        // At equal moments starts come before ends: the operations overlap.
        sorted.sort_by_key(|(at, operation, begins)| (*at, !begins, *operation));
        let size = sorted.len() + 1;
        let mut moments = Moments {
            next: (1..=size).map(|next| next % size).collect(),
            previous: (0..size).map(|at| (at + size - 1) % size).collect(),
            what: std::iter::once(None)
                .chain(
                    sorted
                        .iter()
                        .map(|(_, operation, begins)| Some((*operation, *begins))),
                )
                .collect(),
            begins: vec![0; intervals.len()],
            ends: vec![None; intervals.len()],
        };
        for (place, (_, operation, begins)) in (1..).zip(sorted) {
            if begins {
                moments.begins[operation] = place;
            } else {
                moments.ends[operation] = Some(place);
            }
        }
        moments
    }

    fn unlink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        (self.next[previous], self.previous[next]) = (next, previous);
    }

    fn relink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        (self.next[previous], self.previous[next]) = (place, place);
    }

    fn lift(&mut self, operation: usize) {
        self.unlink(self.begins[operation]);
        if let Some(end) = self.ends[operation] {
            self.unlink(end);
        }
    }

    /// Undoes the latest [`lift`](Moments::lift) that has not been undone.
    fn put_back(&mut self, operation: usize) {
        if let Some(end) = self.ends[operation] {
            self.relink(end);
        }
        self.relink(self.begins[operation]);
    }
}

/// Whether a linearization exists; `None` if `limit` steps did not decide it.
fn search<S: Specification>(intervals: &[Interval<S>], limit: u64) -> Option<bool> {
    let mut moments = Moments::new(intervals);
    let mut unexplained = intervals
        .iter()
        .filter(|interval| interval.result.is_some())
        .count();
    let mut placed = vec![0u64; intervals.len().div_ceil(64)];
    let mut state = S::State::default();
    #[expect(
        clippy::disallowed_types,
        reason = "its order is not used: it is asked for membership only"
    )]
    let mut tried = std::collections::HashSet::<(Vec<u64>, S::State)>::new();
    let mut stack: Vec<(usize, S::State)> = Vec::new();
    let mut at = moments.next[Moments::HEAD];
    for _ in 0..limit {
        if unexplained == 0 {
            return Some(true);
        }
        let (operation, begins) =
            moments.what[at].expect("the end of an unexplained operation comes before the head");
        if begins {
            let mut after = state.clone();
            let answer = S::apply(
                &mut after,
                &intervals[operation].action,
                intervals[operation].at,
            );
            let fits = intervals[operation]
                .result
                .as_ref()
                .is_none_or(|(_, told)| *told == answer);
            placed[operation / 64] ^= 1 << (operation % 64);
            if fits && tried.insert((placed.clone(), after.clone())) {
                unexplained -= usize::from(intervals[operation].result.is_some());
                stack.push((operation, std::mem::replace(&mut state, after)));
                moments.lift(operation);
                at = moments.next[Moments::HEAD];
            } else {
                placed[operation / 64] ^= 1 << (operation % 64);
                at = moments.next[at];
            }
        } else {
            // This operation ended without a position: an earlier choice was wrong.
            let Some((operation, before)) = stack.pop() else {
                return Some(false);
            };
            state = before;
            placed[operation / 64] ^= 1 << (operation % 64);
            unexplained += usize::from(intervals[operation].result.is_some());
            moments.put_back(operation);
            at = moments.next[moments.begins[operation]];
        }
    }
    (unexplained == 0).then_some(true)
}
