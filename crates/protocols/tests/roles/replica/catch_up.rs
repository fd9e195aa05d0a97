//! How a replica gets the slots that it misses, and gives others those that they miss.

use super::*;

// Holes.

#[test]
fn a_hole_is_asked_for_of_a_peer_then_of_the_leaders_until_it_is_filled() {
    let mut replica = in_session();
    replica.tell(chosen(3, write(2, "c"), PEER));
    let begun = replica.now;
    let fetch = In::Fetch {
        from: ID,
        start: Slot(1),
        end: Slot(4),
        waits: false,
    };
    let recover = leader::In::Recover {
        slots: vec![Slot(1), Slot(2)],
    };
    for attempt in 0..6 {
        let sent = next_sent(&mut replica);
        if attempt == 0 {
            let waited = replica.now.since(begun);
            let after = Options::default().resend_after;
            assert!((after..=2 * after).contains(&waited), "{waited:?}");
        }
        match (&sent[..], attempt % 2) {
            ([Envelope::ToReplicas(to, message)], 0) => {
                assert_eq!((to.len(), to.contains(ID)), (1, false));
                assert_eq!(*message, fetch);
            }
            ([envelope], 1) => {
                let expected = Envelope::ToLeaders(Set::first(3), recover.clone());
                assert_eq!(*envelope, expected);
            }
            _ => panic!("attempt {attempt}: {sent:?}"),
        }
    }
    let slots = vec![(Slot(1), write(0, "a")), (Slot(2), write(1, "b"))];
    replica.tell(In::Fetched { from: PEER, slots });
    let until = replica.now + Duration::from_secs(5);
    while replica.now < until {
        for envelope in replica.timer() {
            let is_report = matches!(
                envelope,
                Envelope::ToLeaders(_, leader::In::Executed { .. }) | Envelope::ToReadBatchers(..)
            );
            assert!(is_report, "nothing is missing: {envelope:?}");
        }
    }
    assert_eq!(replica.role.executed(), Slot(4));
}

/// The leader's heartbeat says how far others have executed.
#[test]
fn slots_that_others_have_executed_are_asked_for() {
    let mut replica = in_session();
    let message = In::Heartbeat {
        round: round(1, 0),
        executed: Slot(3),
        keep: Slot(0),
        time: Timestamp(1000),
    };
    assert_eq!(replica.asked(message), only(vec![]));
    let sent = next_sent(&mut replica);
    let fetch = In::Fetch {
        from: ID,
        start: Slot(1),
        end: Slot(3),
        waits: false,
    };
    assert!(
        matches!(&sent[..], [Envelope::ToReplicas(_, message)] if *message == fetch),
        "{sent:?}"
    );
}

#[test]
fn a_peer_that_filled_a_part_of_what_is_missing_is_asked_for_the_rest_at_once() {
    let mut replica = in_session();
    replica.tell(chosen(4, write(3, "d"), ID));
    let slots = vec![(Slot(1), write(0, "a")), (Slot(2), write(1, "b"))];
    let rest = In::Fetch {
        from: ID,
        start: Slot(3),
        end: Slot(5),
        waits: false,
    };
    let asked = replica.asked(In::Fetched { from: PEER, slots });
    assert_eq!(asked, only(vec![to_peer(rest)]));
    // It answers for the slot that it was named for, and for none of the others.
    let slots = vec![(Slot(3), write(2, "c"))];
    let expected = answered(5, &[(WRITE, 3, done("abcd"))]);
    let asked = replica.asked(In::Fetched { from: PEER, slots });
    assert_eq!(asked, only(vec![expected]));
}

// Helping peers.

fn fetch(start: u64, end: u64) -> In {
    In::Fetch {
        from: PEER,
        start: Slot(start),
        end: Slot(end),
        waits: false,
    }
}

#[test]
fn a_peer_gets_the_slots_that_it_misses_as_far_as_they_are_known() {
    let mut replica = in_session();
    replica.tell(chosen(1, write(0, "a"), PEER));
    replica.tell(chosen(3, write(2, "c"), PEER));
    let slots = vec![(Slot(1), write(0, "a")), (Slot(3), write(2, "c"))];
    let fetched = In::Fetched { from: ID, slots };
    assert_eq!(replica.asked(fetch(1, 9)), only(vec![to_peer(fetched)]));
    let slots = Vec::new();
    let none = In::Fetched { from: ID, slots };
    assert_eq!(replica.asked(fetch(4, 9)), only(vec![to_peer(none)]));
}

