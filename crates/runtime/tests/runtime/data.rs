//! What survives a process: the log of vital records, the identity file, and the lock.

use crate::common;
use crate::common::{Directory, bind, layout, settings, start_with};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::ClientId;
use ionian_runtime::NodeError;
use ionian_runtime::{Durability, NodeSettings, NodeStatus, Startup, StartupWatch};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

fn node(data: &Path) -> NodeSettings {
    let listener = bind();
    let peers = [listener.local_addr().unwrap()];
    let mut settings = settings(0, listener, &peers, &layout(&[0], &[0]));
    settings.data = Some(data.to_owned());
    settings
}

/// Runs a node in which the echo instance stores `more` vital records, one after the other. Returns
/// its status at the end.
fn live(settings: NodeSettings, more: u64) -> Result<NodeStatus, NodeError> {
    let node = start_with(settings, move |handle| Box::new(Keeper { handle, more }));
    if common::status(node.address).is_err() {
        return Err(node.join().unwrap_err());
    }
    common::eventually("the records are kept", || {
        node.status().roles[1].metrics["asked"] == more
    });
    let status = node.status();
    node.stop()?;
    Ok(status)
}

/// Has one record stored after the other.
struct Keeper {
    handle: ionian_runtime::LaneHandle,
    more: u64,
}

impl ionian_runtime::Application for Keeper {
    fn on_reply(&mut self, _: ClientId, _: ionian_kernel::client::Reply) {}

    fn on_burst_end(&mut self) {
        if self.more > 0 {
            let request = Request {
                token: self.more,
                operation: Operation::Write,
                payload: Bytes::from_static(b"k"),
            };
            self.more -= 1;
            self.handle.submit(ClientId(0), request);
        }
    }
}

fn kept(status: &NodeStatus) -> u64 {
    status.roles[1].metrics["kept"]
}

fn vital(data: &Directory) -> PathBuf {
    data.0.join("vital/0000000000000001.wal")
}

#[test]
fn vital_records_and_the_identity_survive_a_restart() {
    let data = Directory::new();
    let first = live(node(&data.0), 3).unwrap();
    assert_eq!((first.amnesiac, kept(&first)), (false, 3));
    assert_eq!(first.event_loop.syncs, 3);
    let second = live(node(&data.0), 2).unwrap();
    assert_eq!((second.amnesiac, kept(&second)), (true, 5));
    let third = live(node(&data.0), 0).unwrap();
    assert_eq!((third.amnesiac, kept(&third)), (true, 5));
    assert_eq!(third.event_loop.syncs, 0);
}

#[test]
fn a_start_reports_each_record_and_then_that_the_node_listens() {
    let data = Directory::new();
    let steps_of = |more| {
        let (report, steps) = mpsc::channel();
        let mut settings = node(&data.0);
        settings.startup = StartupWatch::new(move |step| report.send(step).unwrap());
        live(settings, more).unwrap();
        steps.iter().collect::<Vec<_>>()
    };
    let (begin, end) = (Startup::Opening, Startup::Listening { takes_part: true });
    assert_eq!(steps_of(2), [begin, end]);
    let record = Startup::Recovering;
    assert_eq!(steps_of(0), [begin, record, record, end]);
}

#[test]
fn identity_file_alone_shows_that_the_node_took_part() {
    let data = Directory::new();
    assert!(!live(node(&data.0), 0).unwrap().amnesiac);
    assert!(live(node(&data.0), 0).unwrap().amnesiac);
}

#[test]
fn without_a_data_directory_nothing_survives() {
    let data = Directory::new();
    let mut settings = node(&data.0);
    settings.data = None;
    let status = live(settings, 2).unwrap();
    assert_eq!(
        (status.amnesiac, kept(&status), status.event_loop.syncs),
        (false, 2, 0)
    );
    assert!(std::fs::read_dir(&data.0).unwrap().next().is_none());
}

/// Replaces the last record of the log by zeros.
fn lose_last(data: &Directory) {
    let mut content = std::fs::read(vital(data)).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    content[(end - 1) / 512 * 512..].fill(0);
    std::fs::write(vital(data), content).unwrap();
}

#[test]
fn torn_tail_is_cut_off_and_a_missing_durable_tail_is_detected() {
    let data = Directory::new();
    let extent = data.0.join("vital/extent");
    live(node(&data.0), 2).unwrap();
    let two = std::fs::read(&extent).unwrap();
    live(node(&data.0), 1).unwrap();
    let three = std::fs::read(&extent).unwrap();
    lose_last(&data);
    let error = live(node(&data.0), 0).unwrap_err().to_string();
    assert!(
        error.contains("vital/0000000000000001.wal ends with record 2 at byte"),
        "{error}"
    );
    assert!(
        error.contains("record 3 was on disk. A crash cannot have done this"),
        "{error}"
    );
    assert_eq!(
        std::fs::read(&extent).unwrap(),
        three,
        "the evidence was changed"
    );
    // The machine failed while the third record was being written.
    std::fs::write(&extent, two).unwrap();
    assert_eq!(kept(&live(node(&data.0), 0).unwrap()), 2);
    // Later records are written after the last valid one.
    assert_eq!(kept(&live(node(&data.0), 4).unwrap()), 6);
    assert_eq!(kept(&live(node(&data.0), 0).unwrap()), 6);
}

