//! What clients will ask of a cluster.

use crate::prices::{Commands, Corner};
use anyhow::{Result, ensure};
use ionian_kernel::client::ReadLevel;

/// The largest value in bytes that prices are extended to.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// The largest number of commands a second.
const MAX_RATE: f64 = 1e9;

/// What clients ask: how many commands a second, and how they are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Writes a second.
    pub writes: f64,
    /// Reads a second.
    pub reads: f64,
    /// How fresh reads must be.
    pub level: ReadLevel,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Commands that a connection sends at once.
    pub pipeline: usize,
    /// Connections that wait for an answer at a time, of all clients.
    pub connections: usize,
}

impl Workload {
    /// Checks that a plan can be made for it.
    ///
    /// # Errors
    /// Names what is not as it must be.
    pub fn check(&self) -> Result<()> {
        for (name, rate) in [("writes", self.writes), ("reads", self.reads)] {
            ensure!(
                (0.0..=MAX_RATE).contains(&rate),
                "{name} = {}: must be 0 to {MAX_RATE:.0} a second",
                short(rate)
            );
        }
        ensure!(
            self.all() > 0.0,
            "0 commands a second: writes or reads must be above 0"
        );
        ensure!(
            (1..=MAX_VALUE_BYTES).contains(&self.value_bytes),
            "values of {} bytes: must be 1 to {MAX_VALUE_BYTES}",
            self.value_bytes
        );
        ensure!(
            (1..=10_000).contains(&self.pipeline),
            "a pipeline of {}: must be 1 to 10000",
            self.pipeline
        );
        ensure!(
            (1..=1_000_000).contains(&self.connections),
            "{} connections: must be 1 to 1000000",
            self.connections
        );
        Ok(())
    }

    /// Commands a second.
    pub fn all(&self) -> f64 {
        self.writes + self.reads
    }

    /// The kinds of commands that there are, and how many a second.
    pub fn kinds(&self) -> Vec<(Commands, f64)> {
        let kinds = [
            (Commands::Writes, self.writes),
            (Commands::reads(self.level), self.reads),
        ];
        kinds.into_iter().filter(|(_, rate)| *rate > 0.0).collect()
    }

    /// What a command costs, from what it costs at each corner that differs from the first:
    /// linear in the bytes of a value, and in the reciprocal of the pipeline.
    pub(crate) fn between(&self, at: impl Fn(Corner) -> f64) -> f64 {
        let small = at(Corner::SMALL);
        let mut us = small;
        if self.pipeline > 1 {
            let most = Corner::PIPELINED.pipeline as f64;
            let pipelined = at(Corner::PIPELINED) / most;
            let of_request = ((small - pipelined) / (1.0 - 1.0 / most)).clamp(0.0, small);
            us = small - of_request * (1.0 - 1.0 / self.pipeline as f64);
        }
        if self.value_bytes > Corner::SMALL.value_bytes {
            let span = (Corner::LARGE.value_bytes - Corner::SMALL.value_bytes) as f64;
            let byte = ((at(Corner::LARGE) - small) / span).max(0.0);
            us += byte * (self.value_bytes - Corner::SMALL.value_bytes) as f64;
        }
        us
    }
}

/// A number without hundreds of digits.
pub(crate) fn short(number: f64) -> String {
    let size = number.abs();
    match size == 0.0 || (1e-6..1e15).contains(&size) || !size.is_finite() {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_refused_are_short() {
        let texts = [-1.0, 0.0, 2.5e9, 1e300, -1e-300, f64::NAN].map(short);
        let expected = ["-1", "0", "2500000000", "1e300", "-1e-300", "NaN"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn costs_lie_on_the_lines_through_the_corners() {
        let workload = |value_bytes, pipeline| Workload {
            writes: 1.0,
            reads: 0.0,
            level: ReadLevel::Linearizable,
            value_bytes,
            pipeline,
            connections: 64,
        };
        // A request with one command costs 5 us, one with 16 costs 4 + 16: 4 for the request. A
        // kilobyte more costs 2 us.
        let at = |corner: Corner| match corner {
            Corner::SMALL => 5.0,
            Corner::LARGE => 7.0,
            _ => 20.0,
        };
        let us = |bytes, pipeline| workload(bytes, pipeline).between(at);
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        assert!(near(us(16, 1), 5.0) && near(us(1, 1), 5.0));
        assert!(near(us(1024, 1), 7.0) && near(us(2032, 1), 9.0));
        assert!(near(us(16, 16), 1.25) && near(us(16, 4), 2.0));
        assert!(near(us(1024, 4), 4.0));
    }
}
