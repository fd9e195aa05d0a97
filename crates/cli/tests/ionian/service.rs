//! A node under a service manager: its notifications, and the unit that comes with the project.

use crate::cluster::{Nodes, deployment, eventually, ionian};
use crate::common::{Directory, LIMIT, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const UNIT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/systemd/ionian@.service"
);

/// The next notification.
fn next(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).expect("a notification in time");
    text(&buffer[..length])
}

/// The next notification that is not a proof of the event loop.
fn next_report(socket: &UnixDatagram) -> String {
    loop {
        let report = next(socket);
        if report != "WATCHDOG=1\n" {
            return report;
        }
    }
}

#[test]
fn a_node_is_ready_when_it_listens_although_its_peers_are_down() {
    let directory = Directory::new();
    let socket = UnixDatagram::bind(directory.path("notify")).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let file = directory.path("cluster.toml");
    let deployment = deployment("colocated", &[]);
    fs::write(&file, deployment.to_toml()).unwrap();
    let child = ionian()
        .args(["node", "n0", "--config"])
        .arg(&file)
        .arg("--data")
        .arg(directory.path("data"))
        .env("NOTIFY_SOCKET", directory.path("notify"))
        .env("WATCHDOG_USEC", "150000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = Pid::from_raw(child.id() as i32);
    let mut nodes = Nodes(vec![child]);
    // Twice: for its log, and for the snapshot of its replica.
    let opening = "EXTEND_TIMEOUT_USEC=600000000\nSTATUS=reads its log and its snapshots\n";
    let mut report = next_report(&socket);
    assert_eq!(report, opening);
    while report == opening {
        report = next_report(&socket);
    }
    assert_eq!(
        report,
        "READY=1\nSTATUS=waits until a majority of the other nodes has accepted it: n1, n2\n"
    );
    let address = &deployment.nodes[0].address;
    std::net::TcpStream::connect(address).expect("a node that is ready listens");
    // The loop proves itself again and again, also after `systemctl reload`.
    let proves_itself = || {
        for _ in 0..3 {
            assert_eq!(next(&socket), "WATCHDOG=1\n");
        }
    };
    proves_itself();
    let unit = fs::read_to_string(UNIT).unwrap();
    let mut lines = unit.lines();
    let reload = lines.find_map(|line| line.strip_prefix("ExecReload="));
    let reload = reload.unwrap().replace("$MAINPID", &id.to_string());
    assert_eq!(reload, format!("kill -HUP {id}"));
    let words: Vec<&str> = reload.split(' ').collect();
    let done = Command::new(words[0]).args(&words[1..]).status();
    assert!(done.unwrap().success(), "{reload}");
    proves_itself();
    kill(id, Signal::SIGTERM).unwrap();
    assert_eq!(
        next_report(&socket),
        "STOPPING=1\nSTATUS=drains, then stops: SIGTERM\n"
    );
    let status = eventually("the node stops", || nodes.0[0].try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

/// A copy of the unit that runs the program under test, without the pages that only a package
/// installs.
fn unit(directory: &Directory) -> PathBuf {
    let unit = fs::read_to_string(UNIT).unwrap();
    let unit = unit.replace("/usr/bin/ionian", env!("CARGO_BIN_EXE_ionian"));
    let lines = unit
        .lines()
        .filter(|line| !line.starts_with("Documentation="));
    let path = directory.path("ionian@.service");
    fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path
}

#[test]
fn the_unit_is_sound_and_its_exposure_is_at_most_1_5() {
    let directory = Directory::new();
    let unit = unit(&directory);
    for arguments in [
        &["verify"][..],
        &["security", "--offline=yes", "--threshold=15"],
    ] {
        let command = Command::new("systemd-analyze")
            .args(arguments)
            .arg(&unit)
            .output();
        let Ok(output) = command else {
            eprintln!("not checked: systemd-analyze is not installed");
            return;
        };
        let (printed, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {printed}{error}");
        assert!(!error.contains("ionian@"), "{arguments:?}: {error}");
    }
}
