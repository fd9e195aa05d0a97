//! S-Paxos.

use super::Surroundings;
use ionian_kernel::batch::Value;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{self, leader as ordering, proxy_leader as proxying};
use ionian_protocols::spaxos::message::{PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{self, SPaxos, kind, leader, proxy_leader};

/// The roles that order references: where MultiPaxos's hear of a batch of commands, they hear of a reference to one,
/// which a disseminator proposes, each in turn.
pub(crate) struct Referring {
    disseminators: u64,
    stabilizers: Set<StabilizerId>,
    /// How many payloads there have been.
    payloads: u64,
    /// The round in which the leader that is driven leads.
    round: Round,
}

/// As many digits as the random numbers have that disseminators draw.
const LIFE: u64 = 0x5eed_5eed_5eed_5eed;

/// Of the payloads of a disseminator so many are not known to be chosen.
const IN_FLIGHT: u64 = 64;

/// With options as they are by default a payload is void so many slots later.
const VOID_AFTER: u64 = 32 * 8192;

impl Referring {
    /// The reference to the payload that is stable next.
    fn next_reference(&mut self) -> Reference {
        let (disseminator, number) = (self.payloads % self.disseminators, self.payloads / self.disseminators);
        let disseminator = DisseminatorId(disseminator as u8);
        let id = PayloadId { disseminator, life: LIFE, number: LIFE + number };
        let until = Slot(self.payloads + VOID_AFTER);
        self.payloads += 1;
        // A column of the grid, or two of three.
        let stored = [StabilizerId(0), StabilizerId(2)].into_iter().collect();
        Reference { id, until, stored }
    }

    fn propose(&mut self, near: Set<ReplicaId>) -> leader::In {
        let Reference { id, until, stored } = self.next_reference();
        let ticket = Ticket { id, until, round: self.round, floor: id.number.saturating_sub(IN_FLIGHT).max(LIFE) };
        ticket.propose(stored, near)
    }

    fn to_leader(&mut self, message: ordering::In) -> leader::In {
        match message {
            ordering::In::Propose { near, .. } => return self.propose(near),
            ordering::In::Phase1b { round, .. } => self.round = round,
            _ => {}
        }
        leader::In::Ordering { message }
    }

    fn to_proxy_leader(&mut self, message: proxying::In) -> proxy_leader::In {
        let message = match message {
            proxying::In::Phase2a { slot, round, value, replier, .. } => {
                let reference = self.next_reference();
                let PayloadId { disseminator, number, .. } = reference.id;
                let proposer = Proposer::Batcher { id: BatcherId(disseminator.0), number };
                let value = Value { batch: reference.batch(), ..value };
                proxying::In::Phase2a { slot, round, value, proposer, replier }
            }
            message => message,
        };
        proxy_leader::In::Ordering { message }
    }
}

impl Surroundings for Referring {
    type Protocol = SPaxos;

    fn new(layout: &Layout) -> Self {
        let disseminators = layout.count(kind::Disseminator) as u64;
        Referring { disseminators, stabilizers: layout.all(kind::Stabilizer), payloads: 0, round: Round(0) }
    }

    /// One stabilizer, which tells the replicas.
    fn told_of_chosen(_: usize) -> usize {
        1
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        use multipaxos::Message as Theirs;
        match message {
            Theirs::Leader(message) => hear(spaxos::Message::Leader(self.to_leader(message))),
            Theirs::ProxyLeader(message) => hear(spaxos::Message::ProxyLeader(self.to_proxy_leader(message))),
            message => unreachable!("no driver says {message:?}"),
        }
    }

    fn hear(&self, message: spaxos::Message) -> Option<multipaxos::Message> {
        match message {
            spaxos::Message::Acceptor(message) => Some(multipaxos::Message::Acceptor(message)),
            _ => None,
        }
    }

    fn is_answered(message: &spaxos::Message) -> bool {
        let spaxos::Message::Leader(leader::In::Ordering { message }) = message else { return false };
        matches!(message, ordering::In::ProxyAlive { .. })
    }

    /// When a proxy leader says that it lives, which is as often as stabilizers do, they say it too.
    fn answer(&mut self, _: u64, _: spaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        for from in self.stabilizers.iter() {
            hear(spaxos::Message::ProxyLeader(proxy_leader::In::StabilizerAlive { from }));
        }
    }
}
