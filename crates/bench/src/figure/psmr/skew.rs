//! psmr-7: reads and updates in equal parts, of keys that are drawn uniformly and by Zipf's
//! distribution.

use super::super::point::Point;
use super::super::sheet::{Sheet, ratio};
use super::super::simulate::Bench;
use super::scale::draw;
use super::service::Mix;
use super::{best, notes, reached};
use anyhow::Result;

/// See the top of this file.
pub(in super::super) fn distributions(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "half updates, keys uniformly and by Zipf's distribution (ours projected)",
        notes(bench),
    );
    for (what, skewed) in [("uniform", false), ("Zipf", true)] {
        let title = format!("Ionian: {what}");
        let found = draw(bench, (what, title, Mix::updates(skewed)), &mut sheet)?;
        let bests: Vec<&Point> = found.iter().map(|points| best(points)).collect();
        let said: Vec<String> = bests.iter().map(|point| reached(point)).collect();
        let rate = |at: usize| bests[at].commands_per_second;
        sheet.findings.push(format!(
            "{what}: {}; P-SMR {} sP-SMR.",
            said.join("; "),
            ratio(rate(3), rate(2))
        ));
    }
    Ok(sheet)
}
