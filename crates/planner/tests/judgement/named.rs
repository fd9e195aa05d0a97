//! A role slowed down on purpose is the bottleneck that is named.

use super::PRESETS;
use super::cluster::{RATE, Running};
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::Protocol;
use ionian_planner::live::bottleneck::{Bottleneck, Kind};
use ionian_protocols::multipaxos::MultiPaxos;

/// How often the right instance was named.
#[derive(Default)]
struct Score {
    windows: usize,
    /// The slow instance was named, alone or beside a node that is short of processors.
    right: usize,
    /// A node was said to be short of processors, whatever was named beside it.
    starved: usize,
    /// Another instance was named.
    other: usize,
    wrong: Vec<String>,
}

impl Score {
    fn add(&mut self, other: Score) {
        self.windows += other.windows;
        self.right += other.right;
        self.starved += other.starved;
        self.other += other.other;
        self.wrong.extend(other.wrong);
    }

    fn is_at_least(&self, share: f64) -> bool {
        self.windows > 0 && self.right as f64 >= share * self.windows as f64
    }
}

/// Slows down a role of a running cluster and judges this number of windows, each of this number of
/// commands.
fn score(running: &Running, kind: &str, windows: usize, commands: u64) -> Score {
    let place = MultiPaxos::KINDS.iter().position(|it| *it == kind);
    let slow = running.slow(place.unwrap() as u8);
    let expected = instance(kind, slow);
    let names = |found: &Bottleneck| found.role.as_ref() == Some(&expected);
    let mut score = Score::default();
    for _ in 0..windows {
        let found = running.window(commands);
        score.windows += 1;
        score.starved += usize::from(found.kind == Kind::Starved);
        match names(&found) {
            true => score.right += 1,
            false => {
                score.other += usize::from(found.role.is_some());
                let title = &found.title;
                score
                    .wrong
                    .push(format!("{expected} was slow, and named was: {title}"));
            }
        }
    }
    running.speed_up(slow);
    score
}

/// As the judgement names an instance.
fn instance(kind: &str, at: Address) -> String {
    format!("{} {}", kind.replace('_', " "), at.index)
}

/// The roles of a preset.
fn roles(preset: &str) -> Vec<&'static str> {
    let presets = MultiPaxos::PRESETS.iter();
    let nodes = presets
        .filter(|it| it.name == preset)
        .flat_map(|it| it.nodes);
    let used: Vec<&str> = nodes.flat_map(|it| it.roles).copied().collect();
    let kinds = MultiPaxos::KINDS.iter().copied();
    kinds.filter(|kind| used.contains(kind)).collect()
}

/// A few windows, for every change of the code. Where something else takes the processors no loop
/// works enough to limit anything, and nothing is named: that says nothing about the judgement.
#[test]
fn a_role_slowed_down_in_a_running_cluster_is_named() {
    let running = Running::start("colocated");
    let mut all = Score::default();
    for kind in ["leader", "read_batcher", "unbatcher"] {
        all.add(score(&running, kind, 3, u64::from(RATE)));
    }
    assert_eq!(all.other, 0, "{:#?}", all.wrong);
}

/// Every role of three presets, in windows as long as those of `ionian advise`. It takes twenty
/// minutes: `cargo test --release -p ionian-planner --test judgement -- --ignored --nocapture`.
#[test]
#[ignore = "takes twenty minutes"]
fn every_role_slowed_down_is_named_in_95_of_100_windows() {
    const WINDOWS: usize = 10;
    let window = u64::from(RATE) * 5;
    let mut failed = Vec::new();
    println!("preset             role          windows  right  another  short of processors");
    for preset in PRESETS {
        let running = Running::start(preset);
        let mut all = Score::default();
        for kind in roles(preset) {
            let score = score(&running, kind, WINDOWS, window);
            line(preset, kind, &score);
            all.add(score);
        }
        line(preset, "all", &all);
        if !all.is_at_least(0.95) {
            failed.push((preset, all.wrong));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn line(preset: &str, kind: &str, score: &Score) {
    let Score {
        windows,
        right,
        other,
        starved,
        ..
    } = score;
    println!("{preset:<17}  {kind:<12}  {windows:>7}  {right:>5}  {other:>7}  {starved:>19}");
    for wrong in score.wrong.iter().filter(|_| kind != "all") {
        println!("    {wrong}");
    }
}
