//! The settings that Scalog alone has, and those of its relays.

use crate::parts::workers::WORKERS;
use crate::pigpaxos::settings as relays;
use ionian_kernel::setting::{Place, Setting};

/// How long servers may be silent, how many shards are open, and how relays are used: all settings
/// of MultiPaxos, which a constant cannot copy from there. A test compares.
pub(super) const SETTINGS: &[Setting] = &[
    SERVER_TIMEOUT_MS,
    OPEN_SHARDS,
    relays::RELAY_GROUPS,
    relays::RELAY_SHUFFLE,
    relays::RELAY_OVERLAP,
    relays::RELAY_ROTATE,
    relays::RELAY_FAN_OUT,
    relays::RELAY_SLACK,
    relays::RELAY_TIMEOUT_MS,
    relays::COMMIT_DELAY_MS,
    relays::RELAY_READS,
    relays::READ_AT_EXECUTED,
    WORKERS,
];

/// How many shards are open.
pub(super) const OPEN_SHARDS: Setting = Setting {
    key: "open_shards",
    about: "number of shards that are open at a time, the others are spare; 0 means all",
    allowed: 0..=512,
    shared: true,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 1],
    },
};

/// How long a server may be silent.
pub(super) const SERVER_TIMEOUT_MS: Setting = Setting {
    key: "server_timeout_ms",
    about: "milliseconds without a report after which aggregators close the shard of a server",
    allowed: 200..=600_000,
    shared: false,
    place: Place::Own {
        default: 1000,
        trials: |_| &[300, 1000, 1000, 3000],
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multipaxos;
    use alloc::vec::Vec;

    #[test]
    fn it_has_the_settings_of_multipaxos() {
        let keys = |settings: &[Setting]| settings.iter().map(|it| it.key).collect::<Vec<_>>();
        assert_eq!(keys(&SETTINGS[2..]), keys(multipaxos::settings::SETTINGS));
    }
}
