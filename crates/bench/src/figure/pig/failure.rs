//! Figures 15 and 16: a node that does not answer, and a group that does not.

use super::super::drawing::panel::{Bar, Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::super::verdict::met;
use super::trial::{System, Trial};
use super::{CLIENTS, bar, curve, multiple, panel, priced, priced_sheet, size, spared};
use anyhow::Result;
use ionian_kernel::layout::NodeId;
use ionian_sim::performance::wan::{Change, Observed, Series};

const NODES: usize = 25;
/// Figure 15 has this many clients (section 5.7).
const FEW_CLIENTS: usize = 30;
/// Groups and slack.
const CASES: [(usize, usize); 4] = [(2, 0), (2, 1), (3, 0), (3, 1)];
/// The median latency with a dead node should be that without it, up to this part.
const WITHIN: f64 = 0.10;
/// The throughput with a silent group should be that without it, up to this part: 3 % in the paper.
const GROUP_COSTS: f64 = 0.03;
/// Timeouts of a system that serves: those of Ionian, and the paper's 50 ms for relays.
const USUAL: [&str; 3] = [
    "options.heartbeat_ms=100",
    "options.election_timeout_ms=1500",
    "options.resend_after_ms=40",
];
const TIMEOUT_OF_PAPER: &str = "options.relay_timeout_ms=50";
const LONG_PATIENCE: &str = "options.resend_after_ms=200";

/// Answers from one millisecond until another.
fn between(observed: &Observed, (from, until): (u64, u64)) -> Observed {
    let within = |at_us: u64| (from * 1000..until * 1000).contains(&at_us);
    let some = |series: &Series| Series {
        answers: series
            .answers
            .iter()
            .copied()
            .filter(|answer| within(answer.at_us))
            .collect(),
        refused: series.refused,
    };
    Observed {
        elapsed_us: (until - from) * 1000,
        sources: observed.sources.iter().map(some).collect(),
        ..observed.clone()
    }
}

/// Figure 15.
pub(in super::super) fn node(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, NODES);
    let mut sheet = priced_sheet(
        &format!("latency of 30 clients when a node dies, {nodes} nodes"),
        &[
            "Timeouts are Ionian's: a relay gives up after four times the usual time, and a request is made again \
             after 40 ms. The bars show medians before the node dies, in the first half second after that, and \
             later; whiskers go to the 75th percentile. Ionian has a gray list always; what it is worth is the \
             difference between the first half second and later. The paper's text has no numbers.",
            super::WHO,
        ],
    );
    let (dies, ends) = if bench.quick {
        (600, 1800)
    } else {
        (2000, 6000)
    };
    let spans = [
        ("before", (dies / 2, dies)),
        ("first 0.5 s", (dies, dies + 500)),
        ("later", (dies + 500, ends)),
    ];
    let mut bars = Vec::new();
    for (groups, slack) in bench.some(&CASES) {
        let slack = spared(bench, groups, slack);
        let system = System::pigpaxos(nodes, groups)
            .with(format!("options.relay_slack={slack}"))
            .called(&format!("R={groups}, PRC={slack}"));
        let node = NodeId(nodes as u16 / 2);
        let trial = Trial {
            changes: vec![(dies * 1000, Change::Death { node })],
            options: USUAL.map(str::to_owned).to_vec(),
            ..Trial::new(nodes, FEW_CLIENTS, (dies / 2, ends))
        };
        let observed = system.observe(&trial)?;
        let points = spans.map(|(when, span)| Point {
            groups: Some(groups),
            slack: Some(slack),
            node: Some(when.to_owned()),
            ..priced(&system, &between(&observed, span))
        });
        bars.extend(points.iter().enumerate().filter_map(|(colour, point)| {
            Some(Bar {
                whisker: Some(point.p75_ms?),
                ..bar(
                    &format!("{} {}", point.series, point.node.as_deref()?),
                    colour,
                    point.p50_ms?,
                )
            })
        }));
        sheet.findings.extend(of_node(&points));
        sheet.points.extend(points);
    }
    sheet.findings.push(
        "The paper: without PRC and gray list every operation waits for a timeout; with both the median is comparable \
         to that without a fault."
            .to_owned(),
    );
    let labels = ("", "median latency (ms), to the 75th percentile");
    let title = "Ionian at the paper's price (simulated)";
    sheet.panels.push(panel(title, labels, Marks::Bars(bars)));
    Ok(sheet)
}

