//! Figures 32a, 32b, 34a and 34b: throughput against the number of replicas, by the part of the
//! commands that are reads (section 8.5).

use super::deployments::{batches, grid, majority, preset, scaled};
use super::drawing::panel::{Curve, Look, Marks, Panel};
use super::point::{Measure, Point, short};
use super::published;
use super::sheet::{Basis, Sheet, peak};
use super::simulate::Bench;
use super::verdict::verdict;
use crate::model::Workload;
use anyhow::Result;
use ionian_deployment::Deployment;
use ionian_kernel::client::ReadLevel;

const LANES: usize = 16;
/// Enough to keep every role busy.
const CLIENTS: usize = 8000;
const BATCHED_CLIENTS: usize = 24_000;
pub(super) const REPLICAS: [usize; 5] = [2, 3, 4, 5, 6];
pub(super) const READ_FRACTIONS: [f64; 4] = [0.0, 0.6, 0.9, 1.0];
/// As busy as this part of the leader or the replicas, whichever are busier, may others be.
const SLACK: f64 = 0.9;
const BATCH: usize = 50;
/// In the batched figure these stand for the paper's clients, which form batches themselves.
const CLIENT_SIDE: [&str; 3] = ["batcher", "read_batcher", "unbatcher"];

const MULTIPAXOS: &str = "MultiPaxos";

/// What is varied in one figure.
struct Variant {
    figure: &'static str,
    title: &'static str,
    read_level: ReadLevel,
    batch: usize,
    exempt: &'static [&'static str],
    /// Commands of a published request.
    commands_per_request: f64,
    notes: &'static [&'static str],
}

/// Figure 32a.
pub(super) fn linearizable(bench: &Bench) -> Result<Sheet> {
    let variant = Variant {
        figure: "32a",
        title: "linearizable reads, unbatched (ours simulated and projected)",
        read_level: ReadLevel::Linearizable,
        batch: 1,
        exempt: &[],
        commands_per_request: 1.0,
        notes: &[],
    };
    sheet(bench, &variant)
}

/// Figure 32b.
pub(super) fn batched(bench: &Bench) -> Result<Sheet> {
    let variant = Variant {
        figure: "32b",
        title: "linearizable reads in batches of 50 (ours simulated and projected)",
        read_level: ReadLevel::Linearizable,
        batch: BATCH,
        exempt: &CLIENT_SIDE,
        commands_per_request: BATCH as f64,
        notes: &[
            "The paper's clients form batches themselves, and it counts requests of 50 commands; both sides are given \
             in commands.",
            "Ours form none: our batchers and unbatchers, at no cost, stand for its clients.",
        ],
    };
    sheet(bench, &variant)
}

/// Figure 34a.
pub(super) fn eventual(bench: &Bench) -> Result<Sheet> {
    let variant = Variant {
        figure: "34a",
        title: "eventually consistent reads, unbatched (ours simulated and projected)",
        read_level: ReadLevel::Eventual,
        batch: 1,
        exempt: &[],
        commands_per_request: 1.0,
        notes: &[],
    };
    sheet(bench, &variant)
}

/// Figure 34b.
pub(super) fn sequential(bench: &Bench) -> Result<Sheet> {
    let variant = Variant {
        figure: "34b",
        title: "sequentially consistent reads, unbatched (ours simulated and projected)",
        read_level: ReadLevel::Sequential,
        batch: 1,
        exempt: &[],
        commands_per_request: 1.0,
        notes: &[],
    };
    sheet(bench, &variant)
}

fn sheet(bench: &Bench, variant: &Variant) -> Result<Sheet> {
    let mut points = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (colour, fraction) in READ_FRACTIONS.into_iter().enumerate() {
        let series = name(fraction);
        let workload = Workload {
            read_fraction: fraction,
            read_level: variant.read_level,
            ..Workload::writes(variant.batch)
        };
        for replicas in bench.some(&REPLICAS) {
            let deployment = fitting(bench, replicas, &workload, variant.exempt)?;
            let with = |point: Point| Point {
                replicas: Some(replicas),
                ..point
            };
            points.push(with(bench.project(
                &series,
                &deployment,
                &workload,
                variant.exempt,
            )?));
            let clients = if variant.batch > 1 {
                BATCHED_CLIENTS
            } else {
                CLIENTS
            };
            let clients = if bench.quick { clients / 8 } else { clients };
            points.push(with(bench.simulate(
                &series,
                &deployment,
                &workload,
                variant.exempt,
                clients,
            )?));
        }
        published_points(variant, fraction, &mut points);
        let curve = |measure, look, words: &str| {
            curve(
                &format!("{series}, {words}"),
                colour,
                look,
                &points,
                &series,
                measure,
            )
        };
        ours.push(curve(Measure::Projected, Look::Solid, "projected"));
        ours.push(curve(Measure::Simulated, Look::Dots, "simulated"));
        theirs.push(curve(Measure::PublishedP90, Look::Solid, "p90"));
        theirs.push(curve(Measure::PublishedMean, Look::Dashed, "mean"));
    }
    let (ours_flat, theirs_flat) = coupled(bench, variant, &mut points)?;
    ours.push(ours_flat);
    theirs.push(theirs_flat);
    let mut notes = vec![
        "For each point there are as many proxy leaders and acceptors as it takes for the leader or the replicas to \
         be the bottleneck, as in the paper."
            .to_owned(),
        "MultiPaxos passes reads through its log like writes; the paper's is the best of its figure 28.".to_owned(),
    ];
    notes.extend(variant.notes.iter().map(|note| (*note).to_owned()));
    Ok(Sheet {
        title: variant.title.to_owned(),
        basis: Basis::Measured,
        findings: findings(&points, replica_us(bench, variant.batch)?),
        notes,
        points,
        panels: vec![
            panel("The paper (published)", theirs),
            panel("Ionian (simulated and projected)", ours),
        ],
    })
}

