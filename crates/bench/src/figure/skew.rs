//! Figure 35: throughput of CRAQ and of compartmentalized MultiPaxos, by the part of the commands
//! that are about one key (section 8.6).

use super::deployments::preset;
use super::drawing::panel::{Curve, Look, Marks, Panel};
use super::point::{Measure, Point, short};
use super::published;
use super::reads::fitting;
use super::sheet::{Sheet, peak, ratio};
use super::simulate::Bench;
use super::verdict::{met, verdict};
use crate::model::Workload;
use anyhow::Result;
use ionian_deployment::Deployment;

const LANES: usize = 16;
/// Chain nodes, and replicas of MultiPaxos.
const NODES: usize = 6;
const READ_FRACTION: f64 = 0.95;
const SKEWS: [f64; 9] = [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0];
/// Enough to keep every node busy.
const CLIENTS: usize = 4000;
const LEASES: &str = "options.lease_ms=2000";
/// CRAQ should do this part of what compartmentalized MultiPaxos does without skew.
const BESIDE_MULTIPAXOS: f64 = 0.9;

const FORWARDED: &str = "CRAQ, the tail executes dirty reads";
const ASKED: &str = "CRAQ, the tail is asked for versions";
const WITHOUT_LEASES: &str = "CRAQ without leases";
const MULTIPAXOS: &str = "Compartmentalized MultiPaxos";

/// Figure 35.
pub(super) fn hot_key(bench: &Bench) -> Result<Sheet> {
    let notes = [
        "95 % of the commands are linearizable reads; a part of all commands is about one key of 1,000.",
        "Published CRAQ has 500 clients and MultiPaxos 2,000, the best number of each; ours have 4,000.",
        "The paper's CRAQ sends a dirty read to the tail. With version queries, as CRAQ was proposed and as is the \
         default here, the tail only says what is committed. Both are with leases of 2 s, for the paper's answers \
         clean reads at once; by default there are none, and reads that come together ask the master whether the \
         chain is still the same.",
    ];
    let mut sheet = Sheet::empty(
        "the effect of skew on CRAQ (ours simulated)",
        notes.map(str::to_owned).to_vec(),
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let systems = systems(bench)?;
    for (colour, (series, published, deployment)) in systems.iter().enumerate() {
        let mut points = Vec::new();
        for skew in bench.some(&SKEWS) {
            let point = simulated(bench, series, deployment, skew)?;
            points.push(point);
        }
        points.push(projected(bench, series, deployment)?);
        let theirs_of = published.iter().copied();
        points.extend(theirs_of.flat_map(|it| as_published(series, it)));
        let of = |measure, look, words: &str| Curve {
            name: format!("{series}{words}"),
            colour,
            look,
            points: by_skew(&points, measure),
        };
        ours.push(of(Measure::Simulated, Look::Solid, ""));
        if published.is_some() {
            theirs.push(of(Measure::PublishedP90, Look::Solid, ", p90"));
            theirs.push(of(Measure::PublishedMean, Look::Dashed, ", mean"));
        }
        sheet.points.extend(points);
    }
    sheet.findings = findings(&sheet.points);
    sheet.findings.push(lone_reads(bench, &systems)?);
    sheet.panels = vec![
        panel("The paper (published)", theirs),
        panel("Ionian (simulated)", ours),
    ];
    Ok(sheet)
}

/// What is compared, and how `published.csv` calls it.
type System = (&'static str, Option<&'static str>, Deployment);

fn systems(bench: &Bench) -> Result<[System; 4]> {
    let craq = preset("craq-6", LANES)?;
    let asked = craq.clone().with_overrides(&[LEASES])?;
    let forwarded = asked.clone().with_overrides(&["options.forward_reads=1"])?;
    let multipaxos = fitting(bench, NODES, &workload(0.0), &[])?;
    Ok([
        (FORWARDED, Some("craq"), forwarded),
        (ASKED, None, asked),
        (WITHOUT_LEASES, None, craq),
        (MULTIPAXOS, Some("compartmentalized"), multipaxos),
    ])
}

fn workload(skew: f64) -> Workload {
    Workload {
        read_fraction: READ_FRACTION,
        skew,
        ..Workload::writes(1)
    }
}

fn simulated(bench: &Bench, series: &str, deployment: &Deployment, skew: f64) -> Result<Point> {
    let clients = if bench.quick { CLIENTS / 8 } else { CLIENTS };
    let point = bench.simulate(series, deployment, &workload(skew), &[], clients)?;
    Ok(Point {
        skew: Some(skew),
        ..point
    })
}

/// Without skew: a burst by which a deployment is measured has more writes of a hot key under way
/// than a busy deployment has.
fn projected(bench: &Bench, series: &str, deployment: &Deployment) -> Result<Point> {
    let point = bench.project(series, deployment, &workload(0.0), &[])?;
    Ok(Point {
        skew: Some(0.0),
        ..point
    })
}

fn as_published(series: &str, published: &'static str) -> Vec<Point> {
    let rows = published::rows("35").filter(|row| row.series == published);
    let both = rows.flat_map(|row| {
        let point = |measure, throughput| Point {
            clients: row.clients,
            read_fraction: row.read_fraction,
            skew: row.skew,
            replicas: row.replicas,
            p50_ms: row.p50_ms,
            p99_ms: row.p99_ms,
            ..Point::new(series, measure, throughput)
        };
        [
            point(Measure::PublishedP90, row.p90),
            point(Measure::PublishedMean, row.mean),
        ]
    });
    both.collect()
}

fn by_skew(points: &[Point], measure: Measure) -> Vec<(f64, f64)> {
    let of = points.iter().filter(|point| point.measure == measure);
    of.filter_map(|point| Some((point.skew?, point.commands_per_second)))
        .collect()
}

fn panel(title: &str, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: "part of the commands that are about one key".to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Curves(curves),
    }
}

