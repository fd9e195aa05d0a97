//! A protocol that is only for tests: it shows what adding a protocol takes. It is this folder, its
//! module in `lib.rs` and its line in `registry.rs`, both behind the feature `toy`. No other code
//! names it: only `Cargo.toml` files, which pass the feature on, and tests. One server executes all
//! commands.
//!
//! ```text
//! client ── Execute, Read ──> server ── Answers ──> client
//! ```

pub mod client;
pub mod server;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::preset::{Preset, nodes};
use ionian_kernel::protocol::{Birth, NoInvariants, Protocol, Transition};
use ionian_kernel::service::{Service, one_of_each};
use ionian_kernel::setting::{Place, Setting};
use ionian_kernel::status::Metrics;

ionian_kernel::ids! {
    /// The server.
    OracleId "oracle"
}

ionian_kernel::protocol! {
    config Arc<Layout>;
    0 Client "client" ToClients(ClientId) client::ClientLane,
    1 Oracle "oracle" ToOracles(OracleId) server::Oracle,
}

/// The one server.
const ORACLE: Set<OracleId> = Set::from_bits(1);

const COPIES: Setting = Setting {
    key: "toy_copies",
    about: "how many times the server sends each answer",
    allowed: 1..=3,
    shared: true,
    place: Place::Own {
        default: 1,
        trials: |_| &[1, 2, 3],
    },
};

fn copies(options: &Options) -> u64 {
    COPIES.value(options)
}

/// The protocol.
pub enum Toy {}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = &[Preset {
        name: "toy-pair",
        about: "a server and two gateways",
        f: 0,
        options: &[("toy_copies", 2)],
        nodes: &[
            nodes(1, "oracle-", &["oracle"]),
            nodes(2, "gateway-", &["client"]),
        ],
        ..Preset::EMPTY
    }];
    const EXECUTORS: &'static [u8] = &[kind::Oracle];
    const EXECUTES_BEFORE_STABLE: bool = true;
    const SETTINGS: &'static [Setting] = &[COPIES];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Arc<Layout>;
    type Invariants = NoInvariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        match (
            layout.count(kind::Oracle),
            layout.count(kind::Client),
            layout.f,
        ) {
            (1, 1.., 0) => Ok(Arc::new(layout)),
            (1, 1.., f) => Err(LayoutError(format!(
                "a toy tolerates no failure, and f={f}: say f = 0"
            ))),
            (oracles, clients, _) => Err(LayoutError(format!(
                "{oracles} oracles and {clients} clients: a toy has one oracle, and a client at least"
            ))),
        }
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Self::check_tunable().map(|()| Transition::AtOnce)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.epoch
    }

    fn check_tunable() -> Result<(), LayoutError> {
        Err(LayoutError("a toy stays as it was made".into()))
    }

    fn service(config: &Self::Config, _: Epoch) -> Service {
        Service {
            hub: kind::Oracle,
            parts: Vec::new(),
            voters: None,
            needs: one_of_each(
                config,
                &[(kind::Oracle, "anything, for want of the oracle")],
            )
            .collect(),
            memories: Vec::new(),
        }
    }

    fn founding_records(_: &Self::Config, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        match birth.address.kind {
            kind::Client => Instance::Client(client::ClientLane::new(config, &birth)),
            kind::Oracle => Instance::Oracle(server::Oracle::new(config, &birth)),
            kind => unreachable!("the protocol has no role of kind {kind}"),
        }
    }
}
