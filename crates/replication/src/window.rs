//! A part of a sequence, such as the log, held in memory from a base position on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::{Position, Slot};

/// A window over the log.
pub type SlotWindow<T> = Window<Slot, T>;

/// A hole of more positions than this costs no memory; a smaller one costs empty entries.
const GAP: usize = 1024;

/// Room for this many entries is kept though they are gone.
const SPARE: usize = 1 << 16;

/// Values by position, for positions from [`base`](Window::base) on; the base only moves up, and
/// what lies below it is forgotten.
///
/// What follows the base without a large hole is one run of entries, which is all that most windows
/// ever have. What lies behind a large hole is in further runs.
#[derive(Clone, Debug)]
pub struct Window<P, T> {
    base: P,
    /// The run at the base.
    entries: VecDeque<Option<T>>,
    occupied: usize,
    limit: usize,
    /// The limit while there is only the run at the base, otherwise 0: one comparison finds out
    /// both.
    plain_limit: usize,
    /// The other runs, in order; two of them may touch.
    beyond: Vec<Run<T>>,
}

/// Entries of positions that follow each other.
#[derive(Clone, Debug)]
struct Run<T> {
    start: u64,
    entries: VecDeque<Option<T>>,
}

impl<T> Run<T> {
    fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    fn place(&self, at: u64) -> Option<usize> {
        let place = at.checked_sub(self.start)?;
        (place < self.entries.len() as u64).then_some(place as usize)
    }

    /// The positions from `from` up to, not including, `end` that hold a value.
    fn range(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, &T)> {
        values(&self.entries, self.start, (from, end))
    }
}

/// The values of entries of which the first is at `start`, from one position up to another.
fn values<T>(
    entries: &VecDeque<Option<T>>,
    start: u64,
    (from, end): (u64, u64),
) -> impl Iterator<Item = (u64, &T)> {
    let held = entries.len() as u64;
    let skip = from.saturating_sub(start).min(held) as usize;
    let end = end.saturating_sub(start).min(held) as usize;
    let first = start + skip as u64;
    entries
        .range(skip..end.max(skip))
        .enumerate()
        .filter_map(move |(place, entry)| Some((first + place as u64, entry.as_ref()?)))
}

impl<P: Position, T> Window<P, T> {
    /// An empty window that reaches at most `limit` positions from its base.
    pub fn new(base: P, limit: usize) -> Self {
        Window {
            base,
            entries: VecDeque::new(),
            occupied: 0,
            limit,
            plain_limit: limit,
            beyond: Vec::new(),
        }
    }

