//! What each protocol makes of the records of stopped nodes.

use crate::stage::batch;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::salvage::{Salvage, Salvaged};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::encode_all;
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::parts::acceptor::Record;
use ionian_protocols::parts::message::Vote;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, RecordPlace};
use ionian_protocols::spaxos::message::{Payload, PayloadId, Reference};
use ionian_protocols::spaxos::{self, SPaxos, stabilizer};
use ionian_replication::batch::{Batch, Value};

/// Three servers, n0 to n2.
fn layout<P: Protocol>() -> Layout {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(P::KINDS.iter().map(|_| nodes.clone()).collect()),
        names: ["n0", "n1", "n2"].map(str::to_owned).into(),
        ..Layout::default()
    }
}

fn round(count: u64) -> Round {
    Round::new(Epoch(0), count, LeaderId(0))
}

fn value(batch: Batch) -> Value {
    Value {
        stamp: Timestamp(9),
        batch,
    }
}

fn voted(slot: u64, count: u64, batch: Batch) -> Record {
    let vote = Vote {
        round: round(count),
        value: value(batch),
    };
    Record::Voted {
        slot: Slot(slot),
        vote,
    }
}

/// Reads a record that the instance of this kind wrote on server `n`.
fn read(salvage: &mut dyn Salvage, n: u8, kind: u8, record: &impl ionian_kernel::wire::Wire) {
    let author = Address { kind, index: n };
    let record = Bytes::from(encode_all(record));
    salvage
        .read(&format!("n{n}"), author, &record)
        .expect("a record of the role");
}

fn finish<P: Protocol>(salvage: &dyn Salvage, start: u64) -> Salvaged {
    salvage
        .finish(Slot(start), Some(layout::<P>()))
        .expect("a deployment")
}

/// The values by slot, and where there is one that is not known.
fn values(salvaged: &Salvaged) -> Vec<(u64, Option<Bytes>)> {
    let values = salvaged.values.iter();
    values
        .map(|(slot, value)| (slot.0, value.clone()))
        .collect()
}

fn holds(batch: Batch) -> Option<Bytes> {
    Some(encode_all(&value(batch)).into())
}

#[test]
fn multipaxos_takes_the_highest_votes_of_a_read_quorum() {
    let kind = multipaxos::kind::Acceptor;
    let mut salvage = MultiPaxos::salvage().expect("it can be salvaged");
    read(&mut *salvage, 0, kind, &voted(3, 1, batch("old")));
    read(&mut *salvage, 0, kind, &voted(4, 1, batch("a")));
    assert!(!finish::<MultiPaxos>(&*salvage, 0).is_complete);
    read(&mut *salvage, 1, kind, &voted(3, 2, batch("new")));
    // Of another kind of role.
    read(&mut *salvage, 1, multipaxos::kind::Leader, &7_u8);
    let salvaged = finish::<MultiPaxos>(&*salvage, 0);
    let expected = [(3, holds(batch("new"))), (4, holds(batch("a")))];
    assert_eq!(values(&salvaged), expected);
    assert!(salvaged.is_complete);
    assert_eq!(salvaged.sources, "the votes of 2 acceptors");
    let later = finish::<MultiPaxos>(&*salvage, 4);
    assert_eq!(values(&later), [(4, holds(batch("a")))]);
    // Without a deployment nothing says that two are enough.
    let unknown = salvage.finish(Slot(0), None).expect("no deployment needed");
    assert!(!unknown.is_complete && unknown.values == salvaged.values);
}

fn payload(number: u64) -> PayloadId {
    PayloadId {
        disseminator: DisseminatorId(0),
        life: 1,
        number: PayloadNumber(number),
    }
}

fn reference(number: u64) -> Batch {
    let reference = Reference {
        id: payload(number),
        void_from: Slot(100),
        stored: Set::first(2),
    };
    reference.batch()
}

fn kept(number: u64, batch: Batch) -> stabilizer::Record {
    let payload = Payload {
        id: payload(number),
        round: round(1),
        void_from: Slot(100),
        batch,
    };
    stabilizer::Record::Kept {
        place: RecordPlace(number),
        payload,
    }
}

