//! The way of a write through the chain.

use super::*;
use crate::stage::only;
use ionian_kernel::wire::encode_all;

#[test]
fn the_head_numbers_a_write_and_passes_it_on_behind_its_record() {
    let mut head = node(0, 3);
    assert_eq!(
        head.asked(write(b"a")),
        only(
            vec![entry(0, 0, b"a")],
            vec![(to(1, forward(0, 0, 0, &[b"a"])), Some(1))]
        )
    );
    assert_eq!(
        head.asked(write(b"b")),
        only(
            vec![entry(1, 0, b"b")],
            vec![(to(1, forward(0, 0, 1, &[b"b"])), Some(1))]
        )
    );
    assert_eq!(
        (head.role.applied(), head.role.received()),
        (Slot(0), Slot(2))
    );
    // It learns what is committed, and that is all.
    assert_eq!(head.asked(ack(1, 0, 2, 1)), only(vec![], vec![]));
    assert_eq!(
        (head.role.applied(), head.role.received()),
        (Slot(1), Slot(2))
    );
}

#[test]
fn a_middle_node_stores_and_passes_on_and_acknowledges_what_it_learns() {
    let mut middle = node(1, 3);
    assert_eq!(
        middle.asked(forward(0, 0, 0, &[b"a", b"b"])),
        only(
            vec![entry(0, 0, b"a"), entry(1, 0, b"b")],
            vec![(to(2, forward(1, 0, 0, &[b"a", b"b"])), Some(2))]
        )
    );
    assert_eq!(
        middle.asked(ack(2, 0, 2, 2)),
        only(vec![], vec![(to(0, ack(1, 0, 2, 2)), Some(0))])
    );
    assert_eq!(middle.role.applied(), Slot(2));
}

/// What its disk does not have a crash could undo.
#[test]
fn the_tail_commits_answers_and_acknowledges_what_its_disk_has() {
    let mut tail = node(2, 3);
    assert_eq!(
        tail.asked(forward(1, 0, 0, &[b"a"])),
        only(
            vec![entry(0, 0, b"a")],
            vec![(to(2, stored(0, 1)), Some(1))]
        )
    );
    assert_eq!(tail.role.applied(), Slot(0));
    let sends = tail.tell(stored(0, 1));
    assert_eq!((&sends[0], sends.len()), (&to(1, ack(2, 0, 1, 1)), 2));
    assert_eq!(answered(&sends), [0]);
    assert_eq!(tail.role.applied(), Slot(1));
}

#[test]
fn a_tail_that_keeps_nothing_commits_at_once() {
    let forgetful = Birth {
        keeps_records: false,
        ..birth(2)
    };
    let mut tail = Stage::new(config(3), &forgetful, ChainNode::new);
    settle(&mut tail, 2, 3);
    let sends = tail.tell(forward(1, 0, 0, &[b"a"]));
    assert_eq!((&sends[0], sends.len()), (&to(1, ack(2, 0, 1, 1)), 2));
    assert_eq!(answered(&sends), [0]);
}

#[test]
fn entries_are_taken_in_order_and_once() {
    let mut tail = node(2, 3);
    assert_eq!(
        tail.asked(forward(1, 0, 1, &[b"b"])),
        only(vec![], vec![]),
        "a gap"
    );
    tail.tell(forward(1, 0, 0, &[b"a"]));
    tail.tell(stored(0, 1));
    // What it has already is acknowledged again: the acknowledgement may be lost.
    assert_eq!(
        tail.asked(forward(1, 0, 0, &[b"a"])),
        only(vec![], vec![(to(1, ack(2, 0, 1, 1)), Some(0))])
    );
    let asked = tail.asked(forward(1, 0, 0, &[b"a", b"b"]));
    assert_eq!(asked.records, [entry(1, 1, b"b")]);
    assert_eq!(tail.role.received(), Slot(2));
}

