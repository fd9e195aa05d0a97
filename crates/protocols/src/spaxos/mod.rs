//! S-Paxos, as published and compartmentalized (compartmentalization, section 7): commands and
//! their order go different ways. Disseminators have stabilizers keep the commands, and the leader
//! orders nothing but references to them: what it handles is as small for commands of 64 KiB as for
//! commands of 16 bytes.
//!
//! The ordering is MultiPaxos's own, to which a reference is a batch like any other. Leader and
//! proxy leader have MultiPaxos's [parts]; acceptor, replica and four more are
//! MultiPaxos's roles as they are. See [`crate::multipaxos`] for their messages among each other.
//! Messages that hold commands are drawn double.
//!
//! ```text
//! client ══ Commands ══> batcher ══ Disseminate ══> disseminator ── BatchesChosen ──> batcher
//! client ══ Commands ══> disseminator                                        (without batchers)
//!
//! disseminator ══ Store ══> stabilizer (a write quorum) ── Stored ──> disseminator (its own, and those beside leaders)
//!
//! disseminator ── Propose ──> leader ── Phase2a ──> proxy leader ── Phase2a ──> acceptor ── Phase2b ──> proxy leader
//!
//! proxy leader ── Chosen ──> stabilizer ══ Chosen ══> replica (all) ── Results ──> unbatcher ── Answers ──> client
//!              ── Chosen ──> disseminator
//! ```
//!
//! A stabilizer that lacks what is chosen asks others; one that lost its memory copies what they
//! hold. They tell each other what was chosen where, and forget it when leaders say that it is kept
//! by f+1 replicas.
//!
//! ```text
//! stabilizer ── Fetch ──> stabilizer ══ Fetched ══> stabilizer
//! stabilizer ── Copy ──> stabilizer ══ Copied ══> stabilizer
//! stabilizer ── Delivered ──> stabilizers        leader ── Kept ──> stabilizers
//! stabilizer ── StabilizerAlive ──> proxy leaders      leader ── Progress ──> disseminators
//! leader ── NewLeader ──> disseminators
//! ```
//!
//! Reads, elections and the recovery of replicas are MultiPaxos's. Safety rests, beside what that
//! rests on, on three facts. A reference is proposed only when a write quorum of stabilizers has
//! said that it would find the payload again. A payload is given one slot at most (`leader.rs`).
//! And stabilizers forget it when no slot can need it any more: it is chosen in a slot that f+1
//! replicas keep, or they keep every slot in which it would not be void.

pub mod message;

pub mod client;

pub mod batcher;

pub mod disseminator;

/// The read batcher: that of MultiPaxos.
pub mod read_batcher {
    pub use crate::multipaxos::read_batcher::In;
    /// See [`crate::multipaxos::read_batcher::ReadBatcher`].
    pub type ReadBatcher = super::Taken<crate::multipaxos::read_batcher::ReadBatcher>;
}

pub mod leader;

pub mod proxy_leader;

/// The acceptor: that of MultiPaxos.
pub mod acceptor {
    pub use crate::multipaxos::acceptor::In;
    /// See [`crate::multipaxos::acceptor::Acceptor`].
    pub type Acceptor = super::Taken<crate::multipaxos::acceptor::Acceptor>;
}

pub mod stabilizer;

/// The replica: that of MultiPaxos. It receives payloads, not references.
pub mod replica {
    pub use crate::multipaxos::replica::In;
    /// See [`crate::multipaxos::replica::Replica`].
    pub type Replica = super::Taken<crate::multipaxos::replica::Replica>;
}

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
pub mod id;
pub mod invariants;
mod lives;
mod metrics;
mod presets;
mod salvage;
mod service;
mod settings;

use crate::multipaxos;
use crate::parts;
use crate::parts::workers::workers;
use crate::pigpaxos;
use crate::pigpaxos::asking::Asks;
use crate::pigpaxos::message::RelayId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use config::Config;
use id::{DisseminatorId, StabilizerId, of_batchers};
use ionian_kernel::adapted::{Adapted, Translate};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::role::Role;
use ionian_kernel::salvage::Salvage;
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;

/// A role of MultiPaxos at work here as it is there.
type Taken<R> = Adapted<R, Verbatim>;

