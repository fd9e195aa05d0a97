//! The canaries of EPaxos that it takes a cluster to show.

use crate::suite::{AMNESIA, MEMORY, preset};
use ionian_canaries::epaxos::EPaxos;
use ionian_sim::{Durability, FailureKind};

fn catches(name: &str, durability: Durability, seeds: u64, kind: FailureKind) {
    let scenario = preset::<EPaxos>("epaxos");
    let failure = crate::catches::<EPaxos>(name, scenario, durability, seeds);
    assert_eq!(failure.kind, kind, "{failure}");
}

#[test]
fn a_leader_that_hands_over_what_a_minority_recorded() {
    let scenario = preset::<EPaxos>("epaxos-compartmentalized");
    let failure = crate::catches::<EPaxos>("hands-over-early", scenario, MEMORY, 40);
    assert_eq!(failure.kind, FailureKind::Invariant, "{failure}");
}

#[test]
fn a_recovery_that_counts_one_that_has_not_recorded_the_command() {
    catches("no-case-5", Durability::Disk, 20, FailureKind::Invariant);
}

#[test]
fn an_index_of_the_latest_command_only() {
    catches("latest-only", AMNESIA, 20, FailureKind::Divergence);
}

#[test]
fn an_index_in_which_what_is_absent_takes_a_place() {
    catches("absent-prunes", MEMORY, 20, FailureKind::Invariant);
}

#[test]
fn an_index_that_takes_an_open_writer_for_a_way_to_the_barrier() {
    catches("behind-barriers", AMNESIA, 20, FailureKind::Invariant);
}

#[test]
fn an_index_that_forgets_what_replicas_keep() {
    catches(
        "forgets-named",
        Durability::Disk,
        30,
        FailureKind::Invariant,
    );
}

#[test]
fn a_read_of_a_minority() {
    catches("minority", MEMORY, 60, FailureKind::Linearizability);
}

#[test]
fn execution_without_order() {
    catches("no-order", Durability::Disk, 20, FailureKind::Divergence);
}

#[test]
fn an_acceptor_that_does_not_know_that_it_forgot() {
    catches("amnesia", AMNESIA, 30, FailureKind::Invariant);
}

#[test]
fn an_index_that_takes_the_first_number_for_none() {
    catches("no-zero", MEMORY, 20, FailureKind::Invariant);
}
