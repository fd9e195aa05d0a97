//! Deployments of which no node may fail: what a node loses no other has.

use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::scalog::Scalog;
use ionian_sim::{Scenario, Simulated, run_seed};

/// All roles on node 0, and a server on each of two others: each server is a shard.
fn shards_of_one_server() -> Scenario {
    let instances = Scalog::KINDS.iter().map(|kind| match *kind {
        "server" => (0..3).map(NodeId).collect(),
        "client" | "aggregator" | "leader" | "proxy_leader" | "acceptor" | "replica" => {
            vec![NodeId(0)]
        }
        _ => Vec::new(),
    });
    let layout = Layout {
        f: 0,
        instances: numbered(instances.collect()),
        ..Layout::default()
    };
    Scenario {
        stable_log: !Scalog::EXECUTES_BEFORE_STABLE,
        ..Scenario::new("scalog with f = 0", layout)
    }
}

/// A cut may order what only a server that has crashed since had on its disk: in the first three
/// of these seeds it does.
#[test]
fn records_of_servers_without_peers_are_ordered_after_a_crash() {
    let scenario = shards_of_one_server();
    for seed in [97, 248, 302].into_iter().chain(0..20) {
        let outcome = run_seed(Simulated::of::<Scalog>(), &scenario, seed);
        assert!(outcome.result.is_ok(), "seed {seed}: {:?}", outcome.result);
    }
}
