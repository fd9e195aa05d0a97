//! What happens to a chain node when the chain changes.

use super::*;
use crate::stage::only;
use ionian_kernel::role::Role;
use ionian_kernel::wire::encode_all;
use ionian_protocols::craq::message::{Aside, Step};

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
    let members = [(0, 1, true), (1, 1, true), (2, 1, true)];
    let whole = revised(1, chain(2, &members));
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

/// At most one is dead: who hears none of two others is cut off itself, and suspects only itself.
#[test]
pub(crate) fn who_hears_too_few_others_looks_at_the_chain_and_suspects_none() {
    let nodes = |numbers: &[u8]| -> Set<ChainNodeId> {
        numbers.iter().map(|node| ChainNodeId(*node)).collect()
    };
    let suspects = |heard: &[u8]| {
        let mut middle = node(1, 3);
        let mut all = Set::EMPTY;
        for _ in 0..300 {
            for from in heard {
                middle.tell(beat(*from, 0, true));
            }
            for envelope in middle.timer() {
                if let Envelope::ToChainNodes(_, In::Beat { suspects, .. }) = envelope {
                    all = all.or(suspects);
                }
            }
        }
        all
    };
    assert_eq!(suspects(&[0, 2]), nodes(&[]));
    assert_eq!(suspects(&[0]), nodes(&[2]));
    // It says that it is cut off, so that its neighbours have it removed.
    assert_eq!(suspects(&[]), nodes(&[1]));
}

/// Also one that is heard: it may be the only neighbour of a dead member.
#[test]
fn a_neighbour_that_says_that_it_is_cut_off_is_suspected() {
    let suspects = |of: u8, says: Set<ChainNodeId>| {
        let mut middle = node(1, 3);
        let mut all = Set::EMPTY;
        for _ in 0..20 {
            for from in [0, 2] {
                let mut message = beat(from, 0, true);
                if let In::Beat { suspects, .. } = &mut message
                    && from == of
                {
                    *suspects = says;
                }
                middle.tell(message);
            }
            for envelope in middle.timer() {
                if let Envelope::ToChainNodes(_, In::Beat { suspects, .. }) = envelope {
                    all = all.or(suspects);
                }
            }
        }
        all
    };
    let [first, last] = [0, 2].map(|node| Set::one(ChainNodeId(node)));
    assert_eq!(suspects(0, first), first);
    assert_eq!(suspects(2, last), last);
    // What it says of another one is not believed.
    assert_eq!(suspects(0, last), Set::EMPTY);
}

#[test]
fn a_head_that_becomes_the_second_hands_on_what_waits() {
    let mut head = node(1, 3);
    let aside = Chain {
        aside: Some(Aside {
            member: Member {
                node: ChainNodeId(0),
                life: 1,
                full: true,
            },
            before: true,
        }),
        ..chain(1, &[(1, 1, true), (2, 1, false)])
    };
    enter(&mut head, &aside);
    // It numbers nothing while a node stands aside.
    assert_eq!(for_node(&head.tell(write(b"a")), 2), []);
    let back = chain(2, &[(0, 1, true), (1, 1, true)]);
    let sends = enter(&mut head, &back);
    let handed = In::Write {
        batch: stage::batch(&b"a"[..]),
        from: None,
        handed: true,
    };
    assert!(for_node(&sends, 0).contains(&handed), "{sends:?}");
}

/// Its next predecessor may lack what its last one has sent.
#[test]
fn a_member_that_is_not_full_discards_what_is_not_committed_when_the_chain_changes() {
    let mut joined = node(3, 4);
    let outside = chain(1, &[(0, 1, true), (1, 1, true), (2, 1, true)]);
    enter(&mut joined, &outside);
    let last = chain(
        2,
        &[(0, 1, true), (1, 1, true), (2, 1, true), (3, 1, false)],
    );
    enter(&mut joined, &last);
    joined.tell(handover(2, 2, 0, 3));
    joined.tell(forward(2, 2, 0, &[b"a", b"b"]));
    assert_eq!(joined.role.received(), Slot(2));
    // News of the same chain change nothing of that.
    enter(&mut joined, &revised(1, last));
    assert_eq!(joined.role.received(), Slot(2));
    enter(
        &mut joined,
        &chain(3, &[(0, 1, true), (1, 1, true), (3, 1, false)]),
    );
    assert_eq!(joined.role.received(), Slot(0));
}

