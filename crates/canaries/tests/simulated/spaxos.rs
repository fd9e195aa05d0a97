//! The canaries of S-Paxos, and some of the roles that it shares.

use crate::suite::{self, AMNESIA, MEMORY, apart};
use ionian_canaries::spaxos::SPaxos;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::play::PlayError;
use ionian_sim::{Durability, Failure, FailureKind, Scenario, variations};

fn preset(name: &str) -> Scenario {
    suite::preset::<SPaxos>(name)
}

fn catches(name: &str, scenario: Scenario, durability: Durability, seeds: u64) -> Failure {
    crate::catches::<SPaxos>(name, scenario, durability, seeds)
}

fn play(text: &str, scenario: &Scenario, name: &str) -> PlayError {
    crate::play::<SPaxos>(text, scenario, name)
}

fn is_caught_as(failure: &Failure, what: &str) {
    assert!(
        failure.kind == FailureKind::Invariant && failure.message.contains(what),
        "{failure}"
    );
}

#[test]
fn payloads_proposed_before_they_are_stable() {
    is_caught_as(
        &catches("unstable", preset("spaxos"), Durability::Disk, 100),
        "is held by 1 stabilizers",
    );
}

#[test]
fn payloads_forgotten_before_they_are_kept() {
    is_caught_as(
        &catches("forgets", preset("spaxos-compartmentalized"), MEMORY, 100),
        "is held by",
    );
}

#[test]
fn payloads_given_two_slots() {
    is_caught_as(
        &catches("twice", preset("spaxos"), Durability::Disk, 100),
        "was given two slots",
    );
}

#[test]
fn stabilizers_without_memory() {
    is_caught_as(
        &catches("amnesia", preset("spaxos"), AMNESIA, 400),
        "is held by 1 stabilizers, and 0 have lost",
    );
}

/// So rare that the simulator does not come across it in 20,000 seeds; the play catches the canary.
#[test]
fn acknowledgements_of_a_former_life() {
    let failure = play(
        include_str!("../../../sim/tests/plays/lost_acknowledgement.play"),
        &without_disks(),
        "lives",
    );
    assert!(
        failure
            .message
            .contains("is held by 0 stabilizers, and 1 have lost their memory"),
        "{failure}"
    );
}

/// The simulator used to crash f different nodes in a run without disks, and so no two stabilizers
/// in turn; and the watcher of all roles counted a stabilizer twice that lost its memory and then
/// took the payload in.
#[test]
fn acknowledgements_of_a_former_life_when_memories_are_lost_in_turn() {
    let text = include_str!("../../../sim/tests/plays/lost_acknowledgements_in_turn.play");
    let failure = play(text, &without_disks(), "others-lives");
    assert!(failure.message.contains("is held by"), "{failure}");
}

fn without_disks() -> Scenario {
    let layout = apart::<SPaxos>(
        "apart",
        &[1, 0, 2, 0, 2, 2, 3, 3, 2, 0],
        QuorumSpec::Majority,
    );
    Scenario {
        durability: AMNESIA,
        ..layout
    }
}

fn that_changes() -> Scenario {
    let mut scenario = preset("spaxos");
    scenario.changes = variations(crate::simulated::<SPaxos>(), &scenario.layout);
    scenario
}

#[test]
fn payloads_of_a_joint_round_that_one_side_stores() {
    is_caught_as(
        &catches("one-side", that_changes(), Durability::Disk, 400),
        "is held by",
    );
}

/// It takes a vote of which no leader hears until the change is over, for a payload of an earlier
/// epoch: random runs come across it too rarely.
#[test]
fn a_payload_that_those_who_leave_alone_store_is_taken_over() {
    let text = include_str!("../../../sim/tests/plays/spaxos_payload_is_taken_over.play");
    let failure = play(text, &crate::cluster::<SPaxos>(text), "leaves-behind");
    assert!(failure.message.contains("is held by"), "{failure}");
}

/// At no time is more than one stabilizer without its memory: each copies from the others before
/// the next one loses it.
#[test]
fn a_payload_is_taken_over_though_one_memory_after_another_is_lost() {
    let text = include_str!("../../../sim/tests/plays/spaxos_change_without_memory.play");
    let failure = play(text, &crate::cluster::<SPaxos>(text), "amnesia");
    assert_eq!(failure.message, "c1 was told nothing");
}

/// The shared roles' repair of a slot, of which MultiPaxos's test says why seeds did not find the
/// defect.
#[test]
fn a_forgotten_slot_is_not_repaired_with_an_old_vote() {
    for durability in [Durability::Disk, MEMORY] {
        let mut scenario = apart::<SPaxos>(
            "apart",
            &[2, 0, 2, 0, 2, 2, 3, 3, 3, 0],
            QuorumSpec::Majority,
        );
        scenario.layout.options.snapshot_slots = 1;
        scenario.durability = durability;
        play(
            include_str!("../../../sim/tests/plays/spaxos_repair_of_a_forgotten_slot.play"),
            &scenario,
            "repair",
        );
    }
}
