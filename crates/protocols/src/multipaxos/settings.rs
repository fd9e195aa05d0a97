//! The settings of MultiPaxos beside those of all protocols: its relays' and its replicas'.

use crate::parts::workers::WORKERS;
use crate::pigpaxos::settings as relays;
use ionian_kernel::setting::Setting;

pub(crate) const SETTINGS: &[Setting] = &[
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
