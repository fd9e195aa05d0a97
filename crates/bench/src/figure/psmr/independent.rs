//! psmr-3 and psmr-4: commands that depend on none, and commands that depend on all, each system
//! with the number of threads that suits it.

use super::super::drawing::panel::{Bar, Marks, Panel};
use super::super::point::{Point, short};
use super::super::sheet::{Sheet, ratio};
use super::super::simulate::Bench;
use super::service::Mix;
use super::store::{self, Kind};
use super::{System, best, notes, published, reached};
use anyhow::Result;

/// The paper's commands per second, from the text of section VII-B and VII-C, with threads.
pub(super) const PAPER_SMR: f64 = 842_000.0;
/// As multiples of SMR: P-SMR, and sP-SMR, of which P-SMR is 2.75 times as fast.
const PAPER_P: f64 = 3.15;
const PAPER_SP: f64 = PAPER_P / 2.75;
pub(super) const PAPER_P_SMR: f64 = PAPER_SMR * PAPER_P;
pub(super) const PAPER_SP_SMR: f64 = PAPER_SMR * PAPER_SP;
const PAPER_READS: [(&str, usize, f64); 5] = [
    ("no-rep", 2, 965_000.0),
    ("SMR", 1, PAPER_SMR),
    ("sP-SMR", 2, PAPER_SP_SMR),
    ("P-SMR", 8, PAPER_P_SMR),
    ("Berkeley DB", 6, 140_000.0),
];
const PAPER_INSERTS: [(&str, usize, f64); 2] =
    [("SMR", 1, PAPER_SMR), ("Berkeley DB", 4, 105_000.0)];

/// psmr-3.
pub(in super::super) fn independent(bench: &Bench) -> Result<Sheet> {
    let title =
        "commands that do not depend on each other, each system at its best (ours projected)";
    let (mut sheet, best) = bars(bench, title, (Mix::READS, Kind::Reads), &PAPER_READS)?;
    let of = |system: System| rate(&best, system.name());
    sheet.findings.push(format!(
        "P-SMR {} SMR (the paper {}); sP-SMR {} SMR (the paper {}).",
        ratio(of(System::PSmr), of(System::Smr)),
        ratio(PAPER_P, 1.0),
        ratio(of(System::SpSmr), of(System::Smr)),
        ratio(PAPER_SP, 1.0),
    ));
    Ok(sheet)
}

/// psmr-4.
pub(in super::super) fn dependent(bench: &Bench) -> Result<Sheet> {
    let title = "inserts and deletes, which depend on every command, each system at its best (ours projected)";
    let load = (Mix::dependent(1.0), Kind::InsertsAndDeletes);
    let (mut sheet, best) = bars(bench, title, load, &PAPER_INSERTS)?;
    let eight = bench.peak(System::PSmr, super::MOST_THREADS, load.0)?;
    sheet.findings.push(format!(
        "P-SMR with 8 threads {} SMR: {}/s, as all workers stop for each batch.",
        ratio(eight.commands_per_second, rate(&best, "SMR")),
        short(eight.commands_per_second)
    ));
    Ok(sheet)
}

fn rate(points: &[Point], series: &str) -> f64 {
    let of = points.iter().find(|point| point.series == series);
    of.map_or(f64::NAN, |point| point.commands_per_second)
}

/// The best of each system, beside the paper's.
fn bars(
    bench: &Bench,
    title: &str,
    (mix, store): (Mix, Kind),
    paper: &[(&str, usize, f64)],
) -> Result<(Sheet, Vec<Point>)> {
    let mut sheet = Sheet::empty(title, [notes(bench), store::notes()].concat());
    let mut ours = Vec::new();
    for system in System::ALL {
        let points = bench.peaks(system, mix)?;
        ours.push(best(&points).clone());
        sheet.points.extend(points);
    }
    let stored = store::measure(bench, store)?;
    ours.push(best(&stored).clone());
    sheet.points.extend(stored);
    let said: Vec<String> = ours.iter().map(reached).collect();
    sheet.findings.push(format!("{}.", said.join("; ")));
    let smr = ours.iter().find(|point| point.series == "SMR");
    if let Some(Some(what)) = smr.map(|point| &point.bottleneck) {
        sheet
            .findings
            .push(format!("What keeps SMR from more: {what}."));
    }
    let theirs: Vec<Point> = paper
        .iter()
        .map(|(series, threads, rate)| published(series, *threads, *rate))
        .collect();
    sheet.panels = vec![panel("Ionian", &ours), panel("The paper", &theirs)];
    sheet.points.extend(theirs);
    Ok((sheet, ours))
}

fn panel(title: &str, points: &[Point]) -> Panel {
    let bar = |(colour, point): (usize, &Point)| {
        let label = format!("{}\n{}", point.series, point.threads.unwrap_or(1));
        Bar::plain(label, colour, point.commands_per_second)
    };
    Panel {
        title: title.to_owned(),
        x_label: "and its number of threads".to_owned(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Bars(points.iter().enumerate().map(bar).collect()),
    }
}
