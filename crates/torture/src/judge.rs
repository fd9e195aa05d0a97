//! Checks the histories of retired keys, on a separate thread while clients work.

use crate::keys::{Outcome, Record, Retired, name};
use crate::ledger;
use crate::model::{Action, Answer, Kind, Model, State, read};
use ionian_kernel::time::Timestamp;
use ionian_sim::linearizability::{Interval, Verdict, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Maximum number of histories that wait to be checked; then clients wait.
const WAITING: usize = 4096;

/// Step limit for the search; a history of these lengths needs some hundreds.
const STEPS: u64 = 10_000_000;

/// What is wrong with a key.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) key: String,
    /// The first line describes it, further lines may explain it.
    pub(crate) what: String,
    /// All requests and replies as text.
    pub(crate) history: String,
}

/// The expected value of a key at the end.
#[derive(Debug)]
pub(crate) enum Expected {
    /// Exactly this value.
    Settled { id: u64, state: State },
    /// Any value that its whole history explains, because some writes may still take effect.
    Open(Retired),
}

/// The verdict.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) expected: Vec<Expected>,
    pub(crate) violations: Vec<Violation>,
}

/// The thread.
pub(crate) struct Judge {
    sender: SyncSender<Retired>,
    thread: JoinHandle<Judgement>,
    found: Arc<AtomicU64>,
}

impl Judge {
    pub(crate) fn start() -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        let found = Arc::new(AtomicU64::new(0));
        let count = found.clone();
        let thread = std::thread::spawn(move || judge_all(&receiver, &count));
        Judge {
            sender,
            thread,
            found,
        }
    }

    pub(crate) fn hand_over(&self, retired: Retired) {
        self.sender
            .send(retired)
            .expect("the judge works as long as it is handed histories");
    }

    /// The number of violations so far.
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Relaxed)
    }

    /// Waits until all histories are checked.
    pub(crate) fn finish(self) -> Judgement {
        drop(self.sender);
        self.thread.join().expect("the judge does not panic")
    }
}

fn judge_all(receiver: &Receiver<Retired>, found: &AtomicU64) -> Judgement {
    let mut judgement = Judgement::default();
    for retired in receiver {
        match judge(&retired) {
            Ok(state) if retired.is_settled() => {
                judgement.expected.push(Expected::Settled {
                    id: retired.id,
                    state,
                });
            }
            Ok(_) => judgement.expected.push(Expected::Open(retired)),
            Err(violation) => {
                found.fetch_add(1, Relaxed);
                judgement.violations.push(violation);
            }
        }
    }
    judgement
}

/// Checks a closed history; returns its last value.
pub(crate) fn judge(retired: &Retired) -> Result<State, Violation> {
    let wrong = |what: String| Violation {
        key: name(retired.id),
        what,
        history: table(&retired.records),
    };
    let state = read(retired.kind, retired.bytes.as_deref()).map_err(wrong)?;
    ledger::check(retired).map_err(wrong)?;
    match check(&intervals(&retired.records), STEPS) {
        Verdict::Linearizable => Ok(state),
        Verdict::Violation(text) => Err(wrong(text)),
        Verdict::Unknown(steps) => Err(wrong(format!(
            "no order was found within {steps} steps, nor that there is none"
        ))),
    }
}

impl Expected {
    pub(crate) fn id(&self) -> u64 {
        match self {
            Expected::Settled { id, .. } => *id,
            Expected::Open(retired) => retired.id,
        }
    }

    /// Checks the value of the key at `moment`, at the end of the run.
    pub(crate) fn compare(
        self,
        kind: Kind,
        bytes: Option<&[u8]>,
        moment: u64,
    ) -> Result<(), Violation> {
        match self {
            Expected::Settled { id, state } => {
                let wrong = |what| Violation {
                    key: name(id),
                    what,
                    history: String::new(),
                };
                let found = read(kind, bytes).map_err(wrong)?;
                if found == state {
                    return Ok(());
                }
                let what = format!(
                    "held {state} when all of its writes were done, and holds {found} at the end"
                );
                Err(wrong(what))
            }
            Expected::Open(mut retired) => {
                retired.read_at_the_end(bytes, moment)?;
                judge(&retired).map(drop)
            }
        }
    }
}

