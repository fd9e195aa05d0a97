//! The state inside a snapshot: the machine with its sessions.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ionian_kernel::batch::{AnswersByClient, BatchBuilder, Command, Outcome, SessionId};
use ionian_kernel::executor::Executor;
use ionian_kernel::id::{ClientId, Slot};
use ionian_kernel::layout::Options;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{self, Compound, Kv};

/// An empty state. Sessions expire as they do by default: that of a deployment that says otherwise matters to
/// nobody here, since the clients are gone.
pub(crate) fn empty() -> Executor {
    Executor::new(Box::new(Kv::default()), Options::default().session_expiry)
}

/// The state of a snapshot.
pub(crate) fn restored(snapshot: &Bytes) -> Result<Executor> {
    let mut executor = empty();
    executor.restore(snapshot).context("its checksums are right, but it is no state of this program")?;
    Ok(executor)
}

/// How many keys there are.
pub(crate) fn keys(executor: &mut Executor) -> Result<u64> {
    let words = [Bytes::from_static(b"DBSIZE")];
    let Ok(command) = kv::Command::parse_queued(&words) else { bail!("DBSIZE is no command") };
    let payload = Compound::Pipeline(vec![command]).encode();
    let mut batch = BatchBuilder::default();
    batch.push(&Command { client: ClientId(0), session: SessionId::OPEN, number: 0, floor: 0, payload });
    let mut answers = AnswersByClient::default();
    executor.read(Timestamp(0), &batch.take(), &mut answers);
    let answers = answers.take_all(0, Slot(0));
    let reply = answers.iter().next().and_then(|answer| match answer.outcome {
        Outcome::Done(reply) => Some(kv::answered(&reply).1),
        _ => None,
    });
    let reply = reply.context("DBSIZE has no answer")?;
    let digits = std::str::from_utf8(&reply).ok().and_then(|text| text.trim().strip_prefix(':'));
    digits.and_then(|digits| digits.parse().ok()).context("DBSIZE has no number for an answer")
}
