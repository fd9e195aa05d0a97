//! Small files of a data directory that are always replaced as a whole: JSON, for people to read,
//! and a line with its checksum.

use super::error::{LogError, io_error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// The text before the checksum.
const SUM: &str = "\ncrc32c ";

/// Replaces the file. After a crash it is either the old or the new one. It is durable when its
/// directory is synced too.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), LogError> {
    let mut text = serde_json::to_string_pretty(content).expect("numbers and strings");
    text += &format!("{SUM}{:08x}\n", crc32c::crc32c(text.as_bytes()));
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(io_error("write", path))
}

/// Reads the file and checks its checksum.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LogError> {
    let damaged = |text: String| LogError::Corrupt {
        path: path.to_owned(),
        offset: 0,
        text,
    };
    let text = fs::read_to_string(path).map_err(io_error("read", path))?;
    let (body, sum) = text
        .rsplit_once(SUM)
        .ok_or_else(|| damaged("it does not end with its checksum".into()))?;
    if sum.trim_end() != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        return Err(damaged("its checksum is wrong".into()));
    }
    serde_json::from_str(body).map_err(|error| damaged(error.to_string()))
}
