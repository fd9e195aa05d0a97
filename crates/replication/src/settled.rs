//! What waits for its turn although no client waits for it any more.
//!
//! A command says below which number its client has answers to all commands of the session, or has
//! given them up. Those below it that still wait would take the place of what clients wait for: a
//! queue that is longer than the clients' patience would never become shorter, because clients that
//! give up ask for something else.

use crate::batch::{Batch, Purpose};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ionian_kernel::id::{ClientId, SessionId};
use ionian_kernel::time::{Duration, Instant};

/// Fewer batches than these are not looked through.
const FEW: usize = 8;

/// What waits is looked through at most this often: far less than it costs to have it ordered.
const EVERY: Duration = Duration::from_millis(250);

/// When what waits is looked through.
#[derive(Debug, Default)]
pub struct Sweep {
    next: Instant,
}

impl Sweep {
    /// Whether this number of waiting batches is looked through now. To be asked when a batch
    /// begins to wait, because its floors may settle others, or before the next batch is taken.
    pub fn is_due(&mut self, now: Instant, waiting: usize) -> bool {
        let is_due = waiting >= FEW && self.next <= now;
        if is_due {
            self.next = now + EVERY;
        }
        is_due
    }
}

/// Below which number clients wait for no command of a session, as far as some batches say.
#[derive(Debug, Default)]
pub struct Floors(BTreeMap<(ClientId, SessionId), u64>);

impl Floors {
    /// As these batches say.
    pub fn of<'a>(batches: impl Iterator<Item = &'a Batch>) -> Self {
        let mut floors = Floors::default();
        for command in batches.flat_map(Batch::commands) {
            if let Some(session) = command.purpose.session() {
                let floor = floors.0.entry((command.client, session)).or_default();
                *floor = command.floor.max(*floor);
            }
        }
        floors
    }

    /// Whether no client waits for any command of a batch.
    pub fn settle(&self, batch: &Batch) -> bool {
        let mut commands = batch.commands();
        !batch.is_empty()
            && commands.all(|command| {
                let of = |session| self.0.get(&(command.client, session));
                match command.purpose {
                    Purpose::Execute(session) => of(session).is_some_and(|it| command.number < *it),
                    Purpose::KeepAlive(session) => {
                        of(session).is_some_and(|it| command.floor < *it)
                    }
                    _ => false,
                }
            })
    }
}

/// The keys of those batches that need not wait: no client waits for their commands, or all of
/// these are in batches before them.
pub fn needless<'a, K>(waiting: impl Iterator<Item = (K, &'a Batch)> + Clone) -> Vec<K> {
    let floors = Floors::of(waiting.clone().map(|(_, batch)| batch));
    let mut names = Names::default();
    let needless = waiting.filter(|(_, batch)| floors.settle(batch) || names.has(batch));
    needless.map(|(key, _)| key).collect()
}

/// The commands that wait already.
#[derive(Debug, Default)]
struct Names(BTreeSet<(ClientId, Purpose, u64)>);

impl Names {
    /// Whether all commands of a batch are copies of what waits; otherwise they wait from now on.
    fn has(&mut self, batch: &Batch) -> bool {
        let mut is_copy = !batch.is_empty();
        for command in batch.commands() {
            let name = (command.client, command.purpose, command.number);
            is_copy &= !self.0.insert(name);
        }
        is_copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Command};
    use bytes::Bytes;

    fn batch(commands: &[(u8, Purpose, u64, u64)]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (client, purpose, number, floor) in commands.iter().copied() {
            builder.push(&Command {
                client: ClientId(client),
                purpose,
                number,
                floor,
                payload: Bytes::from_static(b"payload"),
            });
        }
        builder.take()
    }

    const ONE: Purpose = Purpose::Execute(SessionId(1));
    const OTHER: Purpose = Purpose::Execute(SessionId(2));

    #[test]
    fn a_batch_is_settled_when_the_client_of_each_command_waits_for_none_of_them() {
        let later = [batch(&[(0, ONE, 7, 5)]), batch(&[(1, OTHER, 3, 3)])];
        let floors = Floors::of(later.iter());
        let settles = |commands: &[_]| floors.settle(&batch(commands));
        assert!(settles(&[(0, ONE, 4, 0)]));
        assert!(settles(&[(0, ONE, 4, 0), (1, OTHER, 2, 0)]));
        assert!(settles(&[(0, Purpose::KeepAlive(SessionId(1)), 0, 4)]));
        assert!(!settles(&[(0, ONE, 5, 0)]), "at the floor");
        assert!(!settles(&[(0, ONE, 4, 0), (1, OTHER, 3, 0)]));
        assert!(!settles(&[(0, OTHER, 4, 0)]), "another session");
        assert!(!settles(&[(1, ONE, 4, 0)]), "another client");
        assert!(!settles(&[(0, Purpose::KeepAlive(SessionId(1)), 0, 5)]));
        assert!(!settles(&[(0, Purpose::Open, 4, 0)]));
        assert!(!settles(&[]), "a noop settles nothing and has its reasons");
    }

    #[test]
    fn a_batch_is_a_copy_when_all_of_its_commands_wait() {
        let mut names = Names::default();
        assert!(!names.has(&batch(&[(0, ONE, 4, 0)])));
        assert!(names.has(&batch(&[(0, ONE, 4, 2)])));
        assert!(!names.has(&batch(&[(0, ONE, 4, 0), (0, ONE, 5, 0)])));
        assert!(names.has(&batch(&[(0, ONE, 5, 0)])));
        assert!(!names.has(&batch(&[])));
    }

    #[test]
    fn what_waits_is_looked_through_now_and_then_if_it_is_much() {
        let mut sweep = Sweep::default();
        let later = Instant(9) + EVERY;
        assert!(!sweep.is_due(Instant(9), FEW - 1));
        assert!(sweep.is_due(Instant(9), FEW));
        assert!(!sweep.is_due(Instant(later.0 - 1), FEW));
        assert!(sweep.is_due(later, FEW));
    }
}
