//! The data directory of a stopped node: reads one with durability "disk", creates one whose state
//! begins with a snapshot, or has an empty one take the place of one that is lost.

use super::directory::{DataDirectory, LOG, SNAPSHOTS, VITAL, private, sync};
use super::error::{LogError, io_error};
use super::identity::{self, DirectoryId, IdentityFile, Origin};
use super::recovery;
use super::skips::{CommandName, MAX_SKIPS, Skips};
use super::snapshots::{self, SnapshotStore};
use super::stamp::{self, Stamp};
use bytes::Bytes;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::layout::Address;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::MAX_PREDECESSORS;
use ionian_wal::snapshot::{Loaded, Snapshots};
use ionian_wal::{Options, ReadOnly, Recovery, Wal, WalError, read_log};
use nix::fcntl::Flock;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The directory of a stopped node. It is read-only and locked while this value exists, so that the
/// node cannot be started meanwhile.
pub struct StoppedNode {
    path: PathBuf,
    bytes: Vec<u8>,
    stamp: Stamp,
    _lock: Option<Flock<File>>,
}

/// The data directory of a node that was refused, because its former directory is lost. It is
/// locked while this value exists.
pub struct EmptyDirectory(IdentityFile);

impl EmptyDirectory {
    /// Opens the directory `path`.
    ///
    /// # Errors
    /// If no node was ever started with it, it has data, or the node runs.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        if !path.exists() {
            return Err(LogError::NotEmpty {
                path: path.to_owned(),
                text: "there is no such directory".into(),
            });
        }
        let directory = Rc::new(DataDirectory::open(path)?);
        IdentityFile::unused(directory).map(EmptyDirectory)
    }

    /// The name of the protocol.
    pub fn protocol(&self) -> &str {
        &self.0.stamp().protocol
    }

    /// Has it take the place of the directory with the id `lost`, as other nodes write it when they
    /// refuse this one. They then refuse the lost one.
    ///
    /// # Errors
    /// If `lost` is no id, or too many were lost before.
    pub fn take_place_of(&mut self, lost: &str) -> Result<(), LogError> {
        let unsuited = |text: String| LogError::NotEmpty {
            path: self.0.path(),
            text,
        };
        let id = lost.parse::<DirectoryId>();
        let id = id.map_err(|error| unsuited(format!("{lost:?} is {error}")))?;
        if id.predecessors() == MAX_PREDECESSORS {
            let most = format!("{MAX_PREDECESSORS} directories of this node were lost, the most");
            return Err(unsuited(most));
        }
        self.0.take_place_of(id)
    }
}

/// A snapshot in a node's directory.
pub struct StoredSnapshot {
    /// The file.
    pub path: PathBuf,
    /// The stamp that its role gave it: a replica's state is the one before this slot.
    pub stamp: u64,
    /// The snapshot.
    pub snapshot: Bytes,
    /// What is wrong with the newest snapshot, if this is the one before it.
    pub rejected: Option<WalError>,
}

