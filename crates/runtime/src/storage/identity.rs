//! The file `identity`: the id of this node's data directory, and the ids of its peers'
//! directories. A directory that was emptied comes back with another id, and the peers that knew
//! the first id notice. ([Why](../../../../docs/decisions/0010-identity.md).)
//!
//! The file is JSON, so that people can compare it ([`sealed`]).

use super::directory::{DataDirectory, LOG, SNAPSHOTS, VITAL};
use super::error::{LogError, io_error};
use super::sealed;
use super::stamp::Stamp;
use bytes::Bytes;
use ionian_kernel::protocol::MAX_PREDECESSORS;
use ionian_kernel::wire::{Reader, Wire, WireError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

const FORMAT: u16 = 1;
const FILE: &str = "identity";

/// The largest number of stored names. No cluster replaces that many nodes; the limit bounds what a
/// caller with invented names can make this node store.
pub(crate) const MAX_PEERS: usize = 4096;

/// The id of a data directory, drawn once from the operating system's random numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectoryId(u128);

impl DirectoryId {
    fn draw() -> Result<Self, LogError> {
        let path = Path::new("/dev/urandom");
        let mut bytes = [0; 16];
        let drawn = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
        drawn.map_err(io_error("draw a number from", path))?;
        Ok(DirectoryId(u128::from_le_bytes(bytes)))
    }

    /// As [`draw`](Self::draw), for a directory that is made from an origin. Two directories have
    /// different ids even if they are made from the same origin: the second has none of the
    /// promises that the first made.
    fn draw_from(origin: Origin) -> Result<Self, LogError> {
        let DirectoryId(drawn) = Self::draw()?;
        Ok(DirectoryId(
            u128::from(origin.0) << 64 | drawn & u128::from(u64::MAX),
        ))
    }

    /// As [`draw`](Self::draw), for the directory that takes the place of `lost`.
    fn draw_after(lost: DirectoryId) -> Result<Self, LogError> {
        let DirectoryId(drawn) = Self::draw()?;
        let first = READMITTED | u64::from(lost.predecessors() + 1);
        Ok(DirectoryId(
            u128::from(first) << 64 | drawn & u128::from(u64::MAX),
        ))
    }

    /// How many directories of its node were lost before this one, which took the place of the
    /// last.
    pub(crate) fn predecessors(self) -> u32 {
        let first = (self.0 >> 64) as u64;
        match first & READMITTED == READMITTED {
            true => (first & !READMITTED) as u32,
            false => 0,
        }
    }

    fn is_made_from(self, origin: Origin) -> bool {
        self.0 >> 64 == u128::from(origin.0)
    }
}

/// The first half of the id of a directory that took the place of a lost one begins with these
/// bits; the last eight count its [predecessors](DirectoryId::predecessors).
const READMITTED: u64 = !(MAX_PREDECESSORS as u64);

/// What a directory was made from: the first half of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin(u64);

impl Origin {
    /// The origin of a directory that is made from a snapshot, given in pieces; `about`
    /// distinguishes equal snapshots.
    pub(crate) fn of(about: &str, pieces: &[Bytes]) -> Self {
        let hash = pieces
            .iter()
            .fold(fnv(0, about.as_bytes()), |hash, piece| fnv(hash, piece));
        Origin((hash >> 64) as u64)
    }
}

/// Adds bytes to a hash that distinguishes different inputs (FNV-1a). It does not resist forgery.
pub(crate) fn fnv(hash: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for DirectoryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Wire for DirectoryId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let bytes = reader.take(16)?.try_into().expect("sixteen bytes");
        Ok(DirectoryId(u128::from_le_bytes(bytes)))
    }
}

impl FromStr for DirectoryId {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id);
        number
            .map(DirectoryId)
            .ok_or("no id of a data directory, which has 32 hexadecimal digits")
    }
}

impl Serialize for DirectoryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DirectoryId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u16,
    #[serde(flatten)]
    stamp: Stamp,
    directory: DirectoryId,
    took_part: bool,
    peers: BTreeMap<String, DirectoryId>,
    /// The origin of this directory and of those of its first peers, if they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_from: Option<MadeFrom>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MadeFrom {
    origin: Origin,
    /// The names of the peers whose directories have that origin.
    with: Vec<String>,
}

/// Whether the node with this data directory has ever taken part in its cluster. False if that
/// cannot be read.
pub fn has_taken_part(data: &Path) -> bool {
    sealed::read::<Content>(&data.join(FILE)).is_ok_and(|content| content.took_part)
}

/// Whether the node with the data directory `data` has met the directory `other` under the name of
/// its node, and no later one. False if that cannot be read.
pub(crate) fn has_met(data: &Path, other: &Path) -> bool {
    let content = |data: &Path| sealed::read::<Content>(&data.join(FILE)).ok();
    let (Some(one), Some(other)) = (content(data), content(other)) else {
        return false;
    };
    one.peers.get(other.stamp.node.as_str()) == Some(&other.directory)
}

/// The identity file and its content.
#[derive(Debug)]
pub(crate) struct IdentityFile {
    directory: Rc<DataDirectory>,
    path: PathBuf,
    content: Content,
    /// Whether the content in memory is newer than the file.
    is_ahead: bool,
}

