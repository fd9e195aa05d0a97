//! Seeds reach the rare branches of each protocol, but for those listed here with what stands in.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::craq::Craq;
use ionian_protocols::epaxos::EPaxos;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::psmr::PSmr;
use ionian_protocols::scalog::Scalog;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Durability, Report, Scenario, Simulated, run_seeds, variations};

/// Seeds are run in batches of this size, until everything is reached.
const BATCH: u64 = 25;
const BATCHES: u64 = 24;

/// No seed reaches them.
const OUT_OF_REACH: &[&str] = &[
    // Millions of slots, and tens of thousands of batches.
    "acceptor: asked to vote too far ahead of what it remembers",
    "leader: a batch is dropped because too many wait",
    // Thousands of reservations, which no snapshot of a replica removes: tests of the roles.
    "acceptor: asked to note more reservations of a stripe than it keeps",
    // Thousands of slots of a leader that does not reach an acceptor: tests of the roles.
    "acceptor: forgets by the word of another leader than its own",
    // More than a mebibyte: tests of the roles.
    "acceptor: its votes do not fit one message",
    "leader: an acceptor is asked for its next stretch of votes",
    "stabilizer: a copy does not fit one message",
    // The play `l5_voted_never_chosen`.
    "leader: noops up to a slot that was voted for beyond its own last (l5)",
    // It takes 65,536 requests at a time.
    "relay: a request is dropped because too many are under way",
    // It takes a peer that was silent for seconds.
    "replica: asked for a piece of a snapshot that is gone",
];

fn scenarios(protocol: Simulated, presets: &[&str], changes: bool) -> Vec<Scenario> {
    let scenario = |name: &&str| {
        let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
        let layout = deployment
            .layout(protocol.description().kinds)
            .expect("a layout");
        let changes = if changes {
            variations(protocol, &layout)
        } else {
            Vec::new()
        };
        let durability = Durability::Memory { returns: true };
        Scenario {
            durability,
            changes,
            ..Scenario::new(*name, layout)
        }
    };
    presets.iter().map(scenario).collect()
}

fn reaches(protocol: Simulated, scenarios: &[Scenario], elsewhere: &[&str]) {
    let mut report = Report::default();
    for batch in 0..BATCHES {
        for scenario in scenarios {
            let seeds = batch * BATCH..(batch + 1) * BATCH;
            report.merge(&run_seeds(protocol, scenario, seeds).report);
        }
        let excused = |branch: &&str| OUT_OF_REACH.contains(branch) || elsewhere.contains(branch);
        if report.unreached().all(|branch| excused(&branch)) {
            return;
        }
    }
    panic!("{report}");
}

#[test]
fn of_multipaxos() {
    let protocol = Simulated::of::<MultiPaxos>();
    // Nothing is executed early where there is one stripe, and no leader passes on what another one
    // missed.
    let elsewhere = [
        "replica: a snapshot waits for what was executed early",
        "replica: a peer waits for slots that are not here yet",
    ];
    let mut all = scenarios(protocol, &["colocated", "baseline", "pigpaxos"], false);
    all.extend(scenarios(protocol, &["baseline"], true));
    reaches(protocol, &all, &elsewhere);
}

