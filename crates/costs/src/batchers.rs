//! Drives a batcher and a read batcher: is the clients whose commands come one by one, and who
//! tells it what has become of its batches.

use crate::cases::Load;
use crate::forge::Commands;
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Message, acceptor, batcher, kind, leader, read_batcher};

struct Writes {
    load: Load,
    commands: Commands,
    /// Its number of the batch that it closes next.
    next_number: u64,
    /// Its numbers of the batches of the burst before, which are chosen in this one.
    proposed: Vec<u64>,
}

/// A batcher that has had its first batch chosen.
pub(crate) fn drive_batcher(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let mut commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    stage.say(Message::Batcher(batcher::In::Commands {
        commands: commands.writes(load.batch),
    }));
    stage.pass();
    let first = stage.heard().iter().find_map(|message| match message {
        Message::Leader(leader::In::Propose {
            proposer: Proposer::Batcher { number, .. },
            ..
        }) => Some(*number),
        _ => None,
    });
    let first = first.expect("a full batch is proposed");
    Box::new(Writes {
        load,
        commands,
        next_number: first + 1,
        proposed: vec![first],
    })
}

impl Drive for Writes {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        for number in self.proposed.drain(..) {
            stage.say(Message::Batcher(batcher::In::BatchesChosen {
                numbers: vec![number],
            }));
        }
        let Load { batch, batches, .. } = self.load;
        for _ in 0..batches * batch {
            stage.say(Message::Batcher(batcher::In::Commands {
                commands: self.commands.writes(1),
            }));
        }
        self.proposed
            .extend(self.next_number..self.next_number + batches as u64);
        self.next_number += batches as u64;
        Burst {
            commands: batches * batch,
            due: batches,
        }
    }
}

struct Reads {
    load: Load,
    commands: Commands,
    /// Its number of the inquiry that it begins at the end of this burst.
    next_inquiry: u64,
}

/// A read batcher that has begun its first inquiry.
pub(crate) fn drive_read_batcher(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let mut commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    stage.say(Message::ReadBatcher(read_batcher::In::Reads {
        reads: commands.reads(load.batch),
    }));
    stage.pass();
    let first = stage.heard().iter().find_map(|message| match message {
        Message::Acceptor(acceptor::In::PreRead { inquiry, .. }) => Some(*inquiry),
        _ => None,
    });
    let next_inquiry = first.expect("acceptors are asked for their watermarks") + 1;
    Box::new(Reads {
        load,
        commands,
        next_inquiry,
    })
}

impl Drive for Reads {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        if stage.is_due(read_batcher::REPLICA_PRESENCE / 4) {
            for from in stage.all(kind::Replica).iter() {
                stage.say(Message::ReadBatcher(read_batcher::In::ReplicaAlive {
                    from,
                }));
            }
        }
        // Two of three acceptors are a read quorum. They answer the inquiry of the burst before.
        let (inquiry, watermark, epoch) =
            (self.next_inquiry - 1, Slot(self.next_inquiry), Epoch(0));
        for from in [AcceptorId(0), AcceptorId(1)] {
            stage.say(Message::ReadBatcher(read_batcher::In::PreReadAck {
                from,
                inquiry,
                watermark,
                epoch,
            }));
        }
        // All reads of a burst are one batch.
        for _ in 0..self.load.batch {
            stage.say(Message::ReadBatcher(read_batcher::In::Reads {
                reads: self.commands.reads(1),
            }));
        }
        self.next_inquiry += 1;
        // PreRead to a read quorum, Read to a replica.
        Burst {
            commands: self.load.batch,
            due: 3,
        }
    }
}
