//! What an acceptor knows of instances, and where its records of them begin.

use super::Record;
use super::places::Places;
use crate::epaxos::instance::{Ballot, Deps, InstanceId, Space};
use crate::epaxos::message::{Choice, Evidence, Payload, PreAccepted, Reach, Vote};
use crate::epaxos::paged::PagedMap;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ionian_kernel::small_map::SmallMap;

/// The most instances. At the limit it records no new commands, and they wait, until replicas have
/// stored snapshots.
const MAX_INSTANCES: usize = 1 << 20;
const MAX_BYTES: usize = 1 << 31;

/// So much of it is left for commands that the acceptor of their leader has recorded already, as a
/// divisor: they must be decided before a barrier can be executed, and room comes from that.
const RESERVE: usize = 16;

/// Records of instances that are forgotten may stand between those of others up to this many, and
/// twice as many as there are instances. Then the oldest are written again.
const MAX_GAPS: u64 = 256;

/// What is known of an instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The highest ballot promised. Ballot 0 is that of the instance's leader.
    pub(super) promised: Ballot,
    pub(super) pre_accepted: Option<PreAccepted>,
    /// What another acceptor knows of it since this one has lost its memory: perhaps the command.
    /// That is named as a dependency; nothing is said of the instance.
    pub(super) copied: Option<Option<Payload>>,
    pub(super) vote: Option<Vote>,
    pub(super) decided: Option<Choice>,
    /// Whether no crash takes the decision back: it is on a disk, or f + 1 acceptors voted for it.
    pub(super) is_certain: bool,
    /// The number of the first record that is needed.
    place: u64,
    /// Its bytes after the last change.
    bytes: usize,
}

impl Known {
    /// What it answers to a recovery.
    pub(super) fn evidence(&self) -> Evidence {
        Evidence {
            decided: self.decided.clone(),
            vote: self.vote.clone(),
            pre_accepted: self.pre_accepted.clone(),
        }
    }

    /// The decision, if no crash takes it back.
    pub(super) fn certain(&self) -> Option<&Choice> {
        self.decided.as_ref().filter(|_| self.is_certain)
    }

    /// The command, if it has it.
    pub(super) fn payload(&self) -> Option<&Payload> {
        let of = |choice: &'_ Choice| matches!(choice, Choice::Command { .. });
        let choices = [
            self.decided.as_ref(),
            self.vote.as_ref().map(|vote| &vote.choice),
        ];
        let answer = self.pre_accepted.as_ref().map(|answer| &answer.payload);
        let chosen = choices.into_iter().flatten().filter(|choice| of(choice));
        let mut chosen = chosen.filter_map(|choice| match choice {
            Choice::Command { payload, .. } => Some(payload),
            Choice::Noop {} => None,
        });
        answer
            .or(self.copied.iter().flatten().next())
            .or_else(|| chosen.next())
    }

    /// The bytes of the command, and of all dependencies that are kept with it.
    fn byte_len(&self) -> usize {
        let answered = self.pre_accepted.as_ref().map(|answer| &answer.deps);
        let voted = self.vote.as_ref().map(|vote| vote.choice.deps());
        let decided = self.decided.as_ref().map(Choice::deps);
        let deps = [answered, voted, decided].into_iter().flatten();
        let payload = self.payload().map_or(0, Payload::byte_len);
        payload + deps.map(Deps::byte_len).sum::<usize>()
    }

    /// What it takes to hand it out as it is known: one set of dependencies at most.
    pub(super) fn copy_len(&self) -> usize {
        let deps = self.certain().map_or(0, |choice| choice.deps().byte_len());
        self.payload().map_or(0, Payload::byte_len) + deps
    }
}

/// See the top of this file.
#[derive(Default)]
pub(super) struct Store {
    /// Whether it is to learn the decision of each instance.
    learns: bool,
    known: PagedMap<Box<Known>>,
    /// How far each space is known to reach.
    reaches: SmallMap<Space, u64>,
    /// The instances by their first record.
    places: Places,
    /// The number of the next record.
    next: u64,
    bytes: usize,
    /// The instances whose decisions are to be learned, and are not known.
    undecided: PagedMap<()>,
    learned: u64,
}

