//! What a cluster of MultiPaxos needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::kind;
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, AcceptorSet, Epoch};
use ionian_kernel::layout::Layout;
use ionian_kernel::service::{self, Enough, Memory, Need, Service, Voters};
use ionian_replication::quorum::QuorumSystem;

/// What the cluster needs while leaders use rounds of `epoch`.
pub(crate) fn service(config: &Config, epoch: Epoch) -> Service {
    let in_force = quorums_of(config, epoch);
    let voters = voters(kind::Acceptor, &in_force);
    let mut needs = needs_of_voters(&voters);
    needs.push(leader(kind::Leader, config));
    needs.extend(one_of_each(config.layout()));
    Service {
        hub: kind::Leader,
        parts: Vec::from([config.leaders().members()]),
        voters: Some(voters),
        needs,
        memories: Vec::from([votes(kind::Acceptor, &config.quorums)]),
    }
}

/// One instance of each kind of roles without which something is not served.
pub(crate) fn one_of_each(layout: &Layout) -> impl Iterator<Item = Need> {
    service::one_of_each(layout, KINDS)
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, FOR_CLIENT),
    (kind::Batcher, FOR_BATCHER),
    (kind::ProxyLeader, FOR_PROXY_LEADER),
    (kind::Replica, FOR_REPLICA),
    (kind::ReadBatcher, FOR_READ_BATCHER),
    (kind::Unbatcher, FOR_UNBATCHER),
];

// What is not served without an instance of each kind.
pub(crate) const FOR_CLIENT: &str =
    "anything, for want of a node that serves clients and is not drained";
pub(crate) const FOR_BATCHER: &str = "writes, for want of a batcher";
pub(crate) const FOR_PROXY_LEADER: &str = "writes, for want of a proxy leader";
pub(crate) const FOR_REPLICA: &str = "anything, for want of a replica";
pub(crate) const FOR_READ_BATCHER: &str = "linearizable reads, for want of a read batcher";
pub(crate) const FOR_UNBATCHER: &str = "replies, for want of an unbatcher";

/// The quorums by which rounds of this epoch choose: while the members change, those of the
/// configuration before until a leader of the next one leads.
pub(crate) fn quorums_of(config: &Config, epoch: Epoch) -> QuorumSystem {
    let in_force = config.quorums_of(epoch.first_round());
    in_force.unwrap_or(&config.quorums).clone()
}

/// The quorums of acceptors that clients need.
pub(crate) fn needs_of_voters(voters: &Voters) -> Vec<Need> {
    Vec::from([
        Need {
            what: "writes, for want of a write quorum",
            by: voters.write.clone(),
        },
        Need {
            what: "linearizable reads and elections, for want of a read quorum",
            by: voters.read.clone(),
        },
    ])
}

/// One that can lead.
pub(crate) fn leader(kind: u8, config: &Config) -> Need {
    Need {
        what: "writes, for want of a leader",
        by: Enough::any(kind, config.leaders().members()),
    }
}

/// Acceptors of this kind, by their votes.
pub(crate) fn voters(kind: u8, quorums: &QuorumSystem) -> Voters {
    let (write, read) = (quorums.clone(), quorums.clone());
    let of: AcceptorSet = quorums.members();
    Voters {
        write: Enough::new::<AcceptorId>(kind, of, move |set| write.is_write_quorum(set)),
        read: Enough::new::<AcceptorId>(kind, of, move |set| read.is_read_quorum(set)),
        is_log: true,
    }
}

/// The votes of acceptors of this kind.
pub(crate) fn votes(kind: u8, quorums: &QuorumSystem) -> Memory {
    Memory {
        by: voters(kind, quorums).read,
        waits: "It must not vote before the leader has let it in again, which takes a leader, and a read quorum of \
                acceptors that remember",
        lost: "too many acceptors have lost their memory: those that remember can hold no read quorum, even if every \
               node that is down came back. This cluster cannot serve again, because acknowledged writes may be \
               lost. Save a snapshot of what is left (--allow-stale), stop it and start anew",
        is_vital: true,
    }
}
