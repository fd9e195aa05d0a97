//! The limit of memory: what is refused, when, and what every replica knows of it.

use crate::{NOW, apply, command, pipeline, run, snapshot};
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Compound, Kv, Room};

const REFUSED: &str = "-OOM command not allowed when used memory > 'maxmemory'.|";

fn room(kv: &Kv) -> Room {
    let mut reply = Vec::new();
    let question = Compound::Room.encode();
    kv.read(Timestamp(NOW), &question, &mut reply)
        .expect("a read");
    Room::of_reply(&reply.into()).expect("a room")
}

fn measure(kv: &mut Kv, now: u64) -> u64 {
    apply(kv, now, &Compound::Measure);
    room(kv).used
}

/// A machine with one long value, and a limit below it.
fn full() -> Kv {
    let mut kv = Kv::default();
    run(&mut kv, NOW, &format!("set long {}", "v".repeat(5000)));
    assert_eq!(apply(&mut kv, NOW, &Compound::SetLimit(4096)), "+OK|");
    kv
}

#[test]
fn what_needs_memory_is_refused_and_the_rest_is_not() {
    let mut kv = full();
    for line in [
        "set k v",
        "setnx k v",
        "mset k v",
        "msetnx k v",
        "incr k",
        "incrbyfloat k 1",
        "append k v",
        "setrange k 1 v",
        "copy long k",
        "xadd s * a b",
        "getset k v",
    ] {
        assert_eq!(run(&mut kv, NOW, line), REFUSED, "{line}");
    }
    let both = pipeline(&["set k v", "strlen long"]);
    assert_eq!(apply(&mut kv, NOW, &both), format!("{REFUSED}:5000|"));
    let transaction = |lines: &[&str]| Compound::Transaction {
        watched: Vec::new(),
        commands: lines.iter().map(|line| command(line)).collect(),
    };
    let aborted = REFUSED.replace("-OOM", "-EXECABORT Transaction discarded because of: OOM");
    assert_eq!(
        apply(&mut kv, NOW, &transaction(&["del long", "set k v"])),
        aborted
    );
    assert_eq!(
        apply(&mut kv, NOW, &transaction(&["strlen long"])),
        "*1|:5000|"
    );
    assert_eq!(run(&mut kv, NOW, "pexpire long 5"), ":1|");
    assert_eq!(run(&mut kv, NOW, "rename long other"), "+OK|");
    assert_eq!(run(&mut kv, NOW, "del other"), ":1|");
    // What is compared is what was measured.
    assert_eq!(run(&mut kv, NOW, "set k v"), REFUSED);
    assert_eq!(measure(&mut kv, NOW), 0);
    assert_eq!(run(&mut kv, NOW, "set k v"), "+OK|");
}

#[test]
fn the_limit_is_changed_and_removed() {
    let mut kv = full();
    assert_eq!(run(&mut kv, NOW, "set k v"), REFUSED);
    apply(&mut kv, NOW, &Compound::SetLimit(1 << 20));
    assert_eq!(run(&mut kv, NOW, "set k v"), "+OK|");
    apply(&mut kv, NOW, &Compound::SetLimit(1));
    assert_eq!(run(&mut kv, NOW, "set k v"), REFUSED);
    apply(&mut kv, NOW, &Compound::SetLimit(0));
    assert_eq!(run(&mut kv, NOW, "set k v"), "+OK|");
    assert_eq!(room(&kv).limit, 0);
}

/// What has expired takes no room, whether it was removed already or not.
#[test]
fn expired_keys_are_not_counted() {
    let mut kv = Kv::default();
    apply(&mut kv, NOW, &Compound::SetLimit(1));
    let empty = measure(&mut kv, NOW);
    apply(&mut kv, NOW, &Compound::SetLimit(1 << 30));
    for number in 0..500 {
        run(
            &mut kv,
            NOW,
            &format!("set k{number} {} px 10", "v".repeat(100)),
        );
    }
    run(&mut kv, NOW, "xadd stream * field value");
    run(&mut kv, NOW, "pexpire stream 10");
    assert!(measure(&mut kv, NOW + 9) > 50_000);
    assert_eq!(measure(&mut kv, NOW + 10), empty);
}

#[test]
fn a_restored_replica_knows_the_limit_and_what_was_measured() {
    let kv = full();
    let mut other = Kv::default();
    other.restore(&snapshot(&kv)).expect("a snapshot");
    assert_eq!(room(&other), room(&kv));
    assert_eq!(snapshot(&other), snapshot(&kv));
    assert_eq!(run(&mut other, NOW, "set k v"), REFUSED);
    // Without a limit the form is that of programs that know none.
    let mut plain = Kv::default();
    run(&mut plain, NOW, "set k v");
    let before = snapshot(&plain);
    apply(&mut plain, NOW, &Compound::SetLimit(7));
    assert_ne!(snapshot(&plain), before);
    apply(&mut plain, NOW, &Compound::SetLimit(0));
    assert_eq!(snapshot(&plain), before);
}

/// No command may overtake a measurement: workers that execute at the same time would differ.
#[test]
fn a_measurement_conflicts_with_everything() {
    for compound in [Compound::Measure, Compound::SetLimit(1), Compound::Room] {
        let mut footprint = Footprint::default();
        Kv::default().footprint(&compound.encode(), &mut footprint);
        assert!(footprint.everything, "{compound:?}");
    }
}
