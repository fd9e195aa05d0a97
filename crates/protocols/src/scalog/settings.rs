//! The setting that Scalog alone has, and those of its relays.

use crate::parts::workers::WORKERS;
use crate::pigpaxos::settings as relays;
use ionian_kernel::setting::{Place, Setting};

/// How long servers may be silent, and how relays are used: all settings of MultiPaxos, which a
/// constant cannot copy from there. A test compares.
pub(super) const SETTINGS: &[Setting] = &[
    SERVER_TIMEOUT_MS,
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
        assert_eq!(keys(&SETTINGS[1..]), keys(multipaxos::settings::SETTINGS));
    }
}
