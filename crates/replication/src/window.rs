//! A part of a sequence, such as the log, held in memory from a base position on.

use alloc::collections::VecDeque;
use ionian_kernel::id::{Position, Slot};

/// A window over the log.
pub type SlotWindow<T> = Window<Slot, T>;

/// Values by position, for positions from [`base`](Window::base) on; the base only moves up, and
/// what lies below it is forgotten. Holes cost the size of an empty entry.
#[derive(Clone, Debug)]
pub struct Window<P, T> {
    base: P,
    entries: VecDeque<Option<T>>,
    occupied: usize,
    limit: usize,
}

impl<P: Position, T> Window<P, T> {
    /// An empty window that reaches at most `limit` positions from its base.
    pub fn new(base: P, limit: usize) -> Self {
        Window {
            base,
            entries: VecDeque::new(),
            occupied: 0,
            limit,
        }
    }

    /// From now on it reaches at most `limit` positions from its base; what it holds stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The first position that can be held.
    pub fn base(&self) -> P {
        self.base
    }

    /// The position after the highest that has been held since the base.
    pub fn end(&self) -> P {
        self.after_base(self.entries.len())
    }

    /// How many positions hold a value.
    pub fn len(&self) -> usize {
        self.occupied
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Whether `at` is at or above the base and within the limit.
    pub fn admits(&self, at: P) -> bool {
        self.offset(at)
            .is_some_and(|offset| offset < self.limit as u64)
    }

    /// How far a position lies above the base.
    fn offset(&self, at: P) -> Option<u64> {
        at.number().checked_sub(self.base.number())
    }

    fn index(&self, at: P) -> Option<usize> {
        usize::try_from(self.offset(at)?).ok()
    }

    fn after_base(&self, count: usize) -> P {
        P::at(self.base.number().saturating_add(count as u64))
    }

    /// The value at `at`.
    pub fn get(&self, at: P) -> Option<&T> {
        self.entries.get(self.index(at)?)?.as_ref()
    }

    /// The value at `at`, to change.
    pub fn get_mut(&mut self, at: P) -> Option<&mut T> {
        let index = self.index(at)?;
        self.entries.get_mut(index)?.as_mut()
    }

    /// Puts a value at `at`, and returns what was there.
    ///
    /// # Panics
    /// Where the window does not [admit](Self::admits) the position: the caller must have asked.
    pub fn insert(&mut self, at: P, value: T) -> Option<T> {
        let index = self.offset(at).filter(|it| *it < self.limit as u64);
        let Some(index) = index else {
            panic!("{at:?} is outside the window from {:?}", self.base)
        };
        let index = index as usize;
        while self.entries.len() < index {
            self.entries.push_back(None);
        }
        if index == self.entries.len() {
            self.entries.push_back(Some(value));
            self.occupied += 1;
            return None;
        }
        let before = self.entries[index].replace(value);
        self.occupied += usize::from(before.is_none());
        before
    }

    /// Takes out the value at `at`.
    pub fn remove(&mut self, at: P) -> Option<T> {
        let index = self.index(at)?;
        let taken = self.entries.get_mut(index)?.take();
        self.occupied -= usize::from(taken.is_some());
        taken
    }

    /// Forgets everything below `base`; does nothing where the base is there already.
    pub fn advance_to(&mut self, base: P) {
        self.advance_with(base, |_| {});
    }

    /// The same; calls `gone` with each value that was there.
    pub fn advance_with(&mut self, base: P, mut gone: impl FnMut(&T)) {
        while self.base < base {
            match self.entries.pop_front() {
                Some(entry) => {
                    if let Some(value) = &entry {
                        self.occupied -= 1;
                        gone(value);
                    }
                    self.base = self.after_base(1);
                }
                None => self.base = base,
            }
        }
    }

    /// The positions that hold a value from `from` on, in order.
    pub fn iter_from(&self, from: P) -> impl Iterator<Item = (P, &T)> {
        self.range(from, P::at(u64::MAX))
    }

    /// The positions from `from` up to, not including, `end` that hold a value, in order. It looks
    /// at no others, however far the next value is.
    pub fn range(&self, from: P, end: P) -> impl Iterator<Item = (P, &T)> {
        let held = self.entries.len() as u64;
        let skip = self.offset(from).unwrap_or(0).min(held) as usize;
        let end = self.offset(end).unwrap_or(0).min(held) as usize;
        let first = self.base.number() + skip as u64;
        let entries = self.entries.range(skip..end.max(skip));
        entries
            .enumerate()
            .filter_map(move |(i, entry)| Some((P::at(first + i as u64), entry.as_ref()?)))
    }

    /// All that it holds, in order.
    pub fn iter(&self) -> impl Iterator<Item = (P, &T)> {
        self.iter_from(self.base)
    }

    /// Empties the window and moves its base to `base`, down as well.
    pub fn reset(&mut self, base: P) {
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
