//! Invented costs of messages, for tests, and what is projected from them.

use super::deployments::{batches, preset};
use crate::model::Workload;
use crate::model::measure::{Clock, measure};
use ionian_kernel::client::ReadLevel;
use ionian_planner::projection::{Projection, project};

/// What messages of one command cost, in microseconds; others cost nothing.
pub(super) const UNBATCHED: fn(&str, f64) -> f64 = |name, _| match name {
    "leader::Propose" | "stabilizer::Store" => 1.0,
    "proxy_leader::Phase2a" => 9.0,
    "acceptor::Phase2a" | "acceptor::PreRead" | "replica::Read" | "chain_node::Read" => 2.0,
    "replica::Chosen" | "chain_node::Write" | "chain_node::Forward" => 4.0,
    "disseminator::Commands" => 7.0,
    "server::Execute" | "stabilizer::Chosen" => 5.0,
    _ => 0.0,
};

/// What messages of batches cost: those that are executed or taken apart by their bytes.
pub(super) const BATCHED: fn(&str, f64) -> f64 = |name, bytes| match name {
    "leader::Propose" | "stabilizer::Store" => 10.0,
    "proxy_leader::Phase2a" => 90.0,
    "acceptor::Phase2a" => 20.0,
    "replica::Chosen" | "server::Execute" => 0.1 * bytes,
    "batcher::Commands" => 0.5,
    "unbatcher::Results" => 0.02 * bytes,
    _ => 0.0,
};

fn projected(name: &str, workload: &Workload, exempt: &[&str]) -> Projection {
    let deployment = batches(preset(name, 9).unwrap(), workload.batch).unwrap();
    let costs = if workload.batch > 1 {
        BATCHED
    } else {
        UNBATCHED
    };
    let measured = measure(&deployment, workload, (100, true), Clock::Invented(costs));
    project(&measured.unwrap(), exempt).unwrap()
}

fn reads(read_fraction: f64) -> Workload {
    Workload {
        read_fraction,
        ..Workload::writes(1)
    }
}

/// The roles are real: now and then one asks once more than it must.
fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.02
}

#[test]
fn writes_of_a_decoupled_deployment() {
    // Each replica executes all. Acceptor: one of two columns. Proxy leader: one of ten.
    let found = projected("compartmentalized", &Workload::writes(1), &[]);
    assert!(near(found.peak, 1e6 / 4.0), "{found:?}");
    assert_eq!(found.bottleneck, "replica");
    let expected = [("leader", 1.0), ("proxy_leader", 0.9), ("acceptor", 1.0)];
    for (role, us) in expected {
        assert!(near(found.roles[role], us), "{role}: {found:?}");
    }
    let found = projected("compartmentalized", &Workload::writes(1), &["replica"]);
    assert!(near(found.peak, 1e6), "{found:?}");
}

#[test]
fn writes_of_a_coupled_node_add_up() {
    // The leader's node has the proxy leader of all, votes for all and executes all.
    let found = projected("baseline", &Workload::writes(1), &[]);
    assert!(near(found.peak, 1e6 / (1.0 + 9.0 + 2.0 + 4.0)), "{found:?}");
    assert_eq!(found.bottleneck, "a whole node (n0)");
}

#[test]
fn reads_ask_a_row_and_one_replica_and_no_leader() {
    let found = projected("compartmentalized", &reads(1.0), &[]);
    assert!(near(found.peak, 1e6), "{found:?}");
    assert_eq!(found.bottleneck, "acceptor");
    assert!(!found.roles.contains_key("leader"));
    let eventual = Workload {
        read_level: ReadLevel::Eventual,
        ..reads(1.0)
    };
    let found = projected("compartmentalized", &eventual, &[]);
    assert!(near(found.peak, 1e6 / 0.5), "{found:?}");
    assert_eq!(found.bottleneck, "replica");
}

#[test]
fn mixed_workloads_add_up() {
    // A quarter writes: 0.25 x 4 and 0.75 x 2 / 4 at each replica.
    let found = projected("compartmentalized", &reads(0.75), &[]);
    assert!(
        near(found.peak, 1e6 / (0.25 * 4.0 + 0.75 * 0.5)),
        "{found:?}"
    );
    assert!(
        near(found.roles["acceptor"], 0.25 * 1.0 + 0.75 * 1.0),
        "{found:?}"
    );
}

#[test]
fn batches_spare_all_roles_but_replicas() {
    let found = projected("batched", &Workload::writes(100), &[]);
    assert_eq!(found.bottleneck, "replica", "{found:?}");
    assert!(near(found.roles["leader"], 0.1) && near(found.roles["batcher"], 0.25));
    // One of three proposes, two of three vote; that one of 40 batches is left over shows.
    for (role, us) in [("proxy_leader", 0.3), ("acceptor", 0.2 * 2.0 / 3.0)] {
        assert!(
            (found.roles[role] / us - 1.0).abs() < 0.06,
            "{role}: {found:?}"
        );
    }
}

#[test]
fn leaders_of_mencius_share_the_writes() {
    let found = projected("mencius-compartmentalized", &Workload::writes(1), &[]);
    assert!(near(found.peak, 1e6 / 4.0), "{found:?}");
    let expected = [
        ("leader", 1.0 / 3.0),
        ("proxy_leader", 0.9),
        ("acceptor", 1.0),
    ];
    for (role, us) in expected {
        assert!(near(found.roles[role], us), "{role}: {found:?}");
    }
    // Every node leads and proposes a third, votes for two thirds and executes all.
    let found = projected("mencius", &Workload::writes(1), &[]);
    let us = (1.0 + 9.0 + 2.0 * 2.0) / 3.0 + 4.0;
    assert!(near(found.peak, 1e6 / us), "{found:?}");
}

#[test]
fn payloads_of_s_paxos_go_round_the_leader() {
    // A column of two stores a payload, and one of the six hands it to the four replicas.
    let found = projected("spaxos-compartmentalized", &Workload::writes(1), &[]);
    assert!(
        near(found.peak, 1e6 / 4.0) && found.bottleneck == "replica",
        "{found:?}"
    );
    let expected = [
        ("disseminator", 7.0 / 3.0),
        ("stabilizer", 1.0 / 3.0 + 5.0 / 6.0),
        ("leader", 1.0),
        ("proxy_leader", 0.9),
    ];
    for (role, us) in expected {
        assert!(near(found.roles[role], us), "{role}: {found:?}");
    }
}

#[test]
fn the_server_alone() {
    let found = projected("unreplicated", &Workload::writes(1), &[]);
    assert!(near(found.peak, 1e6 / 5.0), "{found:?}");
}
