//! How long clients wait while something is broken, and when it works again, in simulated time: in
//! each preset, for each kind of fault. Seeds ask only for an answer in the end, and `steady.rs`
//! looks at what stays broken.

mod faults;

use super::{load, shapes};
use crate::wan::{SECOND, experiment};
use bytes::Bytes;
use core::ops::Range;
use faults::Fault;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::random::Random;
use ionian_machines::kv::Kv;
use ionian_replication::suspicion::PRESENT_FOR;
use ionian_sim::Simulated;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Pace, PerMessage, Source, observe,
};

/// A fault begins after this time, at the latest a second later.
const BEGINS: u64 = 3 * SECOND;
/// Clients ask for this long when it has ended, and wait for as long again.
const AFTER: u64 = 4 * SECOND;
/// Each kind of fault is drawn from these: more of them find rarer cases.
const SEEDS: Range<u64> = 0..1;

/// Most clients write keys of their own, some of these with a time to live, and some write the
/// keys of all.
struct Keys;

impl Service for Keys {
    fn write(&self, client: usize, number: u64) -> Bytes {
        let own = format!("{client}:{}", number % 16);
        let hot = format!("hot:{}", number % 3);
        let words: &[&str] = match number % 4 {
            0 => &["INCR", &hot],
            1 => &["SET", &own, "value", "EX", "100"],
            _ => &["SET", &own, "value"],
        };
        load::compound(words)
    }
    fn read(&self, _: usize, _: u64) -> Bytes {
        unreachable!("these clients write")
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Kv::default())
    }
}

/// How long writes took, in microseconds, and how many were refused.
#[derive(Debug, Default)]
struct Waits {
    /// Those through the nodes that the fault leaves alone, while it lasts.
    during: u64,
    /// Until the first answer through each gateway when it has ended.
    first: u64,
    /// All that were asked since then.
    after: u64,
    refused: u64,
}

/// Clients ask through every gateway before, during and after a fault.
fn waits(
    protocol: Simulated,
    layout: &Layout,
    fault: Fault,
    changes: Vec<(u64, Change)>,
    times: &Range<u64>,
) -> Waits {
    let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().collect();
    let node_of = |lane: &ClientId| {
        let (kind, index) = (0, lane.0);
        let node = layout.node_of(Address { kind, index });
        node.expect("the node of a lane")
    };
    let source = |lane: &ClientId, from_us, until_us| Source {
        lane: *lane,
        clients: 2,
        pace: Pace::Waits {
            shortest_us: SECOND / 20,
            longest_us: 3 * SECOND / 20,
        },
        from_us,
        until_us,
    };
    let before = lanes.iter().map(|lane| {
        let until = match fault.stops(node_of(lane)) {
            true => times.start,
            false => times.end,
        };
        source(lane, SECOND, until)
    });
    let after = lanes
        .iter()
        .map(|lane| source(lane, times.end, times.end + AFTER));
    let ends_us = times.end + 2 * AFTER;
    let link = Link {
        delay_us: 50.0,
        bytes_per_second: f64::INFINITY,
    };
    let experiment = Experiment {
        layout: layout.clone(),
        changes,
        begins_us: 1,
        ends_us,
        ..experiment(
            Network::clique(layout.nodes().len(), link),
            before.chain(after).collect(),
        )
    };
    let observed =
        observe(protocol, &experiment, &PerMessage { us: 1.0 }, &Keys).expect("a preset");
    let (before, after) = observed.sources.split_at(lanes.len());
    let left_alone = lanes.iter().zip(before);
    let left_alone = left_alone.filter(|(lane, _)| !fault.affects(node_of(lane)));
    let left_alone: Vec<_> = left_alone.map(|(_, series)| series).collect();
    let first = after.iter().map(|series| {
        let first = series.answers.first();
        first.map_or(ends_us, |answer| answer.at_us) - times.end
    });
    let refused = |all: &mut dyn Iterator<Item = u64>| all.sum::<u64>();
    Waits {
        during: left_alone
            .iter()
            .flat_map(|it| it.latencies())
            .max()
            .unwrap_or(0),
        first: first.max().unwrap_or(0),
        after: after
            .iter()
            .flat_map(|it| it.latencies())
            .max()
            .unwrap_or(0),
        refused: refused(&mut left_alone.iter().map(|it| it.refused))
            + refused(&mut after.iter().map(|it| it.refused)),
    }
}

/// The longest that a write may take. A role that receives nothing notices that after as long as
/// an absent one counts as present, and falls silent; as long after that it is absent to others.
/// Then another may have to be elected, which takes up to two timeouts. What was lost with one of
/// them is asked again at each `retry_after`, and its next way may lead through the same role: of
/// five times in a row one leads elsewhere.
fn longest_us(layout: &Layout) -> u64 {
    let options = &layout.options;
    let notices = PRESENT_FOR.max(options.election_timeout) * 2;
    let longest = notices + options.election_timeout * 2 + options.lane.retry_after * 5;
    longest.as_micros() as u64
}

pub(crate) fn all_are_answered_soon(protocol: Simulated) {
    let mut late = Vec::new();
    for shape in shapes::usual(protocol).filter(|it| it.layout.f > 0) {
        let (name, layout) = (shape.name, shape.layout);
        let longest = longest_us(&layout);
        for kind in 0..Fault::KINDS {
            for seed in SEEDS {
                let mut random = Random::new(seed * 100 + kind);
                let fault = Fault::drawn(kind, &mut random, &layout);
                let begins = BEGINS + random.below(SECOND);
                let lasts = fault.lasts(&mut random);
                let times = begins..begins + lasts;
                let changes = fault.changes(&layout, times.clone(), &mut random);
                let waits = waits(protocol, &layout, fault, changes, &times);
                let named = |node: NodeId| layout.name(node).to_string();
                let row = format!("{name}: {}, {lasts} us: {waits:?}", fault.in_words(named));
                println!("{row}");
                let worst = waits.during.max(waits.first).max(waits.after);
                if worst > longest || waits.refused > 0 {
                    late.push(row);
                }
            }
        }
    }
    assert!(late.is_empty(), "too late:\n{}", late.join("\n"));
}
