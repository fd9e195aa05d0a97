//! The `[options]` table. One line per common setting gives its key, unit, range, meaning and the
//! kernel's field, which also defines the default. Each protocol declares its own settings.

use crate::error::{DeploymentError, Problem};
use ionian_kernel::layout::Options;
use ionian_kernel::level::Level;
use ionian_kernel::setting::{Place, Setting};
use ionian_protocols::registry;
use ionian_replication::session::SESSION_WINDOW;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How a field of the kernel is written as a number with a unit.
macro_rules! unit {
    (count $($field:ident).+) => {
        (|options| options.$($field).+ as u64, |options, value| options.$($field).+ = value as usize)
    };
    (flag $($field:ident).+) => {
        (|options| u64::from(options.$($field).+), |options, value| options.$($field).+ = value != 0)
    };
    (mib $($field:ident).+) => {
        (|options| options.$($field).+ as u64 >> 20, |options, value| options.$($field).+ = (value as usize) << 20)
    };
    (us $($field:ident).+) => {
        (|options| options.$($field).+.as_micros() as u64, |options, value| options.$($field).+ = Duration::from_micros(value))
    };
    (ms $($field:ident).+) => {
        (|options| options.$($field).+.as_millis() as u64, |options, value| options.$($field).+ = Duration::from_millis(value))
    };
    (s $($field:ident).+) => {
        (|options| options.$($field).+.as_secs(), |options, value| options.$($field).+ = Duration::from_secs(value))
    };
}

macro_rules! settings {
    ($($key:literal $unit:ident $($field:ident).+, $allowed:expr, $shared:ident, $about:literal;)*) => {
        /// The settings that every protocol has.
        const COMMON: &[Setting] = &[$({
            let (get, put): (fn(&Options) -> u64, fn(&mut Options, u64)) = unit!($unit $($field).+);
            let place = Place::Field { get, put };
            Setting { key: $key, about: $about, allowed: $allowed, shared: $shared, place }
        }),*];
    };
}

// Lanes number their commands within a session's window, and stay far below its end.
const MAX_IN_FLIGHT: u64 = SESSION_WINDOW / 4;

// The lower ends are where a setting begins to mean something, the upper ends where it is surely a
// slip of the pen (an hour of patience, seconds written as milliseconds) or more than a table
// holds.
//
// Shared are those where disagreement does harm: replicas that expire sessions at different times
// differ in state, a leader whose heartbeats come slower than another's timeout is deposed for
// ever, and a leader that runs further ahead than replicas retain sends them to snapshots.
settings! {
    "batch_commands" count batch_commands, 1..=65_536, false,
        "a batcher closes a batch that holds this many commands";
    "batch_bytes" count batch_bytes, 1..=32 << 20, false,
        "a batcher closes a batch that holds this many bytes";
    "batch_delay_us" us batch_delay, 1..=10_000_000, false,
        "a batcher closes a batch this old, full or not";
    "batches_in_flight" count batches_in_flight, 1..=4_096, false,
        "batches of a batcher in flight before a partly filled batch waits";
    "window_slots" count window_slots, 1..=1 << 20, true,
        "slots a leader may run ahead of what a replica has executed";
    "window_bytes" count window_bytes, 1..=1 << 30, false,
        "bytes of proposed values not yet executed, or one value";
    "retained_slots" count retained_slots, 1..=1 << 20, true,
        "executed slots a replica keeps for peers that missed them";
    "snapshot_slots" count snapshot_slots, 1..=1 << 20, false,
        "slots after which a replica with a disk stores a snapshot";
    "snapshot_mib_per_s" mib snapshot_bytes_per_second, 1..=2047, false,
        "MiB of a snapshot sent to a peer or into a backup per second";
    "heartbeat_ms" ms heartbeat, 1..=60_000, true,
        "how often a leader sends a heartbeat";
    "election_timeout_ms" ms election_timeout, 2..=600_000, true,
        "a leader silent for this long, up to twice as long, is suspected";
    "resend_after_ms" ms resend_after, 1..=60_000, false,
        "a request unanswered this long is sent again, to another instance";
    "thrifty" flag thrifty, 0..=1, false,
        "1: a proxy leader asks one write quorum first, 0: all acceptors at once";
    "session_expiry_s" s session_expiry, 1..=31_536_000, true,
        "a session unused for this long, by the log's time, is forgotten";
    "drain_ms" ms drain, 0..=600_000, false,
        "how long a stopping node continues to answer waiting clients";
    "loops" count loops, 1..=8, false,
        "event loops of a node, each with a thread, over which its roles are spread";
    "trace_one_in" count trace_one_in, 0..=1 << 30, false,
        "one in this number of commands is noted for traces, 0: none";
    "in_flight" count lane.in_flight, 1..=MAX_IN_FLIGHT, false,
        "requests of a client lane in flight at once; one more is refused";
    "in_flight_bytes" count lane.in_flight_bytes, 1..=1 << 40, false,
        "bytes of requests in flight; one more is refused, unless alone";
    "payload_bytes" count lane.payload_bytes, 1..=64 << 20, false,
        "bytes of one command; a larger one is refused";
    "patience_ms" ms lane.patience, 1..=3_600_000, false,
        "how long a request may take before its lane gives up on it";
    "retry_after_ms" ms lane.retry_after, 1..=60_000, false,
        "how long a lane waits for the first answer before it asks again";
    "max_clients" count clients.connections, 1..=1_000_000, false,
        "connections of clients to a node; one more is refused";
    "clients_mib" mib clients.memory_bytes, 1..=1 << 20, false,
        "MiB that a node holds for all clients; above it the largest is closed";
    "client_mib" mib clients.client_bytes, 1..=1 << 20, false,
        "MiB that a node holds for one client; then it is closed";
    "unfinished_s" s clients.unfinished, 1..=86_400, false,
        "a client whose command is not complete after this long is closed";
    "idle_s" s clients.idle, 0..=31_536_000, false,
        "a client that rests for this long is closed, 0: never";
    "slow_ms" ms clients.slower_than, 1..=3_600_000, false,
        "a command that takes this long is in SLOWLOG and ionian trace slow";
}

