//! The commands that a leader has not proposed yet: one queue for all, and one for each *place* at
//! which the leader has an instance that is not executed. A place is a key, or being a barrier.
//!
//! When its place is free, the commands that wait there are joined in one instance. A command that
//! would wait at several places goes to a queue of its own kind. The commands at the head of that
//! queue *claim* their keys: no further instance writes one of those until they are proposed, which
//! is when all of them are free. Only one instance claims at a time, so no two wait for each other.

use super::unexecuted::Unexecuted;
use crate::epaxos::message::Replier;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::id::ClientId;
use ionian_kernel::machine::Footprint;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, BatchBuilder, Purpose};
use ionian_replication::settled::{Floors, Sweep};

/// The most commands that wait, and their bytes. Commands beyond either are dropped, and their
/// clients send them again.
const MAX_QUEUED: usize = 1 << 14;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The most commands that are joined in one instance, and their bytes if there is more than one.
const MAX_JOINED: usize = 1 << 10;
const MAX_JOINED_BYTES: usize = 256 << 10;

/// The id under which a command is executed once.
type CommandId = (ClientId, Purpose, u64);

/// A batch that waits.
pub(super) struct Queued {
    pub(super) batch: Batch,
    pub(super) replier: Replier,
    /// What it touches, once that is known.
    pub(super) footprint: Footprint,
}

/// Where commands wait for an instance of this leader to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// It writes this key.
    Key(u64),
    /// It is a barrier.
    Everything,
    /// Several keys are written.
    Several,
}

/// See the top of this file.
#[derive(Default)]
pub(super) struct Waiting {
    queue: VecDeque<Queued>,
    /// None of them is empty.
    crowded: BTreeMap<Place, VecDeque<Queued>>,
    /// The places with commands at which something has changed.
    changed: BTreeSet<Place>,
    /// What is proposed next of the commands with several places.
    claim: Option<Queued>,
    count: usize,
    bytes: usize,
    /// The commands that wait or are not executed: a copy of one of them is not proposed again.
    open: BTreeSet<CommandId>,
    sweep: Sweep,
    pub(super) dropped: u64,
    pub(super) repeated: u64,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether barriers of clients wait.
    pub(super) fn has_barrier(&self) -> bool {
        self.crowded.contains_key(&Place::Everything)
    }

    /// Takes a command in, unless it is there already or there is no room.
    pub(super) fn enqueue(&mut self, now: Instant, batch: Batch, replier: Replier) {
        let ids = command_ids(&batch);
        if ids.iter().all(|id| self.open.contains(id)) {
            self.repeated += 1;
        } else if !self.has_room(batch.byte_len()) {
            self.dropped += 1;
        } else {
            self.open.extend(ids);
            self.count += 1;
            self.bytes += batch.byte_len();
            self.queue.push_back(Queued {
                batch,
                replier,
                footprint: Footprint::default(),
            });
            self.drop_settled(now);
        }
    }

    /// Drops what no client waits for any more, if enough waits to look through it. The claim
    /// stays: its turn comes next.
    fn drop_settled(&mut self, now: Instant) {
        if !self.sweep.is_due(now, self.count) {
            return;
        }
        let all = self.queue.iter().chain(self.crowded.values().flatten());
        let floors = Floors::of(all.map(|queued| &queued.batch));
        let Self {
            queue,
            crowded,
            count,
            bytes,
            open,
            ..
        } = self;
        let mut stays = |queued: &Queued| {
            let stays = !floors.settle(&queued.batch);
            if !stays {
                *count -= 1;
                *bytes -= queued.batch.byte_len();
                for id in command_ids(&queued.batch) {
                    open.remove(&id);
                }
            }
            stays
        };
        queue.retain(&mut stays);
        crowded.retain(|_, queue| {
            queue.retain(&mut stays);
            !queue.is_empty()
        });
    }

    fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes + bytes <= MAX_QUEUED_BYTES;
        self.count == 0 || (self.count < MAX_QUEUED && fits)
    }

    /// Commands need no protection from copies any more.
    pub(super) fn close(&mut self, batch: &Batch) {
        for id in command_ids(batch) {
            self.open.remove(&id);
        }
    }

    /// The batch that waits first in the queue for all. It is not counted any more.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let first = self.queue.pop_front()?;
        self.count -= 1;
        self.bytes -= first.batch.byte_len();
        Some(first)
    }

    /// Where a command with this footprint must wait, if it must.
    pub(super) fn place_of(&self, footprint: &Footprint, of: &Unexecuted) -> Option<Place> {
        if footprint.everything {
            let waits = of.has_barrier() || self.has_barrier();
            return waits.then_some(Place::Everything);
        }
        let mut busy = footprint
            .writes
            .iter()
            .filter(|key| self.is_busy(**key, of));
        let first = *busy.next()?;
        match busy.any(|key| *key != first) {
            true => Some(Place::Several),
            false => Some(Place::Key(first)),
        }
    }

    fn is_busy(&self, key: u64, of: &Unexecuted) -> bool {
        of.writes(key) || self.is_claimed(key) || self.crowded.contains_key(&Place::Key(key))
    }

    fn is_claimed(&self, key: u64) -> bool {
        let claim = self.claim.as_ref();
        claim.is_some_and(|it| it.footprint.writes.binary_search(&key).is_ok())
    }

    /// A command waits at a place.
    pub(super) fn put(&mut self, place: Place, queued: Queued) {
        self.count += 1;
        self.bytes += queued.batch.byte_len();
        self.crowded.entry(place).or_default().push_back(queued);
        if place == Place::Several {
            self.changed.insert(place);
        }
    }

    /// An instance with this footprint is executed.
    pub(super) fn on_executed(&mut self, footprint: &Footprint) {
        let several = self.claim.is_some().then_some(Place::Several);
        let places = match footprint.everything {
            true => Vec::from([Place::Everything]),
            false => footprint
                .writes
                .iter()
                .map(|key| Place::Key(*key))
                .collect(),
        };
        let waits = |place: &Place| self.crowded.contains_key(place);
        let places = places.into_iter().filter(waits);
        self.changed.extend(places.chain(several));
    }

    /// What can be proposed of the commands that wait at places, with a size of at most `bytes` if
    /// it is more than one command.
    pub(super) fn next_joined(&mut self, of: &Unexecuted) -> Option<Queued> {
        while let Some(place) = self.changed.pop_first() {
            let joined = match place {
                Place::Key(key) if of.writes(key) || self.is_claimed(key) => None,
                Place::Key(key) => self.join(place, |all, it| {
                    let others = it.footprint.writes.iter().filter(|other| **other != key);
                    let mut others = others.copied();
                    others.any(|other| all.is_busy(other, of))
                }),
                Place::Everything if of.has_barrier() => None,
                Place::Everything => self.join(place, |_, _| false),
                Place::Several => self.claimed(of),
            };
            if joined.is_some() {
                return joined;
            }
        }
        None
    }

    /// The claim, when all its keys are free.
    fn claimed(&mut self, of: &Unexecuted) -> Option<Queued> {
        if self.claim.is_none() {
            self.claim = self.join(Place::Several, |_, _| false);
            let claim = self.claim.as_ref()?;
            self.count += 1;
            self.bytes += claim.batch.byte_len();
        }
        let writes = &self.claim.as_ref()?.footprint.writes;
        if writes.iter().any(|key| of.writes(*key)) {
            return None;
        }
        let claim = self.claim.take()?;
        self.count -= 1;
        self.bytes -= claim.batch.byte_len();
        if self.crowded.contains_key(&Place::Several) {
            self.changed.insert(Place::Several);
        }
        Some(claim)
    }

    /// Joins commands that wait at a place, and has those wait at several that must.
    fn join(&mut self, place: Place, waits: impl Fn(&Self, &Queued) -> bool) -> Option<Queued> {
        let mut queue = self.crowded.remove(&place)?;
        let (mut joined, mut builder) = (None::<Queued>, BatchBuilder::default());
        while let Some(next) = queue.front() {
            let bytes = builder.byte_len() + next.batch.byte_len();
            let fits = builder.len() < MAX_JOINED && bytes <= MAX_JOINED_BYTES;
            if joined.is_some() && !fits {
                break;
            }
            let next = queue.pop_front().expect("it was just seen");
            self.count -= 1;
            self.bytes -= next.batch.byte_len();
            if waits(self, &next) {
                self.put(Place::Several, next);
                continue;
            }
            builder.append(&next.batch);
            match &mut joined {
                None => joined = Some(next),
                Some(joined) => add(&mut joined.footprint, next.footprint),
            }
        }
        if !queue.is_empty() {
            self.crowded.insert(place, queue);
        }
        let mut joined = joined?;
        joined.batch = builder.take();
        for keys in [&mut joined.footprint.reads, &mut joined.footprint.writes] {
            keys.sort_unstable();
            keys.dedup();
        }
        Some(joined)
    }

    pub(super) fn invariants(&self) {
        let crowded = self.crowded.values().flatten();
        let all = || self.queue.iter().chain(crowded.clone()).chain(&self.claim);
        let bytes = all().map(|queued| queued.batch.byte_len());
        assert_eq!(
            (all().count(), bytes.sum::<usize>()),
            (self.count, self.bytes),
            "a leader lost count of its queues"
        );
        assert!(
            !self.crowded.values().any(VecDeque::is_empty),
            "an empty queue at a place"
        );
    }
}

fn add(footprint: &mut Footprint, other: Footprint) {
    footprint.everything |= other.everything;
    footprint.reads.extend(other.reads);
    footprint.writes.extend(other.writes);
}

fn command_ids(batch: &Batch) -> Vec<CommandId> {
    let commands = batch.commands();
    commands
        .map(|command| (command.client, command.purpose, command.number))
        .collect()
}
