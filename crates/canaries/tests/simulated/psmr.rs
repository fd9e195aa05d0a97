//! The canaries of P-SMR that it takes a cluster to show.

use crate::suite::{MEMORY, preset};
use ionian_canaries::psmr::PSmr;
use ionian_sim::FailureKind;

/// Some check of safety fails: which one depends on the seed.
fn catches(name: &str, seeds: u64) {
    let failure = crate::catches::<PSmr>(name, preset::<PSmr>("p-smr"), MEMORY, seeds);
    assert_ne!(failure.kind, FailureKind::Liveness, "{failure}");
}

#[test]
fn m5_what_spans_is_executed_up_to_the_lowest_marker() {
    catches("largest", 600);
}

#[test]
fn m5_what_spans_waits_for_all_workers() {
    catches("early", 60);
}

#[test]
fn m19_a_command_on_two_keys_spans_their_groups() {
    catches("first-key", 60);
}
