//! What defects need that take more than a line.

use bytes::Bytes;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::membership::Membership;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::{Reader, Wire};
use ionian_replication::batch::{Answer, AnswersByClient, BatchBuilder, Purpose, Value};
use ionian_replication::executor::Executor;
use ionian_replication::session::{SESSION_WINDOW, Sessions};

/// An executor's snapshot in which every session looks as if it were new.
pub(crate) fn without_sessions(snapshot: &Bytes) -> Bytes {
    let mut reader = Reader::new(snapshot);
    let now = Timestamp::decode(&mut reader).expect("begins with the time");
    let membership = Membership::decode(&mut reader).expect("goes on with the membership");
    let next = SessionId::decode(&mut Reader::new(
        &snapshot.slice(snapshot.len() - reader.remaining()..),
    ));
    let next = next.expect("then come the sessions");
    let mut sessions = Sessions::new(Duration::from_secs(600));
    sessions.restore(&mut reader).expect("whole");
    let mut forgetful = Sessions::new(Duration::from_secs(600));
    for _ in 1..next.0 {
        forgetful.open(now);
    }
    let mut out = Vec::new();
    now.encode(&mut out);
    membership.encode(&mut out);
    forgetful.snapshot(&mut out);
    out.extend_from_slice(&snapshot[snapshot.len() - reader.remaining()..]);
    Bytes::from(out)
}

/// Executes a value as if none of its commands had been executed before: each has a number of its
/// own, which the answer does not show.
pub(crate) fn execute_again(
    executor: &mut Executor,
    slot: Slot,
    value: &Value,
    answers: Option<&mut AnswersByClient>,
) {
    let mut numbers = Vec::new();
    let mut fresh = BatchBuilder::default();
    for (place, command) in (1..).zip(value.batch.commands()) {
        let mut command = command.to_owned();
        numbers.push((command.client, command.purpose, command.number));
        if let Purpose::Execute(_) = command.purpose {
            command.number = slot.0 * SESSION_WINDOW + place;
            command.floor = command.number;
        }
        fresh.push(&command);
    }
    let batch = fresh.take();
    let renumbered: Vec<u64> = batch.commands().map(|command| command.number).collect();
    let mut given = AnswersByClient::default();
    let stamp = value.stamp;
    executor.execute(slot, &Value { stamp, batch }, Some(&mut given));
    let Some(answers) = answers else {
        return;
    };
    for answer in given.take_some(0, slot).iter() {
        let place = renumbered
            .iter()
            .position(|number| *number == answer.number);
        let (client, purpose, number) = numbers[place.expect("an answer to one of them")];
        answers.push(&Answer {
            client,
            purpose,
            number,
            outcome: answer.outcome,
        });
    }
}
