//! Figure 10: fifteen nodes in three regions.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::{Sheet, peak};
use super::super::simulate::Bench;
use super::trial::{System, Trial};
use super::{VALUE_BYTES, bar, curve, panel, priced, priced_sheet, systems};
use anyhow::Result;
use ionian_kernel::layout::NodeId;
use ionian_sim::performance::wan::{Link, Network, Observed, Topology, Variation};

const NODES: usize = 15;
const OF_REGION: usize = 5;
const GROUPS: usize = 3;
const PRESET: &str = "pigpaxos-wan";
/// One way, in milliseconds: between Virginia, California and Oregon, and within a region.
const DELAY_MS: [[f64; 3]; 3] = [[0.1, 31.0, 34.0], [31.0, 0.1, 11.0], [34.0, 11.0, 0.1]];
const CLIENTS: [usize; 5] = [10, 100, 300, 600, 1000];
/// Of a value, where bytes are counted.
const SIZES: [usize; 2] = [VALUE_BYTES, 1280];

/// Figure 10.
pub(in super::super) fn regions(bench: &Bench) -> Result<Sheet> {
    let mut sheet = priced_sheet(
        "latency and throughput of 15 nodes in Virginia, California and Oregon",
        &[
            "Five nodes a region, clients on the leader's node in Virginia, a group for each region: the preset \
             `pigpaxos-wan`. Between regions a message takes 31, 34 and 11 ms one way (the paper does not say how long; \
             these are usual for these three), within one 0.1 ms. Bytes are those of frames, with 66 bytes of headers \
             for every 1,448, both directions, all messages; those of the paper are not known. It says that three \
             regions of three nodes need 2 messages across wide links per write in place of 6.",
            super::WHO,
        ],
    );
    let mut curves = Vec::new();
    let all: Vec<System> = systems(NODES, &[GROUPS])
        .into_iter()
        .map(|system| system.of_preset(PRESET))
        .collect();
    for (colour, system) in all.iter().enumerate() {
        for clients in bench.some(&CLIENTS) {
            let observed = system.observe(&trial(bench, clients))?;
            sheet.points.push(Point {
                clients: Some(clients),
                ..priced(system, &observed)
            });
        }
        let here = sheet.points.iter().filter(|it| it.series == system.name);
        let points = here.filter_map(|it| Some((it.commands_per_second, it.p50_ms?)));
        curves.push(curve(&system.name, colour, Look::Solid, points.collect()));
        sheet.findings.extend(peaks(&sheet.points, &system.name));
    }
    let labels = ("commands per second", "median latency (ms)");
    let title = "Ionian at the paper's price (simulated)";
    sheet
        .panels
        .push(panel(title, labels, Marks::Curves(curves)));
    bytes(bench, &all, &mut sheet)?;
    sheet.points.push(Point {
        messages: Some(2.0),
        nodes: Some(9),
        node: Some("wide links, requests only".to_owned()),
        ..Point::about("PigPaxos", Measure::Published)
    });
    sheet.findings.push(
        "The paper: without load the latency of Paxos and PigPaxos is the same, that of EPaxos about 5 ms more; \
         PigPaxos has the most throughput, then EPaxos, then Paxos."
            .to_owned(),
    );
    Ok(sheet)
}

/// What a write takes on the links between regions, for a small and a large value.
fn bytes(bench: &Bench, all: &[System], sheet: &mut Sheet) -> Result<()> {
    let mut bars = Vec::new();
    for value_bytes in SIZES {
        let mut said = Vec::new();
        for (colour, system) in all.iter().enumerate() {
            let trial = Trial {
                value_bytes,
                ..trial(bench, 300)
            };
            let observed = system.observe(&trial)?;
            let (bytes, messages) = wide(&observed);
            said.push(format!(
                "{} {bytes:.0} bytes in {messages:.1} messages",
                system.name
            ));
            bars.push(bar(
                &format!("{} {value_bytes} bytes", system.name),
                colour,
                bytes,
            ));
            sheet.points.push(Point {
                value_bytes: Some(value_bytes),
                nodes: Some(NODES),
                node: Some("wide links".to_owned()),
                messages: Some(messages),
                wide_bytes: Some(bytes),
                ..Point::about(&system.name, Measure::Simulated)
            });
        }
        sheet.findings.push(format!(
            "On the links between regions a write of {value_bytes} bytes takes: {}.",
            said.join(", ")
        ));
    }
    let labels = ("", "bytes between regions per write");
    let title = "Wide links (counted)";
    sheet.panels.push(panel(title, labels, Marks::Bars(bars)));
    Ok(())
}

fn region(node: NodeId) -> usize {
    usize::from(node.0) / OF_REGION
}

/// Bytes and messages per command between regions.
fn wide(observed: &Observed) -> (f64, f64) {
    let per_second = observed.answers_per_second();
    let rates = observed.bytes_per_second.iter();
    let bytes: f64 = rates
        .filter(|(from, to, _)| region(*from) != region(*to))
        .map(|(.., rate)| rate)
        .sum();
    let flows = observed.flows.iter();
    let messages: u64 = flows
        .filter(|flow| region(flow.from) != region(flow.to))
        .map(|flow| flow.messages)
        .sum();
    let commands = per_second * observed.elapsed_us as f64 / 1e6;
    (bytes / per_second, messages as f64 / commands)
}

fn trial(bench: &Bench, clients: usize) -> Trial {
    let span_ms = if bench.quick {
        (1500, 1700)
    } else {
        (2000, 4000)
    };
    let link = |from: usize, to: usize| Link {
        delay_us: 1000.0 * DELAY_MS[from / OF_REGION][to / OF_REGION],
        bytes_per_second: f64::INFINITY,
    };
    let links = (0..NODES).map(|from| (0..NODES).map(|to| link(from, to)).collect());
    Trial {
        network: Network {
            topology: Topology::Clique(links.collect()),
            variation: Variation::None,
        },
        ..Trial::new(NODES, clients, span_ms)
    }
}

fn peaks(points: &[Point], series: &str) -> Option<String> {
    let most = short(peak(points, series, Measure::Priced)?);
    let first = points.iter().find(|point| point.series == series)?;
    let (clients, p50) = (first.clients?, first.p50_ms?);
    Some(format!(
        "{series}: {p50:.1} ms with {clients} clients, peak {most} commands/s."
    ))
}
