//! The rules of an aggregator. All that it asks of its driver is compared.

use super::*;
use crate::stage::Stage;
use ionian_kernel::time::Duration;
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::scalog::aggregator::{Aggregator, In};
use ionian_protocols::scalog::cut::{Change, changes_of};
use ionian_protocols::scalog::{Envelope, kind};

/// Aggregator 0, which knows that both shards are open and nothing is ordered.
fn aggregator() -> Stage<Aggregator> {
    let mut aggregator = Stage::alone(apart(), kind::Aggregator, Aggregator::new);
    assert_eq!(aggregator.tell(knows(1, ordered([[0; 2]; 2]))), vec![]);
    aggregator
}

fn knows(slot: u64, cut: Cut) -> In {
    let slot = Slot(slot);
    In::Ordered { slot, cut }
}

fn report(from: u8, lengths: &[u64], seen: u64) -> In {
    let (life, generation) = (5 + u64::from(from), FIRST);
    of_life(from, life, generation, lengths, seen)
}

fn of_life(from: u8, life: u64, generation: Generation, lengths: &[u64], seen: u64) -> In {
    In::Report {
        from: ServerId(from),
        life,
        generation,
        lengths: lengths.into(),
        seen: Slot(seen),
    }
}

fn grows(shard: u8, lengths: [u64; 2]) -> Change {
    Change::Grow {
        shard,
        generation: FIRST,
        lengths: lengths.into(),
    }
}

/// What it proposes, and to which leader: it sends nothing else.
fn proposed(sent: Vec<Envelope>) -> Vec<(LeaderId, Vec<Change>)> {
    let each = sent.into_iter().map(|envelope| match envelope {
        Envelope::ToLeaders(to, multipaxos::leader::In::Propose { batch, .. }) => (
            to.iter().next().expect("a leader"),
            changes_of(&batch).expect("changes"),
        ),
        other => panic!("{other:?}"),
    });
    each.collect()
}

/// What it sends at the first of its next timers at which it sends something.
fn next_sent(aggregator: &mut Stage<Aggregator>) -> Vec<Envelope> {
    let mut sent = (0..100).map(|_| aggregator.timer());
    sent.find(|sent| !sent.is_empty())
        .expect("something is sent")
}

fn to_first(changes: Vec<Change>) -> Vec<(LeaderId, Vec<Change>)> {
    vec![(LeaderId(0), changes)]
}

/// Known defect s5 took the maximum, and ordered what one server had.
#[test]
pub(crate) fn s5_what_all_servers_of_a_shard_hold_is_proposed_and_nothing_more() {
    let mut aggregator = aggregator();
    assert_eq!(aggregator.tell(report(0, &[5, 0], 1)), vec![]);
    let sent = aggregator.tell(report(1, &[3, 2], 1));
    assert_eq!(proposed(sent), to_first(vec![grows(0, [3, 0])]));
    // The same again, an older report, and one of another generation lead to nothing.
    assert_eq!(aggregator.tell(report(1, &[3, 2], 1)), vec![]);
    assert_eq!(aggregator.tell(report(1, &[2, 2], 1)), vec![]);
    let early = of_life(1, 6, Generation(0), &[], 1);
    assert_eq!(aggregator.tell(early), vec![]);
    let sent = aggregator.tell(report(1, &[5, 2], 1));
    assert_eq!(proposed(sent), to_first(vec![grows(0, [5, 0])]));
}

/// The leader's queue would fill with what the next proposal contains anyway.
#[test]
fn with_enough_under_way_nothing_is_proposed_until_something_is_chosen() {
    let mut aggregator = aggregator();
    aggregator.tell(report(1, &[9, 0], 1));
    let mut numbers = Vec::new();
    for length in 1..=4 {
        let sent = aggregator.tell(report(0, &[length, 0], 1));
        numbers.extend(sent.iter().filter_map(number));
        assert_eq!(proposed(sent), to_first(vec![grows(0, [length, 0])]));
    }
    assert_eq!(aggregator.tell(report(0, &[5, 0], 1)), vec![]);
    assert_eq!(aggregator.tell(report(0, &[6, 0], 1)), vec![]);
    assert_eq!(aggregator.waited(Duration::from_millis(140)).sends, []);
    let numbers = vec![numbers[0]];
    let message = multipaxos::batcher::In::BatchesChosen { numbers };
    let sent = aggregator.tell(In::Ordering { message });
    assert_eq!(proposed(sent), to_first(vec![grows(0, [6, 0])]));
}

