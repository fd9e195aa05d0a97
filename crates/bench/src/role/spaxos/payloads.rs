//! Around the roles that have the payloads: disseminators and stabilizers.

use super::{LIFE, References, reference};
use crate::role::emulated::{Part, Stage};
use crate::role::multipaxos::Play;
use crate::role::work::Work;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::time::{Duration, Instant};
use ionian_protocols::spaxos::id::{DisseminatorId, StabilizerId};
use ionian_protocols::spaxos::message::{Payload, PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{
    Envelope, Message, SPaxos, disseminator, kind, leader, replica, stabilizer,
};
use ionian_replication::batch::Value;
use std::sync::{Arc, Mutex};

type Actor = Part<SPaxos>;
type OnStage<'a> = Stage<'a, SPaxos>;

/// How often stabilizers learn what they can forget.
const KEPT_EVERY: Duration = Duration::from_millis(100);

/// Payloads in a message from a stabilizer to another.
const TOLD_AT_ONCE: usize = 512;

/// What the stabilizer that is measured has said that it keeps, and was not told to be chosen.
pub(crate) type Acknowledged = Mutex<Vec<PayloadId>>;

/// Clients, or batchers, send commands; stabilizers say that they keep them; what is proposed to
/// the leader is chosen at once.
pub(super) fn around_disseminator(
    play: Arc<Play>,
    Address { kind, index }: Address,
) -> Option<Actor> {
    match kind {
        kind::Client | kind::Batcher if !gathers(&play, kind) || index > 0 => Some(Part::alone()),
        kind::Client | kind::Batcher => Some(Part::alone().tick(sending(play, kind))),
        kind::Stabilizer => Some(keeping(StabilizerId(index))),
        kind::Leader if index == 0 => {
            Some(Part::default().hear(move |stage, message| match message {
                Message::Leader(leader::In::Propose { reference, .. }) => {
                    play.flow.finish(play.commands.batch);
                    let Reference { id, .. } = Reference::of(&reference)?;
                    let message = disseminator::In::Chosen {
                        numbers: vec![id.number],
                        below: Slot(1),
                    };
                    stage.send(Envelope::ToDisseminators(
                        Set::one(id.disseminator),
                        message,
                    ));
                    None
                }
                message => Some(message),
            }))
        }
        _ => None,
    }
}

/// Whether instances of this kind send the disseminator commands.
fn gathers(play: &Play, kind: u8) -> bool {
    kind == if play.commands.batch > 1 {
        kind::Batcher
    } else {
        kind::Client
    }
}

fn sending(play: Arc<Play>, kind: u8) -> impl FnMut(&mut OnStage<'_>) {
    let commands = play.commands.writes(0);
    move |stage| {
        for _ in 0..play.flow.begin(play.commands.batch) {
            let (number, batch) = (play.flow.take_slot(), commands.clone());
            let message = match kind {
                kind::Batcher => disseminator::In::Disseminate {
                    from: BatcherId(0),
                    number,
                    batch,
                },
                _ => disseminator::In::Commands { commands: batch },
            };
            stage.send(Envelope::ToDisseminators(
                Set::one(DisseminatorId(0)),
                message,
            ));
        }
    }
}

/// Says that it keeps what came together, in one message as a real one does.
fn keeping(from: StabilizerId) -> Actor {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let taken = kept.clone();
    let hear = move |_: &mut OnStage<'_>, message| match message {
        Message::Stabilizer(stabilizer::In::Store {
            floor,
            payload:
                Payload {
                    id,
                    round,
                    void_from,
                    ..
                },
        }) => {
            let ticket = Ticket {
                id,
                void_from,
                round,
                floor,
            };
            taken.lock().expect("no thread panics with it").push(ticket);
            None
        }
        message => Some(message),
    };
    Part::default().hear(hear).burst_end(move |stage| {
        let tickets = std::mem::take(&mut *kept.lock().expect("no thread panics with it"));
        if !tickets.is_empty() {
            let message = disseminator::In::Stored {
                from,
                tickets,
                lives: Vec::new(),
            };
            stage.send(Envelope::ToDisseminators(
                Set::one(DisseminatorId(0)),
                message,
            ));
        }
    })
}

