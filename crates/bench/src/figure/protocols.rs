//! Figures 30a and 30b, and as two more of the same kind the numbers of section 8.3: Mencius and
//! S-Paxos, as published and compartmentalized.

use super::deployments::{batches, beside, preset, scaled};
use super::drawing::panel::{Bar, Curve, Look, Marks, Panel};
use super::point::{Measure, Point, short};
use super::sheet::{Sheet, peak, ratio};
use super::simulate::Bench;
use super::traffic::at_leader;
use super::verdict::{self, met};
use crate::model::Workload;
use anyhow::Result;
use ionian_deployment::Deployment;

/// Machines that the clients are on: as many for each of three leaders.
const LANES: usize = 9;
const CLIENTS: [usize; 8] = [10, 50, 100, 300, 600, 1000, 2000, 4000];
const BATCH: usize = 100;
/// The most that a role should spend, as a multiple of the same role of MultiPaxos.
const AS_MULTIPAXOS: f64 = 1.3;
const VALUES: [usize; 4] = [16, 1024, 16_384, 65_536];

/// What is compared in a figure.
struct Comparison {
    title: &'static str,
    /// As published, compartmentalized, and what both are compared with.
    systems: &'static [System],
    batch: usize,
    /// How many times the first the second should do.
    gain: Option<f64>,
    notes: &'static [&'static str],
}

struct System {
    name: &'static str,
    preset: &'static str,
    /// A role that the preset has not, added on each node with a leader.
    beside_leaders: Option<&'static str>,
    /// Commands per second, where the text of the paper names them.
    published: Option<f64>,
}

const MENCIUS: System = System {
    name: "Mencius",
    preset: "mencius",
    beside_leaders: None,
    published: Some(30_000.0),
};
const COMPARTMENTALIZED_MENCIUS: System = System {
    name: "Compartmentalized Mencius",
    preset: "mencius-compartmentalized",
    beside_leaders: None,
    published: Some(250_000.0),
};
const UNREPLICATED: System = System {
    name: "unreplicated",
    preset: "unreplicated",
    beside_leaders: None,
    published: None,
};
const UNREPLICATED_BATCHED: System = System {
    name: "unreplicated",
    preset: "unreplicated-batched",
    beside_leaders: None,
    published: None,
};

const TEXT: &str = "What the paper measured is in its text; the tables that its authors published have none of this figure.";
const AS_PUBLISHED: &str = "As published it is three nodes with one of every role each, which call each other; what the \
     unbatchers and read batchers of the preset cost does not count, which is in its favour.";

/// Figure 30a.
pub(super) fn mencius(bench: &Bench) -> Result<Sheet> {
    let comparison = Comparison {
        title: "latency and throughput of writes with Mencius, unbatched (ours simulated)",
        systems: &[MENCIUS, COMPARTMENTALIZED_MENCIUS, UNREPLICATED],
        batch: 1,
        gain: Some(8.3),
        notes: &[
            TEXT,
            AS_PUBLISHED,
            "Clients are dealt out evenly over the leaders.",
        ],
    };
    let mut sheet = compare(bench, &comparison)?;
    sheet.findings.push(leaders_alone(bench)?);
    Ok(sheet)
}

/// Figure 30b.
pub(super) fn mencius_batched(bench: &Bench) -> Result<Sheet> {
    let comparison = Comparison {
        title: "latency and throughput of writes with Mencius in batches (ours simulated)",
        systems: &[
            System {
                published: Some(200_000.0),
                beside_leaders: Some("batcher"),
                ..MENCIUS
            },
            System {
                preset: "mencius-batched",
                published: Some(850_000.0),
                ..COMPARTMENTALIZED_MENCIUS
            },
            UNREPLICATED_BATCHED,
        ],
        batch: BATCH,
        gain: None,
        notes: &[
            TEXT,
            "Mencius as published is the preset `mencius` with a batcher on each node as well.",
            "Clients are dealt out evenly over the leaders.",
        ],
    };
    compare(bench, &comparison)
}

