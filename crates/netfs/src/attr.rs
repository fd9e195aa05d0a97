//! What is known of a file besides its content.

use crate::errno::Errno;
use crate::wire::{Cursor, Malformed};

/// The inode of the root directory, as FUSE demands.
pub const ROOT: u64 = 1;

/// The bits of a mode that are not the type of the file.
pub(crate) const PERMISSIONS: u32 = 0o7777;
/// New entries of a directory with this bit get its group.
pub(crate) const SET_GROUP: u32 = 0o2000;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe. What is written to it stays on the machine of the mount.
    Pipe,
    /// A socket. As with pipes, only its name is replicated.
    Socket,
    /// A character device, which the mount does not let anyone open.
    Character,
    /// A block device, likewise.
    Block,
}

impl Kind {
    const TYPES: [(Kind, u32); 7] = [
        (Kind::File, 0o100_000),
        (Kind::Directory, 0o040_000),
        (Kind::Symlink, 0o120_000),
        (Kind::Pipe, 0o010_000),
        (Kind::Socket, 0o140_000),
        (Kind::Character, 0o020_000),
        (Kind::Block, 0o060_000),
    ];

    /// The type in a mode, as `stat` has it.
    ///
    /// # Errors
    /// `EINVAL` if it has none.
    pub fn of_mode(mode: u32) -> Result<Kind, Errno> {
        let bits = mode & 0o170_000;
        let found = Self::TYPES.iter().find(|(_, its)| *its == bits);
        found.map(|(kind, _)| *kind).ok_or(Errno::EINVAL)
    }

    /// Its bits in a mode.
    pub fn bits(self) -> u32 {
        let found = Self::TYPES.iter().find(|(kind, _)| *kind == self);
        found.expect("every kind is in the table").1
    }
}

/// A point in time: seconds since the Unix epoch, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds behind that, less than a thousand million.
    pub nanos: u32,
}

impl Time {
    /// A time of the log, in milliseconds.
    pub(crate) fn of_log(millis: u64) -> Time {
        Time {
            seconds: (millis / 1000) as i64,
            nanos: (millis % 1000) as u32 * 1_000_000,
        }
    }

    /// The time of a change at `now`: later than `self`, the last change, even if both have the
    /// same time in the log. So each change of a file changes its time, which is how a mount learns
    /// that what it has cached is out of date.
    pub(crate) fn changed_at(self, now: Time) -> Time {
        let is_same_millisecond =
            self.seconds == now.seconds && self.nanos / 1_000_000 == now.nanos / 1_000_000;
        if is_same_millisecond && self.nanos % 1_000_000 != 999_999 {
            return Time {
                nanos: self.nanos + 1,
                ..self
            };
        }
        now
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seconds.to_le_bytes());
        out.extend_from_slice(&self.nanos.to_le_bytes());
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Time, Malformed> {
        let (seconds, nanos) = (cursor.i64()?, cursor.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(Malformed("a number of nanoseconds is out of range"));
        }
        Ok(Time { seconds, nanos })
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The number of the inode. Never used again for another file.
    pub ino: u64,
    /// Type and permissions, as in `stat`.
    pub mode: u32,
    /// The number of names; for a directory 2 and the number of its subdirectories.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Of a device, its number.
    pub rdev: u32,
    /// Bytes; of a symbolic link those of its target.
    pub size: u64,
    /// Bytes that are reserved for the file: it can grow to this size without asking for more.
    pub reserved: u64,
    /// When it was read last, as far as a client has set it: reading changes nothing.
    pub accessed: Time,
    /// When its content was changed last.
    pub modified: Time,
    /// When anything of it was changed last.
    pub changed: Time,
}

impl Attr {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ino.to_le_bytes());
        for number in [self.mode, self.links, self.uid, self.gid, self.rdev] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.reserved.to_le_bytes());
        for time in [self.accessed, self.modified, self.changed] {
            time.encode(out);
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Attr, Malformed> {
        let attr = Attr {
            ino: cursor.u64()?,
            mode: cursor.u32()?,
            links: cursor.u32()?,
            uid: cursor.u32()?,
            gid: cursor.u32()?,
            rdev: cursor.u32()?,
            size: cursor.u64()?,
            reserved: cursor.u64()?,
            accessed: Time::decode(cursor)?,
            modified: Time::decode(cursor)?,
            changed: Time::decode(cursor)?,
        };
        Kind::of_mode(attr.mode).map_err(|_| Malformed("a mode has no type"))?;
        Ok(attr)
    }
}
