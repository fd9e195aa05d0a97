//! Whether a number of the paper is reproduced and, where it is not, why.
//!
//! Only ratios are held against each other (and latencies of the same simulated network): heights
//! are of other hardware and of another runtime.

use super::point::{Measure, Point};
use super::sheet::peak;

/// As near as this, by ratio, counts as reproduced: the paper's own two measures of one run are
/// often as far apart.
const NEAR: f64 = 1.2;

/// Says whether ours is the paper's; `why_not` goes on where it is not.
pub(crate) fn verdict(ours: f64, theirs: f64, why_not: &str) -> String {
    match (1.0 / NEAR..=NEAR).contains(&(ours / theirs)) {
        true => "reproduced within 20 %".to_owned(),
        false => format!("NOT reproduced: {why_not}"),
    }
}

/// Whether what was aimed at is reached.
pub(crate) fn met(reached: bool) -> &'static str {
    if reached { "reached" } else { "NOT reached" }
}

/// What compartmentalization gains over the protocol as published, beside what it gained in the
/// paper by that measure.
pub(crate) fn of_gain(
    points: &[Point],
    published: &str,
    compartmentalized: &str,
    paper: Measure,
) -> Option<String> {
    let of = |series, measure| peak(points, series, measure);
    let gain = |measure| Some(of(compartmentalized, measure)? / of(published, measure)?);
    let (ours, theirs) = (gain(Measure::Projected)?, gain(paper)?);
    let bottleneck = bottleneck(points, compartmentalized)?;
    let spread = match bottleneck {
        "replica" => {
            ", and executing each command on every replica is what cannot be spread over more machines"
        }
        _ => "",
    };
    let why_not = format!(
        "the bottleneck of the compartmentalized deployment, {bottleneck}, spends {:.2} us on a command, {:.0} % of the {:.2} us \
         that a node as published spends on all of its roles; in the paper's prototype it was {:.0} % at most{spread}",
        1e6 / of(compartmentalized, Measure::Projected)?,
        100.0 / ours,
        1e6 / of(published, Measure::Projected)?,
        100.0 / theirs,
    );
    Some(verdict(ours, theirs, &why_not))
}

/// The projected bottleneck of a series.
pub(crate) fn bottleneck<'a>(points: &'a [Point], series: &str) -> Option<&'a str> {
    let is_it = |point: &&Point| point.series == series && point.measure == Measure::Projected;
    points.iter().find(is_it)?.bottleneck.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_a_fifth_either_way_and_a_reason_stands_where_it_is_farther() {
        assert_eq!(verdict(1.2, 1.0, "why"), "reproduced within 20 %");
        assert_eq!(verdict(5.0, 6.0, "why"), "reproduced within 20 %");
        assert_eq!(verdict(4.9, 6.0, "why"), "NOT reproduced: why");
        assert_eq!(verdict(1.3, 1.0, "why"), "NOT reproduced: why");
    }

    #[test]
    fn a_gain_names_what_bounds_it() {
        let projected = |series, peak, bottleneck: &str| Point {
            bottleneck: Some(bottleneck.to_owned()),
            ..Point::new(series, Measure::Projected, peak)
        };
        let mut points = vec![
            projected("a", 5e5, "a whole node (n0)"),
            projected("b", 2e6, "replica"),
        ];
        assert_eq!(
            of_gain(&points, "a", "b", Measure::Published),
            None,
            "the paper says nothing"
        );
        points.extend(
            [("a", 1e4), ("b", 1e5)]
                .map(|(series, peak)| Point::new(series, Measure::Published, peak)),
        );
        let said = of_gain(&points, "a", "b", Measure::Published).unwrap();
        assert!(
            said.contains("replica, spends 0.50 us on a command, 25 % of the 2.00 us"),
            "{said}"
        );
        assert!(
            said.contains("it was 10 % at most, and executing"),
            "{said}"
        );
    }
}
