//! The rules of an aggregator. All that it asks of its driver is compared.

use super::*;
use crate::stage::Stage;
use ionian_kernel::time::Duration;
use ionian_kernel::wire::encode_all;
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
    waits(slot, cut, vec![])
}

/// The same of a replica to which records of these shards come late.
fn waits(slot: u64, cut: Cut, late: Vec<Index>) -> In {
    let slot = Slot(slot);
    In::Ordered { slot, cut, late }
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
    assert_eq!(aggregator.tell(lost(3)), vec![]);
    let open = Change::Open {
        shard,
        after: FIRST,
        lives: vec![5, 60],
    };
    let sent = aggregator.tell(report(0, &[], 3));
    assert_eq!(proposed(sent), to_first(vec![open]));
}

fn closes(shard: Index) -> Vec<(LeaderId, Vec<Change>)> {
    let generation = FIRST;
    to_first(vec![Change::Close { shard, generation }])
}

/// All servers but those of this shard report.
fn all_but(aggregator: &mut Stage<Aggregator>, silent: u8) {
    for from in (0..4).filter(|from| from / 2 != silent) {
        aggregator.tell(report(from, &[0, 0], 1));
    }
}

#[test]
fn a_silent_server_has_its_shard_closed_unless_all_are_silent() {
    let mut aggregator = aggregator();
    all_but(&mut aggregator, 9);
    assert_eq!(aggregator.waited(Duration::from_millis(1001)).sends, vec![]);
    // It hears again: the others may be heard in time too.
    all_but(&mut aggregator, 1);
    assert_eq!(aggregator.waited(Duration::from_millis(900)).sends, vec![]);
    all_but(&mut aggregator, 1);
    let sent = next_sent(&mut aggregator);
    assert_eq!(proposed(sent), closes(1));
}

/// Other aggregators hear its servers.
#[test]
fn a_shard_that_grows_is_not_closed_by_an_aggregator_that_does_not_hear_it() {
    let mut aggregator = aggregator();
    all_but(&mut aggregator, 9);
    for slot in 2..8 {
        aggregator.now = aggregator.now + Duration::from_millis(400);
        all_but(&mut aggregator, 1);
        let cut = ordered([[0, 0], [slot, 0]]);
        assert_eq!(aggregator.tell(knows(slot, cut)), vec![]);
        assert_eq!(aggregator.timer(), vec![]);
    }
}

/// What is proposed while these report every 100 ms.
fn proposed_meanwhile(
    aggregator: &mut Stage<Aggregator>,
    ms: u64,
    reports: &[In],
) -> Vec<Vec<Change>> {
    let mut sent = vec![];
    for _ in 0..ms / 100 {
        aggregator.now = aggregator.now + Duration::from_millis(100);
        for report in reports {
            sent.extend(aggregator.tell(report.clone()));
        }
    }
    let changes = proposed(sent).into_iter().map(|(_, changes)| changes);
    changes.collect()
}

/// A server that sends and receives nothing: of records of its peer, or that its shard is open.
#[test]
fn a_shard_is_closed_whose_servers_do_not_get_each_others_records() {
    let (shard, generation) = (0, FIRST);
    let close = vec![vec![Change::Close { shard, generation }]];
    let others = [report(2, &[0, 0], 1), report(3, &[0, 0], 1)];
    let deaf = [report(1, &[0, 0], 1), of_life(1, 6, Generation(0), &[], 0)];
    for deaf in deaf {
        let mut aggregator = aggregator();
        let reports = [vec![report(0, &[1, 0], 1), deaf], others.to_vec()].concat();
        let none: Vec<Vec<Change>> = vec![];
        assert_eq!(proposed_meanwhile(&mut aggregator, 2000, &reports), none);
        assert_eq!(proposed_meanwhile(&mut aggregator, 300, &reports), close);
    }
    // What all have waits for the leader.
    let mut aggregator = aggregator();
    let reports = [
        vec![report(0, &[1, 0], 1), report(1, &[1, 0], 1)],
        others.to_vec(),
    ]
    .concat();
    let grown = proposed_meanwhile(&mut aggregator, 3000, &reports);
    assert_eq!(grown, vec![vec![grows(0, [1, 0])]]);
}