/// The number of a proposal.
fn number(sent: &Envelope) -> Option<u64> {
    match sent {
        Envelope::ToLeaders(
            _,
            multipaxos::leader::In::Propose {
                proposer: Proposer::Batcher { number, .. },
                ..
            },
        ) => Some(*number),
        _ => None,
    }
}

#[test]
fn what_is_not_chosen_is_proposed_again_to_the_next_leader() {
    let mut aggregator = aggregator();
    aggregator.tell(report(0, &[1, 0], 1));
    let sent = aggregator.tell(report(1, &[1, 0], 1));
    let Envelope::ToLeaders(_, multipaxos::leader::In::Propose { proposer, .. }) = &sent[0] else {
        panic!("{sent:?}");
    };
    let Proposer::Batcher { number, .. } = *proposer else {
        panic!("{proposer:?}");
    };
    let again = next_sent(&mut aggregator);
    assert_eq!(proposed(again), vec![(LeaderId(1), vec![grows(0, [1, 0])])]);
    // Another leader leads, which has nothing of it.
    let round = Round::new(Epoch(0), 3, LeaderId(0));
    let message = multipaxos::batcher::In::NewLeader { round };
    let sent = aggregator.tell(In::Ordering { message });
    assert_eq!(proposed(sent), to_first(vec![grows(0, [1, 0])]));
    let numbers = (number..number + 3).collect();
    let message = multipaxos::batcher::In::BatchesChosen { numbers };
    assert_eq!(aggregator.tell(In::Ordering { message }), vec![]);
    assert_eq!(aggregator.figure("under_way"), 0);
}

#[test]
fn the_shard_of_a_server_with_another_life_is_closed_and_opened_with_that() {
    let mut aggregator = aggregator();
    for from in 0..4 {
        aggregator.tell(report(from, &[0, 0], 1));
    }
    let lost = |seen| of_life(1, 60, Generation(0), &[], seen);
    // It may be a report from before the shard was opened.
    assert_eq!(aggregator.tell(lost(0)), vec![]);
    let (shard, generation) = (0, FIRST);
    let close = Change::Close { shard, generation };
    assert_eq!(proposed(aggregator.tell(lost(1))), to_first(vec![close]));
    assert_eq!(aggregator.tell(knows(3, closed([[0; 2]; 2], 2))), vec![]);
    // The servers must know that it is closed.
    aggregator.now = aggregator.now + Duration::from_millis(250);
    assert_eq!(aggregator.tell(lost(3)), vec![]);
    let open = Change::Open {
        shard,
        after: FIRST,
        lives: vec![5, 60],
    };
    let sent = aggregator.tell(report(0, &[], 3));
    assert_eq!(proposed(sent), to_first(vec![open]));
}

#[test]
fn a_silent_server_has_its_shard_closed_unless_all_are_silent() {
    let mut aggregator = aggregator();
    for from in 0..4 {
        aggregator.tell(report(from, &[0, 0], 1));
    }
    assert_eq!(aggregator.waited(Duration::from_millis(1001)).sends, vec![]);
    let (shard, generation) = (1, FIRST);
    let close = |shard| Change::Close { shard, generation };
    aggregator.tell(report(0, &[0, 0], 1));
    aggregator.tell(report(1, &[0, 0], 1));
    let sent = next_sent(&mut aggregator);
    assert_eq!(proposed(sent), to_first(vec![close(shard)]));
}

#[test]
fn shards_that_were_never_open_are_opened_when_all_their_servers_are_there() {
    let mut aggregator = Stage::alone(apart(), kind::Aggregator, Aggregator::new);
    let there = |from| of_life(from, 50 + u64::from(from), Generation(0), &[], 0);
    for from in [0, 1, 2] {
        assert_eq!(aggregator.tell(there(from)), vec![], "it knows no cut yet");
    }
    let open = |shard, lives: [u64; 2]| Change::Open {
        shard,
        after: Generation(0),
        lives: lives.into(),
    };
    let sent = aggregator.tell(knows(0, Cut::default()));
    assert_eq!(proposed(sent), to_first(vec![open(0, [50, 51])]));
    let sent = aggregator.tell(there(3));
    assert_eq!(proposed(sent), to_first(vec![open(1, [52, 53])]));
}
