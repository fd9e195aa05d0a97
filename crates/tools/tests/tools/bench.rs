//! `ionian bench` on a cluster of its own. Nothing is said of how fast it must be.

use crate::common::{Directory, eventually, text};
use crate::{run, tools};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

/// Runs a short round on a cluster of its own, which leaves nothing behind; returns the document.
fn bench(flags: &[&str]) -> Value {
    let directory = Directory::new();
    let data = directory.path("data");
    fs::create_dir_all(&data).unwrap();
    let short = [
        "bench",
        "--seconds",
        "0.5",
        "--warm-up",
        "0.1",
        "--rounds",
        "1",
        "--json",
        "-",
    ];
    let attempt = || run(&[&short[..], &["--data", data.to_str().unwrap()], flags].concat());
    let mut output = attempt();
    // A machine that is busy with other things may have nothing answered in half a second.
    for _ in 0..3 {
        if text(&output.stderr).contains("nothing was answered") {
            output = attempt();
        }
    }
    assert!(
        output.status.success(),
        "{flags:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(
        fs::read_dir(&data).unwrap().count(),
        0,
        "the cluster's directory is removed"
    );
    assert!(
        text(&output.stderr).contains("commands/s"),
        "the table goes to standard error"
    );
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// What holds of every round, however slow the machine is.
fn is_sane(side: &Value) {
    let round = &side["rounds"][0];
    let number = |name: &str| {
        round[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {round}"))
    };
    assert!(
        number("answered") > 0.0 && round["errors"].as_object().unwrap().is_empty(),
        "{round}"
    );
    assert!(
        (number("per_second") - number("answered") / 0.5).abs() < 1e-6,
        "{round}"
    );
    let latency: Vec<f64> = ["p50", "p90", "p99", "p999", "max"]
        .map(|name| round["latency_ms"][name].as_f64().unwrap())
        .to_vec();
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    let processes = side["processes"].as_array().unwrap();
    assert_eq!(
        round["processor_us"].as_array().unwrap().len(),
        processes.len()
    );
    assert!(number("servers_us") >= 0.0);
}

#[test]
fn a_closed_loop_says_how_fast_it_was_and_where() {
    let found = bench(&[
        "--clients",
        "4",
        "--reads",
        "50",
        "--level",
        "sequential",
        "--skew",
        "point:0.5",
    ]);
    assert_eq!(found["asked"]["clients"], 4);
    assert_eq!(found["asked"]["skew"]["point"], 0.5);
    assert!(found["machine"]["processors"].as_u64().unwrap() >= 1);
    assert!(
        found["command"]
            .as_str()
            .unwrap()
            .contains("--skew point:0.5")
    );
    let side = &found["sides"][0];
    assert_eq!(side["name"], "colocated, durability memory");
    assert_eq!(side["processes"].as_array().unwrap(), &["n0", "n1", "n2"]);
    is_sane(side);
    let round = &side["rounds"][0];
    assert_eq!(round["nothing"], 0, "all keys were written before");
    assert!(round["bench_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_open_loop_begins_what_was_asked_for() {
    let found = bench(&[
        "--preset",
        "unreplicated",
        "--rate",
        "100",
        "--pipeline",
        "5",
        "--clients",
        "20",
    ]);
    let side = &found["sides"][0];
    is_sane(side);
    let round = &side["rounds"][0];
    let (answered, unfinished) = (
        round["answered"].as_u64().unwrap(),
        round["unfinished"].as_u64().unwrap(),
    );
    assert!(
        round["bench_us"].as_f64().unwrap() > 0.0,
        "the generator looks at itself at both edges of the window"
    );
    // Whatever was late is counted elsewhere, and nothing is begun that was not due.
    assert!(answered + unfinished <= 60, "{round}");
}

#[test]
fn a_client_lane_is_loaded_from_inside_of_its_node() {
    let found = bench(&[
        "--lanes",
        "--in-flight",
        "8",
        "--reads",
        "50",
        "--durability",
        "disk",
        "--keys",
        "100",
    ]);
    assert_eq!(
        (&found["asked"]["in_flight"], &found["asked"]["clients"]),
        (&8.into(), &Value::Null)
    );
    let side = &found["sides"][0];
    assert_eq!(side["name"], "colocated, durability disk, client lane");
    assert_eq!(
        side["processes"].as_array().unwrap(),
        &["n0, with client", "n1", "n2"]
    );
    is_sane(side);
    let round = &side["rounds"][0];
    assert_eq!(
        (&round["nothing"], &round["bench_us"]),
        (&0.into(), &Value::Null)
    );
}

/// Interrupts a run once it is under way, which `begun` sees in the directory for temporary files:
/// it says so, and nothing of it stays there.
fn interrupt(flags: &[&str], signal: Signal, begun: impl Fn(&Path) -> bool) {
    let directory = Directory::new();
    let data = directory.path("data");
    fs::create_dir_all(&data).unwrap();
    let mut command = tools();
    command
        .arg("bench")
        .args(flags)
        .args(["--seconds", "1000"])
        .env("TMPDIR", &data);
    let bench = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut interrupted = Interrupted(Pid::from_raw(bench.id() as i32), signal);
    eventually("it begins", || {
        let run = fs::read_dir(&data).unwrap().next()?.unwrap();
        begun(&run.path()).then_some(())
    });
    interrupted.now();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("interrupted"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

/// A process that a test ends with a signal. It gets the signal, too, if the test fails.
struct Interrupted(Pid, Signal);

impl Interrupted {
    fn now(&mut self) {
        // It fails if the process has ended.
        let _ = kill(self.0, self.1);
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.now();
        }
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    interrupt(&[], Signal::SIGINT, |_| true);
    let is_connected = |run: &Path| {
        let said = fs::read_to_string(run.join("logs/leader-0.1.log"));
        said.is_ok_and(|said| said.contains("is connected"))
    };
    interrupt(&["role", "leader"], Signal::SIGTERM, is_connected);
}

#[test]
fn error_replies_are_counted_and_no_success() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 512];
        let _ = stream.read(&mut piece);
        let _ = stream.write_all(b"+PONG\r\n");
        // One connection without pipelining: a command a read, of which every other one is refused.
        for turn in 0_u64.. {
            let reply = if turn % 2 == 0 {
                &b"+OK\r\n"[..]
            } else {
                b"-OOM no memory\r\n"
            };
            if stream.read(&mut piece).unwrap_or(0) == 0 || stream.write_all(reply).is_err() {
                return;
            }
        }
    });
    let flags = [
        "--target",
        &target,
        "--yes",
        "--clients",
        "1",
        "--warm-up",
        "0",
        "--seconds",
        "0.2",
        "--rounds",
        "1",
    ];
    let output = run(&[&["bench"][..], &flags].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("error replies"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).contains("which count for nothing: OOM "),
        "{}",
        text(&output.stdout)
    );
}

/// A server that answers the first bytes of each connection with these.
fn server_that_answers(says: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(says.as_bytes());
        }
    });
    target
}

