//! The entries that a chain node holds: those that it has received and not applied, which nothing
//! else holds for it, and some that it has applied, for nodes that join.
//!
//! It also knows what is dirty: the keys that entries not applied write. They are counted, because
//! several entries may write a key: it is clean again when the last of them is applied.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_kernel::machine::Footprint;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::Value;
use ionian_replication::flow::ByteWindow;
use ionian_replication::page::Page;
use ionian_replication::slot_map::NumberMap;

/// The most that one message carries of entries, in bytes, or a single entry.
const MESSAGE_BYTES: usize = 512 << 10;

/// The most entries that one message carries.
const MESSAGE_ENTRIES: usize = 4096;

/// The most that it holds of applied entries, in bytes.
const RETAINED_BYTES: usize = 16 << 20;

/// The most that it holds of them while another node needs them. A node that would need more copies
/// the state again.
const NEEDED_BYTES: usize = 128 << 20;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct History {
    /// The first entry that it holds; those before are applied.
    base: Slot,
    /// Every entry below this one is applied.
    applied: Slot,
    entries: VecDeque<Value>,
    /// What the entries that are not applied write.
    written: VecDeque<Written>,
    /// The keys that they write, one after the other.
    keys: VecDeque<u64>,
    /// How many of them write a key. There are at most as many as the window has room for.
    dirty: NumberMap<usize>,
    /// How many entries that are not applied may write anything.
    dirty_all: usize,
    /// Bytes of entries that are applied.
    applied_bytes: usize,
    /// Bytes of those that are not.
    flow: ByteWindow,
}

/// What an entry writes.
#[derive(Debug)]
struct Written {
    /// How many keys.
    keys: usize,
    everything: bool,
}

impl History {
    /// Nothing is in it yet, and so is nothing under way in `flow`.
    pub(super) fn new(flow: ByteWindow) -> Self {
        History {
            base: Slot::ZERO,
            applied: Slot::ZERO,
            entries: VecDeque::new(),
            written: VecDeque::new(),
            keys: VecDeque::new(),
            dirty: NumberMap::default(),
            dirty_all: 0,
            applied_bytes: 0,
            flow,
        }
    }

    /// The first entry that it holds.
    pub(super) fn base(&self) -> Slot {
        self.base
    }

    /// Every entry below this one is applied.
    pub(super) fn applied(&self) -> Slot {
        self.applied
    }

    /// The entry after the last.
    pub(super) fn end(&self) -> Slot {
        self.base.plus(self.entries.len() as u64)
    }

    /// How many entries are not applied.
    pub(super) fn pending(&self) -> usize {
        self.written.len()
    }

    /// The bytes that they take.
    pub(super) fn flow(&self) -> &ByteWindow {
        &self.flow
    }

    /// The stamp of the last entry that is not applied; later than those before.
    pub(super) fn last_stamp(&self) -> Option<Timestamp> {
        let last = self.entries.back().filter(|_| self.pending() > 0);
        last.map(|value| value.stamp)
    }

