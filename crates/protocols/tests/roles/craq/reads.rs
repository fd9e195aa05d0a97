//! Reads at a chain node: clean ones, dirty ones, and what makes them current.

use super::*;

fn ask(payload: &'static [u8]) -> In {
    In::Read {
        reads: read(7, payload),
        handed: false,
    }
}

fn founding() -> Chain {
    chain(0, &[(0, 1), (1, 1), (2, 1)])
}

/// c2: it may have been removed, and not know.
#[test]
pub(crate) fn c2_a_read_waits_until_the_master_has_said_what_the_chain_is() {
    let mut head = node(0, 3);
    let sends = head.tell(ask(b"a"));
    assert_eq!(answered(&sends), []);
    assert_eq!(inquiries(&sends).len(), 1);
    let sends = master_says(&mut head, &sends, &founding());
    assert_eq!(answered(&sends), [7]);
}

#[test]
fn c2_a_node_that_learns_that_it_was_removed_hands_its_reads_on() {
    let mut head = node(0, 3);
    let sends = head.tell(ask(b"a"));
    let two = chain(1, &[(1, 1), (2, 1)]);
    let sends = master_says(&mut head, &sends, &two);
    assert_eq!(answered(&sends), []);
    let handed = In::Read {
        reads: read(7, b"a"),
        handed: true,
    };
    let is_handed = |node| sends.contains(&to(node, handed.clone()));
    assert!(is_handed(1) || is_handed(2), "{sends:?}");
}

/// One inquiry for all that came before it.
#[test]
fn reads_that_come_during_an_inquiry_wait_for_the_next_one() {
    let mut head = node(0, 3);
    let first = head.tell(ask(b"a"));
    let none = head.tell(In::Read {
        reads: read(8, b"b"),
        handed: false,
    });
    assert_eq!(inquiries(&none), []);
    let sends = master_says(&mut head, &first, &founding());
    assert_eq!(answered(&sends), [7]);
    assert_eq!(inquiries(&sends).len(), 1);
    let sends = master_says(&mut head, &sends, &founding());
    assert_eq!(answered(&sends), [8]);
}

/// Answers a read with the time that it is given.
struct Clock;

impl StateMachine for Clock {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, now: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        reply.extend_from_slice(now.0.to_string().as_bytes());
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

#[test]
fn the_time_of_a_read_is_no_more_than_half_a_second_from_the_clocks_of_others() {
    let machine = || -> Box<dyn StateMachine> { Box::new(Clock) };
    let birth = Birth {
        machine: &machine,
        ..birth(1)
    };
    for (ms, told) in [(86_400_000, "1500"), (0, "500"), (1400, "1400")] {
        let mut node = Stage::new(config(3), &birth, ChainNode::new);
        node.now = Instant(ms * 1000);
        settle(&mut node, 1, 3);
        let sends = node.tell(In::ReadAt {
            reads: read(7, b"a"),
            executed: Slot(0),
        });
        let [Envelope::ToClients(_, client::In::Answers { answers })] = &sends[..] else {
            panic!("an answer: {sends:?}");
        };
        let outcomes: Vec<_> = answers.iter().map(|answer| answer.outcome).collect();
        assert_eq!(outcomes, [Outcome::Done(told.into())], "at {ms} ms");
    }
}

/// The tail's answer is an acknowledgement: the node applies, and answers.
#[test]
fn a_dirty_read_asks_the_tail_and_a_clean_one_does_not() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    let sends = head.tell(ask(b"b"));
    assert_eq!(answered(&master_says(&mut head, &sends, &founding())), [7]);
    // It asks the master and the tail at the same time.
    let sends = head.tell(ask(b"a"));
    let [Envelope::ToChainNodes(tail, In::Query { epoch, inquiry, .. })] =
        &between_nodes(sends.clone())[..]
    else {
        panic!("a question to the tail");
    };
    assert_eq!(answered(&master_says(&mut head, &sends, &founding())), []);
    assert_eq!((*tail, *epoch), (Set::one(ChainNodeId(2)), ChainEpoch(0)));
    let committed = |epoch, inquiry| In::Committed {
        epoch: ChainEpoch(epoch),
        inquiry,
        committed: Slot(1),
    };
    // c4: the tail of another chain, or the answer to another question.
    assert_eq!(answered(&head.tell(committed(1, *inquiry))), []);
    assert_eq!(answered(&head.tell(committed(0, inquiry + 1))), []);
    assert_eq!(head.role.applied(), Slot(0));
    assert_eq!(answered(&head.tell(committed(0, *inquiry))), [7]);
    assert_eq!(head.role.applied(), Slot(1));
}

