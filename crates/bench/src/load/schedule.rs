//! The open loop: what is to be begun when, whatever the server does. All times are nanoseconds
//! since the beginning of a round.

/// When each unit (a command, or a pipeline of them) is due. They come at even distances.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    first: f64,
    gap: f64,
    /// Nothing is due from then on.
    end: u64,
    /// The number of the next unit.
    next: u64,
}

impl Schedule {
    /// `units_per_second`, the first at `first`.
    pub(crate) fn new(first: u64, units_per_second: f64, end: u64) -> Self {
        Schedule {
            first: first as f64,
            gap: 1e9 / units_per_second,
            end,
            next: 0,
        }
    }

    /// When the next unit is due, or was; none when all have been taken.
    pub(crate) fn due(&self) -> Option<u64> {
        // From the number and not from the unit before: nothing adds up.
        let due = (self.first + self.next as f64 * self.gap) as u64;
        (due < self.end).then_some(due)
    }

    /// Takes the next unit if it is due; returns when it was.
    pub(crate) fn take(&mut self, now: u64) -> Option<u64> {
        let due = self.due().filter(|due| *due <= now)?;
        self.next += 1;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_due_at_even_distances_however_late_they_are_taken() {
        let mut schedule = Schedule::new(500, 1e6, 5_000);
        assert_eq!((schedule.due(), schedule.take(499)), (Some(500), None));
        assert_eq!(schedule.take(500), Some(500));
        // Late: all that was due meanwhile follows at once.
        assert_eq!(
            [2_900; 4].map(|now| schedule.take(now)),
            [Some(1_500), Some(2_500), None, None]
        );
        assert_eq!(
            [9_999; 4].map(|now| schedule.take(now)),
            [Some(3_500), Some(4_500), None, None]
        );
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn a_rate_that_no_nanosecond_divides_is_kept() {
        let mut schedule = Schedule::new(0, 3e7, 1_000_000_000);
        let taken = std::iter::from_fn(|| schedule.take(u64::MAX)).count();
        assert!(taken.abs_diff(30_000_000) <= 1, "{taken}");
    }
}
