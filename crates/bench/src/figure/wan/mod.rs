//! The figures of the Mencius paper (section 7): sites that are far apart.
//!
//! Ours are simulated with one price for every message of every protocol ([`MESSAGE_US`]), so that
//! what differs between protocols is what they send. The paper has its figures as pictures; the
//! numbers that are given as its own are those that its text says.
//!
//! | file | job |
//! |---|---|
//! | `throughput` | 4, 5 and 6: what links carry |
//! | `failure` | 7: a server dies |
//! | `scale` | 8: three, five and seven sites |
//! | `latency` | 9, 10 and 11 |
//! | `trial` | one experiment with one system |

pub(super) mod failure;
pub(super) mod latency;
pub(super) mod scale;
pub(super) mod throughput;
pub(super) mod trial;

use super::drawing::panel::{Bar, Curve, Look, Marks, Panel};
use super::point::{Measure, Point};
use super::sheet::{Basis, Sheet};
use ionian_kernel::layout::NodeId;
use ionian_sim::performance::Latency;
use ionian_sim::performance::wan::{Link, Network, Observed, Series};
use trial::System;

/// What each message costs each node that takes it off the network or puts it on: so much that the
/// leader of the paper's Paxos is busy all the time at the 6,000 commands a second that the paper
/// measured without payload (section 7.2). For each command it handles 7 1/3 messages: two thirds
/// of one that is forwarded to it, two accepts out and two accepted in, two learns, and a third of
/// a client's request and of its answer. The same price gives the paper's Mencius, which handles 4
/// 2/3 on each server, 9,400; the paper measured 9,000.
const MESSAGE_US: f64 = 22.7;
/// The paper's dummy payload (section 7.1).
const PAYLOAD: usize = 4000;
/// One-way, of the paper's links.
const DELAY_MS: f64 = 50.0;
const SECOND: u64 = 1_000_000;
const SITES: usize = 3;
const SITE_NAMES: [&str; 7] = ["A", "B", "C", "D", "E", "F", "G"];
/// As many clients of a site that wait for their answers keep links busy most of the time, with
/// queues that are short beside the time in which a dead leader is suspected.
const MANY: usize = 120;

const PAXOS: System = System::new("Paxos", "baseline");
/// The messages of the paper's Paxos: ours asks a quorum of acceptors, this one all of them (and
/// waits for all).
const PAXOS_ASKING_ALL: System = System::new("Paxos asking all", "baseline").asking_all();
/// Everything in order.
const MENCIUS: System = System::new("Mencius", "mencius-wan").with(&["options.out_of_order=0"]);
/// Asking acceptors as our Paxos does: a quorum of them, and not all at once.
const THRIFTY_MENCIUS: System = System::new("thrifty Mencius", "mencius-wan")
    .with(&["options.out_of_order=0", "options.thrifty=1"]);
/// Out-of-order commit on few registers, of which many commands conflict, and on more.
const MENCIUS_16: System = System::new("Mencius-16", "mencius-wan").on_registers(16);
const MENCIUS_128: System = System::new("Mencius-128", "mencius-wan").on_registers(128);
const MENCIUS_1024: System = System::new("Mencius-1024", "mencius-wan").on_registers(1024);
/// What is compared in every figure.
const SYSTEMS: &[System] = &[PAXOS, MENCIUS];
/// What is compared where messages are counted.
const SYSTEMS_AND_REFERENCE: &[System] = &[PAXOS_ASKING_ALL, PAXOS, MENCIUS];
/// The same with each as thrifty as the other.
const SYSTEMS_BY_MESSAGES: &[System] = &[PAXOS_ASKING_ALL, PAXOS, MENCIUS, THRIFTY_MENCIUS];
/// What is compared where it makes a difference in which order commands are executed.
const SYSTEMS_AND_ORDERS: &[System] = &[PAXOS, MENCIUS, MENCIUS_16, MENCIUS_128, MENCIUS_1024];

/// The colour of a system, ours or the paper's.
fn colour(system: &str) -> usize {
    const NAMES: [&str; 7] = [
        "Paxos",
        "Mencius",
        "Mencius-16",
        "Mencius-128",
        "Mencius-1024",
        PAXOS_ASKING_ALL.name,
        THRIFTY_MENCIUS.name,
    ];
    NAMES
        .iter()
        .position(|name| *name == system)
        .unwrap_or(NAMES.len())
}

