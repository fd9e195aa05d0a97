//! Figures 9, 10 and 11: how long commands take, when load shifts, how latencies are distributed,
//! and under load.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::super::verdict::verdict;
use super::trial::{Load, Trial};
use super::*;
use anyhow::Result;
use ionian_sim::performance::wan::{Pace, Variation};

/// The paper's clients wait from 100 to 200 ms between two requests, or, under medium load, a tenth
/// of that.
const LOW: Pace = Pace::Waits {
    shortest_us: 100_000,
    longest_us: 200_000,
};
const MEDIUM: Pace = Pace::Waits {
    shortest_us: 10_000,
    longest_us: 20_000,
};
/// What a client with low load asks in 3 seconds.
const ASKED_IN_THREE_SECONDS: usize = 20;
const MBPS: f64 = 20.0;

/// Figure 9.
pub(in super::super) fn shifting(bench: &Bench) -> Result<Sheet> {
    let third = if bench.quick { 4 } else { 60 };
    let mut sheet = sheet(
        "commit latency when client load shifts from one site to another",
        &[
            "One client at site A asks in the first two thirds of the time, one at B in the last two, each 100 to 200 \
           ms after it asked before. No payload. Each dot is a command; the table has the mean, the median and the \
           99th percentile of each third.",
        ],
    );
    sheet.points.push(Point {
        mean_ms: Some(100.0),
        ..published("Mencius, site A alone", 1000.0 / 150.0)
    });
    for system in SYSTEMS {
        let load = |site, from, until| Load {
            site,
            clients: 1,
            pace: LOW,
            seconds: (from, until),
        };
        let trial = Trial {
            loads: vec![load(0, 1, 2 * third), load(1, third, 3 * third)],
            ..Trial::new(SITES, clique(MBPS), 0, (0, 3 * third))
        };
        let observed = system.observe(&trial)?;
        let mut curves = Vec::new();
        for (site, series) in observed.sources.iter().enumerate() {
            let name = format!("{}, site {}", system.name, SITE_NAMES[site]);
            let parts =
                [0, 1, 2].map(|part| latency_of(series, (part * third, (part + 1) * third)));
            for (part, (latency, rate)) in (0..).zip(parts).filter(|(_, (_, rate))| *rate > 0.0) {
                let middle = (part as f64 + 0.5) * third as f64;
                sheet.points.push(Point {
                    seconds: Some(middle),
                    ..with_latency(&name, latency, rate)
                });
            }
            let means = parts.map(|(latency, rate)| {
                if rate > 0.0 {
                    short(latency.mean / 1000.0)
                } else {
                    "-".to_owned()
                }
            });
            sheet.findings.push(format!(
                "{name}: {} ms on average in the three thirds.",
                means.join(", ")
            ));
            let dots = series
                .answers
                .iter()
                .map(|answer| (answer.at_us as f64 / 1e6, answer.latency_us as f64 / 1e3));
            curves.push(curve(
                &format!("site {}", SITE_NAMES[site]),
                site,
                Look::Dots,
                dots.collect(),
            ));
        }
        sheet.panels.push(panel(
            system.name,
            ("seconds", "latency (ms)"),
            Marks::Curves(curves),
        ));
    }
    sheet.findings.push(
        "The paper's Mencius: 100 ms while one site asks, and up to 100 ms more for some commands while both do; its \
         Paxos, constantly: 100 ms at the leader's site, 200 ms at others."
            .to_owned(),
    );
    Ok(sheet)
}

