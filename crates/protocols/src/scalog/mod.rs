//! Scalog (Ding, Chu, Zhao, Li, Alvisi, van Renesse; as state machine replication:
//! compartmentalization, section 8.7): replicate first, order afterwards.
//!
//! Servers in *shards* take commands and copy them to each other, without order among shards. What
//! goes through Paxos is how much all servers of a shard hold, a *cut*: one decision orders all
//! records that came since the one before, so the work of ordering does not depend on the number of
//! commands. Two consecutive cuts say in which order the records between them are executed: shard
//! by shard, server by server (`cut`). Messages that hold commands are drawn double.
//!
//! ```text
//! client ══ Commands ══> server ══ Backup ══> server (those of its shard) ── Report ──> aggregator
//!                               ══ Records ══> replica (all)
//!
//! aggregator ── Propose ──> leader ── Phase2a ──> proxy leader ── Phase2a ──> acceptor
//! acceptor ── Phase2b ──> proxy leader
//!
//! proxy leader ── Chosen ──> replica (all) ── Results ──> unbatcher ── Answers ──> client
//!              ── BatchesChosen ──> aggregator
//! ```
//!
//! The ordering is MultiPaxos's own, to which a cut is a batch like any other. Leader, proxy
//! leader, acceptor and unbatcher are MultiPaxos's roles as they are, and so are reads, elections,
//! and how replicas catch up: see [`crate::multipaxos`]. A replica is MultiPaxos's behind a stage
//! that puts records in place of cuts. Beside these there are
//!
//! ```text
//! replica ── FetchRecords ──> server ══ Fetched ══> replica
//! replica ── Ordered ──> servers, aggregators         the cut, and what the replica keeps
//! server ══ PassedOn ══> server                       its shard is closed, or spare
//! server ── PassedOn ──> client                       and which servers take commands in
//! server ── Turn ──> server (all)                     its aggregator leads to no cuts
//! ```
//!
//! A shard whose server is gone or has lost its memory is closed through the log, and a spare one
//! is opened in its place, or the same one when all its servers are there; the other shards go on
//! meanwhile (`aggregator`, `server`).
//! Safety rests, beside what that of MultiPaxos rests on, on three facts. A length is proposed only
//! when all servers of the shard hold it on disk, or live on in the life in which they held it. The
//! log alone says what the cut behind a slot is. And servers forget records when f+1 replicas keep
//! what they led to.

pub mod client;

pub mod server;

pub mod aggregator;

/// The read batcher: that of MultiPaxos.
pub mod read_batcher {
    pub use crate::multipaxos::read_batcher::In;
    /// See [`crate::multipaxos::read_batcher::ReadBatcher`].
    pub type ReadBatcher = super::Taken<crate::multipaxos::read_batcher::ReadBatcher>;
}

/// The leader: that of MultiPaxos.
pub mod leader {
    pub use crate::multipaxos::leader::In;
    /// See [`crate::multipaxos::leader::Leader`].
    pub type Leader = super::Taken<crate::multipaxos::leader::Leader>;
}

/// The proxy leader: that of MultiPaxos.
pub mod proxy_leader {
    pub use crate::multipaxos::proxy_leader::In;
    /// See [`crate::multipaxos::proxy_leader::ProxyLeader`].
    pub type ProxyLeader = super::Taken<crate::multipaxos::proxy_leader::ProxyLeader>;
}

/// The acceptor: that of MultiPaxos.
pub mod acceptor {
    pub use crate::multipaxos::acceptor::In;
    /// See [`crate::multipaxos::acceptor::Acceptor`].
    pub type Acceptor = super::Taken<crate::multipaxos::acceptor::Acceptor>;
}

pub mod replica;

/// The unbatcher: that of MultiPaxos.
pub mod unbatcher {
    pub use crate::multipaxos::unbatcher::In;
    /// See [`crate::multipaxos::unbatcher::Unbatcher`].
    pub type Unbatcher = super::Taken<crate::multipaxos::unbatcher::Unbatcher>;
}

/// The relay: that of MultiPaxos.
pub mod relay {
    pub use crate::pigpaxos::relay::In;
    /// See [`crate::pigpaxos::relay::Relay`].
    pub type Relay = super::Taken<crate::pigpaxos::relay::Relay>;
}

pub(crate) mod branch;
pub mod config;
pub mod cut;
pub mod id;
pub mod invariants;
mod metrics;
mod presets;
mod service;
mod settings;

use crate::multipaxos;
use crate::parts;
use crate::parts::workers::workers;
use crate::pigpaxos;
use crate::pigpaxos::message::RelayId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use config::Config;
use id::{AggregatorId, ServerId, aggregators};
use ionian_kernel::adapted::{Adapted, Translate};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::role::Role;
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;
use ionian_replication::executor::without_preamble;

/// A role of MultiPaxos at work here as it is there.
type Taken<R> = Adapted<R, Verbatim>;

