//! The shapes of deployments in which canaries are found.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::{Durability, Scenario};

/// Nodes that stop have lost their memory, and stay away.
pub(crate) const MEMORY: Durability = Durability::Memory { returns: false };
/// Nodes that stop have lost their memory, and come back.
pub(crate) const AMNESIA: Durability = Durability::Memory { returns: true };

/// The deployment that comes with Ionian under this name.
pub(crate) fn preset<P: Protocol>(name: &str) -> Scenario {
    let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
    Scenario::new(name, deployment.layout(P::KINDS).expect("a layout"))
}

/// How many kinds there are beside relays, the last where a protocol can have them: the canaries
/// are found without.
fn kinds<P: Protocol>() -> usize {
    P::KINDS.iter().take_while(|kind| **kind != "relay").count()
}

/// 2f+1 nodes with every role on each.
pub(crate) fn together<P: Protocol>(name: &str, f: usize) -> Scenario {
    let nodes: Vec<NodeId> = (0..2 * f as u16 + 1).map(NodeId).collect();
    let layout = Layout {
        f,
        instances: numbered(vec![nodes; kinds::<P>()]),
        ..Layout::default()
    };
    Scenario::new(name, layout)
}

/// Each instance on a node of its own: `counts` instances of each kind. One node may fail.
pub(crate) fn apart<P: Protocol>(name: &str, counts: &[usize], quorums: QuorumSpec) -> Scenario {
    assert_eq!(counts.len(), kinds::<P>());
    let mut nodes = (0..).map(NodeId);
    let instances = counts
        .iter()
        .map(|count| nodes.by_ref().take(*count).collect())
        .collect();
    let layout = Layout {
        f: 1,
        quorums,
        instances: numbered(instances),
        ..Layout::default()
    };
    Scenario::new(name, layout)
}
