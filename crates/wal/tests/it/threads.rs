//! The hand-off to the sync thread.

use crate::{SEGMENT, STAMP, directory, entries, open, options};
use ionian_wal::testing::{Fault, FaultDisk};
use ionian_wal::{Flush, HandOff, Options, Wal, WalError};
use std::sync::mpsc::{Receiver, channel};

fn threaded(disk: &FaultDisk, least: usize) -> (Wal<FaultDisk>, Receiver<()>) {
    let (notify, completed) = channel();
    let on_complete = Box::new(move || notify.send(()).unwrap_or(()));
    let options = Options {
        on_complete,
        ..options(HandOff::From(least))
    };
    let (wal, _) = Wal::open_in(disk.clone(), directory(), options, STAMP).expect("opens");
    (wal, completed)
}

#[test]
fn the_owner_goes_on_while_a_sync_runs() {
    let disk = FaultDisk::new(1);
    let (mut wal, completed) = threaded(&disk, 1);
    disk.set_gate(false);
    wal.append(0, 0, b"one");
    assert_eq!(wal.flush().expect("can start"), Flush::Started);
    for record in [b"two", b"tre"] {
        wal.append(0, 0, record);
        assert_eq!(wal.flush().expect("can ask"), Flush::Started);
        assert!(!wal.poll_completed().expect("nothing is wrong"));
    }
    assert_eq!((wal.durable(), wal.written()), (0, 3));
    disk.set_gate(true);
    completed.recv().expect("is called");
    assert!(wal.poll_completed().expect("nothing is wrong"));
    assert_eq!(
        wal.durable(),
        1,
        "what came while the sync ran waits for the next"
    );
    completed.recv().expect("the next was begun by itself");
    assert!(wal.poll_completed().expect("nothing is wrong"));
    assert_eq!((wal.durable(), wal.syncs()), (3, 2));
    assert_eq!(wal.flush().expect("nothing is wrong"), Flush::Done);
}

#[test]
fn small_groups_are_synced_at_once_and_large_ones_handed_off() {
    let (mut wal, completed) = threaded(&FaultDisk::new(1), 300);
    wal.append(0, 0, &[1; 100]);
    wal.append(0, 0, &[2; 100]);
    assert_eq!(wal.flush().expect("can sync"), Flush::Done);
    assert_eq!(wal.durable(), 2);
    for _ in 0..3 {
        wal.append(0, 0, &[3; 100]);
    }
    assert_eq!(wal.flush().expect("can start"), Flush::Started);
    completed.recv().expect("is called");
    assert!(wal.poll_completed().expect("nothing is wrong"));
    assert_eq!(wal.durable(), 5);
}

#[test]
fn what_fails_on_the_thread_stops_the_log() {
    let disk = FaultDisk::new(1);
    let (mut wal, completed) = threaded(&disk, 1);
    disk.fail_next_sync(Fault::Error);
    wal.append(0, 0, b"one");
    assert_eq!(wal.flush().expect("can start"), Flush::Started);
    completed.recv().expect("is called");
    let text = wal.poll_completed().expect_err("must fail").to_string();
    assert_eq!(text, "cannot sync /data/0000000000000001.wal: injected");
    assert!(matches!(wal.flush(), Err(WalError::Poisoned { .. })));
    assert_eq!(wal.durable(), 0);
}

#[test]
fn a_wait_takes_in_what_is_under_way_and_a_drop_waits_for_it() {
    let disk = FaultDisk::new(1);
    let (mut wal, _completed) = threaded(&disk, 1);
    for _ in 0..50 {
        wal.append(0, 0, &[1; 900]);
        let _ = wal.flush().expect("can start");
    }
    wal.sync().expect("can sync");
    assert_eq!(wal.durable(), 50);
    wal.append(0, 0, b"under way");
    assert_eq!(wal.flush().expect("can start"), Flush::Started);
    drop(wal);
    let operations = disk.operations();
    let (_, recovery) = open(&disk).expect("opens again");
    assert_eq!(recovery.first_lsn(), 1);
    assert_eq!(
        entries(recovery).last().expect("there is one").record,
        b"under way"
    );
    assert!(disk.operations() > operations);
}

#[test]
fn segments_are_made_and_dropped_by_a_thread() {
    let disk = FaultDisk::new(1);
    let (mut wal, _completed) = threaded(&disk, 1);
    for _ in 0..200 {
        wal.append(0, 0, &[1; 900]);
        wal.sync().expect("can sync");
    }
    // The thread works when it pleases, but not never.
    for _ in 0..100_000 {
        if wal.size() <= 5 * SEGMENT {
            break;
        }
        let lsn = wal.append(0, 0, &[1; 10]);
        wal.sync().expect("can sync");
        wal.truncate_below(lsn).expect("can truncate");
    }
    assert!(wal.size() <= 5 * SEGMENT, "{} bytes", wal.size());
    let last = wal.durable();
    drop(wal);
    let (_, recovery) = open(&disk).expect("opens again");
    assert!(recovery.first_lsn() > 200);
    assert_eq!(recovery.last_lsn(), last);
}

/// Were the job that drops the first segment to fail and the next job to be begun all the same, the
/// log would have a gap.
#[test]
fn a_failed_drop_leaves_no_gap() {
    for after in 0..40 {
        let disk = FaultDisk::new(after);
        let (mut wal, _completed) = threaded(&disk, 1);
        for _ in 0..20 {
            wal.append(0, 0, &[1; 3000]);
            wal.sync().expect("can sync");
        }
        disk.fail_after(after, Fault::Error);
        for lsn in 1..=20 {
            if wal.truncate_below(lsn).is_err() {
                break;
            }
        }
        drop(wal);
        disk.heal();
        let (_, recovery) = open(&disk).expect("has no gap");
        assert_eq!(recovery.last_lsn(), 20);
    }
}

#[test]
fn a_disk_without_room_for_the_next_segment_stops_the_log_only_when_that_is_needed() {
    let disk = FaultDisk::new(1);
    let (mut wal, _completed) = threaded(&disk, 1);
    disk.set_full(true);
    wal.append(0, 0, &[1; SEGMENT as usize / 8]);
    wal.sync().expect("it has room in its segment");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(40);
    let settle = |wal: &mut Wal<FaultDisk>, is_short: bool| {
        while wal.is_short() != is_short {
            assert!(std::time::Instant::now() < deadline, "never: {is_short}");
            if !is_short {
                wal.make_spare().expect("it can");
            }
            wal.poll_completed().expect("that is no error");
            std::thread::yield_now();
        }
    };
    settle(&mut wal, true);
    wal.append(0, 0, &[2; 8]);
    wal.sync().expect("it still has room");
    disk.set_full(false);
    settle(&mut wal, false);
    for _ in 0..8 {
        wal.append(0, 0, &[3; SEGMENT as usize / 8]);
        wal.sync().expect("it goes on");
    }
    disk.set_full(true);
    let error = (0..64).find_map(|_| {
        wal.append(0, 0, &[4; SEGMENT as usize / 8]);
        wal.sync().err()
    });
    let text = error.expect("there is an end").to_string();
    assert!(text.starts_with("cannot create"), "{text}");
}
