//! What a cluster of Mencius needs to serve its clients, and what it cannot lose.

use super::config::Config;
use super::kind;
use super::stripe::Stripe;
use crate::multipaxos::service as ordering;
use ionian_kernel::id::Epoch;
use ionian_kernel::service::{Service, one_of_each};

/// While rounds of `epoch` choose. The acceptors and their quorums are the same in all stripes.
pub(super) fn service(config: &Config, epoch: Epoch) -> Service {
    let first = config.of(Stripe(0));
    let in_force = ordering::quorums_of(first, epoch);
    let voters = ordering::voters(kind::Acceptor, &in_force);
    let mut needs = ordering::needs_of_voters(&voters);
    let stripes = || config.stripes.iter().map(|stripe| config.of(stripe));
    needs.extend(stripes().map(|stripe| ordering::leader(kind::Leader, stripe)));
    needs.extend(one_of_each(config.layout(), KINDS));
    Service {
        hub: kind::Leader,
        parts: stripes().map(|stripe| stripe.leaders().members()).collect(),
        voters: Some(voters),
        needs,
        memories: [ordering::votes(kind::Acceptor, &first.quorums)].into(),
    }
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, ordering::FOR_CLIENT),
    (kind::Batcher, ordering::FOR_BATCHER),
    (kind::ProxyLeader, ordering::FOR_PROXY_LEADER),
    (kind::Replica, ordering::FOR_REPLICA),
    (kind::ReadBatcher, ordering::FOR_READ_BATCHER),
    (kind::Unbatcher, ordering::FOR_UNBATCHER),
];
