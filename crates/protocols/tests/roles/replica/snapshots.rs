//! What a replica reports to leaders, and the snapshots that it stores.

use super::*;
use crate::stage::Heavy;

#[test]
fn leaders_and_read_batchers_hear_of_a_replica_when_it_starts() {
    let mut replica = Stage::new(config(Options::default()), &birth(ID.0), Replica::new);
    replica.now = Instant(2_000_000);
    let alive = read_batcher::In::ReplicaAlive { from: ID };
    let expected = vec![
        report(&replica, 0, 0, 0),
        Envelope::ToReadBatchers(Set::first(3), alive),
    ];
    assert_eq!(replica.woken(), only(expected));
}

#[test]
fn leaders_hear_soon_how_far_a_replica_has_executed() {
    let mut replica = in_session();
    let begun = replica.now;
    let asked = replica.woken();
    assert_eq!(asked, only(vec![report(&replica, 1, 0, 1000)]));
    assert_eq!(replica.now.since(begun), Duration::from_millis(10));
}

#[test]
fn leaders_hear_at_once_of_a_whole_stretch_of_slots() {
    let mut replica = replica();
    for slot in 0..63 {
        let asked = replica.asked(chosen(slot, Value::default(), PEER));
        assert_eq!(asked, only(vec![]));
    }
    let asked = replica.asked(chosen(63, Value::default(), PEER));
    assert_eq!(asked, only(vec![report(&replica, 64, 0, 0)]));
}

fn snapshotting(snapshot_slots: usize) -> Arc<Config> {
    let options = Options {
        snapshot_slots,
        ..Options::default()
    };
    config(options)
}

#[test]
fn a_snapshot_is_stored_when_enough_slots_are_executed_and_counts_when_it_is_on_disk() {
    let mut replica = replica_of(snapshotting(2), &birth(ID.0));
    assert_eq!(replica.asked(chosen(0, open(), PEER)), only(vec![]));
    let stores = |stamp| Asked {
        snapshot: Some(stamp),
        ..only(vec![])
    };
    let asked = replica.asked(chosen(1, write(0, "a"), PEER));
    assert_eq!(asked, stores(2));
    for slot in 2..6 {
        let asked = replica.asked(chosen(slot, write(slot - 1, "b"), PEER));
        assert_eq!(asked, only(vec![]), "one at a time");
    }
    let asked = replica.woken();
    assert_eq!(asked, only(vec![report(&replica, 6, 0, 1000)]));
    let asked = replica.stored(2);
    assert_eq!(asked, stores(6), "the next is due");
    replica.tell(chosen(6, write(5, "b"), PEER));
    let asked = replica.woken();
    assert_eq!(asked, only(vec![report(&replica, 7, 2, 1000)]));
}

/// No command need come: clients cannot write while the disk is full.
#[test]
fn a_snapshot_that_found_no_room_is_followed_by_another_at_once() {
    let mut replica = replica_of(snapshotting(2), &birth(ID.0));
    replica.tell(chosen(0, open(), PEER));
    let stores = |stamp| Asked {
        snapshot: Some(stamp),
        ..only(vec![])
    };
    assert_eq!(replica.asked(chosen(1, write(0, "a"), PEER)), stores(2));
    assert_eq!(replica.refused(2), stores(2));
    replica.tell(chosen(2, write(1, "b"), PEER));
    assert_eq!(replica.refused(1), only(vec![]), "it is not under way");
    assert_eq!(replica.refused(2), stores(3));
    replica.tell(chosen(3, write(2, "c"), PEER));
    replica.reconfigured(snapshotting(1000));
    assert_eq!(replica.refused(3), stores(4), "whatever is due now");
    assert_eq!(replica.stored(4), only(vec![]));
}

#[test]
fn a_snapshot_is_stored_after_few_commands_if_they_take_much_work() {
    let birth = Birth {
        machine: &Heavy::machine,
        ..birth(ID.0)
    };
    let mut replica = replica_of(config(Options::default()), &birth);
    let mut stores = |slot, value| replica.asked(chosen(slot, value, PEER)).snapshot;
    assert_eq!(stores(0, open()), None);
    assert_eq!(stores(1, write(0, "a")), None);
    assert_eq!(stores(2, write(1, "b")), Some(3));
    assert_eq!(stores(3, write(2, "c")), None, "one at a time");
    replica.stored(3);
    let mut stores = |slot, value| replica.asked(chosen(slot, value, PEER)).snapshot;
    // One command was executed while it was written: three more come before the next.
    let slots = [(4, "d"), (5, "e"), (6, "f")].into_iter().enumerate();
    let stored = slots.map(|(at, (slot, key))| stores(slot, write(at as u64 + 3, key)));
    assert_eq!(stored.collect::<Vec<_>>(), [None, None, Some(7)]);
}

#[test]
fn a_leader_can_have_what_it_needs_stored_before_it_is_due() {
    let mut replica = in_session();
    replica.tell(chosen(1, write(0, "a"), PEER));
    let wants = |keep| In::Heartbeat {
        round: Round(0),
        executed: Slot(2),
        keep: Slot(keep),
        time: Timestamp(1000),
    };
    let stores = Asked {
        snapshot: Some(2),
        ..only(vec![])
    };
    assert_eq!(replica.asked(wants(2)), stores);
    let mut behind = in_session();
    assert_eq!(behind.asked(wants(2)), only(vec![]), "as soon as it can");
    assert_eq!(behind.asked(chosen(1, write(0, "a"), PEER)), stores);
}

/// With durability `memory` at most f replicas lose their memory: what f+1 have executed is kept.
#[test]
fn where_nothing_is_stored_what_is_executed_counts_as_kept() {
    let birth = Birth {
        keeps_records: false,
        ..birth(ID.0)
    };
    let mut replica = replica_of(snapshotting(2), &birth);
    for (slot, value) in (0..).zip([open(), write(0, "a"), write(1, "b")]) {
        assert_eq!(replica.asked(chosen(slot, value, PEER)), only(vec![]));
    }
    let asked = replica.woken();
    assert_eq!(asked, only(vec![report(&replica, 3, 3, 1000)]));
}

#[test]
fn a_replica_goes_on_from_its_snapshot_after_a_restart() {
    let mut before = retaining(8);
    let now = before.now;
    let Picture::Taken(4, mut frozen) = before.role.freeze(now, Cover::Below(0)) else {
        panic!("a picture of the state before slot 4")
    };
    let mut bytes = Vec::new();
    while frozen.write_some(&mut bytes) {}
    let mut role = Replica::new(config(Options::default()), &birth(ID.0));
    role.restore(4, &bytes.into()).expect("its own snapshot");
    let mut after = Stage::unstarted(role, true);
    after.started();
    after.timer();
    // Its slots are not wanted again, and its sessions hold.
    assert_eq!(after.asked(chosen(3, write(2, "c"), ID)), only(vec![]));
    let expected = answered(5, &[(WRITE, 1, done("ab"))]);
    let asked = after.asked(chosen(4, write(1, "b"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_picture_of_a_state_that_it_has_not_reached_is_not_taken() {
    let mut replica = in_session();
    let now = replica.now;
    assert!(matches!(
        replica.role.freeze(now, Cover::Below(2)),
        Picture::NotYet(1)
    ));
    assert!(matches!(
        replica.role.freeze(now, Cover::Below(1)),
        Picture::Taken(1, _)
    ));
}
