//! The commands of this gateway that took long, for SLOWLOG.
//!
//! Like Redis, it shows the time of a command. That is here the time that a client has waited,
//! replication included. Unlike Redis it keeps no arguments, only their number: they may be secret,
//! and would have to be copied for every command.

use crate::traces::Kept;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// The number of entries. The oldest makes room: the default of Redis's `slowlog-max-len`.
pub(crate) const ENTRIES: usize = 128;

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) at: SystemTime,
    pub(crate) took: Duration,
    pub(crate) name: &'static str,
    /// The number of arguments after the name.
    pub(crate) arguments: usize,
    pub(crate) address: String,
    pub(crate) client: Vec<u8>,
    /// What its time consists of.
    pub(crate) kept: Kept,
}

/// See the top of this file.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: RefCell<VecDeque<Slow>>,
    next_id: Cell<u64>,
}

impl SlowLog {
    /// Adds a command; its id is set here.
    pub(crate) fn add(&self, slow: Slow) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() == ENTRIES {
            entries.pop_back();
        }
        let id = self.next_id.replace(self.next_id.get() + 1);
        entries.push_front(Slow { id, ..slow });
    }

    /// The reply of the command with this number is written.
    pub(crate) fn on_written(&self, id: u64, at: Instant) {
        let mut entries = self.entries.borrow_mut();
        entries
            .iter_mut()
            .for_each(|slow| slow.kept.on_written(id, at));
    }

    /// The newest entries first.
    pub(crate) fn newest(&self, count: usize) -> Vec<Slow> {
        self.entries.borrow().iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    pub(crate) fn clear(&self) {
        self.entries.borrow_mut().clear();
    }
}
