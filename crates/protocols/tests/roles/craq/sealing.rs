//! How a node joins through a member that is sealed.

use super::master::join;
use super::*;
use crate::stage::only;
use ionian_kernel::role::Role;
use ionian_kernel::wire::encode_all;
use ionian_protocols::craq::message::Step;

fn seal(from: u8, epoch: u64, start: u64) -> In {
    In::Seal {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        start: Slot(start),
    }
}

fn sealed(from: u8, epoch: u64, (start, payloads): (u64, &[&'static [u8]]), end: u64) -> In {
    In::Sealed {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        start: Slot(start),
        values: payloads.iter().map(|payload| value(payload)).collect(),
        end: Slot(end),
    }
}

fn renew(epoch: u64, from: u8) -> Step {
    Step::Renew {
        epoch: ChainEpoch(epoch),
        from: ChainNodeId(from),
        life: 1,
    }
}

fn record(record: &Record) -> (Vec<u8>, bool) {
    (encode_all(record), false)
}

fn two() -> Chain {
    chain(1, &[(0, 1), (1, 1)])
}

fn enter(node: &mut Stage<ChainNode>, chain: &Chain) -> Vec<Envelope> {
    let chain = chain.clone();
    node.tell(In::Chain { chain })
}

/// Chain node 1 of the chain of 0 and 1, which has received two entries and applied one.
fn tail() -> Stage<ChainNode> {
    let mut tail = node(1, 3);
    enter(&mut tail, &two());
    let from = ChainNodeId(0);
    let epoch = ChainEpoch(1);
    tail.tell(In::Handover { from, epoch });
    tail.tell(forward(0, 1, 0, &[b"a", b"b"]));
    tail.tell(stored(1, 1));
    tail
}

/// What a member holds may be committed at any moment by an earlier member in line, so it says all
/// of it; and it must not change afterwards.
#[test]
pub(crate) fn c5_a_sealed_member_says_what_it_holds_and_takes_nothing_more() {
    let mut tail = tail();
    let asked = without_master(tail.asked(seal(2, 1, 0)));
    let epoch = ChainEpoch(1);
    let answer = to(2, sealed(1, 1, (0, &[b"a", b"b"]), 2));
    assert_eq!(
        asked,
        only(
            vec![record(&Record::Sealed { epoch })],
            vec![(answer, Some(1))]
        )
    );
    tail.tell(forward(0, 1, 2, &[b"c"]));
    assert_eq!(tail.role.received(), Slot(2));
}

/// The node that joins may hold what the member held before it crashed.
#[test]
pub(crate) fn a_member_is_sealed_still_after_a_restart() {
    let epoch = ChainEpoch(1);
    let records = [
        Record::Entered {
            chain: two(),
            end: Slot(2),
        },
        Record::Sealed { epoch },
    ];
    let mut role = ChainNode::new(config(3), &birth(1));
    role.recover(Record::Life { life: 1 });
    records.into_iter().for_each(|record| role.recover(record));
    let mut again = Stage::unstarted(role, true);
    again.started();
    again.tell(forward(0, 1, 0, &[b"c"]));
    assert_eq!(again.role.received(), Slot(0));
    let written = again.checkpoint().records;
    assert_eq!(written.last(), Some(&record(&Record::Sealed { epoch })));
}

/// A head that is sealed numbers nothing; in the next epoch it goes on.
#[test]
fn a_sealed_head_numbers_nothing_until_the_next_epoch() {
    let mut head = node(0, 3);
    enter(&mut head, &two());
    head.tell(seal(2, 1, 0));
    assert_eq!(without_master(head.asked(write(b"a"))).records, []);
    let three = chain(2, &[(0, 1), (2, 1), (1, 1)]);
    let asked = head.asked(In::Chain { chain: three });
    assert_eq!(asked.records[1..], [entry(0, 0, b"a")]);
}

/// Messages of another epoch, of a member, and from behind what it has, seal nothing.
#[test]
fn only_a_node_outside_the_chain_has_a_member_sealed() {
    let mut tail = tail();
    for message in [seal(2, 0, 0), seal(0, 1, 0), seal(2, 1, 3), seal(7, 1, 0)] {
        let asked = without_master(tail.asked(message.clone()));
        assert_eq!(asked.records, [], "{message:?}");
    }
    tail.tell(forward(0, 1, 2, &[b"c"]));
    assert_eq!(tail.role.received(), Slot(3));
}

/// Chain node 2, outside the chain of 0 and 1, which has a session with the master, has waited, and
/// hears these. It copies, and lacks nothing.
fn outside(heard: &[In]) -> (Stage<ChainNode>, Vec<Envelope>) {
    let mut joins = Stage::new(config(3), &birth(2), ChainNode::new);
    let sends = joins.started().sends.into_iter().map(|it| it.0);
    let opens: Vec<_> = sends.collect();
    leases::steps(&mut joins, &opens);
    enter(&mut joins, &two());
    // It was removed: it waits for a while.
    joins.now = joins.now + Duration::from_secs(1);
    heard.iter().for_each(|beat| drop(joins.tell(beat.clone())));
    for _ in 0..100 {
        let sends = joins.timer();
        if !inquiries(&sends).is_empty() {
            master_says(&mut joins, &sends, &two());
            break;
        }
    }
    heard.iter().for_each(|beat| drop(joins.tell(beat.clone())));
    let sends = joins.tell(In::Entries {
        from: ChainNodeId(1),
        start: Slot(0),
        values: vec![value(b"a")],
        applied: Slot(1),
    });
    (joins, sends)
}

fn suspects(from: u8, hears: Set<ChainNodeId>, node: u8) -> In {
    let mut beat = beat(from, 1, true);
    if let In::Beat {
        suspects,
        hears: to,
        ..
    } = &mut beat
    {
        (*suspects, *to) = (Set::one(ChainNodeId(node)), hears);
    }
    beat
}

/// Whom it asks to be sealed.
fn asks(sends: &[Envelope]) -> Vec<u8> {
    let to = |envelope: &Envelope| match envelope {
        Envelope::ToChainNodes(to, In::Seal { .. }) => to.iter().next().map(|node| node.0),
        _ => None,
    };
    sends.iter().filter_map(to).collect()
}

/// Each would take the other for dead, if two neighbours do not hear each other.
#[test]
fn a_node_has_a_member_sealed_that_it_hears_and_whose_next_one_it_hears() {
    let all = Set::first(6);
    assert_eq!(asks(&outside(&[beat(0, 1, true), beat(1, 1, true)]).1), [1]);
    assert_eq!(asks(&outside(&[beat(1, 1, true)]).1), [1]);
    assert_eq!(asks(&outside(&[beat(0, 1, true)]).1), [], "not the tail");
    assert_eq!(asks(&outside(&[]).1), []);
    // Others take the tail for dead: they may need this node to go on without it.
    assert_eq!(asks(&outside(&[suspects(0, all, 1)]).1), [0]);
}

/// c5: what the sealed member holds may be committed, or become so.
#[test]
pub(crate) fn c5_a_node_asks_for_a_place_when_it_holds_all_that_the_sealed_member_holds() {
    let (mut joins, sends) = outside(&[beat(0, 1, true), beat(1, 1, true)]);
    assert_eq!(asks(&sends), [1]);
    let part = joins.asked(sealed(1, 1, (1, &[b"b"]), 3));
    assert_eq!(part.records, [entry(1, 1, b"b")]);
    let sends: Vec<_> = part.sends.into_iter().map(|it| it.0).collect();
    assert_eq!(asks(&sends), [1]);
    assert_eq!(leases::steps(&mut joins, &sends), []);
    let asked = joins.asked(sealed(1, 1, (2, &[b"c"]), 3));
    let epoch = ChainEpoch(1);
    assert_eq!(
        asked.records,
        [entry(2, 1, b"c"), record(&Record::Joins { epoch })]
    );
    let sends: Vec<_> = asked.sends.into_iter().map(|it| it.0).collect();
    assert_eq!(leases::steps(&mut joins, &sends), [join(1, 2, 1, 1)]);
    // News of the same chain, and entries of others, change nothing of what it holds.
    enter(&mut joins, &revised(1, two()));
    joins.tell(In::Entries {
        from: ChainNodeId(0),
        start: Slot(1),
        values: vec![value(b"x")],
        applied: Slot(2),
    });
    assert_eq!(
        (joins.role.applied(), joins.role.received()),
        (Slot(1), Slot(3))
    );
    let three = chain(2, &[(0, 1), (1, 1), (2, 1)]);
    enter(&mut joins, &three);
    joins.tell(stored(2, 3));
    assert_eq!(
        (joins.role.place(), joins.role.applied()),
        (Some(2), Slot(3))
    );
}

#[test]
fn a_node_without_a_place_in_the_next_chain_drops_what_is_not_committed() {
    let (mut joins, _) = outside(&[beat(0, 1, true), beat(1, 1, true)]);
    joins.tell(sealed(1, 1, (1, &[b"b", b"c"]), 3));
    enter(&mut joins, &chain(2, &[(0, 1), (1, 1)]));
    assert_eq!(joins.role.received(), Slot(1));
}

/// The step may be taken late: it keeps what it holds, and asks for another epoch.
#[test]
fn a_node_that_restarts_after_it_has_asked_for_a_place_keeps_what_it_holds() {
    let epoch = ChainEpoch(1);
    let entry = |slot, payload| Record::Entry {
        slot: Slot(slot),
        committed: Slot(slot.min(1)),
        value: value(payload),
    };
    let recover = |records: &[Record]| {
        let mut role = ChainNode::new(config(3), &birth(2));
        let entered = Record::Entered {
            chain: two(),
            end: Slot(0),
        };
        let first = [Record::Life { life: 1 }, entered];
        let all = first.iter().chain(records);
        all.for_each(|record| role.recover(record.clone()));
        let mut again = Stage::unstarted(role, true);
        let sends = again
            .started()
            .sends
            .into_iter()
            .map(|it| it.0)
            .collect::<Vec<_>>();
        let mut steps = leases::steps(&mut again, &sends);
        for _ in 0..50 {
            let sends = again.timer();
            steps.extend(leases::steps(&mut again, &sends));
        }
        (again.role.received(), steps.first().copied())
    };
    let entries = [entry(0, b"a"), entry(1, b"b")];
    assert_eq!(
        recover(&entries),
        (Slot(1), None),
        "not committed, as far as is known"
    );
    let asked = [&entries[..], &[Record::Joins { epoch }]].concat();
    assert_eq!(recover(&asked), (Slot(2), Some(renew(1, 2))));
}

/// The node that had it sealed may be dead: it waits as long as one may be silent.
#[test]
fn a_sealed_member_asks_for_another_epoch_if_the_node_does_not_come() {
    let mut tail = leaving::with_session(node(1, 3));
    enter(&mut tail, &two());
    tail.tell(seal(2, 1, 0));
    let mut steps = Vec::new();
    for _ in 0..200 {
        tail.tell(beat(0, 1, true));
        tail.tell(beat(2, 1, true));
        let sends = tail.timer();
        steps.extend(leases::steps(&mut tail, &sends));
        if !steps.is_empty() {
            break;
        }
    }
    assert_eq!(steps, [renew(1, 1)]);
    // It was for nothing: it waits before the next.
    enter(&mut tail, &chain(2, &[(0, 1), (1, 1)]));
    assert_eq!(without_master(tail.asked(seal(2, 2, 0))).records, []);
    tail.now = tail.now + Duration::from_secs(1);
    let epoch = ChainEpoch(2);
    let asked = without_master(tail.asked(seal(2, 2, 0)));
    assert_eq!(asked.records, [record(&Record::Sealed { epoch })]);
}
