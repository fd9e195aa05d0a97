//! The newest membership that a node knew: the file `membership.toml` of its data directory.

use super::error::{LogError, io_error};
use super::sealed::{self, damaged};
use ionian_deployment::{Configuration, Problem};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file in the data directory.
#[must_use]
pub fn file(data: &Path) -> PathBuf {
    data.join("membership.toml")
}

/// The newest membership that the node with this data directory knew; `None` if it never changed.
///
/// # Errors
/// If the file cannot be read or is not a membership.
pub fn stored(data: &Path) -> Result<Option<Configuration>, LogError> {
    let path = file(data);
    // If something else is in the place of the directory, the code that opens the directory reports
    // it.
    let is_missing = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    if fs::symlink_metadata(&path).is_err_and(|error| is_missing(error.kind())) {
        return Ok(None);
    }
    let configuration = Configuration::parse(&sealed::read_toml(&path)?);
    configuration
        .map(Some)
        .map_err(|error| match *error.problem {
            Problem::Level { .. } => LogError::Level {
                text: error.to_string(),
                path,
            },
            _ => damaged(&path, error.to_string()),
        })
}

/// Writes the file. On return it is durable; after a crash the file is either the old or the new
/// one.
pub(crate) fn store(data: &Path, configuration: &Configuration) -> Result<(), LogError> {
    sealed::write_toml(&file(data), configuration.to_toml())?;
    let synced = File::open(data).and_then(|directory| directory.sync_all());
    synced.map_err(io_error("sync", data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::{Deployment, PresetOptions};

    #[test]
    fn a_file_with_one_wrong_character_is_refused_and_not_believed() {
        let data = std::env::temp_dir().join(format!("ionian-membership-{}", std::process::id()));
        fs::create_dir_all(&data).unwrap();
        assert!(stored(&data).unwrap().is_none());
        let deployment = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let known = Configuration::founded(deployment.numbered().unwrap());
        store(&data, &known).unwrap();
        let later = known.to_toml().replacen("level = 18", "level = 99", 1);
        assert_eq!(stored(&data).unwrap(), Some(known));
        let text = fs::read_to_string(file(&data)).unwrap();
        let other = text.replacen("f = 1", "f = 2", 1);
        assert_ne!(text, other);
        fs::write(file(&data), &other).unwrap();
        let error = stored(&data).unwrap_err().to_string();
        assert!(error.contains("its checksum is wrong"), "{error}");
        sealed::write_toml(&file(&data), later).unwrap();
        let error = stored(&data).unwrap_err().to_string();
        assert!(error.contains("the cluster is at level 99"), "{error}");
        fs::write(file(&data), "").unwrap();
        let error = stored(&data).unwrap_err().to_string();
        assert!(error.contains("does not end with its checksum"), "{error}");
        fs::remove_dir_all(&data).unwrap();
    }
}
