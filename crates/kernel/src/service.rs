//! What a protocol says of a cluster to those who operate it: what clients need to be served, who
//! leads, and what the cluster cannot lose.

use crate::id::{Id, Members, Set};
use crate::layout::Layout;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Instances of one kind, and which of them are enough for some purpose.
#[derive(Clone)]
pub struct Enough {
    /// The place of the kind among [`KINDS`](crate::protocol::Protocol::KINDS).
    pub kind: u8,
    /// The instances.
    pub of: Members,
    is_enough: Rc<dyn Fn(Members) -> bool>,
}

impl Enough {
    /// `is_enough` of the instances `of`.
    pub fn new<I: Id>(kind: u8, of: Set<I>, is_enough: impl Fn(Set<I>) -> bool + 'static) -> Self {
        Enough {
            kind,
            of: of.members(),
            is_enough: Rc::new(move |some| is_enough(Set::from_members(some))),
        }
    }

    /// One of the instances `of`.
    pub fn any(kind: u8, of: Members) -> Self {
        Enough {
            kind,
            of,
            is_enough: Rc::new(|some| !some.is_empty()),
        }
    }

    /// Whether these instances are enough.
    pub fn is_met(&self, by: Members) -> bool {
        (self.is_enough)(by.and(self.of))
    }
}

/// Something that clients need to be served.
pub struct Need {
    /// What is not served without it, and why: `writes, for want of a write quorum`.
    pub what: &'static str,
    /// The instances that do it.
    pub by: Enough,
}

/// What instances of a kind remember for each other: each can lose its part and get it back from
/// the others, while these are enough.
pub struct Memory {
    /// The instances, and which of them must remember.
    pub by: Enough,
    /// What one that has lost its part waits for, in words.
    pub waits: &'static str,
    /// What is to be said when too few remember: it is lost for good.
    pub lost: &'static str,
    /// Whether clients cannot be served without it.
    pub is_vital: bool,
}

/// Those whose votes order commands.
pub struct Voters {
    /// A leader orders when these follow it.
    pub write: Enough,
    /// These know all that was ever ordered.
    pub read: Enough,
    /// Whether the highest [`voted`](crate::status::Status::voted) of a read quorum is above all
    /// that was acknowledged. Where there is no log, only a replica can find out what that is.
    pub is_log: bool,
}

/// What a cluster needs, and what it cannot lose.
pub struct Service {
    /// The kind whose instances must be connected to all the others that are needed: what orders
    /// commands.
    pub hub: u8,
    /// For each part of what is led, the instances of the hub's kind that can lead it; empty where
    /// there is no leader to elect.
    pub parts: Vec<Members>,
    /// Those whose votes order commands; none where the hub alone does.
    pub voters: Option<Voters>,
    /// All that clients need.
    pub needs: Vec<Need>,
    /// What is remembered by several for each other.
    pub memories: Vec<Memory>,
}

/// Of each of these kinds, where there are any, one instance is needed.
pub fn one_of_each(layout: &Layout, kinds: &[(u8, &'static str)]) -> impl Iterator<Item = Need> {
    let all = move |kind| layout.places(kind).iter().map(|(index, _)| index).collect();
    let there = kinds.iter().map(move |(kind, what)| Need {
        what,
        by: Enough::any(*kind, all(*kind)),
    });
    there.filter(|need| !need.by.of.is_empty())
}
