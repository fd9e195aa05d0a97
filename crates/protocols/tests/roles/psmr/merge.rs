//! Where commands of g_all meet each group.

use super::*;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::{Cover, Picture};
use ionian_protocols::multipaxos::leader;

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

/// Both workers that the first command touches have stopped for the second one too.
#[test]
fn a_command_waits_for_workers_that_the_one_before_it_does_not_touch() {
    let mut logs = Logs::new(3);
    let all = logs.all();
    for payload in ["ab=1", "bc=2"] {
        logs.write(all, payload);
    }
    for (group, payload) in [(0, "a=u"), (1, "b=u"), (2, "c=v")] {
        if group == 2 {
            logs.write(group, "c=u");
        }
        logs.mark(group, 3);
        logs.write(group, payload);
    }
    let expected = [
        (0, 0, "1u"),
        (1, 0, "12u"),
        (2, 0, "u"),
        (2, 1, "u2v"),
        (3, 0, "1,1"),
        (3, 1, "12,u2"),
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
    frozen(replica, Cover::Acknowledged(1))
}

fn frozen(replica: &mut Stage, cover: Cover) -> Option<String> {
    let picture = replica.instance.freeze(replica.now, cover);
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
    *marks(sent).last().expect("the mark is asked for")
}

fn marks(sent: &Sent) -> Vec<u64> {
    let marks = sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::WantBarrier { number },
            ..
        } => Some(*number),
        _ => None,
    });
    marks.collect()
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

/// Leaders may have failed, so that nothing is ordered any more.
#[test]
fn a_backup_of_what_is_executed_needs_no_command() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.mark(0, 2);
    logs.write(0, "a=x");
    logs.mark(1, 2);
    logs.write(all, "ab=1");
    let mut replica = a_replica(2);
    logs.messages()
        .into_iter()
        .for_each(|it| drop(replica.tell(it)));
    let executed = replica
        .instance
        .status()
        .executed
        .expect("a replica says it")
        .0;
    assert_eq!(frozen(&mut replica, Cover::Below(executed + 1)), None);
    let state = frozen(&mut replica, Cover::Below(executed)).expect("it is at hand");
    assert!(state.ends_with("a1x;b1;"), "{state:?}");
    assert_eq!(marks(&replica.timer()), Vec::<u64>::new());
    // And the workers go on.
    logs.write(1, "b=y");
    let sent = replica.tell(logs.chosen(1, 3));
    assert_eq!(answers(&sent), expected(&[(1, 0, "1y")]));
}

/// The slots of g_all that a replica asks leaders for.
fn asked_of_leaders(sent: &Sent, all: usize) -> Vec<u64> {
    let mut asked = Vec::new();
    for (group, message) in in_groups(sent) {
        if let multipaxos::Message::Leader(leader::In::Recover { slots }) = message
            && usize::from(group) == all
        {
            asked.extend(slots.iter().map(|slot| slot.0));
        }
    }
    asked
}

/// m3: what a marker announces was perhaps never proposed, so no other message tells of it.
/// The log on disk has the commands of all groups: together they call for a snapshot. (The session
/// is unknown, so the machine executes none of them.)
#[test]
fn the_bytes_of_all_groups_together_call_for_a_snapshot() {
    const EACH: usize = 8 << 20;
    let payload: &'static str = Box::leak("x".repeat(EACH).into_boxed_str());
    for (groups, slots, is_due) in [(3, 3, true), (3, 2, false), (1, 8, true), (1, 7, false)] {
        let mut replica = a_replica(3);
        for group in 0..groups {
            for slot in 0..slots {
                let value = value(Purpose::Execute(SessionId(77)), slot, payload);
                let (slot, replier) = (Slot(slot), ReplicaId(0));
                let message = replica::In::Chosen {
                    slot,
                    value,
                    replier,
                };
                replica.tell(within(group, multipaxos::Message::Replica(message)));
            }
        }
        let sent = replica.waited(Duration::from_secs(1));
        let asks = |it: &Routed<Message>| {
            let message = Message::WantBarrier { number: 0 };
            matches!(it, Routed::Roles { message: said, .. } if *said == message)
        };
        assert_eq!(sent.iter().any(asks), is_due, "{groups} groups of {slots}");
    }
}

