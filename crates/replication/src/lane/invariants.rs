//! What holds of a lane at any time.

use super::Lane;
use alloc::collections::VecDeque;

impl Lane {
    /// Asserts that the lane stays within what sessions allow.
    pub fn invariants(&self) {
        self.writes.invariants();
        let bytes = |sent: bool| {
            let writes = self
                .writes
                .iter()
                .filter(move |pending| pending.sent == sent);
            writes.map(|pending| pending.payload.len())
        };
        assert_eq!(
            self.window.bytes(),
            bytes(true).sum(),
            "a lane lost count of what is under way"
        );
        let waiting = self.waiting.iter().map(VecDeque::len).sum::<usize>();
        assert!(
            waiting >= bytes(false).count(),
            "a write waits that is not queued"
        );
    }
}
