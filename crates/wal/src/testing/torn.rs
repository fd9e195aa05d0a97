//! A defect that tests build in, to see that it is caught: recovery takes torn records for whole
//! ones.

use std::cell::Cell;

thread_local! {
    static ACCEPTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with the defect: on this thread, recovery does not look at the checksums of records.
pub fn accepting_torn_records<T>(work: impl FnOnce() -> T) -> T {
    ACCEPTED.set(true);
    let done = work();
    ACCEPTED.set(false);
    done
}

pub(crate) fn torn_records_are_accepted() -> bool {
    ACCEPTED.get()
}
