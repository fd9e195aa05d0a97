//! The records of all groups in the log of one instance.
//!
//! A driver drops records below a key. The keys of a group are its slots, and the groups advance at
//! different speeds: so records are numbered across all groups, and what a group needs no more is
//! remembered in stretches of these numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::adapted::{PartRecords, pour_part};
use ionian_kernel::role::Outbox;
use ionian_kernel::wire::{Reader, Wire, WireError, encode_varint};

/// How many records of a group a stretch has at most.
const STRETCH: usize = 256;

/// A stretch ends when the log of the instance has got this many bytes since its first record: the
/// log keeps whole stretches, and a group that writes little would keep all that others write.
const STRETCH_BYTES: u64 = 1 << 20;

/// See the top of this file.
pub(super) struct Records {
    /// The number of the next record that has a key.
    next: u64,
    /// The bytes of all records.
    bytes: u64,
    groups: Vec<VecDeque<Stretch>>,
}

/// Records of a group that follow each other.
struct Stretch {
    /// The number of the first.
    first: u64,
    /// The bytes of all records before the first.
    bytes: u64,
    /// How many there are.
    count: usize,
    /// The highest key that one has in the group.
    highest: u64,
}

/// The records of one group among them.
pub(super) struct OfGroup<'a> {
    pub(super) records: &'a mut Records,
    pub(super) group: usize,
}

impl Records {
    pub(super) fn new(groups: usize) -> Self {
        Records {
            next: 0,
            bytes: 0,
            groups: (0..groups).map(|_| VecDeque::new()).collect(),
        }
    }

    /// A record of this group, with this key there, has this number and this many bytes.
    fn note(&mut self, group: usize, key: u64, number: u64, bytes: usize) {
        self.next = self.next.max(number + 1);
        let before = self.bytes;
        self.bytes += bytes as u64;
        let is_open = |it: &&mut Stretch| it.count < STRETCH && before - it.bytes < STRETCH_BYTES;
        let stretches = &mut self.groups[group];
        match stretches.back_mut().filter(is_open) {
            Some(last) => {
                last.count += 1;
                last.highest = last.highest.max(key);
            }
            None => stretches.push_back(Stretch {
                first: number,
                bytes: before,
                count: 1,
                highest: key,
            }),
        }
    }

    /// What comes before a record: its group, and one more than its number if it has one.
    fn put_head(group: usize, number: Option<u64>, out: &mut Vec<u8>) {
        out.push(group as u8);
        encode_varint(number.map_or(0, |number| number + 1), out);
    }

    /// Reads what comes before a record.
    pub(super) fn read_head(
        &self,
        reader: &mut Reader<'_>,
    ) -> Result<(usize, Option<u64>), WireError> {
        let group = usize::from(u8::decode(reader)?);
        if group >= self.groups.len() {
            return Err(WireError::UnknownTag {
                what: "group",
                tag: group as u8,
            });
        }
        Ok((group, reader.varint()?.checked_sub(1)))
    }

    /// Passes on the records of a checkpoint: they have no keys.
    pub(super) fn checkpointed<F, E>(
        &self,
        group: usize,
        from: &mut Outbox<F>,
        to: &mut Outbox<E>,
    ) {
        struct Keyless(usize);
        impl PartRecords for Keyless {
            fn head(&mut self, _: Option<u64>, _: usize, out: &mut Vec<u8>) -> Option<u64> {
                Records::put_head(self.0, None, out);
                None
            }
            fn released(&mut self, _: u64) -> Option<u64> {
                None
            }
        }
        pour_part(from, to, &mut Keyless(group), |_| {
            unreachable!("it sends nothing")
        });
    }

    /// A record of this many bytes that was written by an earlier process was read: gives its key
    /// in the log.
    pub(super) fn recovered(
        &mut self,
        group: usize,
        key: Option<u64>,
        number: Option<u64>,
        bytes: usize,
    ) -> Option<u64> {
        let (key, number) = (key?, number?);
        self.note(group, key, number, bytes);
        Some(number)
    }
}

