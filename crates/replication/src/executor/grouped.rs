//! What an executor offers to a replica that executes several logs (P-SMR): each log has an
//! executor of its own, and parts of one machine move between them.

use super::Executor;
use crate::session::Sessions;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::Slot;
use ionian_kernel::machine::{RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire, WireError, encode_all};

/// How far one of several logs was executed in a picture, and the time and the sessions of its
/// executor.
pub type Cut = (Slot, Bytes);

/// Of how many logs an executor's pictures tell [cuts](Cut), and whether one without is refused: a
/// cluster may be founded with such a one.
#[derive(Clone, Copy)]
pub(super) struct Logs {
    count: usize,
    required: bool,
}

/// Stands in place of the time where a picture begins with a preamble: no log ever has that time.
const WITH_PREAMBLE: u64 = u64::MAX;

impl Executor {
    /// Numbers the sessions that it opens `first`, `first + step`, and so on: executors of several
    /// logs give none the same number.
    pub fn number_sessions(&mut self, first: u64, step: u64) {
        self.sessions.number(first, step);
    }

    /// The machine: to take parts out of it, or to put them in.
    pub fn machine_mut(&mut self) -> &mut dyn StateMachine {
        &mut *self.machine
    }

    /// Puts another machine in place of its own, which it gives out.
    pub fn swap_machine(&mut self, machine: Box<dyn StateMachine>) -> Box<dyn StateMachine> {
        core::mem::replace(&mut self.machine, machine)
    }

    /// Time in its log has got to `now` at least: another log has, which was executed on the same
    /// state.
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Appends its time and its sessions: all that it has but the machine.
    pub fn put_sessions(&self, out: &mut Vec<u8>) {
        self.now.encode(out);
        self.sessions.snapshot(out);
    }

    /// Takes over a time and sessions that were [put](Executor::put_sessions).
    ///
    /// # Errors
    /// Says what is wrong with the bytes; nothing is then changed.
    pub fn take_sessions(&mut self, bytes: &Bytes) -> Result<(), RestoreError> {
        (self.now, self.sessions) = read_sessions(bytes, &self.sessions)?;
        Ok(())
    }

    /// Pictures tell the cuts of this many logs; `required` says whether one that tells none is
    /// refused.
    pub fn expect_cuts(&mut self, count: usize, required: bool) {
        self.logs = Some(Logs { count, required });
    }

    /// Its pictures tell these cuts from now on.
    pub fn set_cuts(&mut self, cuts: Option<&Vec<Cut>>) {
        self.preamble = cuts.map(|cuts| Bytes::from(encode_all(cuts)));
    }

    /// Takes out the cuts of the picture that it was restored from, if it told any.
    pub fn take_cuts(&mut self) -> Option<Vec<Cut>> {
        let preamble = self.preamble.take()?;
        Vec::decode(&mut Reader::new(&preamble)).ok()
    }

    pub(super) fn put_preamble(&self, out: &mut Vec<u8>) {
        if let Some(preamble) = &self.preamble {
            WITH_PREAMBLE.encode(out);
            preamble.encode(out);
        }
    }

    /// Checks what a picture begins with.
    pub(super) fn check_preamble(&self, preamble: Option<&Bytes>) -> Result<(), RestoreError> {
        let Some(Logs { count, required }) = self.logs else {
            return Ok(());
        };
        let Some(preamble) = preamble else {
            let missing = || RestoreError("it does not say how far the groups are".into());
            return if required { Err(missing()) } else { Ok(()) };
        };
        let cuts: Vec<Cut> = Vec::decode(&mut Reader::new(preamble)).map_err(malformed)?;
        if cuts.len() != count {
            let found = cuts.len();
            return Err(RestoreError(format!(
                "it is of {found} groups, not {count}"
            )));
        }
        cuts.iter()
            .try_for_each(|(_, bytes)| read_sessions(bytes, &self.sessions).map(drop))
    }
}

/// The time and the sessions in these bytes; `like` says how sessions are numbered.
fn read_sessions(bytes: &Bytes, like: &Sessions) -> Result<(Timestamp, Sessions), RestoreError> {
    let mut reader = Reader::new(bytes);
    let now = Timestamp::decode(&mut reader).map_err(malformed)?;
    let mut sessions = like.clone();
    sessions.restore(&mut reader)?;
    Ok((now, sessions))
}

/// A picture without its preamble, if it has one.
///
/// # Errors
/// Says what is wrong with the bytes.
pub fn without_preamble(picture: &Bytes) -> Result<Bytes, RestoreError> {
    Ok(split(picture)?.1)
}

/// How far each of several logs is executed in a picture; none if it does not tell.
///
/// # Errors
/// Says what is wrong with the bytes.
pub fn cuts_in(picture: &Bytes) -> Result<Vec<Slot>, RestoreError> {
    let (Some(preamble), _) = split(picture)? else {
        return Ok(Vec::new());
    };
    let cuts: Vec<Cut> = Vec::decode(&mut Reader::new(&preamble)).map_err(malformed)?;
    Ok(cuts.into_iter().map(|(executed, _)| executed).collect())
}