/// The keys that programs of the first levels do not know, each with the level since which programs
/// do.
const LATER: &[(&str, Level)] = &[
    ("trace_one_in", Level(18)),
    ("idle_s", Level(18)),
    ("slow_ms", Level(18)),
];

/// The level since which programs know this key.
fn since(key: &str) -> Level {
    let later = LATER.iter().find(|(later, _)| *later == key);
    later.map_or(Level::FIRST, |(_, level)| *level)
}

/// The keys of the `[options]` table for this protocol: the common ones and the protocol's own.
pub fn settings(protocol: &str) -> impl Iterator<Item = &'static Setting> {
    let own = registry::description(protocol).map_or(&[][..], |protocol| protocol.settings);
    COMMON.iter().chain(own)
}

/// The common settings and those of every protocol, each once: protocols may have the same.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    let own = registry::ALL.iter().enumerate();
    let own = own.flat_map(|(place, protocol)| {
        let earlier = &registry::ALL[..place];
        let is_new = |key| !earlier.iter().any(|other| has(other.settings, key));
        protocol.settings.iter().filter(move |it| is_new(it.key))
    });
    COMMON.iter().chain(own)
}

fn has(settings: &[Setting], key: &str) -> bool {
    settings.iter().any(|setting| setting.key == key)
}

/// The setting with this key for this protocol, or for any protocol if none is named.
///
/// # Errors
/// If the key does not exist.
pub(crate) fn named(key: &str, protocol: &str) -> Result<&'static Setting, DeploymentError> {
    let of_any = all().find(|setting| setting.key == key && protocol.is_empty());
    let of_this = || settings(protocol).find(|setting| setting.key == key);
    of_any.or_else(of_this).ok_or_else(|| {
        let known: Vec<_> = settings(protocol).map(|setting| setting.key).collect();
        Problem::UnknownKey {
            key: format!("options.{key}"),
            known: known.join(", "),
        }
        .into()
    })
}

/// Why a running cluster cannot change this setting, if it cannot: each node takes it from its file
/// or flags when it starts.
pub fn at_start(setting: &Setting) -> Option<&'static str> {
    match setting.key {
        "payload_bytes" | "patience_ms" | "max_clients" | "clients_mib" | "client_mib"
        | "unfinished_s" | "idle_s" | "slow_ms" => {
            Some("the gateway of each node takes its limits when the node starts")
        }
        "drain_ms" => Some("a node takes its drain limit when it starts"),
        "trace_one_in" => Some("a node begins to note messages when it starts"),
        "loops" => Some("a node starts its event loops when it starts"),
        _ => None,
    }
}

