//! The figures and tables of the PigPaxos paper (sections 5 and 6).
//!
//! Ours are of two kinds. *At the paper's price* the real roles run in the simulator, and each
//! message costs what a message of the paper's implementation costs ([`Price::PAPER`]): so what
//! differs between systems is what they send. *Measured*, nodes spend what Ionian's roles spend.
//! The paper has its figures as pictures; the numbers that are given as its own are those that its
//! text says.
//!
//! | file | job |
//! |---|---|
//! | `messages` | tables 1 and 2, figure 17: who sends how many messages |
//! | `groups` | figure 8: the number of groups |
//! | `latency` | figures 9, 11 and 12: latency and throughput |
//! | `wide` | figure 10: three regions |
//! | `payload` | figure 13: larger values |
//! | `steady` | figure 14: relays that do not wait for the slowest |
//! | `failure` | figures 15 and 16: nodes that do not answer |
//! | `trial` | one experiment with one system |

pub(super) mod failure;
pub(super) mod groups;
pub(super) mod latency;
pub(super) mod messages;
pub(super) mod payload;
pub(super) mod steady;
mod trial;
pub(super) mod wide;

use super::drawing::panel::{Bar, Curve, Look, Marks, Panel};
use super::point::{Measure, Point};
use super::sheet::{Basis, Sheet};
use super::simulate::Bench;
use crate::model::Workload;
use ionian_sim::performance::wan::Observed;
use trial::{Price, System};

const PAXOS: &str = "Paxos";
const PAXOS_ASKING_ALL: &str = "Paxos asking all";
const EPAXOS: &str = "EPaxos";
/// The paper's workload (section 5.1).
const REGISTERS: u16 = 1000;
const VALUE_BYTES: usize = 8;
/// The paper's closed loop has up to this many clients (section 5.1).
const CLIENTS: usize = 120;

/// Systems without a leader that figures 9 to 12 compare as well: the name in the paper, and the
/// preset whose first node is copied as often as the figure has nodes. Clients send to every node.
const LEADERLESS: &[(&str, &str)] = &[(EPAXOS, "epaxos")];

/// The systems of a figure that has a curve for each.
fn systems(nodes: usize, groups: &[usize]) -> Vec<System> {
    let mut systems = vec![System::paxos(nodes), System::paxos_asking_all(nodes)];
    systems.extend(groups.iter().map(|groups| System::pigpaxos(nodes, *groups)));
    let leaderless = LEADERLESS.iter();
    systems.extend(leaderless.map(|(name, preset)| System::leaderless(name, preset, nodes)));
    systems
}

/// How many votes of each group are not waited for, if it is to be this many: three groups of the
/// few nodes of a quick figure have none to spare, and two have one.
fn spared(bench: &Bench, groups: usize, slack: usize) -> usize {
    match bench.quick {
        true => slack.min(usize::from(groups < 3)),
        false => slack,
    }
}

/// How many nodes a figure has that is about this many: few, if it is to be quick.
fn size(bench: &Bench, nodes: usize) -> usize {
    if bench.quick { nodes.min(5) } else { nodes }
}

/// Commands of 8 bytes, where nodes are measured. Reads go through the log like writes.
fn workload() -> Workload {
    Workload {
        value_bytes: VALUE_BYTES,
        ..Workload::writes(1)
    }
}

/// What the numbers rest on that are simulated at the paper's price.
fn at_the_price() -> String {
    let Price {
        message_us,
        command_us,
    } = Price::PAPER;
    format!(
        "the real roles in the simulator, at the price of the paper's implementation: every message costs every node \
         that receives or sends it {message_us} us of its one processor, a client's request and its answer as much, \
         and a command costs the node that serves its client {command_us} us more. Both numbers are derived from the \
         paper: the leader of its Paxos handles 50 messages for each of 2,000 commands a second with 25 nodes, that of \
         its PigPaxos with three groups 8 for each of 7,000. So those two peaks prove nothing; all else follows. No \
         disks. Half of the commands read, half write, all through the log, values of {VALUE_BYTES} bytes on \
         {REGISTERS} registers."
    )
}

/// Whom the names stand for.
const WHO: &str = "`Paxos` is the preset `pigpaxos-25` without its relays, on the figure's number of nodes: its proxy leaders ask a \
     majority of acceptors and send what is chosen at once, so its leader handles 2(N-1)+2 messages a command, as many \
     as the paper's, which asks all and has what is chosen ride on the next request. `Paxos asking all` asks all and \
     sends what is chosen at once: 3(N-1)+2. `PigPaxos R=n` is the same preset with n groups that are drawn anew for \
     what comes in together; a relay does without one vote of its group (PRC=1) where that leaves a majority. With R=1 it \
     answers when it has a majority (section 4.3).";

/// A figure that is simulated at the paper's price alone.
fn priced_sheet(title: &str, notes: &[&str]) -> Sheet {
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    Sheet {
        basis: Basis::Said {
            short: "simulated; every message of every system costs a processor the same",
            whole: at_the_price(),
        },
        ..Sheet::empty(title, notes)
    }
}

/// A figure that has both kinds of numbers.
fn measured_sheet(title: &str, notes: &[&str]) -> Sheet {
    let priced = format!(
        "Where it says *at the paper's price*, the numbers rest on {}",
        at_the_price()
    );
    let notes = notes.iter().map(|note| (*note).to_owned());
    Sheet::empty(title, notes.chain([priced]).collect())
}

/// What was observed of a system at the paper's price.
fn priced(system: &System, observed: &Observed) -> Point {
    let mut latencies: Vec<u64> = observed
        .sources
        .iter()
        .flat_map(|series| series.latencies())
        .collect();
    latencies.sort_unstable();
    let ms = |part: f64| {
        let place = (latencies.len() as f64 * part) as usize;
        latencies.get(place).map(|us| *us as f64 / 1000.0)
    };
    let busiest = observed
        .utilization
        .iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other));
    Point {
        nodes: Some(system.nodes),
        mean_ms: Some(observed.latency_us().mean / 1000.0),
        p25_ms: ms(0.25),
        p50_ms: ms(0.5),
        p75_ms: ms(0.75),
        p99_ms: ms(0.99),
        bottleneck: busiest.map(|(node, part)| format!("n{} {:.0} %", node.0, part * 100.0)),
        ..Point::new(&system.name, Measure::Priced, observed.answers_per_second())
    }
}

/// A throughput that the paper's text says.
fn published(series: &str, throughput: f64) -> Point {
    Point::new(series, Measure::Published, throughput)
}

/// A multiple that the paper's text says.
fn multiple(series: &str, relative: f64) -> Point {
    Point {
        relative: Some(relative),
        ..Point::about(series, Measure::Published)
    }
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

fn bar(label: &str, colour: usize, height: f64) -> Bar {
    Bar::plain(label.replacen(' ', "\n", 2), colour, height)
}
