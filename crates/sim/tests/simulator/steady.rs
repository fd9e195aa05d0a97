//! What clients notice of a failure passes: when the cluster has had its time, each write is quick
//! again, though what failed stays as it is. Seeds ask only for an answer in the end, and
//! `outages.rs` looks at the time right after a failure.

use ionian_deployment::Settings;
use ionian_protocols::craq::Craq;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::scalog::Scalog;
use ionian_sim::Simulated;
use ionian_sim::machine::Lists;
use ionian_sim::play::{Play, PlayError};

/// How many writes follow a failure.
const WRITES: usize = 12;
/// A write is quick if it takes no longer: a lane waits longer before it asks again.
const QUICK: &str = "100ms";

const CRAQ: Simulated = Simulated::of::<Craq>();
const MULTIPAXOS: Simulated = Simulated::of::<MultiPaxos>();
const SCALOG: Simulated = Simulated::of::<Scalog>();

/// What fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// A node stops.
    Node(usize),
    /// A node stops, and another starts again.
    NodeBeforeRestart(usize, usize),
    /// A link is cut in one direction.
    Link(usize, usize),
}

impl Failure {
    fn text(self) -> String {
        match self {
            Failure::Node(node) => format!("crash n{node}\n"),
            Failure::NodeBeforeRestart(node, other) => {
                format!("crash n{node}\nrun for 10s\ncrash n{other}\nrestart n{other}\n")
            }
            Failure::Link(from, to) => format!("cut * n{from}->n{to}\n"),
        }
    }
}

fn perform(protocol: Simulated, text: &str) -> Result<(), PlayError> {
    let play = Play::parse(text).expect("a play");
    let setup = play.setup().expect("it names its cluster");
    let mut settings = Settings::default();
    for (key, value) in &setup.settings {
        settings.set(key, *value).expect("a setting");
    }
    let scenario = setup.scenario(protocol, settings.options())?;
    play.run(protocol, &scenario, Lists::new(3))
}

/// How many of the writes of a lane are slow, some seconds after a failure in this cluster.
fn slow(protocol: Simulated, cluster: &str, lane: usize, failure: Failure) -> usize {
    let write = |number: usize, time: &str| {
        format!(
            "submit c{lane} append x {number}\nrun for {time}\nexpect reply c{lane} length \
             {number}\nrun for 1100ms\n"
        )
    };
    let mut text = format!(
        "protocol {}\n{cluster}run for 3s\n",
        protocol.description().name
    );
    text += &write(1, "2s");
    text += &format!("{}run for 10s\n", failure.text());
    // The lane learns from these.
    for number in 2..5 {
        text += &write(number, "4s");
    }
    let mut slow = 0;
    for number in 5..5 + WRITES {
        let quick = text.clone() + &write(number, QUICK);
        if perform(protocol, &quick).is_ok() {
            text = quick;
            continue;
        }
        slow += 1;
        text += &write(number, "4s");
    }
    if let Err(error) = perform(protocol, &text) {
        panic!("{failure:?}: {error}\n{text}");
    }
    slow
}

/// No more writes than are `allowed` may be slow.
fn assert_quick(protocol: Simulated, cluster: &str, lane: usize, failure: Failure, allowed: usize) {
    let (slow, name) = (
        slow(protocol, cluster, lane, failure),
        protocol.description().name,
    );
    println!("{name}: {failure:?}: {slow} of {WRITES} slow");
    assert!(
        slow <= allowed,
        "{name}, {failure:?}: {slow} of {WRITES} writes were slow"
    );
}

/// Client lane 0 is on node 0, and no chain node.
const CHAIN: &str = "nodes 1 client\nnodes 3 chain_node leader proxy_leader acceptor master\n";
/// The same with helpers of both kinds, on nodes 1 to 4.
const HELPED: &str = "nodes 1 client\nnodes 2 batcher\nnodes 2 unbatcher\n\
                      nodes 3 chain_node leader proxy_leader acceptor master\n";
/// Everything on each node.
const TOGETHER: &str = "nodes 3 client chain_node leader proxy_leader acceptor master\n";

#[test]
fn writes_of_craq_are_quick_again_after_a_node_has_failed() {
    for dead in 1..=3 {
        assert_quick(CRAQ, CHAIN, 0, Failure::Node(dead), 0);
        assert_quick(CRAQ, CHAIN, 0, Failure::NodeBeforeRestart(dead, 0), 0);
    }
    for dead in 1..=7 {
        assert_quick(CRAQ, HELPED, 0, Failure::Node(dead), 0);
    }
    for dead in 0..=2 {
        let lane = (dead + 1) % 3;
        assert_quick(CRAQ, TOGETHER, lane, Failure::Node(dead), 0);
        assert_quick(
            CRAQ,
            TOGETHER,
            lane,
            Failure::NodeBeforeRestart(dead, lane),
            0,
        );
    }
}

/// Now and then a lane tries whether it reaches the head again, and a node joins and is removed.
#[test]
fn most_writes_of_craq_are_quick_again_after_a_link_was_cut_in_one_direction() {
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        assert_quick(CRAQ, TOGETHER, 0, Failure::Link(from, to), WRITES / 3);
    }
    for (from, to) in [(0, 1), (3, 0)] {
        assert_quick(CRAQ, CHAIN, 0, Failure::Link(from, to), WRITES / 3);
    }
}

#[test]
fn writes_of_multipaxos_are_quick_again_after_a_node_has_failed() {
    let cluster =
        "nodes 1 client\nnodes 2 unbatcher\nnodes 3 leader proxy_leader acceptor replica\n";
    for dead in 1..=5 {
        assert_quick(MULTIPAXOS, cluster, 0, Failure::Node(dead), 0);
    }
    assert_quick(MULTIPAXOS, cluster, 0, Failure::NodeBeforeRestart(3, 0), 0);
}

#[test]
fn most_writes_of_scalog_are_quick_again_after_a_node_has_failed() {
    let cluster = "nodes 4 client server aggregator leader proxy_leader acceptor replica\n\
                   set open_shards=1\n";
    for dead in 1..=3 {
        assert_quick(SCALOG, cluster, 0, Failure::Node(dead), 1);
    }
}
