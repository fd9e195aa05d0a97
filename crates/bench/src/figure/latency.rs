//! Figures 28a, 28b, 29 and 36: latency against throughput, as clients are added.

use super::deployments::{batches, preset, scaled};
use super::drawing::panel::{Curve, Look, Marks, Panel};
use super::point::{Measure, Point, short};
use super::psmr::gain::with_workers;
use super::published::{self, Row};
use super::sheet::{Sheet, peak, ratio};
use super::simulate::Bench;
use super::verdict;
use crate::model::Workload;
use anyhow::Result;

/// Machines that the clients are on.
const LANES: usize = 8;
/// More clients than the paper's most: a faster system needs more of them to be saturated.
const MORE_CLIENTS: [usize; 2] = [2000, 4000];
const BATCH: usize = 100;

const MULTIPAXOS: &str = "MultiPaxos";
const COMPARTMENTALIZED: &str = "Compartmentalized MultiPaxos";
const UNREPLICATED: &str = "unreplicated";
const BATCHED_MULTIPAXOS: &str = "Compartmentalized MultiPaxos, batched";
const SCALOG: &str = "Scalog";
const COMPARTMENTALIZED_SCALOG: &str = "Compartmentalized Scalog";
const PARALLEL_SCALOG: &str = "Compartmentalized Scalog, replicas with workers";
/// What compartmentalized Scalog should do at least, as a multiple of Scalog.
const SCALOG_GAIN: f64 = 1.6;

/// One of the systems compared.
struct System {
    name: &'static str,
    /// As `published.csv` calls it; empty where the paper compares with none.
    published: &'static str,
    preset: &'static str,
}

const UNBATCHED: [System; 3] = [
    System {
        name: MULTIPAXOS,
        published: "multipaxos",
        preset: "baseline",
    },
    System {
        name: COMPARTMENTALIZED,
        published: "compartmentalized",
        preset: "compartmentalized",
    },
    System {
        name: UNREPLICATED,
        published: "unreplicated",
        preset: "unreplicated",
    },
];

const BATCHED: [System; 3] = [
    System {
        name: MULTIPAXOS,
        published: "multipaxos",
        preset: "colocated",
    },
    System {
        name: COMPARTMENTALIZED,
        published: "compartmentalized",
        preset: "batched",
    },
    System {
        name: UNREPLICATED,
        published: "unreplicated",
        preset: "unreplicated-batched",
    },
];

const SHARDED: [System; 3] = [
    System {
        name: SCALOG,
        published: "scalog",
        preset: "scalog",
    },
    System {
        name: COMPARTMENTALIZED_SCALOG,
        published: "compartmentalized",
        preset: "scalog-compartmentalized",
    },
    System {
        name: BATCHED_MULTIPAXOS,
        published: "",
        preset: "batched",
    },
];

/// Figure 28a.
pub(super) fn unbatched(bench: &Bench) -> Result<Sheet> {
    let sheet = Sheet::empty(
        "latency and throughput of writes, unbatched (ours simulated)",
        vec![
            "MultiPaxos is the preset `baseline`: three nodes with a leader, a proxy leader, an acceptor and a \
             replica each, which call each other."
                .to_owned(),
            "Of the paper's compartmentalized runs those with a 2x2 grid are shown, which is also ours.".to_owned(),
        ],
    );
    let mut sheet = compare(bench, "28a", sheet, &UNBATCHED, 1)?;
    sheet.findings = gains(&sheet.points);
    Ok(sheet)
}

/// Figure 28b.
pub(super) fn batched(bench: &Bench) -> Result<Sheet> {
    let sheet = Sheet::empty(
        "latency and throughput of writes in batches (ours simulated)",
        vec![
            "Our batches adapt to the load and hold at most 100 commands; the paper's have the size that was best for \
             the number of clients, from 1 to 100."
                .to_owned(),
            "MultiPaxos is the preset `colocated`: three nodes with one of every role each, a batcher and an \
             unbatcher among them, which call each other."
                .to_owned(),
        ],
    );
    let mut sheet = compare(bench, "28b", sheet, &BATCHED, BATCH)?;
    sheet.findings = gains(&sheet.points);
    Ok(sheet)
}

