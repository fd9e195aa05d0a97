//! Compares the replies to clients with the order in which replicas executed: nothing lost, nothing
//! invented, no effect of refused commands, and the weaker read levels.

use crate::history::{Entry, Fate, History};
use crate::journal::{Executed, Order};
use crate::model::{Others, Specification};
use crate::report::FailureKind;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_kernel::id::Index;
use std::collections::BTreeMap;

type Found = Result<(), (FailureKind, String)>;

/// Compares the history with the journal: which commands were executed at all.
pub(crate) fn audit<S: Specification>(history: &History<S>, streams: &[&[Executed]]) -> Found {
    let asked: BTreeMap<u64, &Entry<S>> = history
        .entries
        .iter()
        .map(|entry| (entry.command, entry))
        .collect();
    let mut executed = BTreeMap::new();
    for command in streams.iter().flat_map(|stream| stream.iter()) {
        let Some(entry) = asked.get(&command.command) else {
            return Err((
                FailureKind::ExactlyOnce,
                "a command was executed that no client sent".into(),
            ));
        };
        if entry.operation != Operation::Write {
            let what = format!(
                "c{}'s {} was sent as a read and executed as a write",
                entry.lane, entry.action
            );
            return Err((FailureKind::Refused, what));
        }
        if let Fate::Refused(refusal) = &entry.fate
            && *refusal != Refusal::Unknown
        {
            let what = format!(
                "c{}'s {} was executed although it was refused: {refusal}",
                entry.lane, entry.action
            );
            return Err((FailureKind::Refused, what));
        }
        executed.insert(command.command, command);
    }
    for entry in &history.entries {
        let acknowledged =
            matches!(entry.fate, Fate::Done(_)) && entry.operation == Operation::Write;
        match executed.get(&entry.command) {
            None if acknowledged => {
                let what = format!(
                    "c{}'s {} was acknowledged and is not in the log",
                    entry.lane, entry.action
                );
                return Err((FailureKind::LostWrite, what));
            }
            Some(command) if acknowledged && command.is_timed && command.now != entry.at => {
                let what = format!(
                    "c{}'s {} was carried out at {:?}, and the log",
                    entry.lane, entry.action, entry.at
                );
                return Err((
                    FailureKind::Divergence,
                    format!("{what} has it at {:?}", command.now),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The log as a reader sees it.
struct Log<S: Specification> {
    /// For each key its states, each with the number of commands before it.
    states: BTreeMap<u64, Vec<(u64, S::State)>>,
    /// For each command the number of commands up to and including it.
    places: BTreeMap<u64, u64>,
    end: u64,
}

impl<S: Specification> Log<S> {
    fn new(history: &History<S>, streams: &[&[Executed]]) -> Self {
        let asked: BTreeMap<u64, &Entry<S>> = history
            .entries
            .iter()
            .map(|entry| (entry.command, entry))
            .collect();
        let mut log = Log {
            states: BTreeMap::new(),
            places: BTreeMap::new(),
            end: 0,
        };
        for stream in streams {
            for (place, command) in (1..).zip(stream.iter()) {
                log.places.insert(command.command, place);
                log.end = log.end.max(place);
                let Some(entry) = asked.get(&command.command) else {
                    continue;
                };
                let states = log
                    .states
                    .entry(S::key(&entry.action))
                    .or_insert_with(|| vec![(0, S::State::default())]);
                let mut state = states.last().expect("begins with the first").1.clone();
                S::apply(&mut state, &entry.action, command.now);
                states.push((place, state));
            }
        }
        log
    }

    /// The smallest number of commands between `low` and `high` after which a read returns
    /// `answer`.
    fn place_of_read(
        &self,
        entry: &Entry<S>,
        answer: &S::Answer,
        low: u64,
        high: u64,
    ) -> Option<u64> {
        let never = [(0, S::State::default())];
        let states = self
            .states
            .get(&S::key(&entry.action))
            .map_or(&never[..], |states| &states[..]);
        for (index, (begins, state)) in states.iter().enumerate() {
            let ends = states.get(index + 1).map_or(self.end, |(next, _)| next - 1);
            let place = low.max(*begins);
            if place <= ends.min(high)
                && S::apply(&mut state.clone(), &entry.action, entry.at) == *answer
            {
                return Some(place);
            }
        }
        None
    }
}

/// Checks sequential and eventual reads. Each operation gets the earliest position in the log that
/// explains it and that is not before any operation that its lane had completed; if there is none,
/// no order explains the reads.
pub(crate) fn check<S: Specification>(
    history: &History<S>,
    streams: &[&[Executed]],
    order: Order,
) -> Found {
    // The states of a key follow from its own stream only if each command writes one key. Clients
    // of such runs read linearizably, which is checked elsewhere.
    let spans = |entry: &Entry<S>| S::others(&entry.action) != Others::None;
    let mut entries = history.entries.iter();
    if entries.any(|entry| spans(entry) && !S::is_read(&entry.action)) {
        return Ok(());
    }
    let log: Log<S> = Log::new(history, streams);
    // By lane and incarnation (and key, if only the order per key is promised): when an operation
    // was completed, and its position.
    let mut done: BTreeMap<(Index, u32, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for entry in &history.entries {
        let (Fate::Done(answer), Some(completed)) = (&entry.fate, entry.completed) else {
            continue;
        };
        // Only linearizable reads promise anything of two keys, and these are checked elsewhere.
        if spans(entry) {
            continue;
        }
        let key = if order == Order::Total {
            0
        } else {
            S::key(&entry.action)
        };
        let before = done.entry((entry.lane, entry.life, key)).or_default();
        let earlier = before.iter().filter(|(end, _)| *end < entry.invoked.order);
        let low = earlier.map(|(_, place)| *place).max().unwrap_or(0);
        let high = if order == Order::Total {
            entry.executed.min(log.end)
        } else {
            log.end
        };
        let place = match entry.operation {
            Operation::Write | Operation::Change => match log.places.get(&entry.command) {
                Some(place) => Some(*place).filter(|place| *place > low),
                // It was executed, and wrote nothing: a read that went through the log.
                None => log.place_of_read(entry, answer, low, high),
            },
            Operation::Read(ReadLevel::Eventual) => log.place_of_read(entry, answer, 0, high),
            Operation::Read(_) => log.place_of_read(entry, answer, low, high),
        };
        let Some(place) = place else {
            return Err(explain(entry, answer, low, high));
        };
        if entry.operation != Operation::Read(ReadLevel::Eventual) {
            before.push((completed.order, place));
        }
    }
    Ok(())
}

fn explain<S: Specification>(
    entry: &Entry<S>,
    answer: &S::Answer,
    low: u64,
    high: u64,
) -> (FailureKind, String) {
    let who = format!(
        "c{}'s {} at {} us was answered {answer}",
        entry.lane, entry.action, entry.invoked.at
    );
    match entry.operation {
        Operation::Read(ReadLevel::Eventual) => (
            FailureKind::Eventual,
            format!("{who}, which was right after none of the first {high} commands"),
        ),
        _ => {
            let why = "the lane had seen the effect of this many commands";
            (
                FailureKind::Sequential,
                format!("{who}; {why}: {low}, and there is no such place from there to {high}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Moment;
    use crate::journal::{self, Journal, Recorded, command_hash};
    use crate::machine::{Answer, Lists};
    use crate::scenario::Canary;
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::time::Timestamp;

    /// A log of `set a 1; set a 2` and the reads of clients.
    struct Case {
        lists: Lists,
        history: History<Lists>,
        journal: journal::SharedJournal,
        copy: Recorded,
    }

    impl Case {
        fn new() -> Self {
            let lists = Lists::new(1);
            let journal = Journal::shared(Order::Total, true);
            let copy = Recorded::new(&journal, "copy".into(), &lists, Canary::None);
            let mut case = Case {
                lists,
                history: History::new(),
                journal,
                copy,
            };
            case.ask(0, "set a 1", true, Fate::Done(Answer::Done));
            case.ask(0, "set a 2", true, Fate::Done(Answer::Done));
            case
        }

        fn ask(&mut self, lane: u8, text: &str, executed: bool, fate: Fate<Answer>) {
            let call = self.lists.parse(text).unwrap();
            if executed {
                self.copy
                    .apply(Timestamp(0), &call.payload, &mut Vec::new());
            }
            let moments: [Moment; 2] = [self.history.moment(0), self.history.moment(0)];
            self.history.entries.push(Entry {
                lane,
                life: 0,
                operation: call.operation,
                command: command_hash(&call.payload),
                action: call.action,
                invoked: moments[0],
                completed: Some(moments[1]),
                at: Timestamp(0),
                fate,
                executed: journal::open(&self.journal).length(),
            });
        }

        fn read(&mut self, lane: u8, level: &str, value: u64) {
            self.ask(
                lane,
                &format!("read-{level} a"),
                false,
                Fate::Done(Answer::List(Some(vec![value]))),
            );
        }

        fn verdict(&self) -> Option<FailureKind> {
            let journal = journal::open(&self.journal);
            let streams: Vec<_> = journal.streams().collect();
            let found = audit(&self.history, &streams)
                .and_then(|()| check(&self.history, &streams, Order::Total));
            found.err().map(|(kind, _)| kind)
        }
    }

    #[test]
    fn what_was_acknowledged_must_be_in_the_log_and_what_was_refused_must_not() {
        let unknown = Fate::Refused(Refusal::Unknown);
        let cases = [
            (true, Fate::Done(Answer::Done), None),
            (
                false,
                Fate::Done(Answer::Done),
                Some(FailureKind::LostWrite),
            ),
            (
                true,
                Fate::Refused(Refusal::Unavailable),
                Some(FailureKind::Refused),
            ),
            (
                true,
                Fate::Refused(Refusal::Busy),
                Some(FailureKind::Refused),
            ),
            (false, Fate::Refused(Refusal::Unavailable), None),
            (true, unknown.clone(), None),
            (false, unknown, None),
            (true, Fate::Lost, None),
        ];
        for (executed, fate, expected) in cases {
            let mut case = Case::new();
            case.ask(1, "set a 3", executed, fate.clone());
            assert_eq!(case.verdict(), expected, "{fate:?}, executed: {executed}");
        }
    }

    #[test]
    fn a_command_without_a_sender_is_seen() {
        let mut case = Case::new();
        case.copy.apply(Timestamp(0), b"stray", &mut Vec::new());
        assert_eq!(case.verdict(), Some(FailureKind::ExactlyOnce));
    }

    #[test]
    fn a_lane_sees_its_own_writes_and_never_less_than_before() {
        for (lane, values, expected) in [
            (0, &[2, 2][..], None),
            // Lane 0 wrote 2, and lane 1 did not.
            (0, &[1], Some(FailureKind::Sequential)),
            (1, &[1, 2], None),
            (1, &[2, 1], Some(FailureKind::Sequential)),
            (1, &[7], Some(FailureKind::Sequential)),
        ] {
            let mut case = Case::new();
            values
                .iter()
                .for_each(|value| case.read(lane, "sequential", *value));
            assert_eq!(case.verdict(), expected, "{lane} {values:?}");
        }
    }

    #[test]
    fn eventual_reads_may_go_back_but_not_astray_or_ahead() {
        for (values, expected) in [(&[2, 1][..], None), (&[7], Some(FailureKind::Eventual))] {
            let mut case = Case::new();
            values
                .iter()
                .for_each(|value| case.read(0, "eventual", *value));
            assert_eq!(case.verdict(), expected, "{values:?}");
        }
        // No replica had executed this at the time of the read.
        let mut case = Case::new();
        case.read(1, "eventual", 3);
        case.ask(0, "set a 3", true, Fate::Done(Answer::Done));
        assert_eq!(case.verdict(), Some(FailureKind::Eventual));
    }
}
