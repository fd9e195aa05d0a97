//! Tests of the simulated disk.

use super::*;
use ionian_wal::storage::Storage;
use std::collections::BTreeSet;

const A: Address = Address { kind: 0, index: 0 };
const B: Address = Address { kind: 6, index: 2 };

fn new(seed: u64, defect: Defect) -> Disk {
    let mut disk = Disk::new(seed, 8 << 10, defect);
    assert_eq!(found(&disk.open(&[A, B]).expect("is empty")), []);
    disk
}

fn append(disk: &mut Disk, records: std::ops::Range<u8>) {
    for record in records {
        // Large enough to be torn.
        disk.append(A, &[record; 600]);
    }
}

/// Returns the snapshots that are there.
fn sync(disk: &mut Disk) -> Vec<(Address, u64)> {
    assert!(disk.begin_sync() && !disk.begin_sync());
    let all = disk.complete_sync().into_iter();
    let stored = all.filter(|(_, (_, stored))| *stored);
    stored.map(|(from, (stamp, _))| (from, stamp)).collect()
}

fn found(past: &Past) -> Vec<u8> {
    past.records
        .iter()
        .map(|(_, _, record)| record[0])
        .collect()
}

#[test]
fn a_crash_keeps_a_prefix_no_shorter_than_what_was_durable() {
    let mut lengths = BTreeSet::new();
    for seed in 0..300 {
        let mut disk = new(seed, Defect::None);
        append(&mut disk, 0..4);
        sync(&mut disk);
        append(&mut disk, 4..6);
        disk.begin_sync();
        append(&mut disk, 6..7);
        assert_eq!(disk.durable(), Lsn(4));
        disk.crash();
        let past = disk.open(&[A]).expect("is sound");
        assert_eq!(
            found(&past),
            (0..7 - past.loss.records as u8).collect::<Vec<_>>()
        );
        assert_eq!(
            (disk.durable(), disk.next()),
            (Lsn(7 - past.loss.records), Lsn(8 - past.loss.records))
        );
        lengths.insert(past.records.len());
    }
    assert_eq!(lengths, [4, 5, 6].into(), "nothing was begun for the last");
}

#[test]
fn segments_come_and_go_and_what_is_needed_stays() {
    let mut disk = new(1, Defect::None);
    let mut counts = BTreeSet::new();
    for turn in 0..50 {
        append(&mut disk, 0..9);
        sync(&mut disk);
        disk.truncate_below(Lsn(10 * turn + 6));
        append(&mut disk, 9..10);
        sync(&mut disk);
        append(&mut disk, 10..11);
        assert_eq!(disk.crash_hard(), 1);
        let past = disk.open(&[A]).expect("is sound");
        counts.insert(past.records.len());
        assert_eq!(found(&past)[past.records.len() - 5..], [5, 6, 7, 8, 9]);
    }
    // Exactly what is needed, or what is left of the segment as well.
    assert_eq!(counts.first(), Some(&5));
    assert!((6..12).contains(counts.last().expect("one")), "{counts:?}");
}

#[test]
fn snapshots_are_there_when_they_are_durable_and_one_under_way_may_be() {
    let mut stamps = BTreeSet::new();
    for seed in 0..100 {
        let mut disk = new(seed, Defect::None);
        disk.store_snapshot(B, 7, Bytes::from(vec![7; 1200]));
        append(&mut disk, 0..1);
        assert_eq!(sync(&mut disk), [(B, 7)]);
        disk.store_snapshot(B, 9, Bytes::from(vec![9; 1200]));
        disk.begin_sync();
        disk.crash();
        let past = disk.open(&[A, B]).expect("is sound");
        let [(B, stamp @ (7 | 9), snapshot)] = &past.snapshots[..] else {
            panic!("{:?}", past.snapshots)
        };
        assert_eq!(snapshot, &vec![*stamp as u8; 1200]);
        stamps.insert(*stamp);
    }
    assert_eq!(stamps, [7, 9].into());
}

#[test]
fn a_snapshot_without_room_leaves_the_one_before_it_and_nothing_else() {
    let mut stamps = BTreeSet::new();
    for seed in 0..200 {
        let mut disk = new(seed, Defect::None);
        disk.store_snapshot(B, 7, Bytes::from(vec![7; 1200]));
        assert_eq!(sync(&mut disk), [(B, 7)]);
        disk.snapshots.refused_once_in = 1;
        disk.store_snapshot(B, 9, Bytes::from(vec![9; 1200]));
        append(&mut disk, 0..1);
        assert_eq!((sync(&mut disk), disk.refused), (Vec::new(), 1));
        assert!(disk.owed.contains(&B));
        let names = disk.storage.list(Path::new("/snapshots")).expect("names");
        assert!(names.iter().all(|it| !it.ends_with(".tmp")), "{names:?}");
        assert_eq!(disk.crash_hard(), 0);
        let past = disk.open(&[A, B]).expect("is sound");
        let [(B, stamp, snapshot)] = &past.snapshots[..] else {
            panic!("{:?}", past.snapshots)
        };
        assert_eq!(snapshot, &vec![*stamp as u8; 1200]);
        stamps.insert(*stamp);
    }
    // One that was whole, and whose directory could not be synced, may be there all the same.
    assert!(
        stamps.contains(&7) && stamps.iter().all(|it| [7, 9].contains(it)),
        "{stamps:?}"
    );
}

