//! The membership as a node knew it last: the file `membership.toml` of its data directory.

use super::error::{LogError, io_error};
use ionian_deployment::Configuration;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where a node keeps the membership.
fn file(data: &Path) -> PathBuf {
    data.join("membership.toml")
}

/// What the node with this data directory knew last of the membership; none when it never changed.
///
/// # Errors
/// When the file cannot be read, or says no membership.
pub fn stored(data: &Path) -> Result<Option<Configuration>, LogError> {
    let path = file(data);
    match fs::read_to_string(&path) {
        // Where the directory should be there may be something else: whoever opens it says so.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(io_error("read", &path)(error)),
        Ok(text) => Configuration::parse(&text)
            .map(Some)
            .map_err(|error| LogError::Corrupt {
                offset: 0,
                text: error.to_string(),
                path,
            }),
    }
}

/// Writes it down. It is there for good on return, whole or not at all.
pub(crate) fn store(data: &Path, configuration: &Configuration) -> Result<(), LogError> {
    let path = file(data);
    let draft = path.with_extension("toml.new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(configuration.to_toml().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(data)?.sync_all()
    };
    write().map_err(io_error("write", &path))
}
