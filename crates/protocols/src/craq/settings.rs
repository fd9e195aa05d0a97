//! The settings of CRAQ beside those of all protocols.

use crate::parts::workers::WORKERS;
use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};

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

pub(crate) const SETTINGS: &[Setting] = &[FORWARD_READS, WORKERS];
