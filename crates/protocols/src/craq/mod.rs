//! CRAQ, chain replication with apportioned queries (Terrace and Freedman), with what the papers
//! leave to a master: failures at any moment.
//!
//! A write enters at the head of a chain of nodes, which numbers it, and is passed from each node
//! to the next. It is committed when the tail has it, which answers; acknowledgements travel back.
//! Every node answers reads: of what is *clean* by itself, of what is *dirty* (a write to it is
//! under way) when it has asked the tail what is committed. f+1 nodes survive f failures.
//!
//! ```text
//! client ══ Commands ══> batcher ══ Write ══> chain node (the head)
//! client ══ Write ══> chain node (the head)                                  (without batchers)
//! chain node ══ Forward ══> chain node (the next) ── Ack ──> chain node (the one before)
//! chain node (the tail) ── Results ──> unbatcher ── Answers ──> client
//! chain node (the tail) ── Answers ──> client                                (without unbatchers)
//! unbatcher ── UnbatcherAlive ──> chain nodes
//!
//! client ── Read, ReadAt ──> chain node (any) ── Answers ──> client
//! chain node ── Query ──> chain node (the tail) ── Committed ──> chain node
//! chain node ── Read ──> chain node (the tail) ── Answers ──> client         (forward_reads = 1)
//! ```
//!
//! The chain itself is decided by a log of MultiPaxos, the *master*: leaders, proxy leaders,
//! acceptors and replicas are MultiPaxos's as they are, and the state machine of its replicas is
//! the [chain](message::Chain). Chain nodes are the clients of that log. Each chain has an epoch,
//! each message between chain nodes names the epoch of its sender, and a node takes none of
//! another epoch. So two chains never write at the same time (`chain_node.rs` has the argument).
//!
//! ```text
//! chain node ── Beat ──> chain nodes          who lives, whom it hears, its epoch
//! chain node ── Sync ──> chain node (the one before) ── Handover ──> chain node
//! chain node ── Fetch ──> chain node ══ Entries, Piece ══> chain node        (to join the chain)
//! chain node ── Chain ──> chain nodes, batchers, clients
//! ```
//!
//! Changes of the membership are commands of the master's log. A client lane gives them to any
//! chain node, as a `Write` of nothing else, and that hands them to the master. Chain nodes tell
//! the leaders when the chain is handed over to the new nodes (`chain_node/changing.rs`).
//!
//! ```text
//! client ── Write ──> chain node (any) ── Propose ──> leader
//! chain node ── Ready ──> leaders
//! ```

pub mod client;

pub mod batcher;

pub mod chain_node;

/// The unbatcher: that of MultiPaxos.
pub mod unbatcher {
    pub use crate::multipaxos::unbatcher::In;
    /// See [`crate::multipaxos::unbatcher::Unbatcher`].
    pub type Unbatcher =
        ionian_kernel::adapted::Adapted<crate::multipaxos::unbatcher::Unbatcher, super::Answering>;
}

/// The leader of the master's log: that of MultiPaxos.
pub mod leader {
    pub use crate::multipaxos::leader::In;
    /// See [`crate::multipaxos::leader::Leader`].
    pub type Leader = super::Taken<crate::multipaxos::leader::Leader>;
}

/// The proxy leader of the master's log: that of MultiPaxos.
pub mod proxy_leader {
    pub use crate::multipaxos::proxy_leader::In;
    /// See [`crate::multipaxos::proxy_leader::ProxyLeader`].
    pub type ProxyLeader = super::Taken<crate::multipaxos::proxy_leader::ProxyLeader>;
}

/// The acceptor of the master's log: that of MultiPaxos.
pub mod acceptor {
    pub use crate::multipaxos::acceptor::In;
    /// See [`crate::multipaxos::acceptor::Acceptor`].
    pub type Acceptor = super::Taken<crate::multipaxos::acceptor::Acceptor>;
}

pub mod master;

mod branch;
pub mod config;
mod entrance;
pub mod id;
pub mod invariants;
pub mod message;
mod metrics;
mod presets;
pub mod roster;
mod service;
mod settings;

use crate::multipaxos;
use crate::parts;
use crate::parts::workers::workers;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use config::Config;
use id::ChainNodeId;
use ionian_kernel::adapted::{Adapted, Translate};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::role::Role;
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;
use master::ChainMaster;

/// A role of MultiPaxos at work for the master's log as it is in MultiPaxos.
type Taken<R> = Adapted<R, Verbatim>;

ionian_kernel::protocol! {
    config Arc<Config>;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Batcher "batcher" ToBatchers(BatcherId) batcher::Batcher,
    2 ChainNode "chain_node" ToChainNodes(ChainNodeId) chain_node::ChainNode,
    3 Unbatcher "unbatcher" ToUnbatchers(UnbatcherId) unbatcher::Unbatcher,
    4 Leader "leader" ToLeaders(LeaderId) leader::Leader internal,
    5 ProxyLeader "proxy_leader" ToProxyLeaders(ProxyLeaderId) proxy_leader::ProxyLeader internal,
    6 Acceptor "acceptor" ToAcceptors(AcceptorId) acceptor::Acceptor internal,
    7 Master "master" ToMasters(ReplicaId) master::Master internal,
}

