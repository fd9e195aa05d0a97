//! The batches that wait until a leader, or the head of a chain, has room for them, and what it has
//! in hand already.

use crate::batch::{Batch, Purpose};
use crate::settled::{Floors, Sweep};
use alloc::collections::{BTreeSet, VecDeque};
use ionian_kernel::id::ClientId;
use ionian_kernel::time::Instant;

/// How many batches may wait, and how many bytes they may hold. What comes beyond is dropped, and
/// proposed again by its proposer: each has a window of its own, so that only very many can come so
/// far.
const MAX_QUEUED: usize = 1 << 14;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// A batch, and who waits for it.
pub trait Proposal {
    /// The batch.
    fn batch(&self) -> &Batch;
}

impl<W> Proposal for (Batch, W) {
    fn batch(&self) -> &Batch {
        &self.0
    }
}

/// See the top of this file. Small batches and large ones wait apart and take turns, each in the
/// order in which they came: a small one should not wait until all large ones are chosen. The
/// classes are those of a [`ByteWindow`](crate::flow::ByteWindow).
pub struct Queue<T> {
    classes: [VecDeque<T>; 2],
    /// The class whose turn it is.
    turn: usize,
    bytes: usize,
    sweep: Sweep,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            classes: [VecDeque::new(), VecDeque::new()],
            turn: 0,
            bytes: 0,
            sweep: Sweep::default(),
        }
    }
}

impl<T: Proposal> Queue<T> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// How many batches wait.
    pub fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// How many bytes they have.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// Takes a batch of this class in.
    ///
    /// # Errors
    /// Gives it back when there is no room for it.
    pub fn push(&mut self, class: usize, proposal: T) -> Result<(), T> {
        let bytes = self.bytes + proposal.batch().byte_len();
        if self.len() >= MAX_QUEUED || bytes > MAX_QUEUED_BYTES {
            return Err(proposal);
        }
        self.bytes = bytes;
        self.classes[class].push_back(proposal);
        Ok(())
    }

    /// The next batch that may be proposed, as `fits` says of its size.
    pub fn pop(&mut self, fits: impl Fn(usize) -> bool) -> Option<T> {
        let fits = |proposal: &T| fits(proposal.batch().byte_len());
        let class = [self.turn, 1 - self.turn]
            .into_iter()
            .find(|class| self.classes[*class].front().is_some_and(fits))?;
        self.turn = 1 - class;
        let proposal = self.classes[class].pop_front().expect("just seen");
        self.bytes -= proposal.batch().byte_len();
        Some(proposal)
    }

    /// Takes out what no client waits for any more, as `settles` says of it and of what all that
    /// waits says. To be called before the next is taken.
    pub fn drop_settled(
        &mut self,
        now: Instant,
        settles: impl Fn(&Floors, &T) -> bool,
        mut dropped: impl FnMut(T),
    ) {
        if !self.sweep.is_due(now, self.len()) {
            return;
        }
        let floors = Floors::of(self.iter());
        for class in &mut self.classes {
            for proposal in core::mem::take(class) {
                if settles(&floors, &proposal) {
                    self.bytes -= proposal.batch().byte_len();
                    dropped(proposal);
                } else {
                    class.push_back(proposal);
                }
            }
        }
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        core::mem::take(self).classes.into_iter().flatten()
    }

    fn iter(&self) -> impl Iterator<Item = &Batch> {
        self.classes.iter().flatten().map(Proposal::batch)
    }

    /// Asserts what must hold between two calls.
    pub fn invariants(&self) {
        let bytes: usize = self.iter().map(Batch::byte_len).sum();
        assert_eq!(bytes, self.bytes, "a leader lost count of its queue");
    }
}

/// What tells batches apart: the first command, and how many there are. A retry differs in what
/// else it says.
type Name = (ClientId, Purpose, u64, usize);

/// The name of a batch; none of a noop.
fn name(batch: &Batch) -> Option<Name> {
    let first = batch.commands().next()?;
    Some((first.client, first.purpose, first.number, batch.len()))
}

/// The names of the batches that wait in the queue or are on their way in the window. A batch that
/// its proposer proposes once more is looked up here: to queue it again would be the same work
/// twice, and with many proposers whose answers are late the queue would soon hold nothing but
/// copies. Built when a batch comes for the second time, and dropped when that has not happened for
/// a while: the steady state pays nothing for it.
#[derive(Default)]
pub struct Held {
    names: Option<BTreeSet<Name>>,
    asked: bool,
}

impl Held {
    /// Whether a batch is in hand already: in the queue, or among those that are proposed or will
    /// be.
    pub fn has<'a, T: Proposal + 'a>(
        &mut self,
        batch: &Batch,
        queue: &'a Queue<T>,
        proposed: impl Iterator<Item = &'a Batch>,
    ) -> bool {
        self.asked = true;
        let names = self
            .names
            .get_or_insert_with(|| queue.iter().chain(proposed).filter_map(name).collect());
        name(batch).is_some_and(|name| names.contains(&name))
    }

    /// A batch was queued or proposed.
    pub fn add(&mut self, batch: &Batch) {
        if let Some(names) = &mut self.names {
            names.extend(name(batch));
        }
    }

    /// A batch is executed somewhere.
    pub fn remove(&mut self, batch: &Batch) {
        if let Some(names) = &mut self.names
            && let Some(name) = name(batch)
        {
            names.remove(&name);
        }
    }

    /// Some time has passed.
    pub fn tick(&mut self) {
        if !core::mem::take(&mut self.asked) {
            self.names = None;
        }
    }

    /// Nothing is in hand any more.
    pub fn clear(&mut self) {
        *self = Held::default();
    }
}
