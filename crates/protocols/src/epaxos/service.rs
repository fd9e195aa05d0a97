//! What a cluster of EPaxos needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::kind;
use crate::multipaxos::service::{FOR_CLIENT, FOR_REPLICA};
use alloc::vec::Vec;
use ionian_kernel::id::AcceptorId;
use ionian_kernel::service::{Enough, Memory, Need, Service, Voters, one_of_each};

/// What the cluster needs. No leader is elected: each leads its own commands.
pub(super) fn service(config: &Config) -> Service {
    let at_least = |count: usize| {
        Enough::new::<AcceptorId>(kind::Acceptor, config.acceptors(), move |set| {
            set.len() >= count
        })
    };
    let (writes, reads) = (
        config.majority().max(config.slow_quorum()),
        config.majority(),
    );
    let voters = Voters {
        write: at_least(writes),
        read: at_least(config.recovery_quorum()),
    };
    let mut needs = Vec::from([
        Need {
            what: "writes, for want of a majority of acceptors",
            by: at_least(writes),
        },
        Need {
            what: "linearizable reads, for want of a majority of acceptors",
            by: at_least(reads),
        },
        Need {
            what: "writes, for want of a leader",
            by: Enough::any(kind::Leader, config.leaders().members()),
        },
    ]);
    needs.extend(one_of_each(config.layout(), KINDS));
    Service {
        hub: kind::Leader,
        parts: Vec::new(),
        memories: Vec::from([Memory {
            by: at_least(config.copy_quorum()),
            waits: "It must not vote before it has copied from other acceptors what it has lost, \
                    which takes n - floor(n/2) of them that remember",
            lost: "too many acceptors have lost their memory: those that remember are fewer than \
                   n - floor(n/2), even if every node that is down came back. This cluster cannot \
                   serve again, because acknowledged writes may be lost. Stop it and start anew",
            is_vital: true,
        }]),
        voters: Some(voters),
        needs,
    }
}

const KINDS: &[(u8, &str)] = &[(kind::Client, FOR_CLIENT), (kind::Replica, FOR_REPLICA)];
