//! Replicas that were away: what clients wait for while one installs a snapshot, which takes long,
//! and how long it takes until all of them have caught up with a long log.

use super::shapes;
use crate::wan::{SECOND, experiment};
use bytes::Bytes;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_sim::Simulated;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, PerMessage, Source, observe,
};

/// Each client writes keys of its own; of each number of commands one writes several keys.
struct OwnKeys {
    value_bytes: usize,
    several_of: u64,
    /// One command of this number has a value of `LARGE` bytes.
    large_of: u64,
}

/// The bytes of a large value.
const LARGE: usize = 3 << 20;

/// How many keys such a command writes.
const SEVERAL: u64 = 6;

impl Service for OwnKeys {
    fn write(&self, client: usize, number: u64) -> Bytes {
        let several = number.is_multiple_of(self.several_of);
        let (name, keys) = match several {
            true => ("MSET", SEVERAL),
            false => ("SET", 1),
        };
        let large = number % self.large_of == self.large_of - 1;
        let bytes = if large { LARGE } else { self.value_bytes };
        let value = Bytes::from(vec![b'v'; bytes]);
        let pair = |key| [format!("{client}:{number}:{key}").into(), value.clone()];
        let mut words = vec![Bytes::from(name)];
        words.extend((0..keys).flat_map(pair));
        let command = Command::parse(&words).expect("a command of the store");
        Compound::Pipeline(vec![command]).encode().into()
    }
    fn read(&self, _: usize, _: u64) -> Bytes {
        unreachable!("these clients write")
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Kv::default())
    }
}

/// Clients of a lane that ask ten times a second each, from one time up to another.
fn source(lane: ClientId, clients: usize, times: core::ops::Range<u64>) -> Source {
    Source {
        lane,
        clients,
        pace: Pace::Waits {
            shortest_us: SECOND / 20,
            longest_us: 3 * SECOND / 20,
        },
        from_us: times.start,
        until_us: times.end,
    }
}

/// The nodes die at a time and return at another, in one room.
fn while_away(
    (protocol, layout): (Simulated, &Layout),
    nodes: &[NodeId],
    away: core::ops::Range<u64>,
    sources: &[Source],
    ends_us: u64,
    service: &OwnKeys,
) -> Observed {
    let changes = nodes.iter().flat_map(|node| {
        let (death, back) = (
            Change::Death { node: *node },
            Change::Return { node: *node },
        );
        [(away.start, death), (away.end, back)]
    });
    let link = Link {
        delay_us: 50.0,
        bytes_per_second: f64::INFINITY,
    };
    let experiment = Experiment {
        layout: layout.clone(),
        changes: changes.collect(),
        begins_us: away.end,
        ends_us,
        ..experiment(
            Network::clique(layout.nodes().len(), link),
            sources.to_vec(),
        )
    };
    observe(protocol, &experiment, &PerMessage { us: 1.0 }, service).unwrap()
}

/// The node of a lane.
fn node_of(layout: &Layout, lane: ClientId) -> Option<NodeId> {
    let (kind, index) = (0, lane.0);
    layout.node_of(Address { kind, index })
}

/// The kinds of roles on a node.
fn kinds(layout: &Layout, node: NodeId) -> impl Iterator<Item = u8> {
    layout.on_node(node).into_iter().map(|role| role.kind)
}

/// A node that executes commands; one that serves clients too, if there is such a node.
fn executing(protocol: Simulated, layout: &Layout) -> NodeId {
    let nodes = layout.nodes().into_iter();
    let executors = protocol.description().executors;
    let executes = |node: &NodeId| kinds(layout, *node).any(|kind| executors.contains(&kind));
    let serves = |node: &NodeId| kinds(layout, *node).any(|kind| kind == 0);
    let last = nodes
        .filter(executes)
        .max_by_key(|node| (serves(node), *node));
    last.expect("a deployment executes commands")
}

/// All that is asked of any node is answered soon while one of them installs a snapshot, its own
/// clients included.
pub(crate) fn clients_are_answered(protocol: Simulated) {
    let (away, until, ends) = (3 * SECOND..5 * SECOND, 13 * SECOND, 16 * SECOND);
    let service = OwnKeys {
        value_bytes: 1000,
        several_of: u64::MAX,
        large_of: u64::MAX,
    };
    for shape in shapes::usual(protocol).filter(|it| it.layout.f > 0) {
        let mut layout = shape.layout;
        let options = &mut layout.options;
        // Peers keep little, and a snapshot takes ten seconds.
        (options.retained_slots, options.snapshot_slots) = (16, 16);
        options.snapshot_bytes_per_second = 40_000;
        let node = executing(protocol, &layout);
        let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().collect();
        let before = lanes.iter().take(3);
        let before: Vec<_> = before
            .map(|lane| source(*lane, 10, SECOND..away.end))
            .collect();
        let (first, last) = (lanes[0], lanes[lanes.len() - 1]);
        assert!(
            lanes
                .iter()
                .all(|lane| node_of(&layout, *lane) != Some(node) || *lane == last)
        );
        let after = [first, last].map(|lane| source(lane, 5, away.end..until));
        let all = [&before[..], &after].concat();
        let cluster = (protocol, &layout);
        let observed = while_away(cluster, &[node], away.clone(), &all, ends, &service);
        for (source, series) in all.iter().zip(&observed.sources).skip(before.len()) {
            let latency = series.latency_us();
            let named = format!("{}, {:?} of {node:?}: {latency:?}", shape.name, source.lane);
            println!("{named}");
            let expected = source.clients as u64 * (until - away.end) / SECOND * 10;
            let answered = series.answers.len() as u64;
            assert!(
                answered > expected * 9 / 10,
                "{answered} of {expected}: {named}"
            );
            assert!(series.refused == 0, "{} refused: {named}", series.refused);
            assert!(latency.p99 < SECOND as f64, "{named}");
        }
    }
}