pub(crate) fn allowed_text(setting: &Setting) -> String {
    format!("a whole number from {}", range_text(setting))
}

pub(crate) fn range_text(setting: &Setting) -> String {
    format!("{} to {}", setting.allowed.start(), setting.allowed.end())
}

/// The settings that a file states in `[options]`; all others have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    stated: BTreeMap<&'static str, u64>,
    /// The keys that the running cluster has changed. Their values hold on every node, whatever the
    /// node was started with.
    tuned: BTreeSet<&'static str>,
}

impl Settings {
    /// Sets `key`.
    ///
    /// # Errors
    /// If the setting does not exist, or the value is not allowed.
    pub fn set(&mut self, key: &str, value: u64) -> Result<(), DeploymentError> {
        let setting = named(key, "")?;
        if !setting.allowed.contains(&value) {
            let (key, value) = (format!("options.{key}"), value.to_string());
            return Err(Problem::Value {
                key,
                value,
                allowed: allowed_text(setting),
            }
            .into());
        }
        self.stated.insert(setting.key, value);
        Ok(())
    }

    /// Sets `key` for every node of a running cluster.
    ///
    /// # Errors
    /// Like [`set`](Settings::set), and if the setting can only change at the start of a node.
    pub fn tune(&mut self, key: &str, value: u64) -> Result<(), DeploymentError> {
        self.set(key, value)?;
        self.mark_tuned(key)
    }

    /// Marks `key` as changed for every node.
    pub(crate) fn mark_tuned(&mut self, key: &str) -> Result<(), DeploymentError> {
        let setting = named(key, "")?;
        if let Some(reason) = at_start(setting) {
            return Err(Problem::AtStart {
                key: format!("options.{key}"),
                reason: reason.to_owned(),
            }
            .into());
        }
        let value = self.value(setting);
        self.stated.insert(setting.key, value);
        self.tuned.insert(setting.key);
        Ok(())
    }

    /// A key that is stated and that programs of this level do not know, if there is one, with the
    /// level since which programs do.
    pub fn later_than(&self, level: Level) -> Option<(&'static str, Level)> {
        let keys = self.stated.keys().map(|key| (*key, since(key)));
        keys.into_iter().find(|(_, since)| *since > level)
    }

