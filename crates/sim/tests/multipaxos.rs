//! MultiPaxos in every shape of deployment under every kind of fault, and the proof that the tests
//! would notice: each canary is a mistake of a published implementation, built in on purpose.

mod suite;

use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::machine::Lists;
use ionian_sim::play::Play;
use ionian_sim::{Canary, Durability, Failure, FailureKind, Scenario, Watch, run_seeds};
use suite::{AMNESIA, MEMORY, preset};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 100;

/// Each instance on a node of its own.
fn apart(name: &str, f: usize, counts: [u16; 8], quorums: QuorumSpec) -> Scenario {
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

/// 2f+1 nodes with every role on each.
fn together(name: &str, f: usize) -> Scenario {
    let nodes: Vec<NodeId> = (0..2 * f as u16 + 1).map(NodeId).collect();
    Scenario::new(
        name,
        Layout {
            f,
            instances: numbered(vec![nodes; 8]),
            ..Layout::default()
        },
    )
}

fn grid() -> Scenario {
    apart(
        "grid",
        1,
        [2, 2, 2, 2, 2, 6, 3, 2],
        QuorumSpec::Grid {
            rows: 2,
            columns: 3,
        },
    )
}

fn passes<P: Protocol>(scenario: Scenario) {
    suite::passes::<P>(scenario, SEEDS);
}

#[test]
fn colocated_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("colocated"));
}

#[test]
fn logs_are_torn_and_truncated() {
    let scenario = together("three", 1);
    let report =
        run_seeds::<MultiPaxos>(&scenario, 0..300, true, |_| Watch::default(), |_| {}).report;
    assert!(
        report.torn_logs > 0 && report.truncated_logs > 30,
        "{report}"
    );
}

#[test]
fn baseline_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("baseline"));
}

#[test]
fn compartmentalized_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("compartmentalized"));
}

#[test]
fn batched_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("batched"));
}

#[test]
fn a_batched_grid_passes() {
    passes::<MultiPaxos>(grid());
}

#[test]
fn acceptor_groups_pass() {
    passes::<MultiPaxos>(apart(
        "groups",
        1,
        [2, 0, 0, 2, 2, 6, 2, 0],
        QuorumSpec::Groups { groups: 2 },
    ));
}

#[test]
fn two_failures_pass() {
    passes::<MultiPaxos>(together("five", 2));
}

#[test]
fn one_node_passes() {
    passes::<MultiPaxos>(together("one", 0));
}

#[test]
fn each_read_level_passes_alone() {
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Sequential,
        ReadLevel::Eventual,
    ] {
        passes::<MultiPaxos>(Scenario {
            read_levels: vec![level],
            ..together("three", 1)
        });
    }
}

#[test]
fn unreplicated_servers_pass() {
    for name in ["unreplicated", "unreplicated-batched"] {
        passes::<Unreplicated>(Scenario {
            stable_log: false,
            ..preset::<Unreplicated>(name)
        });
    }
}

fn catches(
    canary: &'static str,
    scenario: Scenario,
    durability: Durability,
    seeds: u64,
) -> Failure {
    suite::catches::<MultiPaxos>(canary, scenario, durability, seeds)
}

#[test]
fn s1_grid_leader_change() {
    catches("s1", grid(), MEMORY, 400);
    catches("s1", together("three", 1), Durability::Disk, 200);
}

#[test]
fn s2_next_slot_falls_back() {
    catches("s2", together("three", 1), AMNESIA, 200);
}

/// About one seed in five hundred meets it.
#[test]
fn s7_reads_on_a_grid() {
    catches("s7", grid(), Durability::Disk, 1000);
}

#[test]
fn s8_watermark_lost() {
    catches("s8", together("three", 1), Durability::Disk, 200);
}

#[test]
fn unfenced_votes() {
    catches("unfenced", together("three", 1), Durability::Disk, 400);
}

#[test]
fn log_truncated_too_far() {
    catches("truncation", together("three", 1), Durability::Disk, 5000);
}

#[test]
fn snapshots_without_sessions() {
    let failure = catches("sessions", together("three", 1), Durability::Disk, 400);
    // One replica executes a command again: seen as such, or by the replicas that do not.
    assert!(
        matches!(
            failure.kind,
            FailureKind::ExactlyOnce | FailureKind::Divergence
        ),
        "{failure}"
    );
}

/// A defect that the driver builds in is found for what it is.
fn driver_catches(canary: Canary, seeds: u64, expected: FailureKind) -> Failure {
    let broken = Scenario {
        canary,
        ..together("three", 1)
    };
    let found =
        run_seeds::<MultiPaxos>(&broken, 0..seeds, true, |_| Watch::default(), |_| {}).failures;
    let found = found
        .first()
        .unwrap_or_else(|| panic!("{canary:?} was not caught in {seeds} seeds"));
    let failure = found.result.clone().expect_err("was caught");
    assert_eq!(failure.kind, expected, "{failure}");
    failure
}

