//! What messages of relays are made of.

use crate::parts::message::Votes;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::Timestamp;
use ionian_kernel::trace::{Names, Subject};
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

/// What a leader says of itself now and then, and to whom: a relay passes it on. On the heap in
/// messages, as [`Terms`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Other leaders.
    pub leaders: Set<LeaderId>,
    /// Acceptors.
    pub acceptors: AcceptorSet,
    /// Replicas.
    pub replicas: Set<ReplicaId>,
    /// The leader's round.
    pub round: Round,
    /// Some replica has executed every slot below this one.
    pub executed: Slot,
    /// f+1 replicas keep every slot below this one.
    pub kept: Slot,
    /// Replicas are to keep what is below this slot through a crash as soon as it is executed.
    pub keep: Slot,
    /// What the leader would stamp into the log now.
    pub time: Timestamp,
}

wire_struct! { Beat { leaders, acceptors, replicas, round, executed, kept, keep, time } }

/// What acceptors have promised to a leader, and their votes: those of one, or of several together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The acceptors, and what the clock of each shows; zero says nothing.
    pub promised: Vec<(AcceptorId, Timestamp)>,
    /// Of each slot, the vote of the highest round among theirs, and the highest of what they have
    /// forgotten and of their watermarks.
    pub votes: Votes,
    /// The acceptors that did not answer, if the relay gave up waiting.
    pub missing: AcceptorSet,
}

wire_struct! { Promises { promised, votes, missing } }

/// The watermarks of several acceptors, or of one that knows what a replica of its node has
/// executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The relay that has asked the acceptors.
    pub relay: Option<RelayId>,
    /// The number of the inquiry.
    pub inquiry: u64,
    /// The acceptors that have answered.
    pub answered: AcceptorSet,
    /// The highest of their watermarks.
    pub watermark: Slot,
    /// The epoch of the highest round that each of them has promised.
    pub epoch: Epoch,
    /// The one of them beside the replica that has executed the most.
    pub ahead: AcceptorId,
    /// That replica has executed every slot below this one.
    pub executed: Slot,
    /// The acceptors that did not answer, if the relay gave up waiting.
    pub missing: AcceptorSet,
}

/// Traces follow the inquiry.
impl Names for Box<Watermarks> {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        self.inquiry.add_to(subject);
    }
}

wire_struct! {
    Watermarks { relay, inquiry, answered, watermark, epoch, ahead, executed, missing }
}