#[test]
fn what_is_not_acknowledged_is_sent_again_until_it_is() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    head.tell(write(b"b"));
    let again = |head: &mut Stage<ChainNode>| {
        let sent = (0..50).find_map(|_| {
            let sends = head.timer();
            let mut forwards = sends.into_iter().filter(|envelope| {
                matches!(envelope, Envelope::ToChainNodes(_, In::Forward { .. }))
            });
            // The others live.
            head.tell(beat(1, 0, true));
            head.tell(beat(2, 0, true));
            forwards.next()
        });
        sent.expect("it sends again")
    };
    assert_eq!(again(&mut head), to(1, forward(0, 0, 0, &[b"a", b"b"])));
    head.tell(ack(1, 0, 1, 0));
    assert_eq!(again(&mut head), to(1, forward(0, 0, 1, &[b"b"])));
    // All is received and not committed: it asks whether it is.
    head.tell(ack(1, 0, 2, 1));
    assert_eq!(again(&mut head), to(1, forward(0, 0, 2, &[])));
}

/// c8: an old head and a new one have both given the number.
#[test]
pub(crate) fn c8_a_message_of_another_epoch_changes_nothing() {
    let mut tail = node(2, 3);
    tail.tell(In::Chain {
        chain: chain(1, &[(1, 1), (2, 1)]),
    });
    for (from, epoch) in [(1, 0), (0, 0), (0, 1)] {
        let asked = without_master(tail.asked(forward(from, epoch, 0, &[b"x"])));
        assert_eq!(asked, only(vec![], vec![]), "from {from} in {epoch}");
    }
    assert_eq!(tail.role.received(), Slot(0));
    tail.tell(forward(1, 1, 0, &[b"a"]));
    assert_eq!(tail.role.received(), Slot(1));
}

/// The sender of a later epoch learns that this node does not know it.
#[test]
fn a_message_of_a_later_epoch_is_answered_with_a_heartbeat() {
    let mut tail = node(2, 3);
    let sends = between_nodes(tail.tell(forward(1, 5, 0, &[b"x"])));
    let [Envelope::ToChainNodes(to, In::Beat { epoch, .. })] = &sends[..] else {
        panic!("{sends:?}");
    };
    assert_eq!((*to, *epoch), (Set::one(ChainNodeId(1)), ChainEpoch(0)));
    assert_eq!(tail.role.received(), Slot(0));
}

#[test]
fn a_write_that_is_not_for_this_node_goes_to_the_head_and_the_client_learns_the_chain() {
    let mut tail = node(2, 3);
    let handed = |handed| In::Write {
        batch: stage::batch(&b"a"[..]),
        from: None,
        handed,
    };
    let learns = Envelope::ToClients(
        Set::one(ClientId(0)),
        client::In::Chain {
            chain: chain(0, &[(0, 1), (1, 1), (2, 1)]),
        },
    );
    assert_eq!(
        tail.tell(handed(false)),
        [learns.clone(), to(0, handed(true))]
    );
    assert_eq!(
        tail.tell(handed(true)),
        [learns],
        "it is not handed on twice"
    );
}

#[test]
pub(crate) fn s6_a_write_that_comes_again_is_an_entry_and_changes_nothing() {
    let mut tail = node(2, 3);
    let open = Value {
        stamp: Timestamp(1000),
        batch: Batch::one(&Command {
            client: ClientId(0),
            purpose: Purpose::Open,
            number: 1,
            floor: 0,
            payload: bytes::Bytes::new(),
        }),
    };
    tail.tell(In::Forward {
        from: ChainNodeId(1),
        epoch: ChainEpoch(0),
        start: Slot(0),
        values: vec![open],
    });
    let results = |sends: Vec<Envelope>| -> Vec<String> {
        let of = |envelope: &Envelope| match envelope {
            Envelope::ToClients(_, client::In::Answers { answers }) => answers
                .iter()
                .map(|it| format!("{:?}", it.outcome))
                .collect(),
            _ => Vec::new(),
        };
        sends.iter().flat_map(of).collect()
    };
    tail.tell(forward(1, 0, 1, &[b"a"]));
    let first = results(tail.tell(stored(0, 2)));
    assert_eq!(first.len(), 2, "the session, and the write");
    tail.tell(forward(1, 0, 2, &[b"a"]));
    assert_eq!(results(tail.tell(stored(0, 3))), first[1..]);
    assert_eq!(tail.role.applied(), Slot(3));
}

