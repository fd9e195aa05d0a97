//! Damage of every kind at every place.

use crate::{STAMP, directory, entries, open, options, refusal};
use ionian_wal::testing::FaultDisk;
use ionian_wal::{HandOff, Wal};
use std::path::PathBuf;

fn segment(sequence: u64) -> PathBuf {
    directory().join(format!("{sequence:016x}.wal"))
}

fn extent() -> PathBuf {
    directory().join("extent")
}

/// A log of one segment: groups of records, 40 bytes each with their headers. The machine failed in
/// the moment in which the last group was synced, before that was noted.
fn written(groups: &[usize]) -> FaultDisk {
    let disk = FaultDisk::new(7);
    let (mut wal, _) = open(&disk).expect("makes one");
    let mut noted = Vec::new();
    for group in groups {
        noted = disk.content(&extent());
        for _ in 0..*group {
            wal.append(1, 2, b"sixteen bytes ok");
        }
        wal.sync().expect("can sync");
    }
    drop(wal);
    disk.edit(&extent(), |content| *content = noted);
    disk
}

/// How many records can be read, having appended one more to make sure that the end is usable.
fn count(disk: &FaultDisk) -> usize {
    let (mut wal, recovery) = open(disk).expect("is accepted");
    let count = entries(recovery).len();
    wal.append(9, 9, b"behind the cut");
    wal.sync().expect("can sync");
    drop(wal);
    let (_, recovery) = open(disk).expect("is accepted again");
    assert_eq!(recovery.cut(), None, "was repaired");
    let found = entries(recovery);
    assert_eq!(found.len(), count + 1);
    assert_eq!(found[count].record, b"behind the cut");
    count
}

#[test]
fn a_log_that_ends_in_the_last_group_is_cut_there_and_one_that_ends_before_it_is_refused() {
    let groups = [1, 3, 2];
    let whole = written(&groups).content(&segment(1));
    // Where each record ends: groups begin on sectors.
    let ends = [40, 552, 592, 632, 1064, 1104].map(|end| end + 4096);
    for at in 4096..4096 + 1200 {
        let left = ends.iter().filter(|&&end| end <= at).count();
        let disk = written(&groups);
        disk.edit(&segment(1), |content| content[at..].fill(0));
        if left >= 4 {
            assert_eq!(count(&disk), left, "nothing from byte {at} on");
            continue;
        }
        let text = refusal(&disk);
        let expected = format!(
            "ends with record {left} at byte {}, though /data/extent says",
            [4096, 4136, 4648, 4688][left]
        );
        assert!(
            text.contains(&expected) && text.contains("record 4 was on disk"),
            "{text}"
        );
        assert_eq!(
            disk.content(&segment(1))[..at],
            whole[..at],
            "nothing was changed"
        );
    }
}

#[test]
fn a_segment_shorter_than_it_was_made_is_refused() {
    for length in [0, 30, 52, 100, 4095, 4096, 5000, 8191] {
        let disk = written(&[1, 3, 2]);
        disk.edit(&segment(1), |content| content.truncate(length));
        let text = refusal(&disk);
        let known = length >= 52 + STAMP.len();
        let said = if known {
            format!("has {length} bytes, and had 8192 before")
        } else {
            "cut off".into()
        };
        assert!(
            text.contains("0000000000000001.wal") && text.contains(&said),
            "{text}"
        );
    }
}

#[test]
fn a_cut_is_reported() {
    let disk = written(&[1, 1]);
    disk.edit(&segment(1), |content| content[4096 + 512 + 39] ^= 1);
    let (_, recovery) = open(&disk).expect("is accepted");
    let cut = recovery.cut().expect("is reported");
    assert_eq!(
        (&cut.path, cut.offset, cut.bytes),
        (&segment(1), 4096 + 40, 512)
    );
    assert!(recovery.existed());
    let (_, recovery) = open(&disk).expect("is accepted");
    assert_eq!(recovery.cut(), None, "what was cut off is gone");
}

#[test]
fn every_flipped_bit_before_the_last_group_is_refused_and_one_in_it_cut_off() {
    let groups = [2, 1, 2];
    let whole = written(&groups).content(&segment(1));
    let stretches = [
        (0, 80, None),
        (512, 40, None),
        (1024, 40, Some(3)),
        (1064, 40, Some(4)),
    ];
    for (start, length, left) in stretches {
        for bit in 0..length * 8 {
            let disk = written(&[1]);
            disk.edit(&segment(1), |content| {
                content.clone_from(&whole);
                content[4096 + start + bit / 8] ^= 1 << (bit % 8);
            });
            match left {
                Some(left) => assert_eq!(count(&disk), left, "bit {bit} of {start}"),
                None => {
                    let text = refusal(&disk);
                    let record = start + bit / 8 / 40 * 40;
                    // The end of the record before, where that record should be.
                    let place = format!("byte {}", 4096 + if start == 512 { 80 } else { record });
                    assert!(
                        text.contains("0000000000000001.wal") && text.contains(&place),
                        "{text}"
                    );
                    assert!(text.contains("A crash cannot have done this"), "{text}");
                }
            }
        }
    }
}

/// Three segments, the last with one record.
fn long() -> FaultDisk {
    let disk = FaultDisk::new(3);
    let (mut wal, _) = open(&disk).expect("makes one");
    for _ in 0..5 {
        wal.append(0, 0, &[5; 1900]);
        wal.sync().expect("can sync");
    }
    assert_eq!(
        disk.names()
            .iter()
            .filter(|name| name.ends_with(".wal"))
            .count(),
        3
    );
    disk
}