/// The preamble of a picture, and the rest.
pub(super) fn split(picture: &Bytes) -> Result<(Option<Bytes>, Bytes), RestoreError> {
    let mut reader = Reader::new(picture);
    if u64::decode(&mut reader).map_err(malformed)? != WITH_PREAMBLE {
        return Ok((None, picture.clone()));
    }
    let preamble = Bytes::decode(&mut reader).map_err(malformed)?;
    let rest = picture.slice(picture.len() - reader.remaining()..);
    Ok((Some(preamble), rest))
}

fn malformed(error: WireError) -> RestoreError {
    RestoreError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{AnswersByClient, Batch, Command, Outcome, Purpose, Value};
    use alloc::vec;
    use core::time::Duration;
    use ionian_kernel::id::{ClientId, ReplicaId, SessionId};
    use ionian_kernel::machine::NotARead;

    /// Its state is the last command.
    struct Last(Vec<u8>);

    impl StateMachine for Last {
        fn apply(&mut self, _: Timestamp, command: &[u8], _: &mut Vec<u8>) {
            self.0 = command.to_vec();
        }
        fn read(&self, _: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
            reply.extend_from_slice(&self.0);
            Ok(())
        }
        fn snapshot(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.0);
        }
        fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
            self.0 = snapshot.to_vec();
            Ok(())
        }
    }

    fn executor(state: &[u8]) -> Executor {
        Executor::new(Box::new(Last(state.to_vec())), Duration::from_secs(60))
    }

    /// Executes a command without a number, and gives the outcome if there is one.
    fn execute(executor: &mut Executor, purpose: Purpose) -> Option<Outcome> {
        let batch = Batch::one(&Command {
            client: ClientId(0),
            purpose,
            number: 0,
            floor: 0,
            payload: Bytes::from_static(b"x"),
        });
        let stamp = Timestamp(5);
        let mut answers = AnswersByClient::default();
        executor.execute(Slot(0), &Value { stamp, batch }, Some(&mut answers));
        let mut given = answers.drain(ReplicaId(0).0, Slot(1));
        let (_, answers) = given.next()?;
        answers.iter().next().map(|answer| answer.outcome)
    }

    #[test]
    fn sessions_of_several_logs_have_different_numbers() {
        let mut executor = executor(b"");
        executor.number_sessions(2, 3);
        let opened = [(); 3].map(|()| execute(&mut executor, Purpose::Open));
        let numbers = [2, 5, 8].map(|number| Some(Outcome::Opened(SessionId(number))));
        assert_eq!(opened, numbers);
    }

    #[test]
    fn a_read_in_the_log_is_answered_from_the_state_at_its_turn() {
        let mut executor = executor(b"state");
        let answer = execute(&mut executor, Purpose::Read);
        assert_eq!(answer, Some(Outcome::Done(Bytes::from_static(b"state"))));
    }

    #[test]
    fn a_picture_keeps_its_preamble_and_is_whole_without_it() {
        let mut one = executor(b"state");
        let plain = one.snapshot();
        let mut sessions = vec![];
        one.put_sessions(&mut sessions);
        let cuts = vec![(Slot(7), Bytes::from(sessions))];
        one.set_cuts(Some(&cuts));
        let picture = one.snapshot();
        assert_eq!(without_preamble(&picture), Ok(plain.clone()));
        assert_eq!(without_preamble(&plain), Ok(plain.clone()));
        let mut other = executor(b"");
        other.expect_cuts(1, true);
        other.restore(&picture).unwrap();
        assert_eq!(other.take_cuts(), Some(cuts));
        assert_eq!(other.snapshot(), plain);
    }

    #[test]
    fn a_picture_of_other_groups_changes_nothing() {
        let mut one = executor(b"one");
        let without = one.snapshot();
        one.set_cuts(Some(&vec![(Slot(7), Bytes::from_static(b"damaged"))]));
        let damaged = one.snapshot();
        let mut other = executor(b"other");
        let before = other.snapshot();
        other.expect_cuts(1, true);
        assert!(other.restore(&without).is_err(), "it tells no cuts");
        assert!(other.restore(&damaged).is_err());
        other.expect_cuts(2, false);
        assert!(other.restore(&damaged).is_err());
        assert_eq!(other.snapshot(), before);
        other
            .restore(&without)
            .expect("a cluster is founded with it");
    }

    #[test]
    fn time_and_sessions_are_taken_over_without_the_machine() {
        let mut one = executor(b"one");
        execute(&mut one, Purpose::Open);
        let mut bytes = vec![];
        one.put_sessions(&mut bytes);
        let mut other = executor(b"other");
        other.take_sessions(&Bytes::from(bytes)).unwrap();
        assert_eq!((other.now(), other.session_count()), (Timestamp(5), 1));
        assert!(other.snapshot().ends_with(b"other"));
        assert!(other.take_sessions(&Bytes::from_static(b"no")).is_err());
    }
}