/// Disseminators have payloads stored. If they are to be handed over, proxy leaders say that they
/// are chosen, and replicas take them; if not, another stabilizer says that it has done that. The
/// leader says what can be forgotten.
pub(super) fn around_stabilizer(
    all: Arc<References>,
    Address { kind, index }: Address,
) -> Option<Actor> {
    let delivers = all.play.work == Work::Deliver;
    match kind {
        kind::Disseminator if index == 0 => Some(storing(all)),
        kind::Leader if index == 0 => Some(Part::default().tick(forgetting(all))),
        kind::ProxyLeader if delivers => Some(Part::default().tick(choosing(all))),
        kind::Stabilizer if index == 1 && !delivers => Some(Part::default().tick(telling(all))),
        kind::Replica => Some(Part::alone().hear(move |_, message| {
            match message {
                Message::Replica(replica::In::Chosen { .. }) if index == 0 => {
                    all.play.flow.finish(all.play.commands.batch);
                }
                Message::Replica(replica::In::Heartbeat { round, .. }) => {
                    all.play.flow.set_round(round.0)
                }
                _ => {}
            }
            None
        })),
        kind::Client | kind::Batcher => Some(Part::alone()),
        _ => None,
    }
}

fn storing(all: Arc<References>) -> Actor {
    let (play, asker, batch) = (all.play.clone(), all.clone(), all.play.commands.writes(0));
    let hear = move |_: &mut OnStage<'_>, message| {
        if let Message::Disseminator(disseminator::In::Stored { tickets, .. }) = message {
            if play.work == Work::Store {
                play.flow.finish(tickets.len() as u64 * play.commands.batch);
            }
            let ids = tickets.iter().map(|ticket| ticket.id);
            all.acknowledged
                .lock()
                .expect("no thread panics with it")
                .extend(ids);
        }
        None
    };
    Part::alone().hear(hear).tick(move |stage| {
        let play = &asker.play;
        if play.flow.round().is_none() {
            return;
        }
        for _ in 0..play.flow.begin(play.commands.batch) {
            let ticket = asker.ticket(play.flow.take_slot());
            let payload = Payload {
                id: ticket.id,
                round: ticket.round,
                void_from: ticket.void_from,
                batch: batch.clone(),
            };
            let message = stabilizer::In::Store {
                floor: ticket.floor,
                payload,
            };
            stage.send(Envelope::ToStabilizers(Set::one(StabilizerId(0)), message));
        }
    })
}

/// The slot of a payload: nothing else is in this log.
fn slot(id: PayloadId) -> Slot {
    Slot(id.number.0 - LIFE)
}

fn telling(all: Arc<References>) -> impl FnMut(&mut OnStage<'_>) {
    move |stage| {
        let acknowledged =
            std::mem::take(&mut *all.acknowledged.lock().expect("no thread panics with it"));
        for ids in acknowledged.chunks(TOLD_AT_ONCE) {
            let places = ids.iter().map(|id| (*id, slot(*id))).collect();
            let message = stabilizer::In::Delivered { places };
            stage.send(Envelope::ToStabilizers(Set::one(StabilizerId(0)), message));
        }
    }
}

/// Each proxy leader takes a half of what was acknowledged and is left.
fn choosing(all: Arc<References>) -> impl FnMut(&mut OnStage<'_>) {
    let layout = all.config.layout().clone();
    move |stage| {
        let mut acknowledged = all.acknowledged.lock().expect("no thread panics with it");
        let left = acknowledged.len() - acknowledged.len().div_ceil(2);
        for id in acknowledged.drain(left..) {
            let number = id.number.0 - LIFE;
            let value = Value {
                stamp: stage.now.timestamp(),
                batch: reference(&all.config, number).batch(),
            };
            let replier = ReplicaId((number % layout.count(kind::Replica) as u64) as u8);
            let replicas = layout.all(kind::Replica);
            let message = stabilizer::In::Chosen {
                slot: slot(id),
                value,
                replier,
                replicas,
            };
            stage.send(Envelope::ToStabilizers(Set::one(StabilizerId(0)), message));
        }
    }
}

/// Says that replicas keep what is not in flight any more.
fn forgetting(all: Arc<References>) -> impl FnMut(&mut OnStage<'_>) {
    let mut say_at = Instant::ZERO;
    move |stage| {
        if say_at <= stage.now {
            say_at = stage.now + KEPT_EVERY;
            let kept = Slot(
                all.play
                    .flow
                    .slots_taken()
                    .saturating_sub(4 * all.play.flow.window()),
            );
            stage.send(Envelope::ToStabilizers(
                Set::one(StabilizerId(0)),
                stabilizer::In::Kept {
                    round: Round(1),
                    kept,
                },
            ));
        }
    }
}
