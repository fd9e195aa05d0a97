//! The metrics of the audit log. A node that writes it to no file of its own has none.

use crate::definition::Kind::{Counter, Gauge};
use crate::definition::{Definition, metric};

pub(crate) const AUDIT: &[Definition] = &[
    metric(
        Counter,
        "ionian_audit_lost_lines",
        &[],
        "lines of the audit log that were lost because too many waited for its file",
        |view, out| {
            if let Some(audit) = view.audit() {
                out.one(audit.lost);
            }
        },
    ),
    metric(
        Gauge,
        "ionian_audit_fails",
        &[],
        "1 while the file of the audit log takes no lines",
        |view, out| {
            if let Some(audit) = view.audit() {
                out.one(u64::from(audit.fails));
            }
        },
    ),
];
