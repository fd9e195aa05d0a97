//! What a cluster of Scalog needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::id::ServerId;
use super::kind;
use crate::multipaxos::service as ordering;
use alloc::vec::Vec;
use ionian_kernel::id::{Epoch, Set};
use ionian_kernel::service::{Enough, Memory, Need, Service, one_of_each};

/// While rounds of `epoch` choose.
pub(super) fn service(config: &Config, epoch: Epoch) -> Service {
    let in_force = ordering::quorums_of(&config.ordering, epoch);
    let voters = ordering::voters(kind::Acceptor, &in_force);
    let mut needs = ordering::needs_of_voters(&voters);
    needs.push(Need {
        what: "writes, for want of a shard with all its servers",
        by: Enough::new::<ServerId>(kind::Server, config.servers, is_whole_somewhere(config)),
    });
    needs.push(ordering::leader(kind::Leader, &config.ordering));
    needs.extend(one_of_each(config.layout(), KINDS));
    let records = Memory {
        by: Enough::new::<ServerId>(kind::Server, config.servers, is_left_everywhere(config)),
        waits: "Its shard is closed and opened again without what it held. Until replicas keep all that the shard had \
                ordered before, it counts as failed",
        lost: "all servers of a shard have lost their memory: records that are ordered and not executed may be lost, \
               and replicas that wait for them execute nothing more. If replicas stand still, save a snapshot, stop \
               the cluster and start anew",
        is_vital: false,
    };
    Service {
        hub: kind::Leader,
        parts: Vec::from([config.ordering.leaders().members()]),
        voters: Some(voters),
        needs,
        memories: Vec::from([
            ordering::votes(kind::Acceptor, &config.ordering.quorums),
            records,
        ]),
    }
}

/// Whether some shard has all its servers.
fn is_whole_somewhere(config: &Config) -> impl Fn(Set<ServerId>) -> bool + 'static {
    let config = config.clone();
    move |there| {
        let is_whole = |shard| {
            config
                .servers_of(shard)
                .all(|server| there.contains(server))
        };
        config.shards().any(is_whole)
    }
}

/// Whether one server of each shard remembers.
fn is_left_everywhere(config: &Config) -> impl Fn(Set<ServerId>) -> bool + 'static {
    let config = config.clone();
    move |some| {
        let is_left = |shard| config.servers_of(shard).any(|server| some.contains(server));
        config.shards().all(is_left)
    }
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, ordering::FOR_CLIENT),
    (kind::Aggregator, "writes, for want of an aggregator"),
    (kind::ProxyLeader, ordering::FOR_PROXY_LEADER),
    (kind::Replica, ordering::FOR_REPLICA),
    (kind::ReadBatcher, ordering::FOR_READ_BATCHER),
    (kind::Unbatcher, ordering::FOR_UNBATCHER),
];
