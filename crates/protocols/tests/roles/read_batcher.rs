//! The rules of a read batcher (compartmentalization, sections 3.4 and 4.1), one test each. All
//! that it asks of its driver is compared.

use crate::servers::{config, only};
use crate::stage::{self, Stage};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::time::Duration;
use ionian_protocols::multipaxos::message::ReaderId;
use ionian_protocols::multipaxos::read_batcher::{In, ReadBatcher};
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, acceptor, kind, replica};
use ionian_replication::batch::{Batch, BatchBuilder, Command, Purpose};

const ID: ReadBatcherId = ReadBatcherId(1);

/// One inquiry at a time.
fn one_in_flight() -> Options {
    Options {
        batches_in_flight: 1,
        ..Options::default()
    }
}

fn reader(options: Options) -> Stage<ReadBatcher> {
    let birth = stage::birth(kind::ReadBatcher, ID.0, NodeId(1));
    Stage::new(config(options), &birth, ReadBatcher::new)
}

fn batch(numbers: &[u64]) -> Batch {
    let mut batch = BatchBuilder::default();
    for number in numbers {
        batch.push(&Command {
            client: ClientId(0),
            purpose: Purpose::Read,
            number: *number,
            floor: 0,
            payload: "?",
        });
    }
    batch.take()
}

fn reads(numbers: &[u64]) -> In {
    In::Reads {
        reads: batch(numbers),
    }
}

fn ack(from: u8, inquiry: u64, watermark: u64) -> In {
    In::PreReadAck {
        from: AcceptorId(from),
        inquiry,
        watermark: Slot(watermark),
        epoch: Epoch::default(),
    }
}

fn pre_read(acceptors: AcceptorSet, inquiry: u64) -> Envelope {
    let from = ReaderId::ReadBatcher { id: ID };
    Envelope::ToAcceptors(acceptors, acceptor::In::PreRead { from, inquiry })
}

/// These reads go to the replica of its node, which must have executed all slots below this one.
fn read(numbers: &[u64], executed: u64) -> Envelope {
    let message = replica::In::Read {
        reads: batch(numbers),
        executed: Slot(executed),
    };
    Envelope::ToReplicas(Set::one(ReplicaId(1)), message)
}

/// The one PreRead that was asked for: of which acceptors, and the number of the inquiry.
fn inquiry(asked: &Asked<Envelope>) -> (AcceptorSet, u64) {
    let [(Envelope::ToAcceptors(acceptors, acceptor::In::PreRead { inquiry, .. }), Some(0))] =
        asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!(*asked, only(vec![pre_read(acceptors, inquiry)]));
    (acceptors, inquiry)
}

/// Its first inquiry, for the first read.
fn begun(reader: &mut Stage<ReadBatcher>) -> (AcceptorSet, u64) {
    let asked = reader.asked(reads(&[0]));
    inquiry(&asked)
}

/// "A client sends a PreRead message to a read quorum of acceptors" (3.4): of three in majorities
/// to two, one of them on its own node.
#[test]
fn reads_ask_one_read_quorum_of_acceptors() {
    let (asked, _) = begun(&mut reader(Options::default()));
    assert_eq!((asked.len(), asked.contains(AcceptorId(1))), (2, true));
}

/// s7: on a grid a read quorum is a row, however long.
#[test]
pub(crate) fn on_a_grid_reads_ask_a_whole_row() {
    let nodes: Vec<NodeId> = (0..6).map(NodeId).collect();
    let mut layout = crate::servers::layout(Options::default());
    layout.instances[usize::from(kind::Acceptor)] = nodes.into();
    layout.quorums = QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    };
    let config = MultiPaxos::configure(layout).expect("a deployment");
    let birth = stage::birth(kind::ReadBatcher, ID.0, NodeId(1));
    let mut reader = Stage::new(config, &birth, ReadBatcher::new);
    let (asked, number) = begun(&mut reader);
    assert_eq!(
        asked,
        Set::first(3),
        "the row with the acceptor of its node"
    );
    // Two of three are no quorum, nor is a column.
    for from in [0, 1, 4] {
        assert_eq!(reader.asked(ack(from, number, 3)), only(vec![]));
    }
    assert_eq!(reader.asked(ack(2, number, 1)), only(vec![read(&[0], 3)]));
}