#[test]
fn a_node_that_stops_at_an_error_finds_again_what_was_durable() {
    let mut kept = BTreeSet::new();
    for seed in 0..400 {
        let mut disk = new(seed, Defect::None);
        append(&mut disk, 0..4);
        disk.store_snapshot(B, 7, Bytes::from_static(b"seven"));
        sync(&mut disk);
        disk.order([Trouble::Sync, Trouble::After(seed % 30), Trouble::Full][seed as usize % 3]);
        // Enough for several segments.
        for turn in 0..20 {
            append(&mut disk, 4 + turn..5 + turn);
            if disk.begin_sync() {
                disk.complete_sync();
            }
            disk.truncate_below(Lsn(3));
            if disk.error().is_some() {
                break;
            }
        }
        let durable = disk.durable().0;
        assert!(disk.error().is_some() && !disk.begin_sync(), "seed {seed}");
        disk.stop();
        let mut opened = disk.open(&[A, B]);
        while let Err(Unopened::Storage(_)) = opened {
            disk.stop();
            disk.repair();
            opened = disk.open(&[A, B]);
        }
        let past = opened.expect("is sound");
        let found = past.records.last().expect("some are left").1.0;
        assert!(found >= durable, "seed {seed}: {found} of {durable}");
        kept.insert(found - durable);
        // Whatever it shows now is there for good.
        disk.repair();
        disk.crash_hard();
        disk.storage.fail_power();
        assert_eq!(
            disk.open(&[A, B])
                .expect("is sound")
                .records
                .last()
                .expect("the same")
                .1
                .0,
            found,
            "seed {seed}"
        );
    }
    assert_eq!(kept, [0, 1].into());
}

#[test]
fn the_canaries_lie_and_forget() {
    let mut disk = new(1, Defect::Lies);
    append(&mut disk, 0..1);
    assert_eq!(disk.durable(), Lsn(1));
    let forgot = |seed| {
        let mut disk = new(seed, Defect::Forgets);
        append(&mut disk, 0..4);
        sync(&mut disk);
        disk.crash();
        disk.open(&[A]).expect("looks sound").loss.records
    };
    assert!((0..50).any(|seed| forgot(seed) > 0));
}

/// What opening says after `defect` of a disk that has 4 durable records and a snapshot.
fn refusal(defect: impl Fn(&mut Disk)) -> String {
    let mut disk = new(1, Defect::None);
    append(&mut disk, 0..4);
    disk.store_snapshot(B, 7, Bytes::from_static(b"seven"));
    sync(&mut disk);
    defect(&mut disk);
    disk.crash();
    refused(disk.open(&[A, B])).expect("is noticed")
}

/// What is wrong with the past.
fn refused(opened: Result<Past, Unopened>) -> Option<String> {
    match opened {
        Ok(_) => None,
        Err(Unopened::Past(what)) => Some(what),
        Err(Unopened::Storage(what)) => panic!("{what}"),
    }
}

/// What opening says of the crash of a disk with a sync under way, over many seeds.
fn refusals(defect: Defect) -> BTreeSet<String> {
    let refusal = |seed| {
        let mut disk = new(seed, defect);
        append(&mut disk, 0..4);
        sync(&mut disk);
        append(&mut disk, 4..8);
        disk.begin_sync();
        disk.crash();
        disk.defect = Defect::None;
        refused(disk.open(&[A]))
    };
    (0..100).filter_map(refusal).collect()
}

#[test]
fn a_log_that_breaks_its_promises_is_noticed() {
    assert_eq!(refusals(Defect::None), [].into());
    let early = refusals(Defect::Forgets);
    assert!(
        early.contains("record 1 was durable and is lost"),
        "{early:?}"
    );
    let torn = ionian_wal::testing::accepting_torn_records(|| refusals(Defect::None));
    assert!(
        torn.contains("record 5 is found and is not what was appended"),
        "{torn:?}"
    );
}

#[test]
fn a_broken_promise_is_noticed() {
    let lost = refusal(|disk| {
        disk.storage
            .edit(Path::new("/wal/0000000000000001.wal"), |all| {
                all[4096..].fill(0)
            })
    });
    assert_eq!(lost, "record 1 was durable and is lost");
    let changed = refusal(|disk| *disk.promised.records.get_mut(&3).expect("is there") ^= 1);
    assert_eq!(changed, "record 3 is found and is not what was appended");
    let strange = refusal(|disk| {
        disk.promised.records.remove(&4);
    });
    assert_eq!(strange, "record 4 is found and was never appended");
    let stale = refusal(|disk| {
        disk.promised.snapshots.insert(B, 8);
    });
    assert!(stale.starts_with("snapshot 8 of"), "{stale}");
}