/// Commands before all replicas die, of the shorter of two logs.
const COMMANDS: u64 = 2000;

/// The part of a second that they take.
const LOAD_A_SECOND: u64 = 4000;

/// How long the clients of a gateway wait for their first answer after all replicas have returned
/// to a log of these commands, in simulated microseconds.
fn return_of_all(cluster: (Simulated, &Layout), nodes: &[NodeId], commands: u64) -> u64 {
    let loaded = SECOND..SECOND + SECOND * commands / LOAD_A_SECOND;
    let away = loaded.end..loaded.end + SECOND / 5;
    let ends = away.end + 20 * SECOND;
    let service = OwnKeys {
        value_bytes: 10,
        several_of: 4,
        large_of: u64::MAX,
    };
    let sources = [
        source(ClientId(0), LOAD_A_SECOND as usize / 10, loaded),
        source(ClientId(1), 10, away.end..ends),
    ];
    let observed = while_away(cluster, nodes, away.clone(), &sources, ends, &service);
    let first = observed.sources[1].answers.first();
    first.map_or(ends, |answer| answer.at_us) - away.end
}

/// When all replicas return together, the time for a command of the log is no wait, whatever keys
/// it writes: less than half a millisecond, though messages take 50 us and each costs 1 us.
pub(crate) fn all_replicas_catch_up(protocol: Simulated) {
    let executors = protocol.description().executors;
    for shape in shapes::usual(protocol) {
        let layout = shape.layout;
        let only = |node: &NodeId| kinds(&layout, *node).all(|kind| executors.contains(&kind));
        let nodes: Vec<NodeId> = layout.nodes().into_iter().filter(only).collect();
        if nodes.is_empty() || layout.f == 0 {
            continue;
        }
        let cluster = (protocol, &layout);
        let [short, long] = [COMMANDS, 2 * COMMANDS].map(|it| return_of_all(cluster, &nodes, it));
        println!("{}: {short} us and {long} us", shape.name);
        let each_us = long.saturating_sub(short) / COMMANDS;
        assert!(
            each_us < 500,
            "{}: {each_us} us for each command of the log",
            shape.name
        );
        assert!(short < 2 * SECOND, "{}: {short} us", shape.name);
    }
}

/// What a message may have beside the largest command: those that are batched with it, and names.
const BESIDE: usize = 384 << 10;

/// A message holds commands up to some bytes, or one that is larger, and never a large one behind
/// small ones: together they could exceed what a connection carries, and would be sent again
/// without end. Nodes miss small and large commands, and catch up; another leads.
pub(crate) fn messages_are_bounded(protocol: Simulated) {
    let (away, ends) = (2 * SECOND..4 * SECOND, 10 * SECOND);
    let service = OwnKeys {
        value_bytes: 20_000,
        several_of: u64::MAX,
        large_of: 40,
    };
    for shape in shapes::usual(protocol).filter(|it| it.layout.f > 0) {
        let layout = shape.layout;
        let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().collect();
        for node in [
            executing(protocol, &layout),
            *layout.nodes().first().expect("it has nodes"),
        ] {
            let stays = |lane: &&ClientId| node_of(&layout, **lane) != Some(node);
            let sources = lanes.iter().filter(stays).take(2);
            let sources = sources.map(|lane| source(*lane, 10, SECOND..6 * SECOND));
            let sources: Vec<_> = sources.collect();
            let cluster = (protocol, &layout);
            let observed = while_away(cluster, &[node], away.clone(), &sources, ends, &service);
            let largest = observed.flows.iter().max_by_key(|flow| flow.largest);
            let largest = largest.expect("messages");
            println!("{}, without {node:?}: {largest:?}", shape.name);
            assert!(largest.largest >= LARGE, "no large command was sent");
            assert!(
                largest.largest < LARGE + BESIDE,
                "{}, without {node:?}: {largest:?}",
                shape.name
            );
        }
    }
}
