//! Real protocols under the simulator, and the defects that the simulator can build into any of
//! them.

use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_kernel::protocol::{Instance, Protocol};
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::{
    Canary, Durability, FailureKind, Oracle, Scenario, View, Watch, run_seed_watched, run_seeds,
};
use std::collections::BTreeMap;

fn nodes(count: u16) -> Vec<NodeId> {
    (0..count).map(NodeId).collect()
}

/// Three nodes with every role that is not optional.
fn colocated() -> Scenario {
    let instances = vec![
        nodes(3),
        vec![],
        vec![],
        nodes(3),
        nodes(3),
        nodes(3),
        nodes(3),
        vec![],
    ];
    Scenario::new(
        "colocated",
        Layout {
            f: 1,
            instances: numbered(instances),
            ..Layout::default()
        },
    )
}

fn passes<P: Protocol>(scenario: &Scenario, seeds: u64) {
    let summary = run_seeds::<P>(scenario, 0..seeds, true, |_| Watch::default(), |_| {});
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|outcome| (outcome.seed, &outcome.result))
        .collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(
        summary.report.acknowledged_under_faults > seeds * 10,
        "{}",
        summary.report
    );
}

fn catches(scenario: &Scenario) {
    let summary = run_seeds::<MultiPaxos>(scenario, 0..300, true, |_| Watch::default(), |_| {});
    let failure = summary
        .failures
        .first()
        .expect("caught")
        .result
        .clone()
        .unwrap_err();
    // The replicas' own assertions count too.
    let caught = [
        FailureKind::Panic,
        FailureKind::Divergence,
        FailureKind::Invariant,
        FailureKind::Linearizability,
        FailureKind::LostWrite,
        FailureKind::ExactlyOnce,
    ];
    assert!(caught.contains(&failure.kind), "{failure}");
}

#[test]
fn multipaxos_passes() {
    passes::<MultiPaxos>(&colocated(), 150);
    for returns in [true, false] {
        passes::<MultiPaxos>(
            &Scenario {
                durability: Durability::Memory { returns },
                ..colocated()
            },
            60,
        );
    }
}

#[test]
fn the_unreplicated_server_passes() {
    let instances = vec![vec![NodeId(1), NodeId(2)], vec![], nodes(1), vec![]];
    let scenario = Scenario::new(
        "unreplicated",
        Layout {
            instances: numbered(instances),
            ..Layout::default()
        },
    );
    passes::<Unreplicated>(
        &Scenario {
            stable_log: false,
            ..scenario
        },
        150,
    );
}

#[test]
fn canaries_of_the_driver_are_caught() {
    for canary in [Canary::NoFence, Canary::ForgetDisk] {
        catches(&Scenario {
            canary,
            ..colocated()
        });
    }
    let durability = Durability::Memory { returns: true };
    catches(&Scenario {
        canary: Canary::HideAmnesia,
        durability,
        ..colocated()
    });
}

/// Commands that every replica leaves out, as after `ionian log skip`: none has an effect, in
/// whatever order replicas learn of them, from snapshots too, and though their clients ask again;
/// and none is taken for one that was executed.
#[test]
fn commands_that_are_given_up_are_never_executed() {
    fn given_up<P: Protocol>(scenario: &Scenario, seeds: u64) {
        let summary = run_seeds::<P>(scenario, 0..seeds, true, |_| Watch::default(), |_| {});
        let failures: Vec<_> = summary
            .failures
            .iter()
            .map(|outcome| (outcome.seed, &outcome.result))
            .collect();
        assert!(failures.is_empty(), "{failures:?}");
        assert!(
            summary.report.refused_failed > seeds,
            "few were given up: {}",
            summary.report
        );
    }
    let scenario = Scenario {
        gives_up: true,
        ..colocated()
    };
    for durability in [Durability::Disk, Durability::Memory { returns: true }] {
        given_up::<MultiPaxos>(
            &Scenario {
                durability,
                ..scenario.clone()
            },
            60,
        );
    }
    // Executed before its turn a command is given up as well.
    let mut early = scenario.clone();
    early.layout.options.own.insert("out_of_order", 1);
    given_up::<Mencius>(&early, 20);
    let instances = vec![vec![NodeId(1), NodeId(2)], vec![], nodes(1), vec![]];
    let server = Scenario::new(
        "unreplicated",
        Layout {
            instances: numbered(instances),
            ..Layout::default()
        },
    );
    given_up::<Unreplicated>(
        &Scenario {
            stable_log: false,
            gives_up: true,
            ..server
        },
        60,
    );
}

/// Why all nodes must have the same list, or none of each other.
#[test]
fn a_node_that_gives_up_commands_alone_is_caught() {
    let alone = Scenario {
        gives_up: true,
        canary: Canary::GivesUpAlone,
        ..colocated()
    };
    let summary = run_seeds::<MultiPaxos>(&alone, 0..20, true, |_| Watch::default(), |_| {});
    let failure = summary
        .failures
        .first()
        .expect("caught")
        .result
        .clone()
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Divergence, "{failure}");
}

/// Says that no acceptor's promise may ever fall, and that none may be above `limit`.
struct Promises {
    limit: u64,
    highest: BTreeMap<Address, u64>,
    sent: u64,
}

impl Oracle<MultiPaxos> for Promises {
    fn after_event(&mut self, view: &View<'_, MultiPaxos>) -> Result<(), String> {
        for (address, instance) in view.on_node(view.changed()) {
            let (Some(promise), kind::Acceptor) = (instance.status().round, address.kind) else {
                continue;
            };
            let promise = promise.number();
            let highest = self.highest.entry(address).or_default();
            if promise < *highest || promise > self.limit {
                return Err(format!("{address:?} promised {promise} after {highest}"));
            }
            *highest = promise;
        }
        Ok(())
    }

    fn on_send(&mut self, _: NodeId, _: &<MultiPaxos as Protocol>::Message) {
        self.sent += 1;
    }

    fn on_crash(&mut self, node: NodeId) {
        // A promise that was not on disk yet was revealed to no role and may be forgotten.
        self.highest.remove(&Address {
            kind: kind::Acceptor,
            index: node.0 as u8,
        });
    }

    fn at_end(&mut self, view: &View<'_, MultiPaxos>) -> Result<(), String> {
        let acceptors = view
            .instances()
            .filter(|(address, _)| address.kind == kind::Acceptor)
            .count();
        let fine = acceptors == 3 && self.sent > 0;
        if fine {
            Ok(())
        } else {
            Err(format!("{acceptors} acceptors, {} messages", self.sent))
        }
    }
}

#[test]
fn oracles_see_every_role_and_end_the_run() {
    for (limit, fails) in [(u64::MAX, false), (0, true)] {
        for seed in 0..20 {
            let oracle = Promises {
                limit,
                highest: BTreeMap::new(),
                sent: 0,
            };
            let watch = Watch {
                oracles: vec![Box::new(oracle)],
                trace: None,
            };
            let result = run_seed_watched::<MultiPaxos>(&colocated(), seed, watch).result;
            assert_eq!(
                result.as_ref().err().map(|failure| failure.kind),
                fails.then_some(FailureKind::Invariant),
                "{result:?}"
            );
        }
    }
}