/// Figure 10.
pub(in super::super) fn distribution(bench: &Bench) -> Result<Sheet> {
    let until = if bench.quick { 4 } else { 120 };
    let mut sheet = sheet(
        "commit latency distribution under low and medium load",
        &[
            "One client a site, 100 to 200 ms between two requests under low load, 10 to 20 ms under medium load. No \
             payload.",
        ],
    );
    sheet.points.push(Point {
        mean_ms: Some(167.0),
        ..published("Paxos, low load", 20.0)
    });
    sheet.points.push(Point {
        mean_ms: Some(155.0),
        ..published("Mencius, medium load", 200.0)
    });
    let mut curves = Vec::new();
    for system in SYSTEMS {
        for (load, pace, look) in [
            ("low load", LOW, Look::Solid),
            ("medium load", MEDIUM, Look::Dashed),
        ] {
            let trial = Trial::new(SITES, clique(MBPS), 0, (2, until)).with_clients(1, pace);
            let observed = system.observe(&trial)?;
            let name = format!("{}, {load}", system.name);
            let mut all: Vec<u64> = observed
                .sources
                .iter()
                .flat_map(Series::latencies)
                .collect();
            all.sort_unstable();
            let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
            curves.push(curve(
                &name,
                colour(system.name),
                look,
                (0..=100)
                    .map(|part| (at(part as f64 / 100.0), part as f64))
                    .collect(),
            ));
            sheet
                .points
                .push(simulated(&name, observed.answers_per_second(), &observed));
            let minimal =
                all.iter().filter(|latency| **latency < 101_000).count() * 100 / all.len().max(1);
            let mean = short(observed.latency_us().mean / 1000.0);
            sheet.findings.push(format!(
                "{name}: {mean} ms on average, {minimal} % within one round trip."
            ));
        }
    }
    sheet.panels.push(panel(
        "",
        ("latency (ms)", "% of commands"),
        Marks::Curves(curves),
    ));
    sheet.findings.push(
        "The paper: Paxos 167 ms on average (a third of the commands 100 ms, the others 200 ms) under either load; \
         about half of Mencius's 100 ms under low load, and 155 ms on average under medium load."
            .to_owned(),
    );
    Ok(sheet)
}

/// Figure 11(a).
pub(in super::super) fn network_bound(bench: &Bench) -> Result<Sheet> {
    let paper: &[Said] = &[
        ("Paxos", 340.0, 195.0),
        ("Mencius", 340.0, 195.0),
        ("Mencius-16", 340.0, 150.0),
        ("Mencius-128", 340.0, 130.0),
        ("Mencius-1024", 340.0, 130.0),
    ];
    let sheet = sheet(
        "commit latency and load, 4,000 bytes of payload",
        &[ABOUT, "The paper's have Nagle's algorithm."],
    );
    let loads = [100, 200, 340, 480, 600, 800, 1000, 1200, 1400, 1600];
    under_load(
        bench,
        sheet,
        paper,
        (PAYLOAD, Variation::None),
        &loads,
        "ours has no Nagle's algorithm to wait for",
    )
}

/// Figure 11(b).
pub(in super::super) fn processor_bound(bench: &Bench) -> Result<Sheet> {
    let paper: &[Said] = &[("Paxos", 6000.0, f64::NAN), ("Mencius", 9000.0, f64::NAN)];
    let note = "Of latencies without payload the paper's text has no numbers; throughputs are those of figure 4.";
    let sheet = sheet("commit latency and load, no payload", &[ABOUT, note]);
    let loads = [100, 300, 900, 2000, 4000, 6000, 8000, 9000, 10_000];
    under_load(bench, sheet, paper, (0, Variation::None), &loads, "")
}

/// Figure 11(c).
pub(in super::super) fn with_variance(bench: &Bench) -> Result<Sheet> {
    let paper: &[Said] = &[
        ("Paxos", 300.0, 415.0),
        ("Mencius", 300.0, 455.0),
        ("Mencius-16", 300.0, 400.0),
        ("Mencius-128", 300.0, 350.0),
        ("Mencius-1024", 300.0, 350.0),
    ];
    let note = "Every message takes longer by a Pareto-distributed time, 20 ms on average and 100 ms at most, and \
                what is behind it on its link waits for it. The paper's have Nagle's algorithm, and TCP that took \
                reordering for loss.";
    let sheet = sheet(
        "commit latency and load, no payload, delays that vary",
        &[ABOUT, note],
    );
    let variation = Variation::Pareto {
        scale_us: 25_000.0,
        longest_us: 100_000.0,
    };
    let loads = [100, 300, 900, 2000, 4000, 6000, 8000, 9000, 10_000];
    let why_not = "ours has no Nagle's algorithm, and no TCP that takes reordering for loss";
    under_load(bench, sheet, paper, (0, variation), &loads, why_not)
}

