//! When a role that executes commands stores its next snapshot.

/// A snapshot is stored after this many bytes of commands, `snapshot_slots` slots, or
/// [`SNAPSHOT_WORK`], whichever comes first.
const SNAPSHOT_BYTES: usize = 64 << 20;

/// The [steps of work](ionian_kernel::machine::StateMachine::work) after which a snapshot is
/// stored: a second or a few, which a restart would take again.
const SNAPSHOT_WORK: u64 = 1 << 24;

/// What was executed since the last snapshot was begun.
#[derive(Default)]
pub(crate) struct SinceSnapshot {
    bytes: usize,
    /// The work of the machine until then.
    work: u64,
}

impl SinceSnapshot {
    /// Commands of this many bytes were executed.
    pub(crate) fn executed(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// A snapshot is begun, when the machine has done so much work.
    pub(crate) fn begin(&mut self, work: u64) {
        *self = SinceSnapshot { bytes: 0, work };
    }

    /// The one that was begun has found no room: another one is due.
    pub(crate) fn refused(&mut self) {
        self.bytes = SNAPSHOT_BYTES;
    }

    /// Whether enough was executed for the next one: this many of `snapshot_slots` slots, and the
    /// machine has done so much work.
    pub(crate) fn is_enough(&self, slots: u64, snapshot_slots: usize, work: u64) -> bool {
        let enough = slots >= snapshot_slots as u64
            || self.bytes >= SNAPSHOT_BYTES
            || work.saturating_sub(self.work) >= SNAPSHOT_WORK;
        enough && slots > 0
    }
}