/// The tail's answer may not reach the client, which has asked another node than the head.
#[test]
fn a_node_answers_a_write_that_a_client_sent_it_once_when_it_applies_it() {
    let mut middle = node(1, 3);
    middle.tell(write(b"a"));
    middle.tell(forward(0, 0, 0, &[b"a", b"a"]));
    assert_eq!(answered(&middle.tell(ack(2, 0, 1, 1))), [0]);
    assert_eq!(answered(&middle.tell(ack(2, 0, 2, 2))), []);
    // Another node has handed it on, or a batcher has sent it.
    for (from, handed) in [(None, true), (Some((BatcherId(0), 1)), false)] {
        let mut middle = node(1, 3);
        let batch = stage::batch(&b"a"[..]);
        middle.tell(In::Write {
            batch,
            from,
            handed,
        });
        middle.tell(forward(0, 0, 0, &[b"a"]));
        assert_eq!(answered(&middle.tell(ack(2, 0, 1, 1))), []);
    }
}

/// Of what a node has noted it keeps the last.
#[test]
fn of_many_writes_that_clients_sent_a_node_it_answers_the_last() {
    let mut middle = node(1, 3);
    let numbered = |number| stage::of_command(number, &b"a"[..]);
    for number in 0..3000 {
        middle.tell(In::Write {
            batch: numbered(number),
            from: None,
            handed: false,
        });
    }
    let value = |number| Value {
        stamp: Timestamp(1000),
        batch: numbered(number),
    };
    middle.tell(In::Forward {
        from: ChainNodeId(0),
        epoch: ChainEpoch(0),
        start: Slot(0),
        values: [0, 1023, 1024, 2999].map(value).to_vec(),
    });
    assert_eq!(answered(&middle.tell(ack(2, 0, 4, 4))), [1024, 2999]);
}

/// The tail of a chain with two unbatchers.
fn with_unbatchers() -> Stage<ChainNode> {
    let mut layout = layout(3);
    let on = [50, 51].map(NodeId).to_vec();
    layout.instances[kind::Unbatcher as usize] = numbered(vec![on]).remove(0);
    let config = Craq::configure(layout).expect("a deployment");
    let mut tail = Stage::new(config, &birth(2), ChainNode::new);
    settle(&mut tail, 2, 3);
    tail
}

#[test]
fn answers_go_to_unbatchers_that_live() {
    let mut tail = with_unbatchers();
    let mut number = 0;
    let mut used = |tail: &mut Stage<ChainNode>| -> Vec<u8> {
        let mut unbatcher = || {
            tail.tell(forward(1, 0, number, &[b"a"]));
            number += 1;
            let sends = tail.tell(stored(0, number));
            let to = sends.iter().find_map(|envelope| match envelope {
                Envelope::ToUnbatchers(to, _) => to.iter().next(),
                _ => None,
            });
            to.expect("an unbatcher has the answer").0
        };
        let mut used = [unbatcher(), unbatcher(), unbatcher(), unbatcher()];
        used.sort_unstable();
        used.into()
    };
    assert_eq!(used(&mut tail), [0, 0, 1, 1]);
    for _ in 0..4 {
        tail.now = tail.now + Duration::from_millis(250);
        let from = UnbatcherId(1);
        assert_eq!(tail.tell(In::UnbatcherAlive { from }), []);
    }
    assert_eq!(used(&mut tail), [1, 1, 1, 1]);
    let from = UnbatcherId(0);
    tail.tell(In::UnbatcherAlive { from });
    assert_eq!(used(&mut tail), [0, 0, 1, 1]);
}

