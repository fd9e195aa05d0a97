//! The state machine: a tree of files, in memory, on every replica.
//!
//! | file | job |
//! |---|---|
//! | `mod` | the machine: which command goes where |
//! | `names` | changes of the tree: create, link, unlink, rmdir |
//! | `rename` | moving names |
//! | `files` | holds, attributes, writes |
//! | `reading` | queries |
//! | `ledger` | which changes were executed |
//! | `footprint` | what a command touches |
//! | `tables` | what all files share: mounts, room, numbers |
//! | `store`, `inode`, `file`, `directory` | the state of files |
//! | `picture`, `restore` | snapshots |
//!
//! # What is deterministic
//!
//! Times are those of the log. Numbers of inodes and mounts come from counters in the state. Names
//! are bytes. Maps are ordered. An error is an answer, like any other.
//!
//! # Keys
//!
//! P-SMR V-B keys read, write, lstat, access and readdir by the path of the file. Here commands
//! name files by the number of their inode, as the kernel does, and the key is that number:
//!
//! - the kernel resolves `..`, doubled slashes and links before it asks, so one file has one key,
//!   whatever paths lead to it; a file that was unlinked or renamed while it is open keeps its key;
//! - a number is never used again, so a late command cannot meet another file;
//! - a `u64` is the same on every platform. What spreads keys over parts is its remainder.
//!
//! Commands that change the tree, and all that count room or mounts, touch everything, as in the
//! paper. A write could not have the key of its file alone if it took room from what all files
//! share. So each file has a *reservation*. A write within it touches the file only; one beyond it
//! answers [`Errno::NO_ROOM`], changes nothing, and is sent again as one that may grow the
//! reservation and touches everything. Mounts know the reservation, so few are sent twice.
//!
//! # Holds
//!
//! A file without a name must remain while a descriptor is open (unlinked by another mount, say).
//! For that the cluster need not know descriptors: it knows which mounts *hold* a file. The first
//! open of a file at a mount is a command, the others are not, and releases are collected. The
//! paper's opendir and releasedir are no commands either: a list is read by cookies, which are
//! never used twice, so no state of it is kept.
//!
//! A mount that does not come back holds its files until its lease ends; then the next command that
//! touches everything releases them.

mod directory;
mod file;
mod files;
mod footprint;
mod inode;
mod ledger;
mod names;
mod picture;
mod reading;
mod rename;
mod restore;
mod store;
mod tables;

