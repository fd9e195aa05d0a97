//! The rules of the roles of CRAQ. A chain node is on a stage; the others, and the master, are
//! played by the test.

#[path = "craq/batcher.rs"]
mod batcher;
#[path = "craq/chain.rs"]
pub(crate) mod chain;
#[path = "craq/changes.rs"]
pub(crate) mod changes;
#[path = "craq/lane.rs"]
mod lane;
#[path = "craq/leases.rs"]
pub(crate) mod leases;
#[path = "craq/leaving.rs"]
mod leaving;
#[path = "craq/master.rs"]
pub(crate) mod master;
#[path = "craq/reads.rs"]
pub(crate) mod reads;
#[path = "craq/replacing.rs"]
pub(crate) mod replacing;
#[path = "craq/sealing.rs"]
pub(crate) mod sealing;

use crate::stage::{self, Stage};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Asked;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::craq::chain_node::{ChainNode, In, Record};
use ionian_protocols::craq::config::Config;
use ionian_protocols::craq::id::{ChainEpoch, ChainNodeId};
use ionian_protocols::craq::message::{Chain, Member};
use ionian_protocols::craq::{Craq, Envelope, Instance, client, kind};
use ionian_protocols::multipaxos;
use ionian_replication::batch::{Answer, Batch, Command, Outcome, Purpose, Value};
use std::sync::Arc;

/// A chain of this number of nodes, each on a node of its own; the master is elsewhere.
fn layout(nodes: u16) -> Layout {
    let on = |nodes: std::ops::Range<u16>| nodes.map(NodeId).collect::<Vec<_>>();
    let master = on(20..23);
    Layout {
        f: 1,
        founding_level: Level::LATEST,
        instances: numbered(vec![
            on(30..32),
            Vec::new(),
            on(0..nodes),
            Vec::new(),
            master.clone(),
            master.clone(),
            master.clone(),
            master,
        ]),
        ..Layout::default()
    }
}

fn config(nodes: u16) -> Arc<Config> {
    Craq::configure(layout(nodes)).expect("a deployment")
}

/// Commands name the keys that they write, one a byte, and reads those that they read. A command is
/// answered with how many were executed.
#[derive(Default)]
struct Counting(u8);

impl StateMachine for Counting {
    fn apply(&mut self, _: Timestamp, _: &[u8], reply: &mut Vec<u8>) {
        self.0 += 1;
        reply.push(self.0);
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let [count] = snapshot else {
            return Err(RestoreError("a snapshot is one byte".into()));
        };
        self.0 = *count;
        Ok(())
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        let keys = command.iter().map(|key| u64::from(*key));
        footprint.writes.extend(keys);
    }
}

fn machine() -> Box<dyn StateMachine> {
    Box::<Counting>::default()
}

fn birth(index: u8) -> Birth<'static> {
    Birth {
        machine: &machine,
        ..stage::birth(kind::ChainNode, index, NodeId(index.into()))
    }
}

/// Chain node `index` of this number, which has heard the others and finds its predecessor at the
/// beginning of everything.
fn node(index: u8, nodes: u16) -> Stage<ChainNode> {
    let mut node = Stage::new(config(nodes), &birth(index), ChainNode::new);
    settle(&mut node, index, nodes);
    node
}

fn settle(node: &mut Stage<ChainNode>, index: u8, nodes: u16) {
    for other in (0..nodes as u8).filter(|other| *other != index) {
        node.tell(beat(other, 0, true));
    }
    if index > 0 {
        node.tell(In::Handover {
            from: ChainNodeId(index - 1),
            epoch: ChainEpoch(0),
        });
    }
    if u16::from(index) + 1 < nodes {
        node.tell(In::Sync {
            from: ChainNodeId(index + 1),
            epoch: ChainEpoch(0),
            received: Slot(0),
        });
    }
}

/// A heartbeat of a node that hears all.
fn beat(from: u8, epoch: u64, synced: bool) -> In {
    In::Beat {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        revision: 0,
        hears: Set::first(6),
        suspects: Set::EMPTY,
        synced,
        clock: Timestamp(1000),
    }
}

fn chain(epoch: u64, members: &[(u8, u64)]) -> Chain {
    let member = |(node, life): &(u8, u64)| Member {
        node: ChainNodeId(*node),
        life: *life,
    };
    Chain {
        epoch: ChainEpoch(epoch),
        members: members.iter().map(member).collect(),
        ..Chain::default()
    }
}

/// This chain after this number of steps that have not changed its members.
fn revised(revision: u64, chain: Chain) -> Chain {
    Chain { revision, ..chain }
}

fn write(payload: &'static [u8]) -> In {
    In::Write {
        batch: stage::batch(payload),
        from: None,
        handed: false,
    }
}

fn value(payload: &'static [u8]) -> Value {
    Value {
        stamp: Timestamp(1000),
        batch: stage::batch(payload),
    }
}

fn entry(slot: u64, committed: u64, payload: &'static [u8]) -> (Vec<u8>, bool) {
    let record = Record::Entry {
        slot: Slot(slot),
        committed: Slot(committed),
        value: value(payload),
    };
    (ionian_kernel::wire::encode_all(&record), false)
}

