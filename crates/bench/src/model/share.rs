//! Which part of the commands each instance takes part in, read off the layout by the rules that
//! the roles go by.

use super::Workload;
use super::demand::Kind;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::id::{Id, MAX_INSTANCES, Set, UnbatcherId};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::multipaxos::{self, kind};
use ionian_protocols::unreplicated::{self, Unreplicated};
use ionian_protocols::{mencius, spaxos};
use ionian_replication::quorum::QuorumSystem;

/// A part of all commands, for which an instance spends what its role does on one of this kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// The role, by its name in a deployment file.
    pub(crate) role: &'static str,
    /// Where the instance lives.
    pub(crate) node: NodeId,
    /// What is asked of it.
    pub(crate) kind: Kind,
    /// The part, of reads and writes together.
    pub(crate) part: f64,
}

/// Quorums are dealt out in turns; after this many every pattern has occurred (a multiple of 1 to
/// 10).
const TURNS: u64 = 2520;

/// The shares of a deployment of MultiPaxos whose leader is the first.
pub(crate) fn multipaxos(config: &multipaxos::config::Config, workload: &Workload) -> Vec<Share> {
    let mut shares = Shares::of(config.layout(), multipaxos::KINDS);
    shares.deal(kind::Batcher, Kind::Write, 1.0 - workload.read_fraction);
    shares.agreement(&config.quorums, workload, 1);
    shares.shares
}

/// The shares of a deployment of Mencius whose leaders lead as much as each other, each its own
/// stripe.
pub(crate) fn mencius(
    config: &mencius::config::Config,
    layout: &Layout,
    workload: &Workload,
) -> Vec<Share> {
    let mut shares = Shares::of(layout, mencius::Mencius::KINDS);
    shares.deal(kind::Batcher, Kind::Write, 1.0 - workload.read_fraction);
    let quorums = &config.of(mencius::stripe::Stripe(0)).quorums;
    shares.agreement(quorums, workload, config.stripes.count());
    shares.shares
}

/// The shares of a deployment of S-Paxos whose leader is the first. A disseminator beside a leader,
/// which has a little less to do for itself and a little more for the others, counts as the others
/// do.
pub(crate) fn spaxos(config: &spaxos::config::Config, workload: &Workload) -> Vec<Share> {
    use spaxos::kind;
    let writes = 1.0 - workload.read_fraction;
    let mut shares = Shares::of(config.ordering.layout(), multipaxos::KINDS);
    shares.agreement(&config.ordering.quorums, workload, 1);
    let mut payloads = Shares::of(config.layout(), spaxos::SPaxos::KINDS);
    payloads.deal(kind::Batcher, Kind::Write, writes);
    payloads.deal(kind::Disseminator, Kind::Write, writes);
    // Those beside replicas have every payload, and hand it to these.
    let beside: Set<_> = config
        .beside()
        .iter()
        .map(|(stabilizer, _)| *stabilizer)
        .collect();
    let disseminators = config.layout().places(kind::Disseminator);
    for (_, node) in disseminators.iter() {
        let near = config.near(kind::Stabilizer, node);
        let quorum = |turn| {
            Some(
                config
                    .stabilizers
                    .write_quorum(config.stabilizers.members(), near, turn)?
                    .or(beside),
            )
        };
        let part = writes / config.layout().count(kind::Disseminator) as f64;
        payloads.quorums(kind::Stabilizer, Kind::Store, part, quorum);
    }
    if beside.is_empty() {
        payloads.deal(kind::Stabilizer, Kind::Deliver, writes);
    }
    for stabilizer in beside.iter() {
        payloads.add(
            Address {
                kind: kind::Stabilizer,
                index: stabilizer.0,
            },
            Kind::Deliver,
            writes,
        );
    }
    shares.shares.extend(payloads.shares);
    shares.shares
}

