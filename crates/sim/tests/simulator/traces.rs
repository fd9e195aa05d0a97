//! What nodes note for traces is joined to the path of each command: every role that a command
//! needs is in it, and it does not depend on anything but the seed.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::trace::path::{Path, SUBMIT, Seen, Step};
use ionian_kernel::trace::{CommandId, Run};
use ionian_protocols::craq::Craq;
use ionian_protocols::epaxos::EPaxos;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::psmr::PSmr;
use ionian_protocols::scalog::Scalog;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Faults, Oracle, Scenario, Simulated, View, Watch, run_seed_watched};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Keeps what the nodes have noted until the end of a run.
struct Keeper(Rc<RefCell<Vec<Seen>>>);

impl Oracle for Keeper {
    fn after_event(&mut self, _: &View<'_>) -> Result<(), String> {
        Ok(())
    }

    fn at_end(&mut self, view: &View<'_>) -> Result<(), String> {
        self.0.replace(view.noted());
        Ok(())
    }
}

/// What is noted in a run of this preset without faults.
fn noted<P: Protocol>(preset: &str, seed: u64) -> Vec<Seen> {
    let deployment = Deployment::preset(preset, &PresetOptions::default()).expect("a preset");
    let mut layout = deployment.layout(P::KINDS).expect("a layout");
    layout.options.own.insert("relay_reads", 1);
    let scenario = Scenario {
        faults: Faults::NONE,
        vary_options: false,
        records: true,
        ..Scenario::new(preset, layout)
    };
    let kept = Rc::new(RefCell::new(Vec::new()));
    let watch = Watch {
        oracles: vec![Box::new(Keeper(kept.clone()))],
        trace: None,
    };
    let outcome = run_seed_watched(Simulated::of::<P>(), &scenario, seed, watch);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    kept.take()
}

/// The commands that lanes have sent, and whether they are writes.
fn commands(events: &[Seen]) -> BTreeSet<CommandId> {
    let sent = events
        .iter()
        .filter(|event| event.sent.is_some() && event.place.role == "client");
    sent.filter_map(|event| event.commands)
        .flat_map(|Run { first, count }| {
            (0..u64::from(count)).map(move |offset| CommandId {
                number: first.number + offset,
                ..first
            })
        })
        .collect()
}

/// What each command passes: the name of the role, and of what it does.
type Stages = &'static [(&'static str, &'static str)];

/// What happens on the way of a value from an acceptor, or not, depending on who hears whom first.
const SOMETIMES: Stages = &[("acceptor", "learn"), ("leader", "preaccepted")];

const WRITE: Stages = &[
    ("acceptor", "sync"),
    ("client", "answers"),
    ("client", SUBMIT),
    ("leader", "propose"),
    ("proxy_leader", "chosen"),
    ("proxy_leader", "phase2a"),
    ("replica", "execute"),
];

const BATCHED: Stages = &[("batcher", "batch.wait"), ("unbatcher", "unbatch")];

/// Checks the path of each command; writes wait for the disk in a stage of this name.
fn assert_paths<P: Protocol>(preset: &str, seed: u64, disk: &str, expected: &[Stages]) {
    let events = noted::<P>(preset, seed);
    let expected: BTreeSet<_> = expected.iter().copied().flatten().copied().collect();
    let mut writes = 0;
    for command in commands(&events) {
        let path = Path::of(command, &events);
        let told = format!("{preset}, seed {seed}, {command:?}: {path:#?}");
        assert!(path.is_connected(), "{told}");
        let each: BTreeSet<_> = path.spans.iter().map(|it| (&it.place, &it.stage)).collect();
        assert_eq!(each.len(), path.spans.len(), "a span twice: {told}");
        let (Some(first), Some(last)) = (path.steps.first(), path.steps.last()) else {
            panic!("no steps: {told}");
        };
        let sum: u64 = path.steps.iter().map(|it| it.ended.0 - it.began.0).sum();
        assert_eq!(
            sum,
            last.ended.0 - first.began.0,
            "steps leave gaps: {told}"
        );
        if command.sessionless {
            continue;
        }
        writes += 1;
        // A vote leaves when it is on disk.
        let synced = path
            .steps
            .iter()
            .filter(|it| it.at.is_some() && it.stage == disk);
        assert!(
            synced.map(|it| it.ended.0 - it.began.0).sum::<u64>() > 0,
            "no disk: {told}"
        );
        let mut stages = BTreeSet::new();
        for span in &path.spans {
            stages.insert((span.place.role.as_str(), span.stage.as_str()));
        }
        stages.retain(|stage| !SOMETIMES.contains(stage));
        assert_eq!(stages, expected, "{told}");
    }
    assert!(writes > 5, "{writes} writes in {preset}, seed {seed}");
}

