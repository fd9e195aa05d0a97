//! Writes files so that a crash leaves the old file or the new one.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file under another name and renames it: readers never see half of it. On return it is
/// durable.
///
/// # Errors
/// If the system refuses.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let new = path.with_extension("new");
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), sync_names)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// If the system refuses.
pub(crate) fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
