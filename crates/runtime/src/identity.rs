//! The file `identity`: by which number this node's data directory is known to the others, and by which
//! it knows theirs. A directory that was emptied comes back with another number, and whoever met the first
//! one notices. ([Why](../../../docs/decisions/0010-identity.md).)
//!
//! It is JSON, for people who want to compare, and a line with its checksum.

use crate::directory::DataDirectory;
use crate::disk_log;
use crate::log::{LogError, io_error};
use crate::memory_log;
use crate::vital::Stamp;
use ionian_kernel::wire::{Reader, Wire, WireError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FORMAT: u16 = 1;
const FILE: &str = "identity";
/// What stands before the checksum.
const SUM: &str = "\ncrc32c ";

/// How many names are remembered. No cluster replaces so many nodes; this only bounds what a caller who
/// invents names makes us keep.
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

    /// The number of a directory that is made from something: whoever makes the directories of its peers from the
    /// same knows it.
    fn made_from(origin: u128, node: &str) -> Self {
        DirectoryId(fnv(origin, node.as_bytes()))
    }
}

/// Adds bytes to a hash by which different things are told apart (FNV-1a). It resists no malice.
pub(crate) fn fnv(hash: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(hash, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
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
        u128::from_str_radix(&text, 16).map(DirectoryId).map_err(D::Error::custom)
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
            return Ok(Register { directory, path, content, is_ahead: false });
        }
        for proof in [disk_log::LOG, disk_log::SNAPSHOTS, memory_log::VITAL].map(|name| directory.path().join(name)) {
            if fs::exists(&proof).map_err(io_error("look for", &proof))? {
                return Err(LogError::Lost { lost: path, proof });
            }
        }
        let (stamp, peers) = (stamp.clone(), BTreeMap::new());
        let content = Content { format: FORMAT, stamp, directory: DirectoryId::draw()?, took_part: false, peers };
        let mut register = Register { directory, path, content, is_ahead: true };
        register.save()?;
        Ok(register)
    }

    /// Makes the file of a node that never ran, but counts as one that has taken part: it and `peers` know each
    /// other, for their directories are all made from `origin`, and nobody else is let in under their names.
    pub(crate) fn found(
        directory: Rc<DataDirectory>,
        stamp: &Stamp,
        origin: u128,
        peers: &[String],
    ) -> Result<(), LogError> {
        let path = directory.path().join(FILE);
        let own = DirectoryId::made_from(origin, &stamp.node);
        let peers = peers.iter().map(|peer| (peer.clone(), DirectoryId::made_from(origin, peer))).collect();
        let content = Content { format: FORMAT, stamp: stamp.clone(), directory: own, took_part: true, peers };
        Register { directory, path, content, is_ahead: true }.save()
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
    }

    /// Puts everything on disk that is not there yet. The file is the old one or the new one, whatever happens.
    pub(crate) fn save(&mut self) -> Result<(), LogError> {
        if !self.is_ahead {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(&self.content).expect("numbers and strings");
        text += &format!("{SUM}{:08x}\n", crc32c::crc32c(text.as_bytes()));
        let draft = self.path.with_extension("new");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)
        };
        write().map_err(io_error("write", &self.path))?;
        self.directory.sync()?;
        self.is_ahead = false;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Content, LogError> {
    let damaged = |text: String| LogError::Corrupt { path: path.to_owned(), offset: 0, text };
    let text = fs::read_to_string(path).map_err(io_error("read", path))?;
    let (body, sum) = text.rsplit_once(SUM).ok_or_else(|| damaged("it does not end with its checksum".into()))?;
    if sum.trim_end() != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        return Err(damaged("its checksum is wrong".into()));
    }
    let content: Content = serde_json::from_str(body).map_err(|error| damaged(error.to_string()))?;
    if content.format != FORMAT {
        let text = format!("it has format {}, this program knows format {FORMAT}", content.format);
        return Err(LogError::Foreign { path: path.to_owned(), text });
    }
    Ok(content)
}
