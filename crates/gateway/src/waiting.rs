//! Clients that wait until a stream grows.
//!
//! The gateway asks a replica, for all of them together, how far their streams have come: first
//! after a millisecond, then after twice the time, up to 50 ms; again after a millisecond when
//! something has grown or another client begins to wait. Clients whose streams have grown ask for
//! the entries by themselves, at their own level.

use crate::host::count;
use crate::serve::Inner;
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_machines::kv::{self, Command, Compound};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
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
    /// Keys of the question in flight, and when it was sent.
    question: Option<(Vec<Bytes>, Instant)>,
    /// The last key of the last question: the next one begins behind it, if not all have room.
    last: Bytes,
    /// Ends a pause early: a client begins to wait, or a stream has grown.
    wake: Rc<Notify>,
    looked_at: Option<Instant>,
}

/// The time until the next question.
struct Pause {
    least: Duration,
    most: Duration,
    wake: Rc<Notify>,
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
        drop(waiting);
        tokio::task::spawn_local(async move {
            while let Some(Pause { least, most, wake }) = self.next_pause() {
                tokio::time::sleep(least).await;
                let _ = tokio::time::timeout(most - least, wake.notified()).await;
                self.clone().look();
                self.ask_for_tails();
            }
        });
    }

    /// The next pause; `None` if no client waits, which ends the task.
    fn next_pause(&self) -> Option<Pause> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.clients.is_empty() {
            waiting.runs = false;
            return None;
        }
        let mut slots = self.slots.borrow_mut();
        let (mut left, mut streams) = (LONGEST, 0_u32);
        for index in &waiting.clients {
            let waits = slots
                .get(*index)
                .and_then(|open| open.connection.waits_until());
            let Some((deadline, count)) = waits else {
                continue;
            };
            streams = streams.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            if let Some(deadline) = deadline {
                left = left.min(deadline.saturating_duration_since(Instant::now()));
            }
        }
        drop(slots);
        let least = SHORTEST.max(PER_STREAM.saturating_mul(streams));
        let pause = waiting.pause.min(left);
        waiting.pause = (2 * waiting.pause).clamp(SHORTEST, LONGEST);
        Some(Pause {
            least,
            most: pause.max(least),
            wake: waiting.wake.clone(),
        })
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
            if looks && is_gone(open.socket.as_ref()) {
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

    /// Asks how far the streams have come, unless a question is in flight.
    fn ask_for_tails(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let deadline = self.host.limits.deadline;
        let is_asking = waiting
            .question
            .as_ref()
            .is_some_and(|(_, at)| at.elapsed() < deadline);
        if is_asking {
            return;
        }
        let keys = self.keys_to_ask(&waiting);
        let Some(last) = keys.last() else {
            return;
        };
        waiting.last = last.clone();
        waiting.asked = waiting.asked.wrapping_add(1);
        let token = ASKING << 32 | u64::from(waiting.asked);
        let question = Compound::Pipeline(vec![Command::tails(keys.clone())]);
        waiting.question = Some((keys, Instant::now()));
        drop(waiting);
        (self.submit)(Request {
            token,
            operation: Operation::Read(ReadLevel::Sequential),
            payload: Bytes::from(question.encode()),
        });
    }

    /// The keys of the next question: those behind the last one's, as many as a compound may have,
    /// then the first ones again.
    fn keys_to_ask(&self, waiting: &Waiting) -> Vec<Bytes> {
        let limits = &self.host.limits;
        let mut slots = self.slots.borrow_mut();
        let mut keys = BTreeSet::new();
        for index in &waiting.clients {
            let command = slots
                .get(*index)
                .and_then(|open| open.connection.waits_for());
            keys.extend(command.into_iter().flat_map(Command::read_keys));
        }
        let behind = keys.range((Bound::Excluded(waiting.last.clone()), Bound::Unbounded));
        let before = keys.range(..=waiting.last.clone());
        let mut bytes = 0;
        behind
            .chain(before)
            .take(limits.compound_commands)
            .take_while(|key| {
                let has_room = bytes == 0 || bytes + key.len() <= limits.compound_bytes;
                bytes += key.len() + 1;
                has_room
            })
            .cloned()
            .collect()
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
