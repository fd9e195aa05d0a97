//! A cluster of a hundred nodes under faults, in a build that allows it.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::registry::types::MultiPaxos;
use ionian_sim::{Durability, Scenario, Simulated, run_seeds};

const PROTOCOL: Simulated = Simulated::of::<MultiPaxos>();

#[test]
fn hundreds_of_nodes_serve_clients_under_faults() {
    let deployment = Deployment::preset("pigpaxos-101", &PresetOptions::default());
    let layout = deployment.and_then(|deployment| deployment.layout(MultiPaxos::KINDS));
    let scenario = Scenario {
        durability: Durability::Memory { returns: false },
        ..Scenario::new("pigpaxos-101", layout.expect("a preset is a deployment"))
    };
    let summary = run_seeds(PROTOCOL, &scenario, 0..2);
    let failed = summary.failures.first();
    assert!(failed.is_none(), "{:?}", failed.map(|run| &run.result));
    let report = summary.report;
    assert!(report.acknowledged > 300, "{report}");
    assert!(report.crashes > 10, "{report}");
}
