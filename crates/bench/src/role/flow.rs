//! How much is under way between the bench and the role that is measured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A closed loop: a limited number of commands is in flight, whichever role begins them and sees
/// them done. All parts run on one thread; the atomics only make it shareable.
pub(crate) struct Flow {
    window: u64,
    begun: AtomicU64,
    done: AtomicU64,
    /// Slots are taken from here.
    next_slot: AtomicU64,
    /// Every slot below this one is done.
    executed: AtomicU64,
    /// The round of the leader; 0 while there is none.
    round: AtomicU64,
}

impl Flow {
    pub(crate) fn new(window: u64) -> Self {
        Flow {
            window,
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            next_slot: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            round: AtomicU64::new(0),
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Begins as many messages of `each` commands as there is room for; returns how many.
    pub(crate) fn begin(&self, each: u64) -> u64 {
        let under_way = self
            .begun
            .load(Relaxed)
            .saturating_sub(self.done.load(Relaxed));
        let messages = self.window.saturating_sub(under_way) / each;
        self.begun.fetch_add(messages * each, Relaxed);
        messages
    }

    /// What was begun before the connections stood was lost, and is not waited for.
    pub(crate) fn forget_lost(&self) {
        self.begun.store(self.done.load(Relaxed), Relaxed);
    }

    /// This number of commands is done.
    pub(crate) fn finish(&self, commands: u64) {
        self.done.fetch_add(commands, Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    pub(crate) fn take_slot(&self) -> u64 {
        self.next_slot.fetch_add(1, Relaxed)
    }

    pub(crate) fn slots_taken(&self) -> u64 {
        self.next_slot.load(Relaxed)
    }

    pub(crate) fn reach(&self, executed: u64) {
        self.executed.fetch_max(executed, Relaxed);
    }

    pub(crate) fn executed(&self) -> u64 {
        self.executed.load(Relaxed)
    }

    pub(crate) fn set_round(&self, round: u64) {
        self.round.store(round, Relaxed);
    }

    /// The leader's round, once there is one.
    pub(crate) fn round(&self) -> Option<u64> {
        Some(self.round.load(Relaxed)).filter(|round| *round > 0)
    }
}
