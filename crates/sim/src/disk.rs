//! A simulated disk: a log of records with positions, a sync that takes its time, and crashes that keep
//! some of what was never synced. In a memory-only deployment the node hands over vital records alone,
//! and this same disk holds just those.

use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;

/// The log of one node; it outlives the node's process.
#[derive(Default)]
pub(crate) struct Disk {
    records: Vec<(Address, Bytes)>,
    durable: usize,
    /// Up to where the sync under way reaches.
    syncing: Option<usize>,
    /// Canary: claims that everything is durable as soon as it is appended.
    lies: bool,
}

impl Disk {
    pub(crate) fn new(lies: bool) -> Self {
        Disk { lies, ..Disk::default() }
    }

    pub(crate) fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        self.records.push((from, Bytes::copy_from_slice(record)));
        Lsn(self.records.len() as u64)
    }

    /// The position up to which the node may rely on the disk.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(if self.lies { self.records.len() } else { self.durable } as u64)
    }

    /// Starts a sync of all there is; false when one is under way or there is nothing to do.
    pub(crate) fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() || self.durable == self.records.len() {
            return false;
        }
        self.syncing = Some(self.records.len());
        true
    }

    /// The sync is done.
    pub(crate) fn complete_sync(&mut self) {
        if let Some(reached) = self.syncing.take() {
            self.durable = reached;
        }
    }

    /// The node crashes. What was durable stays, and of the rest a random prefix (some of it may have
    /// reached the platter). With `forgetful`, a canary, durable records are lost too. Says how many
    /// records are gone.
    pub(crate) fn crash(&mut self, random: &mut Random, forgetful: bool) -> u64 {
        let floor = if forgetful { 0 } else { self.durable };
        let kept = random.between(floor as u64, self.records.len() as u64) as usize;
        let lost = self.records.len() - kept;
        self.records.truncate(kept);
        self.syncing = None;
        self.durable = kept;
        lost as u64
    }

    /// As [`crash`](Disk::crash), of all the ends the worst: nothing that was not durable is kept.
    pub(crate) fn crash_hard(&mut self) -> u64 {
        let lost = self.records.len() - self.durable;
        self.records.truncate(self.durable);
        self.syncing = None;
        lost as u64
    }

    /// Whether a sync would have something to do.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.durable < self.records.len()
    }

    /// Everything that a restarted node finds, with positions.
    pub(crate) fn recovered(&self) -> impl Iterator<Item = (Address, Lsn, &Bytes)> {
        (1..).zip(&self.records).map(|(lsn, (from, record))| (*from, Lsn(lsn), record))
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
    fn the_canaries_lie_and_forget() {
        let mut disk = Disk::new(true);
        disk.append(A, &[1]);
        assert_eq!(disk.durable(), Lsn(1));
        let mut random = Random::new(1);
        assert!((0..50).any(|_| written(4, 4).crash(&mut random, true) > 0));
    }
}