/// The shares of a deployment of the unreplicated server.
pub(crate) fn unreplicated(layout: &Layout, workload: &Workload) -> Vec<Share> {
    let mut shares = Shares::of(layout, Unreplicated::KINDS);
    let writes = 1.0 - workload.read_fraction;
    shares.deal(unreplicated::kind::Batcher, Kind::Write, writes);
    shares.deal(unreplicated::kind::Server, Kind::Write, writes);
    shares.deal(
        unreplicated::kind::Server,
        Kind::Read,
        workload.read_fraction,
    );
    shares.deal(unreplicated::kind::Unbatcher, Kind::Write, writes);
    shares.shares
}

struct Shares<'a> {
    layout: &'a Layout,
    roles: &'static [&'static str],
    shares: Vec<Share>,
}

impl<'a> Shares<'a> {
    fn of(layout: &'a Layout, roles: &'static [&'static str]) -> Self {
        Shares {
            layout,
            roles,
            shares: Vec::new(),
        }
    }

    fn add(&mut self, address: Address, kind: Kind, part: f64) {
        let node = self
            .layout
            .node_of(address)
            .expect("it is one of the layout");
        if part > 0.0 {
            self.shares.push(Share {
                role: self.roles[usize::from(address.kind)],
                node,
                kind,
                part,
            });
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

    fn quorums<I: Id>(
        &mut self,
        role: u8,
        kind: Kind,
        part: f64,
        quorum: impl Fn(u64) -> Option<Set<I>>,
    ) {
        let mut asked = [0_u64; MAX_INSTANCES];
        for member in (0..TURNS).filter_map(quorum).flat_map(Set::iter) {
            asked[usize::from(member.index())] += 1;
        }
        for (index, asked) in (0..).zip(asked).filter(|(_, asked)| *asked > 0) {
            self.add(
                Address { kind: role, index },
                kind,
                part * asked as f64 / TURNS as f64,
            );
        }
    }

    /// What the roles of MultiPaxos from the leader on do, of which the first `leading` lead as
    /// much as each other.
    fn agreement(&mut self, quorums: &QuorumSystem, workload: &Workload, leading: usize) {
        let (writes, reads) = (1.0 - workload.read_fraction, workload.read_fraction);
        let layout = self.layout;
        for (leader, leader_node) in layout.places(kind::Leader).iter().take(leading) {
            let part = writes / leading as f64;
            self.add(
                Address {
                    kind: kind::Leader,
                    index: leader,
                },
                Kind::Write,
                part,
            );
            // A leader prefers the proxy leaders of its own node, and a proxy leader the acceptors
            // of its.
            let proxies: Set<ionian_kernel::id::ProxyLeaderId> =
                layout.preferred(kind::ProxyLeader, leader_node);
            for proxy in proxies.iter() {
                let address = Address {
                    kind: kind::ProxyLeader,
                    index: proxy.0,
                };
                let part = part / proxies.len() as f64;
                self.add(address, Kind::Write, part);
                let node = layout.node_of(address).expect("it is one of the layout");
                let near = layout.near(kind::Acceptor, node);
                let quorum = |turn| quorums.write_quorum(quorums.members(), near, turn);
                self.quorums(kind::Acceptor, Kind::Write, part, quorum);
            }
        }
        if workload.read_level == ReadLevel::Linearizable {
            self.deal(kind::ReadBatcher, Kind::Read, reads);
            let quorum = |turn| quorums.read_quorum(quorums.members(), Set::EMPTY, turn);
            self.quorums(kind::Acceptor, Kind::Read, reads, quorum);
        }
        for (index, _) in layout.places(kind::Replica).iter() {
            self.add(
                Address {
                    kind: kind::Replica,
                    index,
                },
                Kind::Execute,
                writes,
            );
        }
        self.deal(kind::Replica, Kind::Answer, writes);
        self.deal(kind::Replica, Kind::Read, reads);
        let unbatchers: Set<UnbatcherId> = layout.all(kind::Unbatcher);
        if !unbatchers.is_empty() {
            self.deal(kind::Unbatcher, Kind::Write, writes + reads);
        }
    }
}
