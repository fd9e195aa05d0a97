//! What happens to a chain node when the chain changes.

use super::*;
use crate::stage::only;
use ionian_kernel::wire::encode_all;

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

fn handover(from: u8, epoch: u64) -> In {
    In::Handover {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
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
    let two = chain(1, &[(0, 1), (2, 1)]);
    enter(&mut head, &two);
    // c6: it does not know yet what the new successor has.
    assert_eq!(between_nodes(head.tell(write(b"d"))), []);
    let sends = head.tell(sync(2, 1, 1));
    assert_eq!(
        for_node(&sends, 2),
        [handover(0, 1), forward(0, 1, 1, &[b"b", b"c", b"d"])]
    );
}

/// c11: the former tail may have answered, and its predecessor has all that it had.
#[test]
fn c11_a_node_that_becomes_the_tail_commits_and_answers_what_it_has_received() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    assert_eq!(middle.role.applied(), Slot(0));
    let sends = enter(&mut middle, &chain(1, &[(0, 1), (1, 1)]));
    assert_eq!(for_node(&sends, 1), [stored(1, 2)]);
    middle.tell(handover(0, 1));
    let sends = middle.tell(stored(1, 2));
    assert_eq!(middle.role.applied(), Slot(2));
    assert_eq!(answered(&sends), [0, 0]);
    assert_eq!(for_node(&sends, 0), [ack(1, 1, 2, 2)]);
}

#[test]
fn a_node_that_becomes_the_head_numbers_on_and_tells_clients() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a", b"b"]));
    let two = chain(1, &[(1, 1), (2, 1)]);
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
    let two = chain(1, &[(0, 1), (2, 1)]);
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
    assert_eq!(middle.role.place(), None);
}

/// It copies what is committed from the tail.
#[test]
fn a_node_outside_the_chain_copies_from_the_tail() {
    let mut node = node(2, 3);
    enter(&mut node, &chain(1, &[(0, 1), (1, 1)]));
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
    assert_eq!((node.role.applied(), node.role.place()), (Slot(2), None));
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
    assert_eq!(node.role.place(), None);
    // It is silent until its neighbours, or the master, have removed its earlier life.
    let beats = |node: &mut Stage<ChainNode>| {
        let sends = (0..20).flat_map(|_| node.timer()).collect();
        let is_beat = |it: &Envelope| matches!(it, Envelope::ToChainNodes(_, In::Beat { .. }));
        between_nodes(sends).iter().any(is_beat)
    };
    assert!(!beats(&mut node));
    enter(&mut node, &chain(1, &[(0, 1), (2, 1)]));
    assert!(beats(&mut node));
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
    let founding = chain(0, &[(0, 1), (1, 1), (2, 1)]);
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
        let mut middle = leaving::with_session(node(1, 3));
        let (mut all, mut steps) = (Set::EMPTY, Vec::new());
        for _ in 0..300 {
            for from in heard {
                middle.tell(beat(*from, 0, true));
            }
            let mut sends = middle.timer();
            for envelope in &sends {
                if let Envelope::ToChainNodes(_, In::Beat { suspects, .. }) = envelope {
                    all = all.or(*suspects);
                }
            }
            if !inquiries(&sends).is_empty() {
                let founding = chain(0, &[(0, 1), (1, 1), (2, 1)]);
                sends = master_says(&mut middle, &sends, &founding);
            }
            steps.extend(leases::steps(&mut middle, &sends));
        }
        (all, !steps.is_empty())
    };
    assert_eq!(suspects(&[0, 2]), (nodes(&[]), false));
    assert_eq!(suspects(&[0]), (nodes(&[2]), true));
    // It says that it is cut off, so that its neighbours have it removed; and whom it misses, so
    // that a node may join beside it.
    assert_eq!(suspects(&[]), (nodes(&[0, 1, 2]), false));
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

/// It cannot send what comes behind a gap.
#[test]
fn a_successor_that_has_received_more_is_not_found() {
    let mut head = node(0, 3);
    enter(&mut head, &chain(1, &[(0, 1), (2, 1)]));
    assert_eq!(between_nodes(head.tell(sync(2, 1, 1))), []);
    assert_eq!(for_node(&head.tell(sync(2, 1, 0)), 2), [handover(0, 1)]);
}

/// c18: a node that lacks what is forgotten gets the state, on its disk before anything that
/// follows it.
#[test]
fn a_joining_node_copies_the_state_and_stores_it_before_it_goes_on() {
    let mut tail = few(1);
    enter(&mut tail, &chain(1, &[(0, 1), (1, 1)]));
    tail.tell(handover(0, 1));
    let payloads: Vec<&'static [u8]> = vec![b"a"; 100];
    tail.tell(forward(0, 1, 0, &payloads));
    tail.tell(stored(1, 100));
    assert_eq!(tail.role.applied(), Slot(100));
    let mut joins = few(2);
    enter(&mut joins, &chain(1, &[(0, 1), (1, 1)]));
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
    joins.now = joins.now + Duration::from_secs(1);
    let asks = |joins: &mut Stage<ChainNode>| {
        let sends = joins.timer();
        let fetches = |it: &In| matches!(it, In::Fetch { .. });
        for_node(&sends, 1).iter().any(fetches)
    };
    assert!(!asks(&mut joins));
    let again = joins.refused(100).snapshot;
    assert_eq!(again, stores, "the disk had no room");
    assert!(!asks(&mut joins));
    joins.stored(100);
    assert!(asks(&mut joins));
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
fn c17_a_chain_of_one_commits_what_its_disk_has() {
    let mut head = node(0, 3);
    enter(&mut head, &chain(1, &[(0, 1)]));
    let asked = head.asked(write(b"a"));
    assert_eq!(asked.records, [entry(0, 0, b"a")]);
    assert_eq!(asked.sends, [(to(0, stored(1, 1)), Some(1))]);
    assert_eq!(answered(&head.tell(stored(1, 1))), [0]);
    // Another joins behind it, and has everything.
    enter(&mut head, &chain(2, &[(0, 1), (1, 1)]));
    assert_eq!(for_node(&head.tell(sync(1, 2, 1)), 1), [handover(0, 2)]);
    let asked = head.asked(write(b"b"));
    let forwarded = to(1, forward(0, 2, 1, &[b"b"]));
    assert!(asked.sends.contains(&(forwarded, Some(1))), "{asked:?}");
}