impl Store {
    pub(super) fn new(learns: bool) -> Self {
        Store {
            learns,
            ..Store::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn undecided(&self) -> usize {
        self.undecided.len()
    }

    /// All undecided instances.
    pub(super) fn all_undecided(&self) -> impl Iterator<Item = InstanceId> {
        self.undecided.iter().map(|(id, ())| id)
    }

    /// The undecided instances whose records begin before this one, all round from an instance on.
    pub(super) fn undecided_before(
        &self,
        place: u64,
        first: InstanceId,
    ) -> impl Iterator<Item = InstanceId> {
        let is_old = move |id: &InstanceId| {
            let known = self.known.get(*id);
            known.is_some_and(|known| known.place < place)
        };
        let from_there = self.undecided.starting_at(first).map(|(id, ())| id);
        let before = self.all_undecided().take_while(move |id| *id < first);
        from_there.chain(before).filter(is_old)
    }

    /// These are decided, though not here: it need not learn how.
    pub(super) fn settle(&mut self, is_decided: impl Fn(InstanceId) -> bool) {
        self.undecided.retain(|id| !is_decided(id));
    }

    /// The number of the next record.
    pub(super) fn next_place(&self) -> u64 {
        self.next
    }

    /// No record to come has a lower number than this one: those before may have been dropped.
    pub(super) fn begin_at(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    pub(super) fn learned(&self) -> u64 {
        self.learned
    }

    /// Whether there is no room for a command that is new to all.
    pub(super) fn is_full(&self) -> bool {
        self.known.len() >= MAX_INSTANCES || self.bytes >= MAX_BYTES
    }

    /// Whether there is none for a command that another acceptor has recorded.
    pub(super) fn is_crammed(&self) -> bool {
        let (instances, bytes) = (MAX_INSTANCES / RESERVE, MAX_BYTES / RESERVE);
        self.known.len() >= MAX_INSTANCES + instances || self.bytes >= MAX_BYTES + bytes
    }

    pub(super) fn get(&self, id: InstanceId) -> Option<&Known> {
        self.known.get(id).map(Box::as_ref)
    }

    /// The decisions that no crash takes back.
    pub(super) fn decisions(&self) -> impl Iterator<Item = (InstanceId, &Choice)> {
        let known = self.known.iter();
        known.filter_map(|(id, known)| Some((id, known.certain()?)))
    }

    /// A decision became certain.
    pub(super) fn count_learned(&mut self) {
        self.learned += 1;
    }

    /// The number of the record that is written next, of this instance.
    pub(super) fn place(&mut self, id: InstanceId) -> u64 {
        let at = self.next;
        self.next += 1;
        self.placed(at, id);
        at
    }

    /// A record of an instance has this number.
    pub(super) fn placed(&mut self, at: u64, id: InstanceId) {
        self.next = self.next.max(at + 1);
        if self.known.get(id).is_none() {
            let reach = self.reaches.entry(id.space).or_default();
            *reach = (*reach).max(id.number.saturating_add(1));
            let place = at;
            self.known.get_or_insert_with(id, || {
                Box::new(Known {
                    place,
                    ..Known::default()
                })
            });
            self.places.insert(at, id);
            if self.learns {
                self.undecided.get_or_insert_with(id, || ());
            }
        }
    }

    /// An instance that is to change. What it holds is counted anew at the end of the change.
    pub(super) fn known(&mut self, id: InstanceId) -> Change<'_> {
        let known = self.known.get_mut(id).expect("a record of it has a place");
        Change {
            decided_before: known.decided.is_some(),
            id,
            known,
            bytes: &mut self.bytes,
            undecided: &mut self.undecided,
        }
    }

    /// Another one knows an instance: this is what it has of the command. The decision is to be
    /// learned.
    pub(super) fn copied(&mut self, id: InstanceId, payload: Option<Payload>) {
        self.known(id).copied = Some(payload);
        self.undecided.get_or_insert_with(id, || ());
    }

    /// How far each space is known to reach.
    pub(super) fn reaches(&self) -> Vec<Reach> {
        let reach = |(space, below): (&Space, &u64)| Reach {
            space: *space,
            below: *below,
        };
        self.reaches.iter().map(reach).collect()
    }

    /// The instances from this one on, in order.
    pub(super) fn starting_at(
        &self,
        first: InstanceId,
    ) -> impl Iterator<Item = (InstanceId, &Known)> {
        let known = self.known.starting_at(first);
        known.map(|(id, known)| (id, &**known))
    }

    /// The instances of a space from one number up to another.
    pub(super) fn range(
        &self,
        space: Space,
        numbers: (u64, u64),
    ) -> impl Iterator<Item = (InstanceId, &Known)> {
        let known = self.known.range(space, numbers);
        known.map(|(id, known)| (id, &**known))
    }

    /// Forgets an instance.
    pub(super) fn remove(&mut self, id: InstanceId) {
        if let Some(known) = self.known.remove(id) {
            self.places.remove(known.place);
            self.bytes -= known.bytes;
            self.undecided.remove(id);
        }
    }

    /// An old record that stands in the way of dropping many others: what is to be written in its
    /// place.
    pub(super) fn straggler(&mut self) -> Option<Record> {
        let (first, id) = self.places.first()?;
        if self.next - first <= MAX_GAPS + 2 * self.known.len() as u64 {
            return None;
        }
        let at = self.next;
        self.next += 1;
        self.places.remove(first);
        self.places.insert(at, id);
        let known = self.known.get_mut(id).expect("it has a place");
        known.place = at;
        Some(Record::Whole {
            at,
            id,
            promised: known.promised,
            evidence: Box::new(known.evidence()),
            copied: known.copied.clone(),
        })
    }

    /// Records with numbers below this one are not needed.
    pub(super) fn first_place(&self) -> u64 {
        self.places.first().map_or(self.next, |(at, _)| at)
    }

    pub(super) fn invariants(&self) {
        assert_eq!(
            self.places.len(),
            self.known.len(),
            "an instance without a record"
        );
        let is_open = |id| self.known.get(id).is_some_and(|it| it.decided.is_none());
        assert!(self.all_undecided().all(is_open), "an acceptor lost count");
        let bytes = self.known.iter().map(|(_, known)| known.byte_len());
        assert_eq!(
            bytes.sum::<usize>(),
            self.bytes,
            "an acceptor lost count of its bytes"
        );
    }
}

/// An instance under change.
pub(super) struct Change<'a> {
    known: &'a mut Known,
    bytes: &'a mut usize,
    undecided: &'a mut PagedMap<()>,
    id: InstanceId,
    decided_before: bool,
}

impl core::ops::Deref for Change<'_> {
    type Target = Known;
    fn deref(&self) -> &Known {
        self.known
    }
}

impl core::ops::DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Known {
        self.known
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let now = self.known.byte_len();
        let before = core::mem::replace(&mut self.known.bytes, now);
        *self.bytes = *self.bytes + now - before;
        if self.known.decided.is_some() && !self.decided_before {
            self.undecided.remove(self.id);
        }
    }
}