    /// From now on it reaches at most `limit` positions from its base; what it holds stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.note_runs();
    }

    /// The first position that can be held.
    pub fn base(&self) -> P {
        self.base
    }

    /// The position after the highest that has been held since the base.
    pub fn end(&self) -> P {
        match self.beyond.last() {
            None => self.after_base(self.entries.len()),
            Some(last) => P::at(last.end()),
        }
    }

    /// How many positions hold a value.
    pub fn len(&self) -> usize {
        self.occupied
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// For how many positions it has memory.
    pub fn room(&self) -> usize {
        let beyond = self.beyond.iter().map(|run| run.entries.capacity());
        self.entries.capacity() + beyond.sum::<usize>()
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

    /// Follows a change of the number of runs.
    fn note_runs(&mut self) {
        self.plain_limit = match self.beyond.is_empty() {
            true => self.limit,
            false => 0,
        };
    }

    /// The other run that has a position, and its place there.
    #[cold]
    fn find_beyond(&self, at: P) -> Option<(usize, usize)> {
        let run = self.runs_up_to(at.number()).checked_sub(1)?;
        Some((run, self.beyond[run].place(at.number())?))
    }

    /// How many of the other runs begin at or below a position.
    fn runs_up_to(&self, at: u64) -> usize {
        self.beyond.partition_point(|run| run.start <= at)
    }

    /// The value at `at`.
    pub fn get(&self, at: P) -> Option<&T> {
        match self.entries.get(self.index(at)?) {
            Some(entry) => entry.as_ref(),
            None if self.beyond.is_empty() => None,
            None => {
                let (run, place) = self.find_beyond(at)?;
                self.beyond[run].entries[place].as_ref()
            }
        }
    }

    /// The value at `at`, to change.
    pub fn get_mut(&mut self, at: P) -> Option<&mut T> {
        self.entry_mut(at)?.as_mut()
    }

    fn entry_mut(&mut self, at: P) -> Option<&mut Option<T>> {
        let index = self.index(at)?;
        if index < self.entries.len() || self.beyond.is_empty() {
            return self.entries.get_mut(index);
        }
        let (run, place) = self.find_beyond(at)?;
        self.beyond[run].entries.get_mut(place)
    }

    /// Puts a value at `at`, and returns what was there.
    ///
    /// # Panics
    /// Where the window does not [admit](Self::admits) the position: the caller must have asked.
    pub fn insert(&mut self, at: P, value: T) -> Option<T> {
        let index = self.offset(at).unwrap_or(u64::MAX);
        if index >= self.plain_limit as u64 {
            return self.insert_by_runs(at, value);
        }
        let index = index as usize;
        if index >= self.entries.len() {
            if index - self.entries.len() > GAP {
                return self.insert_by_runs(at, value);
            }
            while self.entries.len() < index {
                self.entries.push_back(None);
            }
            self.entries.push_back(Some(value));
            self.occupied += 1;
            return None;
        }
        let before = self.entries[index].replace(value);
        self.occupied += usize::from(before.is_none());
        before
    }

    /// Puts a value where there are several runs, or behind a large hole.
    #[cold]
    fn insert_by_runs(&mut self, at: P, value: T) -> Option<T> {
        assert!(
            self.admits(at),
            "{at:?} is outside the window from {:?}",
            self.base
        );
        if let Some(entry) = self.entry_mut(at) {
            let before = entry.replace(value);
            self.occupied += usize::from(before.is_none());
            return before;
        }
        self.occupied += 1;
        let at = at.number();
        let before = self.runs_up_to(at);
        let (end, entries) = match before.checked_sub(1) {
            None => (self.end_of_first(), &mut self.entries),
            Some(run) => (self.beyond[run].end(), &mut self.beyond[run].entries),
        };
        let hole = at - end;
        if hole <= GAP as u64 {
            entries.extend((0..hole).map(|_| None));
            entries.push_back(Some(value));
        } else {
            let run = Run {
                start: at,
                entries: VecDeque::from([Some(value)]),
            };
            self.beyond.insert(before, run);
            self.note_runs();
        }
        None
    }

    fn end_of_first(&self) -> u64 {
        self.base.number() + self.entries.len() as u64
    }

    /// Takes out the value at `at`.
    pub fn remove(&mut self, at: P) -> Option<T> {
        let taken = self.entry_mut(at)?.take();
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
                None if self.enters_next(base) => {}
                None => self.base = base,
            }
        }
        if self.entries.capacity() > SPARE {
            self.give_back();
        }
    }

    /// The run at the base has no entries left: the next one takes its place, if it begins below
    /// `base`.
    #[cold]
    fn enters_next(&mut self, base: P) -> bool {
        let enters = self
            .beyond
            .first()
            .is_some_and(|next| next.start < base.number());
        if enters {
            let Run { start, entries } = self.beyond.remove(0);
            (self.base, self.entries) = (P::at(start), entries);
            self.note_runs();
        }
        enters
    }

    /// Gives memory back where most of it is not needed.
    #[cold]
    fn give_back(&mut self) {
        if self.entries.capacity() / 4 >= self.entries.len() {
            self.entries.shrink_to((2 * self.entries.len()).max(SPARE));
        }
    }

    /// The positions that hold a value from `from` on, in order.
    pub fn iter_from(&self, from: P) -> impl Iterator<Item = (P, &T)> {
        self.range(from, P::at(u64::MAX))
    }

    /// The positions from `from` up to, not including, `end` that hold a value, in order. It looks
    /// at no others, however far the next value is.
    pub fn range(&self, from: P, end: P) -> impl Iterator<Item = (P, &T)> {
        let between = (from.number(), end.number());
        let first = values(&self.entries, self.base.number(), between);
        let skipped = self.runs_up_to(between.0).saturating_sub(1);
        let beyond = self.beyond[skipped..].iter();
        let beyond = beyond.take_while(move |run| run.start < between.1);
        let beyond = beyond.flat_map(move |run| run.range(between.0, between.1));
        first.chain(beyond).map(|(at, value)| (P::at(at), value))
    }

    /// All that it holds, in order.
    pub fn iter(&self) -> impl Iterator<Item = (P, &T)> {
        self.iter_from(self.base)
    }

    /// Empties the window and moves its base to `base`, down as well.
    pub fn reset(&mut self, base: P) {
        self.entries.clear();
        self.entries.shrink_to(SPARE);
        self.beyond.clear();
        self.note_runs();
        self.occupied = 0;
        self.base = base;
    }
}

#[cfg(test)]
mod tests;
