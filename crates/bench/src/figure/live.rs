//! The model compared with what it is a model of: one real process, kept busy, among real ones.

use super::drawing::panel::{Bar, Marks, Panel};
use super::point::{Measure, Point};
use super::sheet::Sheet;
use super::simulate::Bench;
use crate::role::{self, Outcome, arguments::Role};
use anyhow::{Context, Result};

/// How far the model may be off.
const NEAR: f64 = 0.2;

/// A role of a preset, for which one process is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    role: &'static str,
    preset: &'static str,
    /// Commands of a batch.
    batch: u64,
    /// Percentage of reads.
    reads: u8,
    /// Whether a short look is enough.
    quick: bool,
}

const fn subject(role: &'static str, preset: &'static str, batch: u64, reads: u8) -> Subject {
    Subject {
        role,
        preset,
        batch,
        reads,
        quick: false,
    }
}

const SUBJECTS: [Subject; 10] = [
    subject("node", "baseline", 1, 0),
    subject("node", "mencius", 1, 0),
    subject("node", "spaxos", 1, 0),
    subject("leader", "compartmentalized", 1, 0),
    subject("proxy_leader", "compartmentalized", 1, 0),
    subject("acceptor", "compartmentalized", 1, 0),
    subject("replica", "compartmentalized", 1, 0),
    subject("acceptor", "compartmentalized", 1, 100),
    subject("replica", "compartmentalized", 1, 100),
    subject("leader", "batched", 100, 0),
];

/// What was found, in microseconds for each command of the whole deployment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Processor time of the process.
    measured_us: f64,
    /// The least and the most of all rounds.
    range_us: (f64, f64),
    /// Whether it was busy whenever it was allowed to run.
    is_busy: bool,
    /// What the same node spends when the deployment runs in one process.
    modelled_us: f64,
}

/// Measures a real process, as `ionian bench role` does.
///
/// # Errors
/// As that.
pub(super) fn measure(subject: &Subject) -> Result<Found> {
    let mut arguments = Role::of(subject.role, subject.preset);
    (arguments.batch, arguments.reads) = (Some(subject.batch), subject.reads);
    if subject.quick {
        arguments.hurry();
    }
    let mut found = role::measure_all(&arguments)?;
    let Outcome {
        modelled, rounds, ..
    } = found.remove(0);
    Ok(Found {
        measured_us: role::median(&rounds).demand_us(),
        range_us: role::range(&rounds),
        is_busy: role::median(&rounds).is_busy(),
        modelled_us: modelled.demand_us(),
    })
}

impl Subject {
    fn name(&self) -> String {
        let reads = if self.reads > 0 { ", reads" } else { "" };
        format!("{} of {}{reads}", self.role, self.preset)
    }
}

/// See the top of this file.
pub(super) fn check(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "the model compared with single processes among real ones",
        vec![
            "Bars: processor time of one process that is busy whenever it may run, for each command of the whole deployment, \
             with whiskers to what the same node spends when the deployment runs in one process and system calls are \
             added."
                .to_owned(),
        ],
    );
    let mut bars = Vec::new();
    let subjects = match bench.quick {
        true => &SUBJECTS[..3],
        false => &SUBJECTS,
    };
    for (colour, subject) in subjects.iter().enumerate() {
        let name = subject.name();
        let subject = Subject {
            quick: bench.quick,
            ..*subject
        };
        let found = (bench.live)(&subject).with_context(|| name.clone())?;
        sheet.findings.push(finding(&name, &found));
        let point = |measure, us: f64| Point {
            demand_us: Some(us),
            ..Point::new(&name, measure, 1e6 / us)
        };
        sheet.points.extend([
            point(Measure::Measured, found.measured_us),
            point(Measure::Projected, found.modelled_us),
        ]);
        bars.push(Bar {
            label: name.replace(" of ", "\n").replace(", ", "\n"),
            colour: colour % 2,
            height: found.measured_us,
            whisker: Some(found.modelled_us),
        });
    }
    sheet.panels = vec![Panel {
        title: "one process".to_owned(),
        x_label: "role and deployment".to_owned(),
        y_label: "microseconds a command".to_owned(),
        marks: Marks::Bars(bars),
    }];
    Ok(sheet)
}

fn finding(name: &str, found: &Found) -> String {
    let off = found.modelled_us / found.measured_us - 1.0;
    let verdict = match off.abs() <= NEAR {
        true => "within 20 %",
        false => "NOT within 20 %",
    };
    let (least, most) = found.range_us;
    let busy = if found.is_busy {
        ""
    } else {
        ", NOT busy all the time"
    };
    format!(
        "{name}: {:.3} us measured ({least:.3} to {most:.3}{busy}), {:.3} us modelled, {:+.0} %: {verdict}.",
        found.measured_us,
        found.modelled_us,
        100.0 * off
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// In place of a process.
    pub(in super::super) fn invented(_: &Subject) -> Result<Found> {
        Ok(Found {
            measured_us: 1.2,
            range_us: (1.1, 1.3),
            is_busy: false,
            modelled_us: 1.0,
        })
    }

    #[test]
    fn the_model_is_compared_with_a_process() {
        let found = invented(&SUBJECTS[0]).unwrap();
        assert_eq!(
            finding(&SUBJECTS[0].name(), &found),
            "node of baseline: 1.200 us measured (1.100 to 1.300, NOT busy all the time), 1.000 us modelled, -17 %: \
             within 20 %."
        );
        let far = Found {
            is_busy: true,
            modelled_us: 1.8,
            ..found
        };
        assert_eq!(
            finding(&SUBJECTS[7].name(), &far),
            "acceptor of compartmentalized, reads: 1.200 us measured (1.100 to 1.300), 1.800 us modelled, +50 %: NOT \
             within 20 %."
        );
    }
}
