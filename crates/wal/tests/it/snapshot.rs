//! Snapshots: the old one or the new one, whatever happens.

use crate::directory;
use ionian_wal::WalError;
use ionian_wal::snapshot::Snapshots;
use ionian_wal::testing::{Fault, FaultDisk};
use proptest::prelude::*;
use std::path::PathBuf;

fn snapshots(disk: &FaultDisk) -> Snapshots<FaultDisk> {
    Snapshots::new_in(disk.clone(), directory(), "snapshot", b"node 1")
}

fn path(name: &str) -> PathBuf {
    directory().join(name)
}

fn write(disk: &FaultDisk, content: u8) -> Result<(), WalError> {
    let mut writer = snapshots(disk).begin()?;
    for chunk in chunks(content) {
        writer.push(&chunk)?;
    }
    assert_eq!(writer.bytes(), 703);
    writer.finish()
}

fn chunks(content: u8) -> Vec<Vec<u8>> {
    vec![vec![content; 3], vec![], vec![content; 700]]
}

/// The content of the latest snapshot, and what is wrong with a newer one.
fn read(disk: &FaultDisk) -> Result<Option<(u8, Option<String>)>, WalError> {
    let Some(loaded) = snapshots(disk).load_latest()? else {
        return Ok(None);
    };
    let found = loaded.reader.collect::<Result<Vec<_>, _>>()?;
    let content = found[0][0];
    assert_eq!(found, chunks(content));
    Ok(Some((
        content,
        loaded.rejected.map(|error| error.to_string()),
    )))
}

fn content(disk: &FaultDisk) -> Option<u8> {
    read(disk).expect("can be read").map(|(content, rejected)| {
        assert_eq!(rejected, None);
        content
    })
}

#[test]
fn the_latest_is_found_and_the_one_before_it_kept() {
    let disk = FaultDisk::new(1);
    assert_eq!(content(&disk), None);
    for number in 1..4 {
        write(&disk, number).expect("can write");
        disk.fail_power();
        assert_eq!(content(&disk), Some(number));
    }
    assert_eq!(disk.names(), ["snapshot", "snapshot.previous"]);
}

/// A process dies at any operation and is started again, and then the power fails.
#[test]
fn what_was_found_once_is_not_taken_by_a_power_failure() {
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let disk = FaultDisk::new(seed);
        write(&disk, 1).expect("can write");
        disk.let_go(disk.mark());
        write(&disk, 2).expect("can write");
        disk.rewind(false);
        let before = content(&disk);
        found.insert(before);
        disk.fail_power();
        assert_eq!(content(&disk), before, "seed {seed}");
    }
    assert_eq!(found, [Some(1), Some(2)].into());
}

#[test]
fn a_crash_at_any_operation_leaves_the_old_one_or_the_new_one() {
    for seed in 0..40 {
        for had in 0..3 {
            for after in 0.. {
                let disk = FaultDisk::new(seed);
                (0..had).for_each(|number| write(&disk, number + 1).expect("can write"));
                disk.fail_after(after, Fault::Crash);
                let result = write(&disk, 9);
                let was_hit = !disk.fault_is_due();
                assert_eq!(result.is_err(), was_hit);
                disk.fail_power();
                let found = content(&disk);
                let old = (had > 0).then_some(had);
                assert!(
                    found == Some(9) || (was_hit && found == old),
                    "{found:?} after {after} of seed {seed}"
                );
                write(&disk, 10).expect("goes on");
                disk.fail_power();
                assert_eq!(content(&disk), Some(10));
                if !was_hit {
                    break;
                }
            }
        }
    }
}

#[test]
fn an_error_at_any_operation_leaves_the_old_one_or_the_new_one() {
    for after in 0.. {
        let disk = FaultDisk::new(after);
        write(&disk, 1).expect("can write");
        disk.fail_after(after, Fault::NoSpace);
        let result = write(&disk, 9);
        if disk.fault_is_due() {
            break;
        }
        assert!(result.expect_err("was hit").to_string().contains("/data"));
        assert!(matches!(content(&disk), Some(1 | 9)));
        disk.fail_power();
        assert!(matches!(content(&disk), Some(1 | 9)));
    }
}

#[test]
fn a_failed_writer_does_not_finish() {
    let disk = FaultDisk::new(1);
    write(&disk, 1).expect("can write");
    let mut writer = snapshots(&disk).begin().expect("can begin");
    disk.fail_after(0, Fault::Error);
    writer.push(b"lost").expect_err("must fail");
    writer.push(b"more").expect_err("has failed");
    writer.finish().expect_err("has failed");
    assert_eq!(content(&disk), Some(1));
}

#[test]
fn every_flipped_bit_and_every_cut_is_found_and_the_previous_one_taken() {
    let fresh = || {
        let disk = FaultDisk::new(1);
        write(&disk, 1).expect("can write");
        write(&disk, 2).expect("can write");
        disk
    };
    let length = fresh().content(&path("snapshot")).len();
    let damage = |change: &dyn Fn(&mut Vec<u8>)| {
        let disk = fresh();
        disk.edit(&path("snapshot"), change);
        let (found, rejected) = read(&disk).expect("falls back").expect("there is one");
        assert_eq!(found, 1);
        assert!(rejected.is_some_and(|text| text.contains("/data/snapshot ")));
        // The damaged one must not replace the sound one.
        assert_eq!(disk.names(), ["snapshot.damaged", "snapshot.previous"]);
        write(&disk, 3).expect("can write");
        assert_eq!(content(&disk), Some(3));
    };
    (0..length * 8).for_each(|bit| damage(&|content| content[bit / 8] ^= 1 << (bit % 8)));
    (0..length).for_each(|cut| damage(&|content| content.truncate(cut)));
    damage(&|content| content.push(0));
}

#[test]
fn with_nothing_sound_left_it_says_so_every_time() {
    let disk = FaultDisk::new(1);
    write(&disk, 1).expect("can write");
    disk.edit(&path("snapshot"), |content| content[100] ^= 1);
    for _ in 0..2 {
        let text = read(&disk).expect_err("is refused").to_string();
        assert!(
            text.contains("/data/snapshot is damaged") && text.contains("checksum of a chunk"),
            "{text}"
        );
    }
}

#[test]
fn another_stamp_and_another_format_are_refused() {
    let disk = FaultDisk::new(1);
    write(&disk, 1).expect("can write");
    write(&disk, 2).expect("can write");
    let other = Snapshots::new_in(disk.clone(), directory(), "snapshot", b"node 2");
    let text = other.load_latest().err().expect("is refused").to_string();
    assert!(
        text.contains("is stamped 'node 1', this is 'node 2'"),
        "{text}"
    );
    disk.edit(&path("snapshot"), |content| {
        content[8] = 2;
        let sum = crc32c::crc32c(&content[..10]);
        content[10..14].copy_from_slice(&sum.to_le_bytes());
    });
    assert!(
        read(&disk)
            .expect_err("is refused")
            .to_string()
            .contains("has format 2")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_come_back_as_they_were_pushed(
        pushed in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20),
    ) {
        let disk = FaultDisk::new(1);
        let mut writer = snapshots(&disk).begin().expect("can begin");
        pushed.iter().for_each(|chunk| writer.push(chunk).expect("can write"));
        writer.finish().expect("can finish");
        let loaded = snapshots(&disk).load_latest().expect("can be read").expect("is there");
        prop_assert_eq!(loaded.reader.collect::<Result<Vec<_>, _>>().expect("is sound"), pushed);
    }
}
