//! The text of `ionian --version`.

use std::sync::LazyLock;

/// The version of both programs, and the backup format.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let backup = crate::snapshot::FORMAT;
    let common = ionian_program::version::TEXT.as_str();
    format!("{common}\nbackup format {backup}")
});