/// "It computes i as the maximum of all received vote watermarks" (3.4).
#[test]
fn reads_go_to_one_replica_with_the_largest_watermark_of_a_read_quorum() {
    for [one, other] in [[7, 4], [4, 7]] {
        let mut reader = reader(Options::default());
        let (_, number) = begun(&mut reader);
        assert_eq!(reader.asked(ack(1, number, one)), only(vec![]));
        let asked = reader.asked(ack(0, number, other));
        assert_eq!(asked, only(vec![read(&[0], 7)]));
        let asked = reader.asked(ack(2, number, 9));
        assert_eq!(asked, only(vec![]), "it is over");
    }
}

#[test]
fn two_answers_of_one_acceptor_count_once() {
    let mut reader = reader(Options::default());
    let (_, number) = begun(&mut reader);
    for _ in 0..3 {
        assert_eq!(reader.asked(ack(1, number, 7)), only(vec![]));
    }
}

#[test]
fn answers_to_other_inquiries_do_not_count() {
    let mut reader = reader(Options::default());
    let (_, number) = begun(&mut reader);
    for other in [number - 1, number + 1] {
        for from in 0..3 {
            assert_eq!(reader.asked(ack(from, other, 7)), only(vec![]));
        }
    }
}

/// An inquiry serves the reads that had come when it began: a watermark that was read before a read
/// came may miss a write that was acknowledged before it.
#[test]
fn reads_that_come_during_an_inquiry_wait_for_the_next_one_together() {
    let mut reader = reader(one_in_flight());
    let (_, first) = begun(&mut reader);
    assert_eq!(reader.asked(reads(&[1])), only(vec![]));
    assert_eq!(reader.asked(reads(&[2])), only(vec![]));
    reader.tell(ack(1, first, 7));
    let asked = reader.asked(ack(0, first, 7));
    let [answer, next] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(*answer, (read(&[0], 7), Some(0)));
    let (_, second) = inquiry(&only(vec![next.0.clone()]));
    assert_ne!(second, first);
    reader.tell(ack(1, second, 8));
    let asked = reader.asked(ack(0, second, 7));
    assert_eq!(asked, only(vec![read(&[1, 2], 8)]));
}

#[test]
fn reads_do_not_wait_longer_than_batch_delay_for_an_inquiry() {
    let mut reader = reader(one_in_flight());
    begun(&mut reader);
    reader.tell(reads(&[1]));
    let opened = reader.now;
    let asked = reader.woken();
    inquiry(&asked);
    assert_eq!(reader.now, opened + Options::default().batch_delay);
}

/// l7: one lost answer must not stall what waits for it.
#[test]
fn acceptors_that_do_not_answer_are_asked_again_together_with_all_others() {
    let mut reader = reader(Options::default());
    let begun_at = reader.now;
    let (_, number) = begun(&mut reader);
    reader.tell(ack(1, number, 7));
    let rest = Set::from_bits(0b101);
    assert_eq!(reader.woken(), only(vec![pre_read(rest, number)]));
    let resend_after = Options::default().resend_after;
    assert_eq!(reader.now, begun_at + resend_after);
    // The wait doubles.
    assert_eq!(reader.woken(), only(vec![pre_read(rest, number)]));
    assert_eq!(reader.now, begun_at + resend_after * 3);
    assert_eq!(reader.asked(ack(2, number, 3)), only(vec![read(&[0], 7)]));
}

