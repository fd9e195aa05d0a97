//! Where the records of a role loop are in the log of its node.

use crate::role::Lsn;
use alloc::collections::VecDeque;

/// A mark is set when the log has grown by this many records since the last. The log may hold that
/// many more than necessary, and records may be large.
const MARK_EVERY: u64 = 16;

/// Translates the positions that a role loop gives to its records into those of the log, and back.
///
/// A role loop cannot know where the main loop will append a record, so it counts on its own from
/// the position at which the log was opened. Records that were recovered have the log's positions
/// in both.
pub(super) struct Positions {
    /// The position at which the log was opened.
    opened: Lsn,
    /// The role loop's position of its last record.
    own: Lsn,
    /// The last record of each burst that is not on disk yet, in both positions.
    waiting: VecDeque<(Lsn, Lsn)>,
    /// Some records in both positions, in order. There is at most one for each [`MARK_EVERY`]
    /// records that the log holds.
    marks: VecDeque<(Lsn, Lsn)>,
}

impl Positions {
    pub(super) fn new(opened: Lsn) -> Self {
        let first = Lsn(opened.0 + 1);
        Positions {
            opened,
            own: opened,
            waiting: VecDeque::new(),
            // The first record is in the log there at the earliest.
            marks: [(first, first)].into(),
        }
    }

    /// The main loop has appended `count` records of the role loop, one after the other; `last` is
    /// where the last of them is in the log.
    pub(super) fn appended(&mut self, count: u64, last: Lsn) {
        let first = Lsn(last.0 + 1 - count);
        let mark = (Lsn(self.own.0 + 1), first);
        self.own.0 += count;
        self.waiting.push_back((self.own, last));
        let marked = self.marks.back().map_or(self.opened, |(_, log)| *log);
        if first.0 - marked.0 >= MARK_EVERY {
            self.marks.push_back(mark);
        }
    }

    /// The log is on disk up to `durable`: the role loop's last record that is, if that is news.
    pub(super) fn on_durable(&mut self, durable: Lsn) -> Option<Lsn> {
        let mut reached = None;
        while let Some((own, _)) = self.waiting.front().filter(|(_, log)| *log <= durable) {
            reached = Some(*own);
            self.waiting.pop_front();
        }
        reached
    }

    /// A position of the log at or before that of the role loop's record `own`, which is the oldest
    /// that it still needs: marks before it are dropped.
    pub(super) fn not_after(&mut self, own: Lsn) -> Lsn {
        if own <= self.opened {
            return own;
        }
        while self.marks.get(1).is_some_and(|(next, _)| *next <= own) {
            self.marks.pop_front();
        }
        self.marks.front().map_or(self.opened, |(_, log)| *log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_of_the_log_are_found_again(
            opened in 0..3000u64,
            bursts in prop::collection::vec((1..400u64, 0..900u64), 1..60),
            asks in prop::collection::vec(0..10_000u64, 0..20),
        ) {
            let mut positions = Positions::new(Lsn(opened));
            let (mut own, mut log, mut places) = (opened, opened, Vec::new());
            for (count, of_others) in bursts {
                log += of_others;
                for _ in 0..count {
                    (own, log) = (own + 1, log + 1);
                    places.push((Lsn(own), Lsn(log)));
                }
                positions.appended(count, Lsn(log));
                let ends = |(_, place): &&(Lsn, Lsn)| place.0 == log;
                prop_assert_eq!(positions.on_durable(Lsn(log - 1)), None);
                let last = places.iter().find(ends).map(|(own, _)| *own);
                prop_assert_eq!(positions.on_durable(Lsn(log)), last);
            }
            let mut asks: Vec<u64> = asks.into_iter().map(|ask| ask % own).collect();
            asks.sort_unstable();
            for ask in asks {
                let found = positions.not_after(Lsn(ask)).0;
                let place = places.iter().find(|(own, _)| own.0 == ask);
                let place = place.map_or(ask, |(_, log)| log.0);
                prop_assert!(found <= place, "{found} {place}");
                let slack = MARK_EVERY + 400 + 900;
                prop_assert!(found + slack >= place, "{found} {place}");
                prop_assert!(ask > opened || found == ask);
            }
        }
    }
}
