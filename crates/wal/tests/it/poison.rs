//! After an error the log has stopped, and says why.

use crate::{SEGMENT, open};
use ionian_wal::WalError;
use ionian_wal::testing::{Fault, FaultDisk};

/// Appends until the fault hits; returns the text of the error.
fn run_into(disk: &FaultDisk, fault: impl FnOnce(&FaultDisk), length: usize) -> String {
    let (mut wal, _) = open(disk).expect("makes one");
    wal.append(0, 0, b"fine");
    wal.sync().expect("can sync");
    fault(disk);
    let durable = wal.durable();
    wal.append(0, 0, &vec![1; length]);
    let text = wal.flush().expect_err("must fail").to_string();
    disk.heal();
    for _ in 0..3 {
        wal.append(0, 0, b"too late");
        let Err(WalError::Poisoned { first }) = wal.flush() else {
            panic!("goes on")
        };
        assert_eq!(first, text);
        assert!(
            wal.poll_completed().is_err() && wal.sync().is_err() && wal.truncate_below(1).is_err()
        );
        assert_eq!(wal.durable(), durable, "nothing is promised any more");
    }
    text
}

#[test]
fn each_error_stops_the_log_and_names_file_operation_and_cause() {
    let full = SEGMENT as usize;
    let at = |after: u64, fault: Fault| move |disk: &FaultDisk| disk.fail_after(after, fault);
    let text = run_into(&FaultDisk::new(1), at(0, Fault::Error), 10);
    assert_eq!(text, "cannot write to /data/0000000000000001.wal: injected");
    let text = run_into(
        &FaultDisk::new(1),
        |disk| disk.fail_next_sync(Fault::Error),
        10,
    );
    assert_eq!(text, "cannot sync /data/0000000000000001.wal: injected");
    let text = run_into(&FaultDisk::new(1), at(0, Fault::NoSpace), 10);
    assert_eq!(
        text,
        "cannot write to /data/0000000000000001.wal: no storage space"
    );
    let text = run_into(&FaultDisk::new(1), at(0, Fault::Error), full);
    assert_eq!(text, "cannot create /data/spare-2.wal: injected");
    let text = run_into(&FaultDisk::new(1), at(1, Fault::NoSpace), full);
    assert_eq!(text, "cannot write to /data/spare-2.wal: no storage space");
}

#[test]
fn an_error_at_any_operation_of_making_a_segment_stops_the_log() {
    let mut texts = Vec::new();
    for after in 0..30 {
        let disk = FaultDisk::new(4);
        let (mut wal, _) = open(&disk).expect("makes one");
        wal.append(0, 0, b"fine");
        wal.sync().expect("can sync");
        disk.fail_after(after, Fault::Error);
        wal.append(0, 0, &[1; SEGMENT as usize]);
        if let Err(error) = wal.flush() {
            texts.push(error.to_string());
            assert_eq!(wal.durable(), 1);
            assert!(matches!(wal.flush(), Err(WalError::Poisoned { .. })));
        }
    }
    for operation in [
        "create",
        "write to",
        "sync /data/spare",
        "open",
        "rename",
        "sync the directory",
    ] {
        assert!(
            texts.iter().any(|text| text.contains(operation)),
            "{operation}: {texts:?}"
        );
    }
}

#[test]
fn a_record_over_the_limit_stops_the_log() {
    let (mut wal, _) = open(&FaultDisk::new(1)).expect("makes one");
    assert_eq!(wal.append(0, 0, &[0; 20_001]), 1);
    assert_eq!(wal.append(0, 0, b"behind it"), 2);
    let text = wal.flush().expect_err("must fail").to_string();
    assert!(
        text.contains("a record of 20001 bytes exceeds the limit of 20000"),
        "{text}"
    );
    assert_eq!(wal.durable(), 0);
}

#[test]
fn a_failed_sync_is_made_good_by_the_next_process_or_the_records_are_not_there() {
    for seed in 0..200 {
        let disk = FaultDisk::new(seed);
        let (mut wal, _) = open(&disk).expect("makes one");
        wal.append(0, 0, &[1; 3000]);
        disk.fail_next_sync(Fault::Error);
        wal.flush().expect_err("must fail");
        drop(wal);
        // The file still reads as if all were well, and another sync has nothing to do.
        let (_, recovery) = open(&disk).expect("opens again");
        let promised = recovery.last_lsn();
        assert_eq!(promised, 1);
        disk.fail_power();
        let (_, recovery) = open(&disk).expect("opens again");
        assert_eq!(recovery.last_lsn(), promised, "seed {seed}");
    }
}
