//! The state in a snapshot: the state machine and the sessions.

use super::file::Opened;
use crate::protocols::MACHINE;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Slot};
use ionian_kernel::layout::Options;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{self, Compound, Kv};
use ionian_netfs::NetFs;
use ionian_replication::batch::{AnswersByClient, BatchBuilder, Command, Outcome, Purpose};
use ionian_replication::executor::Executor;

/// Stands for a state machine that this program does not contain: it keeps the state as bytes.
#[derive(Default)]
struct Unknown(Vec<u8>);

impl StateMachine for Unknown {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {
        unreachable!("commands are executed by the program that has the machine")
    }

    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> std::result::Result<(), NotARead> {
        Err(NotARead)
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn restore(&mut self, snapshot: &[u8]) -> std::result::Result<(), RestoreError> {
        self.0 = snapshot.to_vec();
        Ok(())
    }
}

/// An empty state of this state machine. Sessions get the default expiry; the value of the
/// deployment does not matter, because no client uses this state.
pub(crate) fn empty(machine: &str) -> Executor {
    let machine: Box<dyn StateMachine> = match machine {
        MACHINE => Box::new(Kv::default()),
        ionian_netfs::NAME => Box::new(NetFs::default()),
        _ => Box::new(Unknown::default()),
    };
    Executor::new(machine, Options::default().session_expiry)
}

/// The state of a snapshot. If this program does not contain the state machine, the state machine's
/// own part is not checked.
pub(crate) fn restored(snapshot: &Bytes, machine: &str) -> Result<Executor> {
    let mut executor = empty(machine);
    executor
        .restore(snapshot)
        .context("the checksums are right, but the state is not readable by this program")?;
    Ok(executor)
}

/// The state of a backup that was read.
pub(crate) fn checked(opened: &Opened) -> Result<Executor> {
    restored(&opened.state, &opened.head.machine).with_context(|| opened.path.display().to_string())
}

/// The number of keys.
pub(crate) fn keys(executor: &mut Executor) -> Result<u64> {
    let words = [Bytes::from_static(b"DBSIZE")];
    let Ok(command) = kv::Command::parse_queued(&words) else {
        bail!("DBSIZE is not a command")
    };
    // Whatever the users of the cluster were, who has its snapshot may count its keys.
    let payload = kv::judged_at(u64::MAX, &Compound::Pipeline(vec![command]).encode());
    let mut batch = BatchBuilder::default();
    batch.push(&Command {
        client: ClientId(0),
        purpose: Purpose::Open,
        number: 0,
        floor: 0,
        payload,
    });
    let mut answers = AnswersByClient::default();
    executor.read(Timestamp(0), &batch.take(), &mut answers);
    let answers = answers.take_some(0, Slot(0));
    let reply = answers
        .iter()
        .next()
        .and_then(|answer| match answer.outcome {
            Outcome::Done(reply) => Some(kv::answered(&reply).1),
            _ => None,
        });
    let reply = reply.context("DBSIZE has no answer")?;
    let digits = std::str::from_utf8(&reply)
        .ok()
        .and_then(|text| text.trim().strip_prefix(':'));
    digits
        .and_then(|digits| digits.parse().ok())
        .context("the answer of DBSIZE is not a number")
}
