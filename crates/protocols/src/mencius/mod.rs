//! Mencius (Mao et al.), as published and compartmentalized (compartmentalization, section 6).
//!
//! The log is dealt out to several leaders: slot `s` of `n` leaders belongs to leader `s` modulo
//! `n`. Such a part is a stripe, and in a stripe every role does what it does in MultiPaxos, with
//! rounds, phase 1 and quorums of the stripe's own: the roles here have the same [`parts`], and add
//! what it takes to make one log of many. From left to right, messages of Mencius alone in
//! capitals:
//!
//! ```text
//! client ── Commands ──> batcher ── Propose ──> leader ── Phase2a ──> proxy leader        (suggest)
//!                                                │  ▲                  │      ▲
//!                                      RESERVE │  │ RESERVED   Phase2a│      │Phase2b
//!                                                ▼  │                  ▼      │
//!                                               acceptor              acceptor (a write quorum)
//!
//! proxy leader ── Chosen ──> replica (all) ── Results ──> unbatcher ── Answers ──> client
//! leader ── INDEX ──> leader (all others): how far I am
//! leader ── FRONTIERS ──> leader (all others): where earlier epochs end, while members change
//! leader ── MISSES ──> leader (all others): whom I do not hear
//! leader ── PASSED ON ──> leader (that does not hear another): how far that one is
//! leader ── SKIP ──> replica: what I left                                                   (skip)
//! ```
//!
//! A leader that hears of an index beyond its own leaves its unused slots to noops and says so to
//! the replicas, which need no vote to accept it. For that to be safe no other leader may put
//! anything but a noop there, now or later: that is what is reserved beforehand
//! (`leader/reservation.rs`).
//!
//! Every stripe has f leaders of other nodes that stand in for its own. When it is silent one of
//! them is elected, by the witness of the acceptors as in MultiPaxos, finishes what was begun in
//! the stripe and skips the rest (revoke):
//!
//! ```text
//! leader ── Heartbeat ──> leaders of the stripe, acceptors, replicas
//! leader ── PreVote ──> acceptors ── PreVoteReply ──> leader
//! leader ── Phase1a ──> acceptors ── Phase1b (and what was reserved) ──> leader
//! leader ── NewLeader ──> clients and batchers of the stripe
//! ```
//!
//! Linearizable reads ask a read quorum of acceptors as in MultiPaxos; what an acceptor tells is
//! the highest slot of the log in which it has voted, whatever its stripe. Recovery is
//! MultiPaxos's, but that a replica asks all leaders for what it misses, and each answers for the
//! stripes that it leads, with a vote or with a SKIP.
//!
//! Safety rests on MultiPaxos's three facts in every stripe, and on a fourth: a slot that was
//! skipped was reserved by its leader's round, and each leader of a later round has heard of
//! that.

pub mod stripe;

pub(crate) mod branch;
pub mod message;

pub mod of_stripe;

/// The client lane: MultiPaxos's own, which follows the leaders of its stripe.
pub mod client {
    pub use crate::multipaxos::client::In;
    /// See [`crate::multipaxos::client`].
    pub type ClientLane = super::of_stripe::OfStripe<crate::multipaxos::client::ClientLane>;
}

/// The batcher: MultiPaxos's own, which follows the leaders of its stripe.
pub mod batcher {
    pub use crate::multipaxos::batcher::In;
    /// See [`crate::multipaxos::batcher`].
    pub type Batcher = super::of_stripe::OfStripe<crate::multipaxos::batcher::Batcher>;
}

pub mod leader;

pub mod proxy_leader;

pub mod acceptor;

pub mod replica;

/// The unbatcher: MultiPaxos's own.
pub mod unbatcher {
    pub use crate::multipaxos::unbatcher::In;
    /// See [`crate::multipaxos::unbatcher`].
    pub type Unbatcher = super::of_stripe::OfStripe<crate::multipaxos::unbatcher::Unbatcher>;
}

/// The read batcher: MultiPaxos's own.
pub mod read_batcher {
    pub use crate::multipaxos::read_batcher::In;
    /// See [`crate::multipaxos::read_batcher`].
    pub type ReadBatcher = super::of_stripe::OfStripe<crate::multipaxos::read_batcher::ReadBatcher>;
}

pub mod config;
mod homes;
pub mod invariants;
mod metrics;
mod presets;
mod salvage;
mod service;
mod settings;

use self::message::striped;
use self::of_stripe::of_stripe;
use crate::multipaxos;
use crate::parts;
use crate::parts::workers::workers;
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
}

/// Mencius, in any placement.
pub enum Mencius {}

impl Protocol for Mencius {
    const NAME: &'static str = "mencius";
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
        config::Config::new(layout).map(Arc::new)
    }

    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        config::Config::transition(from, to)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.layout().epoch
    }

    fn branches() -> Vec<&'static str> {
        let own = branch::ALL.iter();
        own.chain(parts::branch::ALL).copied().collect()
    }

    fn commutes(options: &Options) -> bool {
        settings::Settings::of(options).out_of_order || workers(options) > 1
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        service::service(config, epoch)
    }

    fn founding_records(config: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>> {
        let forgot = |stripe| {
            let below = config.stripes.from(stripe, slot).in_part();
            let record = multipaxos::acceptor::Record::Forgot { below };
            encode_all(&acceptor::Record::InStripe { stripe, record })
        };
        match at.kind {
            kind::Acceptor => config.stripes.iter().map(forgot).collect(),
            _ => Vec::new(),
        }
    }

    fn salvage() -> Result<Box<dyn Salvage>, LayoutError> {
        Ok(Box::new(salvage::Salvage::default()))
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        let shared = config.clone();
        match birth.address.kind {
            kind::Client => Instance::Client(of_stripe(
                config,
                &birth,
                multipaxos::client::ClientLane::new,
            )),
            kind::Batcher => {
                Instance::Batcher(of_stripe(config, &birth, multipaxos::batcher::Batcher::new))
            }
            kind::ReadBatcher => Instance::ReadBatcher(of_stripe(
                config,
                &birth,
                multipaxos::read_batcher::ReadBatcher::new,
            )),
            kind::Leader => Instance::Leader(leader::Leader::new(shared, &birth)),
            kind::ProxyLeader => {
                Instance::ProxyLeader(proxy_leader::ProxyLeader::new(shared, &birth))
            }
            kind::Acceptor => Instance::Acceptor(acceptor::Acceptor::new(shared, &birth)),
            kind::Replica => Instance::Replica(replica::Replica::new(shared, &birth)),
            kind::Unbatcher => Instance::Unbatcher(of_stripe(
                config,
                &birth,
                multipaxos::unbatcher::Unbatcher::new,
            )),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}
