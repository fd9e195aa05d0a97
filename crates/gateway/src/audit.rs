//! Lines of the audit log, and what needs one.

use crate::host::{Client, Host};
use crate::serve::Gateway;
use std::cell::RefCell;
use std::fmt;

/// The target of the lines of the audit log.
pub(crate) const AUDIT: &str = "ionian::audit";

/// The outcome of what a quota has refused.
pub(crate) const OVER_QUOTA: &str = "over its quota";

type Check = Box<dyn Fn() -> Result<(), String>>;

/// Whether the audit log takes lines; without an answer it does.
#[derive(Default)]
pub(crate) struct AuditCheck(RefCell<Option<Check>>);

impl fmt::Debug for AuditCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditCheck")
    }
}

impl Host {
    /// Users, and settings of the cluster, are changed only while `check` has no objection.
    pub fn set_audit(&self, check: Box<dyn Fn() -> Result<(), String>>) {
        self.audit.0.replace(Some(check));
    }

    /// Checks that a change may be made, which must have a line.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn check_audit(&self) -> Result<(), String> {
        let check = self.audit.0.borrow();
        let checked = check.as_ref().map_or(Ok(()), |check| check());
        checked.map_err(|why| format!("ERR {why}; nothing was changed"))
    }
}

impl Gateway {
    /// As [`Host::set_audit`].
    pub fn set_audit(&self, check: Box<dyn Fn() -> Result<(), String>>) {
        self.inner.host.set_audit(check);
    }
}

/// A line of the audit log about a client and a user that it is not, or as which it was refused
/// something.
pub(crate) fn audit(client: &Client, user: &[u8], request: &str, outcome: &str) {
    let (user, from) = (String::from_utf8_lossy(user), &client.address);
    tracing::info!(target: AUDIT, user = &*user, from, request, outcome);
}
