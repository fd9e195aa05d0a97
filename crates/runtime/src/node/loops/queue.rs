//! Bounds what is on its way between the main loop and a role loop.
//!
//! The main loop never waits for a role loop, so neither can wait for the other in a circle:
//!
//! - A role loop waits while the main loop has not taken in [`MAX_BURSTS`] of its bursts. A burst
//!   follows from a bounded number of inputs ([`MAX_TAKEN`]), and each of them leads to a bounded
//!   number of messages, because the windows and batches of roles are bounded.
//! - Readers of connections wait while a role loop has not taken in [`MAX_MESSAGES`] or
//!   [`MAX_BYTES`]; then messages wait with the sender. A reader looks after each mebibyte, so that
//!   much more can be added for each connection, and what the roles of the main loop send, within
//!   their windows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// This many bursts of a role loop may wait for the main loop.
const MAX_BURSTS: usize = 16;

/// A role loop takes in this many messages at most before it hands over what they have led to.
pub(super) const MAX_TAKEN: usize = 1 << 13;

/// How many messages may wait for a role loop.
const MAX_MESSAGES: usize = 1 << 16;

/// How many bytes of messages from other nodes may wait for a role loop, as they were encoded.
const MAX_BYTES: usize = 32 << 20;

/// What is on its way between the main loop and one role loop.
#[derive(Default)]
pub(super) struct Queue {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    bursts: AtomicUsize,
    /// Readers wait until there is room.
    is_wanted: AtomicBool,
    /// The main loop has ended, or ends.
    is_closed: AtomicBool,
}

impl Queue {
    /// The main loop passes messages.
    pub(super) fn put(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The role loop has taken messages in. Returns whether readers wait for that.
    pub(super) fn taken(&self, messages: usize, bytes: usize) -> bool {
        self.messages.fetch_sub(messages, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.is_wanted.load(Ordering::SeqCst)
    }

    pub(super) fn is_full(&self) -> bool {
        let messages = self.messages.load(Ordering::SeqCst);
        messages >= MAX_MESSAGES || self.bytes.load(Ordering::SeqCst) >= MAX_BYTES
    }

    /// Whether a reader must wait. The role loop then wakes the main loop when it has taken
    /// something in.
    pub(super) fn must_wait(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        self.is_wanted.store(true, Ordering::SeqCst);
        // It may have taken everything in before it could see that it is wanted.
        self.is_full()
    }

    /// Readers do not wait any more.
    pub(super) fn is_waited_for(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn stop_waiting(&self) {
        self.is_wanted.store(false, Ordering::SeqCst);
    }

    /// The role loop hands a burst over.
    pub(super) fn put_burst(&self) {
        self.bursts.fetch_add(1, Ordering::SeqCst);
    }

    /// The main loop has taken a burst. Returns whether the role loop may wait for that.
    pub(super) fn burst_taken(&self) -> bool {
        self.bursts.fetch_sub(1, Ordering::SeqCst) == MAX_BURSTS
    }

    pub(super) fn has_too_many_bursts(&self) -> bool {
        self.bursts.load(Ordering::SeqCst) >= MAX_BURSTS
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_waits_while_too_many_messages_or_bytes_wait_for_a_role_loop() {
        let queue = Queue::default();
        queue.put(MAX_MESSAGES - 1, MAX_BYTES - 1);
        assert!(!queue.must_wait() && !queue.is_waited_for());
        queue.put(1, 0);
        assert!(queue.must_wait() && queue.is_waited_for());
        assert!(queue.taken(1, 0), "the main loop is to be woken");
        assert!(!queue.must_wait());
        queue.stop_waiting();
        queue.put(0, 1);
        assert!(queue.must_wait());
    }

    #[test]
    fn a_role_loop_waits_when_its_bursts_are_not_taken_and_is_woken_by_the_next_one() {
        let queue = Queue::default();
        (1..MAX_BURSTS).for_each(|_| queue.put_burst());
        assert!(!queue.has_too_many_bursts());
        queue.put_burst();
        assert!(queue.has_too_many_bursts());
        assert!(queue.burst_taken() && !queue.has_too_many_bursts());
        assert!(!queue.burst_taken(), "it does not wait");
    }
}