fn forward(from: u8, epoch: u64, start: u64, payloads: &[&'static [u8]]) -> In {
    In::Forward {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        start: Slot(start),
        values: payloads.iter().map(|payload| value(payload)).collect(),
    }
}

fn ack(from: u8, epoch: u64, received: u64, committed: u64) -> In {
    In::Ack {
        from: ChainNodeId(from),
        epoch: ChainEpoch(epoch),
        received: Slot(received),
        committed: Slot(committed),
    }
}

/// The disk of a tail has every entry below this one.
fn stored(epoch: u64, received: u64) -> In {
    In::Stored {
        epoch: ChainEpoch(epoch),
        received: Slot(received),
    }
}

fn to(node: u8, message: In) -> Envelope {
    Envelope::ToChainNodes(Set::one(ChainNodeId(node)), message)
}

fn read(number: u64, payload: &'static [u8]) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Read,
        number,
        floor: 0,
        payload: payload.into(),
    })
}

/// The numbers of the reads that were answered.
fn answered(sends: &[Envelope]) -> Vec<u64> {
    let answers = |envelope: &Envelope| match envelope {
        Envelope::ToClients(_, client::In::Answers { answers }) => {
            answers.iter().map(|answer| answer.number).collect()
        }
        _ => Vec::new(),
    };
    sends.iter().flat_map(answers).collect()
}

/// What is not for the master.
fn between_nodes(sends: Vec<Envelope>) -> Vec<Envelope> {
    let is_for_master = |envelope: &Envelope| {
        matches!(
            envelope,
            Envelope::ToLeaders(..) | Envelope::ToAcceptors(..) | Envelope::ToMasters(..)
        )
    };
    sends.into_iter().filter(|it| !is_for_master(it)).collect()
}

/// What a role has asked without what is for the master.
fn without_master(asked: Asked<Envelope>) -> Asked<Envelope> {
    let is_for_master = |envelope: &Envelope| between_nodes(vec![envelope.clone()]).is_empty();
    Asked {
        sends: asked
            .sends
            .into_iter()
            .filter(|(envelope, _)| !is_for_master(envelope))
            .collect(),
        ..asked
    }
}

/// The inquiries to acceptors among these messages.
fn inquiries(sends: &[Envelope]) -> Vec<u64> {
    let inquiry = |envelope: &Envelope| match envelope {
        Envelope::ToAcceptors(_, multipaxos::acceptor::In::PreRead { inquiry, .. }) => {
            Some(*inquiry)
        }
        _ => None,
    };
    sends.iter().filter_map(inquiry).collect()
}

/// The master answers the inquiry that the node has just begun (`sends`): the chain is this one.
/// Returns what the node then sends.
fn master_says(node: &mut Stage<ChainNode>, sends: &[Envelope], chain: &Chain) -> Vec<Envelope> {
    master_answers(node, sends, |_| ionian_kernel::wire::encode_all(chain))
}

/// The same, with what it answers to a query.
fn master_answers(
    node: &mut Stage<ChainNode>,
    sends: &[Envelope],
    answer: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<Envelope> {
    use multipaxos::client::In as ToLane;
    let inquiry = *inquiries(sends).last().expect("an inquiry");
    let mut asks = Vec::new();
    for from in 0..2 {
        let message = ToLane::PreReadAck {
            from: AcceptorId(from),
            inquiry,
            watermark: Slot(0),
            epoch: Epoch(0),
        };
        asks.extend(node.tell(In::Master { message }));
    }
    let read = asks.iter().find_map(|envelope| match envelope {
        Envelope::ToMasters(_, multipaxos::replica::In::Read { reads, .. }) => Some(reads.clone()),
        _ => None,
    });
    let read = read.expect("a read of the master's log");
    let mut sends = Vec::new();
    for command in read.commands() {
        let mut answers = ionian_replication::batch::AnswersByClient::default();
        answers.push(&Answer {
            client: command.client,
            purpose: command.purpose,
            number: command.number,
            outcome: Outcome::Done(answer(command.payload)),
        });
        let answers = answers.take_some(0, Slot(0));
        let message = ToLane::Answers { answers };
        sends.extend(node.tell(In::Master { message }));
    }
    sends
}

/// The tail of three, which has stored a snapshot when so much work calls for one.
#[test]
fn a_chain_node_stores_a_snapshot_after_few_commands_if_they_take_much_work() {
    let birth = Birth {
        machine: &stage::Heavy::machine,
        ..birth(2)
    };
    let mut node = Stage::new(config(3), &birth, ChainNode::new);
    settle(&mut node, 2, 3);
    let batches = [
        stage::open(),
        stage::of_command(0, "a"),
        stage::of_command(1, "b"),
    ];
    let values = batches.map(|batch| Value {
        stamp: Timestamp(1000),
        batch,
    });
    node.tell(In::Forward {
        from: ChainNodeId(1),
        epoch: ChainEpoch(0),
        start: Slot(0),
        values: values.into(),
    });
    assert_eq!(node.asked(stored(0, 2)).snapshot, None);
    assert_eq!(node.asked(stored(0, 3)).snapshot, Some(3));
}
