//! What compartmentalization gains, by what it costs to execute a command.
//!
//! Every replica executes every command, whatever else is multiplied: so the gain depends on what
//! the state machine costs beside the messages, and a ratio at one machine says little. The axis is
//! what a state machine takes; at zero there is nothing but replication, and the further right, the
//! less the protocol matters.

use super::deployments::{batches, preset};
use super::drawing::panel::{Bar, Curve, Look, Marks, Panel};
use super::point::{Measure, Point, short};
use super::sheet::Sheet;
use super::simulate::Bench;
use crate::model::Workload;
use anyhow::{Context, Result};
use ionian_planner::projection::Projection;

const LANES: usize = 3;
/// Up to this many microseconds, by steps of one quarter.
const MOST_US: usize = 4;
const STEPS: usize = 4;

/// As published and compartmentalized.
struct System {
    name: &'static str,
    published: &'static str,
    compartmentalized: &'static str,
    /// The paper's commands per second, from the text of sections 8.1 to 8.3: as published,
    /// compartmentalized.
    paper: [f64; 2],
}

const SYSTEMS: [System; 3] = [
    System {
        name: "MultiPaxos",
        published: "baseline",
        compartmentalized: "compartmentalized",
        paper: [25_000.0, 150_000.0],
    },
    System {
        name: "Mencius",
        published: "mencius",
        compartmentalized: "mencius-compartmentalized",
        paper: [30_000.0, 250_000.0],
    },
    System {
        name: "S-Paxos",
        published: "spaxos",
        compartmentalized: "spaxos-compartmentalized",
        paper: [22_000.0, 180_000.0],
    },
];

/// The paper's unreplicated server, from the text of section 8.1. (The tables that its authors
/// published have 167,000.)
const PAPER_UNREPLICATED: f64 = 250_000.0;

/// What a command costs where it costs the most, in microseconds, without its execution.
struct Bare {
    /// On a whole node of the protocol as published.
    published: f64,
    /// At the role of the compartmentalized one that does not execute and has the most to do.
    others: f64,
    /// At a replica of the compartmentalized one.
    replica: f64,
    unreplicated: f64,
}

impl Bare {
    fn new(bench: &Bench, system: &System) -> Result<Self> {
        let us = |from| -> Result<f64> { Ok(1e6 / without_execution(bench, from)?.peak) };
        let mut roles = without_execution(bench, system.compartmentalized)?.roles;
        let replica = roles
            .remove("replica")
            .context("a deployment has replicas")?;
        let others = roles.into_values().fold(0.0, f64::max);
        let (published, unreplicated) = (us(system.published)?, us("unreplicated")?);
        Ok(Bare {
            published,
            others,
            replica,
            unreplicated,
        })
    }

    /// Commands per second with a machine that takes so long: as published, compartmentalized,
    /// unreplicated.
    fn peaks(&self, execution_us: f64) -> [f64; 3] {
        let compartmentalized = self.others.max(self.replica + execution_us);
        [
            self.published + execution_us,
            compartmentalized,
            self.unreplicated + execution_us,
        ]
        .map(|us| 1e6 / us)
    }
}

/// The projection of a preset with a state machine that does nothing.
fn without_execution(bench: &Bench, from: &str) -> Result<Projection> {
    projection(bench, from, "nothing")
}

fn projection(bench: &Bench, from: &str, machine: &str) -> Result<Projection> {
    let deployment = batches(preset(from, LANES)?, 1)?;
    let deployment = deployment.with_overrides(&[format!("machine={machine}")])?;
    bench.projection(&deployment, &Workload::writes(1), &[])
}

/// What the key-value store takes for a write of 16 bytes.
fn execution(bench: &Bench) -> Result<f64> {
    let replica = |machine| {
        let roles = projection(bench, "compartmentalized", machine)?.roles;
        roles
            .get("replica")
            .copied()
            .context("a deployment has replicas")
    };
    Ok((replica("kv")? - replica("nothing")?).max(0.0))
}

