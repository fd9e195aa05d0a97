//! Commands: what changes the state.
//!
//! ```text
//! 0 | nonce: u128                                       begin a mount
//! 1 | mount: u64                                        renew it
//! 2 | mount: u64                                        end it
//! 3.. | mount: u64 | number: u64 | floor: u64 | fields  a change
//! ```

use super::blob::{self, Blob};
use super::cursor::{Cursor, Malformed, push_bytes};
use crate::attr::Time;

/// The most inodes that one command releases.
pub(crate) const MAX_RELEASED: usize = 64;

/// What goes through the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Begins a mount, or names the one that this nonce has begun.
    Begin {
        /// A number that no other mount has chosen.
        nonce: u128,
    },
    /// Keeps the mount for another lease.
    Renew(u64),
    /// Ends the mount and releases what it holds.
    End(u64),
    /// A change of files, executed once whatever copies of it arrive.
    Change(Stamp, Change<'a>),
}

/// Identifies a change, so that a copy of it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The mount.
    pub mount: u64,
    /// The number of the change among those of the mount.
    pub number: u64,
    /// The mount waits for no change with a smaller number.
    pub floor: u64,
}

/// A change of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Makes a file, directory, pipe, socket or device: create, mknod and mkdir.
    Create {
        /// The directory.
        parent: u64,
        /// The name in it.
        name: &'a [u8],
        /// Type and permissions.
        mode: u32,
        /// The owner.
        uid: u32,
        /// The group, unless the directory passes its own on.
        gid: u32,
        /// The number of a device.
        rdev: u32,
        /// Whether the mount also holds the new file.
        hold: bool,
    },
    /// Makes a symbolic link.
    Symlink {
        /// The directory.
        parent: u64,
        /// The name in it.
        name: &'a [u8],
        /// What the link says.
        target: &'a [u8],
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// Gives a file another name.
    Link {
        /// The file.
        ino: u64,
        /// The directory of the new name.
        parent: u64,
        /// The new name.
        name: &'a [u8],
    },
    /// Removes a name of what is no directory.
    Unlink {
        /// The directory.
        parent: u64,
        /// The name in it.
        name: &'a [u8],
    },
    /// Removes an empty directory.
    Rmdir {
        /// The directory that it is in.
        parent: u64,
        /// Its name.
        name: &'a [u8],
    },
    /// Moves a name.
    Rename {
        /// The old directory and name.
        from: (u64, &'a [u8]),
        /// The new directory and name.
        to: (u64, &'a [u8]),
        /// What happens to what has the new name.
        how: Rename,
    },
    /// Changes attributes: chmod, chown, truncate, utimens.
    Set {
        /// The file.
        ino: u64,
        /// The new values.
        set: SetAttr,
    },
    /// Holds a file for the mount: it remains while it is held, even without a name. The file must
    /// be held to be written.
    Open {
        /// The file.
        ino: u64,
    },
    /// Ends holds.
    Release {
        /// The files, 64 at most.
        inos: Vec<u64>,
    },
    /// Writes to a file that the mount holds.
    Write {
        /// The file.
        ino: u64,
        /// Where; not used if it appends.
        offset: u64,
        /// Whether more room may be reserved, which touches what all files share.
        grow: bool,
        /// Whether it writes to the end, wherever that is by then.
        append: bool,
        /// What.
        data: Content<'a>,
    },
}

/// What happens to what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// It is replaced.
    Replace,
    /// The rename is refused.
    Keep,
    /// It gets the old name.
    Exchange,
}

/// The new values of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size.
    pub size: Option<u64>,
    /// The time of the last access.
    pub accessed: Option<SetTime>,
    /// The time of the last modification.
    pub modified: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// That of the log.
    Now,
    /// This one.
    To(Time),
}

/// The content of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// As the client has it; encoding compresses it.
    Plain(&'a [u8]),
    /// As it has arrived.
    Arrived(Arrived<'a>),
}

/// Content as it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived<'a>(Blob<'a>);

impl Content<'_> {
    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Content::Plain(bytes) => bytes.len(),
            Content::Arrived(Arrived(blob)) => blob.len(),
        }
    }

    /// Appends the bytes to `out`.
    pub(crate) fn unpack(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Content::Plain(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Content::Arrived(Arrived(blob)) => blob.unpack(out),
        }
    }
}

