//! Options that change while a cluster runs: what a role has in hand was measured by the old ones.
//! The simulator tunes clusters too, but its replicas retain tens of slots, and bytes under way it
//! leaves alone.

use crate::stage::{Stage, birth};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Timestamp;
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos::batcher::{self, Batcher};
use ionian_protocols::multipaxos::leader::{self, Leader};
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::replica::{self, Replica};
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind, proxy_leader};
use ionian_replication::batch::{Batch, Command, Purpose, Value};

/// Three servers with every role on each.
fn layout(options: Options) -> Layout {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        options,
        ..Layout::default()
    }
}

fn retaining(retained_slots: usize) -> Layout {
    layout(Options {
        retained_slots,
        ..Options::default()
    })
}

fn window_of(window_bytes: usize) -> <MultiPaxos as Protocol>::Config {
    MultiPaxos::configure(layout(Options {
        window_bytes,
        ..Options::default()
    }))
    .expect("a deployment")
}

fn command(number: u64, bytes: usize) -> Batch {
    let (client, purpose, payload) = (
        ClientId(0),
        Purpose::Execute(SessionId(1)),
        Bytes::from(vec![7; bytes]),
    );
    Batch::one(&Command {
        client,
        purpose,
        number,
        floor: 0,
        payload,
    })
}

/// More than a replica ever holds ahead of what it has executed.
const MANY: u64 = 300_000;

/// What it keeps must not take the room of what comes next.
#[test]
fn a_replica_that_is_to_keep_much_less_goes_on() {
    let config = |retained| MultiPaxos::configure(retaining(retained)).expect("a deployment");
    let mut stage = Stage::new(
        config(1 << 20),
        &birth(kind::Replica, 0, NodeId(0)),
        Replica::new,
    );
    let slots = (0..MANY)
        .map(|slot| (Slot(slot), Value::default()))
        .collect();
    stage.tell(replica::In::Fetched {
        from: ReplicaId(1),
        slots,
    });
    assert_eq!(
        (stage.role.executed(), stage.figure("retained")),
        (Slot(MANY), MANY)
    );
    stage.reconfigure(config(100));
    stage.tell(replica::In::Chosen {
        slot: Slot(MANY),
        value: Value::default(),
        replier: ReplicaId(1),
    });
    assert_eq!(
        (stage.role.executed(), stage.figure("retained")),
        (Slot(MANY + 1), 100)
    );
}

fn skip_all(stage: &mut Stage<mencius::replica::Replica>, start: u64, end: u64) -> Slot {
    for stripe in 0..3 {
        let (start, end) = (StripePosition(start / 3), StripePosition(end / 3));
        let stripe = Stripe(stripe);
        stage.tell(mencius::replica::In::Skip { stripe, start, end });
    }
    stage.role.executed()
}

#[test]
fn skips_find_room_in_a_replica_that_is_to_keep_less_and_in_one_that_keeps_much() {
    let config = |retained| Mencius::configure(retaining(retained)).expect("a deployment");
    let replica = || {
        let birth = birth(mencius::kind::Replica, 0, NodeId(0));
        Stage::new(config(1 << 20), &birth, mencius::replica::Replica::new)
    };
    let mut stage = replica();
    assert_eq!(skip_all(&mut stage, 0, MANY), Slot(MANY));
    stage.reconfigure(config(100));
    assert_eq!(skip_all(&mut stage, MANY, MANY + 30), Slot(MANY + 30));
    // A leader that comes back goes on far ahead, and all others follow.
    let mut stage = replica();
    assert_eq!(skip_all(&mut stage, 0, 900_000), Slot(900_000));
    assert_eq!(skip_all(&mut stage, 900_000, 1_800_000), Slot(1_800_000));
}

/// How many batches are proposed.
fn proposed(sent: &[Envelope]) -> usize {
    let is_proposal = |envelope: &&Envelope| match envelope {
        Envelope::ToProxyLeaders(_, message) => matches!(message, proxy_leader::In::Phase2a { .. }),
        Envelope::ToLeaders(_, message) => matches!(message, leader::In::Propose { .. }),
        _ => false,
    };
    sent.iter().filter(is_proposal).count()
}

#[test]
fn a_leader_takes_over_another_window_of_bytes_and_loses_count_of_nothing() {
    let mut stage = Stage::new(
        window_of(1000),
        &birth(kind::Leader, 0, NodeId(0)),
        Leader::new,
    );
    stage.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let round = stage.role.round();
    for from in [AcceptorId(0), AcceptorId(1)] {
        let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
        let (forgotten, watermark) = (Slot(0), Slot(0));
        let votes = Votes {
            start,
            end,
            next,
            votes: vec![],
            forgotten,
            watermark,
        };
        stage.tell(leader::In::Phase1b {
            from,
            round,
            votes,
            clock: Timestamp(0),
        });
    }
    let propose = |stage: &mut Stage<Leader>, number| {
        let (proposer, near, batch) = (
            Proposer::Client { id: ClientId(0) },
            Set::EMPTY,
            command(number, 800),
        );
        proposed(&stage.tell(leader::In::Propose {
            proposer,
            near,
            batch,
            again: false,
        }))
    };
    assert_eq!(
        [propose(&mut stage, 0), propose(&mut stage, 1)],
        [1, 0],
        "the second waits for room"
    );
    // What was large is small now.
    stage.reconfigure(window_of(1 << 20));
    assert_eq!(propose(&mut stage, 2), 2);
    stage.reconfigure(window_of(1000));
    assert_eq!(propose(&mut stage, 3), 0);
    let (from, slot, times) = (ReplicaId(0), Slot(3), Times::default());
    let sent = stage.tell(leader::In::Executed {
        from,
        executed: slot,
        kept: slot,
        round,
        times,
    });
    assert_eq!(proposed(&sent), 1);
}

#[test]
fn a_batcher_takes_over_another_window_of_bytes_and_loses_count_of_nothing() {
    let mut stage = Stage::new(
        window_of(1000),
        &birth(kind::Batcher, 0, NodeId(0)),
        Batcher::new,
    );
    let mut numbers = Vec::new();
    let mut tell = |stage: &mut Stage<Batcher>, message| {
        let sent = stage.tell(message);
        for envelope in &sent {
            if let Envelope::ToLeaders(
                _,
                leader::In::Propose {
                    proposer: Proposer::Batcher { number, .. },
                    ..
                },
            ) = envelope
            {
                numbers.push(*number);
            }
        }
        (proposed(&sent), numbers.clone())
    };
    let commands = |number| batcher::In::Commands {
        commands: command(number, 800),
    };
    assert_eq!(
        [
            tell(&mut stage, commands(0)).0,
            tell(&mut stage, commands(1)).0
        ],
        [1, 0],
        "the second waits for room"
    );
    stage.reconfigure(window_of(1 << 20));
    let (count, numbers) = tell(&mut stage, commands(2));
    assert_eq!(count, 2);
    stage.reconfigure(window_of(1000));
    assert_eq!(tell(&mut stage, commands(3)).0, 0);
    assert_eq!(
        tell(&mut stage, batcher::In::BatchesChosen { numbers }).0,
        1
    );
}