#[test]
fn an_unbatcher_tells_all_chain_nodes_that_it_lives() {
    let mut layout = layout(3);
    let on = [50, 51].map(NodeId).to_vec();
    layout.instances[kind::Unbatcher as usize] = numbered(vec![on]).remove(0);
    let config = Craq::configure(layout).expect("a deployment");
    let birth = stage::birth(kind::Unbatcher, 1, NodeId(51));
    let make = |config: Arc<Config>, birth: &Birth<'_>| {
        let birth = Birth { ..*birth };
        match Craq::instantiate(&config, birth) {
            Instance::Unbatcher(unbatcher) => unbatcher,
            _ => panic!("an unbatcher"),
        }
    };
    let mut unbatcher = Stage::new(config, &birth, make);
    let from = UnbatcherId(1);
    let alive = Envelope::ToChainNodes(Set::first(3), In::UnbatcherAlive { from });
    let sends = [unbatcher.timer(), unbatcher.timer()].concat();
    assert_eq!(sends, [alive.clone(), alive]);
}

/// With f+1 chain nodes no clock is left if f nodes are dead. A head that has members behind it
/// learns theirs all the same: the fewest that are right are one.
#[test]
fn a_head_of_f_plus_1_nodes_stamps_nothing_before_it_knows_the_clocks_of_all_members() {
    let mut layout = layout(3);
    layout.f = 2;
    let master = (20..25).map(NodeId).collect::<Vec<_>>();
    for kind in [
        kind::Leader,
        kind::ProxyLeader,
        kind::Acceptor,
        kind::Master,
    ] {
        layout.instances[kind as usize] = numbered(vec![master.clone()]).remove(0);
    }
    let config = Craq::configure(layout).expect("a deployment");
    let mut head = Stage::new(config.clone(), &birth(0), ChainNode::new);
    head.tell(write(b"a"));
    assert_eq!(without_master(head.asked(beat(1, 0, true))).records, []);
    let asked = without_master(head.asked(beat(2, 0, true)));
    assert_eq!(asked.records, [entry(0, 0, b"a")]);
    // The last member can learn no other.
    let mut head = Stage::new(config, &birth(0), ChainNode::new);
    head.tell(In::Chain {
        chain: chain(1, &[(0, 1)]),
    });
    let asked = without_master(head.asked(write(b"a")));
    assert_eq!(asked.records, [entry(0, 0, b"a")]);
}

/// It knows no other clock: its own may be wrong.
#[test]
fn a_head_stamps_nothing_before_it_knows_another_clock() {
    let mut head = Stage::new(config(3), &birth(0), ChainNode::new);
    let asked = without_master(head.asked(write(b"a")));
    assert_eq!(asked.records, []);
    let asked = without_master(head.asked(beat(1, 0, true)));
    assert_eq!(asked.records, [entry(0, 0, b"a")]);
}

/// The head of a chain of three with this window.
fn head(slots: usize, bytes: usize) -> Stage<ChainNode> {
    let mut layout = layout(3);
    (layout.options.window_slots, layout.options.window_bytes) = (slots, bytes);
    let config = Craq::configure(layout).expect("a deployment");
    let mut head = Stage::new(config, &birth(0), ChainNode::new);
    settle(&mut head, 0, 3);
    head
}

/// A write with this number in its session.
fn numbered_write(number: u64, payload: impl Into<bytes::Bytes>) -> In {
    In::Write {
        batch: crate::stage::of_command(number, payload),
        from: None,
        handed: false,
    }
}

/// The sizes of the batches of entries that were passed on.
fn passed_on(sends: &[Envelope]) -> Vec<usize> {
    let values = sends.iter().filter_map(|envelope| match envelope {
        Envelope::ToChainNodes(_, In::Forward { values, .. }) => Some(values),
        _ => None,
    });
    values
        .flatten()
        .flat_map(|value| value.batch.commands())
        .map(|command| command.payload.len())
        .collect()
}

