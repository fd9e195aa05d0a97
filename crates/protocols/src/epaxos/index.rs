//! The conflict index of an acceptor: which instances that it has recorded a command conflicts
//! with.
//!
//! What must hold: of two conflicting commands that are committed, one depends on the other,
//! directly or over others. A majority records a command before it is proposed, so of two commands
//! some acceptor records both, and the later of the two gets the earlier one from its index, or one
//! that depends on it. The index may therefore forget an instance of a key only
//!
//! - when a command that *writes* the key is known to be committed with dependencies that have the
//!   instance: whatever conflicts with the instance on this key conflicts with the writer too, and
//!   the writer stays in the index until another one takes its place. (A command that reads the key
//!   does not conflict with the next reader, so it takes no place.)
//! - when a command that conflicts with everything is committed with such dependencies;
//! - when the instance is known to be committed as a noop. Then nothing else is forgotten for it:
//!   it has no dependencies.
//!
//! A writer that is known to be committed is first recorded on each key where it is not: because
//! this acceptor was never asked, or because another writer took its place. Otherwise those that it
//! depends on would be forgotten, and nothing would lead to them. (Of two that depend on each other
//! the one that is committed first takes the place of the other, and that one must not then remove
//! it without standing there itself.) So whatever was forgotten is reached from what is left.
//!
//! So for each key there remain the instances under way, the last writer, and the readers since. A
//! barrier, which leaders propose from time to time, makes it forget all these.
//!
//! The last barrier itself conflicts with every command, and stays. It is left out of an answer
//! where a writer of one of the keys is committed with dependencies that have it: that writer is in
//! the answer, or one that leads to it. (Not once a barrier is committed: the writer may be
//! forgotten for it, as one of two that depend on each other.)

use super::instance::{Deps, InstanceId, Space};
use super::paged::PagedMap;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ionian_kernel::machine::Footprint;
use ionian_kernel::small_map::SmallMap;
use ionian_replication::slot_map::{NumberMap, Seeded};

/// The most dependencies that are named one by one. A command that conflicts with more waits for
/// all instances of their spaces up to the last of them.
pub const MAX_EXACT: usize = 1024;

/// See the top of this file.
#[derive(Debug)]
pub struct ConflictIndex<F> {
    recorded: PagedMap<Recorded<F>>,
    keys: NumberMap<Users>,
    /// Those that conflict with everything.
    everything: BTreeSet<InstanceId>,
    /// How often `everything` got a member, or others were forgotten for one.
    barriers: u64,
    /// Behind which number of each space nothing was recorded; a space is left out where a command
    /// in `everything` depends on all that was.
    ends: SmallMap<Space, u64>,
}

#[derive(Debug)]
struct Recorded<F> {
    /// What it touches.
    footprint: F,
    /// In how many lists it still is.
    lists: usize,
}

/// The instances that use a key, in order.
#[derive(Debug, Default)]
struct Users {
    writers: Vec<InstanceId>,
    /// Those that read it and do not write it.
    readers: Vec<InstanceId>,
    /// When `barriers` was this number, one of the writers led to all of `everything`.
    behind: u64,
}

/// `F` has the footprint of a command, and its clones share it.
impl<F: AsRef<Footprint> + Clone> ConflictIndex<F> {
    /// An empty index. Its keys are hashed with this seed.
    pub fn new(seed: u64) -> Self {
        ConflictIndex {
            recorded: PagedMap::default(),
            keys: NumberMap::with_hasher(Seeded(seed)),
            everything: BTreeSet::new(),
            barriers: 1,
            ends: SmallMap::new(),
        }
    }

    /// How many instances it has. Leaders propose a barrier when there are many.
    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    /// Whether it has the instance: not once another one is known that leads to it.
    pub fn contains(&self, id: InstanceId) -> bool {
        self.recorded.get(id).is_some()
    }

    /// The instances that it has, in order: what an acceptor that has lost its index records.
    pub fn recorded(&self) -> impl Iterator<Item = (InstanceId, &F)> {
        let recorded = self.recorded.iter();
        recorded.map(|(id, known)| (id, &known.footprint))
    }

    /// Records an instance, and gives what was recorded before that conflicts with it.
    pub fn record(&mut self, id: InstanceId, footprint: &F) -> Deps {
        let deps = self.conflicts(footprint.as_ref(), Some(id));
        self.add(id, footprint);
        deps
    }

    /// What is recorded that a query conflicts with. Records nothing.
    pub fn query(&self, footprint: &Footprint) -> Deps {
        self.conflicts(footprint, None)
    }

    /// An instance is committed: as a noop, or with this footprint and these dependencies. It may
    /// be one that was never recorded.
    pub fn on_committed(&mut self, id: InstanceId, choice: Option<(&F, &Deps)>) {
        let Some((footprint, deps)) = choice else {
            self.drop_noop(id);
            return;
        };
        self.add(id, footprint);
        let footprint = footprint.as_ref();
        if footprint.everything {
            self.prune_all(id, deps);
        } else if !deps.is_empty() {
            for key in &footprint.writes {
                self.take_place(*key, id, deps);
            }
        }
    }

