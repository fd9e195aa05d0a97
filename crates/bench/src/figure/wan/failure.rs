//! Figure 7: throughput when a server dies.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::short;
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::trial::Trial;
use super::*;
use anyhow::Result;
use ionian_sim::performance::wan::{Change, Pace};

/// The paper's text does not say it; with this, its throughputs before the failure are what links
/// can carry.
const MBPS: f64 = 10.0;
/// A leader is suspected when it has been silent for this long, up to twice as long.
const ELECTION_TIMEOUT_MS: usize = 3500;
const RESEND_AFTER_MS: usize = 2000;

/// Figure 7 in the paper's text: system, who dies, commands per second before and after.
const PAPER: [(&str, usize, f64, f64); 2] =
    [("Mencius", 1, 850.0, 580.0), ("Paxos", 0, 285.0, 285.0)];

/// Figure 7.
pub(in super::super) fn failure(bench: &Bench) -> Result<Sheet> {
    let (dies, ends) = if bench.quick { (4, 20) } else { (30, 80) };
    let mut sheet = sheet(
        "a server dies, 4,000 bytes of payload",
        &[
            "Links carry 10 Mbps (the paper's text does not say how much). A server that is silent for 3.5 to 7 s is \
           suspected; the paper's five seconds begin with the loss of a connection. Each site has 120 clients that \
           wait for their answers, so that no more than that is finished at once when a stall ends; those of the site \
           that dies are gone. What is shown is the sum of all sites.",
        ],
    );
    for (name, site, before, after) in PAPER {
        let series = format!("{name}, {} dies", SITE_NAMES[site]);
        sheet
            .points
            .push(published(&format!("{series}, before"), before));
        sheet
            .points
            .push(published(&format!("{series}, after"), after));
    }
    for system in SYSTEMS {
        let mut curves = Vec::new();
        for site in [0, 1] {
            let trial = Trial {
                changes: vec![(
                    dies,
                    Change::Death {
                        node: NodeId(site as u16),
                    },
                )],
                resend_after_ms: RESEND_AFTER_MS,
                election_timeout_ms: ELECTION_TIMEOUT_MS,
                ..Trial::new(SITES, clique(MBPS), PAYLOAD, (0, ends))
                    .with_clients(MANY, Pace::Answered)
            };
            let observed = system.observe(&trial)?;
            let all: Vec<_> = observed
                .sources
                .iter()
                .map(|series| over_time(series, (0, ends), 1))
                .collect();
            let sum = |second: usize| {
                (
                    all[0][second].0,
                    all.iter().map(|rates| rates[second].1).sum(),
                )
            };
            let rates: Vec<(f64, f64)> = (0..ends as usize).map(sum).collect();
            let series = format!("{}, {} dies", system.name, SITE_NAMES[site]);
            sheet.points.extend(
                rates
                    .iter()
                    .map(|(second, rate)| at_second(&series, *second, *rate)),
            );
            sheet.findings.push(summary(&series, &rates, dies as usize));
            curves.push(curve(
                &format!("{} dies", SITE_NAMES[site]),
                site,
                Look::Solid,
                rates,
            ));
        }
        for (_, site, before, after) in PAPER.into_iter().filter(|(name, ..)| *name == system.name)
        {
            let name = format!("{} dies", SITE_NAMES[site]);
            curves.push(level(
                &format!("{name}, before"),
                site,
                before,
                (0.0, dies as f64),
            ));
            curves.push(level(
                &format!("{name}, after"),
                site,
                after,
                (dies as f64 + 5.0, ends as f64),
            ));
        }
        sheet.panels.push(panel(
            system.name,
            ("seconds", "commands per second"),
            Marks::Curves(curves),
        ));
    }
    sheet.findings.push(
        "The paper's Mencius goes from 850 to 580 commands/s when a server dies, its Paxos from 285 to 285 when the \
         leader does, both after a stall of five seconds; without another of its servers Paxos goes on."
            .to_owned(),
    );
    Ok(sheet)
}

fn summary(series: &str, rates: &[(f64, f64)], dies: usize) -> String {
    let mean = |rates: &[(f64, f64)]| {
        rates.iter().map(|(_, rate)| rate).sum::<f64>() / rates.len().max(1) as f64
    };
    let before = mean(&rates[dies / 2..dies]);
    let stalled = rates[dies..]
        .iter()
        .filter(|(_, rate)| *rate < before / 10.0)
        .count();
    let after = mean(&rates[rates.len() - rates.len() / 4..]);
    let (before, after) = (short(before), short(after));
    format!("{series}: {before} commands/s before, nothing for {stalled} s, {after} afterwards.")
}
