//! Drives an unbatcher: is the replicas that hand it answers.

use crate::cases::Load;
use crate::forge::{Commands, answers};
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_protocols::multipaxos::{Message, kind, unbatcher};

struct Driver {
    load: Load,
    commands: Commands,
    executed: Slot,
}

/// An unbatcher.
pub(crate) fn drive(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    Box::new(Driver {
        load,
        commands,
        executed: Slot::ZERO,
    })
}

impl Drive for Driver {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        let Load { batch, batches, .. } = self.load;
        for _ in 0..batches {
            self.executed = self.executed.next();
            let answers = answers(self.executed, (0..batch).map(|_| self.commands.write()));
            stage.say(Message::Unbatcher(unbatcher::In::Results { answers }));
        }
        let clients = stage.all::<ClientId>(kind::Client).len();
        Burst {
            commands: batches * batch,
            due: batches * clients,
        }
    }
}
