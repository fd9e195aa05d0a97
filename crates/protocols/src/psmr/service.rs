//! What a cluster of P-SMR needs to serve its clients: what MultiPaxos needs, in every group.

use super::config::Config;
use crate::multipaxos::service::{
    self as one, FOR_PROXY_LEADER, needs_of_voters, quorums_of, votes,
};
use crate::multipaxos::{self, kind};
use alloc::rc::Rc;
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorSet, Epoch, ProxyLeaderId, Set};
use ionian_kernel::service::{Enough, Memory, Need, Service, Voters};
use ionian_replication::quorum::QuorumSystem;

/// What the cluster needs while leaders use rounds of `epoch`.
pub(super) fn service(config: &Config, epoch: Epoch) -> Service {
    let all = one::service(config.all(), epoch);
    let groups = || config.groups().iter();
    let in_force: Quorums = groups().map(|group| quorums_of(group, epoch)).collect();
    let latest: Quorums = groups().map(|group| group.quorums.clone()).collect();
    let voters = voters(&in_force);
    let mut needs = needs_of_voters(&voters);
    needs.push(Need {
        what: "writes, for want of a leader",
        by: Enough::any(kind::Leader, config.leaders().members()),
    });
    needs.extend(groups().map(|group| proxy_leader(group)));
    needs.extend(one::one_of_each(config.layout()));
    Service {
        parts: groups().map(|group| group.leaders().members()).collect(),
        voters: Some(voters),
        needs,
        memories: Vec::from([Memory {
            by: every(&latest, QuorumSystem::is_read_quorum),
            ..votes(kind::Acceptor, &config.all().quorums)
        }]),
        ..all
    }
}

/// The quorum systems of all groups.
type Quorums = Rc<[QuorumSystem]>;

/// The acceptors of all groups.
fn voters(quorums: &Quorums) -> Voters {
    Voters {
        write: every(quorums, QuorumSystem::is_write_quorum),
        read: every(quorums, QuorumSystem::is_read_quorum),
        is_log: false,
    }
}

/// Acceptors that are a quorum in every group.
fn every(quorums: &Quorums, is_quorum: fn(&QuorumSystem, AcceptorSet) -> bool) -> Enough {
    let members = quorums.iter().map(QuorumSystem::members);
    let all = members.fold(Set::EMPTY, Set::or);
    let quorums = quorums.clone();
    let is_enough = move |some: AcceptorSet| {
        let in_group = |group: &QuorumSystem| is_quorum(group, some.and(group.members()));
        quorums.iter().all(in_group)
    };
    Enough::new(kind::Acceptor, all, is_enough)
}

/// One of a group's.
fn proxy_leader(group: &multipaxos::config::Config) -> Need {
    let all: Set<ProxyLeaderId> = group.all(kind::ProxyLeader);
    Need {
        what: FOR_PROXY_LEADER,
        by: Enough::any(kind::ProxyLeader, all.members()),
    }
}
