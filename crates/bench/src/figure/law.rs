//! Figure 33: n replicas, each of which does a commands a second, can do n a / (n f_w + f_r), where
//! f_w of the commands are writes, which all replicas execute, and f_r are reads, which one does
//! (section 8.5).

use super::drawing::panel::Look;
use super::point::{Measure, Point, short};
use super::reads::{READ_FRACTIONS, REPLICAS, curve, fitting, name, panel, replica_us};
use super::sheet::{Basis, Sheet};
use super::simulate::Bench;
use crate::model::Workload;
use anyhow::Result;
use ionian_kernel::client::ReadLevel;

/// What the paper draws its figure for.
const PAPER: f64 = 100_000.0;
const THEIRS: &str = ", a = 100,000";

/// Figure 33.
pub(super) fn replicas(bench: &Bench) -> Result<Sheet> {
    let mut points = Vec::new();
    for fraction in READ_FRACTIONS {
        let workload = Workload {
            read_fraction: fraction,
            read_level: ReadLevel::Linearizable,
            ..Workload::writes(1)
        };
        for replicas in bench.some(&REPLICAS) {
            let deployment = fitting(bench, replicas, &workload, &[])?;
            let point = bench.project(&name(fraction), &deployment, &workload, &[])?;
            points.push(Point {
                replicas: Some(replicas),
                ..point
            });
        }
    }
    let alpha = fitted(&points);
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for (colour, fraction) in READ_FRACTIONS.into_iter().enumerate() {
        let series = name(fraction);
        let paper = format!("{series}{THEIRS}");
        for replicas in REPLICAS {
            let at = |series: &str, alpha| Point {
                replicas: Some(replicas),
                read_fraction: (fraction > 0.0).then_some(fraction),
                ..Point::new(series, Measure::Law, law(replicas as f64, fraction, alpha))
            };
            points.push(at(&series, alpha));
            points.push(at(&paper, PAPER));
        }
        ours.push(curve(
            &format!("{series}, law"),
            colour,
            Look::Solid,
            &points,
            &series,
            Measure::Law,
        ));
        ours.push(curve(
            &format!("{series}, projected"),
            colour,
            Look::Dots,
            &points,
            &series,
            Measure::Projected,
        ));
        theirs.push(curve(
            &series,
            colour,
            Look::Solid,
            &points,
            &paper,
            Measure::Law,
        ));
    }
    Ok(Sheet {
        title: "what n replicas can do: n a / (n f_w + f_r) (ours projected)".to_owned(),
        basis: Basis::Measured,
        findings: findings(&points, alpha, replica_us(bench, 1)?),
        notes: vec![
            "The law knows one cost, a, for reads and writes alike, and no leader; ours is fitted to the projections \
             at 60, 90 and 100 % reads. Without reads the leader may be the bottleneck, which the law does not know."
                .to_owned(),
        ],
        points,
        panels: vec![panel("The paper: the law for a = 100,000", theirs), panel("Ionian: law and projection", ours)],
    })
}

fn law(replicas: f64, read_fraction: f64, alpha: f64) -> f64 {
    replicas * alpha / (replicas * (1.0 - read_fraction) + read_fraction)
}

/// Our points of this part of reads.
fn projected(points: &[Point], fraction: f64) -> impl Iterator<Item = (f64, f64)> {
    let series = name(fraction);
    let of = points
        .iter()
        .filter(move |point| point.series == series && point.measure == Measure::Projected);
    of.filter_map(|point| Some((point.replicas? as f64, point.commands_per_second)))
}

/// The a that brings the law nearest to our points with reads, by ratios: the geometric mean of
/// what each says.
fn fitted(points: &[Point]) -> f64 {
    let says = READ_FRACTIONS[1..].iter().flat_map(|fraction| {
        projected(points, *fraction)
            .map(|(replicas, throughput)| throughput / law(replicas, *fraction, 1.0))
    });
    let (sum, count) = says.fold((0.0, 0.0), |(sum, count), alpha: f64| {
        (sum + alpha.ln(), count + 1.0)
    });
    (sum / count).exp()
}

/// How well a straight line goes through the points: 1 when exactly.
fn r_squared(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let moments = points.iter().fold((0.0, 0.0, 0.0), |(xx, xy, yy), (a, b)| {
        (
            xx + (a - x) * (a - x),
            xy + (a - x) * (b - y),
            yy + (b - y) * (b - y),
        )
    });
    moments.1 * moments.1 / (moments.0 * moments.2)
}

fn findings(points: &[Point], alpha: f64, (write_us, read_us): (f64, f64)) -> Vec<String> {
    let mut findings = vec![format!(
        "a = {} commands/s for each of our replicas (the paper draws 100,000).",
        short(alpha)
    )];
    for fraction in &READ_FRACTIONS[1..] {
        let off = projected(points, *fraction)
            .map(|(replicas, throughput)| throughput / law(replicas, *fraction, alpha) - 1.0)
            .max_by(|one, other| one.abs().total_cmp(&other.abs()));
        if let Some(off) = off {
            let (within, why_not) = match off.abs() <= 0.1 {
                true => ("within 10 %", String::new()),
                false => (
                    "NOT within 10 %",
                    format!(
                        ": a write costs a replica {write_us:.2} us and a read {read_us:.2} us, and the law has one price"
                    ),
                ),
            };
            findings.push(format!(
                "{}: our projection follows the law {within}; farthest off by {:+.1} %{why_not}.",
                name(*fraction),
                off * 100.0
            ));
        }
    }
    let reads: Vec<_> = projected(points, 1.0).collect();
    findings.push(format!(
        "Reads alone grow linearly with replicas: R² = {:.5}.",
        r_squared(&reads)
    ));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_is_the_papers() {
        // Writes alone do not scale; reads alone do; half of each is bounded by twice a.
        assert_eq!((law(2.0, 0.0, 5.0), law(6.0, 0.0, 5.0)), (5.0, 5.0));
        assert_eq!((law(2.0, 1.0, 5.0), law(6.0, 1.0, 5.0)), (10.0, 30.0));
        assert!((law(1e9, 0.5, 5.0) - 10.0).abs() < 1e-6);
        // 6 x 100,000 / (6 x 0.1 + 0.9)
        assert!((law(6.0, 0.9, PAPER) - 400_000.0).abs() < 1e-6);
    }

    #[test]
    fn what_follows_the_law_is_found_to() {
        let points: Vec<Point> = READ_FRACTIONS
            .into_iter()
            .flat_map(|fraction| {
                REPLICAS.map(|replicas| Point {
                    replicas: Some(replicas),
                    ..Point::new(
                        &name(fraction),
                        Measure::Projected,
                        law(replicas as f64, fraction, 7.0),
                    )
                })
            })
            .collect();
        assert!((fitted(&points) - 7.0).abs() < 1e-9);
        assert!((r_squared(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]) - 1.0).abs() < 1e-12);
        assert!(r_squared(&[(1.0, 2.0), (2.0, 4.0), (3.0, 2.0)]) < 0.01);
        let findings = findings(&points, 5.0, (2.0, 1.0));
        assert!(
            findings[1].contains("NOT within 10 %; farthest off by +40.0 %"),
            "{findings:?}"
        );
    }
}