/// Section 8.3, unbatched.
pub(super) fn spaxos(bench: &Bench) -> Result<Sheet> {
    let comparison = Comparison {
        title: "latency and throughput of writes with S-Paxos, unbatched (ours simulated)",
        systems: &[
            System {
                name: "S-Paxos",
                preset: "spaxos",
                beside_leaders: None,
                published: Some(22_000.0),
            },
            System {
                name: "Compartmentalized S-Paxos",
                preset: "spaxos-compartmentalized",
                beside_leaders: None,
                published: Some(180_000.0),
            },
            UNREPLICATED,
        ],
        batch: 1,
        gain: Some(8.2),
        notes: &[TEXT, AS_PUBLISHED],
    };
    let mut sheet = compare(bench, &comparison)?;
    let bytes = VALUES.map(|value_bytes| {
        Ok(format!(
            "{} of {value_bytes}",
            at_leader("spaxos-compartmentalized", value_bytes)?
        ))
    });
    let bytes = bytes.into_iter().collect::<Result<Vec<_>>>()?;
    sheet.findings.push(format!(
        "Bytes in and out at the leader for a command (real roles, with the headers of frames), by bytes of its value: \
         {}; MultiPaxos's leader {} of 16 and {} of 65536.",
        bytes.join(", "),
        at_leader("compartmentalized", VALUES[0])?,
        at_leader("compartmentalized", VALUES[3])?,
    ));
    Ok(sheet)
}

/// Section 8.3, in batches.
pub(super) fn spaxos_batched(bench: &Bench) -> Result<Sheet> {
    let comparison = Comparison {
        title: "latency and throughput of writes with S-Paxos in batches (ours simulated)",
        systems: &[
            System {
                name: "S-Paxos",
                preset: "spaxos",
                beside_leaders: None,
                published: Some(180_000.0),
            },
            System {
                name: "Compartmentalized S-Paxos",
                preset: "spaxos-batched",
                beside_leaders: None,
                published: Some(750_000.0),
            },
            UNREPLICATED_BATCHED,
        ],
        batch: BATCH,
        gain: None,
        notes: &[
            TEXT,
            "S-Paxos as published is the preset `spaxos`, whose disseminators form batches themselves.",
        ],
    };
    compare(bench, &comparison)
}

/// These stand beside their neighbours to save them messages, and are not in the papers' servers.
const BESIDE: [&str; 2] = ["unbatcher", "read_batcher"];

fn compare(bench: &Bench, comparison: &Comparison) -> Result<Sheet> {
    let notes = comparison
        .notes
        .iter()
        .map(|note| (*note).to_owned())
        .collect();
    let mut sheet = Sheet::empty(comparison.title, notes);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let workload = Workload::writes(comparison.batch);
    for (
        colour,
        System {
            name,
            preset: from,
            beside_leaders,
            published,
        },
    ) in comparison.systems.iter().enumerate()
    {
        let mut deployment = batches(preset(from, LANES)?, comparison.batch)?;
        if let Some(role) = beside_leaders {
            deployment = beside(deployment, "leader", role);
        }
        let exempt = if colour == 0 && comparison.batch == 1 {
            &BESIDE[..]
        } else {
            &[]
        };
        let mut points = vec![bench.project(name, &deployment, &workload, exempt)?];
        for clients in bench.some(&CLIENTS) {
            points.push(bench.simulate(name, &deployment, &workload, exempt, clients)?);
        }
        ours.push(curve(name, colour, &points));
        if let Some(published) = *published {
            theirs.push(Bar::plain(name.replacen(' ', "\n", 1), colour, published));
            points.push(Point::new(name, Measure::Published, published));
        }
        sheet.points.extend(points);
    }
    sheet.findings = comparison
        .systems
        .iter()
        .filter_map(|system| peaks(&sheet.points, system))
        .collect();
    sheet.findings.extend(gain(&sheet.points, comparison));
    sheet.findings.push(beside_multipaxos(bench, comparison)?);
    sheet.panels = vec![
        panel(
            "The paper (published): peaks",
            "",
            "commands per second",
            Marks::Bars(theirs),
        ),
        panel(
            "Ionian (simulated)",
            "commands per second",
            "median latency (ms)",
            Marks::Curves(ours),
        ),
    ];
    Ok(sheet)
}

fn curve(name: &str, colour: usize, points: &[Point]) -> Curve {
    let points = points
        .iter()
        .filter_map(|point| Some((point.commands_per_second, point.p50_ms?)))
        .collect();
    Curve {
        name: name.to_owned(),
        colour,
        look: Look::Solid,
        points,
    }
}

fn panel(title: &str, x_label: &str, y_label: &str, marks: Marks) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        marks,
    }
}