/// Figure 36.
pub(super) fn sharded(bench: &Bench) -> Result<Sheet> {
    let notes = [
        "All of ours execute in order, with a log.",
        "The paper's curve of the compartmentalized Scalog was measured with `unsafe_yolo_execution`: each replica \
         executes what arrives, in any order, and there is no log; its cut is a maximum, so nothing waits for the \
         copies ([s5](../defects.md)).",
        "Below 100 clients a server each of the paper's servers waits 100 ms for a full batch: 1,400 to 8,560 \
         commands/s. Ours report at once when nothing is under way.",
        "Batches hold at most 100 commands.",
    ];
    let sheet = Sheet::empty(
        "latency and throughput of writes with Scalog, in batches (ours simulated)",
        notes.map(str::to_owned).to_vec(),
    );
    let mut sheet = compare(bench, "36", sheet, &SHARDED, BATCH)?;
    let replicas = scaled(preset(SHARDED[1].preset, LANES)?, "unbatcher", 8)?;
    let parallel = with_workers(bench, PARALLEL_SCALOG, replicas)?;
    sheet.points.push(parallel);
    sheet.findings = sharding_gains(&sheet.points);
    Ok(sheet)
}

fn compare(
    bench: &Bench,
    figure: &str,
    mut sheet: Sheet,
    systems: &[System],
    batch: usize,
) -> Result<Sheet> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (
        colour,
        System {
            name,
            published,
            preset: from,
        },
    ) in systems.iter().enumerate()
    {
        let rows: Vec<Row> = published::rows(figure)
            .filter(|row| row.series == *published)
            .filter(|row| figure != "28a" || *published != "compartmentalized" || row.grid)
            .collect();
        let deployment = batches(preset(from, LANES)?, batch)?;
        let workload = Workload::writes(batch);
        let mut points = vec![bench.project(name, &deployment, &workload, &[])?];
        let clients: Vec<Row> = match rows.is_empty() {
            true => published::rows(figure).collect(),
            false => rows.clone(),
        };
        for clients in counts(bench, &clients) {
            points.push(bench.simulate(name, &deployment, &workload, &[], clients)?);
        }
        ours.push(curve(
            name,
            colour,
            Look::Solid,
            &points,
            Measure::Simulated,
        ));
        if !rows.is_empty() {
            theirs.extend(published_curves(name, colour, &rows, &mut points));
        }
        sheet.points.extend(points);
    }
    sheet.panels = panels(ours, theirs);
    Ok(sheet)
}

/// Figure 29.
pub(super) fn larger_values(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "latency and throughput of writes of larger values, unbatched (ours simulated)",
        vec!["Each size is measured by itself.".to_owned()],
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let cases = UNBATCHED[1..]
        .iter()
        .flat_map(|system| [(system, 100), (system, 1000)]);
    for (
        colour,
        (
            System {
                published,
                preset: from,
                ..
            },
            value_bytes,
        ),
    ) in cases.enumerate()
    {
        let rows: Vec<Row> = published::rows("29")
            .filter(|row| row.series == *published && row.value_bytes == Some(value_bytes))
            .collect();
        let series = format!("{published}, {value_bytes} bytes");
        let deployment = batches(preset(from, LANES)?, 1)?;
        let workload = Workload {
            value_bytes,
            ..Workload::writes(1)
        };
        let mut points = vec![bench.project(&series, &deployment, &workload, &[])?];
        for clients in counts(bench, &rows) {
            points.push(bench.simulate(&series, &deployment, &workload, &[], clients)?);
        }
        ours.push(curve(
            &series,
            colour,
            Look::Solid,
            &points,
            Measure::Simulated,
        ));
        theirs.extend(published_curves(&series, colour, &rows, &mut points));
        sheet.findings.extend(peaks(&points, &series));
        sheet.points.extend(points);
    }
    sheet.panels = panels(ours, theirs);
    Ok(sheet)
}

/// The paper's numbers of clients, and more.
fn counts(bench: &Bench, rows: &[Row]) -> Vec<usize> {
    let mut counts: Vec<usize> = rows
        .iter()
        .filter_map(|row| row.clients)
        .chain(MORE_CLIENTS)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    bench.some(&counts)
}

fn published_curves(
    name: &str,
    colour: usize,
    rows: &[Row],
    points: &mut Vec<Point>,
) -> [Curve; 2] {
    for row in rows {
        for (measure, throughput) in [
            (Measure::PublishedP90, row.p90),
            (Measure::PublishedMean, row.mean),
        ] {
            points.push(Point {
                clients: row.clients,
                batch: row.batch,
                value_bytes: row.value_bytes,
                p50_ms: row.p50_ms,
                p99_ms: row.p99_ms,
                ..Point::new(name, measure, throughput)
            });
        }
    }
    [
        curve(
            &format!("{name}, p90"),
            colour,
            Look::Solid,
            points,
            Measure::PublishedP90,
        ),
        curve(
            &format!("{name}, mean"),
            colour,
            Look::Dashed,
            points,
            Measure::PublishedMean,
        ),
    ]
}

