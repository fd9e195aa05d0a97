//! A snapshot in a file of its own: a snapshot file of the write-ahead log's crate, stamped with a
//! head in JSON.

use crate::arguments::BadUsage;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use ionian_kernel::wire::WIRE_VERSION;
use ionian_wal::WalError;
use ionian_wal::snapshot::{SnapshotReader, SnapshotWriter, Snapshots};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the head and of what follows it.
pub(crate) const FORMAT: u16 = 1;

/// How it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Of a running cluster.
    Saved,
    /// A copy of what a stopped node had stored.
    Copied,
    /// Put together from what was left of a cluster.
    Salvaged,
}

/// What a snapshot says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u16,
    /// The version of what the state is encoded in.
    pub(crate) wire_version: u16,
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) machine: String,
    /// The node that it comes from; of several, that whose snapshot was the newest.
    pub(crate) node: String,
    /// Every slot below this one is executed in it, and none above.
    pub(crate) slot: u64,
    pub(crate) origin: Origin,
    /// Whether every write that was acknowledged before it was begun is surely in it.
    pub(crate) complete: bool,
    /// When it was begun, in seconds since 1970.
    pub(crate) time: u64,
}

impl Head {
    pub(crate) fn new(
        cluster: &str,
        protocol: &str,
        machine: &str,
        node: &str,
        origin: Origin,
    ) -> Self {
        Head {
            format: FORMAT,
            wire_version: WIRE_VERSION,
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
}

/// Makes sure that there is no such file, before work is done for it.
pub(crate) fn refuse_existing(file: &Path) -> Result<()> {
    if file == Path::new("-") {
        let why = "a snapshot is written to a file, which has its name when it is whole and on disk, and not to standard output";
        return Err(BadUsage(why.to_owned()).into());
    }
    if fs::exists(file).with_context(|| format!("cannot look for {}", file.display()))? {
        bail!("{} exists already: name another file", file.display());
    }
    if file.file_name().is_none() {
        bail!("{} is no name of a file", file.display());
    }
    Ok(())
}

/// Begins the file, beside its name; [`SnapshotWriter::finish`] gives it the name.
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

/// Writes a snapshot that is at hand.
pub(crate) fn write(file: &Path, head: &Head, snapshot: &[u8]) -> Result<()> {
    let mut writer = begin(file, head)?;
    for chunk in snapshot.chunks(1 << 20) {
        writer.push(chunk)?;
    }
    Ok(writer.finish()?)
}

/// A snapshot that was read and checked.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) head: Head,
    /// The size of the file.
    pub(crate) bytes: u64,
    pub(crate) chunks: Vec<Bytes>,
}

/// Reads a file that [`begin`] began.
pub(crate) fn open(file: &Path) -> Result<Opened> {
    let reader = SnapshotReader::open(file).map_err(|error| in_words(file, error))?;
    let head: Head = serde_json::from_slice(reader.stamp()).map_err(|_| {
        let stamp = reader.stamp().escape_ascii();
        anyhow!(
            "{} is a snapshot stamped '{stamp}', and not one that was saved as a backup",
            file.display()
        )
    })?;
    if (head.format, head.wire_version) != (FORMAT, WIRE_VERSION) {
        bail!(
            "{} has format {}.{}, this program knows {FORMAT}.{WIRE_VERSION}: use the version of ionian that wrote it",
            file.display(),
            head.format,
            head.wire_version
        );
    }
    let bytes = reader.file_bytes();
    let chunks: Result<Vec<Bytes>, WalError> = reader.map(|chunk| chunk.map(Bytes::from)).collect();
    Ok(Opened {
        path: file.to_owned(),
        head,
        bytes,
        chunks: chunks.map_err(|error| in_words(file, error))?,
    })
}

/// The words of the log are for those who run a node from its directory.
fn in_words(file: &Path, error: WalError) -> anyhow::Error {
    let path = file.display();
    match error {
        WalError::NotOurs { .. } => anyhow!("{path} is no snapshot"),
        WalError::Corrupt { offset, text, .. } => {
            anyhow!("{path} is damaged at byte {offset}: {text}")
        }
        other => other.into(),
    }
}

impl Opened {
    /// The whole state in one piece.
    pub(crate) fn whole(&self) -> Bytes {
        self.chunks.concat().into()
    }
}
