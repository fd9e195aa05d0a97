//! The level of the cluster, which the log decides: what the machine learns of it, and what keeps
//! it from falling.

use super::*;
use ionian_kernel::machine::Need;
use ionian_kernel::membership::{Verdict, verdict};

/// Answers with the level that a command is executed at. `+` and `-` set and clear what needs level
/// 18.
#[derive(Default)]
struct Levels(bool);

impl StateMachine for Levels {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {
        unreachable!("replicas call the other one")
    }
    fn apply_logged(&mut self, _: Timestamp, command: &LogCommand<'_>, reply: &mut Vec<u8>) {
        self.0 = command.payload == b"+" || self.0 && command.payload != b"-";
        reply.extend_from_slice(&command.level.0.to_be_bytes());
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
    fn needs(&self) -> Option<Need> {
        let (level, what) = (Level(18), "a plus".into());
        self.0.then_some(Need { level, what })
    }
}

/// A step of the log, each in a slot of its own, beginning with 1.
enum Step {
    /// A command; it is executed at this level.
    Told(&'static [u8], u16),
    /// A change to this level that was planned in this epoch.
    Change(u32, u16, Verdict),
}

fn log(executor: &mut Executor, steps: Vec<Step>) {
    outcomes(executor, &value(&[(0, 77, b"")]));
    for (slot, step) in (1..).map(Slot).zip(steps) {
        let (purpose, payload) = match &step {
            Step::Told(payload, _) => (Purpose::Execute(SessionId(1)), Bytes::from_static(payload)),
            Step::Change(base, to, _) => {
                let (base, to) = (Epoch(*base), Level(*to));
                let change = Change::Level { base, to };
                (Purpose::Change, encode_all(&change).into())
            }
        };
        let batch = Batch::one(&Command {
            client: ClientId(3),
            purpose,
            number: slot.0,
            floor: 0,
            payload,
        });
        let value = Value {
            stamp: Timestamp(5),
            batch,
        };
        let mut answers = AnswersByClient::default();
        executor.execute(slot, &value, Some(&mut answers));
        let answers = answers.take_some(0, slot);
        let outcome = answers.iter().next().expect("an answer").outcome;
        let Outcome::Done(reply) = outcome else {
            panic!("{outcome:?}")
        };
        match step {
            Step::Told(_, level) => assert_eq!(reply, level.to_be_bytes()[..], "{slot:?}"),
            Step::Change(_, _, expected) => assert_eq!(verdict(&reply), Ok(expected), "{slot:?}"),
        }
    }
}

fn accepted(epoch: u32) -> Verdict {
    Verdict::Accepted {
        epoch: Epoch(epoch),
    }
}

fn executor() -> Executor {
    Executor::new(Box::new(Levels::default()), Duration::from_secs(60))
}

#[test]
fn a_machine_learns_the_level_and_keeps_one_that_it_needs() {
    let needed = || Verdict::Needed {
        what: "a plus".into(),
    };
    let mut executor = executor();
    let steps = vec![
        Step::Told(b"", 17),
        Step::Change(0, 18, accepted(1)),
        Step::Told(b"+", 18),
        Step::Change(1, 17, needed()),
        Step::Told(b"-", 18),
        Step::Change(1, 17, accepted(2)),
        Step::Told(b"", 17),
        // Its sender asks again.
        Step::Change(1, 17, accepted(2)),
    ];
    log(&mut executor, steps);
    assert_eq!(executor.level_changed(), Slot(7), "it was the sixth");
}

/// A change that comes too late is outdated, whatever the machine needs.
#[test]
fn a_need_is_the_reason_only_where_the_level_could_fall() {
    let outdated = Verdict::Outdated {
        epoch: Epoch(1),
        changing: false,
    };
    let steps = vec![
        Step::Change(0, 18, accepted(1)),
        Step::Told(b"+", 18),
        Step::Change(0, 17, outdated),
    ];
    log(&mut executor(), steps);
}

#[test]
fn where_another_log_decides_the_level_commands_are_executed_at_the_highest() {
    let mut executor = executor();
    executor.has_its_level_elsewhere();
    log(&mut executor, vec![Step::Told(b"", Level::LATEST.0)]);
}
