//! How many threads execute a replica's commands.

use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};

/// A setting of all protocols whose replicas execute a log (P-SMR, section III: sP-SMR).
pub(crate) const WORKERS: Setting = Setting {
    key: "workers",
    about: "threads on which a replica executes independent commands",
    allowed: 1..=64,
    shared: false,
    place: Place::Own {
        default: 1,
        trials: |_| &[1, 1, 2, 4],
    },
};

/// The value of [`WORKERS`].
pub(crate) fn workers(options: &Options) -> usize {
    WORKERS.value(options) as usize
}
