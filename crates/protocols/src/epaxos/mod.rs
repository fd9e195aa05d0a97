//! EPaxos: every node leads commands of its own clients, and conflicting commands are ordered by
//! the dependencies that acceptors find (SOSP 2013); with the quorums and the recovery of Atlas
//! (EuroSys 2020).
//!
//! ```text
//! client ── Propose ──> leader ── PreAccept ──> acceptor (its own)
//!                       leader <─ PreAccepted ─ acceptor
//!                       leader ── PreAccept ──> acceptors (the rest of the fast quorum)
//!                       leader <─ PreAccepted ─ acceptors
//!   every dependency is named by f members of the fast quorum (fast path):
//!                       leader ── Decide ─────> acceptor (its own)
//!                       leader <── Decided ──── acceptor
//!   otherwise (slow path):
//!                       leader ── Accept ─────> acceptors
//!                       leader <── Accepted ─── acceptors (f+1)
//!   then:
//!                       leader ── Commit ─────> acceptors ── Committed ──> replicas beside them
//!                                               acceptor ─── Learned ────> leader
//!                                               acceptor ─── Ask ────────> acceptor
//!                       leader ── Committed ──> replicas without an acceptor beside them
//! replica ── Answers ──> client
//!
//! recovery:  replica ── Recover ──> leader ── Prepare ──> acceptors
//!                                   leader <─ Prepared ── acceptors (n-f), then Accept as above
//!                                   leader <─ Refused ─── acceptor (a higher ballot)
//!                                   leader <── Kept ───── acceptor (replicas keep the instance)
//! reads:     client ── Read ──> replica ── PreRead ─────> acceptors
//!                               replica <─ PreReadAck ─── acceptors (a majority)
//! catch-up:  replica ── Fetch ──> acceptor ── Fetched ──> replica
//!            replica ── FetchSnapshot ──> replica ── SnapshotChunk ──> replica
//!            replica ── Kept ──> acceptors
//! alive:     leader ── Heartbeat ──> leaders, replicas;   replica ── Executed, Progress ──> leader
//! ```
//!
//! With the roles apart (BPaxos, compartmentalized EPaxos) there is no fast path. Recovery, reads
//! and catch-up are as above, with dependency nodes in place of acceptors in all but recovery:
//!
//! ```text
//! client ── Propose ──> leader ── PreAccept ──> dependency nodes
//!                       leader <─ PreAccepted ─ dependency nodes (a majority)
//!                       leader ── Propose ────> proxy leader ── Accept ────> acceptors of a group
//!                                               proxy leader <─ Accepted ─── most of them
//!                                               proxy leader ── Commit ────> dependency nodes
//!                                               proxy leader ── Committed ─> replicas
//!                       leader <─ Chosen ────── proxy leader
//!                       leader <─ Refused ───── acceptor (a recovery's ballot)
//! replica ── Answers ──> client
//! acceptor ── Ask ──> dependency node ── Commit ──> acceptor (one that has lost its memory)
//! ```

pub mod client;

pub mod leader;

pub mod proxy_leader;

pub mod acceptor;

pub mod replica;

pub mod config;
pub mod duty;
pub mod executed;
pub mod graph;
pub mod index;
pub mod instance;
pub mod invariants;
pub mod message;
pub mod recovery;

mod branch;
mod committing;
mod metrics;
mod paged;
mod presets;
mod service;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::salvage::Salvage;
use ionian_kernel::service::Service;
use ionian_kernel::status::Metrics;

ionian_kernel::protocol! {
    config Arc<config::Config>;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Leader "leader" ToLeaders(LeaderId) leader::Leader,
    2 Acceptor "acceptor" ToAcceptors(AcceptorId) acceptor::Acceptor,
    3 Replica "replica" ToReplicas(ReplicaId) replica::Replica,
    4 DependencyNode "dependency_node" ToDependencyNodes(AcceptorId) acceptor::Acceptor,
    5 ProxyLeader "proxy_leader" ToProxyLeaders(ProxyLeaderId) proxy_leader::ProxyLeader,
}

/// EPaxos with Atlas's quorums.
pub enum EPaxos {}

/// Why nothing of a running cluster changes through its commands.
const UNCHANGEABLE: &str = "the members and options of an epaxos cluster cannot be changed while \
     it runs: quorums of instances that are under way would be those of another configuration. \
     Stop all clients, save a snapshot with \"ionian snapshot save\", and restore it into a new \
     cluster";

/// The most runs of instances that a replica asks an acceptor for at a time.
const RUNS: usize = 64;

/// The most recoveries of a leader at a time. What is beyond waits until it is asked for again.
const MAX_RECOVERIES: usize = 1 << 10;

/// Why nothing reads the records of stopped nodes.
const UNSALVAGEABLE: &str = "its instances cannot be salvaged: what they depend on may be known to \
     lost nodes only. Take the last snapshot of a node with \"ionian snapshot save --stopped\"";

impl Protocol for EPaxos {
    const NAME: &'static str = "epaxos";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::Replica];
    const LOGS_READS: bool = true;
    const READMITS: bool = true;
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Arc<config::Config>;
    type Invariants = invariants::Invariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        config::Config::new(layout).map(Arc::new)
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Self::check_tunable().map(|()| Transition::AtOnce)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.layout().epoch
    }

    fn check_tunable() -> Result<(), LayoutError> {
        Err(LayoutError(UNCHANGEABLE.into()))
    }

    fn branches() -> Vec<&'static str> {
        branch::ALL.into()
    }

    /// What does not conflict is executed in any order.
    fn commutes(_: &Options) -> bool {
        true
    }

    fn service(config: &Self::Config, _: Epoch) -> Service {
        service::service(config)
    }

    fn salvage() -> Result<Box<dyn Salvage>, LayoutError> {
        Err(LayoutError(UNSALVAGEABLE.into()))
    }

    /// It stands behind the set of executed instances.
    fn state_in(stored: &Bytes) -> Result<Bytes, RestoreError> {
        replica::state_in(stored)
    }

    /// A cluster that goes on from a snapshot begins with new instances.
    fn founding_records(_: &Self::Config, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        let config = config.clone();
        match birth.address.kind {
            kind::Client => Instance::Client(client::ClientLane::new(&config, &birth)),
            kind::Leader => Instance::Leader(leader::Leader::new(config, &birth)),
            kind::Acceptor => Instance::Acceptor(acceptor::Acceptor::new(config, &birth)),
            kind::DependencyNode => {
                Instance::DependencyNode(acceptor::Acceptor::new(config, &birth))
            }
            kind::ProxyLeader => {
                Instance::ProxyLeader(proxy_leader::ProxyLeader::new(config, &birth))
            }
            kind::Replica => Instance::Replica(replica::Replica::new(config, &birth)),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}
