//! Which chain nodes count: those that suspicions must leave in the chain.
//!
//! A suspicion leaves `least` members (`master.rs`). While the membership of the cluster is
//! changing the change can be abandoned at any moment, so these must be nodes of the configuration
//! before: a node that is new does not count. When each new node is a member, and `least` nodes of
//! the configuration to come are, the chain is *handed over*: from then on `least` of both remain,
//! whatever is suspected. Only then is the change finished (`chain_node/changing.rs`). So at the
//! moment at which one of the two configurations ends, `least` nodes of the other hold everything
//! that was acknowledged.

use super::id::ChainNodeId;
use super::message::{Chain, first_life};
use alloc::vec::Vec;
use ionian_kernel::id::{Epoch, Set};
use ionian_kernel::wire_struct;

/// See the top of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The epoch of the membership.
    pub epoch: Epoch,
    /// The chain nodes, before the change that is under way.
    pub now: Set<ChainNodeId>,
    /// Those after it, if one is.
    pub next: Option<Set<ChainNodeId>>,
    /// Whether those after it have what they need of the chain.
    pub handed_over: bool,
    /// The latest life that is known of each node that has asked for something.
    pub lives: Vec<(ChainNodeId, u64)>,
}

wire_struct! { Roster { epoch, now, next, handed_over, lives } }

impl Roster {
    /// That of a cluster whose membership has not changed.
    pub fn founding(nodes: Set<ChainNodeId>) -> Self {
        Roster {
            now: nodes,
            ..Roster::default()
        }
    }

    /// The membership is another now: what is known of lives stays.
    pub(super) fn follow(
        &mut self,
        epoch: Epoch,
        (now, next): (Set<ChainNodeId>, Option<Set<ChainNodeId>>),
    ) {
        if epoch > self.epoch {
            let lives = core::mem::take(&mut self.lives);
            *self = Roster {
                epoch,
                now,
                next,
                handed_over: false,
                lives,
            };
        }
    }

    /// A node says that it is in this life; whether it is in no later one.
    pub(super) fn hear(&mut self, node: ChainNodeId, life: u64) -> bool {
        match self.lives.iter_mut().find(|(known, _)| *known == node) {
            Some((_, known)) => {
                *known = life.max(*known);
                *known == life
            }
            None => {
                self.lives.push((node, life));
                true
            }
        }
    }

    /// Whether it is a node of a configuration that is in force.
    pub(super) fn lists(&self, node: ChainNodeId) -> bool {
        self.now.or(self.next.unwrap_or_default()).contains(node)
    }

    /// Hands the chain over, if the nodes after the change have what they need: each new one, and
    /// `least` in all.
    pub(super) fn hand_over(&mut self, chain: &Chain, least: usize) {
        let Some(next) = self.next else {
            return;
        };
        // A member of that number may be one that had it before, and has left.
        let began = first_life(self.epoch);
        let is_new = |node| next.contains(node) && !self.now.contains(node);
        let members = chain.members.iter();
        let here = members.filter(|it| it.life >= began || !is_new(it.node));
        let here: Set<ChainNodeId> = here.map(|member| member.node).collect();
        self.handed_over |= here.covers(next.without(self.now)) && here.and(next).len() >= least;
    }

    /// The sets of which suspicions leave `least` nodes in the chain.
    fn counted(&self) -> impl Iterator<Item = Set<ChainNodeId>> {
        let next = self.next.filter(|_| self.handed_over);
        [Some(self.now), next].into_iter().flatten()
    }

    /// Whether suspicions may remove the member at this place, and leave this number of members.
    pub fn spares(&self, chain: &Chain, place: usize, least: usize) -> bool {
        let node = chain.members[place].node;
        let others = chain.nodes().without(Set::one(node));
        let mut counted = self.counted().filter(|counted| counted.contains(node));
        !others.is_empty() && counted.all(|counted| others.and(counted).len() >= least)
    }
}
