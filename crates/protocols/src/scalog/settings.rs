//! The settings of Scalog.

use crate::parts::workers::WORKERS;
use ionian_kernel::setting::{Place, Setting};

pub(super) const SETTINGS: &[Setting] = &[SERVER_TIMEOUT_MS, WORKERS];

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