impl StoppedNode {
    /// Opens the directory `path` of one node.
    ///
    /// # Errors
    /// If it is not the directory of a node, its log is damaged, or the node runs.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        if !path.exists() {
            return Err(LogError::NoNode {
                path: path.to_owned(),
                text: "there is no such directory".into(),
            });
        }
        let lock = DataDirectory::look(path)?;
        let log = path.join(LOG);
        let none = |text: String| LogError::NoNode {
            path: path.to_owned(),
            text,
        };
        if !fs::exists(&log).map_err(io_error("look for", &log))? {
            return Err(none(
                "there is no log in it. It should be one node's, such as DIR/nodes/NAME".into(),
            ));
        }
        let records = read_log(&log)?.ok_or_else(|| none("its log is empty".into()))?;
        let bytes = records.stamp().to_vec();
        let unknown = || {
            none(format!(
                "its log is stamped '{}', which this program does not know",
                bytes.escape_ascii()
            ))
        };
        let stamp = stamp::decode(&bytes).ok_or_else(unknown)?;
        Ok(StoppedNode {
            path: path.to_owned(),
            bytes,
            stamp,
            _lock: lock,
        })
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.stamp.cluster
    }

    /// The name of the protocol.
    pub fn protocol(&self) -> &str {
        &self.stamp.protocol
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.stamp.node
    }

    /// Whether this node has met the directory of `other`. Nodes forget the directory of a node
    /// that leaves, and meet that of a later node of the same name.
    pub fn has_met(&self, other: &StoppedNode) -> bool {
        identity::has_met(&self.path, &other.path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest undamaged snapshot of each instance of `role`.
    ///
    /// # Errors
    /// If an instance has snapshots and all are damaged.
    pub fn snapshots(&self, role: &str) -> Result<Vec<StoredSnapshot>, LogError> {
        let is_of = |name: &str| {
            name.strip_prefix(role)
                .is_some_and(|rest| rest.starts_with('-'))
        };
        let mut found = Vec::new();
        for name in self.snapshot_names()?.iter().filter(|name| is_of(name)) {
            let Some(loaded) = self.snapshot(name)? else {
                continue;
            };
            let (path, rejected) = (loaded.reader.path().to_owned(), loaded.rejected);
            let (stamp, snapshot) = snapshots::read_whole(loaded.reader)?;
            found.push(StoredSnapshot {
                path,
                stamp,
                snapshot,
                rejected,
            });
        }
        Ok(found)
    }

    /// How far its snapshots have executed the log of a session. `None` if no snapshot was ever
    /// stored.
    fn executed(
        &self,
        session: SessionId,
        executed_in: ExecutedIn,
    ) -> Result<Option<Slot>, LogError> {
        let mut executed = None;
        for name in self.snapshot_names()? {
            let Some(loaded) = self.snapshot(&name)? else {
                continue;
            };
            let path = loaded.reader.path().to_owned();
            let (stamp, snapshot) = snapshots::read_whole(loaded.reader)?;
            let here = executed_in(self.protocol(), &snapshot, Slot(stamp), session);
            let here = here.map_err(|error| LogError::NoNode {
                path,
                text: error.to_string(),
            })?;
            executed = executed.max(Some(here));
        }
        Ok(executed)
    }

    fn snapshot(&self, name: &str) -> Result<Option<Loaded<ReadOnly>>, LogError> {
        Ok(
            Snapshots::new_in(ReadOnly, &self.path.join(SNAPSHOTS), name, &self.bytes)
                .load_latest()?,
        )
    }

    /// The names of the role instances that have snapshots.
    fn snapshot_names(&self) -> Result<Vec<String>, LogError> {
        let path = self.path.join(SNAPSHOTS);
        if !fs::exists(&path).map_err(io_error("look for", &path))? {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&path).map_err(io_error("list the directory", &path))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: std::io::Result<Vec<String>> = names.collect();
        let mut names = names.map_err(io_error("list the directory", &path))?;
        // A crash may have left only the previous snapshot.
        names
            .iter_mut()
            .for_each(|name| name.truncate(name.find('.').unwrap_or(name.len())));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The records of its roles, oldest first, each with the role instance that wrote it.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn records(&self) -> Result<Records, LogError> {
        let log = read_log(&self.path.join(LOG))?;
        let gone = || LogError::NoNode {
            path: self.path.clone(),
            text: "its log is empty".into(),
        };
        Ok(Records(log.ok_or_else(gone)?))
    }
}

/// The records in a stopped node's log.
pub struct Records(Recovery<ReadOnly>);

impl Iterator for Records {
    type Item = Result<(Address, Bytes), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.next()?;
        Some(
            entry
                .map(|entry| (recovery::author(&entry), entry.record.into()))
                .map_err(LogError::from),
        )
    }
}

/// What tells, of a protocol, how far the log of a session was executed in a snapshot with this
/// stamp: see `Protocol::executed_in`.
pub type ExecutedIn = fn(&str, &Bytes, Slot, SessionId) -> Result<Slot, RestoreError>;

/// Why a node's list of commands to leave out cannot change.
#[derive(Debug, thiserror::Error)]
pub enum SkipError {
    /// Something is wrong with the directory.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The node has executed the command already.
    #[error(
        "the node of {} has executed slot {slot}: its snapshot holds everything below slot {executed}. What the command \
         did or did not do is in its state, and must be the same everywhere",
        path.display()
    )]
    Executed {
        /// The directory.
        path: PathBuf,
        /// The slot of the command.
        slot: u64,
        /// The snapshot holds the state before this slot.
        executed: u64,
    },
    /// The list is full.
    #[error("the node of {} leaves out {MAX_SKIPS} commands already, which is the most", path.display())]
    Full {
        /// The directory.
        path: PathBuf,
    },
}

/// A change of the list of commands that a stopped node leaves out. The directory is locked while
/// this value exists.
pub struct SkipList {
    path: PathBuf,
    skips: Skips,
    changed: bool,
    /// A node that has run, or the directory of one that never did.
    _node: Result<StoppedNode, DataDirectory>,
}

