//! Clients that wait until a stream grows.
//!
//! The gateway asks a replica, for all of them together, how far their streams have come: first
//! after a millisecond, then after twice the time, up to 50 ms; again after a millisecond when
//! something has grown or another client begins to wait. Clients whose streams have grown ask for
//! the entries by themselves, at their own level. If the streams are more than one question has
//! room for, the next question of the same round follows at the reply.

use crate::host::count;
use crate::serve::Inner;
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_machines::kv::{self, Command, Compound};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The pauses between two questions.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// How much longer the shortest pause is for each stream that a client waits for: they are all
/// looked at, and ten thousand of them must not keep the event loop busy.
const PER_STREAM: Duration = Duration::from_micros(4);

/// The same for each client, whose deadline is looked at, for the pause between two looks.
const PER_CLIENT: Duration = Duration::from_micros(1);

/// How often the gateway looks whether clients that wait are still connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The upper half of the tokens of questions: no connection has this index. The highest bit is that
/// of the node's own requests.
const ASKING: u64 = i32::MAX as u64;

/// What is known of the clients that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    /// The connections that waited when they were last looked at.
    clients: BTreeSet<u32>,
    runs: bool,
    pause: Duration,
    /// Number of questions so far.
    asked: u32,
    /// When the last one was sent, or would have been if another one were not in flight.
    asked_at: Option<Instant>,
    /// Keys of the question in flight, and when it was sent.
    question: Option<(Vec<Bytes>, Instant)>,
    /// The last key of the last question, if the round is not over: the next one begins behind it.
    last: Option<Bytes>,
    /// Ends a pause early: a client begins to wait, or a stream has grown.
    wake: Rc<Notify>,
    looked_at: Option<Instant>,
}

/// The time until the clients are looked at again.
#[derive(Debug, PartialEq)]
struct Pause {
    least: Duration,
    most: Duration,
}

impl Pause {
    /// Between two looks are at least `look`, whatever happens. A question is due after `question`,
    /// or already after `least` if the pause is ended early. A deadline is due after `deadline`,
    /// and does not wait for a question.
    fn new(look: Duration, least: Duration, question: Duration, deadline: Duration) -> Pause {
        let first = |time: Duration| time.min(deadline).max(look);
        Pause {
            least: first(least),
            most: first(question.max(least)),
        }
    }
}

