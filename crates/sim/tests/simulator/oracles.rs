//! What a test can watch a run of a real protocol with.

use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_sim::{FailureKind, Oracle, Scenario, Simulated, View, Watch, run_seed_watched};
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

/// Says that no acceptor's promise may ever fall, and that none may be above `limit`.
struct Promises {
    limit: u64,
    highest: BTreeMap<Address, u64>,
    sent: u64,
}

impl Oracle for Promises {
    fn after_event(&mut self, view: &View<'_>) -> Result<(), String> {
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

    fn on_send(&mut self, _: NodeId, _: &'static str) {
        self.sent += 1;
    }

    fn on_crash(&mut self, node: NodeId) {
        // A promise that was not on disk yet was revealed to no role and may be forgotten.
        self.highest.remove(&Address {
            kind: kind::Acceptor,
            index: node.0 as ionian_kernel::id::Index,
        });
    }

    fn at_end(&mut self, view: &View<'_>) -> Result<(), String> {
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
            let result =
                run_seed_watched(Simulated::of::<MultiPaxos>(), &colocated(), seed, watch).result;
            assert_eq!(
                result.as_ref().err().map(|failure| failure.kind),
                fails.then_some(FailureKind::Invariant),
                "{result:?}"
            );
        }
    }
}
