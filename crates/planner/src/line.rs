//! Costs that grow with the number of bytes or of commands.

use serde::{Deserialize, Serialize};

/// A cost in microseconds of processor time: a part for each call or message, and a part for each
/// unit (byte or command) in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Microseconds for each call or message.
    pub fixed_us: f64,
    /// Microseconds for each unit.
    pub unit_us: f64,
}

impl Line {
    /// Through two points of units and microseconds; neither part is below zero.
    pub fn through((units, us): (f64, f64), (more_units, more_us): (f64, f64)) -> Self {
        let slope = (more_us - us) / (more_units - units);
        let unit_us = slope.clamp(0.0, more_us / more_units);
        Line {
            // Rounding could take it below zero.
            fixed_us: (more_us - unit_us * more_units).max(0.0),
            unit_us,
        }
    }

    /// The same cost whatever the size.
    pub fn fixed(us: f64) -> Self {
        Line {
            fixed_us: us,
            unit_us: 0.0,
        }
    }

    /// This many times as much.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Line {
            fixed_us: self.fixed_us * factor,
            unit_us: self.unit_us * factor,
        }
    }

    /// Microseconds for this many calls with this many units together.
    pub fn us(&self, calls: f64, units: f64) -> f64 {
        calls * self.fixed_us + units * self.unit_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_both_points_and_not_below_zero() {
        let line = Line::through((10.0, 2.0), (110.0, 3.0));
        assert!(
            (line.us(1.0, 10.0) - 2.0).abs() < 1e-9 && (line.us(1.0, 110.0) - 3.0).abs() < 1e-9
        );
        assert!((line.us(2.0, 100.0) - (2.0 * 1.9 + 1.0)).abs() < 1e-9);
        let falling = Line::through((10.0, 2.0), (110.0, 1.0));
        assert_eq!((falling.fixed_us, falling.unit_us), (1.0, 0.0));
        let steep = Line::through((10.0, 0.0), (110.0, 1.0));
        assert!(steep.fixed_us.abs() < 1e-9 && (steep.us(1.0, 110.0) - 1.0).abs() < 1e-9);
    }
}
