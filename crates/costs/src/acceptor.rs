//! Drives an acceptor: is the proxy leader that asks for votes, the leader that lets it forget
//! them, and the reader that asks for its watermark.

use crate::cases::Load;
use crate::forge::{Commands, value};
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_kernel::time::Duration;
use ionian_protocols::multipaxos::message::ReaderId;
use ionian_protocols::multipaxos::{Message, acceptor, kind};

/// The heartbeat's default.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(100);

/// How far behind the last slot the replicas are.
const BEHIND: u64 = 256;

struct Votes {
    load: Load,
    commands: Commands,
    next_slot: Slot,
}

/// An acceptor that votes.
pub(crate) fn drive_votes(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    Box::new(Votes {
        load,
        commands,
        next_slot: Slot::ZERO,
    })
}

fn round() -> Round {
    Round::new(Epoch(0), 1, LeaderId(0))
}

/// The leader lives, and `kept` can be forgotten.
fn heartbeat(stage: &mut Stage, kept: Slot) {
    if stage.is_due(HEARTBEAT_EVERY) {
        stage.say(Message::Acceptor(acceptor::In::Heartbeat {
            round: round(),
            kept,
        }));
    }
}

impl Drive for Votes {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        heartbeat(stage, Slot(self.next_slot.0.saturating_sub(BEHIND)));
        let Load { batch, batches, .. } = self.load;
        for _ in 0..batches {
            let (from, value) = (
                ProxyLeaderId(0),
                value(stage.now(), self.commands.writes(batch)),
            );
            let (slot, round) = (self.next_slot, round());
            stage.say(Message::Acceptor(acceptor::In::Phase2a {
                from,
                slot,
                round,
                value,
            }));
            self.next_slot = self.next_slot.next();
        }
        Burst {
            commands: batches * batch,
            due: batches,
        }
    }
}

struct Reads {
    load: Load,
    inquiry: u64,
}

/// An acceptor that is asked for its watermark.
pub(crate) fn drive_reads(_: &mut Stage, load: Load) -> Box<dyn Drive> {
    Box::new(Reads { load, inquiry: 0 })
}

impl Drive for Reads {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        heartbeat(stage, Slot::ZERO);
        let Load { batch, batches, .. } = self.load;
        let from = match batch {
            1 => ReaderId::Client { id: ClientId(0) },
            _ => ReaderId::ReadBatcher {
                id: ReadBatcherId(0),
            },
        };
        for _ in 0..batches {
            stage.say(Message::Acceptor(acceptor::In::PreRead {
                from,
                inquiry: self.inquiry,
            }));
            self.inquiry += 1;
        }
        Burst {
            commands: batches * batch,
            due: batches,
        }
    }
}
