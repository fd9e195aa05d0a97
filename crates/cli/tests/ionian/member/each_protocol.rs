//! What changes of members are like with each protocol that has them.

use super::{
    Cluster, Signal, abandons_or_finishes_a_change_that_waits_for_a_node, done, eventually,
    free_port, member, replaces_a_killed_node_and_starts_again_without_it,
    serves_while_new_nodes_are_missing,
};

/// A node is added whose address is wrong. The others tolerate a failure as before, and then the
/// change can be abandoned.
fn tolerates_a_failure_beside_a_wrong_address(preset: &str) {
    let cluster = Cluster::start(preset, &["durability=disk"], &["--no-restart"]);
    let address = format!("localhost:{}", free_port());
    let roles = ["--roles", "acceptor,replica", "--no-wait"];
    let add = [&["add", "n3", "--address", &address][..], &roles].concat();
    assert_eq!(done(&member(&cluster, &add)), "epoch 1 begins\n");
    // A leader that were to begin a round of both configurations would do so with a heartbeat.
    let mut client = cluster.client(0);
    for number in 0..100 {
        client.set("k", &number.to_string());
    }
    let status = cluster.status();
    assert_eq!(status["failure_tolerance"], 1, "{status}");
    cluster.signal(2, Signal::SIGKILL);
    eventually("it is gone", || cluster.pid(2).is_none().then_some(()));
    client.set("k", "v");
    let abandoned = done(&member(&cluster, &["abandon"]));
    assert!(abandoned.starts_with("epoch 2 begins"), "{abandoned}");
    client.set("k", "w");
}

#[test]
fn a_killed_node_of_multipaxos_is_replaced_under_load() {
    replaces_a_killed_node_and_starts_again_without_it("colocated");
}

#[test]
fn a_killed_node_of_mencius_is_replaced_under_load() {
    replaces_a_killed_node_and_starts_again_without_it("mencius");
}

#[test]
fn a_killed_node_of_spaxos_is_replaced_under_load() {
    replaces_a_killed_node_and_starts_again_without_it("spaxos");
}

/// Its disk is lost.
#[test]
fn a_killed_node_of_craq_is_replaced_under_load() {
    replaces_a_killed_node_and_starts_again_without_it("craq");
}

#[test]
fn a_change_of_multipaxos_that_waits_for_a_node_can_be_abandoned_or_finished() {
    abandons_or_finishes_a_change_that_waits_for_a_node("colocated");
}

#[test]
fn a_change_of_mencius_that_waits_for_a_node_can_be_abandoned_or_finished() {
    abandons_or_finishes_a_change_that_waits_for_a_node("mencius");
}

#[test]
fn a_change_of_spaxos_that_waits_for_a_node_can_be_abandoned_or_finished() {
    abandons_or_finishes_a_change_that_waits_for_a_node("spaxos");
}

#[test]
fn status_reports_a_serving_multipaxos_cluster_while_new_nodes_are_missing() {
    serves_while_new_nodes_are_missing("colocated");
}

#[test]
fn status_reports_a_serving_mencius_cluster_while_new_nodes_are_missing() {
    serves_while_new_nodes_are_missing("mencius");
}

#[test]
fn status_reports_a_serving_spaxos_cluster_while_new_nodes_are_missing() {
    serves_while_new_nodes_are_missing("spaxos");
}

#[test]
fn a_wrong_address_takes_no_tolerance_from_multipaxos() {
    tolerates_a_failure_beside_a_wrong_address("colocated");
}

#[test]
fn a_wrong_address_takes_no_tolerance_from_mencius() {
    tolerates_a_failure_beside_a_wrong_address("mencius");
}

#[test]
fn a_wrong_address_takes_no_tolerance_from_spaxos() {
    tolerates_a_failure_beside_a_wrong_address("spaxos");
}