ionian_kernel::protocol! {
    config Config;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Batcher "batcher" ToBatchers(BatcherId) batcher::Batcher,
    2 Disseminator "disseminator" ToDisseminators(DisseminatorId) disseminator::Disseminator,
    3 ReadBatcher "read_batcher" ToReadBatchers(ReadBatcherId) read_batcher::ReadBatcher,
    4 Leader "leader" ToLeaders(LeaderId) leader::Leader,
    5 ProxyLeader "proxy_leader" ToProxyLeaders(ProxyLeaderId) proxy_leader::ProxyLeader,
    6 Acceptor "acceptor" ToAcceptors(AcceptorId) acceptor::Acceptor,
    7 Stabilizer "stabilizer" ToStabilizers(StabilizerId) stabilizer::Stabilizer,
    8 Replica "replica" ToReplicas(ReplicaId) replica::Replica,
    9 Unbatcher "unbatcher" ToUnbatchers(UnbatcherId) unbatcher::Unbatcher,
    10 Relay "relay" ToRelays(RelayId) relay::Relay,
}

impl From<multipaxos::Envelope> for Envelope {
    /// What roles of MultiPaxos send each other. What proposes to its leader and hears of it there,
    /// a batcher, is a disseminator here.
    fn from(envelope: multipaxos::Envelope) -> Self {
        use multipaxos::Envelope as Theirs;
        match envelope {
            Theirs::ToClients(clients, message) => Envelope::ToClients(clients, message),
            Theirs::ToBatchers(batchers, message) => {
                Envelope::ToDisseminators(of_batchers(batchers), message.into())
            }
            Theirs::ToReadBatchers(batchers, message) => {
                Envelope::ToReadBatchers(batchers, message)
            }
            Theirs::ToLeaders(leaders, message) => {
                Envelope::ToLeaders(leaders, leader::In::Ordering { message })
            }
            Theirs::ToProxyLeaders(proxies, message) => {
                Envelope::ToProxyLeaders(proxies, proxy_leader::In::Ordering { message })
            }
            Theirs::ToAcceptors(acceptors, message) => Envelope::ToAcceptors(acceptors, message),
            Theirs::ToReplicas(replicas, message) => Envelope::ToReplicas(replicas, message),
            Theirs::ToUnbatchers(unbatchers, message) => {
                Envelope::ToUnbatchers(unbatchers, message)
            }
            Theirs::ToRelays(relays, message) => Envelope::ToRelays(relays, message),
            Theirs::ToApplication(lane, reply) => Envelope::ToApplication(lane, reply),
        }
    }
}

impl Asks for Envelope {
    #[inline]
    fn to_acceptors(to: AcceptorSet, message: acceptor::In) -> Self {
        Envelope::ToAcceptors(to, message)
    }

    fn to_relays(to: Set<RelayId>, message: relay::In) -> Self {
        Envelope::ToRelays(to, message)
    }
}

/// S-Paxos.
pub enum SPaxos {}

impl Protocol for SPaxos {
    const NAME: &'static str = "spaxos";
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

    /// Its own, and those of the roles that it shares. Those of relays are left out: no preset of
    /// S-Paxos has relays, so the seeds that are to reach every branch would reach none of them.
    /// The seeds of MultiPaxos reach them.
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

    fn salvage() -> Result<Box<dyn Salvage>, LayoutError> {
        Ok(Box::new(salvage::Salvage::default()))
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        match birth.address.kind {
            kind::Client => Instance::Client(client::lane(config, &birth)),
            kind::Batcher => Instance::Batcher(batcher::Batcher::new(config.clone(), &birth)),
            kind::Disseminator => {
                Instance::Disseminator(disseminator::Disseminator::new(config.clone(), &birth))
            }
            kind::ReadBatcher => Instance::ReadBatcher(taken(
                config,
                &birth,
                multipaxos::read_batcher::ReadBatcher::new,
            )),
            kind::Leader => Instance::Leader(leader::Leader::new(config.clone(), &birth)),
            kind::ProxyLeader => {
                Instance::ProxyLeader(proxy_leader::ProxyLeader::new(config.clone(), &birth))
            }
            kind::Acceptor => {
                Instance::Acceptor(taken(config, &birth, multipaxos::acceptor::Acceptor::new))
            }
            kind::Stabilizer => {
                Instance::Stabilizer(stabilizer::Stabilizer::new(config.clone(), &birth))
            }
            kind::Replica => {
                Instance::Replica(taken(config, &birth, multipaxos::replica::Replica::new))
            }
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
    Adapted::new(
        make(config.ordering.clone(), birth),
        birth.keeps_records,
        Verbatim,
    )
}