/// A replica that lets keys expire by its own clock: its reads miss what the log still has.
#[test]
fn reads_ahead_of_the_log() {
    driver_catches(Canary::ReadsAhead, 200, FailureKind::Linearizability);
}

#[test]
fn logs_that_are_not_given_the_time() {
    let failure = driver_catches(Canary::HidesDeadlines, 50, FailureKind::Liveness);
    assert!(
        failure
            .message
            .contains("waits for the log's time to reach"),
        "{failure}"
    );
}

#[test]
fn a_leader_that_believes_its_own_clock() {
    let failure = catches("clock", together("three", 1), Durability::Disk, 400);
    assert!(failure.message.contains("the log's time is"), "{failure}");
}

#[test]
fn forgotten_promises() {
    catches("promise", together("three", 1), Durability::Disk, 400);
}

#[test]
fn acceptors_without_memory() {
    catches("amnesia", together("three", 1), AMNESIA, 400);
}

/// Clients are served by the others: only who asks each node sees it.
#[test]
fn acceptors_that_are_shut_out() {
    let failure = catches("shuts-out", together("three", 1), AMNESIA, 100);
    assert!(failure.message.contains(" has forgotten=1"), "{failure}");
}

#[test]
fn l1_hole_timer_fires_once() {
    catches("l1", together("three", 1), MEMORY, 200);
}

#[test]
fn l8_always_thrifty() {
    catches("l8", together("three", 1), MEMORY, 200);
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

/// What a play says happens, and with the canary does not.
fn play(text: &str, scenario: &Scenario, canary: &'static str) {
    let play = Play::parse(text).expect("a play");
    play.run::<MultiPaxos>(scenario, Lists::new(3))
        .expect("the sound protocol does as the play says");
    let mut broken = scenario.clone();
    broken.layout.canary = Some(canary);
    play.run::<MultiPaxos>(&broken, Lists::new(3))
        .expect_err("the play catches the canary");
}

#[test]
fn l5_voted_never_chosen() {
    let scenario = apart("apart", 1, [2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(
        include_str!("plays/l5_voted_never_chosen.play"),
        &scenario,
        "l5",
    );
}

/// Thousands of seeds did not meet it: it needs a vote of a round that lost, acceptors that are one
/// heartbeat apart in what they have forgotten, and a replica that asks the leader just then
/// because its peers' answers are lost. The simulator loses messages at random and not the same
/// kind for long. About one seed in two thousand meets it: a leader stranded with one acceptor, and
/// replicas that cannot help each other when it is back. What sees it is the ledger, at the first
/// vote, long before two replicas execute different values.
#[test]
fn repairs_of_forgotten_slots_are_found_from_seeds() {
    let failure = catches("repair", preset::<MultiPaxos>("baseline"), MEMORY, 4000);
    assert!(
        failure.message.contains("against what is chosen"),
        "{failure}"
    );
}

#[test]
fn a_forgotten_slot_is_not_repaired_with_an_old_vote() {
    for durability in [Durability::Disk, MEMORY] {
        let mut scenario = apart("apart", 1, [2, 0, 0, 2, 2, 3, 3, 0], QuorumSpec::Majority);
        scenario.layout.options.snapshot_slots = 1;
        scenario.durability = durability;
        play(
            include_str!("plays/repair_of_a_forgotten_slot.play"),
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
        include_str!("plays/hub.play"),
        &together("five", 2),
        "alone",
    );
}

/// Seeds cut links one way too, but asked for answers only when all was healed, until one node
/// stayed deaf.
#[test]
fn an_idle_leader_without_a_quorum_stops() {
    play(
        include_str!("plays/deaf.play"),
        &together("three", 1),
        "idle",
    );
    catches(
        "idle",
        preset::<MultiPaxos>("colocated"),
        Durability::Disk,
        2000,
    );
}

/// No seed breaks single links for good: when all is healed the acceptor tells the leader itself.
#[test]
fn a_leader_is_told_of_a_higher_round_by_proxy_leaders_too() {
    let scenario = apart("apart", 1, [2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(include_str!("plays/refused.play"), &scenario, "drops");
}

/// As above.
#[test]
fn a_leader_without_proxy_leaders_or_replicas_stops() {
    let mut scenario = apart("apart", 1, [2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    scenario.layout.options.window_slots = 2;
    play(include_str!("plays/no_helpers.play"), &scenario, "helpers");
}

/// Seeds asked no more than that every client is served before a minute has passed; where one node
/// of many is deaf for good, most commands do not meet it. Ten thousand seeds of larger shapes,
/// whose clients have little patience, found it.
#[test]
fn a_proxy_leader_that_is_heard_and_does_nothing_is_given_nothing() {
    let scenario = apart("apart", 1, [2, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
    play(include_str!("plays/deaf_proxy.play"), &scenario, "heard");
}
