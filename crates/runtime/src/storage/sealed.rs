//! Small files of a data directory that are always replaced as a whole: text for people to read,
//! and a line with its checksum.

use super::error::{LogError, io_error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// What stands before the checksum.
const JSON: &str = "\ncrc32c ";
const TOML: &str = "\n# crc32c ";

/// Replaces the file by JSON. After a crash it is either the old or the new one. It is durable when
/// its directory is synced too.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), LogError> {
    let text = serde_json::to_string_pretty(content).expect("numbers and strings");
    replace(path, text, JSON)
}

/// Reads the file and checks its checksum.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LogError> {
    let body = checked(path, JSON)?;
    serde_json::from_str(&body).map_err(|error| damaged(path, error.to_string()))
}

/// As [`write()`], with a text of TOML.
pub(crate) fn write_toml(path: &Path, text: String) -> Result<(), LogError> {
    replace(path, text, TOML)
}

/// Reads what [`write_toml`] wrote.
pub(crate) fn read_toml(path: &Path) -> Result<String, LogError> {
    checked(path, TOML)
}

fn replace(path: &Path, mut text: String, seal: &str) -> Result<(), LogError> {
    text += &format!("{seal}{:08x}\n", crc32c::crc32c(text.as_bytes()));
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(io_error("write", path))
}

fn checked(path: &Path, seal: &str) -> Result<String, LogError> {
    let text = fs::read_to_string(path).map_err(io_error("read", path))?;
    let (body, sum) = text
        .rsplit_once(seal)
        .ok_or_else(|| damaged(path, "it does not end with its checksum".into()))?;
    match sum.trim_end() == format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        true => Ok(body.to_owned()),
        false => Err(damaged(path, "its checksum is wrong".into())),
    }
}

pub(crate) fn damaged(path: &Path, text: String) -> LogError {
    LogError::Corrupt {
        path: path.to_owned(),
        offset: 0,
        text,
    }
}