fn curve(name: &str, colour: usize, look: Look, points: &[Point], measure: Measure) -> Curve {
    let of_measure = points.iter().filter(|point| point.measure == measure);
    let points = of_measure
        .filter_map(|point| Some((point.commands_per_second, point.p50_ms?)))
        .collect();
    Curve {
        name: name.to_owned(),
        colour,
        look,
        points,
    }
}

fn panels(ours: Vec<Curve>, theirs: Vec<Curve>) -> Vec<Panel> {
    let panel = |title: &str, curves| Panel {
        title: title.to_owned(),
        x_label: "commands per second".to_owned(),
        y_label: "median latency (ms)".to_owned(),
        marks: Marks::Curves(curves),
    };
    vec![
        panel("The paper (published)", theirs),
        panel("Ionian (simulated)", ours),
    ]
}

/// One sentence for each system, and one for what compartmentalization gains.
fn gains(points: &[Point]) -> Vec<String> {
    let mut findings: Vec<String> = [MULTIPAXOS, COMPARTMENTALIZED, UNREPLICATED]
        .iter()
        .flat_map(|series| peaks(points, series))
        .collect();
    let gain = |measure| {
        Some(ratio(
            peak(points, COMPARTMENTALIZED, measure)?,
            peak(points, MULTIPAXOS, measure)?,
        ))
    };
    let all = [
        Measure::Simulated,
        Measure::Projected,
        Measure::PublishedP90,
        Measure::PublishedMean,
    ];
    let gains = all
        .into_iter()
        .filter_map(|measure| Some(format!("{} {}", gain(measure)?, measure.name())));
    let gains = gains.collect::<Vec<_>>().join(", ");
    let verdict = verdict::of_gain(points, MULTIPAXOS, COMPARTMENTALIZED, Measure::PublishedP90);
    findings.push(format!(
        "Compartmentalization gains: {gains}: {}.",
        verdict.unwrap_or_default()
    ));
    findings
}

/// The same for Scalog, with what it needs beside MultiPaxos.
fn sharding_gains(points: &[Point]) -> Vec<String> {
    let mut findings: Vec<String> = [SCALOG, COMPARTMENTALIZED_SCALOG]
        .iter()
        .flat_map(|series| peaks(points, series))
        .collect();
    let projected = |series| peak(points, series, Measure::Projected);
    if let (Some(plain), Some(decoupled), Some(multipaxos)) = (
        projected(SCALOG),
        projected(COMPARTMENTALIZED_SCALOG),
        projected(BATCHED_MULTIPAXOS),
    ) {
        let reached = decoupled >= SCALOG_GAIN * plain;
        let why_not = match reached {
            true => "",
            false => {
                ": the paper's proxy replicas answer each client in a message, and a replica of ours answers all clients \
                 of a gateway in one message for each cut, so that there is little to take off it"
            }
        };
        findings.push(format!(
            "Compartmentalization gains {}, projected. Aimed at: {SCALOG_GAIN}x, {}{why_not}. Compartmentalized \
             MultiPaxos with batches does {}, {} as much as the compartmentalized Scalog.",
            ratio(decoupled, plain),
            verdict::met(reached),
            short(multipaxos),
            ratio(multipaxos, decoupled),
        ));
    }
    if let Some(point) = points.iter().find(|point| point.series == PARALLEL_SCALOG) {
        findings.push(format!(
            "What every replica executes cannot be taken apart in either. With {} workers a replica (P-SMR) and more \
             unbatchers the compartmentalized Scalog does {}, projected; the bottleneck is {}.",
            point.threads.unwrap_or_default(),
            short(point.commands_per_second),
            point.bottleneck.as_deref().unwrap_or("unknown"),
        ));
    }
    let few = |series: &str| {
        points
            .iter()
            .filter(|point| point.series == series && point.measure == Measure::Simulated)
            .min_by_key(|point| point.clients)
    };
    if let Some(point) = few(SCALOG) {
        findings.push(format!(
            "With {} client: a median of {:.2} ms; the paper's 42.67 ms.",
            point.clients.unwrap_or_default(),
            point.p50_ms.unwrap_or(f64::NAN)
        ));
    }
    findings
}

fn peaks(points: &[Point], series: &str) -> Option<String> {
    let of = |measure| peak(points, series, measure).map(short);
    let bottleneck = points
        .iter()
        .find(|point| point.series == series && point.measure == Measure::Projected)?;
    Some(format!(
        "{series}: peak {} commands/s simulated, {} projected (the bottleneck is {}); the paper's {} (mean {}).",
        of(Measure::Simulated)?,
        of(Measure::Projected)?,
        bottleneck.bottleneck.as_deref().unwrap_or("unknown"),
        of(Measure::PublishedP90)?,
        of(Measure::PublishedMean)?
    ))
}
