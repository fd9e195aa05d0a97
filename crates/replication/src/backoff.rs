//! Waits that grow with each attempt: what is not answered is asked for less and less often.

use ionian_kernel::time::Duration;

/// The wait after this many attempts before: `first`, and twice as long after each of them, up to
/// `doublings` times.
#[inline]
pub fn doubled(first: Duration, attempts: u32, doublings: u32) -> Duration {
    first * (1 << attempts.min(doublings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_wait_doubles_up_to_a_limit() {
        let wait = |attempts| doubled(Duration::from_millis(10), attempts, 3).as_millis();
        let waits: Vec<u128> = [0, 1, 2, 3, 4, u32::MAX].map(wait).into();
        assert_eq!(waits, [10, 20, 40, 80, 80, 80]);
    }
}
