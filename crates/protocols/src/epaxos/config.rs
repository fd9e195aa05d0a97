//! Which layouts are deployments of EPaxos, and what every role needs to know of its own.

use super::kind;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::quorum_spec::QuorumSpec;

/// A layout that was checked, with what follows from it.
///
/// The quorums are those of Atlas (EuroSys 2020): of n acceptors f may fail. A fast quorum has
/// floor(n/2) + f members, f + 1 votes accept a value, and a recovery waits for n - f answers.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    acceptors: AcceptorSet,
    leaders: Set<LeaderId>,
    replicas: Set<ReplicaId>,
    /// By the number of an acceptor, the replicas on its node.
    beside: Vec<Set<ReplicaId>>,
    /// The replicas that no acceptor is beside.
    apart: Set<ReplicaId>,
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        check(&layout).map_err(LayoutError)?;
        let (mut beside, mut with) = (Vec::new(), Set::EMPTY);
        for (acceptor, node) in layout.places(kind::Acceptor).iter() {
            let here: Set<ReplicaId> = layout.near(kind::Replica, node);
            with = here.or(with);
            beside.resize(usize::from(acceptor) + 1, Set::EMPTY);
            beside[usize::from(acceptor)] = here;
        }
        let replicas: Set<ReplicaId> = layout.all(kind::Replica);
        Ok(Config {
            acceptors: layout.all(kind::Acceptor),
            leaders: layout.all(kind::Leader),
            apart: replicas.without(with),
            replicas,
            beside,
            layout,
        })
    }

    /// How many acceptors may fail.
    pub fn f(&self) -> usize {
        self.layout.f
    }

    /// How many members a fast quorum has, its leader's acceptor included. Two of them meet, also
    /// where no acceptor may fail.
    pub fn fast_quorum(&self) -> usize {
        let half = self.acceptors.len() / 2;
        half + self.f().max(1)
    }

    /// How many acceptors a command is recorded by, at least, before it is decided.
    pub fn majority(&self) -> usize {
        self.acceptors.len() / 2 + 1
    }

    /// From how many others an acceptor that has lost its memory copies what they have recorded:
    /// n - floor(n/2).
    pub fn copy_quorum(&self) -> usize {
        let n = self.acceptors.len();
        n - n / 2
    }

    /// How many votes accept a value.
    pub fn slow_quorum(&self) -> usize {
        self.f() + 1
    }

    /// How many answers a recovery waits for: they meet every set of votes that accepted a value.
    pub fn recovery_quorum(&self) -> usize {
        self.acceptors.len() - self.f()
    }

    /// All acceptors.
    pub fn acceptors(&self) -> AcceptorSet {
        self.acceptors
    }

    /// All leaders.
    pub fn leaders(&self) -> Set<LeaderId> {
        self.leaders
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.replicas
    }

    /// The acceptor on the node of a leader, which decides and testifies for it. They have the same
    /// number.
    pub fn acceptor_of(&self, leader: LeaderId) -> AcceptorId {
        AcceptorId(leader.0)
    }

    /// The leader on the node of an acceptor.
    pub fn leader_of(&self, acceptor: AcceptorId) -> LeaderId {
        LeaderId(acceptor.0)
    }

    /// The replicas on the node of an acceptor, which hands them what is decided.
    pub fn replicas_beside(&self, acceptor: AcceptorId) -> Set<ReplicaId> {
        let beside = self.beside.get(usize::from(acceptor.0));
        beside.copied().unwrap_or_default()
    }

    /// The replicas on nodes without an acceptor: they receive what is decided from those who
    /// decide.
    pub fn replicas_apart(&self) -> Set<ReplicaId> {
        self.apart
    }

    /// How many leaders come after `owner`, going round, before `leader`: that many let it have the
    /// first turn to recover what `owner` left unfinished.
    pub fn turns_after(&self, owner: LeaderId, leader: LeaderId) -> usize {
        let between = |id: &LeaderId| match leader > owner {
            true => *id > owner && *id < leader,
            false => *id > owner || *id < leader,
        };
        self.leaders.iter().filter(between).count()
    }

    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Tunables.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }
}

fn check(layout: &Layout) -> Result<(), String> {
    let (f, acceptors) = (layout.f, layout.count(kind::Acceptor));
    if layout.next.is_some() {
        return Err(super::UNCHANGEABLE.into());
    }
    if layout.quorums != QuorumSpec::Majority {
        return Err(
            "acceptors of epaxos have no grid and no groups: a fast quorum is any floor(n/2)+f of \
             them. Leave \"quorums\" out"
                .into(),
        );
    }
    if layout.count(kind::Client) == 0 {
        return Err(
            "there is no client: give at least one node a gateway or the role \"client\"".into(),
        );
    }
    if acceptors < 2 * f + 1 {
        return Err(format!(
            "{acceptors} acceptors: to tolerate f={f} there must be at least 2f+1 = {}",
            2 * f + 1
        ));
    }
    if layout.places(kind::Leader) != layout.places(kind::Acceptor) {
        return Err(
            "leaders and acceptors of epaxos come in pairs: give each node with a leader an \
             acceptor, and each node with an acceptor a leader"
                .into(),
        );
    }
    for (kind, name) in [(kind::Acceptor, "acceptor"), (kind::Replica, "replica")] {
        check_nodes(layout, kind, name)?;
    }
    Ok(())
}

/// A node with two instances takes both with it when it fails.
fn check_nodes(layout: &Layout, kind: u8, name: &str) -> Result<(), String> {
    let places = layout.places(kind);
    let nodes: BTreeSet<NodeId> = places.iter().map(|(_, node)| node).collect();
    if nodes.len() < layout.f + 1 {
        return Err(format!(
            "{name}s on {} nodes: to tolerate f={} they must be on at least f+1 = {}",
            nodes.len(),
            layout.f,
            layout.f + 1
        ));
    }
    if kind == kind::Acceptor && nodes.len() < layout.count(kind) {
        return Err(format!(
            "two {name}s are on one node: each must be on a node of its own"
        ));
    }
    Ok(())
}
