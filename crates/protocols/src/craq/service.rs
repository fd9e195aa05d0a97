//! What a cluster of CRAQ needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::kind;
use crate::multipaxos::service as ordering;
use alloc::vec::Vec;
use ionian_kernel::id::Epoch;
use ionian_kernel::service::{Enough, Memory, Need, Service, one_of_each};

/// What the cluster needs. Without its master it still writes, as long as no member of the chain
/// fails.
pub(super) fn service(config: &Config, epoch: Epoch) -> Service {
    let in_force = ordering::quorums_of(&config.master, epoch);
    let voters = ordering::voters(kind::Acceptor, &in_force);
    let mut needs = Vec::from([
        Need {
            what: "linearizable reads, and changes of the chain, for want of a read quorum of \
                   acceptors",
            by: voters.read.clone(),
        },
        Need {
            what: "changes of the chain, for want of a write quorum of acceptors",
            by: voters.write.clone(),
        },
        Need {
            what: "changes of the chain, for want of a leader",
            by: Enough::any(kind::Leader, config.master.leaders().members()),
        },
    ]);
    let (nodes, alive) = (config.standing().0, config.alive());
    needs.push(Need {
        what: "writes, for want of chain nodes: no more of those that failed can be removed from \
               the chain",
        by: Enough::new(kind::ChainNode, nodes, move |some| some.len() >= alive),
    });
    needs.extend(one_of_each(config.layout(), KINDS));
    let copies = Memory {
        by: Enough::any(kind::ChainNode, config.nodes().members()),
        waits: "It is in the chain no more, or not yet, and copies what it lacks from the tail",
        lost: "every chain node has lost its memory: acknowledged writes are lost. Stop the \
               cluster and start anew",
        is_vital: true,
    };
    Service {
        hub: kind::ChainNode,
        parts: Vec::new(),
        voters: None,
        needs,
        memories: Vec::from([
            ordering::votes(kind::Acceptor, &config.master.quorums),
            copies,
        ]),
    }
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, ordering::FOR_CLIENT),
    (kind::Batcher, ordering::FOR_BATCHER),
    (kind::ChainNode, "anything, for want of a chain node"),
    (kind::Unbatcher, ordering::FOR_UNBATCHER),
    (
        kind::ProxyLeader,
        "changes of the chain, for want of a proxy leader",
    ),
    (
        kind::Master,
        "linearizable reads, and changes of the chain, for want of a replica of the master",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::Index;
    use ionian_kernel::layout::{Layout, NodeId, numbered};
    use ionian_kernel::level::Level;

    /// A node that hears fewer others has none removed: writes wait for a member beyond these that
    /// fails.
    #[test]
    fn writes_need_as_many_chain_nodes_as_are_up_if_f_are_down() {
        let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
        let of = |kind: usize| match kind as u8 {
            kind::Batcher | kind::Unbatcher => Vec::new(),
            _ => nodes.clone(),
        };
        let layout = Layout {
            f: 1,
            founding_level: Level::LATEST,
            instances: numbered((0..crate::craq::KINDS.len()).map(of).collect()),
            ..Layout::default()
        };
        let config = Config::new(layout).expect("a deployment");
        let service = service(&config, Epoch::default());
        let is_served = |alive: &[Index]| {
            let alive = alive.iter().copied().collect();
            let mut writes = service
                .needs
                .iter()
                .filter(|need| need.what.starts_with("writes"));
            writes.all(|need| need.by.is_met(alive))
        };
        assert!(is_served(&[0, 1, 2]) && is_served(&[0, 2]));
        assert!(!is_served(&[1]) && !is_served(&[]));
    }
}
