//! S-Paxos: the roles that order references to payloads. Those that handle payloads are in
//! `payloads`.

use super::Surroundings;
use super::payloads::Payloads;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{self, acceptor, leader as ordering, proxy_leader as proxying};
use ionian_protocols::spaxos::id::StabilizerId;
use ionian_protocols::spaxos::message::{PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{self, SPaxos, kind, leader, proxy_leader};
use ionian_replication::batch::Value;

/// The roles of MultiPaxos that are at work in S-Paxos. Where MultiPaxos's hear of commands, those
/// that order hear of a reference to a payload instead, which its disseminator proposes.
pub(crate) struct Referring {
    payloads: Payloads,
    stabilizers: Set<StabilizerId>,
    /// How many payloads there have been.
    next: u64,
    /// The round in which the leader that is driven leads.
    round: Round,
}

impl Referring {
    /// The reference to the payload that is stable next.
    fn next_reference(&mut self) -> Reference {
        self.next += 1;
        self.payloads.reference(self.next - 1)
    }

    fn propose(&mut self, near: Set<ReplicaId>) -> leader::In {
        let Reference { id, until, stored } = self.next_reference();
        let ticket = Ticket {
            id,
            until,
            round: self.round,
            floor: self.payloads.floor(id),
        };
        leader::In::propose(&ticket, stored, near)
    }

    fn leader_hears(&mut self, message: ordering::In) -> leader::In {
        match message {
            ordering::In::Propose { near, .. } => return self.propose(near),
            ordering::In::Phase1b { round, .. } => self.round = round,
            _ => {}
        }
        leader::In::Ordering { message }
    }

    fn proxy_leader_hears(&mut self, message: proxying::In) -> proxy_leader::In {
        let message = match message {
            proxying::In::Phase2a {
                slot,
                round,
                value,
                replier,
                ..
            } => {
                let reference = self.next_reference();
                let PayloadId {
                    disseminator,
                    number,
                    ..
                } = reference.id;
                let proposer = Proposer::Batcher {
                    id: BatcherId(disseminator.0),
                    number,
                };
                let value = Value {
                    batch: reference.batch(),
                    ..value
                };
                proxying::In::Phase2a {
                    slot,
                    round,
                    value,
                    proposer,
                    replier,
                }
            }
            message => message,
        };
        proxy_leader::In::Ordering { message }
    }

    fn acceptor_hears(&mut self, message: acceptor::In) -> acceptor::In {
        match message {
            acceptor::In::Phase2a {
                from,
                slot,
                round,
                value,
            } => {
                let value = Value {
                    batch: self.next_reference().batch(),
                    ..value
                };
                acceptor::In::Phase2a {
                    from,
                    slot,
                    round,
                    value,
                }
            }
            message => message,
        }
    }
}

impl Surroundings for Referring {
    type Protocol = SPaxos;

    fn new(layout: &Layout) -> Self {
        let (payloads, stabilizers) = (Payloads::new(layout), layout.all(kind::Stabilizer));
        Referring {
            payloads,
            stabilizers,
            next: 0,
            round: Round(0),
        }
    }

    /// One stabilizer, which tells the replicas.
    fn told_of_chosen(_: usize) -> usize {
        1
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        use multipaxos::Message as Theirs;
        match message {
            Theirs::Leader(message) => hear(spaxos::Message::Leader(self.leader_hears(message))),
            Theirs::ProxyLeader(message) => hear(spaxos::Message::ProxyLeader(
                self.proxy_leader_hears(message),
            )),
            Theirs::Acceptor(message) => {
                hear(spaxos::Message::Acceptor(self.acceptor_hears(message)))
            }
            Theirs::Replica(message) => hear(spaxos::Message::Replica(message)),
            message => unreachable!("no driver says {message:?}"),
        }
    }

    fn hear(&self, message: spaxos::Message) -> Option<multipaxos::Message> {
        match message {
            spaxos::Message::Acceptor(message) => Some(multipaxos::Message::Acceptor(message)),
            spaxos::Message::Client(message) => Some(multipaxos::Message::Client(message)),
            spaxos::Message::Unbatcher(message) => Some(multipaxos::Message::Unbatcher(message)),
            _ => None,
        }
    }

    fn is_answered(message: &spaxos::Message) -> bool {
        let spaxos::Message::Leader(leader::In::Ordering { message }) = message else {
            return false;
        };
        matches!(message, ordering::In::ProxyAlive { .. })
    }

    /// When a proxy leader says that it lives, which is as often as stabilizers do, they say it
    /// too.
    fn answer(&mut self, _: u64, _: spaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        for from in self.stabilizers.iter() {
            hear(spaxos::Message::ProxyLeader(
                proxy_leader::In::StabilizerAlive { from },
            ));
        }
    }
}
