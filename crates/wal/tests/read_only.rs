//! Logs and snapshots of another owner, read without touching them.

use ionian_wal::snapshot::{SnapshotReader, Snapshots};
use ionian_wal::{Options, Wal, WalError, read_log};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const STAMP: &[u8] = b"another's";

fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("read-only-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn is_segment(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.ends_with(".wal") && !name.starts_with("spare")
}

fn records(path: &Path) -> Vec<Vec<u8>> {
    let records = read_log(path).unwrap().unwrap();
    assert_eq!(records.stamp(), STAMP);
    records.map(|entry| entry.unwrap().record).collect()
}

#[test]
fn a_log_is_read_as_its_owner_would_and_a_torn_end_is_left_as_it_is() {
    let path = directory("log");
    assert!(read_log(&path).unwrap().is_none());
    let small = || Options {
        segment_bytes: 8192,
        ..Options::default()
    };
    let extent = path.join("extent");
    let mut noted = Vec::new();
    {
        let (mut wal, _) = Wal::open(&path, small(), STAMP).unwrap();
        for number in 0..30u8 {
            noted = fs::read(&extent).unwrap();
            wal.append(1, 2, &[number; 500]);
            wal.sync().unwrap();
        }
    }
    let all: Vec<Vec<u8>> = (0..30).map(|number| vec![number; 500]).collect();
    let before = files(&path);
    assert!(before.len() > 2, "several segments");
    assert!(records(&path) == all && files(&path) == before);
    // The last write was torn: first one that was known to be on disk, then one that was not.
    let last = before.keys().rfind(|path| is_segment(path)).unwrap();
    let mut content = before[last].clone();
    let end = content.iter().rposition(|byte| *byte == 29).unwrap();
    content[end] = 0;
    fs::write(last, content).unwrap();
    assert!(matches!(
        read_log(&path),
        Err(WalError::Short {
            found: 29,
            durable: 30,
            ..
        })
    ));
    fs::write(extent, noted).unwrap();
    let torn = files(&path);
    assert!(records(&path) == all[..29] && files(&path) == torn);
    // Damage in the middle is refused, as it is to the owner.
    let first = before.keys().find(|path| is_segment(path)).unwrap();
    let mut content = before[first].clone();
    content[4200] ^= 1;
    fs::write(first, content).unwrap();
    assert!(matches!(read_log(&path), Err(WalError::Corrupt { .. })));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_snapshot_is_read_whoevers_it_is() {
    let path = directory("snapshot");
    let mut writer = Snapshots::new(&path, "file", STAMP).begin().unwrap();
    writer.push(b"one").unwrap();
    writer.push(b"two").unwrap();
    writer.finish().unwrap();
    let file = path.join("file");
    let reader = SnapshotReader::open(&file).unwrap();
    assert_eq!(
        (reader.stamp(), reader.file_bytes()),
        (STAMP, fs::metadata(&file).unwrap().len())
    );
    assert_eq!(
        reader.collect::<Result<Vec<_>, _>>().unwrap(),
        [b"one", b"two"]
    );
    // Cut or changed anywhere it is refused, and never taken for another.
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        assert!(read(&file).is_err(), "cut to {length}");
    }
    for bit in 0..whole.len() * 8 {
        let mut broken = whole.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, broken).unwrap();
        assert!(read(&file).is_err(), "bit {bit}");
    }
    fs::remove_dir_all(path).unwrap();
}

fn read(file: &Path) -> Result<Vec<Vec<u8>>, WalError> {
    SnapshotReader::open(file)?.collect()
}