#[test]
fn damage_at_the_end_of_a_full_segment_is_refused() {
    for byte in [4096, 4096 + 23, 4096 + 2048 + 1900] {
        let disk = long();
        disk.edit(&segment(2), |content| content[byte] ^= 0x10);
        let text = refusal(&disk);
        assert!(
            text.contains("0000000000000002.wal") && text.contains("begins with record 5"),
            "{text}"
        );
    }
    let disk = long();
    disk.edit(&segment(1), |content| content.truncate(7000));
    assert!(refusal(&disk).contains("0000000000000001.wal"));
}

#[test]
fn a_missing_segment_is_named() {
    let disk = long();
    disk.delete(&segment(2));
    let text = refusal(&disk);
    assert!(text.contains("0000000000000002.wal is missing"), "{text}");
    assert!(
        text.contains("0000000000000003.wal comes behind it"),
        "{text}"
    );
}

#[test]
fn what_is_not_ours_is_refused_in_clear_words() {
    let disk = long();
    let other = Wal::open_in(
        disk.clone(),
        directory(),
        options(HandOff::Never),
        b"node 2",
    );
    let text = other.err().expect("is refused").to_string();
    assert!(
        text.contains("is stamped 'cluster x, node 1', this is 'node 2'"),
        "{text}"
    );
    assert_ne!(STAMP, b"node 2");
    disk.edit(&segment(1), |content| content[8] = 2);
    let text = refusal(&disk);
    assert!(
        text.contains("has format 2, this program knows format 1; run the version that wrote it"),
        "{text}"
    );
    disk.edit(&segment(1), |content| content[0] = b'X');
    assert!(refusal(&disk).contains("does not begin as a log segment"));
    let disk = long();
    let third = disk.content(&segment(3));
    disk.edit(&segment(2), |content| *content = third);
    assert!(refusal(&disk).contains("its header says that it is 0000000000000003.wal"));
}

/// The log as it was given, damaged.
fn refused(damage: impl FnOnce(&FaultDisk)) -> String {
    let disk = long();
    damage(&disk);
    let names = disk.names();
    let text = refusal(&disk);
    assert_eq!(disk.names(), names, "nothing was changed");
    assert!(text.ends_with("A crash cannot have done this"), "{text}");
    text
}

#[test]
fn a_missing_end_is_missed() {
    let text = refused(|disk| disk.delete(&segment(1)));
    assert!(
        text.contains("0000000000000001.wal is missing, though /data/extent says"),
        "{text}"
    );
    let text = refused(|disk| disk.delete(&segment(3)));
    assert!(
        text.contains("0000000000000003.wal is missing, though /data/extent says"),
        "{text}"
    );
    let text = refused(|disk| (2..=3).for_each(|sequence| disk.delete(&segment(sequence))));
    assert!(
        text.contains("0000000000000002.wal is missing, though /data/extent says"),
        "{text}"
    );
    let text = refused(|disk| (1..=3).for_each(|sequence| disk.delete(&segment(sequence))));
    assert!(
        text.contains("0000000000000003.wal is missing, though /data/extent says"),
        "{text}"
    );
}

#[test]
fn the_last_record_is_missed() {
    let text = refused(|disk| disk.edit(&segment(3), |content| content[4096 + 100] ^= 1));
    assert!(
        text.contains("0000000000000003.wal ends with record 4 at byte 4096"),
        "{text}"
    );
    assert!(text.contains("record 5 was on disk"), "{text}");
}

#[test]
fn a_log_without_its_extent_is_refused_and_so_is_one_with_that_of_another() {
    let text = refused(|disk| disk.delete(&extent()));
    assert!(
        text.contains("/data/extent is missing, though /data/0000000000000001.wal says"),
        "{text}"
    );
    let text = refused(|disk| disk.edit(&extent(), |content| content.fill(0)));
    assert!(
        text.contains("/data/extent is damaged at byte 0: it has no entry"),
        "{text}"
    );
    let other = FaultDisk::new(1);
    drop(
        Wal::open_in(
            other.clone(),
            directory(),
            options(HandOff::Never),
            b"node 2",
        )
        .expect("makes one"),
    );
    let text = refused(|disk| disk.edit(&extent(), |content| *content = other.content(&extent())));
    assert!(
        text.contains("/data/extent is damaged at byte 0: this entry is not whole and of this log"),
        "{text}"
    );
}

/// Otherwise a second damage, of the end of the log, would look like an interrupted write: with the
/// newest entry gone, the others say less than what was on disk.
#[test]
fn damage_at_any_byte_of_any_entry_of_the_extent_is_refused() {
    for (entry, at) in (0..3).flat_map(|entry| (0..52).map(move |at| (entry, at))) {
        let text = refused(|disk| {
            disk.edit(&extent(), |content| content[entry * 4096 + at] ^= 1);
            disk.edit(&segment(3), |content| content[4096..].fill(0));
        });
        let expected = format!(
            "/data/extent is damaged at byte {}: this entry",
            entry * 4096
        );
        assert!(
            text.contains(&expected) && text.contains("replace the node by one with another name"),
            "{text}"
        );
    }
}

#[test]
fn an_extent_that_is_cut_off_is_refused() {
    for length in [0, 52, 4096, 2 * 4096 + 52, 3 * 4096 - 1] {
        let text = refused(|disk| disk.edit(&extent(), |content| content.truncate(length)));
        let expected = format!("/data/extent is damaged at byte {length}: its end is cut off");
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn what_was_truncated_is_not_missed() {
    let disk = long();
    let (mut wal, _) = open(&disk).expect("is accepted");
    wal.truncate_below(5).expect("can");
    wal.seal().expect("can");
    let (_, recovery) = open(&disk).expect("is accepted");
    assert_eq!((recovery.first_lsn(), recovery.last_lsn()), (5, 5));
    disk.delete(&segment(3));
    assert!(refusal(&disk).contains("0000000000000003.wal is missing"));
}
