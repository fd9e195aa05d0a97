//! The canaries of MultiPaxos.

use crate::suite::{AMNESIA, MEMORY, apart, preset, together};
use ionian_canaries::multipaxos::MultiPaxos;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::{Durability, Failure, FailureKind, Scenario, variations};

fn grid() -> Scenario {
    let quorums = QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    };
    apart::<MultiPaxos>("grid", &[2, 2, 2, 2, 2, 6, 3, 2], quorums)
}

fn catches(name: &str, scenario: Scenario, durability: Durability, seeds: u64) -> Failure {
    crate::catches::<MultiPaxos>(name, scenario, durability, seeds)
}

fn play(text: &str, scenario: &Scenario, name: &str) {
    crate::play::<MultiPaxos>(text, scenario, name);
}

#[test]
fn s1_grid_leader_change() {
    catches("s1", grid(), MEMORY, 400);
    catches(
        "s1",
        together::<MultiPaxos>("three", 1),
        Durability::Disk,
        200,
    );
}

#[test]
fn s2_next_slot_falls_back() {
    catches("s2", together::<MultiPaxos>("three", 1), AMNESIA, 200);
}

#[test]
fn s8_watermark_lost() {
    catches(
        "s8",
        together::<MultiPaxos>("three", 1),
        Durability::Disk,
        200,
    );
}

#[test]
fn a_vote_that_is_not_on_disk_is_not_revealed() {
    let text = include_str!("../../../sim/tests/plays/vote_before_disk.play");
    play(text, &crate::cluster::<MultiPaxos>(text), "unfenced");
}

#[test]
fn snapshots_without_sessions() {
    let failure = catches(
        "sessions",
        together::<MultiPaxos>("three", 1),
        Durability::Disk,
        400,
    );
    // One replica executes a command again: seen as such, or by the replicas that do not.
    assert!(
        matches!(
            failure.kind,
            FailureKind::ExactlyOnce | FailureKind::Divergence
        ),
        "{failure}"
    );
}

#[test]
fn acceptors_without_memory() {
    catches("amnesia", together::<MultiPaxos>("three", 1), AMNESIA, 400);
}

/// Clients are served by the others: only who asks each node sees it.
#[test]
fn acceptors_that_are_shut_out() {
    let failure = catches(
        "shuts-out",
        together::<MultiPaxos>("three", 1),
        AMNESIA,
        100,
    );
    assert!(failure.message.contains(" has forgotten=1"), "{failure}");
}

#[test]
fn l1_hole_timer_fires_once() {
    catches("l1", together::<MultiPaxos>("three", 1), MEMORY, 200);
}

#[test]
fn l8_always_thrifty() {
    catches("l8", together::<MultiPaxos>("three", 1), MEMORY, 200);
}

#[test]
fn l9_part_batch_waits() {
    catches("l9", preset::<MultiPaxos>("batched"), Durability::Disk, 200);
}

#[test]
fn l10_deposed_leader_drops() {
    catches(
        "l10",
        preset::<MultiPaxos>("batched"),
        Durability::Disk,
        200,
    );
}

