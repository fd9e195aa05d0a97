//! psmr-6: from which part of dependent commands on one thread is better.

use super::super::drawing::panel::{Curve, Look, Marks, Panel};
use super::super::point::{Measure, Point};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::independent::PAPER_SMR;
use super::service::Mix;
use super::{MOST_THREADS, System, notes};
use anyhow::Result;

/// Parts of commands that depend on all others.
const PARTS: [f64; 8] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// The part at which the paper's P-SMR with 8 threads is as fast as its SMR (section VII-E).
const PAPER_BREAK_EVEN: f64 = 0.1;

/// See the top of this file.
pub(in super::super) fn parts(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "the part of the commands that depend on all others (ours projected)",
        notes(bench),
    );
    let systems = [
        (System::Smr, 1),
        (System::SpSmr, 2),
        (System::PSmr, MOST_THREADS),
    ];
    let mut curves = Vec::new();
    for (colour, (system, threads)) in systems.into_iter().enumerate() {
        let mut points = Vec::new();
        for part in bench.some(&PARTS) {
            let point = bench.peak(system, threads, Mix::dependent(part))?;
            points.push(Point {
                dependent: Some(part),
                ..point
            });
        }
        curves.push(Curve {
            name: format!("{}, {threads} threads", system.name()),
            colour,
            look: Look::Solid,
            points: points.iter().filter_map(at).collect(),
        });
        sheet.points.extend(points);
    }
    let (smr, psmr) = (&curves[0].points, &curves[2].points);
    let even = break_even(smr, psmr);
    sheet.points.push(Point {
        dependent: Some(even.unwrap_or(1.0)),
        ..Point::about("P-SMR is as fast as SMR", Measure::Projected)
    });
    let even = even.map_or_else(
        || "is the faster at every part that was measured".to_owned(),
        |part| format!("is as fast as SMR where {:.0} % depend", part * 100.0),
    );
    let all = psmr.last().zip(smr.last());
    let all = all.map_or(f64::NAN, |((_, psmr), (_, smr))| psmr / smr);
    sheet.findings.push(format!(
        "P-SMR with {MOST_THREADS} threads {even} (the paper: {:.0} %); where all depend it is {all:.2}x SMR.",
        PAPER_BREAK_EVEN * 100.0
    ));
    sheet.points.push(Point {
        dependent: Some(PAPER_BREAK_EVEN),
        ..super::published("P-SMR", MOST_THREADS, PAPER_SMR)
    });
    sheet.panels = vec![Panel {
        title: "Ionian".to_owned(),
        x_label: "percent of dependent commands".to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Curves(curves),
    }];
    Ok(sheet)
}

fn at(point: &Point) -> Option<(f64, f64)> {
    Some((point.dependent? * 100.0, point.commands_per_second))
}

/// Where the second falls below the first: between two points time for each command is a line.
fn break_even(one: &[(f64, f64)], other: &[(f64, f64)]) -> Option<f64> {
    let lead: Vec<(f64, f64)> = (one.iter().zip(other))
        .map(|((percent, one), (_, other))| (percent / 100.0, 1.0 / one - 1.0 / other))
        .collect();
    lead.windows(2).find_map(|pair| {
        let [(from, before), (to, after)] = [pair[0], pair[1]];
        (before > 0.0 && after <= 0.0).then(|| from + (to - from) * before / (before - after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_break_even_lies_where_a_command_takes_as_long() {
        let one = [(0.0, 1.0), (10.0, 1.0), (20.0, 1.0)];
        // 0.5 s, 0.75 s, 1.5 s: a second at a third of the last step.
        let other = [(0.0, 2.0), (10.0, 4.0 / 3.0), (20.0, 2.0 / 3.0)];
        let found = break_even(&one, &other).unwrap();
        assert!((found - (0.1 + 0.1 / 3.0)).abs() < 1e-9, "{found}");
        assert_eq!(break_even(&one, &one.map(|(at, _)| (at, 2.0))), None);
    }
}
