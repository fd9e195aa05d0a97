//! A mount as the state machine knows it: its id and lease, the numbers of its changes, the files
//! that it holds.
//!
//! When the lease has ended (the machine of the mount was asleep, or cut off from the cluster), the
//! state machine does not know the mount any more. It then begins anew and holds again what is open
//! and still exists. A change that was refused for that reason is sent once more, unless a copy of
//! it was sent before: that one may have been executed.

use super::holds::Holds;
use super::numbers::Numbers;
use crate::attr::Attr;
use crate::client::{Answer, Transport};
use crate::errno::Errno;
use crate::wire::{Change, Command, Content, Query, Reply, Stamp, decode_answer};
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often a mount renews its lease, which is ten times as long.
const RENEW_EVERY: Duration = Duration::from_secs(60);

/// How often files are released that no program has open.
const RELEASE_EVERY: Duration = Duration::from_millis(500);

/// A mount of a file system.
pub struct Volume {
    transport: Box<dyn Transport>,
    numbers: Numbers,
    pub(super) holds: Holds,
    /// The id of the mount.
    id: Mutex<u64>,
    work: Mutex<Work>,
    changed: Condvar,
}

/// What the thread beside the requests is to do.
#[derive(Default)]
struct Work {
    ends: bool,
    release: bool,
}

/// A number that no other mount has.
fn nonce() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// The answer in these bytes. An answer that does not decode is of another version.
fn read(answer: &Answer) -> Result<Reply, Errno> {
    decode_answer(&answer.bytes).unwrap_or(Err(Errno::EIO))
}

impl Volume {
    /// Begins a mount.
    ///
    /// # Errors
    /// `ENFILE` if there are too many mounts, `EIO` if the cluster does not answer.
    pub fn begin(transport: Box<dyn Transport>) -> Result<Volume, Errno> {
        let volume = Volume {
            transport,
            numbers: Numbers::default(),
            holds: Holds::default(),
            id: Mutex::new(0),
            work: Mutex::default(),
            changed: Condvar::new(),
        };
        *volume.lock_id() = volume.new_id()?;
        Ok(volume)
    }