fn of_node([before, first, later]: &[Point; 3]) -> Option<String> {
    let off = later.p50_ms? / before.p50_ms? - 1.0;
    let verdict = met(off.abs() <= WITHIN);
    let target = match before.slack {
        Some(0) => String::new(),
        _ => format!(" Aimed at: within {:.0} %, {verdict}.", 100.0 * WITHIN),
    };
    Some(format!(
        "{}: median {:.2} ms before, {:.2} ms in the first half second (99th percentile {:.1} ms), {:.2} ms later \
         ({:+.1} %; 99th percentile {:.1} ms).{target}",
        before.series,
        before.p50_ms?,
        first.p50_ms?,
        first.p99_ms?,
        later.p50_ms?,
        100.0 * off,
        later.p99_ms?
    ))
}

/// Figure 16.
pub(in super::super) fn group(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, NODES);
    let (dies, ends) = if bench.quick {
        (600, 2600)
    } else {
        (2000, 8000)
    };
    let mut sheet = priced_sheet(
        &format!("throughput when one of three groups dies, {nodes} nodes, 120 clients"),
        &[
            "The nodes of the second of three equal slices die at once. `static groups` are those slices, without \
             PRC, with relays that give up after 50 ms and a leader that asks again after 200 ms, as in the paper. \
             `drawn anew` is the preset `pigpaxos-25`: groups are drawn anew, PRC=1, relays give up after \
             four times the usual time, and a leader asks again after 40 ms.",
            super::WHO,
        ],
    );
    let as_paper = System::pigpaxos(nodes, 3)
        .with("options.relay_shuffle=0")
        .with("options.relay_slack=0");
    let systems = [
        (
            as_paper.called("static groups"),
            vec![TIMEOUT_OF_PAPER, LONG_PATIENCE],
        ),
        (System::pigpaxos(nodes, 3).called("drawn anew"), vec![]),
    ];
    let mut curves = Vec::new();
    for (colour, (system, own)) in systems.iter().enumerate() {
        let dead = nodes / 3..2 * nodes / 3;
        let death = |node: usize| {
            let node = NodeId(node as u16);
            (dies * 1000, Change::Death { node })
        };
        let options = USUAL.iter().chain(own).map(|option| (*option).to_owned());
        let trial = Trial {
            changes: dead.map(death).collect(),
            options: options.collect(),
            ..Trial::new(nodes, CLIENTS, (0, ends))
        };
        let observed = system.observe(&trial)?;
        let interval = if bench.quick { 200 } else { 500 };
        let series = &observed.sources[0];
        let rates = series.over_time(0, ends * 1000, interval * 1000);
        let rates: Vec<(f64, f64)> = rates
            .into_iter()
            .map(|(middle, rate)| (middle as f64 / 1e6, rate))
            .collect();
        sheet
            .points
            .extend(rates.iter().map(|(second, rate)| Point {
                seconds: Some(*second),
                groups: Some(3),
                ..Point::new(&system.name, Measure::Priced, *rate)
            }));
        let (found, relative) = of_group(&system.name, &observed, dies, ends);
        sheet.findings.push(found);
        sheet.points.push(Point {
            relative: Some(relative),
            ..Point::about(
                &format!("{}, after as a multiple of before", system.name),
                Measure::Priced,
            )
        });
        curves.push(curve(&system.name, colour, Look::Solid, rates));
    }
    let paper = multiple("after as a multiple of before", 1.0 - GROUP_COSTS);
    sheet.points.push(paper);
    let labels = ("seconds", "commands per second");
    let title = "Ionian at the paper's price (simulated)";
    sheet
        .panels
        .push(panel(title, labels, Marks::Curves(curves)));
    Ok(sheet)
}

/// What the rest loses, from a while after the failure on.
fn of_group(name: &str, observed: &Observed, dies: u64, ends: u64) -> (String, f64) {
    let rate = |span| between(observed, span).answers_per_second();
    let (before, first, after) = (
        rate((dies / 2, dies)),
        rate((dies, dies + 1000)),
        rate((dies + 1000, ends)),
    );
    let relative = after / before;
    let verdict = met(relative >= 1.0 - GROUP_COSTS);
    let text = format!(
        "{name}: {} commands/s before, {} in the first second, {} afterwards ({:+.1} %; the paper -3 %). Aimed at: \
         within {:.0} %, {verdict}.",
        short(before),
        short(first),
        short(after),
        100.0 * (relative - 1.0),
        100.0 * GROUP_COSTS
    );
    (text, relative)
}
