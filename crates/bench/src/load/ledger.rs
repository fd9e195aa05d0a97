//! What counts: answers within the window, and how long they took.
//!
//! In a closed loop a command begins when it is sent, and belongs to the window in which it is
//! answered. In an open loop it begins when it was to be sent, whether it could be or not, and
//! belongs to the window in which that was: so the wait of all that queues behind a stall is
//! counted too. What is never answered counts with the time that it has waited.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies are distinguished from here, in nanoseconds; three digits of each are kept.
const FINEST: u64 = 64;

/// Longer ones count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// The kinds of errors that are distinguished.
const ERROR_KINDS: usize = 16;

/// The time that counts, in nanoseconds since the beginning of the round. What was before is
/// warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) fn holds(self, time: u64) -> bool {
        (self.begin..self.end).contains(&time)
    }
}

/// What was counted.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Replies that are no errors, within the window.
    pub(crate) answered: u64,
    /// Of these, reads of a key that was not there.
    pub(crate) nothing: u64,
    /// Error replies within the window, by their first word.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Commands that had begun and were not answered when the round was over.
    pub(crate) unfinished: u64,
    /// In nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// What the generator's threads did within the window.
    pub(crate) effort: Effort,
}

/// Time of the generator's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Effort {
    /// On a processor.
    pub(crate) busy: Duration,
    /// Ready to run, without a processor.
    pub(crate) starved: Duration,
    /// In all.
    pub(crate) elapsed: Duration,
}

impl Effort {
    /// With that of another thread.
    fn plus(self, other: Effort) -> Effort {
        Effort {
            busy: self.busy + other.busy,
            starved: self.starved + other.starved,
            elapsed: self.elapsed + other.elapsed,
        }
    }

    /// Which part of the time it was on a processor.
    pub(crate) fn busy_fraction(self) -> f64 {
        self.busy.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Which part of the time it had none and wanted one.
    pub(crate) fn starved_fraction(self) -> f64 {
        self.starved.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

impl Tally {
    /// Nothing.
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(FINEST, LONGEST, 3)
            .expect("the bounds are those of a histogram");
        let effort = Effort::default();
        Tally {
            answered: 0,
            nothing: 0,
            errors: BTreeMap::new(),
            unfinished: 0,
            latency,
            effort,
        }
    }

    /// Adds what another thread has counted.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.answered += other.answered;
        self.nothing += other.nothing;
        self.unfinished += other.unfinished;
        other
            .errors
            .iter()
            .for_each(|(word, count)| self.error(word, *count));
        self.latency
            .add(&other.latency)
            .expect("the bounds are the same");
        self.effort = self.effort.plus(other.effort);
    }

    fn error(&mut self, word: &str, count: u64) {
        let known = self.errors.contains_key(word) || self.errors.len() < ERROR_KINDS;
        *self
            .errors
            .entry(if known { word } else { "(others)" }.to_owned())
            .or_default() += count;
    }
}

/// What makes a command belong to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// When it is answered.
    Closed,
    /// When it was to be begun.
    Open,
}

/// Keeps a tally by the rules above.
#[derive(Debug)]
pub(crate) struct Ledger {
    window: Window,
    kind: Loop,
    tally: Tally,
}

impl Ledger {
    pub(crate) fn new(window: Window, kind: Loop) -> Self {
        Ledger {
            window,
            kind,
            tally: Tally::new(),
        }
    }

    /// This number of commands that began at `begun` have been answered at `now`, `nothing` of them
    /// with null.
    pub(crate) fn answered(&mut self, begun: u64, now: u64, count: u64, nothing: u64) {
        if self.window.holds(now) {
            self.tally.answered += count;
            self.tally.nothing += nothing;
        }
        if self.window.holds(if self.kind == Loop::Closed {
            now
        } else {
            begun
        }) {
            self.tally
                .latency
                .saturating_record_n(now.saturating_sub(begun), count);
        }
    }

    /// A command has been answered by an error, which has no latency.
    pub(crate) fn error(&mut self, now: u64, word: &str) {
        if self.window.holds(now) {
            self.tally.error(word, 1);
        }
    }

    /// The round is over, and this number of commands that began at `begun` have no answer.
    pub(crate) fn unfinished(&mut self, begun: u64, now: u64, count: u64) {
        if self.kind == Loop::Closed || self.window.holds(begun) {
            self.tally.unfinished += count;
            self.tally
                .latency
                .saturating_record_n(now.saturating_sub(begun), count);
        }
    }

