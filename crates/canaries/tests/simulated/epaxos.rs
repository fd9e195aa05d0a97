//! The canaries of EPaxos that it takes a cluster to show.

use crate::suite::{AMNESIA, MEMORY, preset};
use ionian_canaries::epaxos::EPaxos;
use ionian_sim::{Durability, FailureKind};

/// Some check of safety fails: which one depends on the seed.
fn catches_in(preset_name: &str, name: &str, durability: Durability, seeds: u64) {
    let scenario = preset::<EPaxos>(preset_name);
    let failure = crate::catches::<EPaxos>(name, scenario, durability, seeds);
    assert_ne!(failure.kind, FailureKind::Liveness, "{failure}");
}

fn catches(name: &str, durability: Durability, seeds: u64) {
    catches_in("epaxos", name, durability, seeds);
}

#[test]
fn s4_a_promise_that_makes_an_old_vote_look_young_loses_a_decision() {
    let text = include_str!("../../../sim/tests/plays/epaxos_published_flaw.play");
    let error = crate::play::<EPaxos>(text, &crate::cluster::<EPaxos>(text), "s4");
    assert!(error.message.contains("is decided twice"), "{error}");
}

#[test]
fn a_leader_that_hands_over_what_a_minority_recorded() {
    catches_in("epaxos-compartmentalized", "hands-over-early", MEMORY, 40);
}

#[test]
fn a_recovery_that_counts_one_that_has_not_recorded_the_command() {
    catches("no-case-5", Durability::Disk, 20);
}

#[test]
fn an_index_of_the_latest_command_only() {
    catches("latest-only", AMNESIA, 20);
}

#[test]
fn an_index_in_which_what_is_absent_takes_a_place() {
    catches("absent-prunes", MEMORY, 20);
}

#[test]
fn an_index_that_takes_an_open_writer_for_a_way_to_the_barrier() {
    catches("behind-barriers", AMNESIA, 20);
}

#[test]
fn an_index_that_forgets_what_replicas_keep() {
    catches("forgets-named", Durability::Disk, 30);
}

/// What the play `epaxos_read_of_two_keys` shows, whose messages are others without an instance.
#[test]
fn a_read_of_two_keys_without_an_instance() {
    catches("pairs-apart", MEMORY, 2000);
}

#[test]
fn a_read_of_a_minority() {
    catches("minority", MEMORY, 60);
}

#[test]
fn execution_without_order() {
    catches("no-order", Durability::Disk, 20);
}

#[test]
fn an_acceptor_that_does_not_know_that_it_forgot() {
    catches("amnesia", AMNESIA, 30);
}

#[test]
fn a_node_on_an_empty_disk_that_begins_a_former_life() {
    catches("former-lives", Durability::Disk, 60);
}

#[test]
fn an_index_that_takes_the_first_number_for_none() {
    catches("no-zero", MEMORY, 20);
}
