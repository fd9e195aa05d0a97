//! Who plays what around each role of MultiPaxos: around leader, proxy leader and acceptor in
//! `agreement`, around replicas in `execution`, around batchers and unbatchers in `batching`.

mod agreement;
mod batching;
pub(crate) mod execution;

use super::commands::Commands;
use super::emulated::{Part, Stage};
use super::flow::Flow;
use super::work::Work;
use agreement::{around_acceptor, around_leader, around_proxy_leader, asking_acceptor};
use batching::{around_batcher, around_read_batcher, around_unbatcher};
use execution::{around_replica, reading_replica};
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_replication::batch::{Batch, Value};
use std::sync::Arc;

type Actor = Part<MultiPaxos>;
type OnStage<'a> = Stage<'a, MultiPaxos>;

/// What all parts know.
pub(crate) struct Play {
    pub(crate) config: Arc<Config>,
    pub(crate) flow: Flow,
    pub(crate) commands: Commands,
    /// What the log holds in place of a batch: the batch, or a reference to it.
    pub(crate) held: Batch,
    pub(crate) work: Work,
    /// How many commands a client lane sends a batcher at once.
    pub(crate) gathered: u64,
}

/// Who stands at this address while instance 0 of `subject` is measured.
pub(crate) fn cast(play: &Arc<Play>, subject: u8, address: Address) -> Option<Actor> {
    let play = play.clone();
    match (subject, play.work) {
        (kind::Leader, Work::Write) => around_leader(play, address),
        (kind::ProxyLeader, Work::Write) => around_proxy_leader(play, address),
        (kind::Acceptor, Work::Write) => around_acceptor(play, address),
        (kind::Acceptor, _) => asking_acceptor(play, address),
        (kind::Replica, Work::Read) => reading_replica(play, address),
        (kind::Replica, _) => around_replica(play, address),
        (kind::Batcher, _) => around_batcher(play, address),
        (kind::ReadBatcher, _) => around_read_batcher(play, address),
        _ => around_unbatcher(play, address),
    }
}

impl Play {
    fn is_batched(&self) -> bool {
        !self.config.all::<BatcherId>(kind::Batcher).is_empty()
    }

    fn proposer(&self, number: u64) -> Proposer {
        match self.is_batched() {
            true => Proposer::Batcher {
                id: BatcherId(0),
                number,
            },
            false => Proposer::Client { id: ClientId(0) },
        }
    }

    fn count(&self, kind: u8) -> u64 {
        self.config.layout().count(kind) as u64
    }

    /// Whether an instance of this kind proposes.
    fn proposes(&self, kind: u8) -> bool {
        kind == if self.is_batched() {
            kind::Batcher
        } else {
            kind::Client
        }
    }

    /// Whether an instance of this kind asks for reads.
    fn asks(&self, kind: u8) -> bool {
        kind == if self
            .config
            .all::<ReadBatcherId>(kind::ReadBatcher)
            .is_empty()
        {
            kind::Client
        } else {
            kind::ReadBatcher
        }
    }

    fn value(&self, stage: &OnStage<'_>) -> Value {
        Value {
            stamp: stage.now.timestamp(),
            batch: self.held.clone(),
        }
    }

    /// How many commands the log has where it holds this; noops count for nothing.
    fn commands_of(&self, held: &Batch) -> u64 {
        if held.is_empty() {
            0
        } else {
            self.commands.batch
        }
    }
}
