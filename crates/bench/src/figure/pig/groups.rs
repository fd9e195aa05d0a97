//! Figure 8: the number of relay groups.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::super::verdict::verdict;
use super::trial::{System, Trial};
use super::{CLIENTS, curve, measured_sheet, multiple, panel, priced, size, workload};
use anyhow::Result;

const NODES: usize = 25;
const GROUPS: [usize; 6] = [1, 2, 3, 4, 5, 6];
const ROTATING: &str = "rotating relays";
const STATIC: &str = "static relays";
/// Section 6.1: with two groups 11 % more than with three.
const TWO_OVER_THREE: f64 = 1.11;

/// Figure 8.
pub(in super::super) fn number(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, NODES);
    let mut sheet = measured_sheet(
        &format!("throughput by the number of relay groups, {nodes} nodes"),
        &[
            "*Rotating relays*: groups are drawn anew for what comes in together, relays for each request, as in \
             the preset `pigpaxos-25`. *Static relays*: the first acceptor of each group is always its relay (`relay_rotate` and `relay_shuffle` \
             0). The paper's text gives no heights: with rotating relays the fewest groups are best and R=2 has 11 % \
             more than R=3; with static ones about five groups are best.",
            super::WHO,
        ],
    );
    let span_ms = if bench.quick {
        (500, 600)
    } else {
        (1500, 3000)
    };
    for series in [ROTATING, STATIC] {
        for groups in bench.some(&GROUPS) {
            let mut system = System::pigpaxos(nodes, groups).called(series);
            if series == STATIC {
                system = system.with_static_relays();
            }
            let with_groups = |point| Point {
                nodes: Some(nodes),
                groups: Some(groups),
                ..point
            };
            let observed = system.observe(&Trial::new(nodes, CLIENTS, span_ms))?;
            sheet.points.push(with_groups(priced(&system, &observed)));
            let projected = bench.project(series, &system.measured()?, &workload(), &[])?;
            sheet.points.push(with_groups(projected));
        }
    }
    let paper = multiple("rotating relays, R=2 as a multiple of R=3", TWO_OVER_THREE);
    sheet.points.push(paper);
    for (measure, title) in [
        (Measure::Priced, "Ionian at the paper's price (simulated)"),
        (Measure::Projected, "Ionian (projected)"),
    ] {
        let curves = [ROTATING, STATIC]
            .iter()
            .enumerate()
            .map(|(colour, series)| {
                let points = of(&sheet.points, series, measure);
                let points = points
                    .into_iter()
                    .map(|(groups, rate)| (groups as f64, rate));
                curve(series, colour, Look::Solid, points.collect())
            });
        let marks = Marks::Curves(curves.collect());
        let labels = ("relay groups", "commands per second");
        sheet
            .findings
            .extend(findings(&sheet.points, measure, title));
        sheet.panels.push(panel(title, labels, marks));
    }
    Ok(sheet)
}

fn of(points: &[Point], series: &str, measure: Measure) -> Vec<(usize, f64)> {
    let here = points
        .iter()
        .filter(|point| point.series == series && point.measure == measure);
    here.filter_map(|point| Some((point.groups?, point.commands_per_second)))
        .collect()
}

fn findings(points: &[Point], measure: Measure, title: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for series in [ROTATING, STATIC] {
        let found = of(points, series, measure);
        let best = found
            .iter()
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        let all: Vec<String> = found
            .iter()
            .map(|(groups, rate)| format!("R={groups} {}", short(*rate)))
            .collect();
        if let Some((best, _)) = best {
            findings.push(format!(
                "{title}, {series}: best with R={best} ({} commands/s); the paper: {}.",
                all.join(", "),
                if series == ROTATING {
                    "with the fewest"
                } else {
                    "about five"
                }
            ));
        }
    }
    let rotating = of(points, ROTATING, measure);
    let rate = |groups| rotating.iter().find(|it| it.0 == groups).map(|it| it.1);
    if let (Some(two), Some(three)) = (rate(2), rate(3)) {
        let why_not = "a message costs our leader less of what a command costs it than the paper's";
        findings.push(format!(
            "{title}: R=2 has {:+.0} % over R=3; the paper +{:.0} %: {}.",
            100.0 * (two / three - 1.0),
            100.0 * (TWO_OVER_THREE - 1.0),
            verdict(two / three, TWO_OVER_THREE, why_not)
        ));
    }
    findings
}
