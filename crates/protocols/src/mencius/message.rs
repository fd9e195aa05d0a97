//! What several messages are made of, and what stands here for messages of the roles of MultiPaxos
//! that Mencius takes over as they are.

use super::stripe::{Stripe, StripePosition, Stripes};
use super::{Envelope, acceptor, leader, proxy_leader, replica};
use crate::multipaxos;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::wire_struct;

/// Positions that the leader of a round may have made noops without a vote. Nothing that was voted
/// for in them in lower rounds can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The round.
    pub round: Round,
    /// The first position.
    pub start: StripePosition,
    /// The position after the last.
    pub end: StripePosition,
}

wire_struct! { Reserved { round, start, end } }

impl Reserved {
    /// Whether this reservation stands for the other one.
    pub(super) fn covers(&self, other: &Reserved) -> bool {
        self.round >= other.round && self.start <= other.start && self.end >= other.end
    }
}

/// What stands here for an envelope of MultiPaxos in a stripe. Readers and replicas learn of
/// slots of the log.
pub fn striped(stripes: Stripes, stripe: Stripe, envelope: multipaxos::Envelope) -> Envelope {
    use multipaxos::Envelope as Theirs;
    match envelope {
        Theirs::ToClients(clients, message) => Envelope::ToClients(clients, message),
        Theirs::ToBatchers(batchers, message) => Envelope::ToBatchers(batchers, message),
        Theirs::ToReadBatchers(batchers, message) => Envelope::ToReadBatchers(batchers, message),
        Theirs::ToLeaders(leaders, message) => {
            Envelope::ToLeaders(leaders, to_leaders(stripe, message))
        }
        Theirs::ToProxyLeaders(proxies, message) => {
            Envelope::ToProxyLeaders(proxies, proxy_leader::In::InStripe { stripe, message })
        }
        Theirs::ToAcceptors(acceptors, message) => {
            Envelope::ToAcceptors(acceptors, to_acceptors(stripe, message))
        }
        Theirs::ToReplicas(replicas, message) => {
            Envelope::ToReplicas(replicas, to_replicas(stripes, stripe, message))
        }
        Theirs::ToUnbatchers(unbatchers, message) => Envelope::ToUnbatchers(unbatchers, message),
        Theirs::ToRelays(..) => unreachable!("roles that work in a stripe know of no relays"),
        Theirs::ToApplication(lane, reply) => Envelope::ToApplication(lane, reply),
    }
}

fn to_leaders(stripe: Stripe, message: multipaxos::leader::In) -> leader::In {
    use multipaxos::leader::In as Theirs;
    match message {
        Theirs::Phase1b {
            from,
            round,
            votes,
            clock,
        } => leader::In::Phase1b {
            from,
            stripe,
            round,
            votes,
            reserved: Vec::new(),
            clock,
        },
        message @ (Theirs::Propose { .. }
        | Theirs::Executed { .. }
        | Theirs::ProxyAlive { .. }
        | Theirs::Nack { .. }
        | Theirs::Heartbeat { .. }
        | Theirs::PreVoteReply { .. }
        | Theirs::Recover { .. }
        | Theirs::AdvanceClock { .. }
        | Theirs::Rejoin { .. }
        | Theirs::TakeOver { .. }
        | Theirs::Declined { .. }
        | Theirs::Relayed { .. }
        | Theirs::Promises { .. }
        | Theirs::Ready { .. }) => leader::In::InStripe { stripe, message },
    }
}

fn to_acceptors(stripe: Stripe, message: multipaxos::acceptor::In) -> acceptor::In {
    use multipaxos::acceptor::In as Theirs;
    match message {
        Theirs::PreRead { from, inquiry } => acceptor::In::PreRead { from, inquiry },
        message @ (Theirs::Phase1a { .. }
        | Theirs::Phase2a { .. }
        | Theirs::Heartbeat { .. }
        | Theirs::PreVote { .. }
        | Theirs::Admit { .. }
        | Theirs::Learn { .. }
        | Theirs::RelayedPhase2a { .. }
        | Theirs::LearnSlots { .. }
        | Theirs::RelayedPhase1a { .. }
        | Theirs::RelayedPreRead { .. }
        | Theirs::Executed { .. }) => acceptor::In::InStripe { stripe, message },
    }
}

fn to_replicas(stripes: Stripes, stripe: Stripe, message: multipaxos::replica::In) -> replica::In {
    use multipaxos::replica::In as Theirs;
    let message = match message {
        Theirs::Chosen {
            slot: position,
            value,
            replier,
        } => Theirs::Chosen {
            slot: stripes.slot(stripe, StripePosition::of_part(position)),
            value,
            replier,
        },
        message @ (Theirs::Read { .. }
        | Theirs::Heartbeat { .. }
        | Theirs::Fetch { .. }
        | Theirs::Fetched { .. }
        | Theirs::FetchSnapshot { .. }
        | Theirs::SnapshotChunk { .. }
        | Theirs::UnbatcherAlive { .. }
        | Theirs::Mark { .. }) => message,
    };
    replica::In::OfLog { message }
}
