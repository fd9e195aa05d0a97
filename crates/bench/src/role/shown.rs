//! How the result looks: a line for each measurement as soon as it is there, or one document.

use super::Task;
use super::arguments::Role;
use super::stage::{Measured, Scene};
use crate::model::demand::{Demand, Demands, KV, SATURATED};
use crate::report;
use anyhow::Result;
use ionian_harness::host::Machine;
use std::time::SystemTime;

/// The result so far.
pub(super) struct Shown<'a> {
    arguments: &'a Role,
    demands: Demands,
}

impl<'a> Shown<'a> {
    pub(super) fn begin(arguments: &'a Role) -> Result<Self> {
        let machine = Machine::look().to_string();
        let shown = Shown {
            arguments,
            demands: Demands {
                machine,
                date: today(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                placeholder: false,
                demands: Vec::new(),
            },
        };
        shown.say(&format!(
            "ionian {}\n{}\n{}\n",
            shown.demands.version,
            shown.demands.machine,
            header()
        ))?;
        Ok(shown)
    }

    pub(super) fn add(
        &mut self,
        task: &Task<'_>,
        scene: &Scene,
        rounds: &[Measured],
    ) -> Result<()> {
        let measured = super::median(rounds);
        self.say(&line(task, scene, rounds))?;
        let below = self.below(task, scene);
        let on_top = |us: f64| (us - below).max(0.0);
        let (least, most) = range(rounds);
        let demand = Demand {
            deployment: task.preset.to_owned(),
            role: task.role.to_owned(),
            workload: task.work,
            batch: scene.batch as usize,
            value_bytes: scene.value_bytes,
            machine: scene.machine.clone(),
            real: scene.real,
            share: scene.share,
            commands_per_second: measured.commands_per_second(),
            demand_us: on_top(measured.demand_us()),
            busy: (measured.busy() * 1000.0).round() / 1000.0,
            range_us: Some((on_top(least), on_top(most))),
            messages_in: measured.per_command(measured.messages_in),
            messages_out: measured.per_command(measured.messages_out),
            bytes_in: measured.per_command(measured.bytes_in),
            bytes_out: measured.per_command(measured.bytes_out),
        };
        self.demands.demands.push(demand);
        Ok(())
    }

    /// A replica that answers has executed as well, and a stabilizer that delivers has stored: what
    /// counts is what comes on top of this.
    fn below(&self, task: &Task<'_>, scene: &Scene) -> f64 {
        let below = self.demands.demands.iter().find(|known| {
            let same = known.deployment == task.preset
                && known.value_bytes == scene.value_bytes
                && known.machine == scene.machine
                && !scene.real;
            same && known.role == task.role && Some(known.workload) == task.work.comes_on_top_of()
        });
        below.map_or(0.0, |below| below.demand_us)
    }

    pub(super) fn end(self) -> Result<()> {
        match &self.arguments.json {
            Some(path) => {
                report::write(path, &(serde_json::to_string_pretty(&self.demands)? + "\n"))
            }
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

/// The least and the most microseconds for each command.
fn range(rounds: &[Measured]) -> (f64, f64) {
    let us = rounds.iter().map(Measured::demand_us);
    us.fold((f64::INFINITY, 0.0), |(least, most), us| {
        (us.min(least), us.max(most))
    })
}

fn today() -> String {
    let mut text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.truncate("2026-01-01".len());
    text
}

const COLUMNS: [&str; 14] = [
    "work",
    "batch",
    "value",
    "commands/s",
    "us/command",
    "of all rounds",
    "share",
    "busy",
    "in",
    "out",
    "bytes in",
    "bytes out",
    "a write",
    "",
];

fn header() -> String {
    row("deployment", "role", COLUMNS.map(str::to_owned))
}

fn line(task: &Task<'_>, scene: &Scene, rounds: &[Measured]) -> String {
    let (measured, (least, most)) = (super::median(rounds), range(rounds));
    let per = |number| format!("{:.2}", measured.per_command(number));
    let cells = [
        task.work.name().to_owned(),
        scene.batch.to_string(),
        scene.value_bytes.to_string(),
        format!("{:.0}", measured.commands_per_second()),
        format!("{:.3}", measured.demand_us()),
        format!("{least:.3}-{most:.3}"),
        format!("{:.0}%", 100.0 * scene.share),
        format!("{:.0}%", 100.0 * measured.busy()),
        per(measured.messages_in),
        per(measured.messages_out),
        per(measured.bytes_in),
        per(measured.bytes_out),
        format!(
            "{:.0}",
            measured.commands as f64 / measured.writes.max(1) as f64
        ),
        remark(scene, &measured),
    ];
    row(task.preset, task.role, cells) + "\n"
}

fn remark(scene: &Scene, measured: &Measured) -> String {
    let machine = if scene.machine == KV {
        String::new()
    } else {
        format!("machine {} ", scene.machine)
    };
    let real = if scene.real { "among real ones " } else { "" };
    machine
        + real
        + if measured.busy() < SATURATED {
            "not saturated"
        } else {
            ""
        }
}

fn row(deployment: &str, role: &str, cells: [String; 14]) -> String {
    let [
        work,
        batch,
        value,
        speed,
        demand,
        range,
        share,
        busy,
        into,
        out,
        bytes_in,
        bytes_out,
        write,
        remark,
    ] = cells;
    let text = format!(
        "{deployment:<25} {role:<13} {work:<8} {batch:>5} {value:>5} {speed:>11} {demand:>10} {range:>13} {share:>5} {busy:>5} {into:>6} \
         {out:>6} {bytes_in:>9} {bytes_out:>9} {write:>8} {remark}"
    );
    text.trim_end().to_owned()
}
