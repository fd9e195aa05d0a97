//! Moving names.

use super::NetFs;
use super::directory::{self, Entry};
use super::names::Place;
use crate::attr::{Kind, ROOT, Time};
use crate::errno::Errno;
use crate::wire::{Rename, Reply};

impl NetFs {
    pub(super) fn rename(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        how: Rename,
        now: Time,
    ) -> Result<Reply, Errno> {
        let moved = self.entry(from)?;
        let there = match self.free_place(to) {
            Ok(()) => None,
            Err(Errno::EEXIST) => Some(self.entry(to)?),
            Err(errno) => return Err(errno),
        };
        self.check_outside(moved, to.0)?;
        match (how, there) {
            (Rename::Exchange, None) => return Err(Errno::ENOENT),
            (Rename::Keep, Some(_)) => return Err(Errno::EEXIST),
            // Two names of one file, or twice the same name: POSIX lets both remain.
            (_, Some(there)) if there.ino == moved.ino => return Ok(Reply::Done),
            (Rename::Exchange, Some(there)) => return self.exchange(from, moved, to, there, now),
            (_, Some(there)) => self.check_replaceable(moved, there)?,
            (_, None) => {}
        }
        // What is there gives back as much as the new entry takes.
        if there.is_none() {
            let (old, new) = (directory::cost_of(from.1), directory::cost_of(to.1));
            if self.tables.used - old + new > self.tables.limits.total_bytes {
                return Err(Errno::ENOSPC);
            }
        }
        self.leave(from, moved.kind, now);
        if let Some(there) = there {
            self.leave(to, there.kind, now);
            self.drop_name(there, now);
        }
        let taken = self.tables.take(directory::cost_of(to.1));
        taken.expect("it was checked");
        self.enter(to, moved.ino, moved.kind, now);
        self.settle(moved, to.0, now);
        Ok(Reply::Done)
    }

    /// Checks that a directory does not move into itself.
    fn check_outside(&self, moved: Entry, parent: u64) -> Result<(), Errno> {
        let mut at = parent;
        while moved.kind == Kind::Directory && at != ROOT {
            if at == moved.ino {
                return Err(Errno::EINVAL);
            }
            at = self.inode(at)?.directory()?.parent;
        }
        Ok(())
    }

    fn check_replaceable(&self, moved: Entry, there: Entry) -> Result<(), Errno> {
        match (moved.kind == Kind::Directory, there.kind == Kind::Directory) {
            (true, true) => self.check_empty(there),
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (false, false) => Ok(()),
        }
    }

    /// Lets two names change places.
    fn exchange(
        &mut self,
        from: Place<'_>,
        moved: Entry,
        to: Place<'_>,
        there: Entry,
        now: Time,
    ) -> Result<Reply, Errno> {
        self.check_outside(there, from.0)?;
        for (place, old, new) in [(from, moved, there), (to, there, moved)] {
            let inode = self.inode_mut(place.0)?;
            inode.modify(now);
            inode.links -= u32::from(old.kind == Kind::Directory);
            inode.links += u32::from(new.kind == Kind::Directory);
            inode.directory_mut()?.replace(place.1, new.ino, new.kind);
        }
        self.settle(moved, to.0, now);
        self.settle(there, from.0, now);
        Ok(Reply::Done)
    }

    /// What has moved is in another directory now.
    fn settle(&mut self, moved: Entry, parent: u64, now: Time) {
        let inode = self.store.get_mut(moved.ino).expect("names lead to inodes");
        inode.touch(now);
        if let Ok(directory) = inode.directory_mut() {
            directory.parent = parent;
        }
    }
}
