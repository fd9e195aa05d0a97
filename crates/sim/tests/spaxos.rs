//! S-Paxos in every shape of deployment under every kind of fault, and the proof that the tests
//! would notice.

mod suite;

use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::machine::Lists;
use ionian_sim::play::{Play, PlayError};
use ionian_sim::{Durability, Failure, FailureKind, Scenario};
use suite::{AMNESIA, MEMORY};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 100;

fn preset(name: &str) -> Scenario {
    suite::preset::<SPaxos>(name)
}

/// Each instance on a node of its own.
fn apart(name: &str, f: usize, counts: [u16; 10], quorums: QuorumSpec) -> Scenario {
    let mut next = (0..).map(NodeId);
    let instances = counts
        .iter()
        .map(|count| next.by_ref().take(usize::from(*count)).collect())
        .collect();
    Scenario::new(
        name,
        Layout {
            f,
            quorums,
            instances: numbered(instances),
            ..Layout::default()
        },
    )
}

/// 2f+1 nodes with every role on each, batchers too.
fn together(name: &str, f: usize) -> Scenario {
    let nodes: Vec<NodeId> = (0..2 * f as u16 + 1).map(NodeId).collect();
    Scenario::new(
        name,
        Layout {
            f,
            instances: numbered(vec![nodes; 10]),
            ..Layout::default()
        },
    )
}

fn passes(scenario: Scenario) {
    suite::passes::<SPaxos>(scenario, SEEDS);
}

#[test]
fn as_published_passes() {
    passes(preset("spaxos"));
}

#[test]
fn compartmentalized_passes() {
    passes(preset("spaxos-compartmentalized"));
}

#[test]
fn batched_passes() {
    passes(preset("spaxos-batched"));
}

#[test]
fn a_batched_grid_passes() {
    passes(apart(
        "grid",
        1,
        [2, 2, 2, 2, 2, 2, 6, 6, 3, 2],
        QuorumSpec::Grid {
            rows: 2,
            columns: 3,
        },
    ));
}

#[test]
fn two_failures_pass() {
    passes(together("five", 2));
}

#[test]
fn one_node_passes() {
    passes(together("one", 0));
}

#[test]
fn each_read_level_passes_alone() {
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Sequential,
        ReadLevel::Eventual,
    ] {
        passes(Scenario {
            read_levels: vec![level],
            ..preset("spaxos")
        });
    }
}

/// The limits of a payload's life are reached all the time where the leader's window is one slot.
fn short_lived() -> Scenario {
    let mut scenario = preset("spaxos");
    scenario.layout.options.window_slots = 1;
    scenario
}

#[test]
fn short_lived_payloads_pass() {
    passes(short_lived());
}

fn catches(
    canary: &'static str,
    scenario: Scenario,
    durability: Durability,
    seeds: u64,
) -> Failure {
    suite::catches::<SPaxos>(canary, scenario, durability, seeds)
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

/// A payload that no disk holds is noticed when its slot is chosen; or later, when all that held it
/// in memory have crashed: then no replica gets past its slot.
#[test]
fn unfenced_acknowledgements() {
    let failure = catches("unfenced", preset("spaxos"), Durability::Disk, 400);
    if failure.kind != FailureKind::Liveness {
        is_caught_as(&failure, "is held by");
    }
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
fn void_payloads_delivered() {
    is_caught_as(
        &catches("void", short_lived(), Durability::Disk, 400),
        "that was not chosen",
    );
}

#[test]
fn stabilizers_without_memory() {
    is_caught_as(
        &catches("amnesia", preset("spaxos"), AMNESIA, 400),
        "is held by 1 stabilizers, and 0 have lost",
    );
}

/// What a play says happens; how it fails with the canary.
fn play(text: &str, scenario: &Scenario, canary: &'static str) -> PlayError {
    let play = Play::parse(text).expect("a play");
    play.run::<SPaxos>(scenario, Lists::new(3))
        .expect("the sound protocol does as the play says");
    let mut broken = scenario.clone();
    broken.layout.canary = Some(canary);
    play.run::<SPaxos>(&broken, Lists::new(3))
        .expect_err("the play catches the canary")
}

#[test]
fn defects_of_the_shared_roles_show_here_too() {
    catches("promise", preset("spaxos"), Durability::Disk, 1000);
}

/// So rare that the simulator does not come across it in 20,000 seeds; the play catches the canary.
#[test]
fn acknowledgements_of_a_former_life() {
    let failure = play(
        include_str!("plays/lost_acknowledgement.play"),
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
    let text = include_str!("plays/lost_acknowledgements_in_turn.play");
    let failure = play(text, &without_disks(), "others-lives");
    assert!(failure.message.contains("is held by"), "{failure}");
}

fn without_disks() -> Scenario {
    let layout = apart(
        "apart",
        1,
        [1, 0, 2, 0, 2, 2, 3, 3, 2, 0],
        QuorumSpec::Majority,
    );
    Scenario {
        durability: AMNESIA,
        ..layout
    }
}

/// The shared roles' repair of a slot, of which MultiPaxos's test says why seeds did not find the
/// defect.
#[test]
fn a_forgotten_slot_is_not_repaired_with_an_old_vote() {
    for durability in [Durability::Disk, MEMORY] {
        let mut scenario = apart(
            "apart",
            1,
            [2, 0, 2, 0, 2, 2, 3, 3, 3, 0],
            QuorumSpec::Majority,
        );
        scenario.layout.options.snapshot_slots = 1;
        scenario.durability = durability;
        play(
            include_str!("plays/spaxos_repair_of_a_forgotten_slot.play"),
            &scenario,
            "repair",
        );
    }
}