/// The tail may have been removed, and not know.
#[test]
fn the_word_of_the_tail_is_not_enough_for_a_dirty_read() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    let asked = head.tell(ask(b"a"));
    let [Envelope::ToChainNodes(_, In::Query { inquiry, .. })] = &between_nodes(asked.clone())[..]
    else {
        panic!("a question to the tail");
    };
    let committed = In::Committed {
        epoch: ChainEpoch(0),
        inquiry: *inquiry,
        committed: Slot(1),
    };
    assert_eq!(answered(&head.tell(committed)), []);
    assert_eq!(answered(&master_says(&mut head, &asked, &founding())), [7]);
}

/// The tail of an earlier chain knows nothing of what the present one has committed since.
#[test]
pub(crate) fn c4_what_the_tail_of_another_chain_has_said_is_not_enough() {
    let mut head = node(0, 4);
    head.tell(write(b"a"));
    let asked = head.tell(ask(b"a"));
    let [Envelope::ToChainNodes(_, In::Query { inquiry, .. })] = &between_nodes(asked.clone())[..]
    else {
        panic!("a question to the tail");
    };
    let committed = |epoch, inquiry, committed| In::Committed {
        epoch: ChainEpoch(epoch),
        inquiry,
        committed: Slot(committed),
    };
    assert_eq!(answered(&head.tell(committed(0, *inquiry, 0))), []);
    // Without the tail, the entry is committed, and acknowledged perhaps.
    let three = chain(1, &[(0, 1), (1, 1), (2, 1)]);
    let sends = master_says(&mut head, &asked, &three);
    assert_eq!(answered(&sends), []);
    let anew = In::Query {
        from: ChainNodeId(0),
        epoch: ChainEpoch(1),
        inquiry: inquiry + 1,
    };
    assert!(sends.contains(&to(2, anew)), "{sends:?}");
    assert_eq!(answered(&head.tell(committed(1, inquiry + 1, 1))), [7]);
    assert_eq!(head.role.applied(), Slot(1));
}

/// The way to the tail alone may be cut: what the read must see is applied.
#[test]
fn a_dirty_read_needs_no_tail_once_what_it_must_see_is_committed() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    let asked = head.tell(ask(b"a"));
    assert_eq!(answered(&master_says(&mut head, &asked, &founding())), []);
    // A later write is none of them.
    head.tell(write(b"a"));
    assert_eq!(answered(&head.tell(ack(1, 0, 2, 1))), [7]);
    let asked = head.tell(ask(b"a"));
    assert_eq!(answered(&head.tell(ack(1, 0, 2, 2))), []);
    assert_eq!(answered(&master_says(&mut head, &asked, &founding())), [7]);
}

/// c12: an older write to the key is acknowledged, and a newer one is under way.
#[test]
pub(crate) fn c12_a_key_is_clean_when_no_write_to_it_is_under_way() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    head.tell(write(b"a"));
    head.tell(ack(1, 0, 2, 1));
    let sends = head.tell(ask(b"a"));
    let sends = master_says(&mut head, &sends, &founding());
    assert_eq!(answered(&sends), []);
    assert_eq!(head.figure("dirty_reads"), 1);
}

/// c13: what it has received, and its disk has not, a crash could undo.
#[test]
fn c13_the_tail_says_what_is_committed_and_not_what_it_has_received() {
    let mut tail = node(2, 3);
    tail.tell(forward(1, 0, 0, &[b"a"]));
    let query = |epoch| In::Query {
        from: ChainNodeId(0),
        epoch: ChainEpoch(epoch),
        inquiry: 5,
    };
    let committed = |slot| In::Committed {
        epoch: ChainEpoch(0),
        inquiry: 5,
        committed: Slot(slot),
    };
    assert_eq!(tail.tell(query(0)), [to(0, committed(0))]);
    tail.tell(stored(0, 1));
    assert_eq!(tail.tell(query(0)), [to(0, committed(1))]);
    let mut middle = node(1, 3);
    assert_eq!(
        between_nodes(middle.tell(query(0))),
        [],
        "it is not the tail"
    );
}

/// The old tail may have committed what the new one has received and not on its disk.
#[test]
pub(crate) fn c4_a_new_tail_says_nothing_before_it_has_committed_what_it_had_received() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a"]));
    middle.tell(In::Chain {
        chain: chain(1, &[(0, 1), (1, 1)]),
    });
    middle.tell(In::Handover {
        from: ChainNodeId(0),
        epoch: ChainEpoch(1),
    });
    let query = In::Query {
        from: ChainNodeId(0),
        epoch: ChainEpoch(1),
        inquiry: 5,
    };
    assert_eq!(between_nodes(middle.tell(query)), []);
    let sends = middle.tell(stored(1, 1));
    let committed = In::Committed {
        epoch: ChainEpoch(1),
        inquiry: 5,
        committed: Slot(1),
    };
    assert!(sends.contains(&to(0, committed)), "{sends:?}");
}

