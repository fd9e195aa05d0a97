//! Figures 31a and 31b: one compartmentalization after the other, in the order in which bottlenecks
//! appear (section 8.4). Each step is an edit of the deployment.

use super::deployments::{batches, grid, majority, preset, scaled};
use super::drawing::panel::{Bar, Marks, Panel};
use super::point::{Measure, Point, short};
use super::published::{self, Row};
use super::sheet::{Basis, Sheet, peak, ratio};
use super::simulate::Bench;
use super::verdict;
use crate::model::Workload;
use anyhow::Result;
use ionian_deployment::Deployment;

const LANES: usize = 8;
/// Enough to keep every role busy.
const CLIENTS: usize = 4000;
const BATCHED_CLIENTS: usize = 16_000;

/// One bar.
struct Step {
    name: String,
    /// Below the bar, a line each.
    label: String,
    deployment: Deployment,
    batch: usize,
    /// Of the paper: p90 and mean.
    published: Option<(f64, f64)>,
}

/// Figure 31a.
pub(super) fn unbatched(bench: &Bench) -> Result<Sheet> {
    let rows: Vec<Row> = published::rows("31a").collect();
    let coupled = published::rows("28a")
        .filter(|row| row.series == "multipaxos")
        .max_by(|a, b| a.p90.total_cmp(&b.p90));
    let coupled = coupled.map(|row| (row.p90, row.mean));
    let mut steps = vec![step(
        "MultiPaxos",
        "coupled",
        batches(preset("baseline", LANES)?, 1)?,
        1,
        coupled,
    )];
    let mut counts: Vec<(usize, usize)> = (2..=7).map(|proxies| (proxies, 2)).collect();
    counts.extend((7..=10).map(|proxies| (proxies, 3)));
    for (proxies, replicas) in counts {
        let base = majority(batches(preset("compartmentalized", LANES)?, 1)?)?;
        let deployment = scaled(scaled(base, "proxy_leader", proxies)?, "replica", replicas)?;
        let row = rows
            .iter()
            .find(|row| (row.proxy_leaders, row.replicas) == (Some(proxies), Some(replicas)));
        let name = format!("{proxies} proxy leaders, {replicas} replicas");
        let label = format!("{proxies}\n{replicas}");
        steps.push(step(
            &name,
            &label,
            deployment,
            1,
            row.map(|row| (row.p90, row.mean)),
        ));
    }
    let whole = batches(preset("compartmentalized", LANES)?, 1)?;
    let row = rows
        .iter()
        .find(|row| (row.proxy_leaders, row.replicas) == (Some(10), Some(4)));
    let name = "10 proxy leaders, 4 replicas, 2x2 grid";
    steps.push(step(
        name,
        "10\n4 (grid)",
        grid(whole, 2, 2)?,
        1,
        row.map(|row| (row.p90, row.mean)),
    ));
    let axis = "proxy leaders (above) and replicas (below); first: coupled MultiPaxos";
    sheet(
        bench,
        "ablation, unbatched (ours simulated)",
        axis,
        &bench.some_steps(steps),
        CLIENTS,
    )
}

/// Figure 31b.
pub(super) fn batched(bench: &Bench) -> Result<Sheet> {
    let rows: Vec<Row> = published::rows("31b").collect();
    let coupled = published::rows("28b")
        .filter(|row| row.series == "multipaxos")
        .max_by(|a, b| a.p90.total_cmp(&b.p90));
    let coupled = coupled.map(|row| (row.p90, row.mean));
    let mut steps = vec![step(
        "MultiPaxos",
        "coupled",
        batches(preset("colocated", LANES)?, 40)?,
        40,
        coupled,
    )];
    for (batch, unbatchers) in [(10, 2), (50, 2), (100, 2), (100, 3), (100, 4), (100, 5)] {
        let deployment = scaled(
            batches(preset("batched", LANES)?, batch)?,
            "unbatcher",
            unbatchers,
        )?;
        let row = rows
            .iter()
            .find(|row| (row.batch, row.unbatchers) == (Some(batch), Some(unbatchers)));
        let name = format!("batches of {batch}, {unbatchers} unbatchers");
        let label = format!("{batch}\n{unbatchers}");
        steps.push(step(
            &name,
            &label,
            deployment,
            batch,
            row.map(|row| (row.p90, row.mean)),
        ));
    }
    let axis = "batch (above) and unbatchers (below); first: coupled MultiPaxos";
    sheet(
        bench,
        "ablation, batched (ours simulated)",
        axis,
        &bench.some_steps(steps),
        BATCHED_CLIENTS,
    )
}

