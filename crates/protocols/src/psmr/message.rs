//! The messages of P-SMR: those of MultiPaxos within a group, and a few between groups.

use crate::multipaxos;
use ionian_kernel::client::Request;
use ionian_kernel::id::{ReplicaId, Slot};
use ionian_kernel::trace::Subject;
use ionian_kernel::{protocol, wire_enum};

/// A message to any role of this protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// To a client lane: its application wants this done.
    Submit {
        /// The command.
        request: Request,
    },
    /// To any role: a message of MultiPaxos in this group.
    InGroup {
        /// The number of the group.
        group: u8,
        /// The message.
        message: multipaxos::Message,
    },
    /// To a leader: all that g_all has proposed so far is below this slot.
    Announce {
        /// The slot of g_all.
        until: Slot,
    },
    /// To a leader: a replica waits for a marker in this group.
    WantMarker {
        /// The number of the group.
        group: u8,
        /// What the marker is to say at least: a slot of g_all.
        until: Slot,
    },
    /// To a leader: a replica waits for skips in this group, or in g_all.
    WantSkip {
        /// The number of the group.
        group: u8,
        /// The replica has the log below this slot.
        end: Slot,
        /// How many messages are missing.
        count: u64,
    },
    /// To a leader: a replica wants something to be executed in g_all.
    WantBarrier {
        /// A number by which it knows the command again; 0 if any command will do.
        number: u64,
    },
    /// To a replica: a peer needs the state of all logs.
    NeedState {
        /// The peer.
        from: ReplicaId,
        /// How far the peer has executed g_all.
        executed: Slot,
    },
}

wire_enum! { Message {
    0 => Submit { request },
    1 => InGroup { group, message },
    2 => Announce { until },
    3 => WantMarker { group, until },
    4 => WantBarrier { number },
    5 => NeedState { from, executed },
    6 => WantSkip { group, end, count },
} }

impl protocol::Message for Message {
    fn submit(request: Request) -> Self {
        Message::Submit { request }
    }

    fn kind(&self) -> u8 {
        use multipaxos::kind;
        match self {
            Message::Submit { .. } => kind::Client,
            Message::InGroup { message, .. } => protocol::Message::kind(message),
            Message::Announce { .. }
            | Message::WantMarker { .. }
            | Message::WantSkip { .. }
            | Message::WantBarrier { .. } => kind::Leader,
            Message::NeedState { .. } => kind::Replica,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Message::Submit { .. } => "client::Submit",
            Message::InGroup { message, .. } => protocol::Message::name(message),
            Message::Announce { .. } => "leader::Announce",
            Message::WantMarker { .. } => "leader::WantMarker",
            Message::WantSkip { .. } => "leader::WantSkip",
            Message::WantBarrier { .. } => "leader::WantBarrier",
            Message::NeedState { .. } => "replica::NeedState",
        }
    }

    fn subject(&self) -> Option<Subject<'_>> {
        match self {
            Message::InGroup { group, message } => {
                Some(protocol::Message::subject(message)?.in_log(*group))
            }
            _ => None,
        }
    }
}
