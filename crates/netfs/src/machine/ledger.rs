//! Which changes of a mount were executed, so that a copy of one changes nothing.
//!
//! A mount numbers its changes 1, 2, 3..., and sends one again, with the same number, if it does
//! not know whether it was executed: because the connection broke, or because the node did not
//! answer. Each change names a *floor*: the mount waits for no change with a smaller number any
//! more, be it answered or given up. The ledger keeps the floor and what was answered above it. So
//!
//! - a copy of an executed change gets the answer of the first;
//! - a copy that is late, below the floor, is refused: no client waits for it;
//! - at most [`WINDOW`] answers are kept, because a number beyond the window is refused.
//!
//! A change that was given up (the caller got EIO) may be executed later, until a change with a
//! larger floor is executed; never after that. So an application that got EIO and then a success
//! will not see the former overtake the latter if they are in one ledger.
//!
//! There is a ledger for each mount; and one for each file that a mount holds, which has the writes
//! to it: two mounts, and two files, share nothing, and writes to different files can be executed
//! in parallel.

use crate::errno::Errno;
use crate::wire::Stamp;
use std::collections::BTreeMap;

/// How many numbers a mount may be ahead of its floor.
pub const WINDOW: u64 = 128;

/// See the top of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger<T> {
    pub(super) floor: u64,
    /// The answers to changes whose number is not below the floor.
    pub(super) answers: BTreeMap<u64, T>,
}

/// What a change is, by its number.
pub(super) enum Standing<'a, T> {
    /// It was not executed.
    New,
    /// It was executed, with this answer.
    Done(&'a T),
}

impl<T> Ledger<T> {
    /// One that refuses numbers below `floor`.
    pub(super) fn from_floor(floor: u64) -> Self {
        Ledger {
            floor,
            answers: BTreeMap::new(),
        }
    }

    /// Looks the change up.
    ///
    /// # Errors
    /// [`Errno::SETTLED`] below the floor; `EINVAL` beyond the window, or if the change is below
    /// its own floor.
    pub(super) fn look_up(&self, stamp: Stamp) -> Result<Standing<'_, T>, Errno> {
        if stamp.number < self.floor {
            return Err(Errno::SETTLED);
        }
        let floor = self.floor.max(stamp.floor);
        if stamp.number < stamp.floor || stamp.number - floor >= WINDOW {
            return Err(Errno::EINVAL);
        }
        let answer = self.answers.get(&stamp.number);
        Ok(answer.map_or(Standing::New, Standing::Done))
    }

    /// Keeps the answer to a new change, and drops those that no client waits for.
    pub(super) fn record(&mut self, stamp: Stamp, answer: T) {
        self.floor = self.floor.max(stamp.floor);
        self.answers.insert(stamp.number, answer);
        self.answers = self.answers.split_off(&self.floor);
    }
}