/// A figure that has yet to be filled.
fn sheet(title: &str, notes: &[&str]) -> Sheet {
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    let basis = Basis::Said {
        short: "simulated; every message of every protocol costs a processor the same",
        whole: format!(
            "the real roles in a simulated network without faults or disks. Every message costs every node that takes \
             it off the network or puts it on {MESSAGE_US} us of its one processor, a client's request and its answer \
             as much, and nothing else costs anything: at this price the leader of the paper's Paxos (7 1/3 messages \
             a command) is saturated at the 6,000 commands a second that the paper measured. A frame takes its link \
             for as long as its bytes need, with 66 bytes of headers for every 1,448. There is no Nagle's algorithm. \
             Half of the commands read, half write, all through the log. Paxos is the preset `baseline`, one node a \
             site; its proxy leaders ask a quorum of acceptors where the paper's leader asks all. Mencius is the preset \
             `mencius-wan`, in order; with a number behind it, out of order, on that number of registers. The paper's numbers \
             are those that its text gives (section 7); its figures are pictures."
        ),
    };
    Sheet {
        basis,
        ..Sheet::empty(&format!("{title} (ours simulated)"), notes)
    }
}

/// Links between all sites with the paper's delay and this bandwidth in megabits per second.
fn clique(mbps: f64) -> Network {
    Network::clique(
        SITES,
        Link {
            delay_us: DELAY_MS * 1000.0,
            bytes_per_second: bytes(mbps),
        },
    )
}

/// Bytes per second.
fn bytes(mbps: f64) -> f64 {
    mbps * 1e6 / 8.0
}

/// The results of one group of clients, with the latencies of all answers.
fn simulated(series: &str, throughput: f64, observed: &Observed) -> Point {
    with_latency(series, observed.latency_us(), throughput)
}

fn with_latency(series: &str, latency: Latency, throughput: f64) -> Point {
    let ms = |us: f64| Some(us / 1000.0);
    let Latency { mean, p50, p99 } = latency;
    Point {
        mean_ms: ms(mean),
        p50_ms: ms(p50),
        p99_ms: ms(p99),
        ..Point::new(series, Measure::Simulated, throughput)
    }
}

/// The processor or link that is busiest, where one nearly always is.
fn bottleneck(observed: &Observed, bytes_per_second: f64) -> Option<String> {
    let name = |node: NodeId| SITE_NAMES[usize::from(node.0)];
    let processors = observed
        .utilization
        .iter()
        .map(|(node, part)| (format!("processor of {}", name(*node)), *part));
    let links = observed.bytes_per_second.iter().map(|(from, to, rate)| {
        (
            format!("link {}{}", name(*from), name(*to)),
            rate / bytes_per_second,
        )
    });
    let (what, part) = processors
        .chain(links)
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(format!("{what} {:.0} %", part * 100.0))
}

/// A number that the paper's text says.
fn published(series: &str, throughput: f64) -> Point {
    Point::new(series, Measure::Published, throughput)
}

fn panel(title: &str, (x_label, y_label): (&str, &str), marks: Marks) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        marks,
    }
}

fn curve(name: &str, colour: usize, look: Look, points: Vec<(f64, f64)>) -> Curve {
    Curve {
        name: name.to_owned(),
        colour,
        look,
        points,
    }
}

/// A height that the paper says, across the panel.
fn level(name: &str, colour: usize, height: f64, (from, until): (f64, f64)) -> Curve {
    curve(
        &format!("{name}, the paper"),
        colour,
        Look::Dashed,
        vec![(from, height), (until, height)],
    )
}

/// Answers per second in each interval of this length in seconds, with its middle.
fn over_time(series: &Series, (from, until): (u64, u64), interval: u64) -> Vec<(f64, f64)> {
    let rates = series.over_time(from * SECOND, until * SECOND, interval * SECOND);
    rates
        .into_iter()
        .map(|(middle, rate)| (middle as f64 / SECOND as f64, rate))
        .collect()
}

/// Answers per second from one second to another.
fn mean_rate(series: &Series, (from, until): (u64, u64)) -> f64 {
    over_time(series, (from, until), until - from)[0].1
}

fn at_second(series: &str, second: f64, rate: f64) -> Point {
    Point {
        seconds: Some(second),
        ..Point::new(series, Measure::Simulated, rate)
    }
}
