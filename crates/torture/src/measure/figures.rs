//! Percentiles, and what this machine is.

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
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{count} processors, {}", model.map_or("of an unknown kind", |(_, model)| model.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_ends() {
        let mut values: Vec<u32> = (0..=100).rev().collect();
        assert_eq!([0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&mut values, percent)), [0, 50, 99, 100]);
        assert_eq!(percentile(&mut [], 50.0), 0);
    }
}
