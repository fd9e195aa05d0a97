//! Which program this is: what `ionian --version` says.

use ionian_kernel::wire::WIRE_VERSION;
use std::sync::LazyLock;

/// Release, the commit where it is known, and what must agree between nodes, and between a node and
/// its files.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("IONIAN_COMMIT")
        .map_or_else(String::new, |commit| format!(" (commit {commit})"));
    let (release, backup) = (env!("CARGO_PKG_VERSION"), crate::snapshot::FORMAT);
    format!(
        "{release}{commit}\nwire version and data format {WIRE_VERSION}\nbackup format {backup}.{WIRE_VERSION}"
    )
});
