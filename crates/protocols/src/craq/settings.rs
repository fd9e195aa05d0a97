//! The settings of CRAQ beside those of all protocols.

use crate::parts::workers::WORKERS;
use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};
use ionian_kernel::time::Duration;

/// What is done with a read of what is not known to be committed (CRAQ, section 2.3;
/// compartmentalization, section 8.6).
pub(crate) const FORWARD_READS: Setting = Setting {
    key: "forward_reads",
    about: "1: the tail executes dirty reads; 0: it says what is committed, once for many reads",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 0, 1],
    },
};

/// Whether the tail executes dirty reads.
pub(super) fn forwards_reads(options: &Options) -> bool {
    FORWARD_READS.value(options) == 1
}

/// How long what the master has said of the chain stays valid (`chain_node/lease.rs`).
pub(crate) const LEASE_MS: Setting = Setting {
    key: "lease_ms",
    about: "how long one inquiry lets a chain node answer reads, in milliseconds; 0: those of a burst",
    allowed: 0..=60_000,
    shared: true,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 0, 50, 400, 1500],
    },
};

/// The length of a lease, if there are leases.
pub(super) fn lease(options: &Options) -> Option<Duration> {
    let length = LEASE_MS.value(options);
    (length > 0).then(|| Duration::from_millis(length))
}

pub(crate) const SETTINGS: &[Setting] = &[FORWARD_READS, LEASE_MS, WORKERS];
