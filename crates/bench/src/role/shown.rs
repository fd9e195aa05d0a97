//! How the result looks: a line for each measurement as soon as it is there, or one document.

use super::arguments::Role;
use super::{Outcome, median, range};
use crate::report;
use anyhow::Result;
use ionian_harness::host::Machine;
use ionian_planner::demand::PerCommand;
use serde::Serialize;

/// The result so far.
pub(super) struct Shown<'a> {
    arguments: &'a Role,
    document: Document,
}

#[derive(Serialize)]
struct Document {
    /// The machine, in words: processors, memory, system.
    machine: String,
    /// When it was measured, `YYYY-MM-DD`.
    date: String,
    /// The version of Ionian that was measured.
    version: &'static str,
    /// One measurement each.
    demands: Vec<Demand>,
}

/// What one process spent.
#[derive(Serialize)]
struct Demand {
    /// The preset that the process belonged to.
    deployment: &'static str,
    /// Its roles.
    role: String,
    /// Commands of a batch, at most.
    batch: usize,
    /// The fraction of reads.
    read_fraction: f64,
    /// Bytes of a value.
    value_bytes: usize,
    /// The state machine that executed.
    machine: String,
    /// The part of the time for which the process was allowed to run.
    share: f64,
    /// Commands of the whole deployment, per second.
    commands_per_second: f64,
    /// Microseconds of its processor time for each of them.
    demand_us: f64,
    /// The least and the most microseconds for each command in any round.
    range_us: (f64, f64),
    /// What the same node spends when the deployment runs in one process.
    modelled_us: f64,
    /// What it sends and receives there.
    modelled_traffic: PerCommand,
    /// The part of a processor that the process had while it was allowed to run. Well below 1 it
    /// slept between bursts, which costs: the demand is then an upper bound.
    busy: f64,
    /// Messages that it received for each.
    messages_in: f64,
    /// Messages that it sent for each; one that goes to several nodes counts several times.
    messages_out: f64,
    /// Their bytes.
    bytes_in: f64,
    /// Their bytes.
    bytes_out: f64,
    /// Commands for each write to a connection.
    commands_per_write: f64,
}

impl Demand {
    fn of(outcome: &Outcome) -> Self {
        let Outcome {
            group,
            scene,
            rounds,
            modelled,
        } = outcome;
        let measured = median(rounds);
        Demand {
            deployment: group.preset,
            role: group.name.clone(),
            batch: scene.deployment.options.options().batch_commands,
            read_fraction: scene.load.read_fraction,
            value_bytes: scene.load.value_bytes,
            machine: scene.deployment.machine.clone(),
            share: scene.share,
            commands_per_second: measured.commands_per_second(),
            demand_us: measured.demand_us(),
            range_us: range(rounds),
            modelled_us: modelled.demand_us(),
            modelled_traffic: modelled.traffic,
            busy: (measured.busy() * 1000.0).round() / 1000.0,
            messages_in: measured.per_command(measured.messages_in),
            messages_out: measured.per_command(measured.messages_out),
            bytes_in: measured.per_command(measured.bytes_in),
            bytes_out: measured.per_command(measured.bytes_out),
            commands_per_write: measured.commands as f64 / measured.writes.max(1) as f64,
        }
    }

    fn cells(&self, remark: &str) -> [String; COLUMNS.len()] {
        let (least, most) = self.range_us;
        let percent = |part: f64| format!("{:.0}%", 100.0 * part);
        [
            percent(self.read_fraction),
            self.batch.to_string(),
            self.value_bytes.to_string(),
            format!("{:.0}", self.commands_per_second),
            format!("{:.3}", self.demand_us),
            format!("{least:.3}-{most:.3}"),
            format!("{:.3}", self.modelled_us),
            format!("{:.2}", self.modelled_us / self.demand_us),
            percent(self.share),
            percent(self.busy),
            format!("{:.2}", self.messages_in),
            format!("{:.2}", self.messages_out),
            format!("{:.2}", self.bytes_in),
            format!("{:.2}", self.bytes_out),
            format!("{:.0}", self.commands_per_write),
            remark.to_owned(),
        ]
    }
}

impl<'a> Shown<'a> {
    pub(super) fn begin(arguments: &'a Role) -> Result<Self> {
        let document = Document {
            machine: Machine::look().to_string(),
            date: report::today(),
            version: env!("CARGO_PKG_VERSION"),
            demands: Vec::new(),
        };
        let shown = Shown {
            arguments,
            document,
        };
        shown.say(&format!(
            "ionian {}\n{}\n{}",
            shown.document.version,
            shown.document.machine,
            row("deployment", "role", COLUMNS.map(str::to_owned))
        ))?;
        Ok(shown)
    }

    pub(super) fn add(&mut self, outcome: &Outcome) -> Result<()> {
        let demand = Demand::of(outcome);
        let remark = match median(&outcome.rounds).is_busy() {
            true => "",
            false => "not saturated",
        };
        self.say(&row(demand.deployment, &demand.role, demand.cells(remark)))?;
        self.document.demands.push(demand);
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        match &self.arguments.json {
            Some(path) => report::write(
                path,
                &(serde_json::to_string_pretty(&self.document)? + "\n"),
            ),
            None => Ok(()),
        }
    }

    /// For people, unless the document goes where they read.
    fn say(&self, text: &str) -> Result<()> {
        match self
            .arguments
            .json
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "-")
        {
            true => Ok(()),
            false => report::print(text),
        }
    }
}

const COLUMNS: [&str; 16] = [
    "reads",
    "batch",
    "value",
    "commands/s",
    "us/command",
    "of all rounds",
    "modelled",
    "ratio",
    "share",
    "busy",
    "in",
    "out",
    "bytes in",
    "bytes out",
    "a write",
    "",
];

/// How wide each column is.
const WIDTHS: [usize; COLUMNS.len()] = [5, 5, 5, 11, 10, 13, 8, 5, 5, 5, 6, 6, 9, 9, 8, 0];

fn row(deployment: &str, role: &str, cells: [String; COLUMNS.len()]) -> String {
    let mut text = format!("{deployment:<25} {role:<20}");
    for (cell, width) in cells.iter().zip(WIDTHS) {
        text += &format!(" {cell:>width$}");
    }
    text.trim_end().to_owned() + "\n"
}
