//! The batches that wait for the window to open or for phase 1 to end, and what a leader has in
//! hand already.

use crate::parts::message::Proposer;
use alloc::collections::{BTreeSet, VecDeque};
use ionian_kernel::id::*;
use ionian_replication::batch::{Batch, Purpose};

/// How many batches may wait, and how many bytes they may hold. What comes beyond is dropped, and
/// proposed again by its proposer: each has a window of its own, so that only very many can come so
/// far.
const MAX_QUEUED: usize = 1 << 14;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// A batch, and who waits for it.
pub struct Proposal {
    /// Who proposes it.
    pub proposer: Proposer,
    /// The replicas on the proposer's node: an answer given there has the shortest way.
    pub near: Set<ReplicaId>,
    /// The batch.
    pub batch: Batch,
}

/// See the top of this file. Small batches and large ones wait apart and take turns, each in the
/// order in which they came: a small one should not wait until all large ones are chosen.
#[derive(Default)]
pub(super) struct Queue {
    classes: [VecDeque<Proposal>; 2],
    /// The class whose turn it is.
    turn: usize,
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// Takes a batch of this class in; gives it back when there is no room for it.
    pub(super) fn push(&mut self, class: usize, proposal: Proposal) -> Result<(), Proposal> {
        let bytes = self.bytes + proposal.batch.byte_len();
        if self.len() >= MAX_QUEUED || bytes > MAX_QUEUED_BYTES {
            return Err(proposal);
        }
        self.bytes = bytes;
        self.classes[class].push_back(proposal);
        Ok(())
    }

    /// The next batch that may be proposed, as `fits` says of its size.
    pub(super) fn pop(&mut self, fits: impl Fn(usize) -> bool) -> Option<Proposal> {
        let fits = |proposal: &Proposal| fits(proposal.batch.byte_len());
        let class = [self.turn, 1 - self.turn]
            .into_iter()
            .find(|class| self.classes[*class].front().is_some_and(fits))?;
        self.turn = 1 - class;
        let proposal = self.classes[class].pop_front().expect("just seen");
        self.bytes -= proposal.batch.byte_len();
        Some(proposal)
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Proposal> {
        core::mem::take(self).classes.into_iter().flatten()
    }

    fn iter(&self) -> impl Iterator<Item = &Proposal> {
        self.classes.iter().flatten()
    }

    pub(super) fn invariants(&self) {
        let bytes: usize = self.iter().map(|proposal| proposal.batch.byte_len()).sum();
        assert_eq!(bytes, self.bytes, "a leader lost count of its queue");
    }
}

/// What tells batches apart: the first command, and how many there are. A retry differs in what
/// else it says.
pub(super) type Name = (ClientId, Purpose, u64, usize);

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
pub(super) struct Held {
    names: Option<BTreeSet<Name>>,
    asked: bool,
}

impl Held {
    /// Whether a batch is in hand already: in the queue, or among those that are proposed or will
    /// be.
    pub(super) fn has<'a>(
        &mut self,
        batch: &Batch,
        queue: &'a Queue,
        proposed: impl Iterator<Item = &'a Batch>,
    ) -> bool {
        self.asked = true;
        let names = self.names.get_or_insert_with(|| {
            let queued = queue.iter().map(|proposal| &proposal.batch);
            queued.chain(proposed).filter_map(name).collect()
        });
        name(batch).is_some_and(|name| names.contains(&name))
    }

    /// A batch was queued or proposed.
    pub(super) fn add(&mut self, batch: &Batch) {
        if let Some(names) = &mut self.names {
            names.extend(name(batch));
        }
    }

    /// A batch is executed somewhere.
    pub(super) fn remove(&mut self, batch: &Batch) {
        if let Some(names) = &mut self.names
            && let Some(name) = name(batch)
        {
            names.remove(&name);
        }
    }

    /// Some time has passed.
    pub(super) fn tick(&mut self) {
        if !core::mem::take(&mut self.asked) {
            self.names = None;
        }
    }

    /// Nothing is in hand any more.
    pub(super) fn clear(&mut self) {
        *self = Held::default();
    }
}
