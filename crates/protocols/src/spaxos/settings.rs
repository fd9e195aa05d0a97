//! The setting that S-Paxos alone has, and those of its relays.

use crate::parts::workers::WORKERS;
use crate::pigpaxos::settings as relays;
use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};

/// How much a stabilizer keeps, and how relays are used: all settings of MultiPaxos, which a
/// constant cannot copy from there. A test compares.
pub(super) const SETTINGS: &[Setting] = &[
    STALE_BYTES,
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

const STALE_BYTES: Setting = Setting {
    key: "stale_bytes",
    about: "bytes of payloads of earlier rounds that a stabilizer holds although no slot refers to them",
    allowed: 0..=1 << 40,
    shared: false,
    place: Place::Own {
        default: 64 << 20,
        // The leader carries the log on through eight windows to be rid of them: windows must be
        // small for that to be tried.
        trials: |options| match options.window_slots {
            ..=32 => &[0, 200],
            _ => &[64 << 20],
        },
    },
};

/// What a stabilizer may hold, in bytes, of payloads of earlier rounds that no slot refers to.
/// Above it the leader carries the log on to where they are void.
pub(super) fn stale_bytes(options: &Options) -> usize {
    STALE_BYTES.value(options) as usize
}

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
