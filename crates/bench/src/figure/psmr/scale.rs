//! psmr-5: 1 to 8 threads, commands that depend on none and commands that depend on all.

use super::super::drawing::panel::{Curve, Look, Marks, Panel};
use super::super::point::{Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::independent::{PAPER_P_SMR, PAPER_SP_SMR};
use super::service::Mix;
use super::{System, best, notes, published};
use anyhow::Result;

/// See the top of this file.
pub(in super::super) fn threads(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty("1 to 8 threads (ours projected)", notes(bench));
    for (what, mix) in [
        ("independent", Mix::READS),
        ("dependent", Mix::dependent(1.0)),
    ] {
        let title = format!("Ionian: {what} commands");
        let found = draw(bench, (what, title, mix), &mut sheet)?;
        for (system, points) in System::ALL.into_iter().zip(&found) {
            sheet.findings.extend(finding(what, system, points));
        }
    }
    let paper = [
        ("P-SMR, independent", 8, PAPER_P_SMR),
        ("sP-SMR, independent", 2, PAPER_SP_SMR),
    ];
    let theirs = paper.map(|(series, threads, rate)| published(series, threads, rate));
    sheet.points.extend(theirs);
    Ok(sheet)
}

fn finding(what: &str, system: System, points: &[Point]) -> Option<String> {
    let (first, last) = (points.first()?, points.last()?);
    let best = best(points);
    (system != System::Smr).then(|| {
        format!(
            "{}, {what}: {}/s with 1 thread, {}/s with {}; most with {} ({}).",
            system.name(),
            short(first.commands_per_second),
            short(last.commands_per_second),
            last.threads.unwrap_or(1),
            best.threads.unwrap_or(1),
            best.bottleneck.as_deref().unwrap_or_default(),
        )
    })
}

/// Draws the peaks of all systems by their number of threads into a panel. Returns them.
pub(super) fn draw(
    bench: &Bench,
    (what, title, mix): (&str, String, Mix),
    sheet: &mut Sheet,
) -> Result<Vec<Vec<Point>>> {
    let (mut found, mut curves) = (Vec::new(), Vec::new());
    for (colour, system) in System::ALL.into_iter().enumerate() {
        let points = bench.peaks(system, mix)?;
        curves.push(curve(system.name(), colour, &points));
        let series = format!("{}, {what}", system.name());
        sheet.points.extend(points.iter().map(|point| Point {
            series: series.clone(),
            ..point.clone()
        }));
        found.push(points);
    }
    sheet.panels.push(Panel {
        title,
        x_label: "threads that execute".to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Curves(curves),
    });
    Ok(found)
}

/// Throughput by threads; one thread is a line across all.
fn curve(name: &str, colour: usize, points: &[Point]) -> Curve {
    let at = |point: &Point| (point.threads.unwrap_or(1) as f64, point.commands_per_second);
    let mut points: Vec<(f64, f64)> = points.iter().map(at).collect();
    if let [(_, rate)] = points[..] {
        points.push((super::MOST_THREADS as f64, rate));
    }
    Curve {
        name: name.to_owned(),
        colour,
        look: Look::Solid,
        points,
    }
}