fn findings(points: &[Point]) -> Vec<String> {
    let mut findings: Vec<String> = [FORWARDED, ASKED, WITHOUT_LEASES, MULTIPAXOS]
        .iter()
        .filter_map(|series| fall(points, series))
        .collect();
    let kept = |series, measure| {
        let (even, hot) = ends(points, series, measure)?;
        Some(hot / even)
    };
    if let (Some(ours), Some(theirs)) = (
        kept(FORWARDED, Measure::Simulated),
        kept(FORWARDED, Measure::PublishedP90),
    ) {
        let why_not = "a read that is passed on costs the node that passes it on, too; the share that this is of all \
                       that a node does is another one here";
        findings.push(format!(
            "With all commands about one key, CRAQ whose tail executes dirty reads keeps {ours:.2} of its \
             throughput, the paper's {theirs:.2}: {}.",
            verdict(ours, theirs, why_not)
        ));
    }
    let of = |series| peak(points, series, Measure::Projected);
    if let (Some(craq), Some(multipaxos)) = (of(ASKED), of(MULTIPAXOS)) {
        let reached = met(craq >= BESIDE_MULTIPAXOS * multipaxos);
        findings.push(format!(
            "Without skew, projected: CRAQ {}, compartmentalized MultiPaxos with as many replicas {} ({}). Aimed at: \
             within 10 %, {reached}.",
            short(craq),
            short(multipaxos),
            ratio(craq, multipaxos),
        ));
    }
    findings
}

/// How long one client waits for a read, with nothing else under way.
fn lone_reads(bench: &Bench, systems: &[System]) -> Result<String> {
    let reads = Workload {
        read_fraction: 1.0,
        ..workload(0.0)
    };
    let mut latencies = Vec::new();
    // Nothing is dirty: it does not matter who would execute dirty reads.
    for (series, _, deployment) in systems.iter().filter(|it| it.0 != FORWARDED) {
        let point = bench.simulate(series, deployment, &reads, &[], 1)?;
        if let Some(p50) = point.p50_ms {
            latencies.push(format!("{series} {p50:.3} ms"));
        }
    }
    Ok(format!(
        "A lone linearizable read, median: {}; the network takes {:.3} ms there and back.",
        latencies.join(", "),
        2.0 * bench.network_delay_us / 1000.0
    ))
}

/// Throughput without skew, and with all commands about one key.
fn ends(points: &[Point], series: &str, measure: Measure) -> Option<(f64, f64)> {
    let at = |skew| {
        let is_it = |point: &&Point| {
            point.series == series && point.measure == measure && point.skew == Some(skew)
        };
        Some(points.iter().find(is_it)?.commands_per_second)
    };
    Some((at(SKEWS[0])?, at(SKEWS[SKEWS.len() - 1])?))
}

fn fall(points: &[Point], series: &str) -> Option<String> {
    let (even, hot) = ends(points, series, Measure::Simulated)?;
    let theirs = ends(points, series, Measure::PublishedP90).map_or_else(String::new, |it| {
        format!("; the paper's {} and {}", short(it.0), short(it.1))
    });
    Some(format!(
        "{series}: {} commands/s without skew, {} with all commands about one key, simulated{theirs}.",
        short(even),
        short(hot),
    ))
}
