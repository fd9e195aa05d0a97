//! A stretch of the log held in memory, from a base slot on.

use alloc::collections::VecDeque;
use ionian_kernel::id::Slot;

/// Values by slot, for slots from [`base`](SlotWindow::base) on; the base only moves up, and what
/// lies below it is forgotten. Holes cost the size of an empty entry.
#[derive(Clone, Debug)]
pub struct SlotWindow<T> {
    base: Slot,
    entries: VecDeque<Option<T>>,
    occupied: usize,
    limit: usize,
}

impl<T> SlotWindow<T> {
    /// An empty window that reaches at most `limit` slots from its base.
    pub fn new(base: Slot, limit: usize) -> Self {
        SlotWindow {
            base,
            entries: VecDeque::new(),
            occupied: 0,
            limit,
        }
    }

    /// From now on it reaches at most `limit` slots from its base; what it holds stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The first slot that can be held.
    pub fn base(&self) -> Slot {
        self.base
    }

    /// The slot after the highest that has been held since the base.
    pub fn end(&self) -> Slot {
        self.base.plus(self.entries.len() as u64)
    }

    /// How many slots hold a value.
    pub fn len(&self) -> usize {
        self.occupied
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Whether `slot` is at or above the base and within the limit.
    pub fn admits(&self, slot: Slot) -> bool {
        slot >= self.base && slot.distance(self.base) < self.limit as u64
    }

    fn index(&self, slot: Slot) -> Option<usize> {
        let offset = slot.0.checked_sub(self.base.0)?;
        usize::try_from(offset).ok()
    }

    /// The value at `slot`.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(self.index(slot)?)?.as_ref()
    }

    /// The value at `slot`, to change.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let index = self.index(slot)?;
        self.entries.get_mut(index)?.as_mut()
    }

    /// Puts a value at `slot`, replacing what was there.
    ///
    /// # Panics
    /// Where the window does not [admit](Self::admits) the slot: the caller must have asked.
    pub fn insert(&mut self, slot: Slot, value: T) {
        assert!(
            self.admits(slot),
            "slot {slot:?} is outside the window from {:?}",
            self.base
        );
        let index = self.index(slot).expect("admitted");
        while self.entries.len() <= index {
            self.entries.push_back(None);
        }
        if self.entries[index].replace(value).is_none() {
            self.occupied += 1;
        }
    }

    /// Takes out the value at `slot`.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let index = self.index(slot)?;
        let taken = self.entries.get_mut(index)?.take();
        self.occupied -= usize::from(taken.is_some());
        taken
    }

    /// Forgets everything below `base`; does nothing where the base is there already.
    pub fn advance_to(&mut self, base: Slot) {
        self.advance_with(base, |_| {});
    }

    /// The same; `gone` is told what was there.
    pub fn advance_with(&mut self, base: Slot, mut gone: impl FnMut(&T)) {
        while self.base < base {
            match self.entries.pop_front() {
                Some(entry) => {
                    if let Some(value) = &entry {
                        self.occupied -= 1;
                        gone(value);
                    }
                    self.base = self.base.next();
                }
                None => self.base = base,
            }
        }
    }

    /// The slots that hold a value from `from` on, in order.
    pub fn iter_from(&self, from: Slot) -> impl Iterator<Item = (Slot, &T)> {
        let skip = from.distance(self.base).min(self.entries.len() as u64) as usize;
        let first = self.base.plus(skip as u64);
        let entries = self.entries.iter().skip(skip);
        entries
            .enumerate()
            .filter_map(move |(i, entry)| Some((first.plus(i as u64), entry.as_ref()?)))
    }

    /// All that it holds, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.iter_from(self.base)
    }

    /// Empties the window and moves its base to `base`, down as well.
    pub fn reset(&mut self, base: Slot) {
        self.entries.clear();
        self.occupied = 0;
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn forgets_below_its_base_and_refuses_above_its_limit() {
        let mut window = SlotWindow::new(Slot(10), 4);
        assert!(!window.admits(Slot(9)) && window.admits(Slot(13)) && !window.admits(Slot(14)));
        assert!(!window.admits(Slot::MAX));
        window.insert(Slot(13), 'd');
        window.insert(Slot(11), 'b');
        window.insert(Slot(11), 'c');
        assert_eq!(window.len(), 2);
        assert_eq!(
            window.iter_from(Slot(12)).collect::<Vec<_>>(),
            [(Slot(13), &'d')]
        );
        window.advance_to(Slot(12));
        assert_eq!((window.get(Slot(11)), window.len()), (None, 1));
        window.advance_to(Slot(100));
        assert_eq!(
            (window.base(), window.end(), window.is_empty()),
            (Slot(100), Slot(100), true)
        );
        assert_eq!(window.get(Slot::MAX), None);
    }
}
