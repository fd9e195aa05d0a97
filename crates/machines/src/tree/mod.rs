//! The key-value service of the P-SMR paper (section V-A): a B+-tree of 8-byte keys and values.
//!
//! Commands are [`Command`]s, answered by [`Reply`]s. Numbers are little-endian, and each key and
//! value is a `u64`:
//!
//! ```text
//! read    00 | key                    01 | value, or 02: not found
//! update  01 | key | value            00: done, or 02: not found
//! insert  02 | key | value            00: done, or 03: exists
//! delete  03 | key                    00: done, or 02: not found
//! scan    04 | from | to | limit: u32    05 | entries, or 06 | entries: there are more
//! count   05                          01 | number of keys
//!         anything else               04: malformed
//! ```
//!
//! Scans and counts are not in the paper. What the paper leaves open: an insert of a key that is
//! there changes nothing.
//!
//! [`TreeStore`] is the machine, with one of two [tables](Table) of dependencies: as
//! [published](Published), or of a [partitioned](Partitioned) tree. Both have the same state, the
//! same answers, and the same snapshots.

mod bplus;
mod command;
mod entries;
mod snapshot;
mod table;
mod trees;

pub use bplus::{Range, Tree};
pub use command::{Command, MAX_SCAN, Reply, kind};
pub use table::{KINDS, Partitioned, Published, Table};

use ionian_kernel::machine::{Footprint, Frozen, NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use snapshot::Picture;
use std::any::Any;
use std::marker::PhantomData;
use trees::{MAX_PARTS, Merge, Trees};

/// The machine, with the table of dependencies `T`.
pub struct TreeStore<T> {
    trees: Trees,
    table: PhantomData<T>,
}

impl<T> Default for TreeStore<T> {
    fn default() -> Self {
        TreeStore::new(Trees::new(1))
    }
}

impl<T> TreeStore<T> {
    fn new(trees: Trees) -> Self {
        let table = PhantomData;
        TreeStore { trees, table }
    }

    fn execute(&mut self, command: &Command) -> Reply {
        match *command {
            Command::Update { key, value } => {
                done_or(Reply::NotFound, self.trees.of_mut(key).update(key, value))
            }
            Command::Insert { key, value } => {
                done_or(Reply::Exists, self.trees.of_mut(key).insert(key, value))
            }
            Command::Delete { key } => done_or(Reply::NotFound, self.trees.of_mut(key).delete(key)),
            Command::Read { .. } | Command::Scan { .. } | Command::Count => self.answer(command),
        }
    }

    /// Answers a command that is a read.
    fn answer(&self, command: &Command) -> Reply {
        match *command {
            Command::Read { key } => match self.trees.of(key).get(key) {
                Some(value) => Reply::Value(value),
                None => Reply::NotFound,
            },
            Command::Scan { from, to, limit } => self.scan(from, to, limit.min(MAX_SCAN)),
            Command::Count => Reply::Value(self.trees.len() as u64),
            Command::Update { .. } | Command::Insert { .. } | Command::Delete { .. } => {
                unreachable!("it is not a read")
            }
        }
    }

    fn scan(&self, from: u64, to: u64, limit: u32) -> Reply {
        let all = Merge::new(self.trees.all().map(|tree| tree.range(from)));
        let mut all = all.take_while(|(key, _)| *key <= to);
        let entries = all.by_ref().take(limit as usize).collect();
        let more = all.next().is_some();
        Reply::Entries { entries, more }
    }
}

fn done_or(refusal: Reply, is_done: bool) -> Reply {
    if is_done { Reply::Done } else { refusal }
}

impl<T: Table> StateMachine for TreeStore<T> {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let command = Command::decode(command);
        let answer = command.map_or(Reply::Malformed, |command| self.execute(&command));
        answer.encode(reply);
    }

    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let answer = match Command::decode(query) {
            Some(command) if !command.is_read() => return Err(NotARead),
            Some(command) => self.answer(&command),
            None => Reply::Malformed,
        };
        answer.encode(reply);
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let mut picture = Picture::new(&self.trees);
        while picture.write_some(out) {}
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        Box::new(Picture::new(&self.trees))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.trees = snapshot::read(snapshot, self.trees.count())?;
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        // What is malformed touches nothing.
        if let Some(command) = Command::decode(command) {
            T::classes().touch(command.kind(), command.key(), footprint);
        }
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }
}

/// Keys are in parts by their hashes. A part that is lent is a machine in which all other parts are
/// away.
impl<T: Table> Parts for TreeStore<T> {
    fn divide(&mut self, count: usize) -> usize {
        let count = count.clamp(1, MAX_PARTS);
        if count != self.trees.count() {
            let mut divided = Trees::new(count);
            // In ascending order, which fills the leaves.
            for (key, value) in Merge::new(self.trees.all().map(|tree| tree.range(0))) {
                divided.of_mut(key).insert(key, value);
            }
            self.trees = divided;
        }
        count
    }

    fn part_of(&mut self, key: u64) -> usize {
        self.trees.part_of(key)
    }

    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        Box::new(TreeStore::<T>::new(self.trees.lend(part)))
    }

    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<Self>().expect("a part of this machine");
        self.trees.take_back(part, lent.trees);
    }
}
