//! Three servers with every role of MultiPaxos on each, and what their roles tell each other: what
//! the tests of single roles share.

use crate::stage::{self, Stage, batch};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::multipaxos::leader::{self, Leader};
use ionian_protocols::multipaxos::message::{Vote, Votes};
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind};
use ionian_replication::batch::Value;
use std::sync::Arc;

/// Every role on each of three nodes: number `n` of each kind is on node `n`.
pub(crate) fn layout(options: Options) -> Layout {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        options,
        ..Layout::default()
    }
}

/// The same, checked, with roles of these kinds left out.
pub(crate) fn without(kinds: &[u8], options: Options) -> Arc<Config> {
    let mut layout = layout(options);
    for kind in kinds {
        layout.instances[usize::from(*kind)] = Vec::new().into();
    }
    MultiPaxos::configure(layout).expect("a deployment")
}

/// The same with all of them.
pub(crate) fn config(options: Options) -> Arc<Config> {
    without(&[], options)
}

/// The `count`-th round of a leader.
pub(crate) fn round(count: u64, leader: u8) -> Round {
    Round::new(Epoch::default(), count, LeaderId(leader))
}

/// A batch of one command with this payload, stamped with this time.
pub(crate) fn value(stamp: u64, text: &'static str) -> Value {
    Value {
        stamp: Timestamp(stamp),
        batch: batch(text),
    }
}

/// A vote for such a value.
pub(crate) fn vote(round: Round, stamp: u64, text: &'static str) -> Vote {
    Vote {
        round,
        value: value(stamp, text),
    }
}

/// All votes of an acceptor, which has forgotten nothing.
pub(crate) fn votes(votes: &[(u64, Vote)]) -> Votes {
    let votes: Vec<_> = votes
        .iter()
        .map(|(slot, vote)| (Slot(*slot), vote.clone()))
        .collect();
    Votes {
        start: Slot(0),
        end: Slot::MAX,
        next: Slot::MAX,
        forgotten: Slot(0),
        watermark: votes.last().map_or(Slot(0), |(slot, _)| slot.next()),
        votes,
    }
}

/// An acceptor's promise, with these votes.
pub(crate) fn phase1b(from: u8, round: Round, votes: Votes) -> leader::In {
    leader::In::Phase1b {
        from: AcceptorId(from),
        round,
        votes,
        clock: Timestamp(0),
    }
}

/// An acceptor's testimony to a candidate.
pub(crate) fn pre_vote_reply(from: u8, gone: bool, promise: Round) -> leader::In {
    leader::In::PreVoteReply {
        from: AcceptorId(from),
        gone,
        promise,
    }
}

/// Leader 0, in phase 1 of its first round: two acceptors have not heard of another.
pub(crate) fn in_phase1(config: Arc<Config>) -> Stage<Leader> {
    let birth = stage::birth(kind::Leader, 0, NodeId(0));
    let mut leader = Stage::new(config, &birth, Leader::new);
    leader.timer();
    for from in [0, 1] {
        leader.tell(pre_vote_reply(from, true, Round(0)));
    }
    leader
}

/// Leader 0, leading in its first round; acceptors have told it of no votes.
pub(crate) fn leading(config: Arc<Config>) -> Stage<Leader> {
    let mut leader = in_phase1(config);
    for from in [0, 1] {
        leader.tell(phase1b(from, round(1, 0), votes(&[])));
    }
    leader
}

/// These messages, none of which waits for a record, and nothing else.
pub(crate) fn only(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0))).collect();
    stage::only(Vec::new(), sends)
}