#[test]
fn a_shard_is_closed_whose_records_come_too_late_to_the_furthest_replica() {
    let mut aggregator = aggregator();
    let cut = || ordered([[1, 0], [0, 0]]);
    // It has just begun: it may be a replica that is behind which says so.
    assert_eq!(aggregator.tell(waits(2, cut(), vec![0])), vec![]);
    for _ in 0..3 {
        all_but(&mut aggregator, 9);
        aggregator.now = aggregator.now + Duration::from_millis(400);
    }
    all_but(&mut aggregator, 9);
    // One that is behind may miss what others have.
    assert_eq!(aggregator.tell(knows(3, cut())), vec![]);
    assert_eq!(aggregator.tell(waits(2, cut(), vec![0])), vec![]);
    let sent = aggregator.tell(waits(3, cut(), vec![0]));
    assert_eq!(proposed(sent), closes(0));
    // It grows no more meanwhile.
    for from in 0..2 {
        assert_eq!(aggregator.tell(report(from, &[2, 0], 1)), vec![]);
    }
    // It is opened when its records have come, and the closing behind them.
    let closed = closed([[1, 0], [0, 0]], 3);
    for from in 0..2 {
        let there = of_life(from, 5 + u64::from(from), Generation(0), &[], 4);
        assert_eq!(aggregator.tell(there), vec![]);
    }
    let open = Change::Open {
        shard: 0,
        after: FIRST,
        lives: vec![5, 6],
    };
    let sent = aggregator.tell(knows(5, closed));
    assert_eq!(proposed(sent), to_first(vec![open]));
}

/// Aggregator 0 of the same deployment, of whose shards one at a time is to be open.
fn of_one() -> Config {
    let mut layout = apart().layout().clone();
    layout.options.own.insert("open_shards", 1);
    Scalog::configure(layout).expect("a deployment")
}

#[test]
fn a_spare_shard_is_opened_at_once_when_one_is_closed_and_that_one_is_spare_then() {
    let mut aggregator = Stage::alone(of_one(), kind::Aggregator, Aggregator::new);
    let spare = |from: u8, seen| of_life(from, 5 + u64::from(from), Generation(0), &[], seen);
    let mut cut = ordered([[0; 2]; 2]);
    cut.shards[1] = Shard {
        lives: vec![7, 8],
        ..Shard::default()
    };
    assert_eq!(aggregator.tell(knows(1, cut)), vec![]);
    for from in 0..4 {
        let sent = match from < 2 {
            true => aggregator.tell(report(from, &[0, 0], 1)),
            false => aggregator.tell(spare(from, 1)),
        };
        assert_eq!(sent, vec![], "it has no part");
    }
    // Server 1 is silent.
    for wait in [600, 401] {
        aggregator.now = aggregator.now + Duration::from_millis(wait);
        aggregator.tell(report(0, &[0, 0], 1));
        aggregator.tell(spare(2, 1));
        aggregator.tell(spare(3, 1));
    }
    let sent = next_sent(&mut aggregator);
    let open = Change::Open {
        shard: 1,
        after: Generation(0),
        lives: vec![7, 8],
    };
    let mut changes = closes(0).remove(0).1;
    changes.push(open);
    let sent = proposed(sent).into_iter().map(|(_, changes)| changes);
    assert_eq!(sent.collect::<Vec<_>>(), vec![changes]);
    // It is back, and nothing follows from that.
    let mut after = closed([[0; 2]; 2], 3);
    (after.shards[1].generation, after.shards[1].since) = (Generation(4), Slot(4));
    assert_eq!(aggregator.tell(knows(4, after)), vec![]);
    for from in 0..2 {
        assert_eq!(aggregator.tell(spare(from, 4)), vec![]);
    }
    assert_eq!(aggregator.timer(), vec![]);
}

/// Without that it would count as failed without end: its shard is not opened.
#[test]
fn the_log_lists_the_later_life_of_a_spare_server() {
    let mut aggregator = Stage::alone(of_one(), kind::Aggregator, Aggregator::new);
    let mut cut = ordered([[0; 2]; 2]);
    (cut.shards[1].is_open, cut.shards[1].since) = (false, Slot(3));
    assert_eq!(aggregator.tell(knows(3, cut)), vec![]);
    for from in 0..4 {
        assert_eq!(aggregator.tell(report(from, &[0, 0], 3)), vec![]);
    }
    let lives = Change::Lives {
        shard: 1,
        after: FIRST,
        lives: vec![7, 80],
    };
    let sent = aggregator.tell(of_life(3, 80, Generation(0), &[], 3));
    assert_eq!(proposed(sent), to_first(vec![lives]));
    // Another aggregator hears of the next life, this one no more of that server.
    for _ in 0..3 {
        aggregator.now = aggregator.now + Duration::from_millis(400);
        for from in 0..3 {
            aggregator.tell(report(from, &[0, 0], 3));
        }
    }
    let mut cut = ordered([[0; 2]; 2]);
    (cut.shards[1].is_open, cut.shards[1].since) = (false, Slot(3));
    cut.shards[1].lives = vec![7, 81];
    assert_eq!(aggregator.tell(knows(9, cut)), vec![]);
    for _ in 0..20 {
        aggregator.now = aggregator.now + Duration::from_millis(400);
        for from in 0..3 {
            assert_eq!(aggregator.tell(report(from, &[0, 0], 9)), vec![]);
        }
    }
}