impl IdentityFile {
    /// Reads the file, or creates it for a new node.
    pub(crate) fn open(directory: Rc<DataDirectory>, stamp: &Stamp) -> Result<Self, LogError> {
        let path = directory.path().join(FILE);
        if fs::exists(&path).map_err(io_error("look for", &path))? {
            let content = read(&path)?;
            if content.stamp != *stamp {
                let text = format!("it belongs to {}, this is {stamp}", content.stamp);
                return Err(LogError::Foreign { path, text });
            }
            // An earlier process may have failed to sync its name.
            directory.sync()?;
            return Ok(IdentityFile {
                directory,
                path,
                content,
                is_ahead: false,
            });
        }
        for proof in [LOG, SNAPSHOTS, VITAL].map(|name| directory.path().join(name)) {
            if fs::exists(&proof).map_err(io_error("look for", &proof))? {
                return Err(LogError::Lost { lost: path, proof });
            }
        }
        let (stamp, peers) = (stamp.clone(), BTreeMap::new());
        let (directory_id, took_part, made_from) = (DirectoryId::draw()?, false, None);
        let content = Content {
            format: FORMAT,
            stamp,
            directory: directory_id,
            took_part,
            peers,
            made_from,
        };
        let mut register = IdentityFile {
            directory,
            path,
            content,
            is_ahead: true,
        };
        register.save()?;
        Ok(register)
    }

    /// Creates the file of a node that never ran and whose directory is made from `origin`. From
    /// the peers in `with` it accepts only directories with the same origin.
    pub(crate) fn found(
        directory: Rc<DataDirectory>,
        stamp: &Stamp,
        origin: Origin,
        with: &[String],
    ) -> Result<(), LogError> {
        let path = directory.path().join(FILE);
        let (own, peers, made_from) = (
            DirectoryId::draw_from(origin)?,
            BTreeMap::new(),
            Some(MadeFrom {
                origin,
                with: with.to_vec(),
            }),
        );
        let stamp = stamp.clone();
        let content = Content {
            format: FORMAT,
            stamp,
            directory: own,
            took_part: false,
            peers,
            made_from,
        };
        IdentityFile {
            directory,
            path,
            content,
            is_ahead: true,
        }
        .save()
    }

    /// The file of a directory that has nothing in it, because its node was refused when it started
    /// with it.
    pub(crate) fn unused(directory: Rc<DataDirectory>) -> Result<Self, LogError> {
        let path = directory.path().join(FILE);
        let unsuited = |text: &str| LogError::NotEmpty {
            path: directory.path().to_owned(),
            text: text.to_owned(),
        };
        if !fs::exists(&path).map_err(io_error("look for", &path))? {
            return Err(unsuited(
                "no node was started with this directory: start it once, and it says which data directory is missed",
            ));
        }
        let content = read(&path)?;
        let file = IdentityFile {
            directory: directory.clone(),
            path,
            content,
            is_ahead: false,
        };
        match file.has_log() {
            true => Err(unsuited(
                "it has the data of a node, which is not lost; move it away, and start the node with an empty directory",
            )),
            false => Ok(file),
        }
    }

    pub(crate) fn stamp(&self) -> &Stamp {
        &self.content.stamp
    }

    /// Takes the place of the directory `lost`. On return that is on disk.
    pub(crate) fn take_place_of(&mut self, lost: DirectoryId) -> Result<(), LogError> {
        self.content.directory = DirectoryId::draw_after(lost)?;
        self.is_ahead = true;
        self.save()
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn own(&self) -> DirectoryId {
        self.content.directory
    }

    /// Whether the roles of this node were ever started.
    pub(crate) fn took_part(&self) -> bool {
        self.content.took_part
    }

    /// Whether there must be a log beside the file.
    pub(crate) fn has_log(&self) -> bool {
        self.content.took_part || self.content.made_from.is_some()
    }

    /// Whether the peer's directory should have the same origin as this one, and has not.
    pub(crate) fn has_other_origin(&self, peer: &str, directory: Option<DirectoryId>) -> bool {
        let made_from = self
            .content
            .made_from
            .as_ref()
            .filter(|made| made.with.iter().any(|name| name == peer));
        made_from.is_some_and(|made| {
            !directory.is_some_and(|directory| directory.is_made_from(made.origin))
        })
    }

    /// Stores that the roles are about to be started. On return it is on disk.
    pub(crate) fn takes_part(&mut self) -> Result<(), LogError> {
        (self.content.took_part, self.is_ahead) = (true, true);
        self.save()
    }

    /// The directory of the peer with that name, if it is known.
    pub(crate) fn known(&self, name: &str) -> Option<DirectoryId> {
        self.content.peers.get(name).copied()
    }

    /// Whether no further peer can be [stored](Self::note).
    pub(crate) fn is_full(&self) -> bool {
        self.content.peers.len() >= MAX_PEERS
    }

    /// Stores the directory of a new peer. The caller must [save](Self::save) it before the peer
    /// learns that it is accepted.
    pub(crate) fn note(&mut self, name: &str, directory: DirectoryId) {
        self.content.peers.insert(name.to_owned(), directory);
        self.is_ahead = true;
    }

    /// Removes the directories of nodes that have left the cluster: another node may get their
    /// names.
    pub(crate) fn forget(&mut self, left: impl Fn(&str) -> bool) {
        let before = self.content.peers.len();
        self.content.peers.retain(|name, _| !left(name));
        self.is_ahead |= self.content.peers.len() < before;
        if let Some(made) = &mut self.content.made_from {
            let before = made.with.len();
            made.with.retain(|name| !left(name));
            self.is_ahead |= made.with.len() < before;
        }
    }

    /// Writes the content to disk if it has changed. After a crash the file is either the old or
    /// the new one.
    pub(crate) fn save(&mut self) -> Result<(), LogError> {
        if !self.is_ahead {
            return Ok(());
        }
        sealed::write(&self.path, &self.content)?;
        self.directory.sync()?;
        self.is_ahead = false;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Content, LogError> {
    let content: Content = sealed::read(path)?;
    if content.format != FORMAT {
        let text = format!(
            "it has format {}, this program knows format {FORMAT}",
            content.format
        );
        return Err(LogError::Foreign {
            path: path.to_owned(),
            text,
        });
    }
    Ok(content)
}