    /// What was counted, with what it took.
    pub(crate) fn close(self, effort: Effort) -> Tally {
        Tally {
            effort,
            ..self.tally
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Schedule;
    use super::*;

    const MS: u64 = 1_000_000;
    const WINDOW: Window = Window {
        begin: 1_000 * MS,
        end: 3_000 * MS,
    };

    /// One connection, a server that takes 1 ms for each command and stands still from 1.5 s to 2.5
    /// s, and a clock that goes as the test says. Commands are begun as the schedule says, or one
    /// after the other.
    fn run(kind: Loop) -> Tally {
        let mut ledger = Ledger::new(WINDOW, kind);
        let mut schedule = Schedule::new(0, 100.0, WINDOW.end);
        let mut now = 0;
        loop {
            let begun = match kind {
                Loop::Closed => now,
                Loop::Open => match schedule.due() {
                    None => break,
                    Some(due) => {
                        now = now.max(due);
                        schedule.take(now).unwrap()
                    }
                },
            };
            if now >= WINDOW.end && kind == Loop::Closed {
                break;
            }
            now += MS;
            if (1_500 * MS..2_500 * MS).contains(&now) {
                now = 2_500 * MS;
            }
            ledger.answered(begun, now, 1, 0);
        }
        ledger.close(Effort::default())
    }

    #[test]
    fn a_stall_delays_all_that_was_to_be_begun_meanwhile() {
        let open = run(Loop::Open);
        assert_eq!((open.answered, open.latency.len()), (200, 200));
        // A hundred were due while it stood still, and waited from 1 s down; the others took 1 ms.
        let at = |quantile| open.latency.value_at_quantile(quantile) / MS;
        assert_eq!((at(0.4), at(1.0)), (1, 1_000));
        assert!((480..=560).contains(&at(0.75)), "{}", at(0.75));
        // A closed loop hides that: one command is late.
        let closed = run(Loop::Closed);
        assert_eq!(closed.latency.value_at_quantile(0.99) / MS, 1);
        assert_eq!(closed.latency.max() / MS, 1_001);
    }

    #[test]
    fn only_the_window_counts() {
        let mut closed = Ledger::new(WINDOW, Loop::Closed);
        let mut open = Ledger::new(WINDOW, Loop::Open);
        for ledger in [&mut closed, &mut open] {
            ledger.answered(WINDOW.begin - 5, WINDOW.begin + 5, 2, 1);
            ledger.answered(WINDOW.end - 5, WINDOW.end, 4, 0);
            ledger.error(WINDOW.begin - 1, "ERR");
            ledger.error(WINDOW.begin, "BUSY");
            ledger.unfinished(WINDOW.begin - 1, WINDOW.end + MS, 8);
            ledger.unfinished(WINDOW.begin, WINDOW.end + MS, 16);
        }
        let (closed, open) = (
            closed.close(Effort::default()),
            open.close(Effort::default()),
        );
        assert_eq!(
            (
                closed.answered,
                closed.nothing,
                closed.latency.len(),
                closed.unfinished
            ),
            (2, 1, 26, 24)
        );
        assert_eq!(
            (
                open.answered,
                open.nothing,
                open.latency.len(),
                open.unfinished
            ),
            (2, 1, 20, 16)
        );
        assert_eq!(closed.errors, BTreeMap::from([("BUSY".to_owned(), 1)]));
        assert!(
            open.latency.max() >= 2_000 * MS,
            "what is not answered has waited all the time"
        );
    }

    #[test]
    fn tallies_add_up_and_errors_of_many_words_do_not_grow() {
        let mut all = Tally::new();
        for thread in 0..40 {
            let mut ledger = Ledger::new(Window { begin: 0, end: MS }, Loop::Closed);
            ledger.answered(0, MS / 2, 10, 2);
            ledger.error(0, &format!("E{thread}"));
            let second = Duration::from_secs(1);
            all.add(&ledger.close(Effort {
                busy: second / 4,
                starved: second / 8,
                elapsed: second,
            }));
        }
        assert_eq!(
            (all.answered, all.nothing, all.latency.len()),
            (400, 80, 400)
        );
        assert_eq!(all.errors.values().sum::<u64>(), 40);
        assert_eq!(
            (all.errors.len(), all.errors["(others)"]),
            (ERROR_KINDS + 1, 24)
        );
        assert!(
            (all.effort.busy_fraction() - 0.25).abs() < 1e-9
                && (all.effort.starved_fraction() - 0.125).abs() < 1e-9
        );
    }
}
