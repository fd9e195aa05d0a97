//! The snapshots that a replica stores on its own disk: when one is due, how far they reach, and
//! how they are taken and restored.

use super::super::due::SinceSnapshot;
use super::ReplicaCore;
use crate::multipaxos::config::Config;
use alloc::sync::Arc;
use bytes::Bytes;
use ionian_kernel::id::Slot;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::role::{Cover, Picture};
use ionian_kernel::time::Instant;

/// See the top of this file.
pub(super) struct Snapshots {
    config: Arc<Config>,
    /// Whether this node keeps nothing through a crash. What f+1 replicas have executed then counts
    /// as kept, for no more than f of them fail. Where acceptors keep their votes on disk, what
    /// counts is what is in a snapshot: a power failure takes the memory of all replicas at once.
    loses_state: bool,
    /// Whether another log's snapshots contain its state.
    elsewhere: bool,
    /// Every slot below this one is in the last one stored.
    stored: Slot,
    /// The slot of the one under way.
    storing: Option<Slot>,
    since: SinceSnapshot,
    /// The leader wants everything below this slot to be in one.
    wanted: Slot,
    /// The level was changed below this slot.
    level_changed: Slot,
}

impl Snapshots {
    pub(super) fn new(config: Arc<Config>, keeps_records: bool) -> Self {
        let (stored, wanted) = (Slot::ZERO, Slot::ZERO);
        Snapshots {
            config,
            loses_state: !keeps_records,
            elsewhere: false,
            stored,
            storing: None,
            since: SinceSnapshot::default(),
            wanted,
            level_changed: Slot::ZERO,
        }
    }

    /// Other options.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Commands of this many bytes were executed.
    pub(super) fn executed(&mut self, bytes: usize) {
        self.since.executed(bytes);
    }

    /// The leader wants everything below `slot` to be in one as soon as it is executed.
    pub(super) fn want(&mut self, slot: Slot) {
        self.wanted = slot;
    }

    /// Whether this node stores snapshots of this log, and none is under way.
    pub(super) fn are_free(&self) -> bool {
        self.storing.is_none() && !self.elsewhere && !self.loses_state
    }

    /// Whether enough was executed since the last for one of the state before the slot `executed`,
    /// when the machine has done this work. What commands of several logs take together counts
    /// where their snapshots are stored.
    pub(super) fn is_enough(&self, executed: Slot, work: u64) -> bool {
        let (since, options) = (executed.distance(self.stored), self.config.options());
        let enough = match self.elsewhere {
            true => since >= options.snapshot_slots as u64,
            false => self.since.is_enough(since, options.snapshot_slots, work),
        };
        let wanted = self.stored < self.wanted && self.wanted <= executed;
        let level = self.stored < self.level_changed;
        (enough || wanted || level) && since > 0 && (self.elsewhere || !self.loses_state)
    }

    /// The level was changed, perhaps more than once, below this slot, which is executed. One is
    /// stored as soon as possible. Returns whether that is new.
    pub(super) fn level_changed(&mut self, slot: Slot) -> bool {
        let is_new = slot > self.level_changed;
        self.level_changed = self.level_changed.max(slot);
        is_new
    }

    /// Whether a replica that has executed every slot below `executed` would after a crash execute
    /// no command again that changes the level.
    pub(super) fn have_level(&self, executed: Slot) -> bool {
        self.kept(executed) >= self.level_changed
    }

    /// Another log's snapshots contain its state.
    pub(super) fn keep_elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// The bytes of the commands that were executed since the process started.
    pub(super) fn executed_bytes(&self) -> u64 {
        self.since.bytes()
    }

    /// Whether they do.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// One of the state before the slot `executed` begins to be stored, when the machine has done
    /// this work.
    pub(super) fn begin(&mut self, executed: Slot, work: u64) {
        self.storing = Some(executed);
        self.since.begin(work);
    }

    /// The one of the state before this slot is on disk: just now, or since before a crash.
    pub(super) fn stored(&mut self, executed: Slot, work: u64) {
        if self.storing.take().is_some() {
            self.since.stored(work);
        }
        self.stored = self.stored.max(executed);
    }

    /// The one of the state before this slot has found no room, or none is under way: another one
    /// is due.
    fn refused(&mut self, executed: Slot) {
        self.storing.take_if(|it| *it == executed);
        if self.storing.is_none() {
            self.since.refused();
        }
    }

    /// The replica, which has executed every slot below `executed`, would find every slot below
    /// this one again after a crash.
    pub(super) fn kept(&self, executed: Slot) -> Slot {
        if self.loses_state && !self.elsewhere {
            executed
        } else {
            self.stored
        }
    }
}

impl ReplicaCore {
    /// Takes in the snapshot that it stored last before a crash.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.executor.restore(snapshot)?;
        self.begin_at(Slot(stamp));
        Ok(())
    }

    /// See [`Role::on_snapshot`](ionian_kernel::role::Role::on_snapshot).
    pub fn on_snapshot(&mut self, stamp: u64, stored: bool) {
        match stored {
            true => self.snapshots.stored(Slot(stamp), self.executor.work()),
            false => self.snapshots.refused(Slot(stamp)),
        }
    }

    /// See [`Role::freeze`](ionian_kernel::role::Role::freeze).
    pub fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        let Some(at) = cover.stamp().filter(|_| !self.is_out()) else {
            return Picture::Never;
        };
        if self.executed.0 >= at && self.is_a_prefix(now) {
            return Picture::Taken(self.executed.0, self.executor.freeze());
        }
        // As with a read that waits: what is missing counts as a hole.
        self.want(now, Slot(at));
        Picture::NotYet(self.executed.0)
    }
}
