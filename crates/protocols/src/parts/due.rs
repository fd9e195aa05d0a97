//! When a role that executes commands stores its next snapshot.

/// A snapshot is stored after this many bytes of commands, `snapshot_slots` slots, or
/// [`SNAPSHOT_WORK`], whichever comes first.
const SNAPSHOT_BYTES: u64 = 64 << 20;

/// The [steps of work](ionian_kernel::machine::StateMachine::work) after which a snapshot is
/// stored: a second or a few, which a restart would take again.
const SNAPSHOT_WORK: u64 = 1 << 24;

/// Work calls for a snapshot only after this many times the work that was done while the last one
/// was written, the writing included. A large state takes long to write, and long to read at a
/// restart: short commands do not make all replicas write it all the time.
const WRITTEN_ONCE_IN: u64 = 4;

/// What was executed since the last snapshot was begun.
#[derive(Default)]
pub(crate) struct SinceSnapshot {
    /// Bytes of commands that were executed since the process started.
    bytes: u64,
    /// The part of them that was executed when that snapshot was begun.
    before: u64,
    /// The work that the machine had done by then.
    work: u64,
    /// The least work that calls for the next snapshot, if that is more than [`SNAPSHOT_WORK`].
    paced: u64,
    /// Another one is due, because of the room on the disk.
    refused: bool,
}

impl SinceSnapshot {
    /// Commands of this many bytes were executed.
    pub(crate) fn executed(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Commands of this many bytes were executed since the process started.
    pub(crate) fn executed_in_all(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// The bytes of the commands that were executed since the process started.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A snapshot is begun, when the machine has done so much work.
    pub(crate) fn begin(&mut self, work: u64) {
        (self.before, self.work, self.refused) = (self.bytes, work, false);
    }

    /// The one that was begun is on disk, when the machine has done so much work.
    pub(crate) fn stored(&mut self, work: u64) {
        self.paced = WRITTEN_ONCE_IN * work.saturating_sub(self.work);
    }

    /// The one that was begun has found no room, or the log has none: another one is due.
    pub(crate) fn refused(&mut self) {
        self.refused = true;
    }

    /// Whether enough was executed for the next one: this many of `snapshot_slots` slots, and the
    /// machine has done so much work.
    pub(crate) fn is_enough(&self, slots: u64, snapshot_slots: usize, work: u64) -> bool {
        let enough = slots >= snapshot_slots as u64
            || self.refused
            || self.bytes - self.before >= SNAPSHOT_BYTES
            || work.checked_sub(self.work).unwrap_or(work) >= SNAPSHOT_WORK.max(self.paced);
        enough && slots > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_calls_for_a_snapshot_less_often_the_more_is_done_while_one_is_written() {
        let mut since = SinceSnapshot::default();
        let due = |since: &SinceSnapshot, work| since.is_enough(1, usize::MAX, work);
        assert!(!due(&since, SNAPSHOT_WORK - 1) && due(&since, SNAPSHOT_WORK));
        since.begin(SNAPSHOT_WORK);
        since.stored(SNAPSHOT_WORK + 100);
        assert!(!due(&since, 2 * SNAPSHOT_WORK - 1) && due(&since, 2 * SNAPSHOT_WORK));
        since.begin(0);
        since.stored(SNAPSHOT_WORK);
        let next = WRITTEN_ONCE_IN * SNAPSHOT_WORK;
        assert!(!due(&since, next - 1) && due(&since, next));
        assert!(
            !since.is_enough(0, usize::MAX, next),
            "nothing was executed"
        );
        since.executed(SNAPSHOT_BYTES as usize);
        assert!(due(&since, 0), "bytes are paced by clients");
    }
}
