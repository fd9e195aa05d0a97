//! What is known of a protocol without its type.

use super::{Metrics, Preset, Protocol};
use crate::layout::{LayoutError, Options};
use crate::level::Level;
use crate::setting::Setting;

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
    /// See [`Protocol::PRESETS`].
    pub presets: &'static [Preset],
    /// See [`Protocol::SETTINGS`].
    pub settings: &'static [Setting],
    /// See [`Protocol::check_level`].
    pub check_level: fn() -> Result<(), LayoutError>,
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
            presets: P::PRESETS,
            settings: P::SETTINGS,
            check_level: P::check_level,
            quorum_systems: P::quorum_systems,
        }
    }

    /// The highest level that its clusters can have.
    pub fn highest_level(&self) -> Level {
        match (self.check_level)() {
            Ok(()) => Level::LATEST,
            Err(_) => Level::FIRST,
        }
    }
}
