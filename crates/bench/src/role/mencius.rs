//! Who plays what around each role of Mencius: the parts of MultiPaxos, in slots of the whole log.
//! Which stripe a slot is in, and at which position, [`Striped`] sees to.
//!
//! The leader that is measured leads stripe 0. The others keep pace with it, as leaders do under a
//! balanced load: they say so as often as it does, and none skips. Proxy leaders and acceptors
//! get the slots of all stripes in turn.

use super::emulated::{Dialect, Part, Stage};
use super::multipaxos::{self as parts, Play};
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_protocols::mencius::message::striped;
use ionian_protocols::mencius::stripe::{Stripe, StripePosition, Stripes};
use ionian_protocols::mencius::{
    Envelope, Mencius, Message, acceptor, kind, leader, proxy_leader, replica,
};
use ionian_protocols::multipaxos;
use std::sync::Arc;

/// Who stands at this address while instance 0 of `subject` is measured.
pub(crate) fn cast(
    play: &Arc<Play>,
    striped: &Arc<Striped>,
    subject: u8,
    address: Address,
) -> Option<Part<Mencius>> {
    let Address { kind, index } = address;
    let address = match (subject, kind) {
        (kind::Leader, kind::Leader) => return (index > 0).then(|| keeping_pace(LeaderId(index))),
        // All of them hand slots over.
        (kind::ProxyLeader, kind::Leader) => Address { kind, index: 0 },
        _ => address,
    };
    Some(parts::cast(play, subject, address)?.in_dialect(striped))
}

/// Says that it is as far as the leader that is measured.
fn keeping_pace(me: LeaderId) -> Part<Mencius> {
    Part::default().hear(move |stage, message| match message {
        Message::Leader(leader::In::Index { from, slot }) => {
            stage.send(Envelope::ToLeaders(
                Set::one(from),
                leader::In::Index { from: me, slot },
            ));
            None
        }
        message => Some(message),
    })
}

/// What MultiPaxos says about slots of the log holds here for positions of stripes.
pub(crate) struct Striped(pub(crate) Stripes);

impl Striped {
    fn position(&self, slot: Slot) -> (Stripe, Slot) {
        let (stripe, position) = self.0.place(slot);
        (stripe, position.in_part())
    }

    /// Each stripe has rounds of its own leader; all of these were elected once.
    fn round(stripe: Stripe, round: Round) -> Round {
        Round::new(round.epoch(), round.count(), LeaderId(stripe.0))
    }
}

impl Dialect for Striped {
    type Protocol = Mencius;

    fn heard(&self, message: &Message) -> Option<multipaxos::Message> {
        use multipaxos::Message as Theirs;
        use multipaxos::{
            acceptor as acceptors, leader as leaders, proxy_leader as proxies, replica as replicas,
        };
        let slot = |stripe: &Stripe, position: &Slot| {
            self.0.slot(*stripe, StripePosition::of_part(*position))
        };
        Some(match message {
            Message::ProxyLeader(proxy_leader::In::InStripe { stripe, message }) => {
                Theirs::ProxyLeader(match message.clone() {
                    proxies::In::Phase2a {
                        slot: position,
                        round,
                        value,
                        proposer,
                        replier,
                    } => proxies::In::Phase2a {
                        slot: slot(stripe, &position),
                        round,
                        value,
                        proposer,
                        replier,
                    },
                    proxies::In::Phase2b {
                        from,
                        slot: position,
                        round,
                    } => proxies::In::Phase2b {
                        from,
                        slot: slot(stripe, &position),
                        round,
                    },
                    message => message,
                })
            }
            Message::Acceptor(acceptor::In::InStripe { stripe, message }) => {
                match message.clone() {
                    acceptors::In::Phase2a {
                        from,
                        slot: position,
                        round,
                        value,
                    } => Theirs::Acceptor(acceptors::In::Phase2a {
                        from,
                        slot: slot(stripe, &position),
                        round,
                        value,
                    }),
                    _ => return None,
                }
            }
            Message::Acceptor(acceptor::In::PreRead { from, inquiry }) => {
                Theirs::Acceptor(acceptors::In::PreRead {
                    from: *from,
                    inquiry: *inquiry,
                })
            }
            Message::Replica(replica::In::OfLog { message }) => Theirs::Replica(message.clone()),
            Message::Replica(replica::In::Heartbeat {
                round,
                executed,
                time,
                ..
            }) => {
                let (round, executed) = (*round, *executed);
                Theirs::Replica(replicas::In::Heartbeat {
                    round,
                    executed,
                    keep: Slot::ZERO,
                    time: *time,
                })
            }
            Message::Leader(leader::In::Executed {
                from,
                executed,
                kept,
                times,
                ..
            }) => {
                let (from, executed, kept, round) = (*from, *executed, *kept, Round(0));
                Theirs::Leader(leaders::In::Executed {
                    from,
                    executed,
                    kept,
                    round,
                    times: *times,
                })
            }
            Message::Leader(leader::In::Recover { slots, .. }) => {
                Theirs::Leader(leaders::In::Recover {
                    slots: slots.clone(),
                })
            }
            Message::Leader(leader::In::InStripe {
                message: message @ leaders::In::Propose { .. },
                ..
            }) => Theirs::Leader(message.clone()),
            Message::Client(message) => Theirs::Client(message.clone()),
            Message::Unbatcher(message) => Theirs::Unbatcher(message.clone()),
            Message::ReadBatcher(message) => Theirs::ReadBatcher(message.clone()),
            _ => return None,
        })
    }