fn step(
    name: &str,
    label: &str,
    deployment: Deployment,
    batch: usize,
    published: Option<(f64, f64)>,
) -> Step {
    Step {
        name: name.to_owned(),
        label: label.to_owned(),
        deployment,
        batch,
        published,
    }
}

impl Bench {
    fn some_steps(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let places: Vec<usize> = self.some(&(0..steps.len()).collect::<Vec<_>>());
        let mut place = 0;
        steps.retain(|_| {
            place += 1;
            places.contains(&(place - 1))
        });
        steps
    }
}

fn sheet(bench: &Bench, title: &str, axis: &str, steps: &[Step], clients: usize) -> Result<Sheet> {
    let clients = if bench.quick { clients / 8 } else { clients };
    let mut points = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (
        place,
        Step {
            name,
            label,
            deployment,
            batch,
            published,
        },
    ) in steps.iter().enumerate()
    {
        let workload = Workload::writes(*batch);
        let projected = bench.project(name, deployment, &workload, &[])?;
        let simulated = bench.simulate(name, deployment, &workload, &[], clients)?;
        let bar = |height, whisker| Bar {
            label: label.clone(),
            colour: usize::from(place > 0),
            height,
            whisker,
        };
        ours.push(bar(
            simulated.commands_per_second,
            Some(projected.commands_per_second),
        ));
        points.extend([simulated, projected]);
        if let Some((p90, mean)) = *published {
            theirs.push(bar(p90, Some(mean)));
            let point = |measure, throughput| Point {
                batch: (*batch > 1).then_some(*batch),
                ..Point::new(name, measure, throughput)
            };
            points.extend([
                point(Measure::PublishedP90, p90),
                point(Measure::PublishedMean, mean),
            ]);
        }
    }
    let panel = |title: &str, bars| Panel {
        title: title.to_owned(),
        x_label: axis.to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Bars(bars),
    };
    Ok(Sheet {
        title: title.to_owned(),
        basis: Basis::Measured,
        findings: findings(&points, steps),
        notes: vec![
            "Bars: ours simulated with whiskers to the projected peak; the paper's p90 with whiskers to the mean of \
             the same windows (its tables give no standard deviations)."
                .to_owned(),
            format!("{clients} clients. The paper's first bar is its MultiPaxos of figure 28."),
        ],
        points,
        panels: vec![panel("The paper (published)", theirs), panel("Ionian (simulated)", ours)],
    })
}

fn findings(points: &[Point], steps: &[Step]) -> Vec<String> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Vec::new();
    };
    let mut findings: Vec<String> = Vec::new();
    // Where one role hands the part of the bottleneck to another.
    let mut before = None;
    for step in steps {
        let now = verdict::bottleneck(points, &step.name);
        if now != before {
            let throughput =
                peak(points, &step.name, Measure::Projected).map_or_else(String::new, short);
            let what = now.unwrap_or_default();
            findings.push(format!(
                "{}: {throughput} commands/s projected, the bottleneck is {what}.",
                step.name
            ));
        }
        before = now;
    }
    let gain = |measure| {
        Some(ratio(
            peak(points, &last.name, measure)?,
            peak(points, &first.name, measure)?,
        ))
    };
    let all = [
        Measure::Simulated,
        Measure::Projected,
        Measure::PublishedP90,
    ];
    let gains = all
        .into_iter()
        .filter_map(|measure| Some(format!("{} {}", gain(measure)?, measure.name())));
    let gains = gains.collect::<Vec<_>>().join(", ");
    let verdict = verdict::of_gain(points, &first.name, &last.name, Measure::PublishedP90)
        .unwrap_or_default();
    findings.push(format!(
        "From the first bar to the last: {gains}: {verdict}."
    ));
    findings.extend(
        steps
            .get(1)
            .and_then(|second| climb(points, &second.name, &last.name)),
    );
    findings
}

/// What the steps after the second bar gain.
fn climb(points: &[Point], second: &str, last: &str) -> Option<String> {
    let gain = |measure| Some(peak(points, last, measure)? / peak(points, second, measure)?);
    let (ours, theirs) = (gain(Measure::Projected)?, gain(Measure::PublishedP90)?);
    let (from, to) = (
        verdict::bottleneck(points, second)?,
        verdict::bottleneck(points, last)?,
    );
    let why_not = match from == to {
        true => format!(
            "the bottleneck of the second bar is already that of the last, {to}, which these steps relieve of little"
        ),
        false => format!("here the bottleneck goes from {from} to {to}"),
    };
    Some(format!(
        "From the second bar to the last: {ours:.1}x projected, {theirs:.1}x published p90: {}.",
        verdict::verdict(ours, theirs, &why_not)
    ))
}