    fn conflicts(&self, footprint: &Footprint, except: Option<InstanceId>) -> Deps {
        let others = |id: &InstanceId| Some(*id) != except;
        let barriers = self.everything.iter().copied().filter(others);
        if footprint.everything {
            return Deps::new(
                barriers,
                self.ends.iter().map(|(space, end)| (*space, *end)),
            );
        }
        let users = |key| self.keys.get(key);
        let mut exact = Vec::new();
        let mut is_behind = false;
        for key in &footprint.writes {
            if let Some(users) = users(key) {
                exact.extend(users.readers.iter().copied().filter(others));
            }
        }
        for key in footprint.writes.iter().chain(&footprint.reads) {
            if let Some(users) = users(key) {
                is_behind |= users.behind == self.barriers;
                exact.extend(users.writers.iter().copied().filter(others));
            }
        }
        if !is_behind {
            exact.extend(barriers);
        }
        let deps = Deps::new(exact, []);
        match deps.len() {
            0..=MAX_EXACT => deps,
            _ => deps.widened(),
        }
    }

    /// Records an instance, on each key on which it is not. It may have been forgotten on some for
    /// another that depends on it, and have that one forgotten in turn, where each of
    /// the two depends on the other.
    fn add(&mut self, id: InstanceId, recorded: &F) {
        let footprint = recorded.as_ref();
        let end = self.ends.entry(id.space).or_default();
        *end = (*end).max(id.number + 1);
        let mut lists = 0;
        if footprint.everything {
            lists = usize::from(self.everything.insert(id));
            self.barriers += lists as u64;
        } else {
            for key in &footprint.writes {
                let users = self.keys.entry(*key).or_default();
                lists += usize::from(insert(&mut users.writers, id));
            }
            for key in &footprint.reads {
                let users = self.keys.entry(*key).or_default();
                if users.writers.binary_search(&id).is_err() {
                    lists += usize::from(insert(&mut users.readers, id));
                }
            }
        }
        // A command that touches nothing conflicts with barriers only, which know it by its space.
        if lists > 0 {
            let known = self.recorded.get_or_insert_with(id, || Recorded {
                footprint: recorded.clone(),
                lists: 0,
            });
            known.lists += lists;
        }
    }

    /// Forgets on this key what its writer `by` depends on. `by` itself stands there.
    fn take_place(&mut self, key: u64, by: InstanceId, deps: &Deps) {
        let Some(users) = self.keys.get_mut(&key) else {
            return;
        };
        for list in [&mut users.writers, &mut users.readers] {
            list.retain(|id| {
                let stays = *id == by || !deps.contains(*id);
                if !stays {
                    leave_list(&mut self.recorded, *id);
                }
                stays
            });
        }
        if self.everything.iter().all(|id| deps.contains(*id)) {
            users.behind = self.barriers;
        }
    }

    /// Forgets on all keys what `by`, which conflicts with everything, depends on. That is almost
    /// all there is.
    fn prune_all(&mut self, by: InstanceId, deps: &Deps) {
        let stays = |id: &InstanceId| *id == by || !deps.contains(*id);
        self.barriers += 1;
        self.recorded.retain(|id| stays(&id));
        self.everything.retain(stays);
        self.keys.retain(|_, users| {
            users.writers.retain(stays);
            users.readers.retain(stays);
            !users.is_empty()
        });
        // The next one of its kind depends on this one.
        self.ends.retain(|space, end| deps.beginning(*space) < *end);
    }

    fn drop_noop(&mut self, id: InstanceId) {
        let Some(Recorded { footprint, .. }) = self.recorded.remove(id) else {
            return;
        };
        self.everything.remove(&id);
        let footprint = footprint.as_ref();
        for key in footprint.writes.iter().chain(&footprint.reads) {
            if let Some(users) = self.keys.get_mut(key) {
                remove(&mut users.writers, id);
                remove(&mut users.readers, id);
                if users.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
    }
}

impl Users {
    fn is_empty(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty()
    }
}

/// An instance is taken out of a list; out of the last one, it is forgotten.
fn leave_list<F>(recorded: &mut PagedMap<Recorded<F>>, id: InstanceId) {
    if let Some(known) = recorded.get_mut(id) {
        known.lists -= 1;
        if known.lists == 0 {
            recorded.remove(id);
        }
    }
}

/// Adds to an ordered list; whether it was not in it.
fn insert(list: &mut Vec<InstanceId>, id: InstanceId) -> bool {
    let place = list.binary_search(&id);
    if let Err(at) = place {
        list.insert(at, id);
    }
    place.is_err()
}

fn remove(list: &mut Vec<InstanceId>, id: InstanceId) {
    if let Ok(at) = list.binary_search(&id) {
        list.remove(at);
    }
}

#[cfg(test)]
mod tests;
