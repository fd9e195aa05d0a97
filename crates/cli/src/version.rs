//! Which program this is: what `ionian --version` says.

use ionian_kernel::wire::WIRE_VERSION;
use ionian_program::version;
use std::sync::LazyLock;

/// The release, with the commit where it is known.
pub(crate) static RELEASE: LazyLock<String> =
    LazyLock::new(|| version::release(option_env!("IONIAN_COMMIT")));

/// With what must agree between nodes and files, and the format of backups.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let (common, backup) = (version::text(&RELEASE), crate::snapshot::FORMAT);
    format!("{common}\nbackup format {backup}.{WIRE_VERSION}")
});