    fn say(&self, envelope: multipaxos::Envelope, stage: &mut Stage<'_, Mencius>) {
        use multipaxos::Envelope as Theirs;
        use multipaxos::{
            acceptor as acceptors, leader as leaders, proxy_leader as proxies, replica as replicas,
        };
        let (stripe, envelope) = match envelope {
            Theirs::ToLeaders(
                to,
                leaders::In::Executed {
                    from,
                    executed,
                    kept,
                    round,
                    times,
                },
            ) => {
                let rounds = self
                    .0
                    .iter()
                    .map(|stripe| Striped::round(stripe, round))
                    .collect();
                return stage.send(Envelope::ToLeaders(
                    to,
                    leader::In::Executed {
                        from,
                        executed,
                        kept,
                        rounds,
                        times,
                    },
                ));
            }
            Theirs::ToAcceptors(to, acceptors::In::Heartbeat { round, kept }) => {
                for stripe in self.0.iter() {
                    let round = Striped::round(stripe, round);
                    let kept = self.0.from(stripe, kept).in_part();
                    let message = acceptors::In::Heartbeat { round, kept };
                    stage.send(striped(self.0, stripe, Theirs::ToAcceptors(to, message)));
                }
                return;
            }
            Theirs::ToProxyLeaders(
                to,
                proxies::In::Phase2a {
                    slot,
                    round,
                    value,
                    proposer,
                    replier,
                },
            ) => {
                let (stripe, slot) = self.position(slot);
                let round = Striped::round(stripe, round);
                let message = proxies::In::Phase2a {
                    slot,
                    round,
                    value,
                    proposer,
                    replier,
                };
                (stripe, Theirs::ToProxyLeaders(to, message))
            }
            Theirs::ToProxyLeaders(to, proxies::In::Phase2b { from, slot, round }) => {
                let (stripe, slot) = self.position(slot);
                let round = Striped::round(stripe, round);
                (
                    stripe,
                    Theirs::ToProxyLeaders(to, proxies::In::Phase2b { from, slot, round }),
                )
            }
            Theirs::ToAcceptors(
                to,
                acceptors::In::Phase2a {
                    from,
                    slot,
                    round,
                    value,
                },
            ) => {
                let (stripe, slot) = self.position(slot);
                let round = Striped::round(stripe, round);
                (
                    stripe,
                    Theirs::ToAcceptors(
                        to,
                        acceptors::In::Phase2a {
                            from,
                            slot,
                            round,
                            value,
                        },
                    ),
                )
            }
            Theirs::ToReplicas(
                to,
                replicas::In::Chosen {
                    slot,
                    value,
                    replier,
                },
            ) => {
                let (stripe, slot) = self.position(slot);
                (
                    stripe,
                    Theirs::ToReplicas(
                        to,
                        replicas::In::Chosen {
                            slot,
                            value,
                            replier,
                        },
                    ),
                )
            }
            // A proposer has chosen its leader already; the rest is of the whole log.
            envelope => (Stripe(0), envelope),
        };
        stage.send(striped(self.0, stripe, envelope));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_protocols::multipaxos::proxy_leader::In;

    #[test]
    fn what_comes_from_a_stripe_is_heard_of_the_log() {
        let dialect = Striped(Stripes::new(3));
        let (from, round) = (AcceptorId(1), Round::new(Epoch::default(), 1, LeaderId(0)));
        let message = In::Phase2b {
            from,
            slot: Slot(7),
            round,
        };
        let message = Message::ProxyLeader(proxy_leader::In::InStripe {
            stripe: Stripe(2),
            message,
        });
        let Some(multipaxos::Message::ProxyLeader(In::Phase2b { slot, .. })) =
            dialect.heard(&message)
        else {
            panic!("a vote is heard")
        };
        assert_eq!(
            (slot, dialect.position(slot)),
            (Slot(23), (Stripe(2), Slot(7)))
        );
        assert_eq!(Striped::round(Stripe(2), round).leader(), LeaderId(2));
        let index = leader::In::Index {
            from: LeaderId(1),
            slot: Slot(9),
        };
        assert!(
            dialect.heard(&Message::Leader(index)).is_none(),
            "MultiPaxos has nothing of the kind"
        );
    }
}
