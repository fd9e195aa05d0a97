//! What a cluster of EPaxos needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::kind;
use crate::multipaxos::service::{FOR_CLIENT, FOR_PROXY_LEADER, FOR_REPLICA};
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, AcceptorSet, ReplicaId};
use ionian_kernel::service::{Enough, Memory, Need, Service, Voters, one_of_each};

/// What the cluster needs. No leader is elected: each leads its own commands.
pub(super) fn service(config: &Config) -> Service {
    let recorders = |count: usize| {
        let of = config.recorders();
        Enough::new::<AcceptorId>(config.recorder_kind(), of, move |set| set.len() >= count)
    };
    let majority = config.majority();
    let (write, read) = match config.is_apart() {
        true => (of_each_group(config), of_each_group(config)),
        false => {
            let writes = majority.max(config.f() + 1);
            let reads = config.acceptors().len() - config.f();
            (recorders(writes), recorders(reads))
        }
    };
    let mut needs = Vec::from([
        Need {
            what: "writes, for want of a majority of acceptors",
            by: write.clone(),
        },
        Need {
            what: match config.is_apart() {
                true => "writes and linearizable reads, for want of a majority of dependency nodes",
                false => "linearizable reads, for want of a majority of acceptors",
            },
            by: recorders(majority),
        },
        Need {
            what: "writes, for want of a leader",
            by: Enough::any(kind::Leader, config.leaders().members()),
        },
    ]);
    needs.extend(one_of_each(config.layout(), KINDS));
    let recording = recorders(config.copy_quorum(config.recorders()));
    let mut memories = match config.is_apart() {
        true => Vec::from([
            memory(recording, DEPENDENCY_NODES_LOST),
            memory(of_each_group(config), ACCEPTORS_LOST),
        ]),
        false => Vec::from([memory(recording, ACCEPTORS_LOST)]),
    };
    memories.push(stored_states(config));
    Service {
        hub: kind::Leader,
        parts: Vec::new(),
        memories,
        voters: Some(Voters {
            write,
            read,
            is_log: false,
        }),
        needs,
    }
}

/// A majority of each group of acceptors: instances take turns with the groups.
fn of_each_group(config: &Config) -> Enough {
    let groups = config.groups().to_vec();
    Enough::new::<AcceptorId>(kind::Acceptor, config.acceptors(), move |set| {
        let is_met = |group: &AcceptorSet| set.and(*group).len() > group.len() / 2;
        groups.iter().all(is_met)
    })
}

const ACCEPTORS_LOST: &str = "too many acceptors have lost their memory: those that remember are \
     fewer than n - floor(n/2), even if every node that is down came back. This cluster cannot \
     serve again, because acknowledged writes may be lost. Save a snapshot of what is left \
     (--allow-stale), stop it and start anew";
const DEPENDENCY_NODES_LOST: &str = "too many dependency nodes have lost their memory: those that \
     remember are fewer than n - floor(n/2), even if every node that is down came back. This \
     cluster cannot serve again, because the order of acknowledged writes may be lost. Save a \
     snapshot of what is left (--allow-stale), stop it and start anew";

fn memory(by: Enough, lost: &'static str) -> Memory {
    Memory {
        by,
        lost,
        waits: "It must not vote before it has copied from others of its kind what it has lost, \
                which takes n - floor(n/2) of them that remember",
        is_vital: true,
    }
}

/// Acceptors forget what f + 1 replicas have in stored snapshots. With at most f of all lost, one
/// of these is left.
fn stored_states(config: &Config) -> Memory {
    let (of, f) = (config.replicas(), config.f());
    Memory {
        by: Enough::new::<ReplicaId>(kind::Replica, of, move |set| set.len() + f >= of.len()),
        lost: STATES_LOST,
        waits: "Its disk was lost: it has yet to store all that acceptors have recorded",
        is_vital: false,
    }
}

const STATES_LOST: &str = "more than f replicas have lost their disks and have not stored what \
     others have forgotten: acknowledged writes may be lost. Lose no further disk until all hold \
     what was acknowledged";

const KINDS: &[(u8, &str)] = &[
    (kind::Client, FOR_CLIENT),
    (kind::ProxyLeader, FOR_PROXY_LEADER),
    (kind::Replica, FOR_REPLICA),
];
