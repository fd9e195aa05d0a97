//! Figures 4, 5 and 6: what links carry, when they are alike, when they differ, and when they
//! change.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Point, short};
use super::super::sheet::{Sheet, peak, ratio};
use super::super::simulate::Bench;
use super::trial::{System, Trial};
use super::*;
use anyhow::Result;
use ionian_sim::performance::wan::{Change, Pace, Topology, Variation};

/// Figure 4 in the paper's text: system, payload, commands per second.
const SYMMETRIC: [(&str, usize, f64); 4] = [
    ("Paxos", PAYLOAD, 540.0),
    ("Mencius", PAYLOAD, 1550.0),
    ("Paxos", 0, 6000.0),
    ("Mencius", 0, 9000.0),
];
const MBPS: f64 = 20.0;
/// What a connection's buffers hold: a client whose site has more waiting waits, or votes would
/// queue behind everything that the site will ever ask, and all sites would be as slow as the
/// slowest.
const ROOM_BYTES: f64 = 65_536.0;
/// A leader's links carry what all sites ask: its own clients alone would wait.
fn room(system: &System) -> f64 {
    if system.name == PAXOS.name {
        f64::INFINITY
    } else {
        ROOM_BYTES
    }
}

/// Clients of a site that saturate links: votes wait behind payloads, so that a link is idle for a
/// round trip between two of their rounds.
const SATURATING: usize = 600;
/// Clients of a site that saturate processors.
const VERY_MANY: usize = 1500;

/// Figure 4.
pub(in super::super) fn symmetric(bench: &Bench) -> Result<Sheet> {
    let mut sheet = sheet(
        "throughput for 20 Mbps bandwidth",
        &[
            "Clients wait for their answers: 600 a site with payload, 1,500 without.",
            "`Paxos asking all` has f=0 and a write quorum of all acceptors, so that it sends the messages of the \
           paper's Paxos; it is there to be compared with, not to be used. The preset `mencius-wan` asks all acceptors, as \
           the paper does; `thrifty Mencius` asks a write quorum, as our Paxos does.",
        ],
    );
    for (padding, clients) in [(PAYLOAD, SATURATING), (0, VERY_MANY)] {
        let mut bars = Vec::new();
        for (name, _, throughput) in SYMMETRIC
            .iter()
            .filter(|(_, payload, _)| *payload == padding)
        {
            bars.push(Bar::plain(format!("{name}\npaper"), 0, *throughput));
            sheet.points.push(Point {
                value_bytes: Some(padding),
                ..published(name, *throughput)
            });
        }
        for system in SYSTEMS_BY_MESSAGES {
            let seconds = if bench.quick { (3, 4) } else { (10, 30) };
            let trial = Trial::new(SITES, clique(MBPS), padding, seconds)
                .with_clients(clients, Pace::Answered);
            let observed = system.observe(&trial)?;
            let throughput = observed.answers_per_second();
            bars.push(Bar::plain(format!("{}\nours", system.name), 1, throughput));
            sheet.points.push(Point {
                clients: Some(clients * SITES),
                value_bytes: Some(padding),
                bottleneck: bottleneck(&observed, bytes(MBPS)),
                ..simulated(system.name, throughput, &observed)
            });
        }
        let title = format!("{padding} bytes of payload");
        sheet.panels.push(panel(
            &title,
            ("", "commands per second"),
            Marks::Bars(bars),
        ));
        sheet.findings.extend(compared(&sheet.points, padding));
    }
    Ok(sheet)
}

