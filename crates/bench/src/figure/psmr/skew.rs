//! psmr-7: reads and updates in equal parts, of keys that are drawn uniformly and by Zipf's
//! distribution.

use super::super::drawing::panel::{Marks, Panel};
use super::super::point::Point;
use super::super::sheet::{Sheet, ratio};
use super::super::simulate::Bench;
use super::scale::curve;
use super::service::Mix;
use super::{System, best, notes, reached};
use anyhow::Result;

/// See the top of this file.
pub(in super::super) fn distributions(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "half updates, keys uniformly and by Zipf's distribution (ours projected)",
        notes(bench),
    );
    for (what, skewed) in [("uniform", false), ("Zipf", true)] {
        let (mut curves, mut bests) = (Vec::new(), Vec::new());
        for (colour, system) in System::ALL.into_iter().enumerate() {
            let points = bench.peaks(system, Mix::updates(skewed))?;
            bests.push(best(&points).clone());
            curves.push(curve(system.name(), colour, &points));
            let series = format!("{}, {what}", system.name());
            let named = |point: Point| Point {
                series: series.clone(),
                ..point
            };
            sheet.points.extend(points.into_iter().map(named));
        }
        let said: Vec<String> = bests.iter().map(reached).collect();
        let rate = |at: usize| bests[at].commands_per_second;
        sheet.findings.push(format!(
            "{what}: {}; P-SMR {} sP-SMR.",
            said.join("; "),
            ratio(rate(3), rate(2))
        ));
        sheet.panels.push(Panel {
            title: format!("Ionian: {what}"),
            x_label: "threads that execute".to_owned(),
            y_label: "commands per second".to_owned(),
            marks: Marks::Curves(curves),
        });
    }
    Ok(sheet)
}
