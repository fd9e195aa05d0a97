//! `ionian log`: shows the commands of a slot, and makes every node skip one.

use crate::cluster::{Cluster, run, text};
use crate::resp::Reply;
use nix::sys::signal::Signal;

/// Runs a command; returns its exit code and its output.
fn outcome(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// The name of the command that contains `word`, among those that `ionian log show` finds in the
/// first slots.
fn name_of(word: &str, data: &str) -> String {
    for slot in 0..200 {
        let (code, said) = outcome(&["log", "show", &slot.to_string(), "--data", data]);
        let found = said
            .lines()
            .find(|line| code == Some(0) && line.contains(word));
        if let Some(line) = found {
            return line.split_whitespace().next().unwrap().to_owned();
        }
    }
    panic!("no slot holds {word}")
}

#[test]
fn a_skipped_command_was_never_executed() {
    let mut cluster = Cluster::start("colocated", &["durability=disk"], &[]);
    let data = cluster.data();
    let mut client = cluster.client(0);
    for words in [
        ["SET", "kept", "1"],
        ["SET", "poison", "2"],
        ["SET", "later", "3"],
    ] {
        assert_eq!(client.call(&words).unwrap(), Reply::Status("OK".into()));
    }
    let (code, said) = outcome(&["log", "skip", "7/1:1/00000000000000ab", "--data", &data]);
    assert!(
        code == Some(1) && said.contains("is in use by another process"),
        "{said}"
    );
    drop(client);
    cluster.stop(Signal::SIGTERM);

    let name = name_of("poison", &data);
    let (code, said) = outcome(&["log", "skip", "nonsense", "--data", &data]);
    assert!(
        code == Some(2) && said.contains("SLOT/SESSION:NUMBER/DIGEST"),
        "{said}"
    );
    let (code, said) = outcome(&["log", "skip", &name, "--data", &data]);
    assert_eq!(
        (code, said.matches("is skipped").count()),
        (Some(0), 3),
        "{said}"
    );
    let (code, said) = outcome(&["log", "show", "--data", &data]);
    let line = format!("the state machine has not panicked; skipped: {name}");
    assert_eq!((code, said.matches(&line).count()), (Some(0), 3), "{said}");

    cluster.start_again(&[]);
    let mut client = cluster.client(1);
    for (key, value) in [("kept", Some("1")), ("poison", None), ("later", Some("3"))] {
        assert_eq!(
            client.call(&["GET", key]).unwrap(),
            Reply::Bulk(value.map(str::to_owned)),
            "{key}"
        );
    }
}
