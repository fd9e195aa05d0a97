//! Percentiles, and what this machine is.

use ionian_harness::host::Machine;

/// The value below which `percent` of a hundred are; 0 of none.
pub(crate) fn percentile(values: &mut [u32], percent: f64) -> u32 {
    if values.is_empty() {
        return 0;
    }
    let place = ((values.len() - 1) as f64 * percent / 100.0).round() as usize;
    *values.select_nth_unstable(place).1
}

/// The processors of this machine.
pub(crate) fn machine() -> String {
    let Machine {
        processors, model, ..
    } = Machine::look();
    format!("{processors} processors, {model}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_ends() {
        let mut values: Vec<u32> = (0..=100).rev().collect();
        assert_eq!(
            [0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&mut values, percent)),
            [0, 50, 99, 100]
        );
        assert_eq!(percentile(&mut [], 50.0), 0);
    }
}
