//! Counts the work of commands in tests: elements that are looked at, and each 64 bytes that are
//! copied, count one step. Outside of tests nothing is counted.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
pub(super) fn count(_steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + _steps as u64);
}

/// This many bytes are copied.
#[inline(always)]
pub(super) fn copy(bytes: usize) {
    count(bytes / 64);
}

/// The steps since the last call.
#[cfg(test)]
pub(super) fn take() -> u64 {
    STEPS.replace(0)
}
