//! Where commands of g_all meet each group.

use super::*;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::{Cover, Picture};

/// m1: one group has other markers than another. m5: what spans waits for all that it touches.
#[test]
fn groups_with_different_markers_meet_commands_of_all_at_the_same_places() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.mark(0, 2);
    logs.write(0, "a=x");
    logs.mark(0, 4);
    logs.mark(1, 3);
    logs.write(1, "b=y");
    logs.mark(1, 4);
    for payload in ["ab=1", "ab=2", "ab=3"] {
        logs.write(all, payload);
    }
    let expected = [
        (0, 0, "1x"),
        (1, 0, "12y"),
        (2, 0, "1,1"),
        (2, 1, "1x2,12"),
        (2, 2, "1x23,12y3"),
    ];
    in_any_order((2, Options::default()), &logs, &expected);
}

/// m2: a new leader of g_all may have proposed less than its predecessor announced.
#[test]
fn a_marker_below_one_before_stops_no_worker() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.mark(0, 3);
    logs.write(0, "a=x");
    logs.mark(0, 2);
    logs.write(0, "a=y");
    logs.mark(1, 3);
    logs.mark(1, 1);
    logs.write(1, "b=x");
    logs.write(all, "ab=1");
    logs.write(all, "ab=2");
    let expected = [
        (0, 0, "12x"),
        (0, 1, "12xy"),
        (1, 0, "12x"),
        (2, 0, "1,1"),
        (2, 1, "12,12"),
    ];
    in_any_order((2, Options::default()), &logs, &expected);
}

#[test]
pub(crate) fn workers_stop_for_what_touches_their_parts_alone() {
    let mut logs = Logs::new(3);
    let all = logs.all();
    logs.mark(2, 2);
    logs.write(2, "c=z");
    logs.write(all, "ab=1");
    let mut replica = a_replica(3);
    for slot in 0..2 {
        (0..3).for_each(|group| drop(replica.tell(logs.chosen(group, slot))));
    }
    replica.tell(logs.chosen(all, 0));
    // Nothing says yet what the slot below the marker touches.
    for slot in [2, 3] {
        assert_eq!(answers(&replica.tell(logs.chosen(2, slot))), []);
    }
    let sent = replica.tell(logs.chosen(all, 1));
    assert_eq!(answers(&sent), expected(&[(2, 0, "z")]), "c goes on");
    // And the others need not wait for it.
    logs.mark(0, 2);
    logs.mark(1, 2);
    assert_eq!(answers(&replica.tell(logs.chosen(0, 2))), []);
    let sent = replica.tell(logs.chosen(1, 2));
    assert_eq!(answers(&sent), expected(&[(3, 0, "1,1")]));
}

/// Some commands of g_all share parts, some share none, one touches all, and markers differ.
#[test]
fn commands_on_some_parts_meet_their_groups_at_the_same_places() {
    let mut logs = Logs::new(3);
    let all = logs.all();
    for payload in ["ab=1", "bc=2", "ac=3", "*=4", "ab=5"] {
        logs.write(all, payload);
    }
    for (group, markers) in [[2, 3, 6], [3, 5, 6], [2, 4, 6]].iter().enumerate() {
        let writes = [["a=u", "a=v"], ["b=u", "b=v"], ["c=u", "c=v"]][group];
        for (number, marker) in markers.iter().enumerate() {
            logs.mark(group, *marker);
            if let Some(payload) = writes.get(number) {
                logs.write(group, payload);
            }
        }
    }
    let expected = [
        (0, 0, "1u"),
        (0, 1, "1uv"),
        (1, 0, "12u"),
        (1, 1, "12u4v"),
        (2, 0, "u"),
        (2, 1, "u23v"),
        (3, 0, "1,1"),
        (3, 1, "12,u2"),
        (3, 2, "1uv3,u23"),
        (3, 3, ""),
        (3, 4, "1uv345,12u4v5"),
    ];
    in_any_order((3, Options::default()), &logs, &expected);
}

/// m17: an acceptor has voted for the marker, so the read must see what was below it.
#[test]
fn a_read_of_a_group_waits_for_what_spans_below_its_markers() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.mark(0, 2);
    logs.mark(1, 2);
    logs.write(all, "ab=1");
    let mut replica = a_replica(2);
    for slot in 0..3 {
        (0..2).for_each(|group| drop(replica.tell(logs.chosen(group, slot))));
    }
    replica.tell(logs.chosen(all, 0));
    let read = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Read,
        number: 7,
        floor: 0,
        payload: Bytes::from("a?"),
    });
    let read = replica::In::Read {
        reads: read,
        executed: Slot(3),
    };
    let sent = replica.tell(within(0, multipaxos::Message::Replica(read)));
    assert_eq!(answers(&sent), []);
    let sent = replica.tell(logs.chosen(all, 1));
    assert_eq!(answers(&sent), expected(&[(0, 7, "1"), (2, 0, "1,1")]));
}

/// Asks for a backup until it is there; `None` while it is not.
fn backup(replica: &mut Stage) -> Option<String> {
    let picture = replica.instance.freeze(replica.now, Cover::Acknowledged(1));
    let Picture::Taken(_, frozen) = picture else {
        return None;
    };
    let mut frozen: Box<dyn Frozen> = frozen;
    let mut bytes = Vec::new();
    while frozen.write_some(&mut bytes) {}
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of the command that the backup has ordered in g_all.
fn mark_of(sent: &Sent) -> u64 {
    let marks = sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::WantBarrier { number },
            ..
        } => Some(*number),
        _ => None,
    });
    marks.last().expect("the mark is asked for")
}

#[test]
pub(crate) fn a_backup_waits_for_a_slot_that_is_missing_below_its_mark() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    let mut replica = a_replica(2);
    logs.messages()
        .into_iter()
        .for_each(|it| drop(replica.tell(it)));
    assert_eq!(backup(&mut replica), None);
    let mark = mark_of(&replica.timer());
    // Slot 1 is touched by all, slot 2 is lost on its way, slot 3 is the mark.
    logs.write(all, "ab=1");
    logs.write(all, "ab=2");
    logs.logs[all].push(marker(mark));
    (0..2).for_each(|group| logs.mark(group, 4));
    for group in 0..2 {
        replica.tell(logs.chosen(group, 2));
    }
    replica.tell(logs.chosen(all, 3));
    assert_eq!(backup(&mut replica), None);
    replica.tell(logs.chosen(all, 1));
    assert_eq!(backup(&mut replica), None, "what slot 2 did is missing");
    replica.tell(logs.chosen(all, 2));
    let state = backup(&mut replica).expect("it is complete");
    assert!(state.ends_with("a12;b12;"), "{state:?}");
}
