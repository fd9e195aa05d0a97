//! Nodes on a starved machine: each does nothing for hundreds of milliseconds, again and again, and
//! then all that has arrived meanwhile.

use super::load::Load;
use super::shapes;
use crate::wan::{SECOND, experiment};
use core::ops::Range;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::random::Random;
use ionian_sim::Simulated;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, PerMessage, Source, observe,
};

/// How long nodes are starved.
const STARVED: Range<u64> = 2 * SECOND..122 * SECOND;

/// How long a node works before it does nothing, and how long it does nothing, microseconds.
const WORKS: (u64, u64) = (SECOND / 5, SECOND);
const PAUSES: (u64, u64) = (3 * SECOND / 10, 9 * SECOND / 10);

/// When a node pauses, each node at times of its own.
fn pauses(node: NodeId, random: &mut Random) -> Vec<(u64, Change)> {
    let (mut pauses, mut at) = (Vec::new(), STARVED.start);
    while STARVED.contains(&at) {
        at += random.between(WORKS.0, WORKS.1);
        let us = random.between(PAUSES.0, PAUSES.1);
        pauses.push((at, Change::Stall { node, us }));
        at += us;
    }
    pauses
}

/// What clients of three lanes get from a deployment whose nodes are starved.
fn starve(protocol: Simulated, layout: Layout, seed: u64) -> Observed {
    let lanes = layout.all::<ClientId>(0).iter().take(3);
    let sources = lanes.map(|lane| Source {
        lane,
        clients: 5,
        pace: Pace::Waits {
            shortest_us: SECOND / 5,
            longest_us: 3 * SECOND / 5,
        },
        from_us: SECOND,
        until_us: STARVED.end,
    });
    let sources = sources.collect();
    let mut random = Random::new(seed);
    let mut changes: Vec<_> = (layout.nodes().into_iter())
        .flat_map(|node| pauses(node, &mut random))
        .collect();
    changes.sort_by_key(|(at, _)| *at);
    let link = Link {
        delay_us: 50.0,
        bytes_per_second: f64::INFINITY,
    };
    let network = Network::clique(layout.nodes().len(), link);
    let experiment = Experiment {
        layout,
        changes,
        begins_us: STARVED.start,
        ends_us: STARVED.end + 10 * SECOND,
        ..experiment(network, sources)
    };
    let own_keys = Load {
        hot: 0,
        timed: 0,
        other: 1,
    };
    observe(protocol, &experiment, &PerMessage { us: 1.0 }, &own_keys).unwrap()
}

/// The most elections of a log in two minutes in which its nodes are starved.
const ELECTIONS: u64 = 6;

/// Leaders stay although their nodes are starved, once they have learned that the election timeout
/// is too short for that; and clients are answered, though late.
pub(crate) fn leaders_stay(protocol: Simulated) {
    let shapes = shapes::usual(protocol).filter(|it| it.layout.f > 0);
    for shape in shapes.take(2) {
        let observed = starve(protocol, shape.layout.clone(), 0);
        let elections: u64 = observed.leads.iter().map(|it| it.elections).sum();
        let logs: u64 = observed.leads.iter().map(|it| it.parts()).sum();
        let answered: usize = observed.sources.iter().map(|it| it.answers.len()).sum();
        let refused: u64 = observed.sources.iter().map(|it| it.refused).sum();
        let latency = observed.latency_us();
        let named = format!(
            "{}: {elections} elections of {logs} logs, {answered} answered, {refused} refused, \
             {latency:?}",
            shape.name
        );
        println!("{named}");
        // Five a client and two seconds, of five clients.
        let expected = observed.sources.len() as u64 * 5 * (STARVED.end - STARVED.start) / SECOND;
        assert!(answered as u64 > 2 * expected, "{named}");
        assert!(refused * 100 < answered as u64, "{named}");
        assert!(elections <= ELECTIONS * logs, "{named}");
    }
}
