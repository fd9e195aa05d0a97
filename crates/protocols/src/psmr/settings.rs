//! The settings of P-SMR beside those of all protocols.

use crate::pigpaxos::settings as relays;
use ionian_kernel::setting::{Place, Setting};

/// How many groups there are beside g_all: each has a log, and a worker at each replica.
pub(crate) const GROUPS: Setting = Setting {
    key: "groups",
    about: "logs of commands on a part of the keys, beside the log of those on several parts",
    allowed: 1..=32,
    shared: true,
    place: Place::Own {
        default: 8,
        trials: |_| &[1, 2, 3],
    },
};

pub(crate) const SETTINGS: &[Setting] = &[
    GROUPS,
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
];
