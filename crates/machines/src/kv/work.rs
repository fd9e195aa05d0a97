//! Counts the work of commands in tests: elements that are looked at, and each 128 bytes that are
//! copied, count one step; a comparison with a part of a pattern, or a key that has expired and is
//! passed over, counts an eighth. Outside of tests nothing is counted.

#[cfg(test)]
thread_local! {
    static EIGHTHS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
pub(super) fn count(steps: usize) {
    glance(8 * steps);
}

/// Looks at something for an eighth of a step.
#[inline(always)]
pub(super) fn glance(_eighths: usize) {
    #[cfg(test)]
    EIGHTHS.set(EIGHTHS.get() + _eighths as u64);
}

/// This many bytes are copied.
#[inline(always)]
pub(super) fn copy(bytes: usize) {
    count(bytes / super::budget::PIECE as usize);
}

/// The eighths of steps since the last call.
#[cfg(test)]
pub(super) fn take() -> u64 {
    EIGHTHS.replace(0)
}
