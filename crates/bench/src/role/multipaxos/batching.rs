//! Around batchers of writes and of reads, and unbatchers.

use super::{Actor, Play};
use crate::role::emulated::Part;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_protocols::multipaxos::message::{Proposer, ReaderId};
use ionian_protocols::multipaxos::{
    Envelope, Message, acceptor, batcher, client, kind, leader, read_batcher, replica, unbatcher,
};
use std::sync::Arc;

/// Clients send commands, a few at once; the leader takes batches, and they are chosen at once.
pub(super) fn around_batcher(play: Arc<Play>, Address { kind, .. }: Address) -> Option<Actor> {
    match kind {
        kind::Client => {
            let commands = play.commands.gathered(play.gathered);
            Some(Part::alone().tick(move |stage| {
                for _ in 0..play.flow.begin(play.gathered) {
                    let message = batcher::In::Commands {
                        commands: commands.clone(),
                    };
                    stage.send(Envelope::ToBatchers(Set::one(BatcherId(0)), message));
                }
            }))
        }
        kind::Leader => Some(Part::default().hear(move |stage, message| match message {
            Message::Leader(leader::In::Propose {
                proposer: Proposer::Batcher { number, .. },
                batch,
                ..
            }) => {
                play.flow.finish(batch.len() as u64);
                let message = batcher::In::BatchesChosen {
                    numbers: vec![number],
                };
                stage.send(Envelope::ToBatchers(Set::one(BatcherId(0)), message));
                None
            }
            message => Some(message),
        })),
        _ => None,
    }
}

/// Clients send reads, a few at once; acceptors answer, replicas take the reads.
pub(super) fn around_read_batcher(
    play: Arc<Play>,
    Address { kind, index }: Address,
) -> Option<Actor> {
    match kind {
        kind::Client => {
            let reads = play.commands.reads(0, play.gathered);
            Some(Part::alone().tick(move |stage| {
                for _ in 0..play.flow.begin(play.gathered) {
                    let message = read_batcher::In::Reads {
                        reads: reads.clone(),
                    };
                    stage.send(Envelope::ToReadBatchers(
                        Set::one(ReadBatcherId(0)),
                        message,
                    ));
                }
            }))
        }
        kind::Replica => Some(Part::default().hear(move |_, message| match message {
            Message::Replica(replica::In::Read { reads, .. }) => {
                play.flow.finish(reads.len() as u64);
                None
            }
            message => Some(message),
        })),
        kind::Acceptor => Some(Part::default().hear(move |stage, message| match message {
            Message::Acceptor(acceptor::In::PreRead {
                from: ReaderId::ReadBatcher { id },
                inquiry,
            }) => {
                let (from, watermark, epoch) = (AcceptorId(index), Slot::ZERO, Epoch::default());
                let message = read_batcher::In::PreReadAck {
                    from,
                    inquiry,
                    watermark,
                    epoch,
                };
                stage.send(Envelope::ToReadBatchers(Set::one(id), message));
                None
            }
            message => Some(message),
        })),
        _ => None,
    }
}

/// Replicas send results; clients count their answers.
pub(super) fn around_unbatcher(play: Arc<Play>, Address { kind, .. }: Address) -> Option<Actor> {
    match kind {
        kind::Replica => {
            let answers = play.commands.answers();
            Some(Part::default().tick(move |stage| {
                for _ in 0..play.flow.begin(play.commands.batch) {
                    let message = unbatcher::In::Results {
                        answers: answers.clone(),
                    };
                    stage.send(Envelope::ToUnbatchers(Set::one(UnbatcherId(0)), message));
                }
            }))
        }
        kind::Client => Some(Part::alone().hear(move |_, message| {
            if let Message::Client(client::In::Answers { answers }) = message {
                play.flow.finish(answers.iter().count() as u64);
            }
            None
        })),
        _ => None,
    }
}
