//! A replica that misses much asks the leader for one stretch after the other, as fast as the
//! answers come.

use crate::stage::Stage;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::multipaxos::replica::{In, Replica};
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind, leader};
use ionian_replication::batch::Value;
use std::collections::VecDeque;

/// As many slots as a replica asks the leader for at a time.
const STRETCH: u64 = 32;

/// A replica that knows of slots up to `end`, and has executed none.
fn behind(end: u64) -> Stage<Replica> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        ..Layout::default()
    };
    behind_in(layout, end)
}

fn behind_in(layout: Layout, end: u64) -> Stage<Replica> {
    let mut replica = Stage::alone(
        MultiPaxos::configure(layout).expect("a deployment"),
        kind::Replica,
        Replica::new,
    );
    let (round, keep, time) = (Round(1), Slot(0), Timestamp(0));
    replica.tell(In::Heartbeat {
        round,
        executed: Slot(end),
        keep,
        time,
    });
    replica
}

/// Lets time pass until the leader is asked for slots: for which.
fn asked(replica: &mut Stage<Replica>) -> Vec<Slot> {
    for _ in 0..100 {
        for envelope in replica.timer() {
            if let Envelope::ToLeaders(_, leader::In::Recover { slots }) = envelope {
                return slots;
            }
        }
    }
    panic!("the leader is never asked");
}

fn answer(replica: &mut Stage<Replica>, slots: impl IntoIterator<Item = Slot>) {
    for slot in slots {
        replica.tell(In::Chosen {
            slot,
            value: Value::default(),
            replier: ReplicaId(1),
        });
    }
}

#[test]
fn stretches_that_are_missing_are_asked_for_as_fast_as_they_come() {
    let mut replica = behind(3 * STRETCH + 8);
    let first = asked(&mut replica);
    assert_eq!(first, Slot(0).until(Slot(STRETCH)).collect::<Vec<_>>());
    let now = replica.now;
    answer(&mut replica, first);
    let second = asked(&mut replica);
    assert_eq!(
        second,
        Slot(STRETCH).until(Slot(2 * STRETCH)).collect::<Vec<_>>()
    );
    assert_eq!(replica.now, now, "it waits though the leader has answered");
    // A stretch that is there in part: the rest is asked for after a while, as ever.
    answer(
        &mut replica,
        second.iter().copied().filter(|slot| *slot != Slot(40)),
    );
    assert_eq!(asked(&mut replica)[0], Slot(40));
    assert!(
        replica.now > now,
        "it asks again before an answer can have come"
    );
}

/// The stretches that are asked for at the next timer at which any is, without the time passing.
fn asked_at_once(replica: &mut Stage<Replica>) -> Vec<(u64, u64)> {
    let now = replica.now;
    let sent = replica.timer();
    assert_eq!(replica.now, now, "it waits though a stretch has come");
    let ends = |slots: &[Slot]| {
        let (first, last) = (slots[0], slots[slots.len() - 1]);
        assert_eq!(slots, first.until(last.next()).collect::<Vec<_>>());
        (first.0, last.next().0)
    };
    let stretches = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToLeaders(_, leader::In::Recover { slots }) => Some(ends(slots)),
        Envelope::ToLeaders(_, leader::In::Executed { .. }) => None,
        _ => panic!("{envelope:?}"),
    });
    stretches.collect()
}

/// Else each stretch would cost a round trip.
#[test]
fn with_each_stretch_that_comes_one_more_is_under_way_up_to_thirty_two() {
    let (mut replica, size) = (behind(1000 * STRETCH + 5), STRETCH);
    let first = asked(&mut replica);
    let mut under_way = VecDeque::from([(first[0].0, size)]);
    let (mut next, mut value) = (size, 0);
    for came in 1..=100 {
        let (start, end) = under_way.pop_front().expect("one is under way");
        // Two before the end, in another order.
        let slots = [start..end - 2, end - 1..end, end - 2..end - 1];
        answer(&mut replica, slots.into_iter().flatten().map(Slot));
        value = end;
        let asked = asked_at_once(&mut replica);
        let more = if came < 32 { 2 } else { 1 };
        let expected = (0..more).map(|more| (next + more * size, next + (more + 1) * size));
        assert_eq!(asked, expected.collect::<Vec<_>>());
        next += more * size;
        under_way.extend(asked);
    }
    assert_eq!((under_way.len(), next - value), (32, 32 * size));
    // One does not come: after a while it is asked for alone, and those behind it are not.
    let (lost, end) = under_way.pop_front().expect("one is under way");
    answer(&mut replica, Slot(end).until(Slot(end + size)));
    assert_eq!(
        asked(&mut replica),
        Slot(lost).until(Slot(end)).collect::<Vec<_>>()
    );
}