/// MultiPaxos, for which a read is as good as a write, and a replica more or less no help.
fn coupled(bench: &Bench, variant: &Variant, points: &mut Vec<Point>) -> Result<(Curve, Curve)> {
    let (figure, from) = if variant.batch > 1 {
        ("28b", "colocated")
    } else {
        ("28a", "baseline")
    };
    let deployment = batches(preset(from, LANES)?, variant.batch)?;
    let workload = Workload::writes(variant.batch);
    let ours = bench.project(MULTIPAXOS, &deployment, &workload, &[])?;
    let rows = published::rows(figure).filter(|row| row.series == "multipaxos");
    let theirs = rows.map(|row| row.p90).fold(0.0, f64::max);
    let flat = |name: &str, throughput| Curve {
        name: format!("{MULTIPAXOS}, {name}"),
        colour: READ_FRACTIONS.len(),
        look: Look::Solid,
        points: REPLICAS
            .map(|replicas| (replicas as f64, throughput))
            .to_vec(),
    };
    let curves = (
        flat("projected", ours.commands_per_second),
        flat("p90", theirs),
    );
    points.extend([ours, Point::new(MULTIPAXOS, Measure::PublishedP90, theirs)]);
    Ok(curves)
}

/// What a series of this part of reads is called.
pub(super) fn name(fraction: f64) -> String {
    format!("{:.0} % reads", fraction * 100.0)
}

/// A panel of throughput against replicas.
pub(super) fn panel(title: &str, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: "replicas".to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Curves(curves),
    }
}

/// One series by one measure, throughput against replicas.
pub(super) fn curve(
    name: &str,
    colour: usize,
    look: Look,
    points: &[Point],
    series: &str,
    measure: Measure,
) -> Curve {
    let of = points
        .iter()
        .filter(|point| point.series == series && point.measure == measure);
    let points = of
        .filter_map(|point| Some((point.replicas? as f64, point.commands_per_second)))
        .collect();
    Curve {
        name: name.to_owned(),
        colour,
        look,
        points,
    }
}

fn published_points(variant: &Variant, fraction: f64, points: &mut Vec<Point>) {
    for row in published::rows(variant.figure).filter(|row| row.read_fraction == Some(fraction)) {
        for (measure, throughput) in [
            (Measure::PublishedP90, row.p90),
            (Measure::PublishedMean, row.mean),
        ] {
            points.push(Point {
                read_fraction: (fraction > 0.0).then_some(fraction),
                replicas: row.replicas,
                p50_ms: row.p50_ms,
                p99_ms: row.p99_ms,
                ..Point::new(
                    &name(fraction),
                    measure,
                    throughput * variant.commands_per_request,
                )
            });
        }
    }
}

/// How many there are of the roles that scale.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    proxy_leaders: usize,
    /// Rows and columns of acceptors; none where three acceptors form majorities.
    grid: Option<(usize, usize)>,
}

/// At most, so that the whole deployment can be measured in one process.
const MOST_PROXY_LEADERS: usize = 12;
const MOST_ACCEPTORS: usize = 20;

impl Scale {
    fn applied(self, base: &Deployment) -> Result<Deployment> {
        let deployment = scaled(base.clone(), "proxy_leader", self.proxy_leaders)?;
        match self.grid {
            None => majority(deployment),
            Some((rows, columns)) => grid(deployment, rows, columns),
        }
    }

