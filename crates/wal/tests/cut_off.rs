//! Logs on a real disk of which a part was removed while they were closed: each is
//! refused, and says what is missing. Without the part it would have looked like a log that a crash
//! has interrupted.

use ionian_wal::{Options, Wal, WalError};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const STAMP: &[u8] = b"node n0";
const RECORDS: u64 = 30;

fn options() -> Options {
    Options {
        segment_bytes: 8192,
        ..Options::default()
    }
}

/// A log of many segments, whose oldest were dropped; `in_order` says how its process has ended.
fn log(name: &str, in_order: bool) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("cut-off-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let (mut wal, _) = Wal::open(&path, options(), STAMP).unwrap();
    for number in 0..RECORDS as u8 {
        wal.append(1, 2, &[number; 700]);
        wal.sync().unwrap();
    }
    wal.truncate_below(8).unwrap();
    if in_order {
        wal.seal().unwrap();
    }
    path
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("00")
    };
    let mut segments: Vec<PathBuf> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

/// Where the last record of a segment ends.
fn used(segment: &Path) -> u64 {
    fs::read(segment)
        .unwrap()
        .iter()
        .rposition(|byte| *byte != 0)
        .unwrap() as u64
        + 1
}

fn set_length(path: &Path, length: u64) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(length)
        .unwrap();
}

fn zero_from(path: &Path, from: u64) {
    let length = path.metadata().unwrap().len();
    set_length(path, from);
    set_length(path, length);
}

/// What opening the log says after this was done to it, closed in order or not.
fn refused(name: &str, damage: impl Fn(&[PathBuf])) -> Vec<WalError> {
    let refuse = |in_order| {
        let path = log(&format!("{name}-{in_order}"), in_order);
        let segments = segments(&path);
        assert!(segments.len() > 3, "{segments:?}");
        damage(&segments);
        let refused = Wal::open(&path, options(), STAMP).expect_err("is refused");
        assert!(
            refused.is_damage() || matches!(refused, WalError::NotOurs { .. }),
            "{refused}"
        );
        fs::remove_dir_all(path).unwrap();
        refused
    };
    [true, false].map(refuse).into()
}

#[test]
fn a_segment_that_is_gone_is_named() {
    let first = |segments: &[PathBuf]| fs::remove_file(&segments[0]).unwrap();
    let middle = |segments: &[PathBuf]| fs::remove_file(&segments[2]).unwrap();
    let last = |segments: &[PathBuf]| fs::remove_file(segments.last().unwrap()).unwrap();
    let all = |segments: &[PathBuf]| {
        segments
            .iter()
            .for_each(|segment| fs::remove_file(segment).unwrap())
    };
    type Damage<'a> = &'a dyn Fn(&[PathBuf]);
    for (name, damage) in [
        ("first", &first as Damage<'_>),
        ("middle", &middle),
        ("last", &last),
        ("all", &all),
    ] {
        for error in refused(name, damage) {
            assert!(
                error.to_string().contains(".wal is missing, though "),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn a_segment_that_was_cut_is_shorter_than_it_was_made() {
    for error in refused("cut", |segments| {
        let last = segments.last().unwrap();
        set_length(last, used(last) / 2);
    }) {
        assert!(
            matches!(error, WalError::CutOff { bytes: 8192, .. }),
            "{error}"
        );
    }
}

#[test]
fn an_end_that_is_zeros_is_missed() {
    for error in refused("half", |segments| {
        let last = segments.last().unwrap();
        zero_from(last, 4096 + (used(last) - 4096) / 2);
    }) {
        assert!(
            matches!(
                error,
                WalError::Short {
                    durable: RECORDS,
                    ..
                }
            ),
            "{error}"
        );
    }
    for error in refused("header", |segments| zero_from(segments.last().unwrap(), 0)) {
        assert!(matches!(error, WalError::NotOurs { .. }), "{error}");
    }
}

#[test]
fn one_bit_of_the_last_record_is_missed() {
    for error in refused("bit", |segments| {
        let last = segments.last().unwrap();
        let mut content = fs::read(last).unwrap();
        content[used(last) as usize - 1] ^= 1;
        fs::write(last, content).unwrap();
    }) {
        assert!(
            matches!(error, WalError::Short { found, durable: RECORDS, .. } if found == RECORDS - 1),
            "{error}"
        );
    }
}

#[test]
fn a_segment_that_has_become_another_is_refused() {
    for error in refused("swapped", |segments| {
        fs::copy(&segments[1], segments.last().unwrap()).unwrap();
    }) {
        assert!(
            error.to_string().contains("its header says that it is"),
            "{error}"
        );
    }
}
