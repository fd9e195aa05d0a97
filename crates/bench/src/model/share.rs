//! Which part of the commands each instance takes part in, read off the layout by the rules that the roles go by.

use super::Workload;
use super::demand::Kind;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::id::{AcceptorId, AcceptorSet, Set, UnbatcherId};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::quorum::QuorumSystem;
use ionian_protocols::multipaxos::kind;
use ionian_protocols::unreplicated;

/// A part of all commands, for which an instance spends what its role does on one of this kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// Who.
    pub(crate) address: Address,
    /// Where it lives.
    pub(crate) node: NodeId,
    /// What is asked of it.
    pub(crate) kind: Kind,
    /// The part, of reads and writes together.
    pub(crate) part: f64,
}

/// Quorums are dealt out in turns; after so many every pattern has come round (a multiple of 1 to 10).
const TURNS: u64 = 2520;

/// The shares of a deployment of MultiPaxos whose leader is the first.
pub(crate) fn multipaxos(layout: &Layout, quorums: &QuorumSystem, workload: &Workload) -> Vec<Share> {
    let (writes, reads) = (1.0 - workload.read_fraction, workload.read_fraction);
    let mut shares = Shares { layout, shares: Vec::new() };
    shares.deal(kind::Batcher, Kind::Write, writes);
    let leaders = layout.places(kind::Leader);
    let Some((leader, leader_node)) = leaders.iter().next() else { return shares.shares };
    shares.add(Address { kind: kind::Leader, index: leader }, Kind::Write, writes);
    // A leader prefers the proxy leaders of its own node, and a proxy leader the acceptors of its.
    let proxies: Set<ionian_kernel::id::ProxyLeaderId> = layout.preferred(kind::ProxyLeader, leader_node);
    for proxy in proxies.iter() {
        let address = Address { kind: kind::ProxyLeader, index: proxy.0 };
        let part = writes / proxies.len() as f64;
        shares.add(address, Kind::Write, part);
        let node = layout.node_of(address).expect("it is one of the layout");
        let near = layout.near(kind::Acceptor, node);
        shares.quorums(Kind::Write, part, |turn| quorums.write_quorum(quorums.members(), near, turn));
    }
    if workload.read_level == ReadLevel::Linearizable {
        shares.deal(kind::ReadBatcher, Kind::Read, reads);
        let quorum = |turn| quorums.read_quorum(quorums.members(), AcceptorSet::EMPTY, turn);
        shares.quorums(Kind::Read, reads, quorum);
    }
    for (index, _) in layout.places(kind::Replica).iter() {
        shares.add(Address { kind: kind::Replica, index }, Kind::Execute, writes);
    }
    shares.deal(kind::Replica, Kind::Answer, writes);
    shares.deal(kind::Replica, Kind::Read, reads);
    let unbatchers: Set<UnbatcherId> = layout.all(kind::Unbatcher);
    if !unbatchers.is_empty() {
        shares.deal(kind::Unbatcher, Kind::Write, writes + reads);
    }
    shares.shares
}

/// The shares of a deployment of the unreplicated server.
pub(crate) fn unreplicated(layout: &Layout, workload: &Workload) -> Vec<Share> {
    let mut shares = Shares { layout, shares: Vec::new() };
    let writes = 1.0 - workload.read_fraction;
    shares.deal(unreplicated::kind::Batcher, Kind::Write, writes);
    shares.deal(unreplicated::kind::Server, Kind::Write, writes);
    shares.deal(unreplicated::kind::Server, Kind::Read, workload.read_fraction);
    shares.deal(unreplicated::kind::Unbatcher, Kind::Write, writes);
    shares.shares
}

struct Shares<'a> {
    layout: &'a Layout,
    shares: Vec<Share>,
}

impl Shares<'_> {
    fn add(&mut self, address: Address, kind: Kind, part: f64) {
        let node = self.layout.node_of(address).expect("it is one of the layout");
        if part > 0.0 {
            self.shares.push(Share { address, node, kind, part });
        }
    }

    /// Each command goes to one instance of a role, in turn.
    fn deal(&mut self, role: u8, kind: Kind, part: f64) {
        let places = self.layout.places(role);
        let count = self.layout.count(role) as f64;
        for (index, _) in places.iter() {
            self.add(Address { kind: role, index }, kind, part / count);
        }
    }

    fn quorums(&mut self, kind: Kind, part: f64, quorum: impl Fn(u64) -> Option<AcceptorSet>) {
        let mut asked = [0_u64; ionian_kernel::id::MAX_INSTANCES];
        for AcceptorId(acceptor) in (0..TURNS).filter_map(quorum).flat_map(AcceptorSet::iter) {
            asked[usize::from(acceptor)] += 1;
        }
        for (index, asked) in (0..).zip(asked).filter(|(_, asked)| *asked > 0) {
            let address = Address { kind: ionian_protocols::multipaxos::kind::Acceptor, index };
            self.add(address, kind, part * asked as f64 / TURNS as f64);
        }
    }
}