const BEGIN: u8 = 0;
const RENEW: u8 = 1;
const END: u8 = 2;
const CREATE: u8 = 3;
const SYMLINK: u8 = 4;
const LINK: u8 = 5;
const UNLINK: u8 = 6;
const RMDIR: u8 = 7;
const RENAME: u8 = 8;
const SET: u8 = 9;
const OPEN: u8 = 10;
const RELEASE: u8 = 11;
const WRITE: u8 = 12;

impl<'a> Command<'a> {
    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Command::Begin { nonce } => {
                out.push(BEGIN);
                out.extend_from_slice(&nonce.to_le_bytes());
            }
            Command::Renew(mount) => push_all(out, RENEW, &[*mount]),
            Command::End(mount) => push_all(out, END, &[*mount]),
            Command::Change(stamp, change) => {
                push_all(out, change.tag(), &[stamp.mount, stamp.number, stamp.floor]);
                change.encode(out);
            }
        }
    }

    /// Reads a command.
    ///
    /// # Errors
    /// Says what is wrong with the bytes. Content is checked when it is unpacked.
    pub fn decode(bytes: &'a [u8]) -> Result<Command<'a>, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let command = match cursor.u8()? {
            BEGIN => Command::Begin {
                nonce: cursor.u128()?,
            },
            RENEW => Command::Renew(cursor.u64()?),
            END => Command::End(cursor.u64()?),
            tag => {
                let stamp = Stamp {
                    mount: cursor.u64()?,
                    number: cursor.u64()?,
                    floor: cursor.u64()?,
                };
                Command::Change(stamp, Change::decode(tag, &mut cursor)?)
            }
        };
        cursor.finish()?;
        Ok(command)
    }
}

fn push_all(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn push_place(&(parent, name): &(u64, &[u8]), out: &mut Vec<u8>) {
    out.extend_from_slice(&parent.to_le_bytes());
    push_bytes(name, out);
}

impl Command<'_> {
    /// Whether it may need more memory, and so more of a disk for long.
    pub(crate) fn grows(&self) -> bool {
        use Change::{Create, Link, Symlink, Write};
        let Command::Change(_, change) = self else {
            return false;
        };
        matches!(
            change,
            Create { .. } | Symlink { .. } | Link { .. } | Write { .. }
        )
    }
}

impl<'a> Change<'a> {
    fn tag(&self) -> u8 {
        match self {
            Change::Create { .. } => CREATE,
            Change::Symlink { .. } => SYMLINK,
            Change::Link { .. } => LINK,
            Change::Unlink { .. } => UNLINK,
            Change::Rmdir { .. } => RMDIR,
            Change::Rename { .. } => RENAME,
            Change::Set { .. } => SET,
            Change::Open { .. } => OPEN,
            Change::Release { .. } => RELEASE,
            Change::Write { .. } => WRITE,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Create {
                parent,
                name,
                mode,
                uid,
                gid,
                rdev,
                hold,
            } => {
                push_place(&(*parent, name), out);
                for number in [mode, uid, gid, rdev] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.push(u8::from(*hold));
            }
            Change::Symlink {
                parent,
                name,
                target,
                uid,
                gid,
            } => {
                push_place(&(*parent, name), out);
                push_bytes(target, out);
                out.extend_from_slice(&uid.to_le_bytes());
                out.extend_from_slice(&gid.to_le_bytes());
            }
            Change::Link { ino, parent, name } => {
                out.extend_from_slice(&ino.to_le_bytes());
                push_place(&(*parent, name), out);
            }
            Change::Unlink { parent, name } | Change::Rmdir { parent, name } => {
                push_place(&(*parent, name), out);
            }
            Change::Rename { from, to, how } => {
                push_place(from, out);
                push_place(to, out);
                out.push(*how as u8);
            }
            Change::Set { ino, set } => {
                out.extend_from_slice(&ino.to_le_bytes());
                set.encode(out);
            }
            Change::Open { ino } => out.extend_from_slice(&ino.to_le_bytes()),
            Change::Release { inos } => {
                inos.iter()
                    .for_each(|ino| out.extend_from_slice(&ino.to_le_bytes()));
            }
            Change::Write {
                ino,
                offset,
                grow,
                append,
                data,
            } => {
                out.extend_from_slice(&ino.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&[u8::from(*grow), u8::from(*append)]);
                match data {
                    Content::Plain(bytes) => blob::push(bytes, out),
                    Content::Arrived(_) => unreachable!("what has arrived is not sent on"),
                }
            }
        }
    }

