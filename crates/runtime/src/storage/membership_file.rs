//! The newest membership that a node knew: the file `membership.toml` of its data directory.

use super::error::{LogError, io_error};
use ionian_deployment::Configuration;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The file in the data directory.
fn file(data: &Path) -> PathBuf {
    data.join("membership.toml")
}

/// The newest membership that the node with this data directory knew; `None` if it never changed.
///
/// # Errors
/// If the file cannot be read or is not a membership.
pub fn stored(data: &Path) -> Result<Option<Configuration>, LogError> {
    let path = file(data);
    match fs::read_to_string(&path) {
        // If something else is in the place of the directory, the code that opens the directory
        // reports it.
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

/// Writes the file. On return it is durable; after a crash the file is either the old or the new
/// one.
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
