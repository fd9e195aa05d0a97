//! What messages of relays are made of.

use alloc::boxed::Box;
use ionian_kernel::id::*;
use ionian_kernel::{ids, wire_enum, wire_struct};

ids! {
    /// A relay.
    RelayId "relay"
}

/// Who asks acceptors for votes, or a relay to ask them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requester {
    /// A proxy leader.
    ProxyLeader {
        /// The proxy leader.
        id: ProxyLeaderId,
    },
    /// A relay, of the group or of the layer above.
    Relay {
        /// The relay.
        id: RelayId,
    },
}

wire_enum! { Requester { 0 => ProxyLeader { id }, 1 => Relay { id } } }

/// Slots in a row in which values of one round are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: Slot,
    /// How many.
    pub count: u64,
    /// The replica that answers the clients of all of them.
    pub replier: ReplicaId,
}

wire_struct! { Run { start, count, replier } }

/// Which acceptors a relay is to ask, and on what terms. On the heap in messages: these are moved
/// often, and each costs more, the larger the largest of them is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The acceptors.
    pub members: AcceptorSet,
    /// The number of them for which it need not wait.
    pub slack: u8,
    /// In microseconds: for how long the requester waits at most.
    pub patience: u64,
    /// Slots in which values of the round are chosen.
    pub chosen: Box<[Run]>,
}

wire_struct! { Terms { members, slack, patience, chosen } }

/// The most slots that one message says are chosen. Of a message that says more, an acceptor takes
/// in this many.
pub const MAX_CHOSEN: u64 = 1 << 12;