ionian_kernel::protocol! {
    config Config;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Server "server" ToServers(ServerId) server::Server,
    2 Aggregator "aggregator" ToAggregators(AggregatorId) aggregator::Aggregator,
    3 ReadBatcher "read_batcher" ToReadBatchers(ReadBatcherId) read_batcher::ReadBatcher,
    4 Leader "leader" ToLeaders(LeaderId) leader::Leader,
    5 ProxyLeader "proxy_leader" ToProxyLeaders(ProxyLeaderId) proxy_leader::ProxyLeader,
    6 Acceptor "acceptor" ToAcceptors(AcceptorId) acceptor::Acceptor,
    7 Replica "replica" ToReplicas(ReplicaId) replica::Replica,
    8 Unbatcher "unbatcher" ToUnbatchers(UnbatcherId) unbatcher::Unbatcher,
    9 Relay "relay" ToRelays(RelayId) relay::Relay,
}

impl From<multipaxos::Envelope> for Envelope {
    /// What roles of MultiPaxos send each other. What proposes to its leader and hears of it there,
    /// a batcher, is an aggregator here.
    fn from(envelope: multipaxos::Envelope) -> Self {
        use multipaxos::Envelope as Theirs;
        match envelope {
            Theirs::ToClients(clients, message) => Envelope::ToClients(clients, message),
            Theirs::ToBatchers(batchers, message) => {
                let message = aggregator::In::Ordering { message };
                Envelope::ToAggregators(aggregators(batchers), message)
            }
            Theirs::ToReadBatchers(batchers, message) => {
                Envelope::ToReadBatchers(batchers, message)
            }
            Theirs::ToLeaders(leaders, message) => Envelope::ToLeaders(leaders, message),
            Theirs::ToProxyLeaders(proxies, message) => Envelope::ToProxyLeaders(proxies, message),
            Theirs::ToAcceptors(acceptors, message) => Envelope::ToAcceptors(acceptors, message),
            Theirs::ToReplicas(replicas, message) => {
                Envelope::ToReplicas(replicas, replica::In::Ordering { message })
            }
            Theirs::ToUnbatchers(unbatchers, message) => {
                Envelope::ToUnbatchers(unbatchers, message)
            }
            Theirs::ToRelays(relays, message) => Envelope::ToRelays(relays, message),
            Theirs::ToApplication(lane, reply) => Envelope::ToApplication(lane, reply),
        }
    }
}

/// Scalog.
pub enum Scalog {}

impl Protocol for Scalog {
    const NAME: &'static str = "scalog";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::Replica];
    const SETTINGS: &'static [Setting] = settings::SETTINGS;
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Config;
    type Invariants = invariants::Invariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        Config::new(layout)
    }

    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        Config::transition(from, to)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.ordering.epoch()
    }

    /// Its own, and those of the roles that it shares, but for relays, which no preset has: seeds
    /// of MultiPaxos reach theirs.
    fn branches() -> Vec<&'static str> {
        let shared = parts::branch::ALL;
        branch::ALL.iter().chain(shared).copied().collect()
    }

    fn commutes(options: &Options) -> bool {
        workers(options) > 1
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        service::service(config, epoch)
    }

    fn founding_records(config: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>> {
        match at.kind {
            kind::Acceptor => multipaxos::MultiPaxos::founding_records(
                &config.ordering,
                Address {
                    kind: multipaxos::kind::Acceptor,
                    ..at
                },
                slot,
            ),
            _ => Vec::new(),
        }
    }

    /// The cut is left out: the servers of another cluster hold nothing that it could mean.
    fn state_in(stored: &Bytes) -> Result<Bytes, RestoreError> {
        without_preamble(stored)
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        match birth.address.kind {
            kind::Client => Instance::Client(client::lane(config, &birth)),
            kind::Server => Instance::Server(server::Server::new(config.clone(), &birth)),
            kind::Aggregator => {
                Instance::Aggregator(aggregator::Aggregator::new(config.clone(), &birth))
            }
            kind::ReadBatcher => Instance::ReadBatcher(taken(
                config,
                &birth,
                multipaxos::read_batcher::ReadBatcher::new,
            )),
            kind::Leader => {
                Instance::Leader(taken(config, &birth, multipaxos::leader::Leader::new))
            }
            kind::ProxyLeader => Instance::ProxyLeader(taken(
                config,
                &birth,
                multipaxos::proxy_leader::ProxyLeader::new,
            )),
            kind::Acceptor => {
                Instance::Acceptor(taken(config, &birth, multipaxos::acceptor::Acceptor::new))
            }
            kind::Replica => Instance::Replica(replica::Replica::new(config.clone(), &birth)),
            kind::Unbatcher => {
                Instance::Unbatcher(taken(config, &birth, multipaxos::unbatcher::Unbatcher::new))
            }
            kind::Relay => Instance::Relay(taken(config, &birth, pigpaxos::relay::Relay::new)),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}

/// Roles of MultiPaxos say here what they say there.
pub struct Verbatim;

impl Translate for Verbatim {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Config;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Config) -> Self::Within {
        config.ordering.clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        envelope.into()
    }
}

fn taken<R: Role<Send = multipaxos::Envelope, Config = Arc<multipaxos::config::Config>>>(
    config: &Config,
    birth: &Birth<'_>,
    make: impl FnOnce(R::Config, &Birth<'_>) -> R,
) -> Taken<R> {
    let role = make(config.ordering.clone(), birth);
    Adapted::new(role, birth.keeps_records, Verbatim)
}
