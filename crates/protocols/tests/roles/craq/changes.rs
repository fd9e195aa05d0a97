//! What happens to a chain node when the chain changes.

use super::*;
use crate::stage::only;
use ionian_kernel::wire::encode_all;
use ionian_protocols::craq::message::Aside;

fn enter(node: &mut Stage<ChainNode>, chain: &Chain) -> Vec<Envelope> {
    let chain = chain.clone();
    between_nodes(node.tell(In::Chain { chain }))
}

fn sync(from: u8, epoch: u64, received: u64) -> In {
    In::Sync {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        received: Slot(received),
    }
}

fn handover(from: u8, epoch: u64, base: u64, end: u64) -> In {
    In::Handover {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        base: Slot(base),
        end: Slot(end),
    }
}

/// What goes to this node.
fn for_node(sends: &[Envelope], node: u8) -> Vec<In> {
    let message = |envelope: &Envelope| match envelope {
        Envelope::ToChainNodes(to, message) if *to == Set::one(ChainNodeId(node)) => {
            Some(message.clone())
        }
        _ => None,
    };
    sends.iter().filter_map(message).collect()
}

/// c7: the acknowledgements of the one that died say nothing of the next.
#[test]
fn c7_the_next_successor_gets_what_it_lacks_in_order_before_anything_new() {
    let mut head = node(0, 3);
    for payload in [b"a", b"b", b"c"] {
        head.tell(write(payload));
    }
    head.tell(ack(1, 0, 3, 1));
    let two = chain(1, &[(0, 1, true), (2, 1, true)]);
    enter(&mut head, &two);
    // c6: it does not know yet what the new successor has.
    assert_eq!(between_nodes(head.tell(write(b"d"))), []);
    let sends = head.tell(sync(2, 1, 1));
    assert_eq!(
        for_node(&sends, 2),
        [handover(0, 1, 0, 3), forward(0, 1, 1, &[b"b", b"c", b"d"])]
    );
}

/// c11: it may have answered, and its predecessor has all that it had.
#[test]
fn c11_a_node_that_becomes_the_tail_commits_and_answers_what_it_has_received() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    assert_eq!(middle.role.applied(), Slot(0));
    let sends = enter(&mut middle, &chain(1, &[(0, 1, true), (1, 1, true)]));
    assert_eq!(for_node(&sends, 1), [], "its predecessor may have less");
    let sends = middle.tell(handover(0, 1, 0, 2));
    assert_eq!(for_node(&sends, 1), [stored(1, 2)]);
    let sends = middle.tell(stored(1, 2));
    assert_eq!(middle.role.applied(), Slot(2));
    assert_eq!(answered(&sends), [0, 0]);
    assert_eq!(for_node(&sends, 0), [ack(1, 1, 2, 2)]);
}

#[test]
fn a_node_that_becomes_the_head_numbers_on_and_tells_clients() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    let two = chain(1, &[(1, 1, true), (2, 1, true)]);
    let sends = enter(&mut middle, &two);
    let learns = client::In::Chain { chain: two };
    assert!(sends.contains(&Envelope::ToClients(Set::first(2), learns)));
    let asked = middle.asked(write(b"c"));
    assert_eq!(asked.records, [entry(2, 0, b"c")]);
}

/// The others go on without it, and may give the numbers to other entries.
#[test]
pub(crate) fn a_node_that_is_removed_discards_what_is_not_committed() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    middle.tell(ack(2, 0, 2, 1));
    let two = chain(1, &[(0, 1, true), (2, 1, true)]);
    let asked = without_master(middle.asked(In::Chain { chain: two.clone() }));
    let record = encode_all(&Record::Entered {
        chain: two,
        end: Slot(1),
    });
    assert_eq!(asked.records, [(record, false)]);
    assert_eq!(
        (middle.role.applied(), middle.role.received()),
        (Slot(1), Slot(1))
    );
    assert_eq!((middle.role.place(), middle.role.is_whole()), (None, false));
}

/// It copies what is committed from the tail, and then asks to become the tail.
#[test]
fn a_node_outside_the_chain_copies_from_the_tail() {
    let mut node = node(2, 3);
    enter(&mut node, &chain(1, &[(0, 1, true), (1, 1, true)]));
    let fetch = In::Fetch {
        from: ChainNodeId(2),
        start: Slot(0),
        snapshot: None,
    };
    assert!(for_node(&node.timer(), 1).contains(&fetch));
    let asked = without_master(node.asked(In::Entries {
        from: ChainNodeId(1),
        start: Slot(0),
        values: vec![value(b"a"), value(b"b")],
        applied: Slot(2),
    }));
    assert_eq!(
        asked,
        only(vec![entry(0, 0, b"a"), entry(1, 0, b"b")], vec![])
    );
    assert_eq!(
        (node.role.applied(), node.role.is_whole()),
        (Slot(2), false)
    );
}