/// What a member holds must stay a beginning of what each holds that stood before it.
#[test]
fn the_head_numbers_nothing_while_a_node_stands_aside() {
    let mut head = node(0, 3);
    let mut aside = chain(1, &[(0, 1, true), (2, 1, false)]);
    aside.aside = Some(Aside {
        member: chain(0, &[(1, 1, true)]).members[0],
        before: false,
    });
    enter(&mut head, &aside);
    assert_eq!(
        without_master(head.asked(write(b"a"))),
        only(vec![], vec![])
    );
    let full = revised(1, chain(1, &[(0, 1, true), (2, 1, true)]));
    let asked = head.asked(In::Chain { chain: full });
    assert_eq!(asked.records[1..], [entry(0, 0, b"a")]);
}

/// A full member would get what the one that stands aside lacks, and soon stand behind it: the last
/// one alone is sent anything. Found by a seed (3692 of craq-6 with `amnesia`).
#[test]
fn full_members_are_passed_nothing_while_a_node_stands_aside() {
    let mut head = node(0, 4);
    head.tell(write(b"a"));
    let mut aside = chain(1, &[(0, 1, true), (1, 1, true), (3, 2, false)]);
    aside.aside = Some(Aside {
        member: chain(0, &[(2, 1, true)]).members[0],
        before: false,
    });
    let mut last_but_one = node(1, 4);
    last_but_one.tell(forward(0, 0, 0, &[b"a"]));
    enter(&mut head, &aside);
    enter(&mut last_but_one, &aside);
    let sends = head.tell(sync(1, 1, 0));
    assert_eq!(for_node(&sends, 1), [handover(0, 1, 0, 1)]);
    let later = head.now + Duration::from_secs(1);
    while head.role.next_timer().is_some_and(|at| at < later) {
        let again = for_node(&head.timer(), 1);
        let entries = again.iter().find(|it| matches!(it, In::Forward { .. }));
        assert_eq!(entries, None, "nor again");
    }
    let sends = last_but_one.tell(sync(3, 1, 0));
    let passed = [handover(1, 1, 0, 1), forward(1, 1, 0, &[b"a"])];
    assert_eq!(for_node(&sends, 3), passed, "the last one needs it");
    let whole = [(0, 1, true), (1, 1, true), (3, 2, true)];
    let sends = enter(&mut head, &revised(1, chain(1, &whole)));
    assert_eq!(for_node(&sends, 1), [forward(0, 1, 0, &[b"a"])]);
}

/// It cannot send what comes behind a gap.
#[test]
fn a_successor_that_has_received_more_is_not_found() {
    let mut head = node(0, 3);
    enter(&mut head, &chain(1, &[(0, 1, true), (2, 1, true)]));
    assert_eq!(between_nodes(head.tell(sync(2, 1, 1))), []);
    assert_eq!(
        for_node(&head.tell(sync(2, 1, 0)), 2),
        [handover(0, 1, 0, 0)]
    );
}

/// c18: a node that lacks what is forgotten gets the state, on its disk before anything that
/// follows it.
#[test]
fn a_joining_node_copies_the_state_and_stores_it_before_it_goes_on() {
    let mut tail = few(1);
    enter(&mut tail, &chain(1, &[(0, 1, true), (1, 1, true)]));
    tail.tell(handover(0, 1, 0, 0));
    let payloads: Vec<&'static [u8]> = vec![b"a"; 100];
    tail.tell(forward(0, 1, 0, &payloads));
    tail.tell(stored(1, 100));
    assert_eq!(tail.role.applied(), Slot(100));
    let mut joins = few(2);
    enter(&mut joins, &chain(1, &[(0, 1, true), (1, 1, true)]));
    let mut asks = for_node(&joins.timer(), 1);
    let mut stores = None;
    for _ in 0..20 {
        let Some(fetch) = asks.iter().find(|it| matches!(it, In::Fetch { .. })) else {
            break;
        };
        let piece = for_node(&tail.tell(fetch.clone()), 2);
        let [piece @ In::Piece { executed, .. }] = &piece[..] else {
            panic!("a piece: {piece:?}");
        };
        assert_eq!(*executed, Slot(100));
        let asked = joins.asked(piece.clone());
        stores = asked.snapshot;
        asks = for_node(
            &asked.sends.into_iter().map(|it| it.0).collect::<Vec<_>>(),
            1,
        );
    }
    assert_eq!(stores, Some(100));
    assert_eq!(
        (joins.role.applied(), joins.role.received()),
        (Slot(100), Slot(100))
    );
    // Its disk does not have the state yet.
    let last = chain(2, &[(0, 1, true), (1, 1, true), (2, 1, false)]);
    let sends = enter(&mut joins, &last);
    assert!(!for_node(&sends, 1).contains(&sync(2, 2, 100)), "{sends:?}");
    let waits = without_master(joins.asked(forward(1, 2, 100, &[b"b"])));
    assert_eq!(waits.records, []);
    joins.stored(100);
    joins.tell(handover(1, 2, 0, 100));
    let asked = without_master(joins.asked(forward(1, 2, 100, &[b"b"])));
    assert_eq!(asked.records, [entry(100, 100, b"b")]);
}