#[test]
fn l5_voted_never_chosen() {
    let scenario = apart::<MultiPaxos>("apart", &[2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(
        include_str!("../../../sim/tests/plays/l5_voted_never_chosen.play"),
        &scenario,
        "l5",
    );
}

#[test]
fn a_forgotten_slot_is_not_repaired_with_an_old_vote() {
    for durability in [Durability::Disk, MEMORY] {
        let mut scenario =
            apart::<MultiPaxos>("apart", &[2, 0, 0, 2, 2, 3, 3, 0], QuorumSpec::Majority);
        scenario.layout.options.snapshot_slots = 1;
        scenario.durability = durability;
        play(
            include_str!("../../../sim/tests/plays/repair_of_a_forgotten_slot.play"),
            &scenario,
            "repair",
        );
    }
}

/// Seeds cut nodes into two sides, and ask for answers when all is healed: a cut in which one node
/// alone reaches a majority never came about.
#[test]
fn a_leader_that_reaches_no_quorum_leaves_the_hub_to_lead() {
    play(
        include_str!("../../../sim/tests/plays/hub.play"),
        &together::<MultiPaxos>("five", 2),
        "alone",
    );
}

/// Seeds cut links one way too, but asked for answers only when all was healed, until one node
/// stayed deaf.
#[test]
fn an_idle_leader_without_a_quorum_stops() {
    play(
        include_str!("../../../sim/tests/plays/deaf.play"),
        &together::<MultiPaxos>("three", 1),
        "idle",
    );
}

/// No seed breaks single links for good: when all is healed the acceptor tells the leader itself.
#[test]
fn a_leader_is_told_of_a_higher_round_by_proxy_leaders_too() {
    let scenario = apart::<MultiPaxos>("apart", &[2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(
        include_str!("../../../sim/tests/plays/refused.play"),
        &scenario,
        "drops",
    );
}

/// As above.
#[test]
fn a_leader_without_proxy_leaders_or_replicas_stops() {
    let mut scenario =
        apart::<MultiPaxos>("apart", &[2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    scenario.layout.options.window_slots = 2;
    play(
        include_str!("../../../sim/tests/plays/no_helpers.play"),
        &scenario,
        "helpers",
    );
}

/// Seeds asked no more than that every client is served before a minute has passed; where one node
/// of many is deaf for good, most commands do not meet it. Ten thousand seeds of larger shapes,
/// whose clients have little patience, found it.
#[test]
fn a_proxy_leader_that_is_heard_and_does_nothing_is_given_nothing() {
    let scenario = apart::<MultiPaxos>("apart", &[2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(
        include_str!("../../../sim/tests/plays/deaf_proxy.play"),
        &scenario,
        "heard",
    );
}

#[test]
fn a_configuration_applied_at_once_is_caught() {
    let mut scenario = preset::<MultiPaxos>("colocated");
    scenario.changes = variations(crate::simulated::<MultiPaxos>(), &scenario.layout);
    catches("at-once", scenario, Durability::Disk, 1000);
}

#[test]
fn no_message_is_of_a_later_level_than_the_cluster_has() {
    let mut scenario = preset::<MultiPaxos>("colocated");
    scenario.changes = variations(crate::simulated::<MultiPaxos>(), &scenario.layout);
    let failure = catches("marks", scenario, Durability::Disk, 400);
    assert!(
        failure.message.contains("of level 18, is sent at level 17"),
        "{failure}"
    );
}

#[test]
fn a_leader_that_missed_a_change_asks_the_acceptors_of_the_next() {
    let text = include_str!("../../../sim/tests/plays/leader_that_slept_through_a_change.play");
    play(text, &crate::cluster::<MultiPaxos>(text), "unasked");
}

#[test]
fn a_new_member_with_a_wrong_address_takes_no_tolerance_away() {
    let text = include_str!("../../../sim/tests/plays/new_member_with_a_wrong_address.play");
    play(text, &crate::cluster::<MultiPaxos>(text), "unmet");
}

#[test]
fn a_new_acceptor_leaves_the_leader_before_alone() {
    let text =
        include_str!("../../../sim/tests/plays/new_acceptor_leaves_the_leader_before_alone.play");
    play(text, &crate::cluster::<MultiPaxos>(text), "meddles");
}

#[test]
fn an_acceptor_without_memory_asks_for_no_round_of_both_configurations() {
    let text = include_str!(
        "../../../sim/tests/plays/acceptor_without_memory_asks_for_no_joint_round.play"
    );
    play(
        text,
        &crate::cluster::<MultiPaxos>(text),
        "unasked-admission",
    );
}

#[test]
fn new_acceptors_that_restart_have_lost_nothing() {
    let text =
        include_str!("../../../sim/tests/plays/new_acceptors_restart_before_they_have_a_part.play");
    play(text, &crate::cluster::<MultiPaxos>(text), "never-had");
}
