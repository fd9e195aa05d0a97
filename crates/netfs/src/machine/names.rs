//! Changes of the tree: create, symlink, link, unlink, rmdir.

use super::directory::{self, Directory, Entry};
use super::file::File;
use super::inode::{Body, Inode};
use super::ledger::Ledger;
use super::{MAX_TARGET, NetFs};
use crate::attr::{Kind, PERMISSIONS, SET_GROUP, Time};
use crate::errno::Errno;
use crate::wire::{Reply, Stamp};

/// The most names of a file.
const MAX_LINKS: u32 = 65_000;

/// A directory and a name in it.
pub(super) type Place<'a> = (u64, &'a [u8]);

impl NetFs {
    /// Makes anything but a symbolic link; `holder` also holds it.
    pub(super) fn create(
        &mut self,
        place: Place<'_>,
        mode: u32,
        owner: (u32, u32),
        rdev: u32,
        holder: Option<Stamp>,
        now: Time,
    ) -> Result<Reply, Errno> {
        let kind = Kind::of_mode(mode)?;
        let body = match kind {
            Kind::File => Body::File(File::default()),
            Kind::Directory => Body::Directory(Directory::new(place.0)),
            Kind::Symlink => return Err(Errno::EINVAL),
            special => Body::Special(special),
        };
        if holder.is_some() && kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        let mut inode = Inode::new(body, (mode & PERMISSIONS, owner.0, owner.1), now);
        if matches!(kind, Kind::Character | Kind::Block) {
            inode.rdev = rdev;
        }
        if holder.is_some() && self.tables.holds() >= self.tables.limits.holds {
            return Err(Errno::ENFILE);
        }
        let ino = self.add(place, inode, now)?;
        if let Some(stamp) = holder {
            self.hold(stamp, ino);
        }
        Ok(Reply::Attr(self.inode(ino)?.attr(ino)))
    }

    pub(super) fn symlink(
        &mut self,
        place: Place<'_>,
        target: &[u8],
        owner: (u32, u32),
        now: Time,
    ) -> Result<Reply, Errno> {
        if target.is_empty() || target.contains(&0) {
            return Err(Errno::EINVAL);
        }
        if target.len() > MAX_TARGET {
            return Err(Errno::ENAMETOOLONG);
        }
        let inode = Inode::new(Body::Symlink(target.into()), (0o777, owner.0, owner.1), now);
        let ino = self.add(place, inode, now)?;
        Ok(Reply::Attr(self.inode(ino)?.attr(ino)))
    }

    /// Adds a new inode at a place that is free.
    fn add(&mut self, place: Place<'_>, mut inode: Inode, now: Time) -> Result<u64, Errno> {
        self.free_place(place)?;
        let (mode, gid) = (self.inode(place.0)?.mode, self.inode(place.0)?.gid);
        let kind = inode.body.kind();
        if mode & SET_GROUP != 0 {
            inode.gid = gid;
            if kind == Kind::Directory {
                inode.mode |= SET_GROUP;
            }
        }
        self.tables
            .take(inode.cost() + directory::cost_of(place.1))?;
        let ino = self.tables.next_ino;
        self.tables.next_ino += 1;
        self.store.insert(ino, inode);
        self.enter(place, ino, kind, now);
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: u64, place: Place<'_>, now: Time) -> Result<Reply, Errno> {
        let inode = self.store.get(ino).ok_or(Errno::ENOENT)?;
        let kind = inode.body.kind();
        match (kind, inode.links) {
            (Kind::Directory, _) => return Err(Errno::EPERM),
            (_, 0) => return Err(Errno::ENOENT),
            (_, MAX_LINKS..) => return Err(Errno::EMLINK),
            _ => {}
        }
        self.free_place(place)?;
        self.tables.take(directory::cost_of(place.1))?;
        self.enter(place, ino, kind, now);
        let inode = self.inode_mut(ino)?;
        inode.links += 1;
        inode.touch(now);
        Ok(Reply::Attr(inode.attr(ino)))
    }