/// c5: what its predecessor had received may be committed already, by an earlier tail.
#[test]
pub(crate) fn c5_the_new_tail_serves_when_it_has_what_its_predecessor_had_received() {
    let mut joined = node(2, 3);
    enter(&mut joined, &chain(1, &[(0, 1, true), (1, 1, true)]));
    let sends = enter(
        &mut joined,
        &chain(2, &[(0, 1, true), (1, 1, true), (2, 1, false)]),
    );
    assert!(for_node(&sends, 1).contains(&sync(2, 2, 0)), "{sends:?}");
    joined.tell(handover(1, 2, 0, 2));
    assert!(!joined.role.has_all());
    let asked = without_master(joined.asked(forward(1, 2, 0, &[b"a"])));
    let acknowledged = vec![(to(1, ack(2, 2, 1, 0)), Some(1))];
    assert_eq!(asked, only(vec![entry(0, 0, b"a")], acknowledged));
    assert_eq!(
        (joined.role.applied(), joined.role.is_whole()),
        (Slot(0), false)
    );
    joined.tell(forward(1, 2, 1, &[b"b"]));
    assert_eq!(
        (joined.role.has_all(), joined.role.applied()),
        (true, Slot(0))
    );
    // The master knows.
    let whole = chain(2, &[(0, 1, true), (1, 1, true), (2, 1, true)]);
    let sends = enter(&mut joined, &whole);
    assert!(for_node(&sends, 2).contains(&stored(2, 2)));
    let sends = joined.tell(stored(2, 2));
    assert_eq!(
        (joined.role.applied(), joined.role.is_whole()),
        (Slot(2), true)
    );
    assert_eq!(answered(&sends), [0, 0]);
}

/// What the one that stands aside holds may be needed.
#[test]
fn a_node_that_stands_aside_keeps_what_it_has_received() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    let joining = chain(1, &[(0, 1, true), (1, 1, true), (2, 2, false)]);
    enter(&mut middle, &joining);
    let mut aside = chain(2, &[(0, 1, true), (2, 2, false)]);
    aside.aside = Some(Aside {
        member: joining.members[1],
        before: false,
    });
    enter(&mut middle, &aside);
    assert_eq!(
        (middle.role.received(), middle.role.is_whole()),
        (Slot(2), false)
    );
    let sends = enter(&mut middle, &chain(3, &[(0, 1, true), (1, 1, true)]));
    assert!(for_node(&sends, 0).contains(&sync(1, 3, 2)));
    middle.tell(handover(0, 3, 0, 2));
    middle.tell(stored(3, 2));
    assert_eq!(
        (middle.role.applied(), middle.role.is_whole()),
        (Slot(2), true)
    );
}

/// c5, the other side: what was received, and not what is committed.
#[test]
fn c5_a_predecessor_hands_over_what_it_had_received_when_it_entered() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b", b"c"]));
    middle.tell(ack(2, 0, 3, 1));
    enter(
        &mut middle,
        &chain(2, &[(0, 1, true), (1, 1, true), (3, 1, false)]),
    );
    let sends = middle.tell(sync(3, 2, 0));
    assert_eq!(
        for_node(&sends, 3),
        [handover(1, 2, 0, 3), forward(1, 2, 0, &[b"a", b"b", b"c"])]
    );
}

#[test]
fn a_node_that_has_lost_its_memory_begins_a_new_life_outside_the_chain() {
    let amnesiac = Birth {
        amnesiac: true,
        keeps_records: false,
        ..birth(1)
    };
    let mut role = ChainNode::new(config(3), &amnesiac);
    use ionian_kernel::role::Role;
    role.recover(Record::Life { life: 1 });
    let mut node = Stage::unstarted(role, false);
    let asked = node.started();
    assert_eq!(
        asked.records,
        [(encode_all(&Record::Life { life: 2 }), true)]
    );
    assert_eq!((node.role.place(), node.role.is_whole()), (None, false));
}

#[test]
fn a_silent_neighbour_is_removed_only_after_a_look_at_the_chain() {
    let mut head = node(0, 3);
    let mut looks = Vec::new();
    for _ in 0..200 {
        let sends = head.timer();
        head.tell(beat(2, 0, true));
        if !inquiries(&sends).is_empty() {
            looks = sends;
            break;
        }
    }
    let founding = chain(0, &[(0, 1, true), (1, 1, true), (2, 1, true)]);
    let sends = master_says(&mut head, &looks, &founding);
    assert_eq!(between_nodes(sends), []);
    // It has no session with the master yet, so the step waits; what it is, `ChainMaster` decides.
    assert!(head.figure("members") == 3);
}
