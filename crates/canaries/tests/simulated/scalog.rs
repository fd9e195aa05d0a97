//! The canaries of Scalog that it takes a cluster to show.

use crate::suite::{AMNESIA, preset};
use ionian_canaries::scalog::Scalog;
use ionian_sim::{Durability, Failure, FailureKind};

fn found(name: &str, durability: Durability, seeds: u64) -> Failure {
    crate::catches::<Scalog>(name, preset::<Scalog>("scalog"), durability, seeds)
}

/// Some check of safety fails: which one depends on the seed.
fn catches(name: &str, durability: Durability, seeds: u64) {
    let failure = found(name, durability, seeds);
    assert_ne!(failure.kind, FailureKind::Liveness, "{failure}");
}

#[test]
fn s5_what_one_server_holds_is_ordered() {
    catches("s5", Durability::Disk, 60);
}

#[test]
fn g2_records_that_are_not_on_disk_are_reported() {
    catches("unfenced", Durability::Disk, 600);
}

#[test]
fn g3_records_behind_a_gap_are_counted() {
    catches("gap", Durability::Disk, 60);
}

#[test]
fn g4_a_cut_goes_back() {
    catches("raw-cut", Durability::Disk, 200);
}

#[test]
fn g7_a_server_without_memory_goes_on_in_its_generation() {
    catches("old-life", AMNESIA, 100);
}

#[test]
fn g8_a_server_takes_part_again_in_a_generation_that_it_has_left() {
    catches("comes-back", Durability::Disk, 400);
}

/// Replicas wait for records that no server has, or another check fails.
#[test]
fn g8_reports_of_a_generation_that_is_over_count() {
    found("other-generation", Durability::Disk, 200);
}

/// Replicas wait for records that no server has.
#[test]
fn g22_a_generation_is_forgotten_before_replicas_keep_it() {
    found("forgets-early", Durability::Disk, 600);
}