#[test]
fn the_path_of_each_command_has_every_role_and_is_connected() {
    for seed in 0..4 {
        assert_paths::<MultiPaxos>("colocated", seed, "sync", &[WRITE, BATCHED]);
        assert_paths::<MultiPaxos>("compartmentalized", seed, "sync", &[WRITE]);
        assert_paths::<MultiPaxos>("batched", seed, "sync", &[WRITE, BATCHED]);
    }
}

#[test]
fn parts_of_logs_with_slots_of_their_own_are_not_mixed_up() {
    for seed in 0..4 {
        assert_paths::<Mencius>(
            "mencius",
            seed,
            "sync",
            &[WRITE, &[("unbatcher", "unbatch")]],
        );
        assert_paths::<PSmr>("p-smr", seed, "sync", &[WRITE, BATCHED]);
    }
}

/// Checks what linearizable reads of some seeds have passed: those that name an inquiry.
fn assert_reads<P: Protocol>(preset: &str, expected: &[Stages]) {
    let reads: usize = (0..4).map(|seed| reads::<P>(preset, seed, expected)).sum();
    assert!(reads > 10, "{reads} reads in {preset}");
}

fn reads<P: Protocol>(preset: &str, seed: u64, expected: &[Stages]) -> usize {
    let events = noted::<P>(preset, seed);
    let expected: BTreeSet<_> = expected.iter().copied().flatten().copied().collect();
    let mut reads = 0;
    for command in commands(&events).iter().filter(|it| it.sessionless) {
        let path = Path::of(*command, &events);
        let told = format!("{preset}, seed {seed}, {command:?}: {path:#?}");
        let waited = |stage: &str| {
            let of_role = |it: &&Step| it.at.is_some() && it.stage == stage;
            path.steps.iter().filter(of_role).count()
        };
        if !path.spans.iter().any(|span| span.stage == "inquire") {
            continue;
        }
        reads += 1;
        assert_eq!(path.slot, None, "an inquiry has no slot: {told}");
        assert!(path.is_connected(), "{told}");
        assert!(waited("inquired") == 1 && waited("read") == 1, "{told}");
        let spans = path.spans.iter();
        let stages = spans.map(|span| (span.place.role.as_str(), span.stage.as_str()));
        assert_eq!(stages.collect::<BTreeSet<_>>(), expected, "{told}");
    }
    reads
}

#[test]
fn a_linearizable_read_shows_the_inquiry_before_it() {
    const READ: Stages = &[
        ("acceptor", "inquire"),
        ("client", "answers"),
        ("client", SUBMIT),
        ("replica", "read"),
    ];
    const ALONE: Stages = &[("client", "inquired")];
    const BATCHED: Stages = &[
        ("read_batcher", "batch.wait"),
        ("read_batcher", "inquired"),
        ("unbatcher", "unbatch"),
    ];
    const RELAYED: Stages = &[("relay", "relay")];
    assert_reads::<MultiPaxos>("compartmentalized", &[READ, ALONE]);
    assert_reads::<MultiPaxos>("batched", &[READ, BATCHED]);
    assert_reads::<MultiPaxos>("pigpaxos", &[READ, ALONE, RELAYED]);
    assert_reads::<SPaxos>("spaxos", &[READ, BATCHED]);
    assert_reads::<Mencius>("mencius", &[READ, BATCHED]);
    assert_reads::<PSmr>("p-smr", &[READ, BATCHED]);
    const RECORDED: Stages = &[("replica", "inquired")];
    assert_reads::<EPaxos>("epaxos", &[READ, RECORDED]);
}

