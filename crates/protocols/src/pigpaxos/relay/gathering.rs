//! Answers of acceptors to one question, on their way into one answer (PigPaxos 3.1, "fan-in").

use alloc::collections::{BTreeMap, BTreeSet};
use ionian_kernel::id::{AcceptorId, AcceptorSet};
use ionian_kernel::time::{Duration, Instant};

/// What becomes of the answers.
pub(super) trait Gathered: Default {
    /// What one acceptor answers.
    type Answer;

    /// Adds an answer. The order does not matter.
    fn add(&mut self, from: AcceptorId, answer: Self::Answer);
}

/// The questions under way, by a key that the answers name.
pub(super) struct Gatherings<K, G> {
    open: BTreeMap<K, Gathering<G>>,
    /// When each is due.
    due: BTreeSet<(Instant, K)>,
}

struct Gathering<G> {
    /// The acceptors that have not answered.
    waiting: AcceptorSet,
    gathered: G,
    /// When its requester is answered at the latest; when it is forgotten, if it was.
    due: Instant,
    /// For how long its requester waits.
    patience: Duration,
    /// Whether its requester was answered. Answers that come later are passed on as they come.
    is_late: bool,
}

/// Answers to pass on.
pub(super) struct Answered<G> {
    /// What they are together.
    pub(super) gathered: G,
    /// The acceptors that the relay does not wait for any more.
    pub(super) missing: AcceptorSet,
}

/// The most questions of one kind under way. A requester asks the acceptors itself when a relay
/// leaves a question unanswered.
const MAX_OPEN: usize = 1 << 10;

impl<K, G> Default for Gatherings<K, G> {
    fn default() -> Self {
        Gatherings {
            open: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord, G: Gathered> Gatherings<K, G> {
    /// A question to `members`, in place of an earlier one of the same key. Its requester is
    /// answered after the time `wait`, and waits for the time `patience`. False if there is no
    /// room.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        key: K,
        members: AcceptorSet,
        (wait, patience): (Duration, Duration),
    ) -> bool {
        self.end(key);
        let has_room = self.open.len() < MAX_OPEN;
        if has_room {
            let gathering = Gathering {
                waiting: members,
                gathered: G::default(),
                due: now + wait,
                patience,
                is_late: false,
            };
            self.put(key, gathering);
        }
        has_room
    }

    fn put(&mut self, key: K, gathering: Gathering<G>) {
        self.due.insert((gathering.due, key));
        self.open.insert(key, gathering);
    }

    fn end(&mut self, key: K) -> Option<Gathering<G>> {
        let gathering = self.open.remove(&key)?;
        self.due.remove(&(gathering.due, key));
        Some(gathering)
    }

    /// An acceptor answers; what is to be passed on, if that is all that the relay waits for: it
    /// does not wait for `suspects`.
    pub(super) fn add(
        &mut self,
        now: Instant,
        key: K,
        from: AcceptorId,
        answer: G::Answer,
        suspects: AcceptorSet,
    ) -> Option<Answered<G>> {
        let gathering = self.open.get_mut(&key)?;
        if !gathering.waiting.contains(from) {
            return None;
        }
        gathering.waiting.remove(from);
        gathering.gathered.add(from, answer);
        let waits = gathering.waiting.without(suspects);
        (waits.is_empty() || gathering.is_late).then(|| self.pass_on(now, key))
    }

    /// The key of a question that is due, and what there is to be passed on; none of one whose
    /// requester does not wait any more.
    pub(super) fn give_up(&mut self, now: Instant) -> Option<(K, Option<Answered<G>>)> {
        let (_, key) = self.due.first().filter(|(at, _)| *at <= now).copied()?;
        if self.open[&key].is_late {
            self.end(key);
            return Some((key, None));
        }
        Some((key, Some(self.pass_on(now, key))))
    }

    /// What is to be passed on of a question. What is missing may come while its requester waits.
    fn pass_on(&mut self, now: Instant, key: K) -> Answered<G> {
        let gathering = self.end(key).expect("a question under way");
        let missing = match gathering.is_late {
            true => AcceptorSet::EMPTY,
            false => gathering.waiting,
        };
        if !gathering.waiting.is_empty() {
            let late = Gathering {
                gathered: G::default(),
                due: match gathering.is_late {
                    true => gathering.due,
                    false => now + gathering.patience,
                },
                is_late: true,
                patience: gathering.patience,
                waiting: gathering.waiting,
            };
            self.put(key, late);
        }
        Answered {
            gathered: gathering.gathered,
            missing,
        }
    }

    /// Ends the questions that are over, and returns their keys.
    pub(super) fn end_all(&mut self, is_over: impl Fn(&K) -> bool) -> impl Iterator<Item = K> {
        let over: BTreeSet<K> = self.open.keys().filter(|it| is_over(it)).copied().collect();
        for key in &over {
            self.end(*key);
        }
        over.into_iter()
    }

    /// When the next is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Asserts what must hold between two calls.
    pub(super) fn invariants(&self) {
        let due = self.open.iter().map(|(key, it)| (it.due, *key));
        assert!(
            due.collect::<BTreeSet<_>>() == self.due,
            "the times at which questions are due"
        );
    }
}
