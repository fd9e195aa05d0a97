//! EPaxos under load: what happens to the commands of all clients where nodes choose whom they ask,
//! and wait for each other.

use crate::every_protocol::load::{self, Load};
use crate::wan::{SECOND, experiment, source};
use bytes::Bytes;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::registers::{self, Registers};
use ionian_protocols::epaxos::EPaxos;
use ionian_sim::Simulated;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, PerMessage, observe,
};

const EPAXOS: Simulated = Simulated::of::<EPaxos>();

/// Registers enough that few commands conflict.
const REGISTERS: u16 = 4096;

struct Spread;

impl Spread {
    fn register(client: usize, number: u64) -> u16 {
        let mixed = (client as u64 * 131 + number * 7919) % u64::from(REGISTERS);
        mixed as u16
    }
}

impl Service for Spread {
    fn write(&self, client: usize, number: u64) -> Bytes {
        registers::write(Self::register(client, number), number as u32, 0).into()
    }
    fn read(&self, client: usize, number: u64) -> Bytes {
        registers::read(Self::register(client, number), number as u32, 0).into()
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Registers::new(REGISTERS))
    }
}

/// A preset with this delay between any two nodes, and this number of clients at each.
fn run(
    preset: &str,
    delay_us: f64,
    clients: usize,
    changes: Vec<(u64, Change)>,
    ends_us: u64,
) -> Observed {
    let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
    let layout = deployment.layout(EPaxos::KINDS).unwrap();
    let nodes = layout.nodes().len();
    let link = Link {
        delay_us,
        bytes_per_second: f64::INFINITY,
    };
    let sources =
        (0..nodes as ionian_kernel::id::Index).map(|lane| source(lane, clients, Pace::Answered));
    let experiment = Experiment {
        layout,
        changes,
        begins_us: SECOND,
        ends_us,
        ..experiment(Network::clique(nodes, link), sources.collect())
    };
    observe(EPAXOS, &experiment, &PerMessage { us: 2.0 }, &Spread).unwrap()
}

/// The answers of all clients of these nodes, for each interval.
fn answers(observed: &Observed, nodes: &[usize], ends_us: u64, interval_us: u64) -> Vec<f64> {
    let of = |node: &usize| observed.sources[*node].over_time(SECOND, ends_us, interval_us);
    let all: Vec<Vec<(u64, f64)>> = nodes.iter().map(of).collect();
    (0..all[0].len())
        .map(|at| all.iter().map(|rates| rates[at].1).sum())
        .collect()
}

/// Its instances are left behind: all that is proposed waits for them at the next barrier.
#[test]
fn when_a_node_far_away_dies_the_clients_of_the_others_wait_for_a_second() {
    let ends = 20 * SECOND;
    let death = (8 * SECOND, Change::Death { node: NodeId(2) });
    let observed = run("epaxos", 100_000.0, 300, vec![death], ends);
    let rates = answers(&observed, &[0, 1], ends, SECOND);
    // What waits for its key is answered in bursts, of which a second has one or two.
    let usual = rates[2..7].iter().sum::<f64>() / 5.0;
    assert!(usual > 1500.0, "{rates:?}");
    // Seconds in which hardly anything is answered.
    let stands_still = rates[7..].iter().filter(|rate| **rate < usual / 4.0);
    assert!(stands_still.count() <= 1, "{rates:?}");
}

/// Where many commands come in the answers of all acceptors take longer: that is a queue and no
/// distance, and all must not run to the one whose queue is the shortest.
#[test]
fn nodes_that_are_busy_are_not_far_away() {
    let ends = 3 * SECOND / 2;
    let observed = run("epaxos-5", 50.0, 400, vec![], ends);
    let rates = answers(&observed, &[0, 1, 2, 3, 4], ends, SECOND / 10);
    let best = rates.iter().copied().fold(0.0, f64::max);
    assert!(
        rates.iter().all(|rate| *rate > best * 0.7),
        "{best} a second, and less than seven tenths of it: {rates:?}"
    );
}

/// Three sites, 50 ms apart, whose clients all write one key.
#[test]
fn a_hot_key_delays_its_own_commands_and_no_others() {
    let deployment = Deployment::preset("epaxos", &PresetOptions::default()).unwrap();
    let layout = deployment.layout(EPaxos::KINDS).unwrap();
    let apply = |hot| {
        let (timed, other) = (0, 5);
        load::apply(EPAXOS, &layout, 50_000.0, Load { hot, timed, other })
    };
    let usual = apply(0);
    println!("no hot key: {:?}", usual[2]);
    for clients in [2, 10, 20] {
        let [hot, _, other] = &apply(clients)[..] else {
            unreachable!("three kinds")
        };
        println!(
            "{}0 a second at each site: {hot:?}, others: {other:?}",
            clients
        );
        assert!(hot.share() > 0.95 && hot.refused == 0, "{hot:?}");
        assert!(hot.p99_ms <= 2000, "{hot:?}");
        assert!(other.share() > 0.95 && other.refused == 0, "{other:?}");
        assert!(
            10 * other.p50_ms <= 13 * usual[2].p50_ms,
            "{other:?}, and without: {:?}",
            usual[2]
        );
    }
}
