//! The disk of a node, which takes no time: what was written is stored at once.

use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
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

    pub(super) fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        if self.keeps {
            self.records.push((from, Bytes::copy_from_slice(record)));
        }
        self.end()
    }

    /// The position of the last record.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.records.len() as u64)
    }

    /// All records and their positions, the oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = (Lsn, &(Address, Bytes))> {
        (1..).map(Lsn).zip(&self.records)
    }

    pub(super) fn store(&mut self, from: Address, stamp: u64, mut frozen: Box<dyn Frozen>) {
        let mut snapshot = Vec::new();
        while frozen.write_some(&mut snapshot) {}
        self.snapshots.insert(from, (stamp, snapshot.into()));
        self.stored.push((from, stamp));
    }

    pub(super) fn snapshots(&self) -> impl Iterator<Item = (&Address, &(u64, Bytes))> {
        self.snapshots.iter()
    }

    /// The snapshots that were stored since this was last asked.
    pub(super) fn take_stored(&mut self) -> Vec<(Address, u64)> {
        std::mem::take(&mut self.stored)
    }
}
