//! Which layouts are deployments of EPaxos, and what every role needs to know of its own.

mod check;

use super::duty::Duty;
use super::instance::InstanceId;
use super::{Envelope, acceptor, kind};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, Options};
use ionian_kernel::level::Level;
use ionian_kernel::quorum_spec::QuorumSpec;

/// Since this level replicas report their progress to leaders.
const PROGRESS_SINCE: Level = Level(18);

/// A layout that was checked, with what follows from it.
///
/// Where leaders and acceptors are paired, the quorums are those of Atlas (EuroSys 2020): of n
/// acceptors f may fail. A fast quorum has floor(n/2) + f members, f + 1 votes accept a value, and
/// a recovery waits for n - f answers. Where the roles are apart, there is no fast path: a majority
/// of dependency nodes records a command, and a majority of the acceptors of its group accepts it.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    is_apart: bool,
    /// Those that record commands.
    recorders: AcceptorSet,
    /// Those that vote, in groups. Instances take turns with them.
    groups: Vec<AcceptorSet>,
    leaders: Set<LeaderId>,
    replicas: Set<ReplicaId>,
    /// By the number of an acceptor, the replicas on its node, where it hands them decisions.
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
        let is_apart = check::is_apart(&layout);
        check::check(&layout).map_err(LayoutError)?;
        let replicas: Set<ReplicaId> = layout.all(kind::Replica);
        let acceptors: AcceptorSet = layout.all(kind::Acceptor);
        let mut config = Config {
            is_apart,
            recorders: acceptors,
            groups: groups_of(acceptors, layout.quorums),
            leaders: layout.all(kind::Leader),
            apart: replicas,
            replicas,
            beside: Vec::new(),
            layout,
        };
        match is_apart {
            true => config.recorders = config.layout.all(kind::DependencyNode),
            false => config.find_neighbours(),
        }
        Ok(config)
    }

    fn find_neighbours(&mut self) {
        for (acceptor, node) in self.layout.places(kind::Acceptor).iter() {
            let here: Set<ReplicaId> = self.layout.near(kind::Replica, node);
            self.apart = self.apart.without(here);
            self.beside.resize(usize::from(acceptor) + 1, Set::EMPTY);
            self.beside[usize::from(acceptor)] = here;
        }
    }

    /// How many acceptors may fail.
    pub fn f(&self) -> usize {
        self.layout.f
    }

    /// Whether dependency nodes and acceptors are apart, and proxy leaders run phase 2.
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// What an instance of this kind does.
    pub fn duty(&self, kind: u8) -> Duty {
        Duty::of(kind, self.is_apart)
    }

    /// What those do that record commands.
    pub fn recording(&self) -> Duty {
        self.duty(self.recorder_kind())
    }

    /// What those do that vote.
    pub fn voting(&self) -> Duty {
        self.duty(kind::Acceptor)
    }

    /// The kind of those that record commands.
    pub fn recorder_kind(&self) -> u8 {
        match self.is_apart {
            true => kind::DependencyNode,
            false => kind::Acceptor,
        }
    }

    /// How many are asked to record a command: with paired leaders a fast quorum, the acceptor of
    /// the leader included. Two of them meet, also where no acceptor may fail.
    pub fn fast_quorum(&self) -> usize {
        match self.is_apart {
            true => self.majority(),
            false => self.recorders.len() / 2 + self.f().max(1),
        }
    }

    /// How many record a command, at least, before it is decided.
    pub fn majority(&self) -> usize {
        self.recorders.len() / 2 + 1
    }

    /// From how many of these, itself included, one that has lost its memory copies what they have
    /// recorded: n - floor(n/2).
    pub fn copy_quorum(&self, peers: AcceptorSet) -> usize {
        let n = peers.len();
        n - n / 2
    }

    /// How many votes accept a value for an instance.
    pub fn slow_quorum(&self, id: InstanceId) -> usize {
        match self.is_apart {
            true => self.voters(id).len() / 2 + 1,
            false => self.f() + 1,
        }
    }

    /// How many answers a recovery waits for: they meet every set of votes that accepted a value.
    pub fn recovery_quorum(&self, id: InstanceId) -> usize {
        match self.is_apart {
            true => self.voters(id).len() / 2 + 1,
            false => self.recorders.len() - self.f(),
        }
    }

    /// Those that record commands: acceptors, or dependency nodes.
    pub fn recorders(&self) -> AcceptorSet {
        self.recorders
    }

    /// The acceptors that vote for an instance.
    pub fn voters(&self, id: InstanceId) -> AcceptorSet {
        self.groups[(id.number % self.groups.len() as u64) as usize]
    }

    /// The acceptors in groups.
    pub fn groups(&self) -> &[AcceptorSet] {
        &self.groups
    }

    /// All acceptors.
    pub fn acceptors(&self) -> AcceptorSet {
        self.layout.all(kind::Acceptor)
    }

    /// Those that know the same instances as this one, itself included.
    pub fn peers(&self, duty: Duty, id: AcceptorId) -> AcceptorSet {
        let in_group = || self.groups.iter().find(|group| group.contains(id));
        match duty {
            Duty::Votes {} => in_group().copied().unwrap_or_default(),
            Duty::All {} | Duty::Records {} => self.recorders,
        }
    }

    /// A message to those that record commands.
    pub fn to_recorders(&self, to: AcceptorSet, message: acceptor::In) -> Envelope {
        self.recording().envelope(to, message)
    }

    /// All leaders.
    pub fn leaders(&self) -> Set<LeaderId> {
        self.leaders
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.replicas
    }

    /// The acceptor on the node of a leader, which decides and testifies for it: they have the same
    /// number. None where the roles are apart.
    pub fn acceptor_of(&self, leader: LeaderId) -> Option<AcceptorId> {
        (!self.is_apart).then_some(AcceptorId(leader.0))
    }

    /// The leader on the node of an acceptor, where they are paired.
    pub fn leader_of(&self, acceptor: AcceptorId) -> Option<LeaderId> {
        (!self.is_apart).then_some(LeaderId(acceptor.0))
    }

    /// The replicas on the node of an acceptor that is paired with a leader: it hands them what is
    /// decided.
    pub fn replicas_beside(&self, acceptor: AcceptorId) -> Set<ReplicaId> {
        let beside = self.beside.get(usize::from(acceptor.0));
        beside.copied().unwrap_or_default()
    }

    /// The other replicas: they receive what is decided from those who decide.
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

    /// Whether replicas report to leaders what they have executed of their spaces: programs of
    /// earlier levels do not know the message, and the level of a cluster does not change.
    pub fn reports_progress(&self) -> bool {
        self.layout.founding_level >= PROGRESS_SINCE
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

/// The acceptors in groups of equal size, in order.
fn groups_of(acceptors: AcceptorSet, quorums: QuorumSpec) -> Vec<AcceptorSet> {
    let groups = match quorums {
        QuorumSpec::Groups { groups } => groups,
        _ => 1,
    };
    let all: Vec<AcceptorId> = acceptors.iter().collect();
    let of = |group: &[AcceptorId]| group.iter().copied().collect();
    all.chunks(all.len() / groups).map(of).collect()
}