/// A server that answers PING and then DBSIZE.
fn holder_of_seven_keys() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            for reply in ["+PONG\r\n", ":7\r\n"] {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(reply.as_bytes());
            }
        }
    });
    target
}

#[test]
fn what_cannot_be_measured_is_told_in_a_line() {
    let unused = format!(
        "redis://{}",
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    );
    let web = server_that_answers("HTTP/1.1 400 Bad Request\r\n");
    // It says what PING is answered with, and no more.
    let silent = server_that_answers("+PONG\r\n");
    let full = holder_of_seven_keys();
    for (code, flags, says) in [
        (
            1,
            &["--target", &unused][..],
            "cannot connect to redis://127.0.0.1:",
        ),
        (1, &["--target", &web], "does not speak the Redis protocol"),
        (
            1,
            &["--target", &silent, "--yes", "--warm-up", "0"],
            "in the middle of the run",
        ),
        (
            1,
            &["--target", &web, "--pid", "server=4294967295"],
            "server (process 4294967295) does not run",
        ),
        (
            2,
            &["--target", &full],
            "holds 7 keys, and the load writes and overwrites some: say --yes",
        ),
        (
            2,
            &["--target", "127.0.0.1:6379"],
            "must be redis://HOST:PORT",
        ),
        (
            2,
            &["--target", &web, "--preset", "colocated"],
            "cannot be used with",
        ),
        (2, &["--level", "eventual"], "say --reads PERCENT"),
        (2, &["--preset", "none"], "available: colocated"),
        (
            2,
            &["--lanes", "--in-flight", "100000"],
            "--set options.in_flight=N",
        ),
        (2, &["--skew", "zipf"], "must be uniform, zipfian"),
    ] {
        let output = run(&[&["bench"], flags].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {error}");
        assert!(error.contains(says), "{flags:?}: {error}");
    }
}

/// Measures a role, as short as can be; returns the demands.
pub(crate) fn role(flags: &[&str]) -> Vec<Value> {
    let short = [
        "--rounds",
        "1",
        "--seconds",
        "0.2",
        "--warm-up",
        "0.1",
        "--share",
        "1",
        "--in-flight",
        "512",
        "--keys",
        "100",
        "--json",
        "-",
    ];
    let output = run(&[&["bench", "role"][..], flags, &short].concat());
    assert!(
        output.status.success(),
        "{flags:?}: {}",
        text(&output.stderr)
    );
    let found: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert!(
        found["machine"].as_str().unwrap().contains("processors"),
        "{found}"
    );
    let demands = found["demands"].as_array().unwrap().clone();
    for demand in &demands {
        for number in ["commands_per_second", "demand_us", "modelled_us"] {
            assert!(demand[number].as_f64().unwrap() > 0.0, "{demand}");
        }
    }
    demands
}

#[test]
fn a_role_is_measured_in_a_process_and_in_a_model_of_it() {
    // What comes in and goes out for a command is the paper's figure 4: a column of two acceptors,
    // four replicas, ten proxy leaders. Answers share messages, as many as come together.
    for (name, into, out) in [
        ("leader", 1.0..3.0, 0.9..1.2),
        ("proxy_leader", 0.27..0.36, 0.55..0.75),
    ] {
        let [demand] = &role(&[name, "--set", "options.batch_commands=1"])[..] else {
            panic!("one measurement")
        };
        let number = |name: &str| demand[name].as_f64().unwrap();
        // Messages and commands are counted in two processes, which do not look at one instant: the
        // commands in flight may be on one side alone at either end.
        let commands = number("commands_per_second") * 0.2;
        let slack = 2.0 * 512.0 / commands;
        for (name, expected) in [("messages_in", into), ("messages_out", out)] {
            let least = expected.start * (1.0 - slack);
            let most = expected.end * (1.0 + slack);
            assert!((least..most).contains(&number(name)), "{name}: {demand}");
        }
        assert_eq!(demand["deployment"], "compartmentalized", "{demand}");
    }
}

#[test]
fn reads_batches_and_machines_can_be_chosen() {
    let [reads] = &role(&["read_batcher", "--reads", "100", "--batch", "20"])[..] else {
        panic!("one measurement")
    };
    let of = |name: &str| reads[name].as_str().unwrap().to_owned();
    assert_eq!(of("role"), "batcher+read_batcher");
    assert_eq!(of("deployment"), "batched");
    assert_eq!(
        (&reads["batch"], &reads["read_fraction"]),
        (&20.into(), &1.0.into())
    );
    let [nothing] = &role(&["replica", "--machine", "nothing"])[..] else {
        panic!("one measurement")
    };
    assert_eq!(nothing["machine"], "nothing");
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn every_role_of_a_preset_of_each_protocol_can_be_measured() {
    for (preset, roles) in [
        ("mencius", &["node"][..]),
        ("mencius-wan", &["node"]),
        (
            "spaxos-compartmentalized",
            &[
                "disseminator",
                "leader",
                "proxy_leader",
                "acceptor",
                "stabilizer",
                "replica",
            ],
        ),
        ("unreplicated-batched", &["batcher", "server", "unbatcher"]),
    ] {
        let found = role(&["all", "--preset", preset]);
        let names: Vec<&str> = found
            .iter()
            .map(|demand| demand["role"].as_str().unwrap())
            .collect();
        assert_eq!(names, roles, "{preset}");
    }
}

/// One of those that rest on what roles spend, and the one that compares it with a process. A test
/// of the library draws all of them.
#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn figures_are_measured_and_drawn() {
    let directory = Directory::new();
    let out = directory.path("figures");
    let folder = out.to_str().unwrap();
    for figure in ["28a", "live"] {
        let output = run(&["bench", "figure", figure, "--quick", "--out", folder]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for kind in ["svg", "csv", "md"] {
            let path = out.join(format!("{figure}.{kind}"));
            assert!(
                fs::metadata(&path).is_ok_and(|file| file.len() > 100),
                "{} is missing",
                path.display()
            );
        }
    }
}

#[test]
fn roles_that_are_none_are_bad_usage() {
    for (flags, says) in [
        (
            &["role", "king"][..],
            "must be node, leader, proxy_leader, acceptor",
        ),
        (
            &["role", "leader", "--preset", "colocated"],
            "role \"leader\" of the preset colocated: must be node, or all",
        ),
        (
            &["role", "leader", "--preset", "none"],
            "--preset none: must be one of colocated",
        ),
        (
            &["role", "leader", "--seconds", "0"],
            "must be 0.01 to 3600",
        ),
        (&["role", "leader", "--share", "2"], "must be 0.01 to 1"),
        (&["role", "leader", "--machine", "sqlite"], "kv, nothing"),
        (&["figure", "37"], "possible values"),
        (
            &[
                "role",
                "replica",
                "--batch",
                "100",
                "--value-bytes",
                "1000000",
            ],
            "a batch must be at most",
        ),
        (
            &["role", "replica", "--value-bytes", "1000000"],
            "--keys 10000 of --value-bytes 1000000",
        ),
        (&["role", "leader", "--in-flight", "60000"], "512..=48000"),
    ] {
        let output = run(&[&["bench"][..], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(
            text(&output.stderr).contains(says),
            "{flags:?}: {}",
            text(&output.stderr)
        );
    }
}