#[test]
fn what_does_not_fit_the_window_waits_and_what_comes_again_meanwhile_is_dropped() {
    let mut head = head(2, 1 << 20);
    for number in 0..4 {
        head.tell(numbered_write(number, "a"));
    }
    for again in [1, 2, 3] {
        head.tell(numbered_write(again, "a"));
    }
    assert_eq!(head.role.received(), Slot(2));
    assert_eq!((head.figure("dropped"), head.figure("repeated")), (0, 3));
    head.tell(ack(1, 0, 1, 1));
    assert_eq!(head.role.received(), Slot(3));
    head.tell(ack(1, 0, 3, 3));
    assert_eq!(head.role.received(), Slot(4), "each once");
    head.tell(numbered_write(3, "a"));
    assert_eq!(
        head.role.received(),
        Slot(5),
        "nothing waits: it comes anew"
    );
}

/// The window has 6,400 bytes for small writes, of 100 bytes at most, and as many for large ones.
#[test]
fn small_writes_do_not_wait_for_large_ones() {
    let mut head = head(100, 6400);
    for number in 0..3 {
        head.tell(numbered_write(number, vec![7; 4000]));
    }
    assert_eq!(head.role.received(), Slot(1), "two large ones wait");
    assert_eq!(passed_on(&head.tell(numbered_write(3, "a"))), [1]);
    let sends = head.tell(ack(1, 0, 2, 2));
    assert_eq!(passed_on(&sends), [4000], "the next of the large ones");
    assert_eq!(head.figure("dropped"), 0);
}

#[test]
fn after_a_crash_a_node_has_its_chain_and_its_entries_and_finds_its_neighbours() {
    let two = chain(4, &[(0, 1), (1, 1)]);
    let records = vec![
        Record::Life { life: 1 },
        Record::Entry {
            slot: Slot(0),
            committed: Slot(0),
            value: value(b"a"),
        },
        Record::Entry {
            slot: Slot(1),
            committed: Slot(1),
            value: value(b"x"),
        },
        Record::Entered {
            chain: two.clone(),
            end: Slot(1),
        },
        Record::Entry {
            slot: Slot(1),
            committed: Slot(1),
            value: value(b"b"),
        },
    ];
    let mut role = ChainNode::new(config(3), &birth(0));
    use ionian_kernel::role::Role;
    records.into_iter().for_each(|record| role.recover(record));
    let mut head = Stage::unstarted(role, true);
    let sends = between_nodes(head.started().sends.into_iter().map(|it| it.0).collect());
    let beats: Vec<bool> = sends
        .iter()
        .filter_map(|envelope| match envelope {
            Envelope::ToChainNodes(_, In::Beat { synced, .. }) => Some(*synced),
            _ => None,
        })
        .collect();
    assert!(beats.iter().all(|synced| !synced), "{sends:?}");
    assert_eq!(head.role.chain(), &two);
    assert_eq!(
        (head.role.applied(), head.role.received()),
        (Slot(1), Slot(2))
    );
    let sends = head.tell(In::Sync {
        from: ChainNodeId(1),
        epoch: ChainEpoch(4),
        received: Slot(1),
    });
    let handover = In::Handover {
        from: ChainNodeId(0),
        epoch: ChainEpoch(4),
    };
    assert_eq!(
        between_nodes(sends),
        [to(1, handover), to(1, forward(0, 4, 1, &[b"b"]))]
    );
    // All that has no key is written again before it is forgotten.
    let life = encode_all(&Record::Life { life: 1 });
    let entered = encode_all(&Record::Entered {
        chain: two,
        end: Slot(2),
    });
    assert_eq!(head.checkpoint().records, [(life, true), (entered, false)]);
}
