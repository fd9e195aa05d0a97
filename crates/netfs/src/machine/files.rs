//! Holds, attributes and writes.

use super::NetFs;
use super::file::{generous_room_for, room_for};
use super::ledger::Standing;
use crate::attr::{PERMISSIONS, Time};
use crate::errno::Errno;
use crate::wire::command::Content;
use crate::wire::{Reply, SetAttr, SetTime, Stamp};

impl NetFs {
    pub(super) fn open(&mut self, stamp: Stamp, ino: u64) -> Result<Reply, Errno> {
        let inode = self.inode(ino)?;
        inode.file()?;
        // A hold that is there keeps its ledger.
        if !inode.holds.contains_key(&stamp.mount) {
            if self.tables.holds() >= self.tables.limits.holds {
                return Err(Errno::ENFILE);
            }
            self.hold(stamp, ino);
        }
        Ok(Reply::Attr(self.inode(ino)?.attr(ino)))
    }

    /// Ends a hold, if there is one.
    pub(super) fn release(&mut self, mount: u64, ino: u64) {
        let Some(holder) = self.tables.mounts.get_mut(&mount) else {
            return;
        };
        if holder.held.remove(&ino) {
            self.let_go(mount, ino);
        }
    }

    /// Ends a mount and all its holds.
    pub(super) fn end(&mut self, mount: u64) {
        let Some(ended) = self.tables.mounts.remove(&mount) else {
            return;
        };
        for ino in ended.held {
            self.let_go(mount, ino);
        }
    }

    /// An inode is not held by this mount any more. What was reserved for writes of the last one is
    /// given back.
    fn let_go(&mut self, mount: u64, ino: u64) {
        let inode = self.store.get_mut(ino).expect("what is held exists");
        inode.holds.remove(&mount);
        if inode.holds.is_empty()
            && let Ok(file) = inode.file_mut()
        {
            let room = room_for(file.size);
            let rest = file.reserved.saturating_sub(room);
            file.reserved -= rest;
            self.tables.give(rest);
        }
        self.bury(ino);
    }

    pub(super) fn set(&mut self, ino: u64, set: SetAttr, now: Time) -> Result<Reply, Errno> {
        let before = self.inode(ino)?.changed;
        if let Some(size) = set.size {
            self.truncate(ino, size, now)?;
        }
        let inode = self.inode_mut(ino)?;
        if let Some(mode) = set.mode {
            inode.mode = mode & PERMISSIONS;
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if inode.changed == before {
            inode.touch(now);
        }
        let time = |set: Option<SetTime>, old: Time| match set {
            None => old,
            // As exact as that of any change, so that the two can be compared.
            Some(SetTime::Now) => inode.changed,
            Some(SetTime::To(time)) => time,
        };
        (inode.accessed, inode.modified) = (
            time(set.accessed, inode.accessed),
            time(set.modified, inode.modified),
        );
        Ok(Reply::Attr(inode.attr(ino)))
    }

    fn truncate(&mut self, ino: u64, size: u64, now: Time) -> Result<(), Errno> {
        let file = self.inode(ino)?.file()?;
        if size > self.tables.limits.file_bytes {
            return Err(Errno::EFBIG);
        }
        let (reserved, room) = (file.reserved, room_for(size));
        if room > reserved {
            self.tables.take(room - reserved)?;
        }
        let inode = self.inode_mut(ino)?;
        inode.modify(now);
        let file = inode.file_mut()?;
        file.resize(size);
        file.reserved = room;
        if room < reserved {
            self.tables.give(reserved - room);
        }
        Ok(())
    }

    /// Writes, unless this write was executed already. Without `grow` it touches nothing but the
    /// file. With no offset it appends.
    pub(super) fn write(
        &mut self,
        stamp: Stamp,
        (ino, offset): (u64, Option<u64>),
        grow: bool,
        data: &Content<'_>,
        now: Time,
    ) -> Result<Reply, Errno> {
        let inode = self.inode(ino)?;
        let hold = inode.holds.get(&stamp.mount).ok_or(Errno::UNKNOWN_MOUNT)?;
        match hold.look_up(stamp)? {
            // The attributes may be newer than those of the first answer, as if it came now.
            Standing::Done(Errno(0)) => return Ok(Reply::Attr(inode.attr(ino))),
            Standing::Done(errno) => return Err(*errno),
            Standing::New => {}
        }
        let answer = self.write_new((ino, offset), grow, data, now);
        // What had no room has changed nothing and is sent again, under the same number.
        if answer != Err(Errno::NO_ROOM) {
            let inode = self.inode_mut(ino)?;
            let hold = inode.holds.get_mut(&stamp.mount).expect("it was there");
            hold.record(stamp, answer.err().unwrap_or(Errno(0)));
        }
        answer?;
        Ok(Reply::Attr(self.inode(ino)?.attr(ino)))
    }

    fn write_new(
        &mut self,
        (ino, offset): (u64, Option<u64>),
        grow: bool,
        data: &Content<'_>,
        now: Time,
    ) -> Result<(), Errno> {
        let file = self.inode(ino)?.file()?;
        if data.len() == 0 {
            return Ok(());
        }
        let offset = offset.unwrap_or(file.size);
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > self.tables.limits.file_bytes {
            return Err(Errno::EFBIG);
        }
        if end > file.reserved && !grow {
            return Err(Errno::NO_ROOM);
        }
        let mut bytes = Vec::new();
        data.unpack(&mut bytes).map_err(|_| Errno::EINVAL)?;
        if end > file.reserved {
            self.reserve(ino, end)?;
        }
        let inode = self.inode_mut(ino)?;
        inode.modify(now);
        inode.file_mut()?.write(offset, &bytes);
        Ok(())
    }

    /// Reserves room for a file that grows to `size`: more than it needs, if there is as much.
    fn reserve(&mut self, ino: u64, size: u64) -> Result<(), Errno> {
        let reserved = self.inode(ino)?.file()?.reserved;
        let mut room = generous_room_for(size);
        if self.tables.take(room - reserved).is_err() {
            room = room_for(size);
            self.tables.take(room - reserved)?;
        }
        self.inode_mut(ino)?.file_mut()?.reserved = room;
        Ok(())
    }
}