impl From<multipaxos::Envelope> for Envelope {
    /// What the roles of the master's log send each other, and its clients, the chain nodes.
    fn from(envelope: multipaxos::Envelope) -> Self {
        use multipaxos::Envelope as Theirs;
        match envelope {
            Theirs::ToClients(clients, message) => Envelope::ToChainNodes(
                Set::from_members(clients.members()),
                chain_node::In::Master { message },
            ),
            Theirs::ToLeaders(leaders, message) => Envelope::ToLeaders(leaders, message),
            Theirs::ToProxyLeaders(proxies, message) => Envelope::ToProxyLeaders(proxies, message),
            Theirs::ToAcceptors(acceptors, message) => Envelope::ToAcceptors(acceptors, message),
            Theirs::ToReplicas(replicas, message) => Envelope::ToMasters(replicas, message),
            // The master's log has none of these: the message is for no instance.
            Theirs::ToBatchers(..)
            | Theirs::ToReadBatchers(..)
            | Theirs::ToUnbatchers(..)
            | Theirs::ToRelays(..) => {
                let numbers = Vec::new();
                Envelope::ToBatchers(Set::EMPTY, batcher::In::BatchesDone { numbers })
            }
            Theirs::ToApplication(..) => unreachable!("a chain node takes these out"),
        }
    }
}

/// CRAQ.
pub enum Craq {}

impl Protocol for Craq {
    const NAME: &'static str = "craq";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::ChainNode];
    const SETTINGS: &'static [Setting] = settings::SETTINGS;
    const FOUNDED_SINCE: Level = Level(18);
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Arc<Config>;
    type Invariants = invariants::Invariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        Config::new(layout).map(Arc::new)
    }

    fn cautions(config: &Self::Config) -> Vec<String> {
        config.cautions()
    }

    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        Config::transition(from, to)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.epoch()
    }

    fn check_tunable() -> Result<(), LayoutError> {
        let reason = "the options of a cluster of CRAQ cannot be changed while it runs: save its \
                      state, and found another cluster with it";
        Err(LayoutError(reason.into()))
    }

    fn check_level() -> Result<(), LayoutError> {
        Ok(())
    }

    fn check_lowering() -> Result<(), LayoutError> {
        // The level is decided in another log than that of the commands, so that a machine cannot
        // tell which of these it may still execute.
        let reason = "the level of a cluster of CRAQ can only be raised: save its state before, \
                      and to go back found another cluster with it";
        Err(LayoutError(reason.into()))
    }

    fn branches() -> Vec<&'static str> {
        // Without those of relays, of which the master has none.
        [parts::branch::ALL, branch::ALL].concat()
    }

    fn commutes(options: &Options) -> bool {
        workers(options) > 1
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        service::service(config, epoch)
    }

    fn founding_records(_: &Self::Config, _: Address, _: Slot) -> Vec<Vec<u8>> {
        // The master's log begins anew, and a chain node with the snapshot that it is given.
        Vec::new()
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        match birth.address.kind {
            kind::Client => Instance::Client(client::ClientLane::new(config, &birth)),
            kind::Batcher => Instance::Batcher(batcher::Batcher::new(config.clone(), &birth)),
            kind::ChainNode => {
                Instance::ChainNode(chain_node::ChainNode::new(config.clone(), &birth))
            }
            kind::Unbatcher => Instance::Unbatcher(Adapted::new(
                multipaxos::unbatcher::Unbatcher::new(config.master.clone(), &birth),
                birth.keeps_records,
                Answering(config.nodes()),
            )),
            kind::Leader => {
                Instance::Leader(taken(config, &birth, multipaxos::leader::Leader::new))
            }
            kind::ProxyLeader => {
                let make = multipaxos::proxy_leader::ProxyLeader::new;
                Instance::ProxyLeader(taken(config, &birth, make))
            }
            kind::Acceptor => {
                Instance::Acceptor(taken(config, &birth, multipaxos::acceptor::Acceptor::new))
            }
            kind::Master => Instance::Master(master(config, &birth)),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}

/// A replica of the master's log: its state machine is not that of the clients.
fn master(config: &Arc<Config>, birth: &Birth<'_>) -> master::Master {
    let (chain, least, leases) = (config.founding(), config.least(), config.has_leases());
    let machine = move || -> Box<dyn StateMachine> {
        Box::new(ChainMaster::new(chain.clone(), least, leases))
    };
    let birth = Birth {
        machine: &machine,
        // What the operator has skipped are commands of clients.
        guard: None,
        ..*birth
    };
    taken(config, &birth, multipaxos::replica::Replica::new)
}

/// Roles of MultiPaxos say here what they say there.
pub struct Verbatim;

impl Translate for Verbatim {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Arc<Config>;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Arc<Config>) -> Self::Within {
        config.master.clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        envelope.into()
    }
}

/// The chain nodes are the replicas of an unbatcher.
pub struct Answering(Set<ChainNodeId>);

impl Translate for Answering {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Arc<Config>;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Arc<Config>) -> Self::Within {
        self.0 = config.nodes();
        config.master.clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        use multipaxos::Envelope as Theirs;
        use multipaxos::{client::In::Answers, replica::In::UnbatcherAlive};
        match envelope {
            Theirs::ToClients(clients, Answers { answers }) => {
                Envelope::ToClients(clients, client::In::Answers { answers })
            }
            Theirs::ToReplicas(_, UnbatcherAlive { from }) => {
                Envelope::ToChainNodes(self.0, chain_node::In::UnbatcherAlive { from })
            }
            _ => unreachable!("an unbatcher sends answers, and that it lives"),
        }
    }
}

fn taken<R: Role<Send = multipaxos::Envelope, Config = Arc<multipaxos::config::Config>>>(
    config: &Config,
    birth: &Birth<'_>,
    make: impl FnOnce(R::Config, &Birth<'_>) -> R,
) -> Taken<R> {
    Adapted::new(
        make(config.master.clone(), birth),
        birth.keeps_records,
        Verbatim,
    )
}
