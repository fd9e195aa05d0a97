//! What a cluster of S-Paxos needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::id::StabilizerId;
use super::kind;
use crate::multipaxos::service as ordering;
use alloc::vec::Vec;
use ionian_kernel::id::Epoch;
use ionian_kernel::service::{Enough, Memory, Need, Service, one_of_each};

/// While rounds of `epoch` choose.
pub(super) fn service(config: &Config, epoch: Epoch) -> Service {
    let in_force = ordering::quorums_of(&config.ordering, epoch);
    let storing = config.stabilizers_of(epoch.first_round());
    let storing = storing.unwrap_or(&config.stabilizers);
    let stabilizers = storing.members();
    let (write, read) = (storing.clone(), storing.clone());
    let voters = ordering::voters(kind::Acceptor, &in_force);
    let mut needs = ordering::needs_of_voters(&voters);
    needs.push(Need {
        what: "writes, for want of a write quorum",
        by: Enough::new::<StabilizerId>(kind::Stabilizer, stabilizers, move |set| {
            write.is_write_quorum(set)
        }),
    });
    needs.push(ordering::leader(kind::Leader, &config.ordering));
    needs.extend(one_of_each(config.layout(), KINDS));
    let payloads = Memory {
        by: Enough::new::<StabilizerId>(kind::Stabilizer, stabilizers, move |set| {
            read.is_read_quorum(set)
        }),
        waits: "It stores new payloads; for older ones it counts as failed, and proxy leaders avoid it, until it has \
                copied everything that a read quorum of the other stabilizers holds. Those that have lost their \
                memory too are of no help",
        lost: "too many stabilizers have lost their memory: those that remember can hold no read quorum, even if every \
               node that is down came back. None of them gets whole again, payloads of acknowledged writes may be \
               lost, and the cluster tolerates no further failure. Save a snapshot if you can, stop the cluster and \
               start anew",
        is_vital: false,
    };
    Service {
        hub: kind::Leader,
        parts: Vec::from([config.ordering.leaders().members()]),
        voters: Some(voters),
        needs,
        memories: Vec::from([
            ordering::votes(kind::Acceptor, &config.ordering.quorums),
            payloads,
        ]),
    }
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, ordering::FOR_CLIENT),
    (kind::Batcher, ordering::FOR_BATCHER),
    (kind::Disseminator, "writes, for want of a disseminator"),
    (kind::ProxyLeader, ordering::FOR_PROXY_LEADER),
    (kind::Replica, ordering::FOR_REPLICA),
    (kind::ReadBatcher, ordering::FOR_READ_BATCHER),
    (kind::Unbatcher, ordering::FOR_UNBATCHER),
];
