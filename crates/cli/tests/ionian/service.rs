//! A node under a service manager: its notifications, and the unit that comes with the project.

mod calls;

use crate::cluster::{Nodes, deployment, eventually, ionian, stop_all_threads};
use crate::common::{Directory, LIMIT, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sd_notify::NotifyState;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const NODE: &str = "ionian@.service";
pub(crate) const BACKUP: &str = "ionian-backup.service";

/// How often the node under test proves that its loop runs: three times in `WATCHDOG_USEC`.
const PROOF: Duration = Duration::from_millis(50);

/// One of the units that come with the project.
pub(crate) fn unit(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
    fs::read_to_string(Path::new(folder).join(name)).unwrap()
}

/// The value of a key that a unit has once.
pub(crate) fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut values = unit
        .lines()
        .filter_map(|it| it.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(values.next(), None, "{key}");
    value
}

/// The next notification.
fn next(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    loop {
        match socket.recv(&mut buffer) {
            // A signal ends a wait with a limit, as when the process was stopped and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            length => return text(&buffer[..length.expect("a notification in time")]),
        }
    }
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
        .env("WATCHDOG_USEC", (PROOF * 3).as_micros().to_string())
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
    let reload = unit(NODE);
    let reload = value(&reload, "ExecReload").replace("$MAINPID", &id.to_string());
    assert_eq!(reload, format!("kill -HUP {id}"));
    let words: Vec<&str> = reload.split(' ').collect();
    let done = Command::new(words[0]).args(&words[1..]).status();
    assert!(done.unwrap().success(), "{reload}");
    assert!(is_reloading(&next_report(&socket)));
    assert_eq!(next_report(&socket), "READY=1\n");
    proves_itself();
    a_stopped_process_proves_nothing(id, &socket);
    kill(id, Signal::SIGTERM).unwrap();
    assert_eq!(
        next_report(&socket),
        "STOPPING=1\nSTATUS=drains, then stops: SIGTERM\n"
    );
    let status = eventually("the node stops", || nodes.0[0].try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

/// A process that is stopped sends no proof until it goes on.
fn a_stopped_process_proves_nothing(id: Pid, socket: &UnixDatagram) {
    stop_all_threads(id);
    // What it sent before.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 4096]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    // Ten times the interval of proofs, and three times that of the manager.
    socket.set_read_timeout(Some(PROOF * 10)).unwrap();
    let error = socket.recv(&mut [0; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    kill(id, Signal::SIGCONT).unwrap();
    assert_eq!(next(socket), "WATCHDOG=1\n");
}

/// Whether a node says that it reloads, at a time of the clock that the manager has as well.
fn is_reloading(report: &str) -> bool {
    let time = report.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let time = time.and_then(|it| it.trim_end().parse::<i128>().ok());
    let Ok(NotifyState::MonotonicUsec(now)) = NotifyState::monotonic_usec_now() else {
        panic!("no clock");
    };
    time.is_some_and(|it| it > 0 && it <= now)
}

/// A copy of a unit that runs the program under test, without the pages that only a package
/// installs.
fn copy(directory: &Directory, name: &str) -> PathBuf {
    let unit = unit(name).replace("/usr/bin/ionian", env!("CARGO_BIN_EXE_ionian"));
    let lines = unit
        .lines()
        .filter(|line| !line.starts_with("Documentation="));
    let path = directory.path(name);
    fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path
}

/// Runs systemd-analyze; returns whether it is installed.
fn analyze(arguments: &[&str], unit: &Path) -> bool {
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.args(arguments).arg(unit).output() else {
        eprintln!("not checked: systemd-analyze is not installed");
        return false;
    };
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {printed}{error}");
    assert!(!error.contains("ionian"), "{arguments:?}: {error}");
    true
}

#[test]
fn the_units_are_sound_and_their_exposure_is_at_most_1_5() {
    let directory = Directory::new();
    for name in [NODE, BACKUP] {
        let unit = copy(&directory, name);
        let security = ["security", "--offline=yes", "--threshold=15"];
        let _ = analyze(&["verify"], &unit) && analyze(&security, &unit);
    }
    analyze(&["verify"], &copy(&directory, "ionian-backup.timer"));
}
