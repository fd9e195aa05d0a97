//! The file of a backup: a snapshot file of the crate `wal`, stamped with a head in JSON.

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use ionian_kernel::level::Level;
use ionian_program::BadUsage;
use ionian_wal::snapshot::{SnapshotReader, SnapshotWriter, Snapshots};
use ionian_wal::{ReadOnly, WalError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version of the head and of the layout after it.
pub(crate) const FORMAT: u16 = 1;

/// The last second of the year 9999: RFC 3339 has no later times.
const LAST_SECOND: u64 = 253_402_300_799;

/// How the snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// From a running cluster.
    Saved,
    /// A copy of a stopped node's snapshot.
    Copied,
    /// From the remaining directories of a cluster.
    Salvaged,
}

/// The description at the start of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u16,
    /// The version of the encoding of the state: that of the cluster's level.
    pub(crate) wire_version: u16,
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) machine: String,
    /// The node that the snapshot comes from; if several, the one with the newest snapshot.
    pub(crate) node: String,
    /// The snapshot includes exactly the slots below this one.
    pub(crate) slot: u64,
    pub(crate) origin: Origin,
    /// Whether the snapshot certainly contains every write that was acknowledged before it was
    /// started.
    pub(crate) complete: bool,
    /// Start of the snapshot, in seconds since 1970.
    pub(crate) time: u64,
}

impl Head {
    pub(crate) fn new(
        cluster: &str,
        protocol: &str,
        machine: &str,
        node: &str,
        origin: Origin,
        level: Level,
    ) -> Self {
        Head {
            format: FORMAT,
            wire_version: level.number(),
            cluster: cluster.into(),
            protocol: protocol.into(),
            machine: machine.into(),
            node: node.into(),
            slot: 0,
            origin,
            complete: false,
            time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
        }
    }

    /// The start of the snapshot, in RFC 3339.
    pub(crate) fn began(&self) -> String {
        let since = Duration::from_secs(self.time.min(LAST_SECOND));
        humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
    }
}

/// Checks that the file does not exist, before any work is done.
pub(crate) fn refuse_existing(file: &Path) -> Result<()> {
    if file == Path::new("-") {
        let why = "a snapshot is written to a file, because the file gets its name only when it is complete and on disk; standard output is not possible";
        return Err(BadUsage(why.to_owned()).into());
    }
    if fs::exists(file).with_context(|| format!("cannot look for {}", file.display()))? {
        bail!("{} exists: name another file", file.display());
    }
    if file.file_name().is_none() {
        bail!("{} is not a file name", file.display());
    }
    // Before a node is asked, so that the node is not blamed.
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        bail!(
            "{} cannot be written: there is no directory {}",
            file.display(),
            parent.display()
        );
    }
    Ok(())
}

/// Creates the file under a temporary name; [`SnapshotWriter::finish`] renames it.
pub(crate) fn begin(file: &Path, head: &Head) -> Result<SnapshotWriter> {
    refuse_existing(file)?;
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Ok(Snapshots::new(parent, &name, &serde_json::to_vec(head)?).begin()?)
}

/// The temporary name of a file that was begun. What is still there when it is dropped is removed.
pub(crate) struct Draft(PathBuf);

impl Draft {
    pub(crate) const SUFFIX: &str = ".tmp";

    pub(crate) fn of(file: &Path) -> Self {
        let mut name = file.as_os_str().to_owned();
        name.push(Self::SUFFIX);
        Draft(name.into())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Fails if the file is complete: it has its name then.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a snapshot that is in memory.
pub(crate) fn write(file: &Path, head: &Head, snapshot: &[u8]) -> Result<()> {
    let mut writer = begin(file, head)?;
    let _draft = Draft::of(file);
    for chunk in snapshot.chunks(1 << 20) {
        writer.push(chunk)?;
    }
    Ok(writer.finish()?)
}

/// A snapshot that was read and checked.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) head: Head,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    pub(crate) state: Bytes,
}

/// The head of a file that [`begin`] has started.
fn head_in(file: &Path, reader: &SnapshotReader<ReadOnly>) -> Result<Head> {
    serde_json::from_slice(reader.stamp()).map_err(|_| {
        let stamp = reader.stamp().escape_ascii();
        anyhow!(
            "{} is a snapshot stamped '{stamp}', not a backup",
            file.display()
        )
    })
}

/// The head alone, of a file of any version. What follows is not checked.
pub(crate) fn head(file: &Path) -> Result<Head> {
    head_in(file, &SnapshotReader::open(file)?)
}

/// Reads a file that [`begin`] has started.
pub(crate) fn open(file: &Path) -> Result<Opened> {
    let reader = SnapshotReader::open(file).map_err(|error| in_words(file, error))?;
    let head = head_in(file, &reader)?;
    let level = Level::of_number(head.wire_version);
    if head.format != FORMAT || !level.is_some_and(Level::is_supported) {
        bail!(
            "{} has format {}.{}, this program reads {FORMAT}.{} to {FORMAT}.{}: use the version of ionian that wrote it",
            file.display(),
            head.format,
            head.wire_version,
            Level::OLDEST.number(),
            Level::LATEST.number()
        );
    }
    let bytes = reader.file_bytes();
    let mut state = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    for chunk in reader {
        state.extend_from_slice(&chunk.map_err(|error| in_words(file, error))?);
    }
    Ok(Opened {
        path: file.to_owned(),
        head,
        bytes,
        state: state.into(),
    })
}

/// Replaces the log's own error texts, which address operators of a node's directory.
fn in_words(file: &Path, error: WalError) -> anyhow::Error {
    let path = file.display();
    match error {
        WalError::NotOurs { .. } => anyhow!("{path} is not a snapshot"),
        WalError::Corrupt { offset, text, .. } => {
            anyhow!("{path} is damaged at byte {offset}: {text}")
        }
        other => other.into(),
    }
}