#[test]
fn of_mencius() {
    let protocol = Simulated::of::<Mencius>();
    // It takes a snapshot that is due while the command before it is not known yet: not once in
    // 1,200 runs.
    let early = "replica: a snapshot waits for what was executed early";
    let mut all = scenarios(protocol, &["mencius", "mencius-compartmentalized"], false);
    all.extend(scenarios(protocol, &["mencius"], true));
    reaches(protocol, &all, &[early]);
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn of_spaxos() {
    let protocol = Simulated::of::<SPaxos>();
    let elsewhere = [
        "replica: a snapshot waits for what was executed early",
        "replica: a peer waits for slots that are not here yet",
        "leader: one that does not lead turns a batch away",
        // Replicas learn from stabilizers.
        "acceptor: told that a vote is chosen that it does not have",
        // Windows of one slot: a shape of `every_protocol`.
        "leader: a payload would be void by the time of its turn",
        "stabilizer: a reference was chosen too late and stands for nothing",
        "stabilizer: one that lost its memory is asked for a copy",
    ];
    let mut all = scenarios(protocol, &["spaxos", "spaxos-compartmentalized"], false);
    all.extend(scenarios(protocol, &["spaxos"], true));
    reaches(protocol, &all, &elsewhere);
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn of_epaxos() {
    let protocol = Simulated::of::<EPaxos>();
    let elsewhere = [
        // A million instances: tests of the roles.
        "acceptor: has no room to record a command",
        // As above, of a peer's snapshot.
        "replica: asked for a snapshot that it no longer has",
        // Not in these 1,800 runs: `a_decision_after_a_promise_is_refused` of the roles' tests.
        "acceptor: its leader decides after it has promised another ballot",
        // As above: `a_snapshot_is_not_waited_for_when_what_was_forgotten_arrives`.
        "replica: what it took a snapshot for has arrived",
    ];
    let presets = ["epaxos", "epaxos-5", "epaxos-compartmentalized"];
    let all = scenarios(protocol, &presets, false);
    reaches(protocol, &all, &elsewhere);
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn of_psmr() {
    let protocol = Simulated::of::<PSmr>();
    // Those of each group are above.
    let elsewhere = MultiPaxos::branches();
    let all = scenarios(protocol, &["p-smr"], false);
    reaches(protocol, &all, &elsewhere);
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn of_craq() {
    let protocol = Simulated::of::<Craq>();
    // Those of the master's log are above.
    let mut elsewhere = MultiPaxos::branches();
    // It takes a node that was silent for seconds: a few in a thousand runs with disks.
    elsewhere.push("chain node: asked for a piece of a snapshot that is gone");
    // Several links are cut one after another, within milliseconds or in a certain order: plays.
    elsewhere.extend([
        "chain node: the tail of another chain is asked, though that of the last one has answered",
        "chain node: the head becomes the second member",
    ]);
    let presets = ["craq", "craq-6"];
    let all = [false, true].map(|changes| scenarios(protocol, &presets, changes));
    let all = all.concat();
    reaches(protocol, &all, &elsewhere);
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn of_scalog() {
    let protocol = Simulated::of::<Scalog>();
    let elsewhere = [
        "replica: a snapshot waits for what was executed early",
        "replica: a peer waits for slots that are not here yet",
        // No acceptor is on a node with a replica.
        "acceptor: told that a vote is chosen that it does not have",
        // The members do not change.
        "leader: leads by the quorums of both configurations",
        "leader: the round of a change begins while it leads",
        // More than 64 MiB.
        "replica: records that come too early are dropped",
    ];
    let all = scenarios(protocol, &["scalog", "scalog-compartmentalized"], false);
    reaches(protocol, &all, &elsewhere);
}

/// A run of P-SMR shows something only if workers had commands of their own, and stopped for others
/// (m31): most runs do.
#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn most_runs_of_psmr_have_parallel_work_and_barriers() {
    let protocol = Simulated::of::<PSmr>();
    for scenario in scenarios(protocol, &["p-smr", "p-smr-compartmentalized"], false) {
        let is_of_use = |seed: &u64| {
            let seeds = *seed..*seed + 1;
            let report = run_seeds(protocol, &scenario, seeds);
            let figures = report.report.figures;
            ["handed_to_workers", "spanning"].map(|name| figures[name].0 > 0) == [true; 2]
        };
        let of_use = (0..SEEDS).filter(is_of_use).count() as u64;
        assert!(
            of_use > SEEDS / 2,
            "{of_use} of {SEEDS} runs: {}",
            scenario.name
        );
    }
}

/// The number of runs that are looked at.
const SEEDS: u64 = 40;
