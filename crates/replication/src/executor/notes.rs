//! What a protocol notes in its log for itself: a command of the purpose
//! [`Internal`](crate::batch::Purpose::Internal) with a payload replaces what was noted before. An
//! executor that keeps notes has the last one at each replica after the same slot, and with it its
//! pictures begin: so a replica that goes on from a snapshot, its own or a peer's, knows it too.

use super::Executor;
use bytes::Bytes;

impl Executor {
    /// Keeps what the protocol notes from now on.
    pub fn keep_notes(&mut self) {
        self.keeps_notes = true;
    }

    /// What was noted last, in the log or in the picture that it was restored from.
    pub fn note(&self) -> Option<&Bytes> {
        self.preamble.as_ref().filter(|_| self.keeps_notes)
    }

    pub(super) fn take_note(&mut self, payload: &[u8]) {
        if self.keeps_notes && !payload.is_empty() {
            self.preamble = Some(Bytes::copy_from_slice(payload));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Command, Purpose, Value};
    use alloc::boxed::Box;
    use core::time::Duration;
    use ionian_kernel::id::{ClientId, Slot};
    use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
    use ionian_kernel::time::Timestamp;

    struct Nothing;

    impl StateMachine for Nothing {
        fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut alloc::vec::Vec<u8>) {}
        fn read(
            &self,
            _: Timestamp,
            _: &[u8],
            _: &mut alloc::vec::Vec<u8>,
        ) -> Result<(), NotARead> {
            Ok(())
        }
        fn snapshot(&self, _: &mut alloc::vec::Vec<u8>) {}
        fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }
    }

    fn executor() -> Executor {
        Executor::new(Box::new(Nothing), Duration::from_secs(60))
    }

    fn write(executor: &mut Executor, note: &'static [u8]) {
        let batch = Batch::one(&Command {
            client: ClientId(0),
            purpose: Purpose::Internal,
            number: 0,
            floor: 0,
            payload: Bytes::from_static(note),
        });
        let stamp = Timestamp(1);
        executor.execute(Slot(0), &Value { stamp, batch }, None);
    }

    #[test]
    fn the_last_note_goes_with_every_picture() {
        let mut one = executor();
        one.keep_notes();
        for note in [b"first", &b"last"[..], b""] {
            write(&mut one, note);
        }
        assert_eq!(one.note().map(|note| &note[..]), Some(&b"last"[..]));
        let mut other = executor();
        other.keep_notes();
        other.restore(&one.snapshot()).unwrap();
        assert_eq!(other.note(), one.note());
        assert_eq!(other.snapshot(), one.snapshot());
    }

    #[test]
    fn an_executor_that_keeps_none_has_pictures_as_before() {
        let (mut one, mut other) = (executor(), executor());
        write(&mut one, b"note");
        write(&mut other, b"");
        assert_eq!(one.note(), None);
        assert_eq!(one.snapshot(), other.snapshot());
    }
}
