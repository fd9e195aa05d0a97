//! The names of commands, for traces.

use crate::batch::{Answers, Batch, Purpose, Value};
use ionian_kernel::id::ClientId;
use ionian_kernel::trace::{CommandId, Commands};

/// A command as traces name it: the lane counts those that need no session apart.
pub(crate) fn named(client: ClientId, sessionless: bool, number: u64) -> CommandId {
    CommandId {
        client,
        sessionless,
        number,
    }
}

/// The same of its purpose; none for what a lane does not count.
fn traced(client: ClientId, purpose: Purpose, number: u64) -> Option<CommandId> {
    match purpose {
        Purpose::Execute(_) => Some(named(client, false, number)),
        Purpose::Read | Purpose::Change => Some(named(client, true, number)),
        Purpose::KeepAlive(_) | Purpose::Open | Purpose::Internal => None,
    }
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