fn peaks(points: &[Point], System { name, .. }: &System) -> Option<String> {
    let of = |measure| peak(points, name, measure).map(short);
    let bottleneck = points
        .iter()
        .find(|point| point.series == *name && point.measure == Measure::Projected)?;
    let theirs =
        of(Measure::Published).map_or_else(String::new, |theirs| format!("; the paper's {theirs}"));
    Some(format!(
        "{name}: peak {} commands/s simulated, {} projected (the bottleneck is {}){theirs}.",
        of(Measure::Simulated)?,
        of(Measure::Projected)?,
        bottleneck.bottleneck.as_deref().unwrap_or("unknown"),
    ))
}

/// What compartmentalization gains, and whether that is what was aimed at.
fn gain(points: &[Point], Comparison { systems, gain, .. }: &Comparison) -> Option<String> {
    let [first, second, ..] = systems else {
        return None;
    };
    let times =
        |measure| Some(peak(points, second.name, measure)? / peak(points, first.name, measure)?);
    let all = [Measure::Simulated, Measure::Projected, Measure::Published];
    let gains = all
        .into_iter()
        .filter_map(|measure| Some(format!("{:.1}x {}", times(measure)?, measure.name())));
    let projected = times(Measure::Projected)?;
    let target = gain.map_or_else(String::new, |wanted| {
        format!(
            " Aimed at: {wanted}x projected, {}.",
            met(projected >= wanted)
        )
    });
    let verdict = verdict::of_gain(points, first.name, second.name, Measure::Published)?;
    Some(format!(
        "Compartmentalization gains: {}: {verdict}.{target}",
        gains.collect::<Vec<_>>().join(", ")
    ))
}

/// What the roles of the compartmentalized deployment spend, beside what as many of MultiPaxos do.
fn beside_multipaxos(bench: &Bench, comparison: &Comparison) -> Result<String> {
    let ours = batches(
        preset(comparison.systems[1].preset, LANES)?,
        comparison.batch,
    )?;
    let from = match comparison.batch {
        1 => "compartmentalized",
        _ => "batched",
    };
    let mut theirs = batches(preset(from, LANES)?, comparison.batch)?;
    for role in ["proxy_leader", "replica"] {
        theirs = scaled(theirs, role, count(&ours, role))?;
    }
    let workload = Workload::writes(comparison.batch);
    let (ours, theirs) = (
        bench.measured(&ours, &workload)?,
        bench.measured(&theirs, &workload)?,
    );
    let mut worst = 0.0_f64;
    let mut parts = Vec::new();
    for role in ["leader", "proxy_leader", "acceptor", "replica"] {
        let ((_, one), (_, other)) = (ours.role(role)?, theirs.role(role)?);
        worst = worst.max(one / other);
        parts.push(format!(
            "{}s {one:.3} us ({})",
            role.replace('_', " "),
            ratio(one, other)
        ));
    }
    Ok(format!(
        "What all instances of a role together spend on a write, beside as many of MultiPaxos: {}. Aimed at: within \
         {AS_MULTIPAXOS}x, {}.",
        parts.join(", "),
        met(worst <= AS_MULTIPAXOS)
    ))
}

fn count(deployment: &Deployment, role: &str) -> usize {
    let of = |node: &ionian_deployment::Node| node.instances().get(role).copied().unwrap_or(0);
    deployment.nodes.iter().map(of).sum()
}

/// What leaders could do if replicas took no time.
fn leaders_alone(bench: &Bench) -> Result<String> {
    let workload = Workload::writes(1);
    let project = |from| {
        bench.project(
            from,
            &batches(preset(from, LANES)?, 1)?,
            &workload,
            &["replica"],
        )
    };
    let (ours, multipaxos) = (
        project(COMPARTMENTALIZED_MENCIUS.preset)?,
        project("compartmentalized")?,
    );
    let in_words = |point: &Point| {
        let bottleneck = point.bottleneck.as_deref().unwrap_or("unknown");
        format!(
            "{} (the bottleneck is {bottleneck})",
            short(point.commands_per_second)
        )
    };
    Ok(format!(
        "If replicas took no time, commands/s projected: compartmentalized Mencius {}, compartmentalized MultiPaxos \
         {}. Aimed at: more when leaders are the bottleneck, {}.",
        in_words(&ours),
        in_words(&multipaxos),
        met(ours.commands_per_second > multipaxos.commands_per_second)
    ))
}
