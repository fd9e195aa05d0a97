//! The disk of a node, which takes no time: what was written is stored at once.

use crate::disk::{Loss, Past};
use crate::roles::Log;
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::role::Lsn;
use std::collections::BTreeMap;

/// Keeps all records, for as long as an experiment lasts, and of each role its last snapshot.
#[derive(Default)]
pub(super) struct Disk {
    keeps: bool,
    records: Vec<(Address, Bytes)>,
    snapshots: BTreeMap<Address, (u64, Bytes)>,
    /// The snapshots whose roles do not know yet that they are stored.
    stored: Vec<(Address, u64)>,
}

impl Disk {
    /// One that keeps what is written to it, or none.
    pub(super) fn new(keeps: bool) -> Self {
        Disk {
            keeps,
            ..Disk::default()
        }
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// What a node finds that starts.
    pub(super) fn past(&self) -> Past {
        let snapshots = self.snapshots.iter();
        let records = (1..).map(Lsn).zip(&self.records);
        Past {
            snapshots: snapshots
                .map(|(from, (stamp, snapshot))| (*from, *stamp, snapshot.clone()))
                .collect(),
            records: records
                .map(|(lsn, (from, record))| (*from, lsn, record.clone()))
                .collect(),
            loss: Loss::default(),
        }
    }

    /// The snapshots that were stored since this was last asked.
    pub(super) fn take_stored(&mut self) -> Vec<(Address, u64)> {
        std::mem::take(&mut self.stored)
    }
}

impl Log for Disk {
    fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        if self.keeps {
            self.records.push((from, Bytes::copy_from_slice(record)));
        }
        self.durable()
    }

    fn next(&self) -> Lsn {
        Lsn(self.durable().0 + 1)
    }

    fn durable(&self) -> Lsn {
        Lsn(self.records.len() as u64)
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, snapshot: Bytes) {
        self.snapshots.insert(from, (stamp, snapshot));
        self.stored.push((from, stamp));
    }
}
