//! The names of commands, for traces.

use crate::batch::{Answers, Batch, Purpose, Value};
use ionian_kernel::id::ClientId;
use ionian_kernel::trace::{CommandId, Commands};

/// As traces name it; none for what a lane does not count.
fn traced(client: ClientId, purpose: Purpose, number: u64) -> Option<CommandId> {
    let sessionless = match purpose {
        Purpose::Execute(_) => false,
        Purpose::Read | Purpose::Change => true,
        Purpose::KeepAlive(_) | Purpose::Open | Purpose::Internal => return None,
    };
    Some(CommandId {
        client,
        sessionless,
        number,
    })
}

impl Commands for Batch {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.commands()
            .filter_map(|it| traced(it.client, it.purpose, it.number))
            .for_each(show);
    }
}

impl Commands for Value {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.batch.each_id(show);
    }
}

impl Commands for Answers {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.borrowed()
            .filter_map(|it| traced(it.client, it.purpose, it.number))
            .for_each(show);
    }
}