    fn lock_id(&self) -> MutexGuard<'_, u64> {
        self.id.lock().expect("no holder of this lock panics")
    }

    /// The most bytes of content in one write.
    pub(super) fn content_bytes(&self) -> usize {
        // What a write has besides its content is less than the difference.
        (self.transport.payload_bytes() - 256).min(crate::MAX_CONTENT)
    }

    fn new_id(&self) -> Result<u64, Errno> {
        let nonce = nonce().map_err(|_| Errno::EIO)?;
        match self.command(&Command::Begin { nonce })? {
            Reply::Begun(id) => Ok(id),
            _ => Err(Errno::EIO),
        }
    }

    fn send(&self, command: &Command<'_>) -> Result<Answer, Errno> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.transport.command(&bytes).map_err(|_| Errno::EIO)
    }

    fn command(&self, command: &Command<'_>) -> Result<Reply, Errno> {
        read(&self.send(command)?)
    }

    /// Answers a query.
    ///
    /// # Errors
    /// Those of the file system, and `EIO` if the cluster does not answer.
    pub fn query(&self, query: Query<'_>) -> Result<Reply, Errno> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        let answer = self.transport.query(&bytes).map_err(|_| Errno::EIO)?;
        read(&answer)
    }

    /// Executes a change.
    ///
    /// # Errors
    /// Those of the file system, and `EIO` if the cluster does not answer: then the change may have
    /// been executed.
    pub fn change(&self, change: &Change<'_>) -> Result<Reply, Errno> {
        let mount = *self.lock_id();
        let (reply, is_first) = self.send_change(mount, change)?;
        match reply {
            Err(Errno::UNKNOWN_MOUNT) => {}
            // A node whose disk is full has not looked whether a copy was executed.
            Err(Errno::ENOSPC) if !is_first => return Err(Errno::EIO),
            reply => return reply,
        }
        self.recover(mount, change)?;
        if !is_first {
            return Err(Errno::EIO);
        }
        let mount = *self.lock_id();
        match self.send_change(mount, change)?.0 {
            // The file was not there any more when the mount began again.
            Err(Errno::UNKNOWN_MOUNT) => Err(Errno::ESTALE),
            reply => reply,
        }
    }

    fn send_change(
        &self,
        mount: u64,
        change: &Change<'_>,
    ) -> Result<(Result<Reply, Errno>, bool), Errno> {
        let number = self.numbers.next()?;
        let (floor, number) = (number.floor, &number);
        let stamp = Stamp {
            mount,
            number: number.number,
            floor,
        };
        let answer = self.send(&Command::Change(stamp, change.clone()))?;
        let (reply, is_first) = (read(&answer), answer.is_first);
        if let (
            Change::Write {
                ino,
                offset,
                append,
                data,
                ..
            },
            Err(Errno::NO_ROOM),
        ) = (change, &reply)
        {
            // The same write with the same number: only one of the two can be executed.
            let change = Change::Write {
                ino: *ino,
                offset: *offset,
                grow: true,
                append: *append,
                data: *data,
            };
            let answer = self.send(&Command::Change(stamp, change))?;
            return Ok((read(&answer), is_first && answer.is_first));
        }
        Ok((reply, is_first))
    }

    /// The state machine does not know the mount, or does not know that it holds the file.
    fn recover(&self, mount: u64, change: &Change<'_>) -> Result<(), Errno> {
        match (self.command(&Command::Renew(mount)), change) {
            (Err(Errno::UNKNOWN_MOUNT), _) => self.begin_again(mount),
            (Ok(_), Change::Write { ino, .. }) => {
                let (reply, _) = self.send_change(mount, &Change::Open { ino: *ino })?;
                reply.map(drop)
            }
            (renewed, _) => renewed.map(drop),
        }
    }

    /// Begins a new mount in place of one that the state machine does not know.
    fn begin_again(&self, unknown: u64) -> Result<(), Errno> {
        let mut id = self.lock_id();
        if *id != unknown {
            return Ok(());
        }
        tracing::warn!(
            id = "E0703",
            "the lease of the mount has ended; it begins anew"
        );
        let new = self.new_id()?;
        for ino in self.holds.all() {
            let (reply, _) = self.send_change(new, &Change::Open { ino })?;
            if let Err(errno) = reply {
                tracing::warn!(
                    id = "E0704",
                    "the open file with inode {ino} is lost: {errno}"
                );
            }
        }
        *id = new;
        Ok(())
    }

    /// Writes to a file that is held.
    pub(super) fn write(&self, ino: u64, offset: Option<u64>, bytes: &[u8]) -> Result<Attr, Errno> {
        let at = offset.unwrap_or(0);
        let end = at.saturating_add(bytes.len() as u64);
        let reply = self.change(&Change::Write {
            ino,
            offset: at,
            grow: offset.is_some() && end > self.holds.reserved(ino),
            append: offset.is_none(),
            data: Content::Plain(bytes),
        })?;
        self.attr(reply)
    }

    /// The attributes that an answer consists of.
    pub(super) fn attr(&self, reply: Reply) -> Result<Attr, Errno> {
        match reply {
            Reply::Attr(attr) => {
                self.holds.learn(&attr);
                Ok(attr)
            }
            _ => Err(Errno::EIO),
        }
    }

    /// Holds a file for one more descriptor.
    pub(super) fn open(&self, ino: u64) -> Result<(), Errno> {
        let ask = || {
            self.change(&Change::Open { ino })
                .and_then(|reply| self.attr(reply))
        };
        self.holds.acquire(ino, ask)
    }

    /// A descriptor is closed.
    pub(super) fn close(&self, ino: u64) {
        self.holds.close(ino);
        if self.holds.is_full() {
            self.work().release = true;
            self.changed.notify_all();
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("no holder of this lock panics")
    }

    /// Renews the lease, and releases files, until [`stop_attending`](Self::stop_attending).
    pub(super) fn attend(&self) {
        let mut renewed = Instant::now();
        loop {
            let is_idle = |work: &mut Work| !work.ends && !work.release;
            let waited = self
                .changed
                .wait_timeout_while(self.work(), RELEASE_EVERY, is_idle);
            let mut work = waited.expect("no holder of this lock panics").0;
            if work.ends {
                return;
            }
            work.release = false;
            drop(work);
            self.release_idle();
            if renewed.elapsed() >= RENEW_EVERY {
                renewed = Instant::now();
                self.renew();
            }
        }
    }

    fn renew(&self) {
        let mount = *self.lock_id();
        let renewed = match self.command(&Command::Renew(mount)) {
            Err(Errno::UNKNOWN_MOUNT) => self.begin_again(mount),
            other => other.map(drop),
        };
        if let Err(errno) = renewed {
            tracing::warn!(
                id = "E0705",
                "the lease of the mount is not renewed: {errno}"
            );
        }
    }

    fn release_idle(&self) {
        loop {
            let inos = self.holds.take_idle();
            if inos.is_empty() {
                return;
            }
            // Without an answer they are held until the lease ends, or they are opened again.
            let change = Change::Release { inos };
            let released = self.change(&change);
            if let Change::Release { inos } = &change {
                self.holds.released(inos);
            }
            if let Err(errno) = released {
                tracing::warn!(
                    id = "E0706",
                    "files that no program has open are not released: {errno}"
                );
                return;
            }
        }
    }

    /// Lets [`attend`](Self::attend) return.
    pub(super) fn stop_attending(&self) {
        self.work().ends = true;
        self.changed.notify_all();
    }

    /// Ends the mount: what it holds is released.
    pub(super) fn end(&self) {
        self.stop_attending();
        let mount = *self.lock_id();
        if let Err(errno) = self.command(&Command::End(mount)) {
            tracing::warn!(
                id = "E0707",
                "the mount is not ended, so its lease has to end: {errno}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
