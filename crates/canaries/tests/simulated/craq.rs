//! The canaries of CRAQ that it takes a cluster to show.

use crate::suite::{MEMORY, preset};
use ionian_canaries::craq::Craq;
use ionian_sim::{Durability, FailureKind};

/// Some check of safety fails: which one depends on the seed.
fn catches(name: &str, durability: Durability, seeds: u64) {
    let failure = crate::catches::<Craq>(name, preset::<Craq>("craq"), durability, seeds);
    assert_ne!(failure.kind, FailureKind::Liveness, "{failure}");
}

#[test]
fn s6_writes_sent_again() {
    catches("s6", MEMORY, 60);
}

#[test]
fn c2_removed_nodes_answer() {
    catches("unconfirmed", Durability::Disk, 4000);
}
