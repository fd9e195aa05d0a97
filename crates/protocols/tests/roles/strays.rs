//! How proposers find the leader when no message told them of it: `NewLeader` is said once, and can
//! be lost.

use crate::stage::{Stage, of_command};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::random::Random;
use ionian_kernel::role::Role;
use ionian_kernel::time::Instant;
use ionian_protocols::multipaxos::batcher::{self, Batcher};
use ionian_protocols::multipaxos::client::{self, ClientLane};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind, leader};
use ionian_replication::batch::{Answer, AnswersByClient, Outcome, Purpose};
use std::collections::BTreeMap;

/// A batcher of a deployment of two leaders, of which it takes the first for the one that leads.
fn batcher() -> Stage<Batcher> {
    let mut next = (0..).map(NodeId);
    let instances = [1, 2, 0, 2, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    Stage::alone(
        MultiPaxos::configure(layout).expect("a deployment"),
        kind::Batcher,
        Batcher::new,
    )
}

fn commands(number: u64) -> batcher::In {
    batcher::In::Commands {
        commands: of_command(number, "write"),
    }
}

/// All that it said: to which leader which batch went, and whether again.
fn proposed(sent: Vec<Envelope>) -> Vec<(u8, u64, bool)> {
    let proposed = sent.into_iter().map(|envelope| match envelope {
        Envelope::ToLeaders(
            to,
            leader::In::Propose {
                proposer: Proposer::Batcher { number, .. },
                again,
                ..
            },
        ) => {
            assert_eq!(to.len(), 1);
            (to.iter().next().unwrap().0, number, again)
        }
        _ => panic!("it says something else"),
    });
    proposed.collect()
}

/// Three batches go to the dead leader, a moment after each other.
fn overdue_in_turn() -> Vec<(u64, u8, u64, bool)> {
    let mut batcher = batcher();
    let begin = batcher.now.0;
    let (mut said, mut base) = (Vec::new(), None);
    let mut note = |batcher: &Stage<Batcher>, sent: Vec<Envelope>| {
        let mut numbers = Vec::new();
        for (to, number, again) in proposed(sent) {
            let base = *base.get_or_insert(number);
            said.push(((batcher.now.0 - begin) / 1000, to, number - base, again));
            numbers.push(number);
        }
        numbers
    };
    let mut numbers = Vec::new();
    for number in 0..3 {
        let sent = batcher.tell(commands(number));
        numbers.extend(note(&batcher, sent));
        batcher.now.0 += 10_000;
    }
    for _ in 0..3 {
        let sent = batcher.timer();
        note(&batcher, sent);
    }
    // The other leads. It takes two of them in, and the third is lost on its way; a fourth is
    // chosen later.
    let sent = batcher.tell(batcher::In::BatchesChosen {
        numbers: vec![numbers[0], numbers[1]],
    });
    note(&batcher, sent);
    batcher.now.0 += 400_000;
    let sent = batcher.tell(commands(3));
    let fourth = note(&batcher, sent);
    batcher.now.0 += 5_000;
    let sent = batcher.tell(batcher::In::BatchesChosen { numbers: fourth });
    note(&batcher, sent);
    // From now on it is silent too. (The first timer was set for batches that are chosen by now.)
    for _ in 0..3 {
        let sent = batcher.timer();
        note(&batcher, sent);
    }
    said
}

/// Each that became overdue was one more turn, also where a leader was asked for the first time a
/// moment ago: of two leaders the dead one was asked every other time, without end. The simulator
/// counts no seconds: all is answered in the end.
#[test]
pub(crate) fn a_batcher_does_not_blame_a_leader_for_what_another_left_unanswered() {
    let sound = [
        (0, 0, 0, false),
        (10, 0, 1, false),
        (20, 0, 2, false),
        (250, 1, 0, true),
        (260, 1, 1, true),
        (270, 1, 2, true),
        (670, 1, 3, false),
        // It serves others, so this one was lost.
        (770, 1, 2, true),
        (1770, 0, 2, true),
    ];
    assert_eq!(overdue_in_turn(), sound);
}

/// Clients that wait for an answer each, and go on some milliseconds later. The first leader is
/// dead; the second answers within five. How many milliseconds one waited at most within ten
/// seconds, and how many were answered.
fn clients_wait(clients: u64, seed: u64) -> (u64, u64) {
    let (mut random, mut batcher) = (Random::new(seed), batcher());
    let end = batcher.now.0 + 10_000_000;
    // By time: a client's next command, or a batch that is chosen.
    let mut events: BTreeMap<(u64, u64), Option<u64>> = BTreeMap::new();
    events.extend((0..clients).map(|client| ((batcher.now.0 + client * 1000, client), None)));
    let (mut open, mut waiting) = (Vec::new(), BTreeMap::<u64, Vec<u64>>::new());
    let (mut longest, mut answered, mut count) = (0, 0, clients);
    while batcher.now.0 < end {
        let event = events.keys().next().map_or(u64::MAX, |(at, _)| *at);
        let sent = if batcher
            .role
            .next_timer()
            .is_some_and(|timer| timer.0 < event)
        {
            batcher.timer()
        } else {
            let ((_, event_number), chosen) = events.pop_first().expect("some command waits");
            batcher.now = batcher.now.max(Instant(event));
            for since in chosen
                .and_then(|number| waiting.remove(&number))
                .unwrap_or_default()
            {
                longest = longest.max(batcher.now.0 - since);
                (answered, count) = (answered + 1, count + 1);
                events.insert((batcher.now.0 + random.below(40_000), count), None);
            }
            batcher.tell(match chosen {
                Some(number) => batcher::In::BatchesChosen {
                    numbers: vec![number],
                },
                None => {
                    open.push(batcher.now.0);
                    commands(event_number)
                }
            })
        };
        for (to, number, again) in proposed(sent) {
            if !again {
                waiting.insert(number, core::mem::take(&mut open));
            }
            if to == 1 {
                count += 1;
                events.insert((batcher.now.0 + 5000, count), Some(number));
            }
        }
    }
    let waits = waiting
        .values()
        .flatten()
        .chain(&open)
        .map(|since| batcher.now.0 - since);
    (
        waits.max().unwrap_or_default().max(longest) / 1000,
        answered,
    )
}

#[test]
pub(crate) fn clients_whose_batcher_was_not_told_of_the_new_leader_wait_for_it_once() {
    for seed in 0..5 {
        for clients in [1, 4, 16] {
            let (longest, answered) = clients_wait(clients, seed);
            assert!(
                longest <= 260 && answered > clients * 300,
                "{clients}: {longest} ms, {answered} answers"
            );
        }
    }
}

/// A lane that asks leaders itself, with an open session. The first of two leaders is dead; the
/// second answers within five milliseconds. A request each `every` microseconds for four seconds:
/// how many milliseconds one waited at most, how many were answered, and how many messages went to
/// the dead leader.
fn lane_waits(every: u64) -> (u64, u64, u64) {
    let mut next = (0..).map(NodeId);
    let instances = [1, 0, 0, 2, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    let mut lane = Stage::alone(
        MultiPaxos::configure(layout).expect("a deployment"),
        kind::Client,
        ClientLane::new,
    );
    let answer = |purpose, number, outcome| {
        let mut answers = AnswersByClient::default();
        answers.push(&Answer {
            client: ClientId(0),
            purpose,
            number,
            outcome,
        });
        client::In::Answers {
            answers: answers.take_some(0, Slot(7)),
        }
    };
    let begin = lane.now.0;
    // The session is asked for at the start, where a stage listens to no message: again at the
    // first timer.
    let mut events: BTreeMap<(u64, u64), (Purpose, u64)> = BTreeMap::new();
    let (mut since, mut count, mut longest, mut dead) = (BTreeMap::new(), 0, 0, 0);
    let mut submitted = 0;
    loop {
        let event = events.keys().next().map_or(u64::MAX, |(at, _)| *at);
        let timer = lane.role.next_timer().map_or(u64::MAX, |timer| timer.0);
        let submit = begin + 2_000_000 + submitted * every;
        let at = event.min(timer).min(submit);
        if at > begin + 6_000_000 {
            break;
        }
        let sent = if at == event {
            let (_, (purpose, number)) = events.pop_first().expect("there is one");
            lane.now = lane.now.max(Instant(at));
            let outcome = match purpose {
                Purpose::Open => Outcome::Opened(SessionId(4)),
                _ => Outcome::Done(Bytes::new()),
            };
            lane.tell(answer(purpose, number, outcome))
        } else if at == submit {
            lane.now = lane.now.max(Instant(at));
            since.insert(submitted, at);
            submitted += 1;
            let request = Request {
                token: submitted - 1,
                operation: Operation::Write,
                payload: Bytes::from_static(b"write"),
            };
            lane.tell(client::In::Submit { request })
        } else {
            lane.timer()
        };
        for envelope in sent {
            match envelope {
                Envelope::ToLeaders(to, leader::In::Propose { batch, .. }) => {
                    let command = batch.commands().next().expect("one");
                    // While the session is asked for, the first leader lives.
                    let lives = if command.purpose == Purpose::Open {
                        0
                    } else {
                        1
                    };
                    if to.iter().next().unwrap().0 == lives {
                        count += 1;
                        events.insert(
                            (lane.now.0 + 5000, count),
                            (command.purpose, command.number),
                        );
                    } else {
                        dead += 1;
                    }
                }
                Envelope::ToApplication(_, reply) => {
                    let since = since.remove(&reply.token).expect("asked");
                    longest = longest.max(lane.now.0 - since);
                }
                _ => panic!("it says something else"),
            }
        }
    }
    let waits = since
        .values()
        .map(|since| lane.now.0 - since)
        .max()
        .unwrap_or_default();
    (
        longest.max(waits) / 1000,
        submitted - since.len() as u64,
        dead,
    )
}

/// As in a batcher: of what was under way every other request led back to the dead leader.
#[test]
pub(crate) fn a_lane_does_not_blame_a_leader_for_what_another_left_unanswered() {
    for every in [10_000, 100_000] {
        let (longest, answered, dead) = lane_waits(every);
        assert!(
            longest <= 310 && answered == 4_000_000 / every,
            "{longest} ms, {answered} answers"
        );
        assert!(dead <= 300_000 / every + 2, "{dead} messages to the dead");
    }
}