#[test]
fn a_replica_asks_for_what_markers_announce_though_nothing_else_tells_of_it() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.mark(0, 3);
    let mut replica = a_replica(2);
    for message in logs.messages() {
        replica.tell(message);
    }
    let sent = replica.waited(Duration::from_secs(2));
    assert_eq!(asked_of_leaders(&sent, all)[..2], [1, 2]);
}

/// A faulty node makes up a marker. Slots are asked for as far as they would be kept.
#[test]
fn no_more_is_wanted_than_would_be_kept() {
    let mut logs = Logs::new(2);
    logs.mark(0, u64::MAX);
    let mut replica = a_replica(2);
    for message in logs.messages() {
        replica.tell(message);
    }
    let sent = replica.waited(Duration::from_secs(2));
    let until = sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::WantMarker { until, .. },
            ..
        } => Some(until.0),
        _ => None,
    });
    assert_eq!(until.max(), Some(1 + MAX_AHEAD), "one is executed");
}

/// How far ahead of what it has executed a replica keeps values of a log.
const MAX_AHEAD: u64 = 1 << 18;

/// A worker waits for so long that there is no room for all that its group's log has meanwhile.
#[test]
fn what_has_no_room_while_a_worker_waits_is_asked_for_later() {
    let (mut replica, mut logs) = (a_replica(2), Logs::new(2));
    let all = logs.all();
    logs.mark(0, 2);
    logs.messages()
        .into_iter()
        .for_each(|it| drop(replica.tell(it)));
    let (first, beyond) = (logs.logs[0].len() as u64 - 1, 20);
    let end = first + MAX_AHEAD + beyond;
    let chosen = |slot| {
        let message = replica::In::Chosen {
            slot: Slot(slot),
            value: noop(),
            replier: ReplicaId(0),
        };
        within(0, multipaxos::Message::Replica(message))
    };
    // Without a look at the invariants, which take the longer the more there is.
    for slot in first + 1..end {
        let Stage {
            instance,
            outbox,
            now,
        } = &mut replica;
        instance.on_message(*now, chosen(slot), outbox);
        if slot % 4096 == 0 || slot + 1 == end {
            instance.on_burst_end(*now, outbox);
            outbox.take_sends();
        }
    }
    logs.logs[all].push(noop());
    logs.mark(1, 2);
    replica.tell(logs.chosen(all, 1));
    replica.tell(logs.chosen(1, 2));
    let executed = |replica: &Stage| replica.instance.status().executed.expect("it says so").0;
    // Of the other group and of g_all.
    let others = 3 + 2;
    assert_eq!(executed(&replica), first + MAX_AHEAD + others);
    let sent = replica.waited(Duration::from_secs(2));
    let mut asked = Vec::new();
    for (group, message) in in_groups(&sent) {
        if let (0, multipaxos::Message::Leader(leader::In::Recover { slots })) = (group, message) {
            asked.extend(slots.iter().map(|slot| slot.0));
        }
    }
    assert_eq!(
        asked[..beyond as usize],
        (end - beyond..end).collect::<Vec<_>>()
    );
    (end - beyond..end).for_each(|slot| drop(replica.tell(chosen(slot))));
    assert_eq!(executed(&replica), end + others);
}

/// Its leader may be gone; the leader of g_all, and that of the third group, are not.
#[test]
fn a_slot_that_is_missing_is_asked_for_while_one_before_it_waits_for_other_groups() {
    let mut logs = Logs::new(3);
    let all = logs.all();
    logs.write(all, "ab=1");
    logs.write(all, "ab=2");
    logs.mark(2, 3);
    let mut replica = a_replica(3);
    for group in [0, 1, 2] {
        (0..logs.logs[group].len()).for_each(|slot| drop(replica.tell(logs.chosen(group, slot))));
    }
    (0..2).for_each(|slot| drop(replica.tell(logs.chosen(all, slot))));
    let sent = replica.waited(Duration::from_secs(2));
    assert_eq!(asked_of_leaders(&sent, all).first(), Some(&2));
}
