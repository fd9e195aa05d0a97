//! Figure 8: three, five and seven sites in a star.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::trial::Trial;
use super::*;
use anyhow::Result;
use ionian_sim::performance::wan::Pace;

/// Figure 8(a) in the paper's text, for three, five and seven sites.
const PAPER: [(&str, [f64; 3]); 2] = [
    ("Paxos", [150.0, 75.0, 50.0]),
    ("Mencius", [430.0, 360.0, 340.0]),
];
const COUNTS: [usize; 3] = [3, 5, 7];
const MBPS: f64 = 10.0;
/// Clients of all sites together.
const CLIENTS: usize = 420;
const CLIENTS_WITHOUT_PAYLOAD: usize = 3150;

/// Figure 8.
pub(in super::super) fn sites(bench: &Bench) -> Result<Sheet> {
    let mut sheet = sheet(
        "throughput and number of sites",
        &[
            "All traffic of a site goes through its line to the centre of a star: 10 Mbps and 25 ms each way. Clients \
           wait for their answers: 420 in all with payload, 3,150 without. Without payload a message costs twice as \
           much, because in the paper the clients run on the servers' machines; the paper's text gives no numbers for \
           that part but that with seven sites Mencius has almost double the throughput of Paxos.",
        ],
    );
    for (padding, clients, message_us) in [
        (PAYLOAD, CLIENTS, MESSAGE_US),
        (0, CLIENTS_WITHOUT_PAYLOAD, 2.0 * MESSAGE_US),
    ] {
        let mut curves = Vec::new();
        for system in SYSTEMS_AND_REFERENCE {
            let mut ours = Vec::new();
            for sites in COUNTS {
                let seconds = if bench.quick { (3, 4) } else { (20, 50) };
                let line = Link {
                    delay_us: DELAY_MS * 500.0,
                    bytes_per_second: bytes(MBPS),
                };
                let trial = Trial::new(sites, Network::star(sites, line), padding, seconds);
                let trial = Trial {
                    message_us,
                    ..trial
                }
                .with_clients(clients / sites, Pace::Answered);
                let observed = system.observe(&trial)?;
                let throughput = observed.answers_per_second();
                ours.push((sites as f64, throughput));
                sheet.points.push(Point {
                    sites: Some(sites),
                    clients: Some(clients / sites * sites),
                    value_bytes: Some(padding),
                    ..simulated(system.name, throughput, &observed)
                });
            }
            let heights = ours
                .iter()
                .map(|(_, height)| short(*height))
                .collect::<Vec<_>>()
                .join(", ");
            let said = format!(
                "{padding} bytes, {}: {heights} commands/s with 3, 5 and 7 sites",
                system.name
            );
            let theirs = PAPER
                .iter()
                .find(|(name, _)| *name == system.name && padding > 0);
            let theirs = theirs.map(|(_, rates)| rates.map(short).join(", "));
            sheet
                .findings
                .push(theirs.map_or(format!("{said}."), |theirs| {
                    format!("{said}; the paper's {theirs}.")
                }));
            curves.push(curve(system.name, colour(system.name), Look::Solid, ours));
        }
        for (name, rates) in PAPER.iter().filter(|_| padding > 0) {
            let theirs: Vec<(f64, f64)> = COUNTS
                .iter()
                .map(|sites| *sites as f64)
                .zip(*rates)
                .collect();
            for (sites, rate) in COUNTS.into_iter().zip(*rates) {
                sheet.points.push(Point {
                    sites: Some(sites),
                    value_bytes: Some(padding),
                    ..published(name, rate)
                });
            }
            curves.push(curve(
                &format!("{name}, the paper"),
                colour(name),
                Look::Dashed,
                theirs,
            ));
        }
        let title = format!("{padding} bytes of payload");
        sheet.panels.push(panel(
            &title,
            ("sites", "commands per second"),
            Marks::Curves(curves),
        ));
    }
    Ok(sheet)
}
