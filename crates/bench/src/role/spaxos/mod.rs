//! Who plays what around each role of S-Paxos: around those that order references, and around
//! replicas, the parts of MultiPaxos; what its disseminators and stabilizers do is in `payloads`.

mod payloads;

pub(crate) use payloads::Acknowledged;

use super::emulated::{Dialect, Part, Stage};
use super::multipaxos::{self as parts, Play};
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{self, kind as ordering};
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber};
use ionian_protocols::spaxos::message::{PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{Envelope, Message, SPaxos, kind, leader, proxy_leader, stabilizer};
use ionian_replication::batch::Batch;
use payloads::{around_disseminator, around_stabilizer};
use std::sync::Arc;

/// Payloads are numbered from a random number on; here it is always this one.
const LIFE: u64 = 0x2AAA_AAAA_AAAA_AAAA;

/// How often disseminators learn how far the log is executed, in payloads: as many are void from
/// the same slot on.
const HEARTBEAT: u64 = 1024;

/// What parts know of payloads, and how they say what MultiPaxos says.
pub(crate) struct References {
    pub(crate) play: Arc<Play>,
    pub(crate) config: Config,
    pub(crate) acknowledged: Acknowledged,
}

/// A payload that this write quorum of stabilizers holds.
fn reference(config: &Config, number: u64) -> Reference {
    let members = config.stabilizers.members();
    let stored = config
        .stabilizers
        .write_quorum(members, Set::EMPTY, number)
        .expect("all are there");
    Reference {
        id: id(number),
        void_from: config.void_from(Slot(number - number % HEARTBEAT)),
        stored,
    }
}

fn id(number: u64) -> PayloadId {
    PayloadId {
        disseminator: DisseminatorId(0),
        life: LIFE,
        number: PayloadNumber(LIFE + number),
    }
}

/// What the log holds in place of a batch.
pub(crate) fn held(config: &Config) -> Batch {
    reference(config, 0).batch()
}

/// Who stands at this address while instance 0 of `subject` is measured.
pub(crate) fn cast(all: &Arc<References>, subject: u8, address: Address) -> Option<Part<SPaxos>> {
    let play = all.play.clone();
    match (subject, address.kind) {
        (kind::Disseminator, _) => around_disseminator(play, address),
        (kind::Stabilizer, _) => around_stabilizer(all.clone(), address),
        (kind::ProxyLeader, kind::Stabilizer) => Some(told_stabilizer(play)),
        // Stabilizers tell replicas what is chosen.
        (kind::Replica, kind::ProxyLeader) => None,
        (kind::Replica, kind::Stabilizer) => {
            let stabilizers = all.config.layout().count(kind::Stabilizer) as u64;
            Some(parts::execution::choosing(play, address.index, stabilizers).in_dialect(all))
        }
        _ => {
            let kind = of_multipaxos(address.kind)?;
            let part = parts::cast(
                &play,
                of_multipaxos(subject)?,
                Address {
                    kind,
                    index: address.index,
                },
            )?;
            Some(part.in_dialect(all))
        }
    }
}

/// What a role is in the eyes of those that order; disseminators propose as batchers do.
fn of_multipaxos(kind: u8) -> Option<u8> {
    Some(match kind {
        kind::Client => ordering::Client,
        kind::Disseminator => ordering::Batcher,
        kind::ReadBatcher => ordering::ReadBatcher,
        kind::Leader => ordering::Leader,
        kind::ProxyLeader => ordering::ProxyLeader,
        kind::Acceptor => ordering::Acceptor,
        kind::Replica => ordering::Replica,
        kind::Unbatcher => ordering::Unbatcher,
        _ => return None,
    })
}

/// Takes what is chosen from proxy leaders.
fn told_stabilizer(play: Arc<Play>) -> Part<SPaxos> {
    Part::default().hear(move |_, message| match message {
        Message::Stabilizer(stabilizer::In::Chosen { .. }) => {
            play.flow.finish(play.commands.batch);
            None
        }
        message => Some(message),
    })
}

impl References {
    /// What goes to the leader with the payload of this number.
    fn ticket(&self, number: u64) -> Ticket {
        let Reference { id, void_from, .. } = reference(&self.config, number);
        let round = Round(self.play.flow.round().unwrap_or_default());
        Ticket {
            id,
            void_from,
            round,
            floor: PayloadNumber(id.number.0.saturating_sub(self.play.flow.window())),
        }
    }
}

impl Dialect for References {
    type Protocol = SPaxos;

    fn heard(&self, message: &Message) -> Option<multipaxos::Message> {
        use multipaxos::Message as Theirs;
        Some(match message {
            Message::Leader(leader::In::Ordering { message }) => Theirs::Leader(message.clone()),
            Message::ProxyLeader(proxy_leader::In::Ordering { message }) => {
                Theirs::ProxyLeader(message.clone())
            }
            Message::Client(message) => Theirs::Client(message.clone()),
            Message::ReadBatcher(message) => Theirs::ReadBatcher(message.clone()),
            Message::Acceptor(message) => Theirs::Acceptor(message.clone()),
            Message::Replica(message) => Theirs::Replica(message.clone()),
            Message::Unbatcher(message) => Theirs::Unbatcher(message.clone()),
            _ => return None,
        })
    }

    fn say(&self, envelope: multipaxos::Envelope, stage: &mut Stage<'_, SPaxos>) {
        use multipaxos::Envelope as Theirs;
        use multipaxos::leader::In::Propose;
        stage.send(match envelope {
            Theirs::ToLeaders(
                to,
                Propose {
                    proposer: Proposer::Batcher { number, .. },
                    near,
                    ..
                },
            ) => {
                let (ticket, stored) =
                    (self.ticket(number), reference(&self.config, number).stored);
                Envelope::ToLeaders(to, leader::In::propose(&ticket, stored, near))
            }
            envelope => envelope.into(),
        });
    }
}
