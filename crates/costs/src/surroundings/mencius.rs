//! Mencius.

use super::Surroundings;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::time::Timestamp;
use ionian_protocols::mencius::stripe::{Stripe, Stripes};
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Times;

/// Mencius, with as many leaders as its presets have, all of which suggest as much as each other.
/// The leader that is driven leads stripe 0; all else works in every stripe in turn.
pub(crate) struct Striped {
    stripes: Stripes,
    /// How far the leader that is driven has said that it is.
    index: Slot,
}

/// How far behind that the replicas are.
const BEHIND: u64 = 3 * 128;

const HOME: Stripe = Stripe(0);

fn round_of(stripe: Stripe) -> Round {
    Round::new(Epoch(0), 1, LeaderId(stripe.0))
}

impl Striped {
    fn to_leader(
        &self,
        message: multipaxos::leader::In,
        hear: &mut dyn FnMut(mencius::leader::In),
    ) {
        use multipaxos::leader::In as Theirs;
        match message {
            Theirs::Executed { from, round, .. } => {
                let executed = Slot(self.index.0.saturating_sub(BEHIND));
                let rounds = vec![round; self.stripes.count()];
                hear(mencius::leader::In::Executed {
                    from,
                    executed,
                    kept: executed,
                    rounds,
                    times: Times::default(),
                });
            }
            Theirs::ProxyAlive { from } => {
                hear(mencius::leader::In::ProxyAlive { from });
                for stripe in self
                    .stripes
                    .iter()
                    .filter(|stripe| from == ProxyLeaderId(0) && *stripe != HOME)
                {
                    let message = Theirs::Heartbeat {
                        round: round_of(stripe),
                    };
                    hear(mencius::leader::In::InStripe { stripe, message });
                }
            }
            Theirs::Phase1b {
                from,
                round,
                votes,
                clock,
            } => hear(mencius::leader::In::Phase1b {
                from,
                stripe: HOME,
                round,
                votes,
                reserved: Vec::new(),
                clock,
            }),
            message => hear(mencius::leader::In::InStripe {
                stripe: HOME,
                message,
            }),
        }
    }

    fn to_acceptor(
        &self,
        message: multipaxos::acceptor::In,
        hear: &mut dyn FnMut(mencius::acceptor::In),
    ) {
        use multipaxos::acceptor::In as Theirs;
        match message {
            Theirs::PreRead { from, inquiry } => {
                hear(mencius::acceptor::In::PreRead { from, inquiry })
            }
            Theirs::Phase2a {
                from,
                slot,
                round,
                value,
            } => {
                let (stripe, slot) = self.stripes.place(slot);
                let message = Theirs::Phase2a {
                    from,
                    slot,
                    round,
                    value,
                };
                hear(mencius::acceptor::In::InStripe { stripe, message });
            }
            Theirs::Heartbeat { round, kept } => {
                for stripe in self.stripes.iter() {
                    let message = Theirs::Heartbeat {
                        round,
                        kept: self.stripes.from(stripe, kept),
                    };
                    hear(mencius::acceptor::In::InStripe { stripe, message });
                }
            }
            message => unreachable!("no driver says {message:?}"),
        }
    }

    fn to_proxy_leader(&self, message: multipaxos::proxy_leader::In) -> mencius::proxy_leader::In {
        use multipaxos::proxy_leader::In as Theirs;
        let (stripe, message) = match message {
            Theirs::Phase2a {
                slot,
                round,
                value,
                proposer,
                replier,
            } => {
                let (stripe, slot) = self.stripes.place(slot);
                (
                    stripe,
                    Theirs::Phase2a {
                        slot,
                        round,
                        value,
                        proposer,
                        replier,
                    },
                )
            }
            Theirs::Phase2b { from, slot, round } => {
                let (stripe, slot) = self.stripes.place(slot);
                (stripe, Theirs::Phase2b { from, slot, round })
            }
            message => unreachable!("no driver says {message:?}"),
        };
        mencius::proxy_leader::In::InStripe { stripe, message }
    }

    fn to_replica(
        &self,
        message: multipaxos::replica::In,
        hear: &mut dyn FnMut(mencius::replica::In),
    ) {
        match message {
            multipaxos::replica::In::Heartbeat { executed, .. } => {
                for stripe in self.stripes.iter() {
                    hear(mencius::replica::In::Heartbeat {
                        stripe,
                        round: round_of(stripe),
                        executed,
                        time: Timestamp(0),
                    });
                }
            }
            message => hear(mencius::replica::In::OfLog { message }),
        }
    }
}

impl Surroundings for Striped {
    type Protocol = Mencius;

    fn new(layout: &Layout) -> Self {
        Striped {
            stripes: Stripes::new(layout.count(mencius::kind::Leader)),
            index: Slot::ZERO,
        }
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(mencius::Message)) {
        use multipaxos::Message as Theirs;
        match message {
            Theirs::Leader(message) => self.to_leader(message, &mut |message| {
                hear(mencius::Message::Leader(message))
            }),
            Theirs::Acceptor(message) => {
                self.to_acceptor(message, &mut |message| {
                    hear(mencius::Message::Acceptor(message))
                });
            }
            Theirs::ProxyLeader(message) => {
                hear(mencius::Message::ProxyLeader(self.to_proxy_leader(message)))
            }
            Theirs::Replica(message) => {
                self.to_replica(message, &mut |message| {
                    hear(mencius::Message::Replica(message))
                });
            }
            Theirs::Client(message) => hear(mencius::Message::Client(message)),
            Theirs::Batcher(message) => hear(mencius::Message::Batcher(message)),
            Theirs::ReadBatcher(message) => hear(mencius::Message::ReadBatcher(message)),
            Theirs::Unbatcher(message) => hear(mencius::Message::Unbatcher(message)),
        }
    }

    fn hear(&self, message: mencius::Message) -> Option<multipaxos::Message> {
        use mencius::Message as Ours;
        match message {
            Ours::Acceptor(mencius::acceptor::In::InStripe { stripe, message })
                if stripe == HOME =>
            {
                Some(multipaxos::Message::Acceptor(message))
            }
            Ours::Client(message) => Some(multipaxos::Message::Client(message)),
            Ours::Unbatcher(message) => Some(multipaxos::Message::Unbatcher(message)),
            _ => None,
        }
    }

    fn is_answered(message: &mencius::Message) -> bool {
        use mencius::{acceptor, leader};
        match message {
            mencius::Message::Leader(message) => matches!(message, leader::In::Index { .. }),
            mencius::Message::Acceptor(message) => matches!(message, acceptor::In::Reserve { .. }),
            _ => false,
        }
    }

    /// The other leaders are a slot of the role ahead, which it then skips; acceptors note
    /// reservations.
    fn answer(
        &mut self,
        members: u64,
        message: mencius::Message,
        hear: &mut dyn FnMut(mencius::Message),
    ) {
        use mencius::{Message as Ours, acceptor, leader};
        match message {
            Ours::Leader(leader::In::Index { slot, .. }) => {
                self.index = slot;
                let slot = slot.plus(self.stripes.count() as u64);
                for from in Set::<LeaderId>::from_bits(members).iter() {
                    hear(Ours::Leader(leader::In::Index { from, slot }));
                }
            }
            Ours::Acceptor(acceptor::In::Reserve {
                stripe, reserved, ..
            }) => {
                for from in AcceptorSet::from_bits(members).iter() {
                    hear(Ours::Leader(leader::In::Reserved {
                        from,
                        stripe,
                        reserved,
                    }));
                }
            }
            _ => {}
        }
    }
}
