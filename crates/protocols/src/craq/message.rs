//! What several messages are made of: the chain, and the steps that lead from one to the next.

use super::id::{ChainEpoch, ChainNodeId};
use alloc::vec::Vec;
use ionian_kernel::id::Set;
use ionian_kernel::{wire_enum, wire_struct};

/// A member of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: ChainNodeId,
    /// Which of its lives: a node that has lost its memory is another member.
    pub life: u64,
    /// Whether it holds all that was acknowledged. Only the last member may lack that.
    pub full: bool,
}

wire_struct! { Member { node, life, full } }

/// A node that is no member for a while, and has all that was acknowledged, because nothing is
/// acknowledged meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// As the member that it was, and may be again.
    pub member: Member,
    /// Whether its place was before that of the last member but one, and not behind it.
    pub before: bool,
}

wire_struct! { Aside { member, before } }

/// A configuration of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// How many steps came before.
    pub epoch: ChainEpoch,
    /// The members, from the head to the tail.
    pub members: Vec<Member>,
    /// While the last member is not full: one that was taken out for its sake.
    pub aside: Option<Aside>,
}

wire_struct! { Chain { epoch, members, aside } }

impl Chain {
    /// The chain that a cluster begins with: all nodes in the order of their numbers.
    pub fn founding(nodes: Set<ChainNodeId>) -> Self {
        let member = |node| Member {
            node,
            life: FIRST_LIFE,
            full: true,
        };
        Chain {
            epoch: ChainEpoch::ZERO,
            members: nodes.iter().map(member).collect(),
            aside: None,
        }
    }

    /// Where a node stands in this life, if it does.
    pub fn place(&self, node: ChainNodeId, life: u64) -> Option<usize> {
        let is_it = |member: &Member| member.node == node && member.life == life;
        self.members.iter().position(is_it)
    }

    /// Whether a node stands aside in this life.
    pub fn is_aside(&self, node: ChainNodeId, life: u64) -> bool {
        let aside = self.aside.as_ref().map(|aside| aside.member);
        aside.is_some_and(|member| member.node == node && member.life == life)
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

    /// The members that hold all that was acknowledged.
    pub fn full(&self) -> Set<ChainNodeId> {
        let full = self.members.iter().filter(|member| member.full);
        full.map(|member| member.node).collect()
    }

    /// Whether it comes later than `other`. Within an epoch members become full, and stay so.
    pub fn is_later_than(&self, other: &Chain) -> bool {
        let order = |chain: &Chain| (chain.epoch, chain.full().len());
        order(self) > order(other)
    }
}

/// The life of a node that has lost nothing.
pub const FIRST_LIFE: u64 = 1;

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
    /// A node has nearly all that is committed, and is to become the tail.
    Ready {
        /// Of the chain of this epoch.
        epoch: ChainEpoch,
        /// The node.
        node: ChainNodeId,
        /// Its life.
        life: u64,
    },
    /// A member holds all that was acknowledged before this epoch began.
    Full {
        /// Of the chain of this epoch.
        epoch: ChainEpoch,
        /// The node.
        node: ChainNodeId,
        /// Its life.
        life: u64,
    },
}

wire_enum! { Step {
    0 => Suspect { epoch, from, life, node },
    1 => Begin { node, life },
    2 => Ready { epoch, node, life },
    3 => Full { epoch, node, life },
} }
