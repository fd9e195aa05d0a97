//! What the machine answers, and what plays may ask of it.

use super::*;
use proptest::prelude::*;

fn ask(machine: &mut SimMachine, lists: &mut Lists, text: &str) -> String {
    ask_at(0, machine, lists, text)
}

fn ask_at(ms: u64, machine: &mut SimMachine, lists: &mut Lists, text: &str) -> String {
    let call = lists.parse(text).unwrap();
    let mut reply = Vec::new();
    match call.operation {
        Operation::Write | Operation::Change => {
            machine.apply(Timestamp(ms), &call.payload, &mut reply)
        }
        Operation::Read(_) => machine
            .read(Timestamp(ms), &call.payload, &mut reply)
            .unwrap(),
    }
    lists.interpret(&call.action, &reply).unwrap().to_string()
}

#[test]
fn commands_do_what_they_say() {
    let (mut machine, mut lists) = (SimMachine::default(), Lists::new(2));
    let script = [
        ("get x", "nothing"),
        ("append x 7", "length 1"),
        ("append x 8", "length 2"),
        ("read x", "[7, 8]"),
        ("cas x 7 9", "false"),
        ("cas x 8 9", "true"),
        ("get x", "[9]"),
        ("set y 1", "ok"),
        ("delete x", "true"),
        ("delete x", "false"),
        ("read y", "[1]"),
        ("read-both x y", "nothing and [1]"),
    ];
    for (command, answer) in script {
        assert_eq!(ask(&mut machine, &mut lists, command), answer, "{command}");
    }
}

#[test]
fn lists_go_when_their_time_has_come_and_not_before() {
    let (mut machine, mut lists) = (SimMachine::default(), Lists::new(2));
    let script = [
        (100, "set x 7 for 20ms", "ok", Some(120)),
        (110, "append x 8", "length 2", Some(120)),
        (119, "read x", "[7, 8]", Some(120)),
        (120, "read x", "nothing", None),
        (120, "append x 9", "length 1", None),
        (130, "set y 1 for 5ms", "ok", Some(135)),
        (131, "set x 2 for 50ms", "ok", Some(135)),
        (135, "cas y 1 3", "false", Some(181)),
        (140, "set x 4", "ok", None),
        (999, "get x", "[4]", None),
    ];
    for (ms, command, answer, deadline) in script {
        assert_eq!(
            ask_at(ms, &mut machine, &mut lists, command),
            answer,
            "{command} at {ms}"
        );
        assert_eq!(
            machine.next_deadline(Timestamp(ms)),
            deadline.map(Timestamp),
            "after {command}"
        );
    }
}

#[test]
fn writes_are_no_reads_and_bad_lines_are_explained() {
    let mut lists = Lists::new(1);
    let call = lists.parse("set x 1").unwrap();
    assert_eq!(
        SimMachine::default().read(Timestamp(0), &call.payload, &mut Vec::new()),
        Err(NotARead)
    );
    assert!(lists.parse("set x").unwrap_err().contains("known are"));
    assert!(
        lists
            .parse("set xx 1")
            .unwrap_err()
            .contains("letters a to z")
    );
    assert!(lists.parse("set x y").unwrap_err().contains("not a number"));
}

proptest! {
    #[test]
    fn any_bytes_are_answered_and_snapshots_hold_all(commands in prop::collection::vec(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (0..3u64, 0..9u64).prop_map(|(key, token)| encode_all(&Command { id: token, key, deed: Deed::Append { token } })),
            (0..3u64, 0..9u64).prop_map(|(key, ms)| encode_all(&Command { id: ms, key, deed: Deed::SetFor { value: 1, ms } })),
        ], 0..30)) {
        let mut machine = SimMachine::default();
        for command in &commands {
            let mut reply = Vec::new();
            machine.apply(Timestamp(0), command, &mut reply);
            prop_assert!(decode_all::<Answer>(&Bytes::from(reply)).is_ok());
        }
        let (mut picture, mut again, mut other) = (Vec::new(), Vec::new(), SimMachine::default());
        machine.snapshot(&mut picture);
        other.restore(&picture).unwrap();
        other.snapshot(&mut again);
        prop_assert_eq!(picture, again);
        prop_assert_eq!(machine, other);
    }
}