use crate::attr::{ROOT, Time};
use crate::errno::Errno;
use crate::wire::{Change, Command, Query, Reply, Stamp, reply};
#[cfg(feature = "mount")]
pub(crate) use directory::{FIRST_COOKIE, MAX_NAME};
use inode::{Body, Inode};
use ionian_kernel::machine::{Footprint, Frozen, NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ledger::Standing;
pub use ledger::WINDOW;
use std::any::Any;
use std::collections::BTreeMap;
use store::Store;
pub use tables::Limits;
use tables::Tables;

/// The name of the state machine in a deployment.
pub const NAME: &str = "netfs";

/// The most bytes of the target of a symbolic link.
pub(crate) const MAX_TARGET: usize = 4095;

/// A file system. See the top of this file.
#[derive(Clone)]
pub struct NetFs {
    store: Store,
    tables: Tables,
}

impl Default for NetFs {
    fn default() -> NetFs {
        NetFs::with_limits(Limits::default())
    }
}

impl NetFs {
    /// An empty file system: a root directory that root owns, and any user may write to.
    pub fn with_limits(limits: Limits) -> NetFs {
        let mut store = Store::default();
        let body = Body::Directory(directory::Directory::new(ROOT));
        let root = Inode::new(body, (0o1777, 0, 0), Time::default());
        let used = root.cost();
        store.insert(ROOT, root);
        let tables = Tables {
            limits,
            next_ino: ROOT + 1,
            next_mount: 1,
            used,
            mounts: BTreeMap::new(),
        };
        NetFs { store, tables }
    }

    /// Executes a command; appends the answer.
    fn execute(&mut self, now: u64, command: &Command<'_>, out: &mut Vec<u8>) {
        if let Command::Change(
            stamp,
            Change::Write {
                ino,
                offset,
                grow,
                append,
                data,
            },
        ) = command
        {
            if *grow {
                self.expire(now);
            }
            let place = (*ino, (!append).then_some(*offset));
            let answer = self.write(*stamp, place, *grow, data, Time::of_log(now));
            return reply::encode(&answer, out);
        }
        self.expire(now);
        let answer = match command {
            Command::Begin { nonce } => self.tables.begin(*nonce, now).map(Reply::Begun),
            Command::Renew(mount) => self.tables.renew(*mount, now).map(|()| Reply::Done),
            Command::End(mount) => {
                self.end(*mount);
                Ok(Reply::Done)
            }
            Command::Change(stamp, change) => return self.change(*stamp, change, now, out),
        };
        reply::encode(&answer, out);
    }

    /// Executes a change that is no write, unless it was executed already.
    fn change(&mut self, stamp: Stamp, change: &Change<'_>, now: u64, out: &mut Vec<u8>) {
        let Some(mount) = self.tables.mounts.get_mut(&stamp.mount) else {
            return reply::encode(&Err(Errno::UNKNOWN_MOUNT), out);
        };
        mount.seen = now;
        match mount.ledger.look_up(stamp) {
            Err(errno) => return reply::encode(&Err(errno), out),
            Ok(Standing::Done(answer)) => return out.extend_from_slice(answer),
            Ok(Standing::New) => {}
        }
        let answer = self.carry_out(stamp, change, Time::of_log(now));
        let start = out.len();
        reply::encode(&answer, out);
        let mount = self.tables.mounts.get_mut(&stamp.mount);
        let mount = mount.expect("no change ends a mount");
        mount.ledger.record(stamp, out[start..].to_vec());
    }

    fn carry_out(&mut self, stamp: Stamp, change: &Change<'_>, now: Time) -> Result<Reply, Errno> {
        match change {
            Change::Create {
                parent,
                name,
                mode,
                uid,
                gid,
                rdev,
                hold,
            } => {
                let holder = hold.then_some(stamp);
                self.create((*parent, name), *mode, (*uid, *gid), *rdev, holder, now)
            }
            Change::Symlink {
                parent,
                name,
                target,
                uid,
                gid,
            } => self.symlink((*parent, name), target, (*uid, *gid), now),
            Change::Link { ino, parent, name } => self.link(*ino, (*parent, name), now),
            Change::Unlink { parent, name } => self.unlink((*parent, name), now),
            Change::Rmdir { parent, name } => self.rmdir((*parent, name), now),
            Change::Rename { from, to, how } => self.rename(*from, *to, *how, now),
            Change::Set { ino, set } => self.set(*ino, *set, now),
            Change::Open { ino } => self.open(stamp, *ino),
            Change::Release { inos } => {
                inos.iter().for_each(|ino| self.release(stamp.mount, *ino));
                Ok(Reply::Done)
            }
            Change::Write { .. } => unreachable!("writes have ledgers of their own"),
        }
    }

    /// Ends the mounts whose lease has ended.
    fn expire(&mut self, now: u64) {
        for mount in self.tables.expired(now) {
            self.end(mount);
        }
    }

    fn inode(&self, ino: u64) -> Result<&Inode, Errno> {
        self.store.get(ino).ok_or(Errno::ESTALE)
    }

    fn inode_mut(&mut self, ino: u64) -> Result<&mut Inode, Errno> {
        self.store.get_mut(ino).ok_or(Errno::ESTALE)
    }
}

impl StateMachine for NetFs {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        match Command::decode(command) {
            Ok(command) => self.execute(now.0, &command, reply),
            Err(_) => reply::encode(&Err(Errno::EINVAL), reply),
        }
    }

    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match Query::decode(query) {
            Ok(query) => self.answer(&query, reply),
            Err(_) if Command::decode(query).is_ok() => return Err(NotARead),
            Err(_) => reply::encode(&Err(Errno::EINVAL), reply),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let mut picture = picture::Picture::new(&self.store, &self.tables);
        while picture.write_some(out) {}
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        Box::new(picture::Picture::new(&self.store, &self.tables))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let restored = restore::read(snapshot, self.tables.limits);
        *self = restored.map_err(|why| RestoreError(why.to_string()))?;
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        footprint::add(command, footprint);
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }
}

/// A part has the inodes of some segments, and no tables: no command whose footprint is one inode
/// uses them.
impl Parts for NetFs {
    fn divide(&mut self, count: usize) -> usize {
        self.store.divide(count)
    }

    fn part_of(&mut self, key: u64) -> usize {
        self.store.part_of(key)
    }

    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        Box::new(NetFs {
            store: self.store.lend(part),
            tables: Tables {
                mounts: BTreeMap::new(),
                ..self.tables
            },
        })
    }

    fn take_back(&mut self, _: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<NetFs>().expect("a part of this machine");
        self.store.take_back(lent.store);
    }
}
