//! The unreplicated server (compartmentalization 8.1): one state machine behind the same client
//! lanes, batchers and unbatchers. It tolerates no failure. Every reported ratio is relative to it.
//!
//! ```text
//! client ── Commands ──> batcher ── Execute ──> server ── Results ──> unbatcher ── Answers ──> client
//!                                   server ── BatchesDone ──> batcher
//! client ── Execute ──> server ── Answers ──> client          (without batchers and unbatchers)
//! client ── Read ─────> server ── Answers ──> client
//! ```

pub mod client;

pub mod batcher;

pub mod server;

pub mod unbatcher;

pub mod id;
mod metrics;
mod presets;
mod service;

use crate::parts::workers::{WORKERS, workers};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use id::ServerId;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, NoInvariants, Protocol, Transition};
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;

ionian_kernel::protocol! {
    config Arc<Layout>;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Batcher "batcher" ToBatchers(BatcherId) batcher::Batcher,
    2 Server "server" ToServers(ServerId) server::Server,
    3 Unbatcher "unbatcher" ToUnbatchers(UnbatcherId) unbatcher::Unbatcher,
}

/// The one server.
pub const SERVER: Set<ServerId> = Set::from_bits(1);

/// The unreplicated server.
pub enum Unreplicated {}

impl Protocol for Unreplicated {
    const NAME: &'static str = "unreplicated";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::Server];
    const EXECUTES_BEFORE_STABLE: bool = true;
    const SETTINGS: &'static [Setting] = &[WORKERS];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Arc<Layout>;
    type Invariants = NoInvariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        let problem = match (
            layout.f,
            layout.count(kind::Server),
            layout.count(kind::Client),
        ) {
            (1.., _, _) => format!(
                "an unreplicated server tolerates no failure, and f={}: say f = 0",
                layout.f
            ),
            (_, servers, _) if servers != 1 => {
                format!("{servers} servers: an unreplicated deployment has exactly one")
            }
            (_, _, 0) => {
                "there is no client: give at least one node a gateway or the role \"client\"".into()
            }
            _ => return Ok(Arc::new(layout)),
        };
        Err(LayoutError(problem))
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Self::check_tunable().map(|()| Transition::AtOnce)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.epoch
    }

    fn check_tunable() -> Result<(), LayoutError> {
        let reason = "an unreplicated cluster cannot be changed while it runs: stop it, change its file, and start it again";
        Err(LayoutError(reason.into()))
    }

    fn commutes(options: &Options) -> bool {
        workers(options) > 1
    }

    fn service(config: &Self::Config, _: Epoch) -> Service {
        service::service(config)
    }

    fn founding_records(_: &Self::Config, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        let layout = config.clone();
        match birth.address.kind {
            kind::Client => Instance::Client(client::ClientLane::new(&layout, &birth)),
            kind::Batcher => Instance::Batcher(batcher::Batcher::new(layout, &birth)),
            kind::Server => Instance::Server(server::Server::new(&layout, &birth)),
            kind::Unbatcher => Instance::Unbatcher(unbatcher::Unbatcher::default()),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}