    /// This entry, if it is here.
    pub(super) fn get(&self, slot: Slot) -> Option<&Value> {
        let place = slot.0.checked_sub(self.base.0)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The entries from this one on that are here, with their numbers.
    pub(super) fn iter_from(&self, start: Slot) -> impl Iterator<Item = (Slot, &Value)> {
        let skipped = start.distance(self.base);
        let slots = self.base.plus(skipped).until(self.end());
        slots.zip(self.entries.iter().skip(skipped as usize))
    }

    /// Adds the next entry, which touches this.
    pub(super) fn push(&mut self, value: Value, footprint: &Footprint) {
        for key in &footprint.writes {
            self.keys.push_back(*key);
            *self.dirty.entry(*key).or_default() += 1;
        }
        let written = Written {
            keys: footprint.writes.len(),
            everything: footprint.everything,
        };
        self.dirty_all += usize::from(written.everything);
        self.flow.add(value.batch.byte_len());
        self.written.push_back(written);
        self.entries.push_back(value);
    }

    /// The first entry that is not applied counts as applied from now on.
    pub(super) fn apply(&mut self) {
        let bytes = self.get(self.applied).map(|value| value.batch.byte_len());
        let bytes = bytes.expect("there is an entry to apply");
        let Written { keys, everything } = self.written.pop_front().expect("it is not applied");
        for _ in 0..keys {
            let key = self.keys.pop_front().expect("it writes as many");
            self.clean(key);
        }
        self.dirty_all -= usize::from(everything);
        self.flow.remove(bytes);
        self.applied_bytes += bytes;
        self.applied = self.applied.next();
    }

    /// One entry fewer writes this key.
    fn clean(&mut self, key: u64) {
        if let Some(count) = self.dirty.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.dirty.remove(&key);
            }
        }
    }

    /// Drops the entries from this one on, none of which is applied.
    pub(super) fn truncate(&mut self, end: Slot) {
        assert!(end >= self.applied, "what is applied is committed");
        while self.end() > end {
            let value = self.entries.pop_back().expect("it is not empty");
            let Written { keys, everything } = self.written.pop_back().expect("it is not applied");
            for _ in 0..keys {
                let key = self.keys.pop_back().expect("it writes as many");
                self.clean(key);
            }
            self.dirty_all -= usize::from(everything);
            self.flow.remove(value.batch.byte_len());
        }
    }

    /// A state replaces all entries: every entry below this one is applied in it.
    pub(super) fn reset(&mut self, applied: Slot) {
        self.flow.clear();
        *self = History {
            base: applied,
            applied,
            ..History::new(self.flow.clone())
        };
    }

    /// Drops applied entries of which there are more than `slots`, or than it may hold in bytes;
    /// those from `keep` on only if they take more than it may hold for others.
    pub(super) fn trim(&mut self, slots: usize, keep: Slot) {
        let enough = Slot(self.applied.0.saturating_sub(slots as u64)).min(keep);
        while self.base < self.applied {
            let most = match self.base < keep {
                true => RETAINED_BYTES,
                false => NEEDED_BYTES,
            };
            if self.base >= enough && self.applied_bytes <= most {
                return;
            }
            let value = self.entries.pop_front().expect("it is not empty");
            self.applied_bytes -= value.batch.byte_len();
            self.base = self.base.next();
        }
    }

    /// Whether a read of this may miss what an entry that is not applied writes.
    pub(super) fn is_dirty(&self, read: &Footprint) -> bool {
        if self.pending() == 0 {
            return false;
        }
        let keys = || read.reads.iter().chain(&read.writes);
        read.everything || self.dirty_all > 0 || keys().any(|key| self.dirty.contains_key(key))
    }

    /// The entries from `start` up to `end`, as many as fit a message; at least one if there is
    /// one.
    pub(super) fn some(&self, start: Slot, end: Slot) -> Vec<Value> {
        let (mut some, mut page) = (Vec::new(), Page::new(MESSAGE_BYTES));
        for slot in start.until(end) {
            let Some(value) = self.get(slot) else {
                break;
            };
            if some.len() >= MESSAGE_ENTRIES || !page.takes(value.batch.byte_len()) {
                break;
            }
            some.push(value.clone());
        }
        some
    }

    /// Asserts what must hold between two calls.
    pub(super) fn invariants(&self) {
        assert!(self.base <= self.applied && self.applied <= self.end());
        assert_eq!(
            self.written.len() as u64,
            self.end().distance(self.applied),
            "what each pending entry writes is known"
        );
        assert_eq!(
            self.dirty.is_empty() && self.dirty_all == 0,
            self.written
                .iter()
                .all(|written| written.keys == 0 && !written.everything),
            "what is dirty is what pending entries write"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn writes(keys: &[u64]) -> Footprint {
        Footprint {
            writes: keys.into(),
            ..Footprint::default()
        }
    }

    fn reads(keys: &[u64]) -> Footprint {
        Footprint {
            reads: keys.into(),
            ..Footprint::default()
        }
    }

    #[test]
    fn a_key_is_clean_when_the_last_entry_that_writes_it_is_applied() {
        let mut history = History::new(ByteWindow::new(1 << 20));
        for keys in [&[1, 2][..], &[1], &[3]] {
            history.push(Value::default(), &writes(keys));
        }
        let dirty = |history: &History| [1, 2, 3].map(|key| history.is_dirty(&reads(&[key])));
        assert_eq!(dirty(&history), [true; 3]);
        history.apply();
        assert_eq!(dirty(&history), [true, false, true]);
        assert!(history.is_dirty(&reads(&[2, 3])), "one of several keys");
        history.apply();
        assert_eq!(dirty(&history), [false, false, true]);
        history.truncate(Slot(2));
        assert_eq!(dirty(&history), [false; 3]);
        history.invariants();
    }

    #[test]
    fn what_touches_everything_is_dirty_and_makes_everything_dirty() {
        let mut history = History::new(ByteWindow::new(1 << 20));
        let everything = Footprint {
            everything: true,
            ..Footprint::default()
        };
        assert!(!history.is_dirty(&everything), "nothing is under way");
        history.push(Value::default(), &writes(&[1]));
        assert!(history.is_dirty(&everything) && !history.is_dirty(&reads(&[2])));
        history.push(Value::default(), &everything);
        assert!(history.is_dirty(&reads(&[2])));
        history.apply();
        assert!(history.is_dirty(&reads(&[2])));
        history.apply();
        assert!(!history.is_dirty(&reads(&[2])));
    }

    #[test]
    fn applied_entries_are_kept_as_many_as_allowed_and_from_where_they_are_needed() {
        let mut history = History::new(ByteWindow::new(1 << 20));
        for _ in 0..6 {
            history.push(Value::default(), &Footprint::default());
        }
        (0..5).for_each(|_| history.apply());
        history.trim(3, Slot(1));
        assert_eq!((history.base(), history.end()), (Slot(1), Slot(6)));
        history.trim(3, Slot(9));
        assert_eq!(history.base(), Slot(2));
        history.applied_bytes = RETAINED_BYTES + 1;
        history.trim(9, Slot(2));
        assert_eq!(history.base(), Slot(2), "another node needs them");
        history.trim(9, Slot(3));
        assert_eq!(history.base(), Slot(3));
        history.applied_bytes = NEEDED_BYTES + 1;
        history.trim(9, Slot(0));
        assert_eq!(history.base(), Slot(5), "they take too much");
        history.applied_bytes = 0;
        history.trim(0, Slot(9));
        assert_eq!(
            (history.base(), history.end()),
            (Slot(5), Slot(6)),
            "not what is pending"
        );
        assert_eq!(history.some(Slot(5), Slot(9)), vec![Value::default()]);
        assert_eq!(history.some(Slot(4), Slot(9)), vec![], "it is gone");
        history.invariants();
    }
}