fn compared(points: &[Point], padding: usize) -> Vec<String> {
    let here: Vec<Point> = points
        .iter()
        .filter(|point| point.value_bytes == Some(padding))
        .cloned()
        .collect();
    let mut findings = Vec::new();
    for point in here
        .iter()
        .filter(|point| point.measure == Measure::Simulated)
    {
        let theirs = peak(
            &here,
            point.series.trim_end_matches(" asking all"),
            Measure::Published,
        );
        let theirs = theirs.map_or_else(String::new, |theirs| {
            format!("; the paper's: {}", short(theirs))
        });
        let most = point.bottleneck.as_deref().unwrap_or("unknown");
        let ours = short(point.commands_per_second);
        findings.push(format!(
            "{padding} bytes, {}: {ours} commands/s (busiest: {most}){theirs}.",
            point.series
        ));
    }
    let gain = |measure, one, other| {
        Some(ratio(
            peak(&here, one, measure)?,
            peak(&here, other, measure)?,
        ))
    };
    let simulated = |one: &System, other: &System| gain(Measure::Simulated, one.name, other.name);
    if let (Some(mixed), Some(all), Some(thrifty)) = (
        simulated(&MENCIUS, &PAXOS),
        simulated(&MENCIUS, &PAXOS_ASKING_ALL),
        simulated(&THRIFTY_MENCIUS, &PAXOS),
    ) {
        let theirs = gain(Measure::Published, MENCIUS.name, PAXOS.name).unwrap_or_default();
        findings.push(format!(
            "{padding} bytes: Mencius has {all} of Paxos where both ask all acceptors, {thrifty} where both ask a \
             quorum, {mixed} where only Paxos does; the paper's {theirs}."
        ));
    }
    findings
}

/// The links of sites A, B and C, each with the bandwidth of what leaves it for the two others, in
/// order.
fn outgoing(mbps: [[f64; 2]; SITES]) -> Network {
    let link = |mbps| Link {
        delay_us: DELAY_MS * 1000.0,
        bytes_per_second: bytes(mbps),
    };
    let row = |(from, rates): (usize, [f64; 2])| {
        let mut links: Vec<Link> = rates.map(link).to_vec();
        links.insert(from, link(f64::INFINITY));
        links
    };
    let topology = Topology::Clique(mbps.into_iter().enumerate().map(row).collect());
    Network {
        topology,
        variation: Variation::None,
    }
}

/// Figure 5.
pub(in super::super) fn asymmetric(bench: &Bench) -> Result<Sheet> {
    const EACH: u64 = 100;
    /// Mencius at A, B and C.
    const PAPER: [f64; SITES] = [530.0, 420.0, 285.0];
    let mut sheet = sheet(
        "4,000 bytes of payload with asymmetric bandwidth",
        &[
            "Links AB and AC carry 20 Mbps, BA and BC 15, CA and CB 10. Each client asks at a constant rate of 100 a \
           second. A site has at most 300 commands under way; what is asked beyond is refused. No client asks while more \
           than 64 KiB wait for one of the links of the site, as on a connection whose buffers are full; with Paxos, \
           where the leader's links carry everything, all clients do.",
        ],
    );
    let counts = bench.some(&[1, 2, 3, 4, 5, 6, 7, 8]);
    for (site, most) in PAPER.iter().enumerate() {
        sheet.points.push(published(
            &format!("Mencius, site {}", SITE_NAMES[site]),
            *most,
        ));
    }
    for system in SYSTEMS {
        let mut curves = vec![Vec::new(); SITES];
        for &clients in &counts {
            let seconds = if bench.quick { (2, 3) } else { (10, 20) };
            let pace = Pace::Waits {
                shortest_us: 1_000_000 / EACH,
                longest_us: 1_000_000 / EACH,
            };
            let network = outgoing([[20.0; 2], [15.0; 2], [10.0; 2]]);
            let trial = Trial {
                in_flight: 300,
                room_bytes: room(system),
                ..Trial::new(SITES, network, PAYLOAD, seconds).with_clients(clients, pace)
            };
            let observed = system.observe(&trial)?;
            for (site, points) in curves.iter_mut().enumerate() {
                let (offered, got) = ((clients as u64 * EACH) as f64, observed.of_source(site));
                points.push((offered, got));
                let series = format!("{}, site {}", system.name, SITE_NAMES[site]);
                let point = Point::new(&series, Measure::Simulated, got);
                sheet.points.push(Point {
                    clients: Some(clients),
                    offered_per_second: Some(offered),
                    ..point
                });
            }
        }
        let most = |points: &Vec<(f64, f64)>| {
            short(points.iter().map(|(_, got)| *got).fold(0.0, f64::max))
        };
        let all = curves.iter().map(most).collect::<Vec<_>>().join(", ");
        sheet.findings.push(format!(
            "{}: at most {all} commands/s at A, B, C.",
            system.name
        ));
        let right = (counts[counts.len() - 1] as u64 * EACH) as f64;
        let mut lines: Vec<_> = curves
            .into_iter()
            .enumerate()
            .map(|(site, points)| {
                curve(
                    &format!("site {}", SITE_NAMES[site]),
                    site,
                    Look::Solid,
                    points,
                )
            })
            .collect();
        if system.name == "Mencius" {
            lines.extend(
                PAPER
                    .iter()
                    .enumerate()
                    .map(|(site, most)| level(SITE_NAMES[site], site, *most, (0.0, right))),
            );
        }
        let axes = ("asked per second and site", "commands per second and site");
        sheet
            .panels
            .push(panel(system.name, axes, Marks::Curves(lines)));
    }
    sheet
        .findings
        .push("The paper's Mencius: at most 530, 420, 285 commands/s at A, B, C.".to_owned());
    Ok(sheet)
}

