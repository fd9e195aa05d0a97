//! Drives a client lane: is the application that submits writes, and the replicas or unbatchers
//! that bring answers.

use crate::cases::Load;
use crate::forge::{Commands, answers, opened};
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::*;
use ionian_protocols::multipaxos::{Message, batcher, client, leader};
use ionian_replication::batch::Command;

struct Driver {
    load: Load,
    commands: Commands,
    token: u64,
    executed: Slot,
    /// Commands of the burst before, which are answered in this one.
    asked: Vec<Command>,
}

/// A lane whose session is open.
pub(crate) fn drive(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let asked = stage.heard().iter().find_map(|message| match message {
        Message::Leader(leader::In::Propose { batch, .. }) => {
            batch.commands().next().map(|command| command.to_owned())
        }
        Message::Batcher(batcher::In::Commands { commands }) => {
            commands.commands().next().map(|command| command.to_owned())
        }
        _ => None,
    });
    let answers = opened(&asked.expect("a lane asks for a session"), SessionId(1));
    stage.say(Message::Client(client::In::Answers { answers }));
    stage.pass();
    let commands = Commands::new(1);
    Box::new(Driver {
        load,
        commands,
        token: 0,
        executed: Slot::ZERO,
        asked: Vec::new(),
    })
}

impl Drive for Driver {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        let Load { batch, batches, .. } = self.load;
        // A message has the answers to a batch; unbatched, those that one of four replicas gives in
        // a burst.
        let asked = core::mem::take(&mut self.asked);
        for some in asked.chunks(batch.max(batches / 4)) {
            self.executed = self.executed.next();
            let answers = answers(self.executed, some.iter().cloned());
            stage.say(Message::Client(client::In::Answers { answers }));
        }
        for _ in 0..batches * batch {
            let payload = self.commands.payload();
            self.asked.push(self.commands.write());
            stage.submit(Request {
                token: self.token,
                operation: Operation::Write,
                payload,
            });
            self.token += 1;
        }
        let proposals = if batch == 1 { batches } else { 1 };
        Burst {
            commands: batches * batch,
            due: asked.len() + proposals,
        }
    }
}
