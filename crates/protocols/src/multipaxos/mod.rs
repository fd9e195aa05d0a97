//! Compartmentalized MultiPaxos (compartmentalization, sections 2 to 4).
//!
//! Writes, from left to right, with the names of the messages. Batchers and unbatchers are
//! optional: without them a client sends to the leader and a replica answers the client itself.
//!
//! ```text
//! client ── Commands ──> batcher ── Propose ──> leader ── Phase2a ──> proxy leader
//!                                                                      │      ▲
//!                                                               Phase2a│      │Phase2b
//!                                                                      ▼      │
//!                                                                     acceptor (a write quorum)
//!
//! proxy leader ── Chosen ──> replica (all) ── Results ──> unbatcher ── Answers ──> client
//!              ── BatchesChosen ──> batcher
//!              ── Learn ──> acceptor ── Chosen ──> replica (of the same node, in place of the first)
//! ```
//!
//! Linearizable reads (3.4); read batchers are optional too. Sequential and eventual reads (3.6) go
//! from the client to a replica directly.
//!
//! ```text
//! client ── Reads ──> read batcher ── PreRead ──> acceptor (a read quorum) ── PreReadAck ──> read batcher
//! read batcher ── Read ──> replica (one) ── Results ──> unbatcher ── Answers ──> client
//! ```
//!
//! Leader election and phase 1: a leader that is silent is deposed only when a read quorum of
//! acceptors has not heard of it either.
//!
//! ```text
//! leader ── Heartbeat ──> leaders, acceptors, replicas
//! leader ── PreVote ──> acceptors ── PreVoteReply ──> leader
//! leader ── Phase1a ──> acceptors ── Phase1b ──> leader
//! leader ── NewLeader ──> clients, batchers        acceptor ── Nack ──> leader, proxy leader
//! leader ── NotLeader ──> client, batcher          (to those that asked the wrong leader)
//! leader ── TakeOver ──> leader ── Declined ──> leader          (the first is about to stop)
//! ```
//!
//! Recovery: a replica that misses a slot asks a peer, then the leader; a replica that is far
//! behind is given a snapshot; leaders and acceptors learn what replicas have executed and forget
//! it.
//!
//! ```text
//! replica ── Fetch ──> replica ── Fetched ──> replica          replica ── Recover ──> leader
//! replica ── FetchSnapshot ──> replica ── SnapshotChunk ──> replica
//! replica ── Executed ──> leaders                              replica ── AdvanceClock ──> leaders
//! proxy leader ── ProxyAlive ──> leader                        unbatcher ── UnbatcherAlive ──> replicas
//! acceptor ── Rejoin ──> leaders ── Admit ──> acceptor         acceptor ── Forgotten ──> proxy leader
//! ```
//!
//! A deployment can have relays before its acceptors: [`pigpaxos`] has their chart.
//!
//! Changes of the membership are commands in the log: a replica that executes one tells its driver,
//! which reconfigures all roles of its node; a leader that leads by the quorums of both
//! configurations ends the change when it can (`parts/leader/handover.rs`).
//!
//! Safety rests on three facts. A value is chosen when a write quorum voted for it in one round.
//! Every read quorum meets every write quorum. A leader proposes in a slot of its round only what
//! is safe after a read quorum has promised: the value of the highest round voted for in that slot,
//! anything if there is none.

pub use crate::parts::message;

pub mod client;

pub mod batcher;

pub mod leader;

pub mod proxy_leader;

pub mod acceptor;

pub mod replica;

pub mod unbatcher;

pub use crate::pigpaxos::relay;

mod quorum_reader;
pub mod read_batcher;

pub mod config;
pub mod invariants;
pub(crate) mod metrics;
pub(crate) mod presets;
mod salvage;
pub(crate) mod service;
pub(crate) mod settings;

use crate::parts::workers::workers;
use crate::pigpaxos;
use crate::pigpaxos::message::RelayId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::salvage::Salvage;
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;
use ionian_kernel::wire::encode_all;

ionian_kernel::protocol! {
    config Arc<config::Config>;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Batcher "batcher" ToBatchers(BatcherId) batcher::Batcher,
    2 ReadBatcher "read_batcher" ToReadBatchers(ReadBatcherId) read_batcher::ReadBatcher,
    3 Leader "leader" ToLeaders(LeaderId) leader::Leader,
    4 ProxyLeader "proxy_leader" ToProxyLeaders(ProxyLeaderId) proxy_leader::ProxyLeader,
    5 Acceptor "acceptor" ToAcceptors(AcceptorId) acceptor::Acceptor,
    6 Replica "replica" ToReplicas(ReplicaId) replica::Replica,
    7 Unbatcher "unbatcher" ToUnbatchers(UnbatcherId) unbatcher::Unbatcher,
    8 Relay "relay" ToRelays(RelayId) relay::Relay,
}

/// Compartmentalized MultiPaxos; with every role on every node, Classic MultiPaxos.
pub enum MultiPaxos {}

impl Protocol for MultiPaxos {
    const NAME: &'static str = "multipaxos";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::Replica];
    const SETTINGS: &'static [Setting] = settings::SETTINGS;
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Arc<config::Config>;
    type Invariants = invariants::Invariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        config::Config::new(layout)
            .map(config::Config::telling_neighbours)
            .map(Arc::new)
    }

    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        config::Config::transition(from, to)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.epoch()
    }

    fn branches() -> Vec<&'static str> {
        let all = crate::parts::branch::ALL.iter();
        all.chain(pigpaxos::branch::ALL).copied().collect()
    }

    fn commutes(options: &Options) -> bool {
        workers(options) > 1
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        service::service(config, epoch)
    }

    fn founding_records(_: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>> {
        match at.kind {
            kind::Acceptor => [encode_all(&acceptor::Record::Forgot { below: slot })].into(),
            _ => Vec::new(),
        }
    }

    fn salvage() -> Result<Box<dyn Salvage>, LayoutError> {
        Ok(Box::new(salvage::Salvage::default()))
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        let config = config.clone();
        match birth.address.kind {
            kind::Client => Instance::Client(client::ClientLane::new(config, &birth)),
            kind::Batcher => Instance::Batcher(batcher::Batcher::new(config, &birth)),
            kind::ReadBatcher => {
                Instance::ReadBatcher(read_batcher::ReadBatcher::new(config, &birth))
            }
            kind::Leader => Instance::Leader(leader::Leader::new(config, &birth)),
            kind::ProxyLeader => {
                Instance::ProxyLeader(proxy_leader::ProxyLeader::new(config, &birth))
            }
            kind::Acceptor => Instance::Acceptor(acceptor::Acceptor::new(config, &birth)),
            kind::Replica => Instance::Replica(replica::Replica::new(config, &birth)),
            kind::Unbatcher => Instance::Unbatcher(unbatcher::Unbatcher::new(config, &birth)),
            kind::Relay => Instance::Relay(relay::Relay::new(config, &birth)),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}
