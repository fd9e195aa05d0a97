//! Figures 9, 11 and 12: latency and throughput as clients are added.

use super::super::drawing::panel::{Curve, Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::{Sheet, peak};
use super::super::simulate::Bench;
use super::super::verdict::{met, verdict};
use super::trial::{System, Trial};
use super::{
    EPAXOS, PAXOS, PAXOS_ASKING_ALL, curve, measured_sheet, multiple, panel, priced, published,
    size, systems, workload,
};
use crate::model::Workload;
use anyhow::{Context, Result};
use ionian_planner::demand::Node;

/// Those of the paper, up to its 120.
const CLIENTS: [usize; 6] = [1, 10, 30, 60, 90, 120];
/// Where nodes are measured, it takes more to keep one busy.
const MORE_CLIENTS: [usize; 5] = [1, 30, 120, 400, 1000];
/// Commands that arrive together, where it is asked what that changes; otherwise 1,000.
const BURSTS: [Option<usize>; 3] = [Some(16), Some(120), None];
/// Messages that are shown of those on which the leader's node spends most.
const MOST: usize = 6;

struct Comparison {
    title: String,
    nodes: usize,
    groups: &'static [usize],
    /// What the paper's text says.
    published: Vec<Point>,
    /// In words.
    said: &'static str,
    /// A system, and how many times the throughput of Paxos it has in the paper.
    times: Option<(&'static str, f64)>,
    /// How many times the throughput of Paxos PigPaxos with one group should have, projected.
    wanted: Option<f64>,
}

/// Figure 9.
pub(in super::super) fn twenty_five(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, 25);
    let comparison = Comparison {
        title: format!("latency and throughput, {nodes} nodes"),
        nodes,
        groups: &[1, 3],
        published: vec![
            published(PAXOS, 2000.0),
            published(EPAXOS, 3000.0),
            published("PigPaxos R=3", 7000.0),
        ],
        said: "The paper: Paxos about 2,000 commands/s, EPaxos about 3,000, PigPaxos with R=3 more than 7,000: 3.5 \
               times Paxos. There, 3.5 is the ratio to a Paxos whose leader handles 50 messages.",
        times: Some(("PigPaxos R=3", 3.5)),
        wanted: Some(5.0),
    };
    let mut sheet = compare(bench, &comparison)?;
    sheet.findings.extend(by_burst(bench, nodes)?);
    for system in [System::paxos(nodes), System::pigpaxos(nodes, 1)] {
        sheet.findings.push(spent(bench, &system)?);
    }
    Ok(sheet)
}

/// Figure 11.
pub(in super::super) fn five(bench: &Bench) -> Result<Sheet> {
    let comparison = Comparison {
        title: "latency and throughput, 5 nodes".to_owned(),
        nodes: 5,
        groups: &[1, 2],
        published: vec![multiple("EPaxos as a multiple of PigPaxos R=2", 1.12)],
        said: "The paper: PigPaxos with R=1 has more throughput than all others, EPaxos 12 % more than PigPaxos with \
               R=2; Paxos has the least, and up to 40 % less latency at low load.",
        times: None,
        wanted: Some(1.2),
    };
    compare(bench, &comparison)
}

/// Figure 12.
pub(in super::super) fn nine(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, 9);
    let comparison = Comparison {
        title: format!("latency and throughput, {nodes} nodes"),
        nodes,
        groups: &[1, 2, 3],
        published: vec![multiple("PigPaxos R=2 as a multiple of Paxos", 1.57)],
        said: "The paper: PigPaxos with R=2 up to 57 % more than Paxos, and R=3 less than R=2. R=1 is not in it.",
        times: Some(("PigPaxos R=2", 1.57)),
        wanted: None,
    };
    compare(bench, &comparison)
}

fn compare(bench: &Bench, comparison: &Comparison) -> Result<Sheet> {
    let mut sheet = measured_sheet(
        &comparison.title,
        &[
            super::WHO,
            "Measured, clients are on machines of their own and the replicas of all nodes answer them; at the paper's \
             price they are on the leader's node, as in the paper, which answers them.",
        ],
    );
    let (mut at_price, mut ours) = (Vec::new(), Vec::new());
    for (colour, system) in systems(comparison.nodes, comparison.groups)
        .iter()
        .enumerate()
    {
        for clients in bench.some(&CLIENTS) {
            sheet.points.push(at_the_price(bench, system, clients)?);
        }
        let deployment = system.measured()?;
        let projected = bench.project(&system.name, &deployment, &workload(), &[])?;
        sheet.points.push(projected);
        for clients in bench.some(&MORE_CLIENTS) {
            let point = bench.simulate(&system.name, &deployment, &workload(), &[], clients)?;
            sheet.points.push(point);
        }
        at_price.push(of(&sheet.points, system, colour, Measure::Priced));
        ours.push(of(&sheet.points, system, colour, Measure::Simulated));
        sheet.findings.extend(peaks(&sheet.points, &system.name));
    }
    sheet.points.extend(comparison.published.iter().cloned());
    sheet.findings.push(comparison.said.to_owned());
    sheet.findings.extend(gains(&sheet.points, comparison));
    let labels = ("commands per second", "median latency (ms)");
    sheet.panels = vec![
        panel(
            "Ionian at the paper's price (simulated)",
            labels,
            Marks::Curves(at_price),
        ),
        panel("Ionian (simulated)", labels, Marks::Curves(ours)),
    ];
    Ok(sheet)
}