    pub(super) fn unlink(&mut self, place: Place<'_>, now: Time) -> Result<Reply, Errno> {
        let entry = self.entry(place)?;
        if entry.kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        self.leave(place, entry.kind, now);
        self.drop_name(entry, now);
        Ok(Reply::Done)
    }

    pub(super) fn rmdir(&mut self, place: Place<'_>, now: Time) -> Result<Reply, Errno> {
        let entry = self.entry(place)?;
        self.check_empty(entry)?;
        self.leave(place, entry.kind, now);
        self.drop_name(entry, now);
        Ok(Reply::Done)
    }

    // What the changes consist of.

    /// What has this name.
    pub(super) fn entry(&self, (parent, name): Place<'_>) -> Result<Entry, Errno> {
        let parent = self.store.get(parent).ok_or(Errno::ENOENT)?;
        parent.directory()?.get(name).ok_or(Errno::ENOENT)
    }

    /// Checks that the name can be given.
    pub(super) fn free_place(&self, place: Place<'_>) -> Result<(), Errno> {
        let parent = self.store.get(place.0).ok_or(Errno::ENOENT)?;
        let directory = parent.directory()?;
        directory::check_name(place.1)?;
        match directory.get(place.1) {
            Some(_) => Err(Errno::EEXIST),
            None => Ok(()),
        }
    }

    /// Checks that it is a directory without entries.
    pub(super) fn check_empty(&self, entry: Entry) -> Result<(), Errno> {
        match self.inode(entry.ino)?.directory()?.len() {
            0 => Ok(()),
            _ => Err(Errno::ENOTEMPTY),
        }
    }

    /// Adds an entry at a place that is free. Its room is taken already.
    pub(super) fn enter(&mut self, (parent, name): Place<'_>, ino: u64, kind: Kind, now: Time) {
        let inode = self.store.get_mut(parent).expect("it was checked");
        inode.modify(now);
        inode.links += u32::from(kind == Kind::Directory);
        let directory = inode.directory_mut().expect("it was checked");
        directory.insert(name, ino, kind);
    }

    /// Removes an entry, and gives its room back.
    pub(super) fn leave(&mut self, (parent, name): Place<'_>, kind: Kind, now: Time) {
        let inode = self.store.get_mut(parent).expect("it was checked");
        inode.modify(now);
        inode.links -= u32::from(kind == Kind::Directory);
        let directory = inode.directory_mut().expect("it was checked");
        directory.remove(name);
        self.tables.give(directory::cost_of(name));
    }

    /// An inode has lost a name: the last one, if it is a directory.
    pub(super) fn drop_name(&mut self, entry: Entry, now: Time) {
        let inode = self.store.get_mut(entry.ino).expect("names lead to inodes");
        inode.links = match entry.kind {
            Kind::Directory => 0,
            _ => inode.links - 1,
        };
        inode.touch(now);
        self.bury(entry.ino);
    }

    /// Removes an inode that no name leads to, and no mount holds.
    pub(super) fn bury(&mut self, ino: u64) {
        let inode = self.store.get(ino).expect("it was there");
        if inode.links == 0 && inode.holds.is_empty() {
            let cost = inode.cost();
            self.store.remove(ino);
            self.tables.give(cost);
        }
    }

    /// Holds a file for the mount of this change. Earlier changes cannot write to it through this
    /// hold: the mount has ended all it had to do with an earlier one before it asked for this.
    pub(super) fn hold(&mut self, stamp: Stamp, ino: u64) {
        let mount = self.tables.mounts.get_mut(&stamp.mount);
        mount.expect("its change is executed").held.insert(ino);
        let inode = self.store.get_mut(ino).expect("it was checked");
        inode
            .holds
            .insert(stamp.mount, Ledger::from_floor(stamp.number + 1));
    }
}
