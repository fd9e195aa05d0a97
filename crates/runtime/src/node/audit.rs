//! Requests that must have a line in the audit log are carried out only while that takes lines, if
//! the caller of the node wants that.

use crate::transport::hello::Purpose;
use std::fmt;
use std::sync::Arc;

type Check = dyn Fn() -> Result<(), String> + Send + Sync;

/// Whether the audit log takes lines.
#[derive(Clone, Default)]
pub struct AuditCheck(Option<Arc<Check>>);

impl AuditCheck {
    /// Requests that change something or read a snapshot are refused with the error of this
    /// function, if it returns one. It must not block.
    pub fn new(check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        AuditCheck(Some(Arc::new(check)))
    }

    /// Why such requests are refused now, if they are.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.as_ref()?().err()
    }

    /// Checks a request that the rights permit.
    pub(crate) fn permits(&self, purpose: Purpose) -> Result<(), String> {
        match (&self.0, purpose) {
            (
                Some(check),
                Purpose::Snapshot | Purpose::Change | Purpose::Drain | Purpose::Record,
            ) => check(),
            (Some(_), Purpose::Peer | Purpose::Status | Purpose::Membership | Purpose::Notes)
            | (None, _) => Ok(()),
        }
    }
}

impl fmt::Debug for AuditCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditCheck")
            .field(&self.0.is_some())
            .finish()
    }
}
