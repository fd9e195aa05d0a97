//! What changes of members are like with each protocol that has them.

use super::{
    abandons_or_finishes_a_change_that_waits_for_a_node,
    replaces_a_killed_node_and_starts_again_without_it, serves_while_new_nodes_are_missing,
};

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
