//! A reader that asks acceptors through relays (PigPaxos 8.2).

use super::*;
use ionian_protocols::multipaxos::message::ReaderId;
use ionian_protocols::multipaxos::read_batcher::{In, ReadBatcher};
use ionian_protocols::pigpaxos::message::Watermarks;

const READER: ReaderId = ReaderId::ReadBatcher {
    id: ReadBatcherId(0),
};

/// Read batcher 0, on node 0 of five.
fn reader_with(options: &[(&'static str, u64)]) -> Stage<ReadBatcher> {
    let mut layout = layout(5, options);
    let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
    layout.instances[usize::from(kind::ReadBatcher)] = nodes.into();
    let config = MultiPaxos::configure(layout).expect("a deployment");
    let birth = birth(kind::ReadBatcher, 0, NodeId(0));
    Stage::new(config, &birth, ReadBatcher::new)
}

fn reads() -> In {
    In::Reads { reads: batch("a") }
}

/// The inquiry that goes to a relay: its number, the relay, the acceptors.
fn relayed(asked: &Asked<Envelope>) -> (u64, RelayId, AcceptorSet) {
    let found = asked.sends.iter().find_map(|(envelope, _)| match envelope {
        Envelope::ToRelays(
            to,
            relay::In::PreRead {
                from: READER,
                members,
                patience: PATIENCE,
                inquiry,
            },
        ) => Some((*inquiry, to.iter().next()?, *members)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{asked:?}"))
}

fn watermarks(inquiry: u64, relay: Option<u8>, answered: &[u8], watermark: u64) -> In {
    In::Watermarks {
        watermarks: Box::new(Watermarks {
            relay: relay.map(RelayId),
            inquiry,
            answered: set(answered),
            watermark: Slot(watermark),
            epoch: Epoch(0),
            ahead: AcceptorId(answered[0]),
            executed: Slot(0),
            missing: AcceptorSet::EMPTY,
        }),
    }
}

/// The watermark of an acceptor that knows how far the replica of its node is.
fn at_executed(inquiry: u64, from: u8, watermark: u64, executed: u64) -> In {
    let In::Watermarks { mut watermarks } = watermarks(inquiry, None, &[from], watermark) else {
        unreachable!("just made")
    };
    watermarks.executed = Slot(executed);
    In::Watermarks { watermarks }
}

fn pre_read(to: &[u8], inquiry: u64) -> Envelope {
    let from = READER;
    Envelope::ToAcceptors(set(to), acceptor::In::PreRead { from, inquiry })
}

fn ack(from: u8, inquiry: u64, watermark: u64) -> In {
    In::PreReadAck {
        from: AcceptorId(from),
        inquiry,
        watermark: Slot(watermark),
        epoch: Epoch(0),
    }
}

/// What is read, and what a replica must have executed for it.
fn read(watermark: u64) -> Asked<Envelope> {
    read_from(0, watermark)
}

fn read_from(replica: u8, watermark: u64) -> Asked<Envelope> {
    let message = replica::In::Read {
        reads: batch("a"),
        executed: Slot(watermark),
    };
    only(vec![Envelope::ToReplicas(
        Set::one(ReplicaId(replica)),
        message,
    )])
}

#[test]
fn a_reader_asks_its_own_acceptor_and_the_others_of_a_quorum_through_a_relay() {
    let mut reader = reader_with(&[("relay_reads", 1)]);
    let asked = reader.asked(reads());
    let (inquiry, relay, members) = relayed(&asked);
    assert_eq!((members.len(), asked.sends.len()), (2, 2));
    assert!(members.contains(AcceptorId(relay.0)) && !members.contains(AcceptorId(0)));
    assert_eq!(
        asked.sends.last().map(|it| &it.0),
        Some(&pre_read(&[0], inquiry))
    );
    // The largest of all watermarks, when the names are a read quorum.
    let group: Vec<u8> = members.iter().map(|it| it.0).collect();
    assert_eq!(reader.asked(ack(0, inquiry, 8)), only(vec![]));
    let told = watermarks(inquiry, Some(relay.0), &group, 5);
    assert_eq!(reader.asked(told.clone()), read(8));
    assert_eq!(reader.asked(told), only(vec![]), "it is over");
}

/// Names count, and not messages.
#[test]
pub(crate) fn watermarks_of_the_same_acceptors_are_no_read_quorum() {
    let mut reader = reader_with(&[("relay_reads", 1)]);
    let (inquiry, ..) = relayed(&reader.asked(reads()));
    for _ in 0..3 {
        let told = watermarks(inquiry, Some(1), &[1, 2], 5);
        assert_eq!(reader.asked(told), only(vec![]));
    }
    assert_eq!(reader.asked(ack(0, inquiry, 3)), read(5));
}

#[test]
fn what_no_relay_has_answered_is_asked_of_all_acceptors_directly() {
    let mut reader = reader_with(&[("relay_reads", 1)]);
    let (inquiry, ..) = relayed(&reader.asked(reads()));
    reader.asked(ack(0, inquiry, 3));
    let again = reader.waited(Duration::from_micros(PATIENCE));
    assert_eq!(again, only(vec![pre_read(&[1, 2, 3, 4], inquiry)]));
}

#[test]
fn reads_use_relays_only_if_they_are_told_to() {
    let mut reader = reader_with(&[]);
    let asked = reader.asked(reads());
    let [(Envelope::ToAcceptors(to, acceptor::In::PreRead { .. }), Some(0))] = &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    assert!(to.len() == 3 && to.contains(AcceptorId(0)));
}

fn inquiry(asked: &Asked<Envelope>) -> (u64, Vec<u8>) {
    let [(Envelope::ToAcceptors(to, acceptor::In::PreRead { inquiry, .. }), Some(0))] =
        &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    (*inquiry, to.iter().map(|it| it.0).collect())
}

/// 8.2: a replica that has executed what was voted for need not wait for it.
#[test]
fn a_read_goes_to_a_replica_that_has_executed_the_largest_watermark_if_one_is_known() {
    let with = &[("read_at_executed", 1)];
    for (executed, chosen) in [([7, 8, 6], 1), ([8, 8, 8], 0), ([7, 6, 5], 0)] {
        let mut reader = reader_with(with);
        let (inquiry, asked) = inquiry(&reader.asked(reads()));
        for (place, watermark) in [(0, 7), (1, 8)] {
            let told = at_executed(inquiry, asked[place], watermark, executed[place]);
            assert_eq!(reader.asked(told), only(vec![]));
        }
        let last = at_executed(inquiry, asked[2], 6, executed[2]);
        assert_eq!(reader.asked(last), read_from(asked[chosen], 8));
    }
}

/// What an acceptor has voted for may be executed nowhere, and what a replica has
/// executed may be less than another acceptor has voted for.
#[test]
pub(crate) fn a_read_sees_the_largest_watermark_whatever_replicas_have_executed() {
    let mut reader = reader_with(&[("read_at_executed", 1)]);
    let (inquiry, asked) = inquiry(&reader.asked(reads()));
    reader.asked(at_executed(inquiry, asked[0], 5, 5));
    reader.asked(at_executed(inquiry, asked[1], 9, 5));
    let last = at_executed(inquiry, asked[2], 5, 5);
    assert_eq!(reader.asked(last), read(9));
}

/// Acceptors 0, 1 and 2 are being replaced by 3, 4 and 5, on the nodes of these numbers.
fn joint() -> <MultiPaxos as Protocol>::Config {
    let with = |acceptors: [u8; 3]| {
        let mut layout = layout(6, &[("relay_reads", 1)]);
        let nodes: Vec<NodeId> = (0..6).map(NodeId).collect();
        layout.f = 1;
        layout.instances[usize::from(kind::ReadBatcher)] = nodes.into();
        let places = acceptors.map(|index| (index, NodeId(index.into())));
        layout.instances[usize::from(kind::Acceptor)] = places.into_iter().collect();
        layout
    };
    let joint = Layout {
        epoch: Epoch(1),
        next: Some(Box::new(with([3, 4, 5]))),
        ..with([0, 1, 2])
    };
    MultiPaxos::configure(joint).expect("a deployment")
}

/// Acceptor 3 has promised a round of both configurations, which no leader leads because 4 and 5
/// are down: the acceptors of the configuration before are enough.
#[test]
pub(crate) fn a_new_acceptor_of_a_later_epoch_stops_no_read_through_its_relay() {
    let birth_of = |kind, index: u8| birth(kind, index, NodeId(index.into()));
    let mut reader = Stage::new(joint(), &birth_of(kind::ReadBatcher, 0), ReadBatcher::new);
    let mut relay = Stage::new(joint(), &birth_of(kind::Relay, 1), Relay::new);
    let (inquiry, ..) = relayed(&reader.asked(reads()));
    relay.tell(relay::In::PreRead {
        from: READER,
        members: set(&[1, 2, 3]),
        patience: PATIENCE,
        inquiry,
    });
    let mut told = Vec::new();
    for (from, watermark, epoch) in [(1, 8, 0), (3, 0, 1), (2, 7, 0)] {
        told.extend(relay.tell(relay::In::PreReadAck {
            from: AcceptorId(from),
            reader: READER,
            inquiry,
            watermark: Slot(watermark),
            epoch: Epoch(epoch),
            executed: Slot(0),
        }));
    }
    let mut sent = Vec::new();
    for envelope in told {
        let Envelope::ToReadBatchers(_, message) = envelope else {
            panic!("{envelope:?}")
        };
        sent.extend(reader.asked(message).sends);
    }
    assert_eq!(sent, read(8).sends);
}