    /// Enough of both that none is busier than `most`, where they are as busy as `load` says.
    fn grown(self, load: impl Fn(&str) -> f64, most: f64, read_fraction: f64) -> Self {
        let mut scale = self;
        let times = load("proxy_leader") / most;
        if times > 1.0 {
            let enough = (self.proxy_leaders as f64 * times).ceil() as usize;
            scale.proxy_leaders = enough.min(MOST_PROXY_LEADERS);
        }
        let Some((mut rows, mut columns)) = self.grid else {
            scale.grid = (load("acceptor") > most).then_some((2, 2));
            return scale;
        };
        // Rows are for reads, columns for writes.
        let reads = |rows: usize| read_fraction / rows as f64;
        let writes = |columns: usize| (1.0 - read_fraction) / columns as f64;
        let least = most / load("acceptor") * (reads(rows) + writes(columns));
        while reads(rows) + writes(columns) > least && (rows + 1) * (columns + 1) <= MOST_ACCEPTORS
        {
            match reads(rows) > writes(columns) {
                true => rows += 1,
                false => columns += 1,
            }
        }
        scale.grid = Some((rows, columns));
        scale
    }
}

/// A deployment with this number of replicas and enough of all roles that scale.
pub(super) fn fitting(
    bench: &Bench,
    replicas: usize,
    workload: &Workload,
    exempt: &[&str],
) -> Result<Deployment> {
    let base = batches(preset(unscaled(workload.batch), LANES)?, workload.batch)?;
    let base = scaled(base, "replica", replicas)?;
    // Weak reads ask no acceptors, so three are enough unless the writes need more.
    let is_weak = workload.read_level != ReadLevel::Linearizable;
    let mut scale = Scale {
        proxy_leaders: 2,
        grid: (!is_weak).then_some((2, 2)),
    };
    loop {
        let deployment = scale.applied(&base)?;
        let loads = bench.projection(&deployment, workload, exempt)?.roles;
        let load = |role: &str| loads.get(role).copied().unwrap_or(0.0);
        // Where roles are equally busy, chance makes either wait for the other.
        let most = SLACK * load("leader").max(load("replica"));
        let grown = scale.grown(load, most, workload.read_fraction);
        if grown == scale {
            return Ok(deployment);
        }
        scale = grown;
    }
}

/// The preset that is scaled.
fn unscaled(batch: usize) -> &'static str {
    match batch {
        1 => "compartmentalized",
        _ => "batched",
    }
}

/// What a write costs each replica and a read one of them, in microseconds.
pub(super) fn replica_us(bench: &Bench, batch: usize) -> Result<(f64, f64)> {
    let deployment = batches(preset(unscaled(batch), LANES)?, batch)?;
    let us = |read_fraction| {
        let workload = Workload {
            read_fraction,
            ..Workload::writes(batch)
        };
        bench.measured(&deployment, &workload)?.role("replica")
    };
    Ok((us(0.0)?.0, us(1.0)?.1))
}

fn findings(points: &[Point], (write_us, read_us): (f64, f64)) -> Vec<String> {
    let mut findings: Vec<String> = READ_FRACTIONS
        .into_iter()
        .map(name)
        .filter_map(|series| {
            let of = |measure| peak(points, &series, measure).map(short);
            let last = points.iter().rfind(|point| point.series == series && point.measure == Measure::Projected)?;
            Some(format!(
                "{series}: up to {} commands/s projected and {} simulated (the bottleneck is {}); the paper's {} \
                 (mean {}).",
                of(Measure::Projected)?,
                of(Measure::Simulated)?,
                last.bottleneck.as_deref().unwrap_or("unknown"),
                of(Measure::PublishedP90)?,
                of(Measure::PublishedMean)?
            ))
        })
        .collect();
    let gain = |of: &str, over: &str, measure| {
        Some(peak(points, of, measure)? / peak(points, over, measure)?)
    };
    let both = |of: &str, over: &str| {
        Some((
            gain(of, over, Measure::Projected)?,
            gain(of, over, Measure::PublishedP90)?,
        ))
    };
    let (writes, mixed, reads) = (name(0.0), name(0.9), name(1.0));
    let most = REPLICAS[REPLICAS.len() - 1];
    let mut add = |words: &str, (ours, theirs): (f64, f64), why_not: &str| {
        let verdict = verdict(ours, theirs, why_not);
        findings.push(format!(
            "{words}, at the best: {ours:.1}x projected, the paper's {theirs:.1}x: {verdict}."
        ));
    };
    if let Some(gains) = both(&reads, &writes) {
        let times = most as f64 * write_us / read_us;
        let why_not = format!(
            "a write costs each of {most} replicas {write_us:.2} us, a read one of them {read_us:.2} us, so they can do {times:.1} \
             times as many; at one price for both it would be {most} times"
        );
        add("Reads alone over writes alone", gains, &why_not);
    }
    if let (Some(gains), Some(first), Some(second)) = (
        both(&mixed, MULTIPAXOS),
        both(&writes, MULTIPAXOS),
        both(&mixed, &writes),
    ) {
        let why_not = format!(
            "writes alone gain {:.1}x here and {:.1}x in the paper (figure 28 says why), and 90 % reads {:.1}x and {:.1}x over \
             these",
            first.0, first.1, second.0, second.1
        );
        add("90 % reads over MultiPaxos", gains, &why_not);
    }
    findings
}