    fn decode(tag: u8, cursor: &mut Cursor<'a>) -> Result<Change<'a>, Malformed> {
        Ok(match tag {
            CREATE => Change::Create {
                parent: cursor.u64()?,
                name: cursor.counted()?,
                mode: cursor.u32()?,
                uid: cursor.u32()?,
                gid: cursor.u32()?,
                rdev: cursor.u32()?,
                hold: cursor.flag()?,
            },
            SYMLINK => Change::Symlink {
                parent: cursor.u64()?,
                name: cursor.counted()?,
                target: cursor.counted()?,
                uid: cursor.u32()?,
                gid: cursor.u32()?,
            },
            LINK => Change::Link {
                ino: cursor.u64()?,
                parent: cursor.u64()?,
                name: cursor.counted()?,
            },
            UNLINK => Change::Unlink {
                parent: cursor.u64()?,
                name: cursor.counted()?,
            },
            RMDIR => Change::Rmdir {
                parent: cursor.u64()?,
                name: cursor.counted()?,
            },
            RENAME => Change::Rename {
                from: (cursor.u64()?, cursor.counted()?),
                to: (cursor.u64()?, cursor.counted()?),
                how: Rename::decode(cursor.u8()?)?,
            },
            SET => Change::Set {
                ino: cursor.u64()?,
                set: SetAttr::decode(cursor)?,
            },
            OPEN => Change::Open { ino: cursor.u64()? },
            RELEASE => Change::Release {
                inos: inodes(cursor)?,
            },
            WRITE => Change::Write {
                ino: cursor.u64()?,
                offset: cursor.u64()?,
                grow: cursor.flag()?,
                append: cursor.flag()?,
                data: Content::Arrived(Arrived(Blob::decode(cursor)?)),
            },
            _ => return Err(Malformed("it is no command")),
        })
    }
}

fn inodes(cursor: &mut Cursor<'_>) -> Result<Vec<u64>, Malformed> {
    let mut inos = Vec::new();
    while !cursor.is_empty() {
        if inos.len() == MAX_RELEASED {
            return Err(Malformed("it releases too many files"));
        }
        inos.push(cursor.u64()?);
    }
    Ok(inos)
}

impl Rename {
    fn decode(byte: u8) -> Result<Rename, Malformed> {
        let all = [Rename::Replace, Rename::Keep, Rename::Exchange];
        let found = all.get(usize::from(byte)).copied();
        found.ok_or(Malformed("it is no way to rename"))
    }
}

impl SetAttr {
    /// Whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == SetAttr::default()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let set = [
            self.mode.is_some(),
            self.uid.is_some(),
            self.gid.is_some(),
            self.size.is_some(),
            self.accessed.is_some(),
            self.modified.is_some(),
        ];
        let bits = set
            .iter()
            .enumerate()
            .map(|(bit, is_set)| u8::from(*is_set) << bit);
        out.push(bits.sum());
        for number in [self.mode, self.uid, self.gid].into_iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(size) = self.size {
            out.extend_from_slice(&size.to_le_bytes());
        }
        for time in [self.accessed, self.modified].into_iter().flatten() {
            match time {
                SetTime::Now => out.push(0),
                SetTime::To(time) => {
                    out.push(1);
                    time.encode(out);
                }
            }
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<SetAttr, Malformed> {
        let bits = cursor.u8()?;
        if bits >= 1 << 6 {
            return Err(Malformed("it sets an unknown attribute"));
        }
        let is_set = |bit: u8| bits & (1 << bit) != 0;
        let time = |cursor: &mut Cursor<'_>| {
            Ok(match cursor.flag()? {
                false => SetTime::Now,
                true => SetTime::To(Time::decode(cursor)?),
            })
        };
        Ok(SetAttr {
            mode: is_set(0).then(|| cursor.u32()).transpose()?,
            uid: is_set(1).then(|| cursor.u32()).transpose()?,
            gid: is_set(2).then(|| cursor.u32()).transpose()?,
            size: is_set(3).then(|| cursor.u64()).transpose()?,
            accessed: is_set(4).then(|| time(cursor)).transpose()?,
            modified: is_set(5).then(|| time(cursor)).transpose()?,
        })
    }
}
