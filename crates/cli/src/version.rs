//! Which program this is: what `ionian --version` says.

use ionian_kernel::wire::WIRE_VERSION;
use std::sync::LazyLock;

/// That of both programs, and the format of backups.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let backup = crate::snapshot::FORMAT;
    let common = ionian_program::version::TEXT.as_str();
    format!("{common}\nbackup format {backup}.{WIRE_VERSION}")
});
