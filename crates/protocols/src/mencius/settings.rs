//! The settings that Mencius alone has.

use crate::parts::workers::WORKERS;
use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};
use ionian_kernel::time::Duration;

/// Alpha, tau and beta of the paper (Mencius, section 6), and its out-of-order commit (section 5).
pub(super) const SETTINGS: &[Setting] = &[
    SKIP_SLOTS,
    SKIP_DELAY_MS,
    REVOKE_SLOTS,
    OUT_OF_ORDER,
    WORKERS,
];

const SKIP_SLOTS: Setting = Setting {
    key: "skip_slots",
    about: "alpha: a leader tells idle replicas of its skips when they are more than this",
    allowed: 0..=1 << 20,
    shared: false,
    place: Place::Own {
        default: 20,
        trials: |_| &[20, 20, 20, 20, 0, 2],
    },
};

const SKIP_DELAY_MS: Setting = Setting {
    key: "skip_delay_ms",
    about: "tau: or when the first of them is this old",
    allowed: 0..=60_000,
    shared: false,
    place: Place::Own {
        default: 50,
        trials: |_| &[50, 50, 50, 50, 50, 50, 0, 1, 300],
    },
};

const REVOKE_SLOTS: Setting = Setting {
    key: "revoke_slots",
    about: "beta: slots that are revoked ahead where a leader has failed",
    allowed: 0..=1 << 24,
    shared: true,
    place: Place::Own {
        default: 100_000,
        // Far below the default: no run of the simulator is long enough to reach it, and invariants
        // look through all slots.
        trials: |_| &[0, 6, 40, 200, 0, 6, 40, 200, 0, 6, 40, 200, 2000, 10_000],
    },
};

const OUT_OF_ORDER: Setting = Setting {
    key: "out_of_order",
    about: "1: replicas execute commands before earlier ones with which they commute",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 1],
    },
};

/// The settings in a form in which roles can use them at once.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A leader tells replicas that do not wait for it of the slots that it skipped when they are
    /// more than this (alpha). With 0 it tells all replicas at once, which is to do without
    /// Optimization 2.
    pub skip_slots: u64,
    /// A leader tells them also when the oldest skip that they have not been told of is this old
    /// (tau).
    pub skip_delay: Duration,
    /// The stripe of a failed leader is skipped this number of slots ahead of the others, up to
    /// twice that (beta). With 0 each slot is revoked when it is needed.
    pub revoke_slots: u64,
    /// Whether replicas execute commands before earlier ones that are not chosen yet and commute
    /// with them.
    pub out_of_order: bool,
}

impl Settings {
    /// Those of `options`.
    pub fn of(options: &Options) -> Self {
        Settings {
            skip_slots: SKIP_SLOTS.value(options),
            skip_delay: Duration::from_millis(SKIP_DELAY_MS.value(options)),
            revoke_slots: REVOKE_SLOTS.value(options),
            out_of_order: OUT_OF_ORDER.value(options) != 0,
        }
    }
}
