//! The linearizability checker: Wing and Gong's search with Lowe's memory of what was tried, for
//! one key at a time (linearizability is local, so keys can be checked alone), or for several that
//! some operation touches together.
//!
//! Operations without an answer may have taken effect or not: where each order of them gives
//! another state, n of them give more than n! states, and most of these have no continuation. So
//! the search tries answered operations first, and few unanswered ones between two answered ones
//! before it tries many.

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

/// How many operations without an answer may take effect one right after the other: in the first
/// searches. In the last, any number may.
const IN_A_ROW: [usize; 3] = [1, 2, 4];

/// Checks the operations on one key, or on keys that are checked together. Each search may take
/// `limit` steps.
pub fn check<S: Specification>(intervals: &[Interval<S>], limit: u64) -> Verdict {
    match search(intervals, limit) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Violation(table(&shortest_prefix(intervals, limit))),
        None => Verdict::Unknown(limit),
    }
}

/// Whether a linearization exists; `None` if `limit` steps do not decide it.
fn search<S: Specification>(intervals: &[Interval<S>], limit: u64) -> Option<bool> {
    let is_open = |interval: &&Interval<S>| interval.result.is_none();
    let open = intervals.iter().filter(is_open).count();
    let mut narrow = IN_A_ROW.into_iter().filter(|in_a_row| *in_a_row < open);
    let is_found = |in_a_row| search_within(intervals, limit, in_a_row) == Some(true);
    match narrow.any(is_found) {
        true => Some(true),
        false => search_within(intervals, limit, usize::MAX),
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

/// The moments of the answered operations as a list from which they can be removed and restored.
struct Moments {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The operation, and whether this is its start. The head of the list has none.
    what: Vec<Option<(usize, bool)>>,
    /// Where each operation starts. One without an answer is not in the list: its start comes
    /// before this place.
    begins: Vec<usize>,
    ends: Vec<usize>,
    /// The operations without an answer, by their starts.
    open: Vec<usize>,
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
        let mut what = vec![None];
        let (mut begins, mut ends) = (vec![0; intervals.len()], vec![0; intervals.len()]);
        let mut open = Vec::new();
        for (_, operation, is_start) in sorted {
            match is_start {
                true => begins[operation] = what.len(),
                false => ends[operation] = what.len(),
            }
            match intervals[operation].result {
                Some(_) => what.push(Some((operation, is_start))),
                None => open.push(operation),
            }
        }
        let size = what.len();
        Moments {
            next: (1..=size).map(|next| next % size).collect(),
            previous: (0..size).map(|at| (at + size - 1) % size).collect(),
            what,
            begins,
            ends,
            open,
        }
    }

    /// The first moment that is in the list.
    fn first(&self) -> usize {
        self.next[Self::HEAD]
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
        self.unlink(self.ends[operation]);
    }

    /// Undoes the latest [`lift`](Moments::lift) that has not been undone.
    fn put_back(&mut self, operation: usize) {
        self.relink(self.ends[operation]);
        self.relink(self.begins[operation]);
    }
}

/// Which operation is tried next.
#[derive(Clone, Copy)]
enum Next {
    /// The one that starts at this place, unless an operation ends there.
    Answered(usize),
    /// The one with this index among those without an answer, if it starts before this place, at
    /// which an operation ends.
    Open(usize, usize),
}

impl Next {
    fn after(self, moments: &Moments) -> Self {
        match self {
            Next::Answered(place) => Next::Answered(moments.next[place]),
            Next::Open(index, end) => Next::Open(index + 1, end),
        }
    }
}

/// An operation that has a position, and what was before.
struct Choice<T> {
    operation: usize,
    state: T,
    next: Next,
    /// How many operations without an answer had been chosen one right after the other.
    in_a_row: usize,
}

/// Whether a linearization exists in which at most `most_in_a_row` operations without an answer
/// take effect one right after the other. Only without such a limit does it find that none exists.
fn search_within<S: Specification>(
    intervals: &[Interval<S>],
    limit: u64,
    most_in_a_row: usize,
) -> Option<bool> {
    let mut moments = Moments::new(intervals);
    let mut unexplained = intervals.len() - moments.open.len();
    let mut placed = vec![0u64; intervals.len().div_ceil(64)];
    let mut state = S::State::default();
    #[expect(
        clippy::disallowed_types,
        reason = "its order is not used: it is asked for membership only"
    )]
    let mut tried = std::collections::HashSet::<(Vec<u64>, S::State)>::new();
    let mut stack: Vec<Choice<S::State>> = Vec::new();
    let mut in_a_row = 0;
    let mut next = Next::Answered(moments.first());
    for _ in 0..limit {
        if unexplained == 0 {
            return Some(true);
        }
        let candidate = match next {
            Next::Answered(place) => match moments.what[place] {
                Some((operation, true)) => Some(operation),
                _ => {
                    next = Next::Open(0, place);
                    continue;
                }
            },
            Next::Open(index, end) => {
                let operation = moments.open.get(index).copied();
                operation.filter(|it| in_a_row < most_in_a_row && moments.begins[*it] <= end)
            }
        };
        let Some(operation) = candidate else {
            // The operation that ends here has no position: an earlier choice was wrong.
            let Some(choice) = stack.pop() else {
                return Some(false);
            };
            let operation = choice.operation;
            placed[operation / 64] ^= 1 << (operation % 64);
            if intervals[operation].result.is_some() {
                unexplained += 1;
                moments.put_back(operation);
            }
            (state, in_a_row) = (choice.state, choice.in_a_row);
            next = choice.next.after(&moments);
            continue;
        };
        let Interval {
            action, at, result, ..
        } = &intervals[operation];
        let mut after = state.clone();
        let answer = S::apply(&mut after, action, *at);
        let is_free = placed[operation / 64] & 1 << (operation % 64) == 0;
        let fits = is_free && result.as_ref().is_none_or(|(_, given)| *given == answer);
        if fits {
            placed[operation / 64] ^= 1 << (operation % 64);
            if tried.insert((placed.clone(), after.clone())) {
                stack.push(Choice {
                    operation,
                    state: std::mem::replace(&mut state, after),
                    next,
                    in_a_row,
                });
                match result {
                    Some(_) => {
                        unexplained -= 1;
                        moments.lift(operation);
                        in_a_row = 0;
                    }
                    None => in_a_row += 1,
                }
                next = Next::Answered(moments.first());
                continue;
            }
            placed[operation / 64] ^= 1 << (operation % 64);
        }
        next = next.after(&moments);
    }
    (unexplained == 0).then_some(true)
}
