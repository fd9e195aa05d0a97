//! A file, directory or anything else that has a name.

use super::directory::Directory;
use super::file::File;
use super::ledger::Ledger;
use crate::attr::{Attr, Kind, Time};
use crate::errno::Errno;
use std::collections::BTreeMap;

/// The bytes of memory that an inode is counted as, besides its body.
const COST: u64 = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    /// Permissions, without the type.
    pub(super) mode: u32,
    /// The number of names; see [`Attr::links`]. A file without a name exists while it is held.
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    /// The mounts that hold the file, each with the writes that it has executed.
    pub(super) holds: BTreeMap<u64, Ledger<Errno>>,
    pub(super) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    File(File),
    Directory(Directory),
    Symlink(Box<[u8]>),
    /// A pipe, a socket or a device.
    Special(Kind),
}

impl Body {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind) => *kind,
        }
    }
}

impl Inode {
    pub(super) fn new(body: Body, (mode, uid, gid): (u32, u32, u32), now: Time) -> Inode {
        Inode {
            mode,
            links: if body.kind() == Kind::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            accessed: now,
            modified: now,
            changed: now,
            holds: BTreeMap::new(),
            body,
        }
    }

    pub(super) fn attr(&self, ino: u64) -> Attr {
        let (size, reserved) = match &self.body {
            Body::File(file) => (file.size, file.reserved),
            Body::Symlink(target) => (target.len() as u64, 0),
            // As on other file systems, so that programs which look for zero are content.
            Body::Directory(_) => (4096, 0),
            Body::Special(_) => (0, 0),
        };
        Attr {
            ino,
            mode: self.mode | self.body.kind().bits(),
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            reserved,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// The bytes of memory that it is counted as.
    pub(super) fn cost(&self) -> u64 {
        COST + match &self.body {
            Body::File(file) => file.reserved,
            Body::Directory(directory) => directory.cost(),
            Body::Symlink(target) => target.len() as u64,
            Body::Special(_) => 0,
        }
    }

    /// Something of it has changed, but not its content.
    pub(super) fn touch(&mut self, now: Time) {
        self.changed = self.changed.changed_at(now);
    }

    /// Its content has changed.
    pub(super) fn modify(&mut self, now: Time) {
        self.touch(now);
        self.modified = self.changed;
    }

    pub(super) fn file(&self) -> Result<&File, Errno> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn file_mut(&mut self) -> Result<&mut File, Errno> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory, Errno> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }
}
