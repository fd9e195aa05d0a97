//! What several messages are made of: the chain, and the steps that lead from one to the next.

use super::id::{ChainEpoch, ChainNodeId};
use alloc::vec::Vec;
use ionian_kernel::id::{Epoch, Set};
use ionian_kernel::{wire_enum, wire_struct};

/// A member of the chain. It holds everything that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: ChainNodeId,
    /// Which of its lives: a node that has lost its memory is another member.
    pub life: u64,
}

wire_struct! { Member { node, life } }

/// Which announcement: the epoch and the revision of the chain that had it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// The epoch.
    pub epoch: ChainEpoch,
    /// The revision.
    pub revision: u64,
}

wire_struct! { Announcement { epoch, revision } }

/// A member that is suspected, where there are leases: no inquiry gives it one any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The member.
    pub node: ChainNodeId,
    /// The member that suspects it.
    pub by: ChainNodeId,
    /// The announcement.
    pub announced: Announcement,
}

wire_struct! { Leaving { node, by, announced } }

/// A configuration of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// How many chains of other members came before.
    pub epoch: ChainEpoch,
    /// How many steps have changed this one, and not which its members are.
    pub revision: u64,
    /// The members, from the head to the tail.
    pub members: Vec<Member>,
    /// Members that are announced as leaving, each once.
    pub leaving: Vec<Leaving>,
}

wire_struct! { Chain { epoch, revision, members, leaving } }

impl Chain {
    /// The chain that a cluster begins with: all nodes in the order of their numbers.
    pub fn founding(nodes: Set<ChainNodeId>) -> Self {
        let member = |node| Member {
            node,
            life: FIRST_LIFE,
        };
        Chain {
            members: nodes.iter().map(member).collect(),
            ..Chain::default()
        }
    }

    /// Where a node stands in this life, if it does.
    pub fn place(&self, node: ChainNodeId, life: u64) -> Option<usize> {
        let is_it = |member: &Member| member.node == node && member.life == life;
        self.members.iter().position(is_it)
    }

    /// Where a node stands, if it does, in whichever life.
    pub fn place_of(&self, node: ChainNodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// The announcement that a member is leaving, if there is one.
    pub fn leaving_of(&self, node: ChainNodeId) -> Option<&Leaving> {
        self.leaving.iter().find(|leaving| leaving.node == node)
    }

    /// The node of the member at this place.
    pub fn at(&self, place: usize) -> Option<ChainNodeId> {
        self.members.get(place).map(|member| member.node)
    }

    /// The first member.
    pub fn head(&self) -> Option<ChainNodeId> {
        self.at(0)
    }

    /// The last member.
    pub fn tail(&self) -> Option<ChainNodeId> {
        self.members.last().map(|member| member.node)
    }

    /// The nodes of the members.
    pub fn nodes(&self) -> Set<ChainNodeId> {
        self.members.iter().map(|member| member.node).collect()
    }

    /// Its place among all chains that the master has decided.
    pub fn order(&self) -> (ChainEpoch, u64) {
        (self.epoch, self.revision)
    }

    /// Whether it comes later than `other`.
    pub fn is_later_than(&self, other: &Chain) -> bool {
        self.order() > other.order()
    }
}

/// The life of a node that has lost nothing, of the cluster's first nodes.
pub const FIRST_LIFE: u64 = 1;

/// The first life of a node that begins in this epoch of the membership. Numbers of nodes that have
/// left are given again, to others: so lives say when they began.
pub const fn first_life(epoch: Epoch) -> u64 {
    ((epoch.0 as u64) << 32) + FIRST_LIFE
}

/// The epoch of the membership in which a node began that is in this life.
pub const fn birth_of(life: u64) -> Epoch {
    Epoch((life >> 32) as u32)
}

/// A command of the master's log: a step from one chain to the next, if it fits that chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A member takes another one for dead.
    Suspect {
        /// In the chain of this epoch.
        epoch: ChainEpoch,
        /// The member that says so.
        from: ChainNodeId,
        /// Its life.
        life: u64,
        /// The member that is to be removed.
        node: ChainNodeId,
    },
    /// A node has begun this life, so the earlier ones are over.
    Begin {
        /// The node.
        node: ChainNodeId,
        /// Its life.
        life: u64,
    },
    /// A node holds all that a member holds, which is sealed in this epoch: it becomes the next
    /// member behind that one.
    Join {
        /// Of the chain of this epoch.
        epoch: ChainEpoch,
        /// The node.
        node: ChainNodeId,
        /// Its life.
        life: u64,
        /// The sealed member.
        behind: ChainNodeId,
    },
    /// A member that is sealed in this epoch goes on in the next one, which has the same members.
    Renew {
        /// The epoch.
        epoch: ChainEpoch,
        /// The member, or the node that has had it sealed.
        from: ChainNodeId,
        /// Its life.
        life: u64,
    },
    /// The leases are over that a member had which was announced as leaving: it is to be removed.
    Remove {
        /// The member that has waited for that.
        from: ChainNodeId,
        /// Its life.
        life: u64,
        /// The announcement.
        announced: Announcement,
    },
    /// The member that had another announced as leaving takes it for dead no longer.
    Withdraw {
        /// The first of them.
        from: ChainNodeId,
        /// Its life.
        life: u64,
        /// The announcement.
        announced: Announcement,
    },
    /// The membership of the cluster has changed, or is changing.
    Members {
        /// The epoch of the membership.
        epoch: Epoch,
        /// The chain nodes, before the change that is under way.
        now: Set<ChainNodeId>,
        /// Those after it, if one is.
        next: Option<Set<ChainNodeId>>,
    },
}

wire_enum! { Step {
    0 => Suspect { epoch, from, life, node },
    1 => Begin { node, life },
    2 => Join { epoch, node, life, behind },
    3 => Renew { epoch, from, life },
    4 => Remove { from, life, announced },
    5 => Withdraw { from, life, announced },
    6 => Members { epoch, now, next },
} }