/// What is less than a stretch may well be on its way.
#[test]
fn less_than_a_stretch_is_waited_for() {
    let mut replica = behind(STRETCH - 1);
    let first = asked(&mut replica);
    assert_eq!(first.len() as u64, STRETCH - 1);
    let (round, keep, time) = (Round(1), Slot(0), Timestamp(0));
    replica.tell(In::Heartbeat {
        round,
        executed: Slot(2 * STRETCH),
        keep,
        time,
    });
    let now = replica.now;
    answer(&mut replica, first);
    asked(&mut replica);
    assert!(replica.now > now, "it asks for what was just proposed");
}

/// The pieces of snapshots that are sent: to whom, and of the state before which slot, from where
/// on, and whether it is the last.
fn pieces(sent: Vec<Envelope>) -> Vec<(Set<ReplicaId>, Slot, u64, bool, Bytes)> {
    let pieces = sent.into_iter().filter_map(|envelope| match envelope {
        Envelope::ToReplicas(
            to,
            In::SnapshotChunk {
                executed,
                offset,
                last,
                bytes,
                ..
            },
        ) => Some((to, executed, offset, last, bytes)),
        _ => None,
    });
    pieces.collect()
}

/// It takes a peer that was silent for seconds: no seed comes to it. Pieces of two snapshots put
/// together are the state of no replica.
#[test]
fn a_replica_that_asks_for_a_piece_of_a_snapshot_that_is_gone_begins_again_with_another() {
    let (mut ahead, mut behind) = (behind(5), behind(5));
    answer(&mut ahead, Slot(0).until(Slot(5)));
    let asks = In::FetchSnapshot {
        from: ReplicaId(1),
        executed: Slot(3),
        offset: 40,
    };
    let [(to, executed, 0, true, bytes)] = &pieces(ahead.tell(asks))[..] else {
        panic!("one piece, the first")
    };
    assert_eq!((*to, *executed), (Set::one(ReplicaId(1)), Slot(5)));
    let mut piece = |executed, offset, last, bytes: &Bytes| {
        let from = ReplicaId(2);
        behind.tell(In::SnapshotChunk {
            from,
            executed,
            offset,
            last,
            bytes: bytes.clone(),
        });
        behind.figure("executed")
    };
    let half = bytes.len() as u64 / 2;
    assert_eq!(piece(Slot(3), 0, false, &bytes.slice(..half as usize)), 0);
    assert_eq!(
        piece(Slot(5), half, true, &bytes.slice(half as usize..)),
        0,
        "the end of another"
    );
    assert_eq!(piece(Slot(5), 0, true, bytes), 5);
}

/// Lets this much time pass while the leader answers every question after a round trip and peers
/// are silent: the peers that were asked since the leader was of help, and for how many stretches
/// the leader was.
fn asked_while_the_leader_helps(time: Duration, round_trip: Duration) -> (Set<ReplicaId>, u64) {
    let mut replica = behind(1_000_000);
    let first = asked(&mut replica);
    answer(&mut replica, first);
    let (mut peers, mut stretches, end) = (Set::EMPTY, 0, replica.now + time);
    while replica.now < end {
        for envelope in replica.timer() {
            match envelope {
                Envelope::ToLeaders(_, leader::In::Recover { slots }) => {
                    replica.now = replica.now + round_trip;
                    answer(&mut replica, slots);
                    stretches += 1;
                }
                Envelope::ToReplicas(to, In::Fetch { .. }) => peers = peers.or(to),
                _ => {}
            }
        }
    }
    (peers, stretches)
}