impl Retired {
    /// Whether no write can still take effect.
    fn is_settled(&self) -> bool {
        self.records
            .iter()
            .all(|record| record.outcome != Outcome::Unknown || record.action == Action::Get)
    }

    fn read_at_the_end(&mut self, bytes: Option<&[u8]>, moment: u64) -> Result<(), Violation> {
        let wrong = |what| Violation {
            key: name(self.id),
            what,
            history: table(&self.records),
        };
        let state = read(self.kind, bytes).map_err(wrong)?;
        let outcome = Outcome::Done(moment + 1, Answer::Holds(state));
        self.records.push(Record {
            client: u16::MAX,
            action: Action::Get,
            invoked: moment,
            outcome,
        });
        self.bytes = bytes.map(<[u8]>::to_vec);
        Ok(())
    }
}

/// The input of the checker: everything that had, or may have had, an effect, or returned a value.
fn intervals(records: &[Record]) -> Vec<Interval<Model>> {
    let told = records.iter().filter_map(|record| {
        let result = match record.outcome {
            Outcome::Refused => return None,
            Outcome::Unknown if record.action == Action::Get => return None,
            Outcome::Unknown => None,
            Outcome::Done(at, answer) => Some((at, answer)),
        };
        Some(Interval {
            client: client(record),
            action: record.action,
            at: Timestamp(0),
            invoked: record.invoked,
            result,
        })
    });
    told.collect()
}

fn client(record: &Record) -> String {
    if record.client == u16::MAX {
        "end".to_owned()
    } else {
        format!("c{}", record.client)
    }
}