/// It may have committed and answered before the crash what it does not know to be committed.
#[test]
fn c4_a_tail_that_has_restarted_says_nothing_before_it_has_committed_what_it_has() {
    let records = vec![
        Record::Life { life: 1 },
        Record::Entry {
            slot: Slot(0),
            committed: Slot(0),
            value: value(b"a"),
        },
    ];
    let mut tail = Stage::after(config(3), &birth(2), records, ChainNode::new);
    let query = In::Query {
        from: ChainNodeId(0),
        epoch: ChainEpoch(0),
        inquiry: 5,
    };
    assert_eq!(between_nodes(tail.tell(query)), []);
    assert_eq!(inquiries(&tail.tell(ask(b"a"))), []);
    settle(&mut tail, 2, 3);
    let sends = tail.tell(stored(0, 1));
    let committed = In::Committed {
        epoch: ChainEpoch(0),
        inquiry: 5,
        committed: Slot(1),
    };
    assert!(sends.contains(&to(0, committed)), "{sends:?}");
    assert_eq!(answered(&master_says(&mut tail, &sends, &founding())), [7]);
}

/// What it has applied is all that is committed.
#[test]
fn no_read_is_dirty_at_the_tail() {
    let mut tail = node(2, 3);
    tail.tell(forward(1, 0, 0, &[b"a"]));
    let sends = tail.tell(ask(b"a"));
    assert_eq!(answered(&master_says(&mut tail, &sends, &founding())), [7]);
}

/// Earlier tails may have committed what it had received when it became the tail.
#[test]
fn reads_at_a_new_tail_wait_until_it_has_committed_what_it_had_received() {
    let mut middle = node(1, 3);
    middle.tell(forward(0, 0, 0, &[b"a"]));
    let two = chain(1, &[(0, 1), (1, 1)]);
    middle.tell(In::Chain { chain: two.clone() });
    assert_eq!(inquiries(&middle.tell(ask(b"a"))), []);
    middle.tell(In::Handover {
        from: ChainNodeId(0),
        epoch: ChainEpoch(1),
    });
    let sends = middle.tell(stored(1, 1));
    assert_eq!(answered(&sends), [0]);
    assert_eq!(answered(&master_says(&mut middle, &sends, &two)), [7]);
}

#[test]
fn a_dirty_read_goes_to_the_new_tail_when_the_chain_changes() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    let sends = head.tell(ask(b"a"));
    master_says(&mut head, &sends, &founding());
    let sends = head.tell(In::Chain {
        chain: chain(1, &[(0, 1), (1, 1)]),
    });
    let asks = |envelope: &Envelope| {
        matches!(envelope, Envelope::ToChainNodes(to, In::Query { epoch: ChainEpoch(1), .. })
            if *to == Set::one(ChainNodeId(1)))
    };
    assert!(sends.iter().any(asks), "{sends:?}");
    // Alone it is the tail itself.
    let alone = chain(2, &[(0, 1)]);
    head.tell(In::Chain {
        chain: alone.clone(),
    });
    let sends = head.tell(stored(2, 1));
    assert_eq!(answered(&sends), [0]);
    assert_eq!(answered(&master_says(&mut head, &sends, &alone)), [7]);
}

#[test]
fn a_sequential_read_waits_for_what_its_client_has_seen_and_needs_no_inquiry() {
    let mut head = node(0, 3);
    head.tell(write(b"a"));
    let at = |executed| In::ReadAt {
        reads: read(7, b"a"),
        executed: Slot(executed),
    };
    assert_eq!(answered(&head.tell(at(0))), [7]);
    let sends = head.tell(at(1));
    assert_eq!((answered(&sends), inquiries(&sends)), (vec![], vec![]));
    assert_eq!(answered(&head.tell(ack(1, 0, 1, 1))), [7]);
}

#[test]
fn with_forward_reads_the_tail_executes_dirty_reads() {
    let forwards = || {
        let mut layout = layout(3);
        layout.options.own.insert("forward_reads", 1);
        Craq::configure(layout).expect("a deployment")
    };
    let mut head = Stage::new(forwards(), &birth(0), ChainNode::new);
    settle(&mut head, 0, 3);
    head.tell(write(b"a"));
    let sends = head.tell(ask(b"a"));
    let at_tail = In::Read {
        reads: read(7, b"a"),
        handed: true,
    };
    assert_eq!(between_nodes(sends), [to(2, at_tail.clone())]);
    let mut middle = Stage::new(forwards(), &birth(1), ChainNode::new);
    settle(&mut middle, 1, 3);
    middle.tell(forward(0, 0, 0, &[b"a"]));
    let sends = between_nodes(middle.tell(at_tail));
    let [Envelope::ToChainNodes(_, In::Query { .. })] = &sends[..] else {
        panic!("one that is not the tail asks it: {sends:?}");
    };
}
