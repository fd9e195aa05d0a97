//! What is known of a protocol without its type.

use super::{Metrics, Preset, Protocol};
use crate::layout::Options;
use crate::level::Level;
use crate::setting::Setting;
use alloc::vec::Vec;

/// What is known of a protocol without its type.
#[derive(Debug)]
pub struct Description {
    /// See [`Protocol::NAME`].
    pub name: &'static str,
    /// See [`Protocol::KINDS`].
    pub kinds: &'static [&'static str],
    /// See [`Protocol::METRICS`].
    pub metrics: &'static [Metrics],
    /// See [`Protocol::EXECUTORS`].
    pub executors: &'static [u8],
    /// See [`Protocol::EXECUTES_BEFORE_STABLE`].
    pub executes_before_stable: bool,
    /// See [`Protocol::LOGS_SPANNING_READS`].
    pub logs_spanning_reads: bool,
    /// See [`Protocol::LOGS_READS`].
    pub logs_reads: bool,
    /// See [`Protocol::PRESETS`].
    pub presets: &'static [Preset],
    /// See [`Protocol::SETTINGS`].
    pub settings: &'static [Setting],
    /// See [`Protocol::READMITS`].
    pub readmits: bool,
    /// See [`Protocol::FOUNDED_SINCE`].
    pub founded_since: Level,
    /// See [`Protocol::branches`].
    pub branches: fn() -> Vec<&'static str>,
    /// See [`Protocol::commutes`].
    pub commutes: fn(&Options) -> bool,
    /// See [`Protocol::quorum_systems`].
    pub quorum_systems: fn(&Options) -> usize,
}

impl Description {
    /// Of this protocol.
    pub const fn of<P: Protocol>() -> Self {
        Description {
            name: P::NAME,
            kinds: P::KINDS,
            metrics: P::METRICS,
            executors: P::EXECUTORS,
            executes_before_stable: P::EXECUTES_BEFORE_STABLE,
            logs_spanning_reads: P::LOGS_SPANNING_READS,
            logs_reads: P::LOGS_READS,
            presets: P::PRESETS,
            settings: P::SETTINGS,
            readmits: P::READMITS,
            founded_since: P::FOUNDED_SINCE,
            branches: P::branches,
            commutes: P::commutes,
            quorum_systems: P::quorum_systems,
        }
    }
}