#[test]
fn a_spare_shard_is_opened_at_once_although_its_servers_have_lost_their_memory_often() {
    let mut aggregator = Stage::alone(of_one(), kind::Aggregator, Aggregator::new);
    let mut cut = ordered([[0; 2]; 2]);
    (cut.shards[1].is_open, cut.shards[1].since) = (false, Slot(3));
    for slot in 3..9 {
        aggregator.tell(knows(slot, cut.clone()));
        let mut sent = vec![];
        for _ in 0..12 {
            aggregator.now = aggregator.now + Duration::from_millis(400);
            for from in 0..3 {
                sent.extend(aggregator.tell(report(from, &[0, 0], slot)));
            }
            sent.extend(aggregator.tell(of_life(3, 80 + slot, Generation(0), &[], slot)));
        }
        let numbers = sent.iter().filter_map(number).collect();
        assert!(!proposed(sent).is_empty(), "its lives at slot {slot}");
        cut.shards[1].lives = vec![7, 80 + slot];
        let message = multipaxos::batcher::In::BatchesChosen { numbers };
        aggregator.tell(In::Ordering { message });
    }
    // A server of the shard that is open has another life.
    aggregator.tell(knows(9, cut));
    aggregator.tell(report(2, &[0, 0], 9));
    aggregator.tell(of_life(3, 88, Generation(0), &[], 9));
    let sent = aggregator.tell(of_life(0, 50, Generation(0), &[], 9));
    let open = Change::Open {
        shard: 1,
        after: FIRST,
        lives: vec![7, 88],
    };
    let changes = [closes(0).remove(0).1, vec![open]].concat();
    assert_eq!(proposed(sent), to_first(changes));
}

#[test]
fn a_shard_is_closed_when_fewer_are_to_be_open() {
    let mut aggregator = aggregator();
    all_but(&mut aggregator, 9);
    assert_eq!(aggregator.reconfigure(of_one()), vec![]);
    let sent = next_sent(&mut aggregator);
    assert_eq!(proposed(sent), closes(1));
}

/// Each time it is opened it fails at once.
#[test]
fn a_shard_that_fails_again_and_again_is_opened_less_and_less_often() {
    let mut aggregator = aggregator();
    let (begun, mut opened) = (aggregator.now, vec![]);
    let mut cut = ordered([[0; 2]; 2]);
    for slot in (2..800).step_by(2) {
        aggregator.now = aggregator.now + Duration::from_millis(50);
        let last = cut.shards[0].generation;
        (cut.shards[0].is_open, cut.shards[0].since) = (false, Slot(slot));
        let mut sent = aggregator.tell(knows(slot, cut.clone()));
        for from in 0..4 {
            let (life, generation) = (5 + u64::from(from), Generation(u64::from(from / 2)));
            sent.extend(aggregator.tell(of_life(from, life, generation, &[], slot)));
        }
        let numbers = sent.iter().filter_map(number).collect();
        let changes = proposed(sent).into_iter().flat_map(|(_, changes)| changes);
        let opens =
            |change: &Change| matches!(change, Change::Open { after, .. } if *after == last);
        if changes.filter(opens).count() > 0 {
            opened.push(aggregator.now.since(begun).as_millis());
            (cut.shards[0].is_open, cut.shards[0].generation) = (true, Generation(slot + 1));
            aggregator.tell(knows(slot + 1, cut.clone()));
        }
        let message = multipaxos::batcher::In::BatchesChosen { numbers };
        aggregator.tell(In::Ordering { message });
    }
    let waits: Vec<u128> = opened.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[..6], [500, 1000, 2000, 4000, 4000, 4000]);
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

/// docs/protocols/scalog.md rests on these when it says that one level of aggregators is enough.
#[test]
fn a_report_takes_46_bytes_and_a_shard_in_a_cut_30() {
    let bytes = |changes: Vec<Change>| encode_all(&changes).len();
    let sizes = [vec![], vec![grows(0, [1, 0])], vec![grows(0, [1, 0]); 2]].map(bytes);
    assert_eq!(sizes, [4, 34, 64]);
    assert_eq!(encode_all(&report(0, &[1, 0], 1)).len(), 46);
}
