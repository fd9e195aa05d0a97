//! Backups of other levels: one that the first release wrote is read, one of a later level than
//! this program supports is refused.

use super::{DISK, at, inspect, refused, restore, set};
use crate::cluster::{Cluster, Directory, works};
use crate::resp::Reply;
use ionian_kernel::level::Level;
use ionian_wal::snapshot::{SnapshotReader, Snapshots};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;

/// What `ionian snapshot save` of the first release wrote (commit 68bf4c0e), in hexadecimal. It is
/// never written again.
const FIRST: &str = include_str!("golden/17.txt");

fn first() -> Vec<u8> {
    let digits: String = FIRST.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    (0..digits.len() / 2).map(byte).collect()
}

fn head(file: &str) -> String {
    let reader = SnapshotReader::open(Path::new(file)).unwrap();
    String::from_utf8(reader.stamp().to_vec()).unwrap()
}

/// Writes a snapshot with another head.
fn rewrite(file: &str, directory: &Directory, name: &str, head: &str) -> String {
    let parent = directory.path("");
    let mut writer = Snapshots::new(&parent, name, head.as_bytes())
        .begin()
        .unwrap();
    for chunk in SnapshotReader::open(Path::new(file)).unwrap() {
        writer.push(&chunk.unwrap()).unwrap();
    }
    writer.finish().unwrap();
    at(directory, name)
}

/// The keys of a head, in their order.
fn keys(head: &str) -> Vec<&str> {
    let fields = head.trim_matches(['{', '}']).split(',');
    fields
        .map(|field| field.split(':').next().unwrap())
        .collect()
}

#[test]
fn a_backup_of_the_first_release_is_read_and_written_as_it_was() {
    let directory = Directory::new();
    let file = at(&directory, "golden");
    fs::write(&file, first()).unwrap();
    let report = inspect(&file);
    let expected = json!({
        "file": file, "file_bytes": first().len(), "format": 1, "wire_version": 17,
        "cluster": "golden", "protocol": "multipaxos", "machine": "kv", "node": "n0",
        "slot": 30, "origin": "saved", "complete": true, "time": 1_795_888_709_u64,
        "state_bytes": 1510, "keys": 27, "sessions": 3,
    });
    assert_eq!(report, expected);
    let again = rewrite(&file, &directory, "again", &head(&file));
    assert_eq!(fs::read(&again).unwrap(), first());
    let mut cluster = restore("colocated", &file);
    let mut client = cluster.client(0);
    for number in [0, 13, 24] {
        let reply = client.call(&["GET", &format!("key:{number}")]).unwrap();
        assert_eq!(reply, Reply::Bulk(Some(format!("value{number}"))));
    }
    assert_eq!(client.call(&["XLEN", "s"]).unwrap(), Reply::Integer(1));
    assert_eq!(client.call(&["INCR", "n"]).unwrap(), Reply::Integer(2));
    // What is saved today has a head of the same form.
    let saved = at(&cluster.directory, "saved");
    works(&["snapshot", "save", &saved, "--data", &cluster.data()]);
    assert_eq!(keys(&head(&saved)), keys(&head(&file)));
    cluster.stop(Signal::SIGTERM);
}

#[test]
fn a_backup_of_a_later_level_is_refused_and_leaves_nothing() {
    let mut cluster = Cluster::start("colocated", DISK, &[]);
    set(&mut cluster.client(0), 0);
    let file = at(&cluster.directory, "file");
    works(&["snapshot", "save", &file, "--data", &cluster.data()]);
    cluster.stop(Signal::SIGTERM);
    let head = head(&file);
    let present = format!("\"wire_version\":{}", Level::LATEST.number());
    let later = Level::LATEST.number() + 1;
    let changed = head.replace(&present, &format!("\"wire_version\":{later}"));
    assert_ne!(changed, head);
    let file = rewrite(&file, &cluster.directory, "later", &changed);
    let (oldest, latest) = (Level::OLDEST.number(), Level::LATEST.number());
    let why = format!(
        "has format 1.{later}, this program reads 1.{oldest} to 1.{latest}: \
         use the version of ionian that wrote it"
    );
    let data = at(&cluster.directory, "elsewhere");
    let config = at(&cluster.directory, "given.toml");
    let restoring = [
        "snapshot", "restore", &file, "--config", &config, "--data", &data,
    ];
    for arguments in [&restoring[..], &["snapshot", "inspect", &file]] {
        let said = refused(1, arguments);
        assert!(said.contains(&why), "{said}");
    }
    assert!(!fs::exists(&data).unwrap(), "{data}");
}
