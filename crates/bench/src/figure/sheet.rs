//! A figure made: its numbers, its pictures, and the files that it is written to.

use super::drawing::Picture;
use super::drawing::panel::Panel;
use super::point::{COLUMNS, Cell, Measure, Point};
use super::simulate::Bench;
use crate::report::Table;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// See the top of this file.
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) basis: Basis,
    /// What the numbers say, a sentence each.
    pub(crate) findings: Vec<String>,
    /// What each bar or point rests on, and what must be known to read it, a sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) panels: Vec<Panel>,
}

/// What our numbers rest on.
pub(crate) enum Basis {
    /// What was measured of each node, in one process.
    Measured,
    /// The texts given here.
    Said {
        /// For the picture.
        short: &'static str,
        /// For the page: it goes on from "What it rests on:".
        whole: String,
    },
}

impl Sheet {
    /// One that has yet to be filled.
    pub(crate) fn empty(title: &str, notes: Vec<String>) -> Self {
        let (basis, findings, points, panels) =
            (Basis::Measured, Vec::new(), Vec::new(), Vec::new());
        Sheet {
            title: title.to_owned(),
            basis,
            findings,
            notes,
            points,
            panels,
        }
    }

    /// Writes `DIR/NAME.svg`, `.csv` and `.md`.
    pub(crate) fn write(&self, directory: &Path, name: &str, bench: &Bench) -> Result<()> {
        let basis = match &self.basis {
            Basis::Measured => subtitle(bench),
            Basis::Said { short, .. } => (*short).to_owned(),
        };
        let picture = Picture {
            title: format!("Figure {name}: {}", self.title),
            subtitle: match &bench.caution {
                Some(caution) => format!("{} ({basis})", caution.to_uppercase()),
                None => basis,
            },
            panels: &self.panels,
        };
        picture.write(directory, name)?;
        for (extension, text) in [("csv", self.csv()), ("md", self.text(name, bench))] {
            let file = directory.join(format!("{name}.{extension}"));
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn csv(&self) -> String {
        let used = self.columns();
        let mut table = Table::new(used.iter().map(|(name, _)| *name));
        for point in &self.points {
            table.row(used.iter().map(|(_, cell)| cell(point).unwrap_or_default()));
        }
        table.csv()
    }

    /// The columns in which there is something.
    fn columns(&self) -> Vec<(&'static str, Cell)> {
        let some = |cell: &Cell| self.points.iter().any(|point| cell(point).is_some());
        COLUMNS
            .iter()
            .filter(|(_, cell)| some(cell))
            .copied()
            .collect()
    }

    /// What the figure says, as a chapter of the findings.
    pub(crate) fn summary(&self, name: &str, bench: &Bench) -> String {
        let mut text = format!("\n## Figure {name}: {}\n\n", self.title);
        self.write_findings(&mut text, bench);
        text
    }

    /// The findings, and above them why they may be none.
    fn write_findings(&self, text: &mut String, bench: &Bench) {
        if let Some(caution) = &bench.caution {
            let _ = writeln!(text, "**This is {caution}.**\n");
        }
        for finding in &self.findings {
            let _ = writeln!(text, "- {finding}");
        }
    }

    /// The figure in words and as a table, for people and for the docs.
    pub(crate) fn text(&self, name: &str, bench: &Bench) -> String {
        let mut text = format!("# Figure {name}: {}\n\n", self.title);
        let quick = if bench.quick { " --quick" } else { "" };
        let _ = writeln!(
            text,
            "`ionian bench figure {name}{quick}` ([picture]({name}.svg), [CSV]({name}.csv))\n"
        );
        let _ = writeln!(text, "![{}]({name}.svg)\n", self.title);
        self.write_findings(&mut text, bench);
        let basis = match &self.basis {
            Basis::Measured => &origin(bench),
            Basis::Said { whole, .. } => whole,
        };
        let _ = writeln!(
            text,
            "\nWhat it rests on: {basis} {}\n",
            self.notes.join(" ")
        );
        let used = self.columns();
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        text += &row(used
            .iter()
            .map(|(name, _)| name.replace('_', " "))
            .collect());
        text += &format!("|{}\n", "---|".repeat(used.len()));
        for point in &self.points {
            text += &row(used
                .iter()
                .map(|(_, cell)| cell(point).unwrap_or_default())
                .collect());
        }
        text
    }
}

fn subtitle(bench: &Bench) -> String {
    // The page has the whole of it; above a picture there is room for the processors.
    let machine: Vec<&str> = bench.machine.split(", ").take(2).collect();
    format!("measured on {}, {}", machine.join(", "), bench.date)
}

fn origin(bench: &Bench) -> String {
    format!(
        "what each node of the deployment spends, measured in one process of Ionian {} on {} on {}; a processor of its own \
         for each node, {} us from node to node, {} us to wake a sleeping one.",
        env!("CARGO_PKG_VERSION"),
        bench.machine,
        bench.date,
        bench.network_delay_us,
        bench.wake_us
    )
}

/// The highest throughput of a series.
pub(crate) fn peak(points: &[Point], series: &str, measure: Measure) -> Option<f64> {
    let of = points
        .iter()
        .filter(|point| point.series == series && point.measure == measure);
    of.map(|point| point.commands_per_second)
        .max_by(f64::total_cmp)
}

/// How many times as much.
pub(crate) fn ratio(one: f64, other: f64) -> String {
    format!("{:.1}x", one / other)
}
