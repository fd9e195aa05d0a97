//! What goes in comes out; what is truncated goes, what is not stays.

use crate::{SEGMENT, directory, entries, open};
use ionian_wal::testing::FaultDisk;
use ionian_wal::{HandOff, Options, Wal};
use std::path::PathBuf;

#[test]
fn records_of_every_size_come_back() {
    let disk = FaultDisk::new(5);
    let (mut wal, recovery) = open(&disk).expect("makes one");
    assert!(!recovery.existed());
    assert_eq!((recovery.first_lsn(), recovery.last_lsn()), (1, 0));
    let lengths = [0, 1, 487, 488, 489, 4071, 4072, 4073, 8192, 20_000, 3, 0];
    for (at, length) in lengths.into_iter().enumerate() {
        assert_eq!(
            wal.append(at as u8, at as u16 * 1000, &vec![at as u8; length]),
            at as u64 + 1
        );
        assert_eq!(
            (wal.written(), wal.durable() <= at as u64),
            (at as u64 + 1, true)
        );
        if at % 3 == 2 {
            wal.sync().expect("can sync");
            assert_eq!(wal.durable(), at as u64 + 1);
        }
    }
    drop(wal);
    let (wal, recovery) = open(&disk).expect("opens again");
    assert!(recovery.existed());
    assert_eq!((recovery.cut(), wal.durable()), (None, 12));
    let found = entries(recovery);
    assert_eq!(found.len(), lengths.len());
    for (at, entry) in found.iter().enumerate() {
        assert_eq!(
            (entry.lsn, entry.kind, entry.tag),
            (at as u64 + 1, at as u8, at as u16 * 1000)
        );
        assert_eq!(entry.record, vec![at as u8; lengths[at]]);
    }
}

#[test]
fn a_burst_larger_than_a_segment_is_split() {
    let disk = FaultDisk::new(5);
    let (mut wal, _) = open(&disk).expect("makes one");
    for at in 0..100 {
        wal.append(at, 0, &[at; 1000]);
    }
    wal.sync().expect("can sync");
    assert_eq!((wal.durable(), wal.gathered_bytes()), (100, 0));
    assert!(wal.syncs() >= 25, "at most four fit into a segment");
    drop(wal);
    let (_, recovery) = open(&disk).expect("opens again");
    assert!(entries(recovery).iter().map(|entry| entry.kind).eq(0..100));
}

#[test]
fn truncation_drops_whole_segments_and_never_a_record_at_or_above_the_lsn() {
    for low in 1..=21 {
        let disk = FaultDisk::new(low);
        let (mut wal, _) = open(&disk).expect("makes one");
        for at in 1..=20 {
            wal.append(0, at, &[1; 1500]);
            wal.sync().expect("can sync");
        }
        let before = wal.size();
        wal.truncate_below(low).expect("can truncate");
        assert!(wal.size() <= before);
        drop(wal);
        let (_, recovery) = open(&disk).expect("opens again");
        // Two records a segment: what is left begins at the segment with the record.
        assert_eq!(
            recovery.first_lsn(),
            ((low - 1) / 2 * 2 + 1).min(19),
            "below {low}"
        );
        assert_eq!(recovery.last_lsn(), 20);
        assert_eq!(
            entries(recovery).len() as u64,
            21 - ((low - 1) / 2 * 2 + 1).min(19)
        );
    }
}

#[test]
fn a_truncated_log_does_not_grow() {
    let disk = FaultDisk::new(2);
    let (mut wal, _) = open(&disk).expect("makes one");
    for _ in 0..200 {
        let lsn = wal.append(0, 0, &[2; 1500]);
        wal.sync().expect("can sync");
        wal.truncate_below(lsn).expect("can truncate");
    }
    assert!(wal.size() <= 4 * SEGMENT, "{} bytes", wal.size());
    assert!(disk.names().len() <= 4, "{:?}", disk.names());
}

/// The segment is used again, record for record at the same places; then only some of it is
/// written.
#[test]
fn old_records_in_a_recycled_segment_stay_dead() {
    let disk = FaultDisk::new(2);
    let (mut wal, _) = open(&disk).expect("makes one");
    for _ in 0..40 {
        let lsn = wal.append(0, 0, &[3; 488]);
        wal.sync().expect("can sync");
        wal.truncate_below(lsn).expect("can truncate");
    }
    let content = disk.content(&directory().join(format!("{:016x}.wal", 40 / 8)));
    assert_eq!(
        content[10] & 1,
        1,
        "the last segment is one that was used before"
    );
    wal.append(0, 0, &[4; 488]);
    wal.sync().expect("can sync");
    drop(wal);
    let (mut wal, recovery) = open(&disk).expect("opens again");
    assert_eq!(
        (recovery.last_lsn(), recovery.cut()),
        (41, None),
        "the end does not look torn"
    );
    wal.append(0, 0, &[5; 488]);
    wal.sync().expect("can sync");
    drop(wal);
    // A crash loses the zeros behind the last group: there is an old record, whole and at its
    // place.
    disk.edit(&directory().join(format!("{:016x}.wal", 6)), |content| {
        assert_ne!(
            content[4096 + 1536..4096 + 2048],
            [0; 512],
            "old records are there"
        );
        content.copy_within(4096 + 1536..4096 + 2048, 4096 + 1024);
    });
    let (_, recovery) = open(&disk).expect("opens again");
    assert_eq!(recovery.last_lsn(), 42);
    assert_eq!(recovery.cut().expect("looks torn").offset, 4096 + 1024);
}

/// A directory that goes away with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ionian-wal-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("can make it");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_real_disk_does_the_same() {
    let scratch = Scratch::new("real");
    let options = || Options {
        segment_bytes: 64 << 10,
        hand_off: HandOff::From(400),
        ..Options::default()
    };
    let (mut wal, _) = Wal::open(&scratch.0, options(), b"me").expect("makes one");
    for at in 0..1000u16 {
        wal.append(1, at, &at.to_le_bytes().repeat(100));
        if at % 7 == 0 {
            let _ = wal.flush().expect("can flush");
        }
        wal.poll_completed().expect("can sync");
    }
    wal.sync().expect("can sync");
    wal.truncate_below(500).expect("can truncate");
    drop(wal);
    let (_, recovery) = Wal::open(&scratch.0, options(), b"me").expect("opens again");
    assert!(recovery.first_lsn() <= 500, "{}", recovery.first_lsn());
    assert_eq!(recovery.last_lsn(), 1000);
    for entry in recovery {
        let entry = entry.expect("can be read");
        assert_eq!(
            entry.record,
            (entry.lsn as u16 - 1).to_le_bytes().repeat(100)
        );
    }
}