/// What the text of the paper says of one system, and whether ours has that latency under that
/// load.
fn beside_the_paper(points: &[Point], (name, load, ms): Said, why_not: &str) -> String {
    let is_ours = |point: &&Point| {
        point.series == name
            && point.measure == Measure::Simulated
            && point.offered_per_second == Some(load)
    };
    match points.iter().find(is_ours).and_then(|point| point.mean_ms) {
        Some(ours) => format!(
            "The paper's {name}: {ms} ms at {load} commands/s; ours {} ms: {}.",
            short(ours),
            verdict(ours, ms, why_not)
        ),
        None => format!("The paper's {name}: {ms} ms at {load} commands/s."),
    }
}

const ABOUT: &str = "Clients of all sites ask alike, each 100 to 200 ms after it asked before, answered or not; more \
                     load is more clients. Links carry 20 Mbps. The table goes on where the picture ends, at four \
                     times the least latency.";

/// What the paper's text says: system, load, milliseconds.
type Said = (&'static str, f64, f64);

fn under_load(
    bench: &Bench,
    mut sheet: Sheet,
    paper: &[Said],
    (padding, variation): (usize, Variation),
    loads: &[usize],
    why_not: &str,
) -> Result<Sheet> {
    let in_flight = if padding > 0 { 300 } else { 1000 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (name, load, ms) in paper {
        let mean_ms = ms.is_finite().then_some(*ms);
        sheet.points.push(Point {
            mean_ms,
            offered_per_second: Some(*load),
            ..published(name, *load)
        });
    }
    for system in SYSTEMS_AND_ORDERS {
        let mut curve_points = Vec::new();
        for &asked in &bench.some(loads) {
            let seconds = if bench.quick { (3, 5) } else { (5, 15) };
            let network = Network {
                variation,
                ..clique(MBPS)
            };
            let clients = asked.div_ceil(ASKED_IN_THREE_SECONDS);
            let trial = Trial {
                in_flight,
                ..Trial::new(SITES, network, padding, seconds).with_clients(clients, LOW)
            };
            let observed = system.observe(&trial)?;
            let got = observed.answers_per_second();
            let point = simulated(system.name, got, &observed);
            curve_points.push((got, point.mean_ms.unwrap_or(0.0)));
            sheet.points.push(Point {
                offered_per_second: Some(asked as f64),
                value_bytes: Some(padding),
                bottleneck: bottleneck(&observed, bytes(MBPS)),
                ..point
            });
        }
        let most = short(curve_points.iter().map(|(got, _)| *got).fold(0.0, f64::max));
        let least = short(curve_points[0].1);
        sheet.findings.push(format!(
            "{}: {least} ms on average under the least load; at most {most} commands/s.",
            system.name
        ));
        // Beyond the jump there is nothing to see but how long queues are.
        let highest = 4.0 * curve_points[0].1;
        curve_points.retain(|(_, ms)| *ms <= highest);
        ours.push(curve(
            system.name,
            colour(system.name),
            Look::Solid,
            curve_points,
        ));
    }
    for (name, load, ms) in paper.iter().filter(|(.., ms)| ms.is_finite()) {
        theirs.push(curve(
            &format!("{name}, the paper"),
            colour(name),
            Look::Dots,
            vec![(*load, *ms)],
        ));
        let finding = beside_the_paper(&sheet.points, (name, *load, *ms), why_not);
        sheet.findings.push(finding);
    }
    ours.extend(theirs);
    sheet.panels.push(panel(
        "",
        ("commands per second", "mean latency (ms)"),
        Marks::Curves(ours),
    ));
    Ok(sheet)
}

/// Of the answers from one second to another, with how many came a second.
fn latency_of(series: &Series, (from, until): (u64, u64)) -> (Latency, f64) {
    let within = series
        .answers
        .iter()
        .filter(|answer| (from * SECOND..until * SECOND).contains(&answer.at_us));
    let answers: Vec<_> = within.copied().collect();
    let rate = answers.len() as f64 / (until - from) as f64;
    (
        Series {
            answers,
            refused: 0,
        }
        .latency_us(),
        rate,
    )
}