impl PartRecords for OfGroup<'_> {
    fn head(&mut self, key: Option<u64>, bytes: usize, out: &mut Vec<u8>) -> Option<u64> {
        let number = key.map(|key| {
            let number = self.records.next;
            self.records.note(self.group, key, number, bytes);
            number
        });
        Records::put_head(self.group, number, out);
        number
    }

    fn released(&mut self, below: u64) -> Option<u64> {
        let stretches = &mut self.records.groups[self.group];
        while stretches.front().is_some_and(|first| first.highest < below) {
            stretches.pop_front();
        }
        let needed = self.records.groups.iter().filter_map(VecDeque::front);
        let first = needed.map(|stretch| stretch.first).min();
        Some(first.unwrap_or(self.records.next))
    }
}

/// The record of a group that a cluster begins with.
pub(super) fn founding(group: usize, record: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Records::put_head(group, None, &mut out);
    out.extend_from_slice(record);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_bytes(records: &mut Records, group: usize, key: u64, bytes: usize) -> Option<u64> {
        OfGroup { records, group }.head(Some(key), bytes, &mut Vec::new())
    }

    fn write(records: &mut Records, group: usize, key: u64) -> Option<u64> {
        write_bytes(records, group, key, 1)
    }

    fn release(records: &mut Records, group: usize, below: u64) -> Option<u64> {
        OfGroup { records, group }.released(below)
    }

    #[test]
    fn what_any_group_needs_is_kept() {
        let mut records = Records::new(2);
        for key in 0..600 {
            assert_eq!(write(&mut records, 0, key), Some(2 * key));
            assert_eq!(write(&mut records, 1, 1000 + key), Some(2 * key + 1));
        }
        assert_eq!(
            release(&mut records, 0, 600),
            Some(1),
            "the other needs all"
        );
        assert_eq!(release(&mut records, 1, 1256), Some(2 * 256 + 1));
        assert_eq!(
            release(&mut records, 1, 1300),
            Some(2 * 256 + 1),
            "a stretch"
        );
        assert_eq!(release(&mut records, 1, 1600), Some(1200), "none needs any");
    }

    /// What a group keeps beside what it needs, whatever the sizes of records and the shares of
    /// groups are, is a stretch of 1 MiB and the record that ends it.
    #[test]
    fn a_group_keeps_little_that_it_does_not_need() {
        for (bytes, share) in [
            (100, 1),
            (100, 97),
            (300_000, 1),
            (300_000, 97),
            (8 << 20, 2),
        ] {
            let mut records = Records::new(2);
            // The bytes before each record.
            let mut before = Vec::new();
            for key in 0..2000 {
                before.push(records.bytes);
                write_bytes(&mut records, 1, key, bytes);
                release(&mut records, 1, key + 1);
                if key % share > 0 {
                    continue;
                }
                before.push(records.bytes);
                write_bytes(&mut records, 0, key, 100);
                // It needs its last record only.
                let first = release(&mut records, 0, key).unwrap();
                let kept = records.bytes - before[first as usize];
                let between = share * bytes as u64 + 100;
                assert!(
                    kept <= STRETCH_BYTES + between + 100,
                    "{bytes} {share}: {kept}"
                );
            }
        }
    }

    #[test]
    fn a_record_is_read_with_its_group_and_its_number() {
        let mut records = Records::new(3);
        write(&mut records, 0, 7);
        let mut bytes = Vec::new();
        let group = 2;
        OfGroup {
            records: &mut records,
            group,
        }
        .head(Some(40), 1, &mut bytes);
        let bytes = bytes::Bytes::from(bytes);
        let mut again = Records::new(3);
        let (group, number) = again.read_head(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((group, number), (2, Some(1)));
        assert_eq!(again.recovered(group, Some(40), number, 1), Some(1));
        assert_eq!(write(&mut again, 1, 9), Some(2), "numbers go on");
        let fault = Records::new(2).read_head(&mut Reader::new(&bytes));
        assert!(fault.is_err(), "a group that there is not");
    }
}