impl SkipList {
    /// The list of the directory `path` with the `command` added (`leave_out`) or removed. Nothing
    /// is written yet.
    ///
    /// A node that has executed the command, as `executed_in` tells, refuses the change. A node
    /// whose directory is still empty accepts any change.
    ///
    /// # Errors
    /// [`SkipError`], also if the node runs.
    pub fn changed(
        path: &Path,
        command: CommandName,
        leave_out: bool,
        executed_in: ExecutedIn,
    ) -> Result<Self, SkipError> {
        let has = |name: &str| {
            fs::exists(path.join(name)).map_err(io_error("look for", &path.join(name)))
        };
        let none = |text: &str| LogError::NoNode {
            path: path.to_owned(),
            text: text.into(),
        };
        let node = match (
            fs::metadata(path).is_ok_and(|found| found.is_dir()),
            has(LOG)?,
            has(VITAL)?,
        ) {
            (false, ..) => return Err(none("there is no such directory").into()),
            (true, true, _) => Ok(StoppedNode::open(path)?),
            (true, false, true) => {
                return Err(none("it is of one with durability \"memory\"").into());
            }
            (true, false, false) => Err(DataDirectory::open(path)?),
        };
        let executed = match &node {
            Ok(node) => node.executed(command.session, executed_in)?,
            Err(_) => None,
        };
        let mut skips = Skips::stored(path)?;
        let changed = skips.change(command, leave_out);
        let (path, slot) = (path.to_owned(), command.slot);
        match executed {
            Some(executed) if changed && executed > slot => Err(SkipError::Executed {
                path,
                slot: slot.0,
                executed: executed.0,
            }),
            _ if skips.commands().count() > MAX_SKIPS => Err(SkipError::Full { path }),
            _ => Ok(SkipList {
                path,
                skips,
                changed,
                _node: node,
            }),
        }
    }

    /// Writes the list. On return it is on disk. Returns whether the list has changed.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn write(self) -> Result<bool, LogError> {
        if self.changed {
            self.skips.store(&self.path)?;
            sync(&self.path)?;
        }
        Ok(self.changed)
    }
}

/// The data directory of a node that has never run.
pub struct NewNode<'a> {
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The name of the protocol.
    pub protocol: &'a str,
    /// The protocol's names of its roles.
    pub kinds: &'static [&'static str],
    /// The name of the node.
    pub name: &'a str,
    /// The names of the other nodes. Their directories must be made from the same snapshot: the
    /// node refuses others, and also a second directory of a peer after it has accepted the first.
    pub peers: Vec<String>,
    /// The role instances that get the snapshot.
    pub snapshots: Vec<Address>,
    /// The stamp of the snapshot.
    pub stamp: u64,
    /// The snapshot.
    pub snapshot: &'a [Bytes],
    /// The records that the role instances get, oldest first.
    pub records: Vec<(Address, Vec<u8>)>,
}

impl NewNode<'_> {
    /// Creates the directory `path`, which must not exist or be empty. After a crash it is either
    /// complete or not there.
    ///
    /// # Errors
    /// If the directory is not empty, or the disk fails.
    pub fn make(&self, path: &Path) -> Result<(), LogError> {
        refuse_used(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(LogError::NoNode {
                path: path.to_owned(),
                text: "it must be below another directory".into(),
            });
        };
        // A node cannot have this name: names contain no dots.
        let draft = parent.join(format!("{}.unfinished", name.to_string_lossy()));
        if fs::exists(&draft).map_err(io_error("look for", &draft))? {
            fs::remove_dir_all(&draft).map_err(io_error("remove", &draft))?;
        }
        let directory = Rc::new(DataDirectory::open(&draft)?);
        self.write(&draft)?;
        let stamp = self.stamp_of_node();
        let about = format!("cluster '{}', slot {}", self.cluster, self.stamp);
        IdentityFile::found(
            directory.clone(),
            &stamp,
            Origin::of(&about, self.snapshot),
            &self.peers,
        )?;
        directory.sync()?;
        // Renaming replaces an empty directory.
        fs::rename(&draft, path).map_err(io_error("rename", &draft))?;
        sync(parent)
    }

    fn stamp_of_node(&self) -> Stamp {
        Stamp {
            cluster: self.cluster.into(),
            protocol: self.protocol.into(),
            node: self.name.into(),
        }
    }

    fn write(&self, draft: &Path) -> Result<(), LogError> {
        let NewNode {
            kinds,
            snapshots,
            stamp,
            snapshot,
            records,
            ..
        } = self;
        let owner = stamp::encode(&self.stamp_of_node());
        let (log, stored) = (draft.join(LOG), draft.join(SNAPSHOTS));
        for directory in [&log, &stored] {
            private(directory).map_err(io_error("create the directory", directory))?;
        }
        let store = SnapshotStore::new(&stored, &owner, kinds);
        for address in snapshots {
            let mut writer = snapshots::begin(&store.of(*address), *stamp)?;
            for chunk in *snapshot {
                writer.push(chunk)?;
            }
            writer.finish()?;
        }
        let (mut wal, _) = Wal::open(&log, Options::default(), &owner)?;
        for (author, record) in records {
            wal.append(author.kind, author.index.into(), record);
        }
        Ok(wal.sync()?)
    }
}

/// Makes sure that the directory `path` does not exist or is empty.
///
/// # Errors
/// If it contains something, or cannot be read.
pub fn refuse_used(path: &Path) -> Result<(), LogError> {
    let used = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(io_error("list the directory", path)(error)),
    };
    match used {
        true => Err(LogError::Used {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}
