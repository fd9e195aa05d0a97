//! A simulated disk: a log of records with positions, a sync that takes its time, and crashes that keep
//! some of what was never synced. In a memory-only deployment the node hands over vital records alone,
//! and this same disk holds just those.

use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use std::collections::{BTreeMap, VecDeque};

/// The log of one node with the snapshots of its roles; it outlives the node's process.
#[derive(Default)]
pub(crate) struct Disk {
    /// How many entries were truncated away.
    truncated: u64,
    entries: VecDeque<(Address, Entry)>,
    /// The position up to which everything is durable.
    durable: u64,
    /// Up to where the sync under way reaches.
    syncing: Option<u64>,
    /// The last durable snapshot of each role.
    snapshots: BTreeMap<Address, (u64, Bytes)>,
    /// Canary: claims that everything is durable as soon as it is appended.
    lies: bool,
}

enum Entry {
    Record(Bytes),
    /// A snapshot that is being written: it is there when everything up to it is durable.
    Snapshot(u64, Bytes),
    /// What is left of one that is there.
    Empty,
}

impl Disk {
    pub(crate) fn new(lies: bool) -> Self {
        Disk { lies, ..Disk::default() }
    }

    /// The position of the last entry.
    fn end(&self) -> u64 {
        self.truncated + self.entries.len() as u64
    }

    /// The position of the next entry.
    pub(crate) fn next(&self) -> Lsn {
        Lsn(self.end() + 1)
    }

    pub(crate) fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        self.entries.push_back((from, Entry::Record(Bytes::copy_from_slice(record))));
        Lsn(self.end())
    }

    pub(crate) fn store_snapshot(&mut self, from: Address, stamp: u64, snapshot: Bytes) {
        self.entries.push_back((from, Entry::Snapshot(stamp, snapshot)));
    }

    /// The position up to which the node may rely on the disk.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(if self.lies { self.end() } else { self.durable })
    }

    /// Starts a sync of all there is; false when one is under way or there is nothing to do.
    pub(crate) fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() || !self.has_unsynced() {
            return false;
        }
        self.syncing = Some(self.end());
        true
    }

    /// The sync is done. Returns the snapshots that are there now.
    pub(crate) fn complete_sync(&mut self) -> Vec<(Address, u64)> {
        match self.syncing.take() {
            Some(reached) => self.harden(reached),
            None => Vec::new(),
        }
    }

    /// Everything up to `reached` is durable.
    fn harden(&mut self, reached: u64) -> Vec<(Address, u64)> {
        let mut stored = Vec::new();
        let (from, to) = ((self.durable - self.truncated) as usize, (reached - self.truncated) as usize);
        for (address, entry) in self.entries.range_mut(from..to) {
            if let Entry::Snapshot(stamp, snapshot) = entry {
                self.snapshots.insert(*address, (*stamp, snapshot.clone()));
                stored.push((*address, *stamp));
                *entry = Entry::Empty;
            }
        }
        self.durable = reached;
        stored
    }

    /// Forgets durable entries before `lsn`.
    pub(crate) fn truncate_below(&mut self, lsn: Lsn) {
        while self.truncated + 1 < lsn.0 && self.truncated < self.durable {
            self.entries.pop_front();
            self.truncated += 1;
        }
    }

    /// The node crashes. What was durable stays, and of the rest a random prefix (some of it may have
    /// reached the platter). With `forgetful`, a canary, durable records are lost too. Says how many
    /// records are gone.
    pub(crate) fn crash(&mut self, random: &mut Random, forgetful: bool) -> u64 {
        let floor = if forgetful { self.truncated } else { self.durable };
        let kept = random.between(floor, self.end());
        self.cut(kept)
    }

    /// As [`crash`](Disk::crash), of all the ends the worst: nothing that was not durable is kept.
    pub(crate) fn crash_hard(&mut self) -> u64 {
        self.cut(self.durable)
    }

    fn cut(&mut self, kept: u64) -> u64 {
        let lost = self.end() - kept;
        self.entries.truncate((kept - self.truncated) as usize);
        self.syncing = None;
        self.durable = self.durable.min(kept);
        self.harden(kept);
        lost
    }

    /// Whether a sync would have something to do.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.durable < self.end()
    }

    /// The snapshots that a restarted node finds.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = (Address, u64, &Bytes)> {
        self.snapshots.iter().map(|(from, (stamp, snapshot))| (*from, *stamp, snapshot))
    }

    /// Every record that a restarted node finds, with positions.
    pub(crate) fn recovered(&self) -> impl Iterator<Item = (Address, Lsn, &Bytes)> {
        (self.truncated + 1..).zip(&self.entries).filter_map(|(lsn, (from, entry))| match entry {
            Entry::Record(record) => Some((*from, Lsn(lsn), record)),
            Entry::Snapshot(..) | Entry::Empty => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = Address { kind: 0, index: 0 };

    fn written(records: u8, synced: u8) -> Disk {
        let mut disk = Disk::new(false);
        for record in 0..records {
            assert_eq!(disk.append(A, &[record]), Lsn(u64::from(record) + 1));
            if record + 1 == synced {
                assert!(disk.begin_sync() && !disk.begin_sync());
            }
        }
        disk.complete_sync();
        disk
    }

    #[test]
    fn a_crash_keeps_a_prefix_no_shorter_than_what_was_durable() {
        let mut random = Random::new(3);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut disk = written(6, 4);
            assert_eq!(disk.durable(), Lsn(4));
            let lost = disk.crash(&mut random, false);
            let kept: Vec<u8> = disk.recovered().map(|(_, _, record)| record[0]).collect();
            assert_eq!(kept, (0..6 - lost as u8).collect::<Vec<_>>());
            assert_eq!(disk.durable(), Lsn(kept.len() as u64));
            lengths.insert(kept.len());
        }
        assert_eq!(lengths, [4, 5, 6].into());
    }

    #[test]
    fn snapshots_are_there_when_they_are_durable_and_survive_truncation() {
        let mut disk = written(4, 4);
        disk.store_snapshot(A, 7, Bytes::from_static(b"seven"));
        disk.append(A, &[4]);
        assert_eq!(disk.snapshots().count(), 0);
        disk.begin_sync();
        assert_eq!(disk.complete_sync(), [(A, 7)]);
        disk.store_snapshot(A, 9, Bytes::from_static(b"nine"));
        disk.truncate_below(Lsn(6));
        disk.crash_hard();
        assert_eq!(disk.snapshots().map(|(_, stamp, _)| stamp).collect::<Vec<_>>(), [7]);
        assert_eq!(disk.recovered().map(|(_, lsn, _)| lsn).collect::<Vec<_>>(), [Lsn(6)]);
        disk.truncate_below(Lsn(99));
        assert_eq!((disk.recovered().count(), disk.append(A, &[5])), (0, Lsn(7)));
    }

    #[test]
    fn the_canaries_lie_and_forget() {
        let mut disk = Disk::new(true);
        disk.append(A, &[1]);
        assert_eq!(disk.durable(), Lsn(1));
        let mut random = Random::new(1);
        assert!((0..50).any(|_| written(4, 4).crash(&mut random, true) > 0));
    }
}