fn at_the_price(bench: &Bench, system: &System, clients: usize) -> Result<Point> {
    let span_ms = if bench.quick {
        (500, 600)
    } else {
        (1000, 2500)
    };
    let observed = system.observe(&Trial::new(system.nodes, clients, span_ms))?;
    Ok(Point {
        clients: Some(clients),
        ..priced(system, &observed)
    })
}

fn of(points: &[Point], System { name, .. }: &System, colour: usize, measure: Measure) -> Curve {
    let here = points
        .iter()
        .filter(|point| point.series == *name && point.measure == measure);
    let points = here.filter_map(|point| Some((point.commands_per_second, point.p50_ms?)));
    curve(name, colour, Look::Solid, points.collect())
}

fn peaks(points: &[Point], series: &str) -> Option<String> {
    let of = |measure| peak(points, series, measure).map(short);
    let (priced, simulated, projected) = (
        of(Measure::Priced)?,
        of(Measure::Simulated)?,
        of(Measure::Projected)?,
    );
    let here = |measure| move |point: &&Point| point.series == series && point.measure == measure;
    let alone = points.iter().find(here(Measure::Priced))?.p50_ms?;
    let bottleneck = points.iter().find(here(Measure::Projected))?;
    Some(format!(
        "{series}: at the paper's price peak {priced} commands/s, {alone:.2} ms with one client; measured {simulated} \
         simulated, {projected} projected (the bottleneck is {}).",
        bottleneck.bottleneck.as_deref().unwrap_or("unknown")
    ))
}

/// What relays gain, over each Paxos and by each measure.
fn gains(points: &[Point], comparison: &Comparison) -> Vec<String> {
    let mut findings = Vec::new();
    for groups in comparison.groups {
        let series = format!("PigPaxos R={groups}");
        let gain = |over: &str, measure| {
            Some(peak(points, &series, measure)? / peak(points, over, measure)?)
        };
        let over = |over: &str| {
            let all = [Measure::Priced, Measure::Projected, Measure::Simulated];
            let gains = all.map(|measure| {
                let gain = gain(over, measure).unwrap_or(f64::NAN);
                format!("{gain:.2}x {}", measure.name())
            });
            format!("{} over {over}", gains.join(", "))
        };
        let target = comparison.wanted.filter(|_| *groups == 1).map(|wanted| {
            let found = gain(PAXOS, Measure::Projected).unwrap_or_default();
            let verdict = met(found >= wanted);
            format!(" Aimed at: {wanted}x over {PAXOS}, projected: {verdict}.")
        });
        if let Some((_, times)) = comparison.times.filter(|it| it.0 == series) {
            for measure in [Measure::Priced, Measure::Projected] {
                findings.extend(
                    gain(PAXOS, measure).map(|gain| of_paper(&series, gain, times, measure)),
                );
            }
        }
        findings.push(format!(
            "{series} gains: {}; {}.{}",
            over(PAXOS),
            over(PAXOS_ASKING_ALL),
            target.unwrap_or_default()
        ));
    }
    findings
}

fn of_paper(series: &str, gain: f64, times: f64, measure: Measure) -> String {
    let why_not = match measure {
        Measure::Priced => {
            "the price gives each message the same cost, an aggregated vote as much as a single one; in the paper's \
             implementation the cost of a message grows with its size"
        }
        _ => {
            "our messages cost little in comparison with the rest of a command, because those of all commands that \
             are under way are received and sent together, and the paper's cost 8.5 us each"
        }
    };
    format!(
        "{series} over {PAXOS}, {}: {gain:.2}x; the paper {times}x: {}.",
        measure.name(),
        verdict(gain, times, why_not)
    )
}

/// What it changes how many commands arrive at the leader at a time.
fn by_burst(bench: &Bench, nodes: usize) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let bursts = if bench.quick { &BURSTS[1..2] } else { &BURSTS };
    for burst in bursts {
        let workload = Workload {
            burst: *burst,
            ..workload()
        };
        let us = |system: &System| -> Result<f64> {
            let projection = bench.projection(&system.measured()?, &workload, &[])?;
            Ok(1e6 / projection.peak)
        };
        let (one, three) = (
            us(&System::pigpaxos(nodes, 1))?,
            us(&System::pigpaxos(nodes, 3))?,
        );
        let (paxos, all) = (
            us(&System::paxos(nodes))?,
            us(&System::paxos_asking_all(nodes))?,
        );
        findings.push(format!(
            "Microseconds of the busiest node for a command when {} commands arrive together: {PAXOS} {paxos:.2}, \
             {PAXOS_ASKING_ALL} {all:.2}, PigPaxos R=3 {three:.2}, R=1 {one:.2}; R=1 gains {:.2}x and {:.2}x.",
            workload.load(1, true).burst,
            paxos / one,
            all / one
        ));
    }
    Ok(findings)
}

/// On which messages the leader's node spends its time.
fn spent(bench: &Bench, system: &System) -> Result<String> {
    let measured = bench.measured(&system.measured()?, &workload())?;
    let busiest = |one: &&Node, other: &&Node| one.demand_us().total_cmp(&other.demand_us());
    let leader = measured.nodes.iter().max_by(busiest);
    let leader = leader.context("a deployment has nodes")?;
    let mut messages: Vec<(&str, f64)> = leader
        .messages
        .iter()
        .map(|((_, name), message)| (*name, message.demand_us()))
        .collect();
    messages.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let most = messages.iter().take(MOST);
    let most: Vec<String> = most.map(|(name, us)| format!("{name} {us:.2}")).collect();
    Ok(format!(
        "{}: of {:.2} us that the busiest node spends on a command, it spends most on: {}.",
        system.name,
        leader.demand_us(),
        most.join(", ")
    ))
}