impl Inner {
    /// A client waits: starts the task that asks for all of them.
    pub(crate) fn start_waiting(self: Rc<Self>, index: u32) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.clients.insert(index) {
            return;
        }
        waiting.pause = SHORTEST;
        waiting.wake.notify_one();
        if std::mem::replace(&mut waiting.runs, true) {
            return;
        }
        let wake = waiting.wake.clone();
        drop(waiting);
        tokio::task::spawn_local(async move {
            while let Some(Pause { least, most }) = self.next_pause() {
                tokio::time::sleep(least).await;
                let _ = tokio::time::timeout(most - least, wake.notified()).await;
                self.clone().look();
                self.begin_round();
            }
        });
    }

    /// The shortest pause between two questions.
    fn least_pause(&self) -> Duration {
        let streams = self.host.awaited.borrow().streams();
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        SHORTEST.max(PER_STREAM.saturating_mul(streams))
    }

    /// The next pause; `None` if no client waits, which ends the task.
    fn next_pause(&self) -> Option<Pause> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.clients.is_empty() {
            waiting.runs = false;
            return None;
        }
        let now = Instant::now();
        let mut slots = self.slots.borrow_mut();
        let mut deadline = LONGEST;
        for index in &waiting.clients {
            let ends = slots
                .get(*index)
                .and_then(|open| open.connection.waits_until());
            if let Some(ends) = ends {
                deadline = deadline.min(ends.saturating_duration_since(now));
            }
        }
        let clients = u32::try_from(waiting.clients.len()).unwrap_or(u32::MAX);
        let look = SHORTEST.max(PER_CLIENT.saturating_mul(clients));
        let passed = waiting
            .asked_at
            .map_or(LONGEST, |at| now.duration_since(at));
        Some(Pause::new(
            look,
            self.least_pause().saturating_sub(passed),
            waiting.pause.saturating_sub(passed),
            deadline,
        ))
    }

    /// Forgets the clients that do not wait any more, and lets those ask whose time is over.
    fn look(self: Rc<Self>) {
        let now = Instant::now();
        let mut waiting = self.waiting.borrow_mut();
        let looks = waiting
            .looked_at
            .is_none_or(|at| now.duration_since(at) >= LOOK_EVERY);
        if looks {
            waiting.looked_at = Some(now);
        }
        let leaves = self.drain.leave().is_some();
        let mut slots = self.slots.borrow_mut();
        let mut asking = Vec::new();
        waiting.clients.retain(|index| {
            let Some(open) = slots.get(*index) else {
                return false;
            };
            if open.connection.waits_for().is_none() {
                // Another connection may have its place.
                return false;
            }
            if looks && is_gone(open.socket.stream()) {
                open.connection.close();
                asking.push(*index);
            } else if open.connection.on_waiting(now, leaves) {
                asking.push(*index);
            }
            open.connection.waits_for().is_some() && !open.connection.is_closed()
        });
        drop((waiting, slots));
        asking
            .into_iter()
            .for_each(|index| self.clone().settle(index));
    }

    /// Asks how far the streams have come, unless a question is in flight or the last one was sent
    /// just now.
    fn begin_round(&self) {
        let least = self.least_pause();
        let mut waiting = self.waiting.borrow_mut();
        let now = Instant::now();
        let is_due = |at: Instant, pause| now.duration_since(at) >= pause;
        if waiting.asked_at.is_some_and(|at| !is_due(at, least)) {
            return;
        }
        waiting.asked_at = Some(now);
        waiting.pause = (2 * waiting.pause).clamp(SHORTEST, LONGEST);
        let deadline = self.host.limits.deadline;
        let is_asking = waiting.question.as_ref();
        if is_asking.is_some_and(|(_, at)| !is_due(*at, deadline)) {
            return;
        }
        drop(waiting);
        self.ask_for_tails();
    }

    /// Asks for the next streams of the round: as many as a compound may have.
    fn ask_for_tails(&self) {
        let limits = &self.host.limits;
        let mut waiting = self.waiting.borrow_mut();
        let (keys, more) = self.host.awaited.borrow().behind(
            waiting.last.as_ref(),
            limits.compound_commands,
            limits.compound_bytes,
        );
        waiting.last = keys.last().filter(|_| more).cloned();
        if keys.is_empty() {
            return;
        }
        waiting.asked = waiting.asked.wrapping_add(1);
        let token = ASKING << 32 | u64::from(waiting.asked);
        let question = Compound::Pipeline(vec![Command::tails(keys.clone())]);
        let now = Instant::now();
        waiting.question = Some((keys, now));
        waiting.asked_at = Some(now);
        drop(waiting);
        (self.submit)(Request {
            token,
            operation: Operation::Read(ReadLevel::Sequential),
            payload: self.host.rights.encoded(&question, None),
        });
    }

    /// Takes the reply to a question; false if it is the reply to something else.
    pub(crate) fn on_tails(&self, reply: &Reply) -> bool {
        if reply.token >> 32 != ASKING {
            return false;
        }
        let mut waiting = self.waiting.borrow_mut();
        if reply.token as u32 != waiting.asked {
            return true;
        }
        let question = waiting.question.take();
        // Without an answer the next question comes after the pause.
        let (Some((keys, _)), Ok(outcome)) = (question, &reply.outcome) else {
            return true;
        };
        let tails = crate::resp3::bulks(&kv::answered(outcome).1).unwrap_or_default();
        let tails: BTreeMap<Bytes, Bytes> = keys.into_iter().zip(tails).collect();
        let mut slots = self.slots.borrow_mut();
        let mut has_grown = false;
        for index in &waiting.clients {
            let Some(open) = slots.get(*index) else {
                continue;
            };
            let asks = open.connection.on_tails(|key| tails.get(key).cloned());
            has_grown |= asks;
            count(&self.host.stats.woken, u64::from(asks));
            if asks && !std::mem::replace(&mut open.dirty, true) {
                self.dirty.borrow_mut().push(*index);
            }
        }
        if has_grown {
            waiting.pause = SHORTEST;
            waiting.wake.notify_one();
        }
        let goes_on = waiting.last.is_some();
        drop((waiting, slots));
        if goes_on {
            self.ask_for_tails();
        }
        true
    }
}

/// Whether the client has closed its side of the connection. The connection itself notices only
/// when it reads, which it does not while commands wait behind one that waits.
fn is_gone(stream: &TcpStream) -> bool {
    let ready = pin!(stream.ready(Interest::READABLE));
    match ready.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(ready)) => ready.is_read_closed(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_does_not_wait_for_the_next_question() {
        let pause = |look, least, question, deadline| {
            let [look, least, question, deadline] =
                [look, least, question, deadline].map(Duration::from_millis);
            let pause = Pause::new(look, least, question, deadline);
            (pause.least.as_millis(), pause.most.as_millis())
        };
        assert_eq!(pause(1, 40, 50, 50), (40, 50));
        assert_eq!(pause(1, 40, 50, 45), (40, 45));
        assert_eq!(pause(1, 40, 50, 7), (7, 7));
        assert_eq!(pause(1, 40, 50, 0), (1, 1));
        assert_eq!(pause(1, 0, 0, 50), (1, 1));
        assert_eq!(pause(1, 60, 50, 50), (50, 50));
    }
}
