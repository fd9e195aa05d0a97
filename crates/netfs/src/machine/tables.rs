//! What all files share: the mounts, the numbers that are next, and how much room is used. Commands
//! that use any of it touch everything.

use super::ledger::Ledger;
use crate::errno::Errno;
use crate::wire::Space;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of a file system, the same on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of everything: content, and what files and names take beside it. Each replica has all
    /// of it in memory.
    pub total_bytes: u64,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Mounts at once; one more is refused with `ENFILE`.
    pub mounts: usize,
    /// Files that mounts hold at once, each counted once for each mount; one more is refused with
    /// `ENFILE`.
    pub holds: usize,
    /// A mount that is not renewed for this long, by the time of the log, in milliseconds, is
    /// ended: what it holds is released.
    pub lease_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // What a replica of a small machine can hold, and send to another within a minute.
            total_bytes: 1 << 30,
            file_bytes: 1 << 29,
            mounts: 256,
            holds: 16_384,
            // A laptop that sleeps over lunch needs a new mount; a broken network does not.
            lease_ms: 10 * 60_000,
        }
    }
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) nonce: u128,
    /// The time of the log at its last change or renewal.
    pub(super) seen: u64,
    /// Its changes, but for writes; answers as they were sent.
    pub(super) ledger: Ledger<Vec<u8>>,
    /// The files that it holds.
    pub(super) held: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) limits: Limits,
    pub(super) next_ino: u64,
    pub(super) next_mount: u64,
    pub(super) used: u64,
    pub(super) mounts: BTreeMap<u64, Mount>,
}

impl Tables {
    /// Takes room.
    ///
    /// # Errors
    /// `ENOSPC` if there is too little.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), Errno> {
        let used = self.used.saturating_add(bytes);
        if used > self.limits.total_bytes {
            return Err(Errno::ENOSPC);
        }
        self.used = used;
        Ok(())
    }

    /// Gives room back.
    pub(super) fn give(&mut self, bytes: u64) {
        self.used = self.used.checked_sub(bytes).expect("it was taken");
    }

    pub(super) fn space(&self, files: usize) -> Space {
        Space {
            total: self.limits.total_bytes,
            used: self.used,
            files: files as u64,
        }
    }

    /// The mounts whose lease has ended.
    pub(super) fn expired(&self, now: u64) -> Vec<u64> {
        let lease = self.limits.lease_ms;
        let mounts = self.mounts.iter();
        let late = mounts.filter(|(_, mount)| now.saturating_sub(mount.seen) > lease);
        late.map(|(id, _)| *id).collect()
    }

    /// Begins a mount, or finds the one that the nonce has begun.
    pub(super) fn begin(&mut self, nonce: u128, now: u64) -> Result<u64, Errno> {
        if let Some((id, mount)) = self.mounts.iter_mut().find(|(_, it)| it.nonce == nonce) {
            mount.seen = now;
            return Ok(*id);
        }
        if self.mounts.len() >= self.limits.mounts {
            return Err(Errno::ENFILE);
        }
        let id = self.next_mount;
        self.next_mount += 1;
        let (ledger, held) = (Ledger::from_floor(0), BTreeSet::new());
        self.mounts.insert(
            id,
            Mount {
                nonce,
                seen: now,
                ledger,
                held,
            },
        );
        Ok(id)
    }

    pub(super) fn renew(&mut self, mount: u64, now: u64) -> Result<(), Errno> {
        let mount = self.mounts.get_mut(&mount).ok_or(Errno::UNKNOWN_MOUNT)?;
        mount.seen = now;
        Ok(())
    }

    /// The number of files that mounts hold.
    pub(super) fn holds(&self) -> usize {
        self.mounts.values().map(|mount| mount.held.len()).sum()
    }
}