#[test]
fn spaxos_looks_up_what_references_stand_for() {
    let (acceptor, stabilizer) = (spaxos::kind::Acceptor, spaxos::kind::Stabilizer);
    let mut salvage = SPaxos::salvage().expect("it can be salvaged");
    for n in [0, 1] {
        read(&mut *salvage, n, acceptor, &voted(3, 1, reference(0)));
        read(&mut *salvage, n, acceptor, &voted(4, 1, Batch::default()));
        // In this slot the payload is void.
        read(&mut *salvage, n, acceptor, &voted(100, 1, reference(0)));
    }
    read(&mut *salvage, 1, stabilizer, &kept(0, batch("write")));
    let noop = holds(Batch::default());
    let expected = [
        (3, holds(batch("write"))),
        (4, noop.clone()),
        (100, noop.clone()),
    ];
    let salvaged = finish::<SPaxos>(&*salvage, 0);
    assert_eq!(values(&salvaged), expected);
    // One stabilizer is no read quorum: what it does not have, others may.
    assert!(!salvaged.is_complete);
    read(&mut *salvage, 0, stabilizer, &kept(1, batch("other")));
    let salvaged = finish::<SPaxos>(&*salvage, 0);
    assert_eq!((salvaged.is_complete, salvaged.forgotten), (true, Slot(0)));
    assert_eq!(
        salvaged.sources,
        "the votes of 2 acceptors and the payloads of 2 stabilizers"
    );
}

/// A payload that a read quorum of stabilizers lacks is kept by replicas; one that fewer lack may
/// be on another node.
#[test]
fn spaxos_says_which_payloads_are_missing() {
    let (acceptor, stabilizer) = (spaxos::kind::Acceptor, spaxos::kind::Stabilizer);
    let mut salvage = SPaxos::salvage().expect("it can be salvaged");
    for n in [0, 1] {
        read(&mut *salvage, n, acceptor, &voted(3, 1, reference(0)));
    }
    read(&mut *salvage, 0, stabilizer, &kept(1, batch("other")));
    let few = finish::<SPaxos>(&*salvage, 0);
    assert_eq!(values(&few), [(3, None)]);
    assert_eq!((few.is_complete, few.forgotten), (false, Slot(0)));
    read(&mut *salvage, 1, stabilizer, &kept(2, batch("other")));
    let enough = finish::<SPaxos>(&*salvage, 0);
    assert_eq!(values(&enough), [(3, None)]);
    assert_eq!((enough.is_complete, enough.forgotten), (true, Slot(4)));
    // It has handed its payloads over in a change of which these directories know nothing.
    let sealed = stabilizer::Record::Sealed { epoch: Epoch(1) };
    read(&mut *salvage, 1, stabilizer, &sealed);
    assert!(!finish::<SPaxos>(&*salvage, 0).is_complete);
}

/// A leader of a later round may have skipped what it reserved.
#[test]
fn mencius_takes_votes_that_no_later_reservation_overrides() {
    let kind = mencius::kind::Acceptor;
    let mut salvage = Mencius::salvage().expect("it can be salvaged");
    let refused = salvage.finish(Slot(0), None).expect_err("no stripes");
    assert!(refused.0.contains("--config"), "{refused}");
    let in_stripe = |stripe, record| mencius::acceptor::Record::InStripe {
        stripe: Stripe(stripe),
        record,
    };
    // Slots 3, 6 and 7 of the log.
    read(
        &mut *salvage,
        0,
        kind,
        &in_stripe(0, voted(1, 1, batch("a"))),
    );
    read(
        &mut *salvage,
        0,
        kind,
        &in_stripe(0, voted(2, 1, batch("b"))),
    );
    read(
        &mut *salvage,
        0,
        kind,
        &in_stripe(1, voted(2, 1, batch("c"))),
    );
    let all = [(3, "a"), (6, "b"), (7, "c")].map(|(slot, text)| (slot, holds(batch(text))));
    let salvaged = finish::<Mencius>(&*salvage, 0);
    assert_eq!(
        (values(&salvaged), salvaged.is_complete),
        (all.into(), false)
    );
    let reserved = Reserved {
        round: round(2),
        start: StripePosition(2),
        end: StripePosition(9),
    };
    let stripe = Stripe(0);
    let record = mencius::acceptor::Record::Reserved { stripe, reserved };
    read(&mut *salvage, 1, kind, &record);
    let salvaged = finish::<Mencius>(&*salvage, 0);
    let left = [(3, "a"), (7, "c")].map(|(slot, text)| (slot, holds(batch(text))));
    assert_eq!(
        (values(&salvaged), salvaged.is_complete),
        (left.into(), true)
    );
    let forgot = in_stripe(1, Record::Forgot { below: Slot(2) });
    read(&mut *salvage, 1, kind, &forgot);
    // Positions 0 and 1 of stripe 1 are slots 1 and 4.
    assert_eq!(finish::<Mencius>(&*salvage, 0).forgotten, Slot(5));
    let later = [(7, holds(batch("c")))];
    assert_eq!(values(&finish::<Mencius>(&*salvage, 4)), later);
}
