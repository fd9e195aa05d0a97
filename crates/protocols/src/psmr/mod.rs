//! P-SMR (Parallel State-Machine Replication, Marandi, Bezerra, Pedone): parallel delivery and
//! parallel execution.
//!
//! The state machine is divided into parts by keys. For each part there is a *group* with a log of
//! its own, and a worker at each replica that receives and executes that log; commands that touch
//! several parts are in the log of one more group, *g_all*. Nothing orders what is independent, and
//! nothing hands it out.
//!
//! Each group is MultiPaxos, in the deployment that the file describes: every instance of a role is
//! one in each group, and the groups begin with different leaders; or, with the setting `apart`,
//! each leader, proxy leader and acceptor is of one group. Beside the messages of
//! [`crate::multipaxos`], which name their group, there are
//!
//! ```text
//! leader (of g_all) ── Announce ──> leaders       the slots that g_all has proposed
//! replica ── WantMarker ──> leaders               a group's log must say how far g_all is
//! replica ── WantSkip ──> leaders                 a log is behind, where workers take turns
//! replica ── WantBarrier ──> leaders              something must be executed in g_all
//! replica ── NeedState ──> replica                it cannot catch up by the logs
//! ```
//!
//! A client lane sends a command to the group that `router` finds; leaders put markers into the
//! logs of groups (`markers`), by which a replica merges them with that of g_all (`merge`).
//! Sequential reads are linearizable here, and reads that touch several parts are commands.

mod backup;
mod branch;
pub mod config;
mod groups;
mod instance;
pub mod invariants;
mod markers;
mod merge;
pub mod message;
mod presets;
mod records;
mod router;
mod service;
mod settings;
mod skips;
mod touches;
mod vacant;
mod waiting;
mod workers;

pub use self::instance::Instance;
pub use self::message::Message;

use self::config::Config;
use crate::multipaxos::{self, MultiPaxos, kind};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Routed, Transition};
use ionian_kernel::service::Service;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::Metrics;
use ionian_replication::executor::{cuts_in, without_preamble};

/// See the top of this file.
pub enum PSmr {}

impl Protocol for PSmr {
    const NAME: &'static str = "psmr";
    const KINDS: &'static [&'static str] = multipaxos::KINDS;
    const METRICS: &'static [Metrics] = multipaxos::METRICS;
    const PRESETS: &'static [Preset] = presets::PRESETS;
    const EXECUTORS: &'static [u8] = &[kind::Replica];
    const LOGS_SPANNING_READS: bool = true;
    const SETTINGS: &'static [Setting] = settings::SETTINGS;
    type Message = Message;
    type Envelope = Routed<Message>;
    type Instance = Instance;
    type Config = Arc<Config>;
    type Invariants = invariants::Invariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        Config::new(layout).map(Arc::new)
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Self::check_tunable().map(|()| Transition::AtOnce)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        config.all().epoch()
    }

    fn check_tunable() -> Result<(), LayoutError> {
        let reason = "a cluster of P-SMR cannot be changed while it runs: save its state, and found another cluster with it";
        Err(LayoutError(reason.into()))
    }

    fn branches() -> Vec<&'static str> {
        [&MultiPaxos::branches()[..], branch::ALL].concat()
    }

    fn commutes(_: &Options) -> bool {
        true
    }

    fn quorum_systems(options: &Options) -> usize {
        config::quorum_systems(options)
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        service::service(config, epoch)
    }

    fn founding_records(config: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>> {
        let all = config.count();
        let records = match config.is_of(at, all) {
            true => MultiPaxos::founding_records(&config.groups()[all], at, slot),
            false => Vec::new(),
        };
        let records = records.into_iter();
        records
            .map(|record| records::founding(all, &record))
            .collect()
    }

    fn state_in(stored: &Bytes) -> Result<Bytes, RestoreError> {
        without_preamble(stored)
    }

    fn executed_in(stored: &Bytes, stamp: Slot, session: SessionId) -> Result<Slot, RestoreError> {
        let cuts = cuts_in(stored)?;
        // See `Merge::found`: the executors of all groups give no two sessions the same number.
        let group = session.0.saturating_sub(1) % (cuts.len() as u64 + 1);
        Ok(cuts.get(group as usize).copied().unwrap_or(stamp))
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Instance {
        Instance::new(config, birth)
    }
}