#[test]
fn any_damaged_byte_in_the_middle_of_the_vital_log_stops_the_node() {
    let data = Directory::new();
    live(node(&data.0), 3).unwrap();
    let good = std::fs::read(vital(&data)).unwrap();
    for at in (0..8).chain(4096..4096 + 32) {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        std::fs::write(vital(&data), &bad).unwrap();
        let error = live(node(&data.0), 0).unwrap_err().to_string();
        assert!(error.contains("vital"), "{error}");
        let refused = ["is damaged at byte", "does not begin as a log segment"];
        assert!(
            refused.iter().any(|text| error.contains(text)),
            "byte {at}: {error}"
        );
        assert_eq!(
            std::fs::read(vital(&data)).unwrap(),
            bad,
            "the evidence was changed"
        );
    }
    std::fs::write(vital(&data), good).unwrap();
    assert_eq!(kept(&live(node(&data.0), 0).unwrap()), 3);
}

#[test]
fn data_directory_of_another_node_or_cluster_is_refused() {
    let data = Directory::new();
    live(node(&data.0), 1).unwrap();
    let refused = |change: fn(&mut NodeSettings)| {
        let mut settings = node(&data.0);
        change(&mut settings);
        live(settings, 0).unwrap_err().to_string()
    };
    let owner = "it belongs to node 'n0' of cluster 'blue' under protocol 'toy'";
    for (error, own) in [
        (
            refused(|it| it.name = "n7".into()),
            "this is node 'n7' of cluster 'blue' under protocol 'toy'",
        ),
        (
            refused(|it| it.identity.cluster = "red".into()),
            "this is node 'n0' of cluster 'red' under protocol 'toy'",
        ),
        (
            refused(|it| it.identity.protocol = "tot".into()),
            "this is node 'n0' of cluster 'blue' under protocol 'tot'",
        ),
    ] {
        assert!(error.contains(owner) && error.ends_with(own), "{error}");
    }
    std::fs::write(vital(&data), "").unwrap();
    assert!(
        live(node(&data.0), 0)
            .unwrap_err()
            .to_string()
            .contains("the header of the segment is cut off")
    );
    std::fs::remove_dir_all(data.0.join("vital")).unwrap();
    assert!(
        live(node(&data.0), 0)
            .unwrap_err()
            .to_string()
            .contains("vital is missing, though")
    );
}

#[test]
fn record_of_a_role_that_is_not_on_this_node_is_an_error() {
    let data = Directory::new();
    live(node(&data.0), 1).unwrap();
    let mut settings = node(&data.0);
    settings.layout = layout(&[0], &[]);
    let error = common::start(settings).join().unwrap_err().to_string();
    assert!(
        error.contains("a record of echo 0 in the data directory cannot be read"),
        "{error}"
    );
}

/// Not a test: the second process of the next test.
#[test]
fn helper_that_holds_a_directory() {
    let Ok(path) = std::env::var("IONIAN_TEST_HOLD") else {
        return;
    };
    let node = common::start(node(Path::new(&path)));
    node.status();
    println!("\nholding");
    // Until the parent closes the pipe.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_data_directory_is_locked_by_one_process_at_a_time() {
    let data = Directory::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "data::helper_that_holds_a_directory",
            "--nocapture",
        ])
        .env("IONIAN_TEST_HOLD", &data.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap() == "holding"),
        "the other process did not start"
    );
    let error = live(node(&data.0), 0).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "the data directory {} is in use by another process",
            data.0.display()
        )
    );
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        live(node(&data.0), 0).unwrap().amnesiac,
        "the lock went with the process"
    );
}

#[test]
fn invalid_settings_are_refused_with_the_reason() {
    let data = Directory::new();
    let refused = |change: fn(&mut NodeSettings)| {
        let mut settings = node(&data.0);
        change(&mut settings);
        common::start(settings).join().unwrap_err().to_string()
    };
    let disk = refused(|it| (it.durability, it.data) = (Durability::Disk, None));
    assert_eq!(disk, "durability \"disk\" needs a data directory");
    let few = refused(|it| it.peers.clear());
    assert_eq!(few, "no address is given for node 0 (counted from 0)");
    let occupied = bind();
    let mut settings = node(&data.0);
    settings.address = occupied.local_addr().unwrap();
    settings.listener = None;
    let taken = common::start(settings).join().unwrap_err().to_string();
    assert!(
        taken.starts_with(&format!(
            "cannot listen on {}",
            occupied.local_addr().unwrap()
        )),
        "{taken}"
    );
}
