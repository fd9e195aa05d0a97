//! What a chain node must find again after a crash, and the snapshots that it stores.
//!
//! Entries have their number for a key, and are released when a snapshot contains them. What the
//! node has entered is written behind the entries that it had then, with their end: what comes
//! before in the log and beyond that end was void.
//!
//! A node that has left the cluster, and is added again, begins with nothing, in a life of another
//! epoch of the membership. Its log may still have records from before, without the snapshot that
//! they follow. So where the membership has changed entries may be missing in the log. What comes
//! behind them is not taken in; if no later life has begun behind them, the node begins one, as if
//! it had lost its memory.

use super::history::History;
use super::sealing::Sealing;
use super::{Chain, ChainEpoch, ChainNode};
use crate::parts::due::SinceSnapshot;
use ionian_kernel::id::Slot;
use ionian_kernel::role::Out;
use ionian_kernel::wire::WireError;
use ionian_kernel::wire_enum;
use ionian_replication::batch::Value;

/// What a chain node writes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It has begun this life.
    Life {
        /// How many lives it has begun.
        life: u64,
    },
    /// It has entered a chain.
    Entered {
        /// The chain.
        chain: Chain,
        /// The entries that it holds end here: others that it may have had are void.
        end: Slot,
    },
    /// It has received an entry.
    Entry {
        /// Its number.
        slot: Slot,
        /// What it knew to be committed by then: every entry below this one.
        committed: Slot,
        /// The entry.
        value: Value,
    },
    /// It is sealed: it takes nothing more in this epoch, of which it is a member.
    Sealed {
        /// The epoch.
        epoch: ChainEpoch,
    },
    /// The master may make it a member of the chain that follows this epoch: it keeps what it
    /// holds.
    Joins {
        /// The epoch.
        epoch: ChainEpoch,
    },
}

wire_enum! { Record {
    0 => Life { life },
    1 => Entered { chain, end },
    2 => Entry { slot, committed, value },
    3 => Sealed { epoch },
    4 => Joins { epoch },
} }

/// No record is missing before this one, where none `may_lack`.
pub(super) fn check(record: &Record, history: &History, may_lack: bool) -> Result<(), WireError> {
    match record {
        Record::Entry { slot, .. } if *slot > history.end() && !may_lack => Err(WireError::Gap {
            what: "entry",
            missing: history.end().0,
            found: slot.0,
        }),
        _ => Ok(()),
    }
}

pub(super) fn key(record: &Record) -> Option<u64> {
    match record {
        Record::Entry { slot, .. } => Some(slot.0),
        _ => None,
    }
}

/// See the top of this file.
pub(super) struct Snapshots {
    keeps_records: bool,
    /// Everything below is in the last one stored.
    stored: Slot,
    storing: Option<Slot>,
    since: SinceSnapshot,
    /// The state that it has taken over from another node ends here, and is not on disk yet: until
    /// it is, nothing that follows it may be written.
    must_store: Option<Slot>,
}

impl Snapshots {
    pub(super) fn new(keeps_records: bool) -> Self {
        Snapshots {
            keeps_records,
            stored: Slot::ZERO,
            storing: None,
            since: SinceSnapshot::default(),
            must_store: None,
        }
    }

    /// Everything below is in the last one stored.
    pub(super) fn in_last(&self) -> Slot {
        self.stored
    }

    pub(super) fn restored(&mut self, stamp: Slot) {
        self.stored = stamp;
    }

    /// Commands of this many bytes were applied.
    pub(super) fn applied(&mut self, bytes: usize) {
        self.since.executed(bytes);
    }

    /// The node has taken over the state before this entry.
    pub(super) fn taken_over(&mut self, executed: Slot) {
        self.must_store = self.keeps_records.then_some(executed);
    }

    /// Whether a state that was taken over is not on disk yet.
    pub(super) fn is_busy(&self) -> bool {
        self.must_store.is_some()
    }

    fn stored(&mut self, stamp: Slot, work: u64) {
        (self.stored, self.storing) = (stamp, None);
        self.since.stored(work);
        self.must_store = self.must_store.filter(|executed| stamp < *executed);
    }

    /// The one with this stamp has found no room, or none is under way: another one is due.
    fn refused(&mut self, stamp: Slot) {
        self.storing.take_if(|it| *it == stamp);
        if self.storing.is_none() {
            self.since.refused();
        }
    }

    fn is_due(&self, applied: Slot, slots: usize, work: u64) -> bool {
        let since = applied.distance(self.stored);
        let due = self.is_busy() || self.since.is_enough(since, slots, work);
        due && self.keeps_records && self.storing.is_none()
    }
}

impl ChainNode {
    /// Takes in a record that it wrote before a crash.
    pub(super) fn recover_record(&mut self, record: Record) {
        match record {
            Record::Life { life } => {
                // The first one in a log that was cut may say again in which life entries came.
                if self.life > 0 && life != self.life {
                    self.changing.lacks_records = false;
                }
                self.life = life;
            }
            Record::Entered { chain, end } => {
                if chain.epoch != self.chain.epoch {
                    self.sealing = Sealing::default();
                }
                self.chain = chain;
                self.history.truncate(end.max(self.history.applied()));
            }
            Record::Sealed { epoch } if epoch == self.chain.epoch => self.sealing.recover_seal(),
            Record::Joins { epoch } if epoch == self.chain.epoch => self.sealing.recover_attempt(),
            Record::Sealed { .. } | Record::Joins { .. } => {}
            // What is in the snapshot may still be in the log.
            Record::Entry { slot, .. } if slot < self.history.applied() => {}
            Record::Entry { slot, .. } if slot > self.history.end() => {
                self.changing.lacks_records = true;
            }
            Record::Entry {
                slot,
                committed,
                value,
            } => {
                self.history.truncate(slot);
                self.add(value);
                self.apply(committed, false);
            }
        }
    }

    /// See [`Role::on_snapshot`](ionian_kernel::role::Role::on_snapshot).
    pub(super) fn note_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        match stored {
            true => {
                self.snapshots.stored(Slot(stamp), self.executor.work());
                out.release_below(stamp);
            }
            false => self.snapshots.refused(Slot(stamp)),
        }
    }

    /// Stores a snapshot if enough was applied since the last.
    pub(super) fn store_if_due(&mut self, out: &mut Out<'_, Self>) {
        let applied = self.history.applied();
        let slots = self.config.options().snapshot_slots;
        let work = self.executor.work();
        if self.snapshots.is_due(applied, slots, work) {
            self.snapshots.storing = Some(applied);
            self.snapshots.since.begin(work);
            out.store_snapshot(applied.0, self.executor.freeze());
        }
    }
}