#[test]
fn an_inquiry_that_stays_unanswered_is_given_up() {
    let mut reader = reader(Options::default());
    let (_, number) = begun(&mut reader);
    for _ in 0..5 {
        assert_eq!(reader.woken(), only(vec![pre_read(Set::first(3), number)]));
    }
    // The reader drops it when the last request was not answered in time, and not before.
    assert_eq!(reader.woken(), only(vec![]));
    assert_eq!(reader.role.next_timer(), None);
    for from in 0..3 {
        assert_eq!(reader.asked(ack(from, number, 7)), only(vec![]));
    }
}

#[test]
fn answers_to_the_last_request_of_an_inquiry_count() {
    let mut reader = reader(Options::default());
    let (_, number) = begun(&mut reader);
    for _ in 0..5 {
        reader.woken();
    }
    assert_eq!(reader.asked(ack(0, number, 7)), only(vec![]));
    assert_eq!(reader.asked(ack(1, number, 3)), only(vec![read(&[0], 7)]));
}

#[test]
fn an_acceptor_that_left_an_inquiry_unanswered_is_not_asked_first() {
    let mut reader = reader(Options::default());
    let (asked, number) = begun(&mut reader);
    let silent = asked.without(Set::one(AcceptorId(1))).iter().next();
    let silent = silent.expect("another one");
    reader.tell(ack(1, number, 7));
    reader.woken();
    for _ in 0..4 {
        let (asked, number) = begun(&mut reader);
        assert_eq!(asked, Set::first(3).without(Set::one(silent)));
        asked.iter().for_each(|from| {
            reader.tell(ack(from.0, number, 7));
        });
    }
}

#[test]
fn a_replica_that_is_not_heard_of_any_more_gets_no_reads() {
    let mut reader = reader(Options::default());
    for from in (0..3).map(ReplicaId) {
        reader.tell(In::ReplicaAlive { from });
    }
    reader.now = reader.now + Duration::from_millis(900);
    reader.tell(In::ReplicaAlive { from: ReplicaId(2) });
    let (_, number) = begun(&mut reader);
    reader.tell(ack(1, number, 7));
    let message = replica::In::Read {
        reads: batch(&[0]),
        executed: Slot(7),
    };
    let expected = Envelope::ToReplicas(Set::one(ReplicaId(2)), message);
    assert_eq!(reader.asked(ack(0, number, 7)), only(vec![expected]));
}

/// Reads of this many bytes.
fn large(bytes: usize) -> In {
    let reads = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Read,
        number: 0,
        floor: 0,
        payload: vec![b'?'; bytes].into(),
    });
    In::Reads { reads }
}

/// Clients repeat their reads while acceptors do not answer.
#[test]
fn reads_beyond_64_mebibytes_that_wait_for_acceptors_are_dropped() {
    let mut reader = reader(Options::default());
    let [third, two_thirds] = [20 << 20, 40 << 20];
    let (_, number) = inquiry(&reader.asked(large(two_thirds)));
    inquiry(&reader.asked(large(third)));
    assert_eq!(reader.asked(large(third)), only(vec![]));
    assert_eq!(reader.figure("dropped_reads"), 1);
    // The first inquiry ends: there is room again.
    reader.tell(ack(1, number, 7));
    assert_eq!(reader.asked(ack(0, number, 7)).sends.len(), 1);
    inquiry(&reader.asked(large(third)));
    // Those that are given up make room as well.
    while reader.figure("inquiries") > 0 {
        reader.woken();
    }
    inquiry(&reader.asked(large(100 << 20)));
    assert_eq!(reader.figure("dropped_reads"), 1);
}

#[test]
fn reads_wait_while_4096_inquiries_are_under_way() {
    let options = Options {
        batches_in_flight: 5000,
        ..Options::default()
    };
    let mut reader = reader(options);
    let numbers: Vec<u64> = (0..4096).map(|_| begun(&mut reader).1).collect();
    assert_eq!(reader.asked(reads(&[1])), only(vec![]));
    reader.tell(ack(1, numbers[7], 7));
    let asked = reader.asked(ack(0, numbers[7], 7));
    let [answer, next] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(*answer, (read(&[0], 7), Some(0)));
    inquiry(&only(vec![next.0.clone()]));
}