/// Figure 6.
pub(in super::super) fn changing(bench: &Bench) -> Result<Sheet> {
    /// Mencius at A, B and C in the beginning; C's doubles in the third quarter, A's falls to a
    /// third in the last.
    const PAPER: [f64; SITES] = [450.0, 300.0, 150.0];
    let quarter = if bench.quick { 4 } else { 60 };
    let interval = if bench.quick { 1 } else { 5 };
    let mut sheet = sheet(
        "changing bandwidth, 4,000 bytes of payload",
        &[
            "Links AB and AC begin with 15 Mbps, BA and BC with 10, CA and CB with 5. After one quarter of the time \
           CA has 10, after two CB has 10, after three AC has 5. Each site has 240 clients that wait for their \
           answers, and, but for Paxos, while more than 64 KiB wait for one of the links of the site.",
        ],
    );
    for (site, rate) in PAPER.iter().enumerate() {
        sheet.points.push(published(
            &format!("Mencius, site {}, at first", SITE_NAMES[site]),
            *rate,
        ));
    }
    for system in SYSTEMS {
        let change = |from, to, mbps| Change::Bandwidth {
            from,
            to,
            bytes_per_second: bytes(mbps),
        };
        let network = outgoing([[15.0; 2], [10.0; 2], [5.0; 2]]);
        let trial = Trial {
            room_bytes: room(system),
            changes: vec![
                (quarter, change(2, 0, 10.0)),
                (2 * quarter, change(2, 1, 10.0)),
                (3 * quarter, change(0, 2, 5.0)),
            ],
            ..Trial::new(SITES, network, PAYLOAD, (0, 4 * quarter))
                .with_clients(2 * MANY, Pace::Answered)
        };
        let observed = system.observe(&trial)?;
        let mut curves = Vec::new();
        for (site, answers) in observed.sources.iter().enumerate() {
            let name = format!("{}, site {}", system.name, SITE_NAMES[site]);
            let over_time = over_time(answers, (0, 4 * quarter), interval);
            sheet.points.extend(
                over_time
                    .iter()
                    .map(|(second, rate)| at_second(&name, *second, *rate)),
            );
            curves.push(curve(
                &format!("site {}", SITE_NAMES[site]),
                site,
                Look::Solid,
                over_time,
            ));
            let of = |part: u64| {
                mean_rate(
                    answers,
                    (part * quarter + quarter / 4, (part + 1) * quarter),
                )
            };
            let quarters = [0, 1, 2, 3].map(|part| short(of(part))).join(", ");
            sheet.findings.push(format!(
                "{name}: {quarters} commands/s in the four quarters."
            ));
        }
        if system.name == "Mencius" {
            let first = (0.0, quarter as f64);
            curves.extend(
                PAPER
                    .iter()
                    .enumerate()
                    .map(|(site, rate)| level(SITE_NAMES[site], site, *rate, first)),
            );
        }
        sheet.panels.push(panel(
            system.name,
            ("seconds", "commands per second"),
            Marks::Curves(curves),
        ));
    }
    sheet.findings.push(
        "The paper's Mencius: 450, 300 and 150 commands/s at A, B and C; C's doubles in the third quarter, A's falls \
         to a third in the last."
            .to_owned(),
    );
    Ok(sheet)
}