/// Where a slot orders what several processes hold (Scalog), it may be larger than any message: it
/// was sent, and dropped, without end.
#[test]
fn a_peer_gets_small_slots_a_large_one_alone_and_a_snapshot_where_no_message_carries_the_slot() {
    let mut replica = in_session();
    let of_bytes = |number, bytes| {
        let batch = Batch::one(&Command {
            client: ClientId(0),
            purpose: WRITE,
            number,
            floor: 0,
            payload: vec![b'x'; bytes].into(),
        });
        let stamp = Timestamp(1000);
        Value { stamp, batch }
    };
    let execute = |replica: &mut Stage<Replica>, sizes: &[(u64, usize)]| {
        for (slot, bytes) in sizes {
            replica.tell(chosen(*slot, of_bytes(slot - 1, *bytes), PEER));
        }
    };
    let fetched = |replica: &mut Stage<Replica>, from| match &replica.asked(fetch(from, 9)).sends[..]
    {
        [(Envelope::ToReplicas(_, In::Fetched { slots, .. }), _)] => {
            Some(slots.iter().map(|(slot, _)| slot.0).collect::<Vec<_>>())
        }
        [
            (
                Envelope::ToReplicas(
                    _,
                    In::SnapshotChunk {
                        executed: Slot(6), ..
                    },
                ),
                _,
            ),
        ] => None,
        _ => panic!("one message"),
    };
    execute(&mut replica, &[(1, 9), (2, 900_000), (3, 60 << 20), (4, 9)]);
    assert_eq!(fetched(&mut replica, 1), Some(vec![1, 2]));
    assert_eq!(fetched(&mut replica, 3), Some(vec![3]));
    execute(&mut replica, &[(5, (64 << 20) - (32 << 10))]);
    assert_eq!(fetched(&mut replica, 5), None);
}

#[test]
fn a_peer_whose_slots_are_forgotten_gets_a_snapshot_which_brings_it_as_far() {
    let mut replica = retaining(2);
    let [(envelope, Some(0))] = &replica.asked(fetch(1, 9)).sends[..] else {
        panic!("one message")
    };
    let Envelope::ToReplicas(to, message) = envelope else {
        panic!("{envelope:?}")
    };
    assert_eq!(*to, Set::one(PEER));
    let In::SnapshotChunk { bytes, .. } = message else {
        panic!("{message:?}")
    };
    let chunk = In::SnapshotChunk {
        from: ID,
        executed: Slot(4),
        offset: 0,
        last: true,
        bytes: bytes.clone(),
    };
    assert_eq!(*message, chunk);
    // The peer goes on from there, sessions included.
    let mut peer = replica_of(config(Options::default()), &birth(PEER.0));
    assert_eq!(peer.asked(chunk.clone()), only(vec![]));
    assert_eq!(peer.asked(chunk), only(vec![]), "it is as far already");
    peer.tell(chosen(4, write(2, "c"), ID));
    let mut expected = AnswersByClient::default();
    expected.push(&Answer {
        client: ClientId(0),
        purpose: Purpose::Read,
        number: 5,
        outcome: done("abc"),
    });
    let answers = expected.take_some(PEER.0, Slot(5));
    let message = unbatcher::In::Results { answers };
    let expected = Envelope::ToUnbatchers(Set::one(UnbatcherId(PEER.0)), message);
    assert_eq!(peer.asked(read(5, 5)), only(vec![expected]));
}

#[test]
fn a_damaged_snapshot_changes_nothing() {
    let mut replica = in_session();
    let chunk = In::SnapshotChunk {
        from: PEER,
        executed: Slot(9),
        offset: 0,
        last: true,
        bytes: Bytes::from_static(b"damaged"),
    };
    assert_eq!(replica.asked(chunk), only(vec![]));
    let expected = answered(2, &[(WRITE, 0, done("a"))]);
    let asked = replica.asked(chosen(1, write(0, "a"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_peer_that_waits_for_slots_gets_them_when_they_come() {
    let mut replica = in_session();
    let waits = In::Fetch {
        from: PEER,
        start: Slot(1),
        end: Slot(9),
        waits: true,
    };
    assert_eq!(replica.asked(waits), only(vec![]));
    let slots = vec![(Slot(1), write(0, "a"))];
    let fetched = to_peer(In::Fetched { from: ID, slots });
    let asked = replica.asked(chosen(1, write(0, "a"), PEER));
    assert_eq!(asked, only(vec![fetched]));
    let asked = replica.asked(chosen(2, write(1, "b"), PEER));
    assert_eq!(asked, only(vec![]), "once");
}

/// The rest of a snapshot that ends below what the replica has executed is of no use: a hole above
/// it is asked for at once, not after unanswered requests for that rest.
#[test]
fn a_snapshot_that_the_replica_has_passed_does_not_delay_what_it_misses() {
    let mut replica = in_session();
    let chunk = In::SnapshotChunk {
        from: PEER,
        executed: Slot(3),
        offset: 0,
        last: false,
        bytes: Bytes::from_static(b"the first piece"),
    };
    replica.tell(chosen(6, write(5, "f"), PEER));
    let next = In::FetchSnapshot {
        from: ID,
        executed: Slot(3),
        offset: 15,
    };
    assert_eq!(replica.asked(chunk), only(vec![to_peer(next)]));
    for (slot, text) in [(1, "a"), (2, "b"), (3, "c")] {
        replica.tell(chosen(slot, write(slot - 1, text), PEER));
    }
    let fetch = In::Fetch {
        from: ID,
        start: Slot(4),
        end: Slot(7),
        waits: false,
    };
    match &next_sent(&mut replica)[..] {
        [Envelope::ToReplicas(_, message)] => assert_eq!(*message, fetch),
        sent => panic!("{sent:?}"),
    }
}