/// The leader repairs slot by slot; a peer may have a snapshot of all that is missing. Which one
/// has is not known: others may be as far behind.
#[test]
fn every_peer_is_asked_now_and_then_though_the_leader_is_of_help() {
    let time = Duration::from_secs(5);
    for round_trip in [10, 20, 40].map(Duration::from_millis) {
        let (peers, stretches) = asked_while_the_leader_helps(time, round_trip);
        assert_eq!(peers, Set::first(3).without(Set::one(ReplicaId(0))));
        let most = (time.as_micros() / round_trip.as_micros()) as u64;
        assert!(
            stretches >= most * 4 / 5,
            "{stretches} stretches of {most}: peers that are silent cost too much time"
        );
    }
}

/// Peers that have nothing of what is missing were silent, and asked one after the other with ever
/// longer waits: after the loss of all but one memory of 25 that took minutes.
#[test]
fn a_peer_that_has_nothing_says_so_and_the_next_one_is_asked_at_once() {
    const NODES: u8 = 25;
    let nodes: Vec<NodeId> = (0..NODES.into()).map(NodeId).collect();
    let layout = || Layout {
        f: 12,
        instances: numbered(vec![nodes.clone(); 8]),
        ..Layout::default()
    };
    let mut replica = behind_in(layout(), 100);
    let fetch = |sent: Vec<Envelope>| {
        sent.into_iter().find_map(|envelope| match envelope {
            Envelope::ToReplicas(to, In::Fetch { .. }) => to.iter().next(),
            _ => None,
        })
    };
    let first = (0..100).find_map(|_| fetch(replica.timer()));
    let (now, mut asked) = (replica.now, vec![first.expect("a peer is asked")]);
    let mut empty = behind_in(layout(), 100);
    while let Some(last) = asked.last().filter(|_| asked.len() < 100) {
        let (from, start, end, waits) = (ReplicaId(0), Slot(0), Slot(100), false);
        let answer = empty.tell(In::Fetch {
            from,
            start,
            end,
            waits,
        });
        let is_empty = |it: &Envelope| matches!(it, Envelope::ToReplicas(_, In::Fetched { slots, .. }) if slots.is_empty());
        assert!(answer.iter().any(is_empty), "{answer:?}");
        let (from, slots) = (*last, Vec::new());
        match fetch(replica.tell(In::Fetched { from, slots })) {
            Some(next) => asked.push(next),
            None => break,
        }
    }
    assert_eq!(replica.now, now);
    asked.sort_unstable();
    // Each once: then it waits.
    assert_eq!(asked, (1..NODES).map(ReplicaId).collect::<Vec<_>>());
}

/// Whether the replica counts as one that holds what is chosen.
fn is_current(replica: &Stage<Replica>) -> bool {
    let until = Status::of(&replica.role).current_until;
    until.expect("a replica") >= replica.now
}

/// Time passes, and the leader sends a heartbeat: others have executed this number of slots.
fn beat(replica: &mut Stage<Replica>, executed: u64) {
    replica.now = replica.now + Duration::from_millis(100);
    let (round, keep, time) = (Round(1), Slot(0), Timestamp(0));
    replica.tell(In::Heartbeat {
        round,
        executed: Slot(executed),
        keep,
        time,
    });
}

#[test]
fn a_replica_holds_what_is_chosen_when_it_has_executed_what_its_leader_named() {
    let mut replica = behind(8);
    for _ in 0..5 {
        beat(&mut replica, 8);
        assert!(!is_current(&replica), "it has executed nothing");
    }
    answer(&mut replica, Slot(0).until(Slot(7)));
    beat(&mut replica, 9);
    assert!(!is_current(&replica), "a slot is missing");
    answer(&mut replica, [Slot(7)]);
    assert!(is_current(&replica));
    // It falls behind, and is so for longer than what is missing is on its way.
    for _ in 0..50 {
        beat(&mut replica, 9);
    }
    assert!(is_current(&replica));
    for _ in 0..20 {
        beat(&mut replica, 9);
    }
    assert!(!is_current(&replica));
    answer(&mut replica, [Slot(8)]);
    (0..2).for_each(|_| beat(&mut replica, 9));
    assert!(is_current(&replica));
    // No leader says how far the others are.
    replica.now = replica.now + Duration::from_secs(7);
    assert!(!is_current(&replica));
}
