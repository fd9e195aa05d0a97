//! The canaries of Mencius, and some of the roles that it shares.

use crate::suite::{self, MEMORY, together};
use ionian_canaries::mencius::{Mencius, kind};
use ionian_kernel::layout::Places;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::{Durability, Failure, FailureKind, Scenario, variations};

fn apart(counts: &[usize]) -> Scenario {
    suite::apart::<Mencius>("apart", counts, QuorumSpec::Majority)
}

/// Three servers without the roles that a request can do without.
fn three_plain() -> Scenario {
    let mut scenario = together::<Mencius>("three", 1);
    for kind in [kind::Batcher, kind::ReadBatcher, kind::Unbatcher] {
        scenario.layout.instances[usize::from(kind)] = Places::default();
    }
    scenario
}

fn catches(name: &str, scenario: Scenario, durability: Durability, seeds: u64) -> Failure {
    crate::catches::<Mencius>(name, scenario, durability, seeds)
}

fn play(text: &str, scenario: &Scenario, name: &str) {
    crate::play::<Mencius>(text, scenario, name);
}

#[test]
fn s3_wrong_stripes() {
    catches("s3", together::<Mencius>("five", 2), Durability::Disk, 100);
}

#[test]
fn l6_a_range_of_skips_stops_at_what_is_known() {
    let failure = catches("l6", together::<Mencius>("three", 1), Durability::Disk, 100);
    assert!(
        failure.message.contains("a replica knows of it up to"),
        "{failure}"
    );
}

#[test]
fn leaders_that_are_behind_never_skip() {
    catches("never-skips", together::<Mencius>("three", 1), MEMORY, 100);
}

#[test]
fn commands_that_overtake_the_unknown() {
    let mut scenario = together::<Mencius>("three", 1);
    scenario.layout.options.own.insert("out_of_order", 1);
    let failure = catches("commutes", scenario, Durability::Disk, 100);
    assert!(matches!(failure.kind, FailureKind::Divergence), "{failure}");
}

/// Three servers, of which the members change.
fn changing() -> Scenario {
    let mut scenario = suite::preset::<Mencius>("mencius");
    scenario.changes = variations(crate::simulated::<Mencius>(), &scenario.layout);
    scenario
}

#[test]
fn new_replicas_that_do_not_keep_what_acceptors_of_the_configuration_before_chose() {
    catches("keeps-nothing", changing(), Durability::Disk, 300);
}

#[test]
fn the_frontier_of_the_log_taken_for_a_position() {
    catches("positions", changing(), Durability::Disk, 100);
}

/// The shared roles' repair of a slot, of which MultiPaxos's test says why seeds did not find the
/// defect.
#[test]
fn a_forgotten_slot_is_not_repaired_with_an_old_vote() {
    for durability in [Durability::Disk, MEMORY] {
        let mut scenario = apart(&[2, 0, 0, 3, 2, 3, 3, 0]);
        scenario.layout.options.snapshot_slots = 1;
        scenario.durability = durability;
        play(
            include_str!("../../../sim/tests/plays/mencius_repair_of_a_forgotten_slot.play"),
            &scenario,
            "repair",
        );
    }
}

/// Clients are served by those that stand in: only who asks each leader sees it.
#[test]
fn leaders_that_never_take_their_stripe_back_are_found_from_seeds() {
    let failure = catches(
        "stays-away",
        together::<Mencius>("three", 1),
        Durability::Disk,
        100,
    );
    assert!(
        failure.message.contains("is not led by its own leader"),
        "{failure}"
    );
}

#[test]
fn a_leader_takes_its_stripe_back_after_it_was_cut_off() {
    play(
        include_str!("../../../sim/tests/plays/mencius_return.play"),
        &apart(&[3, 0, 0, 3, 2, 3, 2, 0]),
        "returns",
    );
}

/// No seed cuts a leader off from one row of a grid and not from the other for long enough.
#[test]
fn a_leader_that_reaches_a_row_and_no_column_deposes_none() {
    let mut scenario = apart(&[3, 0, 0, 3, 2, 6, 2, 0]);
    scenario.layout.quorums = QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    };
    play(
        include_str!("../../../sim/tests/plays/mencius_row_without_column.play"),
        &scenario,
        "blind",
    );
}

/// Seeds cut links too, but for a short time, and ask only that everything goes on afterwards: how
/// long commands take while a link is broken no random run says.
#[test]
fn a_broken_link_between_two_servers_delays_no_command_for_long() {
    play(
        include_str!("../../../sim/tests/plays/mencius_broken_link.play"),
        &three_plain(),
        "passes-on",
    );
}

/// Seeds cut links one way too, but asked for answers only when all was healed.
#[test]
fn a_server_that_hears_no_other_does_not_hold_up_the_log() {
    play(
        include_str!("../../../sim/tests/plays/mencius_deaf.play"),
        &three_plain(),
        "idle",
    );
}

#[test]
fn figure_2_suggest_skip_revoke() {
    play(
        include_str!("../../../sim/tests/plays/mencius_figure_2.play"),
        &three_plain(),
        "never-skips",
    );
}

/// Commands that do not commute wait, whatever the deployment says; those that do wait if it does
/// not say otherwise.
#[test]
fn figure_3_delayed_commit() {
    let text = include_str!("../../../sim/tests/plays/mencius_figure_3.play");
    let (mut in_order, mut out_of_order) = (three_plain(), three_plain());
    in_order.layout.options.own.insert("out_of_order", 0);
    out_of_order.layout.options.own.insert("out_of_order", 1);
    play(text, &out_of_order, "never-skips");
    play(
        &text.replace("c1 set x", "c1 set y"),
        &in_order,
        "never-skips",
    );
}

#[test]
fn a_new_leader_waits_for_its_stripe() {
    let text =
        include_str!("../../../sim/tests/plays/mencius_new_leader_waits_for_its_stripe.play");
    play(text, &crate::cluster::<Mencius>(text), "roams");
}

#[test]
fn new_acceptors_wait_for_replicas() {
    let text =
        include_str!("../../../sim/tests/plays/mencius_new_acceptors_wait_for_replicas.play");
    play(text, &crate::cluster::<Mencius>(text), "far-replicas");
}
