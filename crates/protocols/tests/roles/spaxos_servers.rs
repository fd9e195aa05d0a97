//! Deployments of S-Paxos and what its roles send each other: what the tests of single roles share.

use crate::stage::{self, Stage, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos;
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, StabilizerId};
use ionian_protocols::spaxos::leader::{self, Leader};
use ionian_protocols::spaxos::message::{Payload, PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{Envelope, SPaxos, kind};
use ionian_replication::batch::{Batch, Value};

/// Three acceptors, three stabilizers, two of each other role, batchers only if wanted: each on a
/// node of its own.
pub(crate) fn apart(batchers: usize, options: Options) -> Config {
    let mut next = (0..).map(NodeId);
    let instances = [1, batchers, 2, 0, 2, 2, 3, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    configured(instances, options)
}

/// Every role on each of three nodes: number `n` of each kind is on node `n`.
pub(crate) fn together() -> Config {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    configured(vec![nodes; 10], Options::default())
}

fn configured(instances: Vec<Vec<NodeId>>, options: Options) -> Config {
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        options,
        ..Layout::default()
    };
    SPaxos::configure(layout).expect("a deployment")
}

/// The `count`-th round of leader 0.
pub(crate) fn round(count: u64) -> Round {
    crate::servers::round(count, 0)
}

/// Payload `number` of disseminator 1.
pub(crate) fn id(number: u64) -> PayloadId {
    PayloadId {
        disseminator: DisseminatorId(1),
        life: 5,
        number: PayloadNumber(number),
    }
}

pub(crate) fn batch() -> Batch {
    stage::batch("write")
}

/// Such a payload, void from slot `until` on.
pub(crate) fn payload(number: u64, void_from: u64) -> Payload {
    Payload {
        id: id(number),
        round: round(1),
        void_from: Slot(void_from),
        batch: batch(),
    }
}

/// What goes with it; its disseminator proposes nothing below `floor` any more.
pub(crate) fn ticket(number: u64, void_from: u64, floor: u64) -> Ticket {
    Ticket {
        id: id(number),
        void_from: Slot(void_from),
        round: round(1),
        floor: PayloadNumber(floor),
    }
}

/// What the log holds in place of it: two stabilizers store it.
pub(crate) fn reference(number: u64, void_from: u64) -> Reference {
    Reference {
        id: id(number),
        void_from: Slot(void_from),
        stored: stabilizers(&[0, 1]),
    }
}

pub(crate) fn referred(number: u64, void_from: u64) -> Value {
    Value {
        stamp: Timestamp(1000),
        batch: reference(number, void_from).batch(),
    }
}

pub(crate) fn stabilizers(indices: &[u8]) -> Set<StabilizerId> {
    indices.iter().map(|index| StabilizerId(*index)).collect()
}

pub(crate) fn ordering(message: multipaxos::leader::In) -> leader::In {
    leader::In::Ordering { message }
}

/// Leader 0, in phase 1 of its first round.
pub(crate) fn in_phase1() -> Stage<Leader> {
    in_phase1_with(Options::default())
}

fn in_phase1_with(options: Options) -> Stage<Leader> {
    let birth = birth(kind::Leader, 0, NodeId(99));
    let mut leader = Stage::new(apart(0, options), &birth, Leader::new);
    leader.timer();
    for from in [0, 1] {
        leader.tell(ordering(crate::servers::pre_vote_reply(
            from,
            true,
            Round(0),
        )));
    }
    leader
}

/// An acceptor has promised the leader's first round and has voted for nothing.
pub(crate) fn promise(from: u8) -> leader::In {
    let votes = crate::servers::votes(&[]);
    ordering(crate::servers::phase1b(from, round(1), votes))
}

/// Leader 0, leading in its first round.
pub(crate) fn leading() -> Stage<Leader> {
    leading_with(Options::default())
}

pub(crate) fn leading_with(options: Options) -> Stage<Leader> {
    let mut leader = in_phase1_with(options);
    leader.tell(promise(0));
    leader.tell(promise(1));
    assert!(leader.role.is_leading());
    leader
}

/// These messages, none of which waits for a record, and nothing else.
pub(crate) fn only(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0))).collect();
    stage::only(Vec::new(), sends)
}