/// A chain node that retains few entries.
fn few(index: u8) -> Stage<ChainNode> {
    let mut layout = layout(3);
    layout.options.retained_slots = 4;
    let config = Craq::configure(layout).expect("a deployment");
    let mut node = Stage::new(config, &birth(index), ChainNode::new);
    settle(&mut node, index, 3);
    node
}

/// c17: head and tail in one.
#[test]
fn c17_a_chain_of_one_commits_what_its_disk_has_and_two_may_change_places() {
    let mut head = node(0, 3);
    enter(&mut head, &chain(1, &[(0, 1, true)]));
    let asked = head.asked(write(b"a"));
    assert_eq!(asked.records, [entry(0, 0, b"a")]);
    assert_eq!(asked.sends, [(to(0, stored(1, 1)), Some(1))]);
    assert_eq!(answered(&head.tell(stored(1, 1))), [0]);
    // Another joins, and the first one leaves and comes back behind it.
    enter(&mut head, &chain(2, &[(0, 1, true), (1, 1, false)]));
    let sends = head.tell(sync(1, 2, 0));
    assert_eq!(
        for_node(&sends, 1),
        [handover(0, 2, 0, 1), forward(0, 2, 0, &[b"a"])]
    );
    enter(
        &mut head,
        &revised(1, chain(2, &[(0, 1, true), (1, 1, true)])),
    );
    enter(&mut head, &chain(3, &[(1, 1, true)]));
    enter(&mut head, &chain(4, &[(1, 1, true), (0, 1, false)]));
    assert_eq!((head.role.place(), head.role.is_whole()), (Some(1), false));
    head.tell(handover(1, 4, 0, 1));
    assert!(head.role.has_all());
    enter(
        &mut head,
        &revised(1, chain(4, &[(1, 1, true), (0, 1, true)])),
    );
    head.tell(forward(1, 4, 1, &[b"b"]));
    assert_eq!(answered(&head.tell(stored(4, 2))), [0]);
}

/// A node that does not hear the tail would take it for dead.
#[test]
fn a_node_asks_to_join_only_if_it_hears_the_tail_and_is_heard() {
    let two = chain(1, &[(0, 1, true), (1, 1, true)]);
    let suspects = |node| In::Beat {
        from: ChainNodeId(0),
        epoch: ChainEpoch(1),
        revision: 0,
        hears: Set::first(3),
        suspects: node,
        synced: true,
        clock: Timestamp(1000),
    };
    let (none, tail) = (Set::EMPTY, Set::one(ChainNodeId(1)));
    let ready = |heard: In| {
        let mut joins = Stage::new(config(3), &birth(2), ChainNode::new);
        let sends = joins.started().sends.into_iter().map(|it| it.0);
        let opens: Vec<_> = sends.collect();
        leases::steps(&mut joins, &opens);
        enter(&mut joins, &two);
        // It was removed: it waits for a while.
        joins.now = joins.now + ionian_kernel::time::Duration::from_secs(1);
        joins.tell(heard);
        joins.timer();
        let sends = joins.tell(In::Entries {
            from: ChainNodeId(1),
            start: Slot(0),
            values: vec![],
            applied: Slot(0),
        });
        leases::steps(&mut joins, &sends)
    };
    let step = Step::Ready {
        epoch: ChainEpoch(1),
        node: ChainNodeId(2),
        life: 1,
    };
    assert_eq!(ready(beat(1, 1, true)), [step]);
    assert_eq!(ready(suspects(none)), []);
    assert_eq!(ready(suspects(tail)), [step], "they may need it");
}