    /// The keys that the running cluster has changed.
    pub fn tuned(&self) -> impl Iterator<Item = &'static str> {
        self.tuned.iter().copied()
    }

    /// Copies the marks of changed keys.
    pub(crate) fn take_tuned(&mut self, other: &Settings) {
        self.tuned.clone_from(&other.tuned);
    }

    /// The stated value of `key`, if any.
    pub fn stated(&self, key: &str) -> Option<u64> {
        self.stated.get(key).copied()
    }

    /// The value of `setting`: the stated one, or the default.
    pub fn value(&self, setting: &Setting) -> u64 {
        self.stated(setting.key)
            .unwrap_or_else(|| setting.default())
    }

    /// Copies the settings that are local to one node, except those that the whole cluster has
    /// changed.
    pub(crate) fn take_local(&mut self, other: &Settings) {
        for setting in all().filter(|setting| !setting.shared && !self.tuned.contains(setting.key))
        {
            self.stated.remove(setting.key);
            self.stated
                .extend(other.stated(setting.key).map(|value| (setting.key, value)));
        }
    }

    /// The options in the kernel's types.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        for setting in all() {
            if let Some(value) = self.stated(setting.key) {
                setting.state(&mut options, value);
            }
        }
        options
    }

    /// Checks that the settings belong to this protocol and fit together.
    pub(crate) fn check(&self, protocol: &str) -> Result<(), DeploymentError> {
        for key in self.stated.keys() {
            named(key, protocol)?;
        }
        let options = self.options();
        let wrong = |key: &str, allowed: String| {
            let value = named(key, protocol).map_or(0, |setting| self.value(setting));
            Err(Problem::Value {
                key: format!("options.{key}"),
                value: value.to_string(),
                allowed,
            }
            .into())
        };
        if options.election_timeout < options.heartbeat * 2 {
            // The loss of one heartbeat must not depose a leader.
            let heartbeat = options.heartbeat.as_millis();
            return wrong(
                "election_timeout_ms",
                format!("at least twice options.heartbeat_ms = {heartbeat}"),
            );
        }
        if options.session_expiry <= options.lane.patience {
            // A retry in an expired session would not find the first attempt.
            let patience = options.lane.patience.as_millis();
            return wrong(
                "session_expiry_s",
                format!("longer than options.patience_ms = {patience}"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_exact_in_its_unit() {
        for setting in all() {
            assert!(
                setting.allowed.contains(&setting.default()),
                "{}",
                setting.key
            );
            // Stating all defaults changes nothing: no unit is too coarse.
            let mut options = Options::default();
            setting.state(&mut options, setting.default());
            options.own.clear();
            assert_eq!(
                format!("{options:?}"),
                format!("{:?}", Options::default()),
                "{}",
                setting.key
            );
        }
    }

    /// A replica with a disk lets acceptors forget what its snapshot contains. If a snapshot were
    /// due after more slots than an acceptor has room for, nothing could be chosen before it.
    #[test]
    fn a_snapshot_is_due_long_before_acceptors_are_full() {
        let setting = all()
            .find(|setting| setting.key == "snapshot_slots")
            .unwrap();
        let most = ionian_protocols::parts::acceptor::MAX_VOTES as u64 / 4;
        assert!(*setting.allowed.end() <= most, "{:?}", setting.allowed);
    }

    /// A batch closes when it has at least `batch_bytes`, so one command more may be in it.
    #[test]
    fn a_full_batch_fits_into_a_frame() {
        let setting = all().find(|setting| setting.key == "batch_bytes").unwrap();
        let command = Options::default().lane.payload_bytes as u64;
        let (most, frame) = (*setting.allowed.end() + command, 64 << 20);
        assert!(most < frame, "{:?}", setting.allowed);
    }

    #[test]
    fn every_field_has_exactly_one_key() {
        let mut settings = Settings::default();
        for setting in all() {
            settings.set(setting.key, *setting.allowed.end()).unwrap();
        }
        let options = settings.options();
        for setting in all() {
            assert_eq!(
                setting.value(&options),
                *setting.allowed.end(),
                "{}",
                setting.key
            );
        }
        // Fails to compile if the kernel has a field that this list, and so perhaps the table,
        // lacks.
        let Options {
            batch_commands: _,
            batch_bytes: _,
            batch_delay: _,
            batches_in_flight: _,
            window_slots: _,
            window_bytes: _,
            retained_slots: _,
            snapshot_slots: _,
            snapshot_bytes_per_second: _,
            heartbeat: _,
            election_timeout: _,
            resend_after: _,
            thrifty: _,
            session_expiry: _,
            drain: _,
            loops: _,
            trace_one_in: _,
            lane:
                ionian_kernel::client::LaneLimits {
                    in_flight: _,
                    in_flight_bytes: _,
                    payload_bytes: _,
                    patience: _,
                    retry_after: _,
                },
            clients:
                ionian_kernel::client::ClientLimits {
                    connections: _,
                    memory_bytes: _,
                    client_bytes: _,
                    unfinished: _,
                    idle: _,
                    slower_than: _,
                },
            own,
        } = options;
        assert_eq!(COMMON.len(), 28);
        assert_eq!(own.len() + COMMON.len(), all().count());
        let keys: BTreeSet<_> = all().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), all().count(), "no key stands for two settings");
        for setting in registry::ALL.iter().flat_map(|protocol| protocol.settings) {
            let same = named(setting.key, "").unwrap();
            let told = |it: &Setting| (it.about, it.allowed.clone(), it.shared, it.default());
            assert_eq!(told(setting), told(same), "of all protocols that have it");
        }
    }

    #[test]
    fn every_range_is_kept() {
        for setting in all() {
            let (low, high) = (*setting.allowed.start(), *setting.allowed.end());
            for outside in [low.checked_sub(1), Some(high + 1)].into_iter().flatten() {
                let error = Settings::default()
                    .set(setting.key, outside)
                    .unwrap_err()
                    .to_string();
                let key = setting.key;
                assert_eq!(
                    error,
                    format!(
                        "options.{key} = {outside}: must be a whole number from {low} to {high}"
                    )
                );
            }
        }
    }
}