/// See the top of this file.
pub(super) fn gains(bench: &Bench) -> Result<Sheet> {
    let kv = execution(bench)?;
    let mut sheet = Sheet::empty(
        "what compartmentalization gains, by what it costs to execute a command (ours projected)",
        vec![
            "Every deployment is measured with a state machine that does nothing. Execution is measured as the difference \
             between a replica of the key-value store and one of that machine."
                .to_owned(),
        ],
    );
    sheet.findings.push(format!(
        "To execute a write of 16 bytes the key-value store takes {kv:.2} us."
    ));
    let (mut gains, mut parts, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for (colour, system) in SYSTEMS.iter().enumerate() {
        let bare = Bare::new(bench, system)?;
        let steps = (0..=MOST_US * STEPS).map(|step| step as f64 / STEPS as f64);
        let peaks: Vec<(f64, [f64; 3])> = bench
            .some(&steps.collect::<Vec<_>>())
            .iter()
            .map(|us| (*us, bare.peaks(*us)))
            .collect();
        let curve = |name: String, look, of: fn(&[f64; 3]) -> f64| Curve {
            name,
            colour,
            look,
            points: peaks.iter().map(|(us, peaks)| (*us, of(peaks))).collect(),
        };
        gains.push(curve(
            system.name.to_owned(),
            Look::Solid,
            |[published, compartmentalized, _]| compartmentalized / published,
        ));
        parts.push(curve(
            format!("{}, compartmentalized", system.name),
            Look::Solid,
            |[_, it, whole]| it / whole,
        ));
        parts.push(curve(
            format!("{}, as published", system.name),
            Look::Dashed,
            |[it, _, whole]| it / whole,
        ));
        for (us, peaks) in &peaks {
            sheet.points.extend(points(system, *us, peaks));
        }
        sheet.findings.push(finding(system, &bare, kv));
        theirs.extend(bars(system, colour));
        let paper = names(system).into_iter().zip(paper(system));
        sheet
            .points
            .extend(paper.map(|(name, peak)| Point::new(&name, Measure::Published, peak)));
    }
    let panel = |title: &str, y_label: &str, curves| Panel {
        title: title.to_owned(),
        x_label: "microseconds to execute a command".to_owned(),
        y_label: y_label.to_owned(),
        marks: Marks::Curves(curves),
    };
    sheet.panels = vec![
        panel(
            "Ionian: compartmentalized over published",
            "times as many commands",
            gains,
        ),
        panel("Ionian: part of the unreplicated server", "part", parts),
        Panel {
            title: "The paper: part of the unreplicated server".to_owned(),
            x_label: "as published, compartmentalized".to_owned(),
            y_label: "part".to_owned(),
            marks: Marks::Bars(theirs),
        },
    ];
    Ok(sheet)
}

fn paper(system: &System) -> [f64; 3] {
    [system.paper[0], system.paper[1], PAPER_UNREPLICATED]
}

/// As published and compartmentalized, as parts of the unreplicated server.
fn bars(system: &System, colour: usize) -> impl Iterator<Item = Bar> {
    let labels = [system.name.to_owned(), format!("{}\ncomp.", system.name)];
    let part =
        move |(label, peak): (String, f64)| Bar::plain(label, colour, peak / PAPER_UNREPLICATED);
    labels.into_iter().zip(system.paper).map(part)
}

fn names(system: &System) -> [String; 3] {
    let name = system.name;
    [
        name.to_owned(),
        format!("Compartmentalized {name}"),
        format!("unreplicated, beside {name}"),
    ]
}

fn points(system: &System, execution_us: f64, peaks: &[f64; 3]) -> impl Iterator<Item = Point> {
    let point = move |(name, peak): (String, f64)| Point {
        execution_us: Some(execution_us),
        ..Point::new(&name, Measure::Projected, peak)
    };
    names(system).into_iter().zip(*peaks).map(point)
}

/// One sentence: the gain at zero, at the key-value store, at 4 us; and as parts of the
/// unreplicated server.
fn finding(system: &System, bare: &Bare, kv: f64) -> String {
    let ratio = |[published, compartmentalized, _]: [f64; 3]| compartmentalized / published;
    let parts = |[published, compartmentalized, whole]: [f64; 3]| {
        format!(
            "{:.0} % to {:.0} % of the unreplicated server",
            100.0 * published / whole,
            100.0 * compartmentalized / whole
        )
    };
    let at_kv = bare.peaks(kv);
    format!(
        "{}: {:.1}x where execution costs nothing, {:.1}x with the key-value store ({} to {} commands/s: {}), {:.1}x where it \
         costs {MOST_US} us; the paper's {:.1}x, {}.",
        system.name,
        ratio(bare.peaks(0.0)),
        ratio(at_kv),
        short(at_kv[0]),
        short(at_kv[1]),
        parts(at_kv),
        ratio(bare.peaks(MOST_US as f64)),
        ratio(paper(system)),
        parts(paper(system)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_it_costs_to_execute_the_less_is_gained() {
        // A node as published 4 us, a leader 1, a replica 0.5, the server alone 0.5; all but the
        // leader execute.
        let bare = Bare {
            published: 4.0,
            others: 1.0,
            replica: 0.5,
            unreplicated: 0.5,
        };
        assert_eq!(bare.peaks(0.0), [250_000.0, 1_000_000.0, 2_000_000.0]);
        assert_eq!(bare.peaks(1.5), [1e6 / 5.5, 500_000.0, 500_000.0]);
        let said = finding(&SYSTEMS[0], &bare, 1.5);
        assert!(
            said.contains("4.0x where execution costs nothing, 2.8x with the key-value store"),
            "{said}"
        );
        assert!(
            said.contains("36 % to 100 % of the unreplicated server"),
            "{said}"
        );
        assert!(
            said.contains("the paper's 6.0x, 10 % to 60 % of the unreplicated server"),
            "{said}"
        );
    }
}
