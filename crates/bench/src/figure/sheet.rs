//! A figure made: its numbers, its pictures, and the files that it is written to.

use super::drawing::Picture;
use super::drawing::panel::Panel;
use super::point::{COLUMNS, Measure, Point};
use super::simulate::Bench;
use crate::report::Table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// See the top of this file.
pub(crate) struct Sheet {
    pub(crate) title: String,
    /// What the numbers say, a sentence each.
    pub(crate) findings: Vec<String>,
    /// What each bar or point rests on, and what must be known to read it, a sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) panels: Vec<Panel>,
}

/// A figure as JSON.
#[derive(Serialize)]
struct Document<'a> {
    figure: &'a str,
    title: &'a str,
    demands: Origin<'a>,
    findings: &'a [String],
    notes: &'a [String],
    points: &'a [Point],
}

/// Where the demands come from.
#[derive(Serialize)]
struct Origin<'a> {
    machine: &'a str,
    date: &'a str,
    version: &'a str,
    placeholder: bool,
}

impl Sheet {
    /// One that has yet to be filled.
    pub(crate) fn empty(title: &str, notes: Vec<String>) -> Self {
        Sheet { title: title.to_owned(), findings: Vec::new(), notes, points: Vec::new(), panels: Vec::new() }
    }

    /// Writes `DIR/NAME.svg`, `.png`, `.csv`, `.json` and `.md`; says what was written.
    pub(crate) fn write(&self, directory: &Path, name: &str, bench: &Bench) -> Result<()> {
        let picture = Picture {
            title: format!("Figure {name}: {}", self.title),
            subtitle: subtitle(bench),
            panels: &self.panels,
        };
        picture.write(directory, name)?;
        for (extension, text) in
            [("csv", self.csv()), ("json", self.json(name, bench)?), ("md", self.text(name, bench))]
        {
            let file = directory.join(format!("{name}.{extension}"));
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn csv(&self) -> String {
        let mut table = Table::new(COLUMNS.iter().map(|(name, _)| *name));
        for point in &self.points {
            table.row(COLUMNS.iter().map(|(_, cell)| cell(point).unwrap_or_default()));
        }
        table.csv()
    }

    fn json(&self, name: &str, bench: &Bench) -> Result<String> {
        let demands = &bench.demands;
        let document = Document {
            figure: name,
            title: &self.title,
            demands: Origin {
                machine: &demands.machine,
                date: &demands.date,
                version: &demands.version,
                placeholder: demands.placeholder,
            },
            findings: &self.findings,
            notes: &self.notes,
            points: &self.points,
        };
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// What the figure says, as a chapter of the findings.
    pub(crate) fn summary(&self, name: &str) -> String {
        let mut text = format!("\n## Figure {name}: {}\n\n", self.title);
        for finding in &self.findings {
            let _ = writeln!(text, "- {finding}");
        }
        text
    }

    /// The figure in words and as a table, for people and for the docs.
    pub(crate) fn text(&self, name: &str, bench: &Bench) -> String {
        let mut text = format!("# Figure {name}: {}\n\n", self.title);
        let quick = if bench.quick { " --quick" } else { "" };
        let _ = writeln!(
            text,
            "`ionian bench figure {name}{quick}` ([picture]({name}.svg), [CSV]({name}.csv), [JSON]({name}.json))\n"
        );
        let _ = writeln!(text, "![{}]({name}.png)\n", self.title);
        for finding in &self.findings {
            let _ = writeln!(text, "- {finding}");
        }
        let _ = writeln!(text, "\nWhat it rests on: {} {}\n", origin(bench), self.notes.join(" "));
        let used: Vec<_> =
            COLUMNS.iter().filter(|(_, cell)| self.points.iter().any(|point| cell(point).is_some())).collect();
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        text += &row(used.iter().map(|(name, _)| name.replace('_', " ")).collect());
        text += &format!("|{}\n", "---|".repeat(used.len()));
        for point in &self.points {
            text += &row(used.iter().map(|(_, cell)| cell(point).unwrap_or_default()).collect());
        }
        text
    }
}

fn subtitle(bench: &Bench) -> String {
    match bench.demands.placeholder {
        true => "PLACEHOLDER: drawn from invented demands, not from measurements".to_owned(),
        false => {
            // The page has the whole of it; above a picture there is room for the processors.
            let machine: Vec<&str> = bench.demands.machine.split(", ").take(2).collect();
            format!("demands measured on {}, {}", machine.join(", "), bench.demands.date)
        }
    }
}

fn origin(bench: &Bench) -> String {
    let demands = &bench.demands;
    let (unsaturated, all) = demands.unsaturated();
    match demands.placeholder {
        true => "INVENTED demands, for development: these are no measurements.".to_owned(),
        false => format!(
            "demands of Ionian {} measured on {} on {}, {unsaturated} of {all} on processes that were less than 90 % busy and so \
             cost more than they would at saturation; a processor of its own for each node, {} us from node to node, {} us to \
             wake a sleeping one.",
            demands.version, demands.machine, demands.date, bench.network_delay_us, bench.wake_us
        ),
    }
}

/// The highest throughput of a series.
pub(crate) fn peak(points: &[Point], series: &str, measure: Measure) -> Option<f64> {
    let of = points.iter().filter(|point| point.series == series && point.measure == measure);
    of.map(|point| point.commands_per_second).max_by(f64::total_cmp)
}

/// How many times as much.
pub(crate) fn ratio(one: f64, other: f64) -> String {
    format!("{:.1}x", one / other)
}
