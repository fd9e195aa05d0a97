//! The canaries of EPaxos that it takes a cluster to show.

use crate::suite::{AMNESIA, MEMORY, preset};
use ionian_canaries::epaxos::EPaxos;
use ionian_sim::{Durability, Failure, FailureKind};

fn catches(name: &str, durability: Durability, seeds: u64) -> Failure {
    crate::catches::<EPaxos>(name, preset::<EPaxos>("epaxos"), durability, seeds)
}

#[test]
fn a_recovery_that_counts_one_that_has_not_recorded_the_command() {
    let failure = catches("no-case-5", Durability::Disk, 20);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn an_index_of_the_latest_command_only() {
    let failure = catches("latest-only", AMNESIA, 20);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn an_index_in_which_what_is_absent_takes_a_place() {
    let failure = catches("absent-prunes", MEMORY, 20);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn an_index_that_takes_an_open_writer_for_a_way_to_the_barrier() {
    let failure = catches("behind-barriers", AMNESIA, 20);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn an_index_that_forgets_what_replicas_keep() {
    let failure = catches("forgets-named", Durability::Disk, 30);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn a_read_of_a_minority() {
    let failure = catches("minority", MEMORY, 60);
    let kind = FailureKind::Linearizability;
    assert!(failure.kind == kind, "{failure}");
}

#[test]
fn execution_without_order() {
    let failure = catches("no-order", Durability::Disk, 20);
    assert!(matches!(failure.kind, FailureKind::Divergence), "{failure}");
}

#[test]
fn an_acceptor_that_does_not_know_that_it_forgot() {
    let failure = catches("amnesia", AMNESIA, 30);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

#[test]
fn an_index_that_takes_the_first_number_for_none() {
    let failure = catches("no-zero", MEMORY, 20);
    assert!(matches!(failure.kind, FailureKind::Invariant), "{failure}");
}

/// A recovery that does not hear from the leader's acceptor decides with fewer dependencies.
#[test]
fn a_leader_that_keeps_the_past_to_itself() {
    catches("no-past", Durability::Disk, 20);
}
