//! How proposers find the leader when nobody told them of it: `NewLeader` is said once, and can be lost.

use crate::stage::{Stage, batch};
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::random::Random;
use ionian_kernel::role::Role;
use ionian_kernel::time::Instant;
use ionian_protocols::multipaxos::batcher::{self, Batcher};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind, leader};
use std::collections::BTreeMap;

/// A batcher of a deployment of two leaders, of which it takes the first for the one that leads.
fn batcher(canary: Option<&'static str>) -> Stage<Batcher> {
    let mut next = (0..).map(NodeId);
    let instances = [1, 2, 0, 2, 2, 3, 2, 0].map(|count| next.by_ref().take(count).collect()).to_vec();
    let layout = Layout { f: 1, instances: numbered(instances), canary, ..Layout::default() };
    Stage::alone(MultiPaxos::configure(layout).expect("a deployment"), kind::Batcher, Batcher::new)
}

fn commands() -> batcher::In {
    batcher::In::Commands { commands: batch("write") }
}

/// All that it said: to which leader which batch went, and whether again.
fn proposed(sent: Vec<Envelope>) -> Vec<(u8, u64, bool)> {
    let proposed = sent.into_iter().map(|envelope| match envelope {
        Envelope::ToLeaders(to, leader::In::Propose { proposer: Proposer::Batcher { number, .. }, again, .. }) => {
            assert_eq!(to.len(), 1);
            (to.iter().next().unwrap().0, number, again)
        }
        _ => panic!("it says something else"),
    });
    proposed.collect()
}

/// Three batches go to the dead leader, a moment after each other.
fn overdue_in_turn(canary: Option<&'static str>) -> Vec<(u64, u8, u64, bool)> {
    let mut batcher = batcher(canary);
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
    for _ in 0..3 {
        let sent = batcher.tell(commands());
        numbers.extend(note(&batcher, sent));
        batcher.now.0 += 10_000;
    }
    for _ in 0..3 {
        let sent = batcher.timer();
        note(&batcher, sent);
    }
    // The other leads. It takes two of them in, and the third is lost on its way; a fourth is chosen later.
    let sent = batcher.tell(batcher::In::BatchesChosen { numbers: vec![numbers[0], numbers[1]] });
    note(&batcher, sent);
    batcher.now.0 += 400_000;
    let sent = batcher.tell(commands());
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

/// Each that became overdue was one more turn, also where a leader was asked for the first time a moment ago: of two leaders
/// the dead one was asked every other time, for ever. The simulator counts no seconds: all is answered in the end.
#[test]
fn a_batcher_does_not_blame_a_leader_for_what_another_left_unanswered() {
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
    assert_eq!(overdue_in_turn(None), sound);
    let turns: Vec<u8> = overdue_in_turn(Some("blames")).into_iter().map(|(_, to, ..)| to).collect();
    assert_eq!(turns, [0, 0, 0, 1, 0, 1, 1, 0, 1], "the canary shows nothing");
}

/// Clients that wait for an answer each, and go on some milliseconds later. The first leader is dead; the second answers
/// within five. How many milliseconds one waited at most within ten seconds, and how many were answered.
fn clients_wait(canary: Option<&'static str>, clients: u64, seed: u64) -> (u64, u64) {
    let (mut random, mut batcher) = (Random::new(seed), batcher(canary));
    let end = batcher.now.0 + 10_000_000;
    // By time: a client's next command, or a batch that is chosen.
    let mut events: BTreeMap<(u64, u64), Option<u64>> = BTreeMap::new();
    events.extend((0..clients).map(|client| ((batcher.now.0 + client * 1000, client), None)));
    let (mut open, mut waiting) = (Vec::new(), BTreeMap::<u64, Vec<u64>>::new());
    let (mut longest, mut answered, mut count) = (0, 0, clients);
    while batcher.now.0 < end {
        let event = events.keys().next().map_or(u64::MAX, |(at, _)| *at);
        let sent = if batcher.role.next_timer().is_some_and(|timer| timer.0 < event) {
            batcher.timer()
        } else {
            let (_, chosen) = events.pop_first().expect("somebody waits");
            batcher.now = batcher.now.max(Instant(event));
            for since in chosen.and_then(|number| waiting.remove(&number)).unwrap_or_default() {
                longest = longest.max(batcher.now.0 - since);
                (answered, count) = (answered + 1, count + 1);
                events.insert((batcher.now.0 + random.below(40_000), count), None);
            }
            batcher.tell(match chosen {
                Some(number) => batcher::In::BatchesChosen { numbers: vec![number] },
                None => {
                    open.push(batcher.now.0);
                    commands()
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
    let waits = waiting.values().flatten().chain(&open).map(|since| batcher.now.0 - since);
    (waits.max().unwrap_or_default().max(longest) / 1000, answered)
}

#[test]
fn clients_whose_batcher_was_not_told_of_the_new_leader_wait_for_it_once() {
    for seed in 0..5 {
        for clients in [1, 4, 16] {
            let (longest, answered) = clients_wait(None, clients, seed);
            assert!(longest <= 260 && answered > clients * 300, "{clients}: {longest} ms, {answered} answers");
        }
        let (longest, answered) = clients_wait(Some("blames"), 16, seed);
        assert!(longest > 1000 && answered < 16 * 100, "the canary shows nothing: {longest} ms, {answered} answers");
    }
}
