//! Runs seeds of a protocol: `cargo run --release -p ionian-sim --example seeds -- PROTOCOL FIRST COUNT
//! [disk|memory|down] [CANARY]`. With a count of 1 the trace goes to standard output.

use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum::QuorumSpec;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::{Canary, Durability, Scenario, Watch, run_seeds};
use std::time::Instant;

fn nodes(numbers: impl IntoIterator<Item = u16>) -> Vec<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

fn run<P: Protocol>(scenario: &Scenario, first: u64, count: u64) {
    let started = Instant::now();
    let mut slowest = (0.0, 0);
    let mut last = Instant::now();
    let watch = |_| Watch { trace: (count == 1).then(|| Box::new(std::io::stdout()) as _), ..Watch::default() };
    let summary = run_seeds::<P>(scenario, first..first + count, false, watch, |outcome| {
        let took = last.elapsed().as_secs_f64();
        last = Instant::now();
        if took > slowest.0 {
            slowest = (took, outcome.seed);
        }
        if let Err(failure) = &outcome.result {
            println!("seed {} [{}]: {failure}", outcome.seed, outcome.knobs);
        }
    });
    print!("{}", summary.report);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} of {count} failed; {:.0} seeds/s; slowest {slowest:?}",
        summary.failures.len(),
        count as f64 / seconds
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(at as u64 * 50 - 50);
    let (first, count) = (number(1), number(2));
    let durability = match arguments.get(3).map(String::as_str) {
        Some("memory") => Durability::Memory { returns: true },
        Some("down") => Durability::Memory { returns: false },
        _ => Durability::Disk,
    };
    let canary = match arguments.get(4).map(String::as_str) {
        None => Canary::None,
        Some("no-fence") => Canary::NoFence,
        Some("forget-disk") => Canary::ForgetDisk,
        Some("hide-amnesia") => Canary::HideAmnesia,
        Some(name) => Canary::Named(name.to_owned().leak()),
    };
    match arguments.first().map(String::as_str) {
        Some("unreplicated") => {
            let instances = vec![nodes([1, 2]), vec![], nodes([0]), vec![]];
            let scenario = Scenario::new("unreplicated", Layout { instances, ..Layout::default() });
            run::<Unreplicated>(&Scenario { stable_log: false, durability, canary, ..scenario }, first, count);
        }
        Some("multipaxos") => {
            let all = || nodes(0..3);
            let instances = vec![all(), vec![], vec![], all(), all(), all(), all(), vec![]];
            let scenario = Scenario::new("multipaxos", Layout { f: 1, instances, ..Layout::default() });
            run::<MultiPaxos>(&Scenario { durability, canary, ..scenario }, first, count);
        }
        Some("five") => {
            let all = || nodes(0..5);
            let instances = vec![all(), vec![], vec![], all(), all(), all(), all(), vec![]];
            let scenario = Scenario::new("five", Layout { f: 2, instances, ..Layout::default() });
            run::<MultiPaxos>(&Scenario { durability, canary, ..scenario }, first, count);
        }
        Some("grid") => {
            let two = || nodes(0..2);
            let instances = vec![two(), vec![], vec![], two(), two(), nodes(0..6), two(), vec![]];
            let quorums = QuorumSpec::Grid { rows: 2, columns: 3 };
            let scenario = Scenario::new("grid", Layout { f: 1, quorums, instances, ..Layout::default() });
            run::<MultiPaxos>(&Scenario { durability, canary, ..scenario }, first, count);
        }
        Some("apart") => {
            let instances = vec![
                nodes([0, 1]),
                nodes([0, 1]),
                nodes([2, 3]),
                nodes([2, 3]),
                nodes([4, 5]),
                nodes([6, 7, 8]),
                nodes([9, 10]),
                nodes([11, 12]),
            ];
            let scenario = Scenario::new("apart", Layout { f: 1, instances, ..Layout::default() });
            run::<MultiPaxos>(&Scenario { durability, canary, ..scenario }, first, count);
        }
        other => eprintln!("{other:?} is no protocol: unreplicated, multipaxos, five, grid, apart"),
    }
}
