//! Around a replica that executes, and around one that is read from.

use super::{Actor, OnStage, Play};
use crate::role::commands::Commands;
use crate::role::emulated::Part;
use crate::role::work::Work;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::multipaxos::{Envelope, Message, client, kind, leader, replica, unbatcher};
use ionian_replication::batch::Value;
use std::sync::Arc;

/// When nothing is executed for so long, what is missing is said again.
const STUCK: Duration = Duration::from_millis(300);

/// How many slots open the sessions of all lanes and set every key.
fn first_slots(play: &Play) -> u64 {
    play.commands.lanes() + play.commands.keys().div_ceil(play.commands.batch)
}

/// Says which slots are chosen: of those below `end` every one of `tellers` its share, never more
/// than the window ahead of what is executed.
pub(crate) fn choosing(play: Arc<Play>, index: u8, tellers: u64) -> Actor {
    let end = if play.work == Work::Read {
        first_slots(&play)
    } else {
        u64::MAX
    };
    let mut slot = u64::from(index);
    let mut progress = (0, Instant::ZERO);
    Part::default().tick(move |stage| {
        let executed = play.flow.executed();
        if executed > progress.0 || progress.1 == Instant::ZERO {
            progress = (executed, stage.now);
        } else if stage.now.since(progress.1) >= STUCK {
            // What was said before the connection stood is lost.
            slot = executed + (u64::from(index) + tellers - executed % tellers) % tellers;
            progress.1 = stage.now;
        }
        let ahead = (play.flow.window() / play.commands.batch).max(1);
        while slot < end.min(executed + ahead) {
            let lanes = play.commands.lanes();
            let batch = match slot.checked_sub(lanes) {
                None => Commands::open(slot),
                Some(number) => play.commands.writes(number),
            };
            // It is the same value from every sender, however often.
            let value = Value {
                stamp: Timestamp(slot),
                batch,
            };
            let replier = ReplicaId(u8::from(play.work == Work::Execute));
            let message = replica::In::Chosen {
                slot: Slot(slot),
                value,
                replier,
            };
            stage.send(Envelope::ToReplicas(Set::one(ReplicaId(0)), message));
            slot += tellers;
        }
    })
}

/// Notes how far the replica is. Reports are not for the real leader, which has nothing chosen.
fn hearing_leader(play: Arc<Play>) -> Actor {
    Part::default().hear(move |_, message| match message {
        Message::Leader(leader::In::Executed {
            from: ReplicaId(0),
            executed,
            ..
        }) => {
            play.flow.reach(executed.0);
            None
        }
        Message::Leader(leader::In::Executed { .. } | leader::In::Recover { .. }) => None,
        message => Some(message),
    })
}

/// Proxy leaders say what is chosen; the replica's reports say what it has executed.
pub(super) fn around_replica(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match (kind, index) {
        (kind::Leader, 0) => {
            let (counting, mut counted) = (play.clone(), first_slots(&play));
            Some(hearing_leader(play).tick(move |_| {
                let executed = counting.flow.executed();
                if executed > counted {
                    counting
                        .flow
                        .finish((executed - counted) * counting.commands.batch);
                    counted = executed;
                }
            }))
        }
        (kind::Leader, _) => Some(hearing_leader(play)),
        (kind::ProxyLeader, _) => {
            Some(choosing(play.clone(), index, play.count(kind::ProxyLeader)))
        }
        (kind::Client | kind::Batcher | kind::Unbatcher, _) => Some(quiet_receiver(kind)),
        _ => None,
    }
}

/// Takes answers and does nothing; an unbatcher lives on.
fn quiet_receiver(kind: u8) -> Actor {
    match kind {
        kind::Unbatcher => Part::default().hear(|_, message| match message {
            Message::Unbatcher(unbatcher::In::Results { .. }) => None,
            other => Some(other),
        }),
        _ => Part::alone(),
    }
}

/// Every key is set; then readers ask, and count the answers.
pub(super) fn reading_replica(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    let first = first_slots(&play);
    match kind {
        kind::Leader => Some(hearing_leader(play)),
        kind::ProxyLeader => Some(choosing(play.clone(), index, play.count(kind::ProxyLeader))),
        kind::Client | kind::ReadBatcher | kind::Unbatcher | kind::Batcher => {
            let (counting, is_reader) = (play.clone(), play.asks(kind));
            let count = move |_: &mut OnStage<'_>, message: Message| match message {
                Message::Client(client::In::Answers { answers })
                | Message::Unbatcher(unbatcher::In::Results { answers }) => {
                    // While keys are set, and a session opened, another instance answers.
                    counting.flow.finish(answers.iter().count() as u64);
                    None
                }
                message => Some(message),
            };
            let part = if kind == kind::Client {
                Part::alone()
            } else {
                Part::default()
            };
            let (part, mut number) = (part.hear(count), 0);
            Some(match is_reader {
                false => part,
                true => part.tick(move |stage| {
                    if play.flow.executed() < first {
                        return;
                    }
                    for _ in 0..play.flow.begin(play.commands.batch) {
                        number += 1;
                        let reads = play.commands.reads(number, play.commands.batch);
                        let message = replica::In::Read {
                            reads,
                            executed: Slot(first),
                        };
                        stage.send(Envelope::ToReplicas(Set::one(ReplicaId(0)), message));
                    }
                }),
            })
        }
        _ => None,
    }
}
