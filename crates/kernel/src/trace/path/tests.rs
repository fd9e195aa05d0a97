//! Paths of commands through two roles on two nodes.

use super::*;
use crate::id::{ClientId, Slot};
use alloc::borrow::ToOwned;
use alloc::vec;

const fn command(number: u64) -> CommandId {
    CommandId {
        client: ClientId(1),
        sessionless: false,
        number,
    }
}

/// The slot of the commands.
const SLOT: LogSlot = LogSlot {
    log: 0,
    slot: Slot(9),
};

/// A lane of node a.
const LANE: (&str, &str) = ("a", "lane");
/// A server of node b.
const SERVER: (&str, &str) = ("b", "server");
/// A disk of node b.
const DISK: (&str, &str) = ("b", "disk");

fn seen((node, role): (&str, &str), at: u64, sent: bool, message: &str, about: u64) -> Seen {
    let is_slot = message.contains("Slot");
    Seen {
        place: Place {
            node: node.to_owned(),
            role: role.to_owned(),
            index: 0,
        },
        at: Instant(at),
        sent: sent.then(|| vec![0]),
        message: message.to_owned(),
        stage: message.to_lowercase(),
        slot: is_slot.then_some(SLOT),
        commands: (message != "Slot").then(|| Run {
            first: command(about),
            count: 2,
        }),
    }
}

/// Command 4 and 5 go from the lane to the server, in slot 9 to the disk and back, and to the lane.
fn events() -> Vec<Seen> {
    vec![
        seen(LANE, 10, true, "Ask", 4),
        seen(LANE, 90, false, "Answer", 4),
        seen(SERVER, 20, false, "Ask", 4),
        seen(SERVER, 25, true, "SlotValue", 4),
        seen(DISK, 30, false, "SlotValue", 4),
        seen(DISK, 60, true, "Slot", 0),
        seen(SERVER, 61, false, "Slot", 0),
        seen(SERVER, 70, true, "Answer", 4),
        // Of another command.
        seen(SERVER, 71, true, "Answer", 6),
    ]
}

fn stages(path: &Path) -> Vec<(&str, u64)> {
    let name = |it: &Step| it.ended.0 - it.began.0;
    let steps = path.steps.iter();
    steps.map(|it| (it.stage.as_str(), name(it))).collect()
}

#[test]
fn a_path_joins_slots_and_commands_of_all_nodes() {
    let path = Path::of(command(5), &events());
    assert_eq!(path.slot, Some(SLOT));
    assert!(path.is_connected());
    let parents: Vec<_> = path
        .spans
        .iter()
        .map(|it| (&*it.stage, it.parent))
        .collect();
    let expected = [
        (SUBMIT, None),
        ("ask", Some(0)),
        ("slotvalue", Some(1)),
        ("slot", Some(2)),
        ("answer", Some(3)),
    ];
    assert_eq!(parents, expected);
    let expected = [
        (SUBMIT, 0),
        ("ask", 10),
        ("ask", 5),
        ("slotvalue", 5),
        ("slotvalue", 30),
        ("slot", 1),
        ("slot", 9),
        ("answer", 20),
    ];
    assert_eq!(stages(&path), expected);
}

#[test]
fn a_path_with_a_missing_send_is_not_connected_and_has_no_steps() {
    let all = events();
    let sent_for_it = |event: &Seen| {
        event.sent.is_some() && event.commands.is_none_or(|run| run.first.number != 6)
    };
    for missing in (0..all.len()).filter(|it| sent_for_it(&all[*it])) {
        let mut events = all.clone();
        events.remove(missing);
        let path = Path::of(command(4), &events);
        assert!(!path.is_connected(), "without {missing}: {path:#?}");
        assert_eq!(path.steps, [], "without {missing}");
    }
    assert_eq!(Path::of(command(8), &all), Path::default());
}

#[test]
fn clocks_that_differ_do_not_part_a_path() {
    let mut events = events();
    let ahead = events.iter_mut().filter(|event| event.place.node == "b");
    ahead.for_each(|event| event.at.0 += 1000);
    let path = Path::of(command(4), &events);
    assert!(path.is_connected(), "{path:#?}");
}

#[test]
fn a_message_comes_from_a_role_that_has_sent_it_to_the_receiver() {
    let mut events = events();
    // Another server, whose answer is later, and for another lane.
    let mut other = seen(("c", "server"), 80, true, "Answer", 4);
    other.sent = Some(vec![1]);
    events.push(other);
    let path = Path::of(command(4), &events);
    assert_eq!(path.steps.last().map(|step| step.began), Some(Instant(70)));
}

#[test]
fn an_answer_names_the_command() {
    let mut events = events();
    // What the lane asks before the command, and the answer to that.
    let inquiry = Some(LogSlot::of_inquiry(3));
    let about = |event: Seen| Seen {
        slot: inquiry,
        commands: None,
        ..event
    };
    events[0].slot = inquiry;
    let before = [
        about(seen(LANE, 2, true, "Inquire", 0)),
        about(seen(SERVER, 4, false, "Inquire", 0)),
        about(seen(SERVER, 5, true, "Told", 0)),
        about(seen(LANE, 8, false, "Told", 0)),
    ];
    events.splice(0..0, before);
    let path = Path::of(command(4), &events);
    assert!(path.is_connected(), "{path:#?}");
    assert_eq!(path.slot, Some(SLOT));
    let waited = stages(&path);
    let inquired = [
        (SUBMIT, 0),
        ("inquire", 2),
        ("inquire", 1),
        ("told", 3),
        ("told", 2),
    ];
    assert_eq!(waited[..5], inquired, "{path:#?}");
    assert_eq!(waited.last(), Some(&("answer", 20)));
}
