//! The file `identity`: by which number this node's data directory is known to the others, and by
//! which it knows theirs. A directory that was emptied comes back with another number, and whoever
//! met the first one notices. ([Why](../../../docs/decisions/0010-identity.md).)
//!
//! It is JSON, for people who want to compare ([`sealed`]).

use super::directory::{DataDirectory, LOG, SNAPSHOTS, VITAL};
use super::error::{LogError, io_error};
use super::sealed;
use super::stamp::Stamp;
use bytes::Bytes;
use ionian_kernel::wire::{Reader, Wire, WireError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FORMAT: u16 = 1;
const FILE: &str = "identity";

/// How many names are remembered. No cluster replaces so many nodes; this only bounds what a caller
/// who invents names makes us keep.
const MAX_PEERS: usize = 4096;

/// The number of a data directory, drawn once from the operating system's random numbers.
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

    /// As [`draw`](Self::draw), for a directory that is made from something. No two are the same,
    /// be they made from the same thing: one that replaces another has forgotten what that one
    /// promised.
    fn draw_from(origin: Origin) -> Result<Self, LogError> {
        let DirectoryId(drawn) = Self::draw()?;
        Ok(DirectoryId(
            u128::from(origin.0) << 64 | drawn & u128::from(u64::MAX),
        ))
    }

    fn is_made_from(self, origin: Origin) -> bool {
        self.0 >> 64 == u128::from(origin.0)
    }
}

/// What directories were made from: the first half of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin(u64);

impl Origin {
    /// Of a snapshot, given in pieces, and what else there is to tell it by.
    pub(crate) fn of(about: &str, pieces: &[Bytes]) -> Self {
        let hash = pieces
            .iter()
            .fold(fnv(0, about.as_bytes()), |hash, piece| fnv(hash, piece));
        Origin((hash >> 64) as u64)
    }
}

/// Adds bytes to a hash by which different things are told apart (FNV-1a). It resists no malice.
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

impl Serialize for DirectoryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DirectoryId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16)
            .map(DirectoryId)
            .map_err(D::Error::custom)
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
    /// What this directory and those of its first peers were made from, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_from: Option<MadeFrom>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MadeFrom {
    origin: Origin,
    /// The names of the others that were.
    with: Vec<String>,
}

/// Whether the node with this data directory has ever taken part in its cluster. False when that
/// cannot be read.
pub fn has_taken_part(data: &Path) -> bool {
    sealed::read::<Content>(&data.join(FILE)).is_ok_and(|content| content.took_part)
}

/// The file and what it says.
#[derive(Debug)]
pub(crate) struct Register {
    directory: Rc<DataDirectory>,
    path: PathBuf,
    content: Content,
    /// Whether the file does not say all of it yet.
    is_ahead: bool,
}

impl Register {
    /// Reads the file, or makes one where the node is new.
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
            return Ok(Register {
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
        let mut register = Register {
            directory,
            path,
            content,
            is_ahead: true,
        };
        register.save()?;
        Ok(register)
    }

    /// Makes the file of a node that never ran and whose directory is made from something. Of those
    /// called `with` it meets only directories that are made from the same.
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
        Register {
            directory,
            path,
            content,
            is_ahead: true,
        }
        .save()
    }

    /// The file.
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

    /// Whether there must be a log beside it.
    pub(crate) fn has_log(&self) -> bool {
        self.content.took_part || self.content.made_from.is_some()
    }

    /// Whether this directory and that of the peer should be made from the same thing, and are not.
    pub(crate) fn is_of_another_origin(&self, peer: &str, directory: Option<DirectoryId>) -> bool {
        let made_from = self
            .content
            .made_from
            .as_ref()
            .filter(|made| made.with.iter().any(|name| name == peer));
        made_from.is_some_and(|made| {
            !directory.is_some_and(|directory| directory.is_made_from(made.origin))
        })
    }

    /// Notes that the roles are about to be started; on return it is on disk.
    pub(crate) fn takes_part(&mut self) -> Result<(), LogError> {
        (self.content.took_part, self.is_ahead) = (true, true);
        self.save()
    }

    /// By which directory a peer of that name was met.
    pub(crate) fn known(&self, name: &str) -> Option<DirectoryId> {
        self.content.peers.get(name).copied()
    }

    /// Whether nothing more can be [noted](Self::note).
    pub(crate) fn is_full(&self) -> bool {
        self.content.peers.len() >= MAX_PEERS
    }

    /// Notes a peer that was not known. To be [saved](Self::save) before the peer is told so.
    pub(crate) fn note(&mut self, name: &str, directory: DirectoryId) {
        self.content.peers.insert(name.to_owned(), directory);
        self.is_ahead = true;
    }

    /// Forgets the directory of whoever has left the cluster: another node may be given its name.
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

    /// Puts everything on disk that is not there yet. The file is the old one or the new one,
    /// whatever happens.
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
