//! OBJECT and MEMORY USAGE, besides the answers that Redis has too.

use crate::{NOW, command, pipeline, run, shown};
use ionian_kernel::guard::LogCommand;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Compound, Kv, Room, command_table};

/// What all keys take, by a measurement.
fn used(kv: &mut Kv) -> u64 {
    let mut reply = Vec::new();
    kv.apply(
        Timestamp(NOW),
        &Compound::SetLimit(1 << 40).encode(),
        &mut reply,
    );
    reply.clear();
    kv.apply(Timestamp(NOW), &Compound::Measure.encode(), &mut reply);
    Room::of_reply(&reply.into()).expect("a room").used
}

#[test]
fn the_usage_of_all_keys_is_what_is_measured() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "set short v");
    run(&mut kv, NOW, &format!("set long {}", "v".repeat(5000)));
    run(&mut kv, NOW, "xadd stream 1-1 field value");
    let mut usage = |key: &str| -> u64 {
        let reply = run(&mut kv, NOW, &format!("memory usage {key} samples 3"));
        let number = reply.trim_matches([':', '|']);
        number.parse().expect("a number")
    };
    let all = usage("short") + usage("long") + usage("stream");
    assert!(usage("long") > 5000 && usage("short") < usage("stream"));
    assert_eq!(all, used(&mut kv));
}

/// Another history, the same value: other than a running Redis, and as one that was restarted.
#[test]
fn an_encoding_does_not_depend_on_how_the_value_came_about() {
    let mut kv = Kv::default();
    for (lines, expected) in [
        (["set k a", "append k b"], "$6|embstr|"),
        (["setrange k 0 12", "setrange k 1 3"], "$3|int|"),
        (["set k 1", "incrbyfloat k 1"], "$3|int|"),
    ] {
        lines.iter().for_each(|line| {
            run(&mut kv, NOW, line);
        });
        assert_eq!(
            run(&mut kv, NOW, "object encoding k"),
            expected,
            "{lines:?}"
        );
        run(&mut kv, NOW, "del k");
    }
}

#[test]
fn a_read_of_a_fact_leaves_the_state_as_it_is() {
    for line in ["object encoding k", "object idletime k", "memory usage k"] {
        assert!(command(line).is_read(), "{line}");
    }
}

#[test]
fn the_level_of_a_command_is_that_of_its_form() {
    let facts = command_table()
        .iter()
        .filter(|info| info.name.contains('|'));
    let lines: Vec<_> = facts
        .map(|info| info.name.replace('|', " ") + " k")
        .collect();
    assert_eq!(lines.len(), 5);
    for line in &lines {
        assert_eq!(command(line).since(), Level(18), "{line}");
    }
    for line in ["get k", "type k", "set k v", "xlen k"] {
        assert_eq!(command(line).since(), Level::FIRST, "{line}");
    }
}

/// A program that supports only the lower level can read none of these commands: what it does not
/// execute when it reads the log again, no other replica may have executed.
#[test]
fn below_their_level_nothing_is_executed_with_them() {
    let at = |kv: &mut Kv, level: u16, compound: &Compound| {
        let mut reply = Vec::new();
        let logged = LogCommand {
            slot: Slot(1),
            session: SessionId(1),
            number: 1,
            payload: &compound.encode(),
            level: Level(level),
        };
        kv.apply_logged(Timestamp(NOW), &logged, &mut reply);
        shown(&reply)
    };
    let refused = "-TRYAGAIN OBJECT and MEMORY USAGE need level 18 of the cluster, which was \
                   lowered, the command was not executed|";
    let lines = ["set k 1", "object encoding k"];
    let transaction = Compound::Transaction {
        watched: Vec::new(),
        commands: lines.iter().map(|line| command(line)).collect(),
    };
    let mut kv = Kv::default();
    assert_eq!(at(&mut kv, 17, &pipeline(&lines)), refused.repeat(2));
    assert_eq!(at(&mut kv, 17, &transaction), refused);
    assert_eq!(at(&mut kv, 17, &pipeline(&["get k"])), "$-1|");
    assert_eq!(at(&mut kv, 18, &transaction), "*2|+OK|$3|int|");
    assert_eq!(
        at(&mut kv, 17, &pipeline(&["set k 2", "get k"])),
        "+OK|$1|2|"
    );
}
