//! The requests and replies of the simulated clients, in the order in which they happened.

use crate::event::Micros;
use crate::linearizability::Interval;
use crate::model::{Others, Specification};
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_kernel::id::Index;
use ionian_kernel::time::Timestamp;
use std::collections::BTreeMap;

/// A moment in the history: its position in the order of all moments, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) order: u64,
    pub(crate) at: Micros,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate<R> {
    /// No reply yet.
    Open,
    /// Answered by the service.
    Done(R),
    /// Refused. After [`Refusal::Unknown`] it may take effect later or never.
    Refused(Refusal),
    /// The client's own node crashed: the outcome is unknown.
    Lost,
}

/// One request.
pub(crate) struct Entry<S: Specification> {
    pub(crate) lane: Index,
    /// The number of crashes of the lane's node: a restarted lane remembers nothing.
    pub(crate) life: u32,
    pub(crate) operation: Operation,
    pub(crate) action: S::Action,
    /// The time in the log at which it was executed, from the reply.
    pub(crate) at: Timestamp,
    /// The journal's id of the command.
    pub(crate) command: u64,
    pub(crate) invoked: Moment,
    pub(crate) completed: Option<Moment>,
    pub(crate) fate: Fate<S::Answer>,
    /// The number of commands that some replica had executed when the reply arrived.
    pub(crate) executed: u64,
}

/// All requests of a run.
pub(crate) struct History<S: Specification> {
    pub(crate) entries: Vec<Entry<S>>,
    moments: u64,
}

impl<S: Specification> History<S> {
    pub(crate) fn new() -> Self {
        History {
            entries: Vec::new(),
            moments: 0,
        }
    }

    /// The next moment.
    pub(crate) fn moment(&mut self, at: Micros) -> Moment {
        self.moments += 1;
        Moment {
            order: self.moments,
            at,
        }
    }

    /// For each key, or keys that operations touch together, the operations that must be
    /// linearizable: everything that was or may have been
    /// executed, reads of weaker levels left out. What has no answer and, as `executed` knows, was
    /// executed by no replica has no visible effect, and need not be tried at every
    /// place. `executed` says when it was, by the log's time.
    pub(crate) fn linearizable_parts(
        &self,
        executed: impl Fn(u64) -> Option<Timestamp>,
    ) -> BTreeMap<u64, Vec<Interval<S>>> {
        let with_effect = self.entries.iter().filter_map(|entry| {
            let mut interval = entry.interval()?;
            if interval.result.is_none() {
                interval.at = executed(entry.command)?;
            }
            Some(interval)
        });
        let with_effect: Vec<Interval<S>> = with_effect.collect();
        let together = together(&with_effect);
        let mut parts: BTreeMap<u64, Vec<Interval<S>>> = BTreeMap::new();
        for interval in with_effect {
            let part = together[&S::key(&interval.action)];
            parts.entry(part).or_default().push(interval);
        }
        parts
    }
}

/// For each key the name of all keys that operations touch together with it: one of them.
fn together<S: Specification>(intervals: &[Interval<S>]) -> BTreeMap<u64, u64> {
    let mut together: BTreeMap<u64, u64> = BTreeMap::new();
    for interval in intervals {
        let key = S::key(&interval.action);
        let name = *together.entry(key).or_insert(key);
        if let Others::One(other) = S::others(&interval.action) {
            let other = *together.entry(other).or_insert(other);
            let names = together.values_mut().filter(|name| **name == other);
            names.for_each(|other| *other = name);
        }
    }
    let all = |interval: &&Interval<S>| S::others(&interval.action) == Others::All;
    if let Some(interval) = intervals.iter().find(all) {
        let name = S::key(&interval.action);
        together.values_mut().for_each(|other| *other = name);
    }
    together
}

impl<S: Specification> Entry<S> {
    fn interval(&self) -> Option<Interval<S>> {
        let weak =
            matches!(self.operation, Operation::Read(level) if level != ReadLevel::Linearizable);
        let answer = match &self.fate {
            Fate::Done(answer) => Some(answer.clone()),
            // Without an answer, an operation that changes nothing is no constraint.
            _ if S::is_read(&self.action) || self.operation != Operation::Write => return None,
            Fate::Open | Fate::Lost | Fate::Refused(Refusal::Unknown) => None,
            Fate::Refused(_) => return None,
        };
        (!weak).then(|| Interval {
            client: format!("c{}", self.lane),
            action: self.action.clone(),
            at: self.at,
            invoked: self.invoked.order,
            result: answer
                .zip(self.completed)
                .map(|(answer, completed)| (completed.order, answer)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizability::{Verdict, check};
    use crate::machine::{Answer, Lists};

    fn ask(history: &mut History<Lists>, text: &str, answer: Answer) {
        let call = Lists::new(3).parse(text).unwrap();
        let (invoked, completed) = (history.moment(0), history.moment(0));
        history.entries.push(Entry {
            lane: 0,
            life: 0,
            operation: call.operation,
            action: call.action,
            at: Timestamp(0),
            command: 0,
            invoked,
            completed: Some(completed),
            fate: Fate::Done(answer),
            executed: 0,
        });
    }

    /// Each key alone explains both reads.
    /// The write of both keys ties them also if its client got no answer.
    #[test]
    fn keys_that_are_written_together_are_checked_together() {
        for write in ["move x y", "clear x"] {
            let mut history = History::new();
            ask(&mut history, "set x 1", Answer::Done);
            ask(&mut history, "set y 2", Answer::Done);
            ask(&mut history, write, Answer::Done);
            history.entries.last_mut().unwrap().fate = Fate::Lost;
            assert_eq!(history.linearizable_parts(|_| None).len(), 2, "{write}");
            let parts = history.linearizable_parts(|_| Some(Timestamp(0)));
            assert_eq!(parts.len(), 1, "{write}");
        }
    }

    #[test]
    fn keys_that_are_read_together_are_checked_together() {
        for (x, y, expected) in [(1, 1, true), (1, 2, false), (2, 1, true), (2, 2, true)] {
            let mut history = History::new();
            ask(&mut history, "set x 1", Answer::Done);
            ask(&mut history, "set y 1", Answer::Done);
            ask(&mut history, "set z 1", Answer::Done);
            let invoked = history.moment(0);
            ask(&mut history, "set x 2", Answer::Done);
            ask(&mut history, "set y 2", Answer::Done);
            let (one, other) = (Some(vec![x]), Some(vec![y]));
            ask(&mut history, "read-both x y", Answer::Lists { one, other });
            history.entries.last_mut().unwrap().invoked = invoked;
            let parts = history.linearizable_parts(|_| None);
            assert_eq!(parts.values().map(Vec::len).collect::<Vec<_>>(), [5, 1]);
            let fine = |part: &Vec<_>| check(part, 10_000) == Verdict::Linearizable;
            assert_eq!(parts.values().all(fine), expected, "{x} {y}");
        }
    }
}
