//! `ionian bench` on a cluster of its own. Nothing is said of how fast it must be.

use crate::cluster::{Directory, eventually, ionian, run, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

/// Runs a short round on a cluster of its own, which leaves nothing behind; returns the document.
fn bench(flags: &[&str]) -> Value {
    let directory = Directory::new();
    let data = directory.path("data");
    fs::create_dir_all(&data).unwrap();
    let short = ["bench", "--seconds", "0.5", "--warm-up", "0.1", "--rounds", "1", "--json", "-"];
    let attempt = || run(&[&short[..], &["--data", data.to_str().unwrap()], flags].concat());
    let mut output = attempt();
    // A machine that is busy with other things may have nothing answered in half a second.
    for _ in 0..3 {
        if text(&output.stderr).contains("nothing was answered") {
            output = attempt();
        }
    }
    assert!(output.status.success(), "{flags:?}: {}", text(&output.stderr));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "the cluster's directory is removed");
    assert!(text(&output.stderr).contains("commands/s"), "the table goes to standard error");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// What holds of every round, however slow the machine is.
fn is_sane(side: &Value) {
    let round = &side["rounds"][0];
    let number = |name: &str| round[name].as_f64().unwrap_or_else(|| panic!("{name}: {round}"));
    assert!(number("answered") > 0.0 && round["errors"].as_object().unwrap().is_empty(), "{round}");
    assert!((number("per_second") - number("answered") / 0.5).abs() < 1e-6, "{round}");
    let latency: Vec<f64> =
        ["p50", "p90", "p99", "p999", "max"].map(|name| round["latency_ms"][name].as_f64().unwrap()).to_vec();
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    let processes = side["processes"].as_array().unwrap();
    assert_eq!(round["processor_us"].as_array().unwrap().len(), processes.len());
    assert!(number("servers_us") >= 0.0);
}

#[test]
fn a_closed_loop_says_how_fast_it_was_and_where() {
    let found = bench(&["--clients", "4", "--reads", "50", "--level", "sequential", "--skew", "point:0.5"]);
    assert_eq!(found["asked"]["clients"], 4);
    assert_eq!(found["asked"]["skew"]["point"], 0.5);
    assert!(found["machine"]["processors"].as_u64().unwrap() >= 1);
    assert!(found["command"].as_str().unwrap().contains("--skew point:0.5"));
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
    let found = bench(&["--preset", "unreplicated", "--rate", "100", "--pipeline", "5", "--clients", "20"]);
    let side = &found["sides"][0];
    is_sane(side);
    let round = &side["rounds"][0];
    let (answered, unfinished) = (round["answered"].as_u64().unwrap(), round["unfinished"].as_u64().unwrap());
    assert!(round["bench_us"].as_f64().unwrap() > 0.0, "the generator looks at itself at both edges of the window");
    // Whatever was late is counted elsewhere, and nothing is begun that was not due.
    assert!(answered + unfinished <= 60, "{round}");
}

#[test]
fn a_client_lane_is_loaded_from_inside_of_its_node() {
    let found = bench(&["--lanes", "--in-flight", "8", "--reads", "50", "--durability", "disk", "--keys", "100"]);
    assert_eq!((&found["asked"]["in_flight"], &found["asked"]["clients"]), (&8.into(), &Value::Null));
    let side = &found["sides"][0];
    assert_eq!(side["name"], "colocated, durability disk, client lane");
    assert_eq!(side["processes"].as_array().unwrap(), &["n0, with client", "n1", "n2"]);
    is_sane(side);
    let round = &side["rounds"][0];
    assert_eq!((&round["nothing"], &round["bench_us"]), (&0.into(), &Value::Null));
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let directory = Directory::new();
    let data = directory.path("data");
    fs::create_dir_all(&data).unwrap();
    let mut command = ionian();
    command.args(["bench", "--seconds", "1000", "--data", data.to_str().unwrap()]);
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it begins", || fs::read_dir(&data).unwrap().next().map(drop));
    kill(Pid::from_raw(bench.id() as i32), Signal::SIGINT).unwrap();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
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
            let reply = if turn % 2 == 0 { &b"+OK\r\n"[..] } else { b"-OOM no memory\r\n" };
            if stream.read(&mut piece).unwrap_or(0) == 0 || stream.write_all(reply).is_err() {
                return;
            }
        }
    });
    let flags = ["--target", &target, "--clients", "1", "--warm-up", "0", "--seconds", "0.2", "--rounds", "1"];
    let output = run(&[&["bench"][..], &flags].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error replies"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("which count for nothing: OOM "), "{}", text(&output.stdout));
}

/// Somebody who says these bytes to whoever connects.
fn somebody(says: &'static str) -> String {
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

#[test]
fn what_cannot_be_measured_is_told_in_a_line() {
    let nobody = format!("redis://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let web = somebody("HTTP/1.1 400 Bad Request\r\n");
    // It says what PING is answered with, and no more.
    let silent = somebody("+PONG\r\n");
    for (code, flags, says) in [
        (1, &["--target", &nobody][..], "cannot connect to redis://127.0.0.1:"),
        (1, &["--target", &web], "does not speak the Redis protocol"),
        (1, &["--target", &silent, "--warm-up", "0"], "in the middle of the run"),
        (1, &["--target", &web, "--pid", "server=4294967295"], "server (process 4294967295) does not run"),
        (2, &["--target", "127.0.0.1:6379"], "must be redis://HOST:PORT"),
        (2, &["--target", &web, "--preset", "colocated"], "cannot be used with"),
        (2, &["--level", "eventual"], "say --reads PERCENT"),
        (2, &["--preset", "none"], "there are colocated"),
        (2, &["--lanes", "--in-flight", "100000"], "--set options.in_flight=N"),
        (2, &["--skew", "zipf"], "must be uniform, zipfian"),
    ] {
        let output = run(&[&["bench"], flags].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {error}");
        assert!(error.contains(says), "{flags:?}: {error}");
    }
}