#[test]
fn a_read_of_a_chain_shows_what_its_node_asks() {
    // What the chain is, and what of it is committed: of that the tail is asked, if it matters.
    const READ: Stages = &[
        ("chain_node", "inquired"),
        ("chain_node", "read"),
        ("client", "answers"),
        ("client", SUBMIT),
    ];
    const MASTER: Stages = &[("acceptor", "inquire")];
    const TAIL: Stages = &[("chain_node", "inquire")];
    let (mut chains, mut tails) = (0, 0);
    for seed in 0..8 {
        let events = noted::<Craq>("craq", seed);
        for command in commands(&events).iter().filter(|it| it.sessionless) {
            let path = Path::of(*command, &events);
            let told = format!("seed {seed}, {command:?}: {path:#?}");
            assert!(path.is_connected(), "{told}");
            let spans = path.spans.iter();
            let mut stages = BTreeSet::new();
            stages.extend(spans.map(|span| (span.place.role.as_str(), span.stage.as_str())));
            let asked = |kind: Stages| kind.iter().all(|stage| stages.contains(stage));
            if !asked(MASTER) && !asked(TAIL) {
                continue;
            }
            chains += usize::from(asked(MASTER));
            tails += usize::from(asked(TAIL));
            let of_role = |it: &&Step| it.at.is_some() && it.stage == "inquired";
            assert!(path.steps.iter().any(|it| of_role(&it)), "{told}");
            stages.retain(|stage| !MASTER.contains(stage) && !TAIL.contains(stage));
            assert!(stages.into_iter().eq(READ.iter().copied()), "{told}");
        }
    }
    assert!(chains > 10 && tails > 2, "{chains} and {tails}");
}

#[test]
fn a_trace_follows_a_payload_and_its_slot() {
    const APART: Stages = &[
        ("disseminator", "stored"),
        ("stabilizer", "deliver"),
        ("stabilizer", "store"),
    ];
    const GATHERS: Stages = &[("disseminator", "batch.wait"), ("unbatcher", "unbatch")];
    const BEHIND_BATCHERS: Stages = &[("disseminator", "disseminate")];
    for seed in 0..4 {
        for disk in ["store", "sync"] {
            assert_paths::<SPaxos>("spaxos", seed, disk, &[WRITE, APART, GATHERS]);
        }
        let unbatched = &[WRITE, APART, &[("disseminator", "batch.wait")]];
        assert_paths::<SPaxos>("spaxos-compartmentalized", seed, "sync", unbatched);
        let batched = &[WRITE, APART, BATCHED, BEHIND_BATCHERS];
        assert_paths::<SPaxos>("spaxos-batched", seed, "sync", batched);
    }
}

#[test]
fn a_write_passes_the_whole_chain() {
    const CHAIN: Stages = &[
        ("chain_node", "chain"),
        ("chain_node", "head"),
        ("client", "answers"),
        ("client", SUBMIT),
    ];
    for seed in 0..4 {
        assert_paths::<Craq>("craq", seed, "chain", &[CHAIN]);
        assert_paths::<Craq>("craq-6", seed, "chain", &[CHAIN]);
    }
}

#[test]
fn a_record_passes_the_servers_of_its_shard() {
    const SHARD: Stages = &[
        ("client", "answers"),
        ("client", SUBMIT),
        ("replica", "execute"),
        ("server", "append"),
        ("server", "backup"),
    ];
    for seed in 0..4 {
        assert_paths::<Scalog>("scalog", seed, "append", &[SHARD]);
        let unbatched = &[SHARD, &[("unbatcher", "unbatch")]];
        assert_paths::<Scalog>("scalog-compartmentalized", seed, "append", unbatched);
    }
}

#[test]
fn instances_of_each_leader_are_not_mixed_up() {
    const FAST: Stages = &[
        ("acceptor", "preaccept"),
        ("client", "answers"),
        ("client", SUBMIT),
        ("leader", "chosen"),
        ("leader", "propose"),
        ("replica", "execute"),
    ];
    for seed in 0..4 {
        assert_paths::<EPaxos>("epaxos", seed, "preaccept", &[FAST]);
    }
}

#[test]
fn notes_depend_on_the_seed_alone() {
    let noted = noted::<MultiPaxos>;
    assert_eq!(noted("compartmentalized", 7), noted("compartmentalized", 7));
    assert_ne!(noted("compartmentalized", 7), noted("compartmentalized", 8));
}