fn table(records: &[Record]) -> String {
    let line = |record: &Record| {
        let (end, answer) = match record.outcome {
            Outcome::Unknown => ("...".to_owned(), "?".to_owned()),
            Outcome::Refused => ("-".to_owned(), "refused".to_owned()),
            Outcome::Done(at, answer) => (at.to_string(), answer.to_string()),
        };
        let span = format!("{}-{end}", record.invoked);
        format!(
            "{:<4} {span:>23}  {:<24} -> {answer}\n",
            client(record),
            record.action.to_string()
        )
    };
    records.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{tag, value};

    const REGISTER: u64 = 0;
    const COUNTER: u64 = 1;
    const LIST: u64 = 2;

    /// A history of sequential operations.
    fn one_after_the_other(operations: &[(Action, Outcome)]) -> Vec<Record> {
        let record = |(place, (action, outcome)): (usize, &(Action, Outcome))| {
            let invoked = 10 * place as u64;
            let outcome = match *outcome {
                Outcome::Done(_, answer) => Outcome::Done(invoked + 5, answer),
                open => open,
            };
            Record {
                client: 0,
                action: *action,
                invoked,
                outcome,
            }
        };
        operations.iter().enumerate().map(record).collect()
    }

    fn done(answer: Answer) -> Outcome {
        Outcome::Done(0, answer)
    }

    fn closed(id: u64, operations: &[(Action, Outcome)], bytes: &[u8]) -> Retired {
        let kind = crate::keys::kind(id);
        let last = (
            Action::Get,
            done(Answer::Holds(read(kind, Some(bytes)).unwrap())),
        );
        let records = one_after_the_other(&[operations, &[last]].concat());
        Retired {
            id,
            kind,
            records,
            bytes: Some(bytes.to_vec()),
        }
    }

    fn what(retired: &Retired) -> String {
        judge(retired).expect_err("it is broken").what
    }

    #[test]
    fn sound_histories_pass_whatever_became_of_what_is_open() {
        let set = [
            (Action::Set(1), done(Answer::Done)),
            (Action::Set(2), Outcome::Unknown),
        ];
        for number in [1, 2] {
            assert!(judge(&closed(REGISTER, &set, &value(number))).is_ok());
        }
        let add = [
            (Action::Add(1), done(Answer::Number(1))),
            (Action::Add(1), Outcome::Unknown),
        ];
        assert!(judge(&closed(COUNTER, &add, b"1")).is_ok());
        assert!(judge(&closed(COUNTER, &add, b"2")).is_ok());
        let append = [
            (Action::Append(1), Outcome::Unknown),
            (Action::Append(2), done(Answer::Length(2))),
        ];
        assert!(judge(&closed(LIST, &append, b"2;")).is_ok());
        assert!(judge(&closed(LIST, &append, b"2;1;")).is_ok());
    }

    #[test]
    fn a_lost_write_is_found() {
        let set = [
            (Action::Set(1), done(Answer::Done)),
            (Action::Set(2), done(Answer::Done)),
        ];
        assert!(what(&closed(REGISTER, &set, &value(1))).contains("no order"));
        let add = [
            (Action::Add(1), done(Answer::Number(1))),
            (Action::Add(1), done(Answer::Number(2))),
        ];
        assert!(what(&closed(COUNTER, &add, b"1")).contains("acknowledged"));
        let append = [
            (Action::Append(1), done(Answer::Length(2))),
            (Action::Append(2), done(Answer::Length(4))),
        ];
        assert!(what(&closed(LIST, &append, &tag(1))).contains("acknowledged"));
    }

    #[test]
    fn a_repeated_write_is_found() {
        let add = [(Action::Add(1), done(Answer::Number(1)))];
        assert!(what(&closed(COUNTER, &add, b"2")).contains("2"));
        let append = [(Action::Append(1), Outcome::Unknown)];
        assert!(what(&closed(LIST, &append, b"1;1;")).contains("twice"));
        // A register shows it if the repetition undoes a later write.
        let set = [
            (Action::Set(1), done(Answer::Done)),
            (Action::Set(2), done(Answer::Done)),
        ];
        let get = (Action::Get, done(Answer::Holds(State::Value(2))));
        assert!(judge(&closed(REGISTER, &[&set[..], &[get]].concat(), &value(1))).is_err());
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [
            (Action::Set(1), done(Answer::Done)),
            (Action::Set(2), done(Answer::Done)),
            (Action::Get, done(Answer::Holds(State::Value(1)))),
        ];
        assert!(what(&closed(REGISTER, &history, &value(2))).contains("no order"));
    }

    #[test]
    fn a_refused_write_that_took_effect_is_found() {
        assert!(
            judge(&closed(
                LIST,
                &[(Action::Append(1), Outcome::Refused)],
                b"1;"
            ))
            .is_err()
        );
    }

    #[test]
    fn what_an_exchange_saw_must_have_been_there() {
        let exchange = |seen| (Action::Exchange { seen, new: 3 }, done(Answer::Was(true)));
        let set = (Action::Set(1), done(Answer::Done));
        assert!(
            judge(&closed(
                REGISTER,
                &[set, exchange(State::Value(1))],
                &value(3)
            ))
            .is_ok()
        );
        assert!(
            judge(&closed(
                REGISTER,
                &[set, exchange(State::Absent)],
                &value(3)
            ))
            .is_err()
        );
    }

    #[test]
    fn a_key_that_changes_after_it_was_closed_is_found_unless_something_was_open() {
        let add = [(Action::Add(1), done(Answer::Number(1)))];
        let settled = || Expected::Settled {
            id: COUNTER,
            state: State::Number(1),
        };
        assert!(closed(COUNTER, &add, b"1").is_settled());
        assert!(settled().compare(Kind::Counter, Some(b"1"), 100).is_ok());
        assert!(settled().compare(Kind::Counter, Some(b"2"), 100).is_err());
        assert!(settled().compare(Kind::Counter, None, 100).is_err());
        let add = [add[0], (Action::Add(1), Outcome::Unknown)];
        let open = || Expected::Open(closed(COUNTER, &add, b"1"));
        assert!(open().compare(Kind::Counter, Some(b"1"), 100).is_ok());
        assert!(open().compare(Kind::Counter, Some(b"2"), 100).is_ok());
        assert!(open().compare(Kind::Counter, Some(b"3"), 100).is_err());
    }
}
