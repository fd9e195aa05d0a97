//! What a leader gathers in phase 1: the votes of a read quorum, a stretch at a time.

use super::Notes;
use crate::multipaxos::config::Config;
use crate::parts::acceptor::MAX_VOTES;
use crate::parts::message::{Vote, Votes};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Instant, Timestamp};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;
use ionian_replication::quorum::QuorumSystem;

/// Unanswered requests double the wait for the next at most this often.
const MOST_DOUBLINGS: u32 = 5;

/// Phase 1 of one round, for the slots from `start` up to `end`.
pub(super) struct Phase1<N> {
    config: Arc<Config>,
    /// Those of the round's epoch.
    quorums: QuorumSystem,
    pub(super) round: Round,
    pub(super) start: Slot,
    pub(super) end: Slot,
    /// For each acceptor that has answered, where its next stretch begins.
    next: SmallMap<AcceptorId, Slot>,
    /// Acceptors that have told all their votes.
    complete: AcceptorSet,
    /// The vote of the highest round in each slot, over everything heard.
    votes: BTreeMap<Slot, Vote>,
    forgotten: Slot,
    watermark: Slot,
    notes: N,
    /// When each acceptor is asked again, and how often it was since it last told something.
    asked: SmallMap<AcceptorId, (Instant, u32)>,
    begun_at: Instant,
}

/// What follows from a read quorum's votes.
pub(super) struct Outcome {
    /// The first slot that the leader must see chosen again.
    pub(super) start: Slot,
    /// From here on nothing can have been chosen by votes.
    pub(super) unvoted: Slot,
    /// The first slot in which it may propose anything; only noops can be in those between.
    pub(super) next_slot: Slot,
    /// Safe values; a slot between `start` and `unvoted` without one may take a noop.
    pub(super) values: BTreeMap<Slot, Value>,
    /// Runs of slots between `start` and `unvoted` without one that are left out.
    pub(super) left_out: Vec<(Slot, Slot)>,
    /// The largest time stamped so far.
    pub(super) stamp: Timestamp,
}

impl<N: Notes> Phase1<N> {
    /// One that begins now, by asking all acceptors.
    pub(super) fn new(
        config: Arc<Config>,
        round: Round,
        start: Slot,
        end: Slot,
        begun_at: Instant,
    ) -> Self {
        let quorums = config
            .quorums_of(round)
            .expect("a leader begins rounds of epochs that it knows")
            .clone();
        Phase1 {
            config,
            quorums,
            round,
            start,
            end,
            next: SmallMap::new(),
            complete: AcceptorSet::EMPTY,
            votes: BTreeMap::new(),
            forgotten: Slot::ZERO,
            watermark: Slot::ZERO,
            notes: N::default(),
            asked: SmallMap::new(),
            begun_at,
        }
    }

    /// Where the next stretch of `acceptor` begins.
    pub(super) fn next_of(&self, acceptor: AcceptorId) -> Slot {
        self.next.get(&acceptor).copied().unwrap_or(self.start)
    }

    /// The acceptors that have not told everything.
    pub(super) fn missing(&self) -> AcceptorSet {
        self.quorums.members().without(self.complete)
    }

    /// Acceptors have told something, and were asked for more.
    pub(super) fn heard(&mut self, from: AcceptorSet, now: Instant) {
        self.asked.extend(from.iter().map(|it| (it, (now, 0))));
    }

    fn ask_at(&self, acceptor: AcceptorId) -> Instant {
        let (since, times) = self
            .asked
            .get(&acceptor)
            .copied()
            .unwrap_or((self.begun_at, 0));
        since + doubled(self.config.options().resend_after, times, MOST_DOUBLINGS)
    }

    /// The acceptors that are to be asked again. The wait doubles with each time: what one tells
    /// can be large, and a copy of it would come behind it.
    pub(super) fn overdue(&mut self, now: Instant) -> AcceptorSet {
        let overdue: AcceptorSet = self
            .missing()
            .iter()
            .filter(|acceptor| self.ask_at(*acceptor) <= now)
            .collect();
        for acceptor in overdue.iter() {
            let (since, times) = self.asked.entry(acceptor).or_insert((now, 0));
            (*since, *times) = (now, *times + 1);
        }
        overdue
    }

    /// When the next acceptor is to be asked again.
    pub(super) fn next_timer(&self) -> Instant {
        self.missing()
            .iter()
            .map(|acceptor| self.ask_at(acceptor))
            .min()
            .unwrap_or(Instant(u64::MAX))
    }

    /// Takes one stretch of each of these acceptors in; returns those of which it is the next. A
    /// duplicate is ignored, and what was asked for other slots: an answer that missed the phase 1
    /// of the round may come while a slot is repaired in that round, and knows nothing of what was
    /// voted for since.
    pub(super) fn on_votes(
        &mut self,
        from: AcceptorSet,
        votes: Votes,
        notes: N::Page,
    ) -> AcceptorSet {
        let told = self.missing().and(from).iter();
        let told: AcceptorSet = told.filter(|it| votes.start == self.next_of(*it)).collect();
        // No acceptor votes so far: the leader would fill all slots below that with noops.
        let too_far = votes.watermark.distance(votes.forgotten) > MAX_VOTES as u64;
        if votes.end != self.end || told.is_empty() || too_far {
            return AcceptorSet::EMPTY;
        }
        self.forgotten = self.forgotten.max(votes.forgotten);
        self.watermark = self.watermark.max(votes.watermark);
        self.notes.add(notes);
        for (slot, vote) in votes.votes {
            // The safe value is that of the highest round over the *whole* read quorum (s1).
            if self
                .votes
                .get(&slot)
                .is_none_or(|highest| highest.round < vote.round)
            {
                self.votes.insert(slot, vote);
            }
        }
        self.next.extend(told.iter().map(|it| (it, votes.next)));
        if votes.next == Slot::MAX {
            self.complete = self.complete.or(told);
        }
        told
    }

    /// Whether a read quorum has told everything.
    pub(super) fn is_complete(&self) -> bool {
        self.quorums.is_read_quorum(self.complete)
    }

    /// Whether a stretch that was asked for is forgotten: then it is chosen, and replicas have it.
    pub(super) fn is_forgotten(&self, slot: Slot) -> bool {
        slot < self.forgotten
    }

    /// Whether `slot`, in which none of those that have told everything has voted, holds a noop.
    pub(super) fn is_noop_without_votes(&self) -> bool {
        self.notes.is_noop_without_votes(self.round)
    }

    /// What was voted for in the highest round in `slot`, if that counts.
    pub(super) fn value(&self, slot: Slot) -> Option<&Value> {
        let vote = self.votes.get(&slot)?;
        self.notes.counts(slot, vote.round).then_some(&vote.value)
    }

    /// The first slot from `slot` on with a [value](Self::value), and the value.
    pub(super) fn next_value(&self, slot: Slot) -> Option<(Slot, &Value)> {
        let mut votes = self.votes.range(slot..);
        let (at, vote) = votes.find(|(at, vote)| self.notes.counts(**at, vote.round))?;
        Some((*at, &vote.value))
    }

    /// What follows. The leader continues above everything that is chosen, that was forgotten, and
    /// that was ever voted for (s2): acceptors name their watermark itself and not only the votes
    /// they still hold.
    pub(super) fn finish(self) -> Outcome {
        let start = self.start.max(self.forgotten);
        let unvoted = start.max(self.watermark);
        let stamp = self
            .votes
            .values()
            .map(|vote| vote.value.stamp)
            .max()
            .unwrap_or_default();
        let safe = self.votes.keys().filter(|slot| **slot >= start);
        let values = safe
            .filter_map(|slot| Some((*slot, self.value(*slot)?.clone())))
            .collect();
        let left_out = N::left_out(start, unvoted, &values);
        Outcome {
            start,
            unvoted,
            next_slot: unvoted.max(self.notes.unused_from()),
            values,
            left_out,
            stamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ionian_kernel::layout::{Layout, NodeId, numbered};
    use ionian_kernel::quorum_spec::QuorumSpec;

    fn phase1(quorums: QuorumSpec, acceptors: u16, start: u64) -> Phase1<()> {
        phase1_with(quorums, acceptors, start)
    }

    fn phase1_with<N: Notes>(quorums: QuorumSpec, acceptors: u16, start: u64) -> Phase1<N> {
        let node = |count: u16| (0..count).map(NodeId).collect::<Vec<_>>();
        let instances = vec![
            node(1),
            vec![],
            vec![],
            node(2),
            node(2),
            node(acceptors),
            node(2),
            vec![],
        ];
        let instances = numbered(instances);
        let config = Config::new(Layout {
            f: 1,
            quorums,
            instances,
            ..Layout::default()
        })
        .unwrap();
        Phase1::new(
            Arc::new(config),
            Round::new(Epoch(0), 9, LeaderId(0)),
            Slot(start),
            Slot::MAX,
            Instant(0),
        )
    }

    fn one(acceptor: u8) -> AcceptorSet {
        Set::one(AcceptorId(acceptor))
    }

    fn votes(start: u64, votes: &[(u64, u64, u64)], forgotten: u64, watermark: u64) -> Votes {
        let vote = |round, stamp| Vote {
            round: Round(round),
            value: Value {
                stamp: Timestamp(stamp),
                ..Value::default()
            },
        };
        Votes {
            start: Slot(start),
            end: Slot::MAX,
            next: Slot::MAX,
            votes: votes
                .iter()
                .map(|(slot, round, stamp)| (Slot(*slot), vote(*round, *stamp)))
                .collect(),
            forgotten: Slot(forgotten),
            watermark: Slot(watermark),
        }
    }

    /// s1: in a 2x2 grid any member of the row may be the only one that saw a slot's value.
    #[test]
    fn s1_the_whole_read_quorum_decides_a_slots_value() {
        for (first, other) in [(0, 1), (1, 0)] {
            let mut phase1 = phase1(
                QuorumSpec::Grid {
                    rows: 2,
                    columns: 2,
                },
                4,
                0,
            );
            phase1.on_votes(one(first), votes(0, &[(0, 3, 30), (1, 2, 20)], 0, 2), ());
            assert!(!phase1.is_complete());
            phase1.on_votes(one(other), votes(0, &[(1, 4, 40)], 0, 2), ());
            assert!(phase1.is_complete());
            let outcome = phase1.finish();
            let stamps: Vec<_> = outcome.values.values().map(|value| value.stamp.0).collect();
            assert_eq!(
                (stamps, outcome.next_slot, outcome.stamp),
                (vec![30, 40], Slot(2), Timestamp(40))
            );
        }
    }

    /// s2: with no votes above the watermark the next slot is the watermark, not zero.
    #[test]
    fn s2_the_next_slot_never_falls_back() {
        let mut phase1 = phase1(QuorumSpec::Majority, 3, 0);
        phase1.on_votes(one(0), votes(0, &[], 100, 120), ());
        phase1.on_votes(one(2), votes(0, &[], 90, 90), ());
        let outcome = phase1.finish();
        assert_eq!((outcome.start, outcome.next_slot), (Slot(100), Slot(120)));
    }

    /// In slots 1 and 2 votes of rounds below 4 do not count, slots up to 6 may be used, and slot 3
    /// is left out.
    #[derive(Default)]
    struct Some;

    impl Notes for Some {
        type Page = ();
        const PROPOSES_AT_ONCE: bool = false;
        fn add(&mut self, (): ()) {}
        fn counts(&self, slot: Slot, round: Round) -> bool {
            !(1..3).contains(&slot.0) || round >= Round(4)
        }
        fn is_noop_without_votes(&self, _: Round) -> bool {
            true
        }
        fn unused_from(&self) -> Slot {
            Slot(6)
        }
        fn left_out(start: Slot, end: Slot, values: &BTreeMap<Slot, Value>) -> Vec<(Slot, Slot)> {
            assert_eq!((start, end, values.len()), (Slot(0), Slot(5), 3));
            vec![(Slot(3), Slot(4))]
        }
    }

    #[test]
    fn notes_decide_which_votes_count_and_where_the_leader_goes_on() {
        let mut phase1 = phase1_with::<Some>(QuorumSpec::Majority, 3, 0);
        let first = [(0, 2, 20), (1, 2, 21), (2, 5, 22), (4, 2, 23)];
        phase1.on_votes(one(0), votes(0, &first, 0, 5), ());
        phase1.on_votes(one(2), votes(0, &[], 0, 0), ());
        let outcome = phase1.finish();
        let stamps: Vec<_> = outcome
            .values
            .iter()
            .map(|(slot, value)| (slot.0, value.stamp.0))
            .collect();
        assert_eq!(stamps, [(0, 20), (2, 22), (4, 23)]);
        assert_eq!((outcome.unvoted, outcome.next_slot), (Slot(5), Slot(6)));
        assert_eq!(outcome.left_out, [(Slot(3), Slot(4))]);
    }

    #[test]
    fn duplicates_and_stretches_out_of_turn_are_ignored() {
        let mut phase1 = phase1(QuorumSpec::Majority, 3, 0);
        let first = Votes {
            next: Slot(5),
            ..votes(0, &[(0, 1, 1)], 0, 9)
        };
        assert_eq!(phase1.on_votes(one(0), first.clone(), ()), one(0));
        assert_eq!(phase1.on_votes(one(0), first, ()), AcceptorSet::EMPTY);
        assert_eq!(phase1.next_of(AcceptorId(0)), Slot(5));
        let last = votes(5, &[(7, 1, 1)], 0, 9);
        assert_eq!(phase1.on_votes(one(0), last, ()), one(0));
        assert!(!phase1.missing().contains(AcceptorId(0)));
    }

    /// What several acceptors promise in one message counts for each that was to tell it.
    #[test]
    fn a_page_of_several_acceptors_counts_for_those_of_which_it_is_the_next() {
        let mut phase1 = phase1(QuorumSpec::Majority, 5, 0);
        let first = Votes {
            next: Slot(5),
            ..votes(0, &[(0, 1, 1)], 0, 9)
        };
        assert_eq!(phase1.on_votes(one(0), first, ()), one(0));
        let of_three = AcceptorSet::first(3);
        let page = votes(0, &[(0, 2, 2), (7, 1, 1)], 0, 9);
        assert_eq!(
            phase1.on_votes(of_three, page, ()),
            of_three.without(one(0))
        );
        assert!(!phase1.is_complete(), "the first has told one page of two");
        let last = votes(5, &[(7, 2, 3)], 0, 9);
        assert_eq!(phase1.on_votes(of_three, last, ()), one(0));
        let stamps: Vec<_> = phase1
            .finish()
            .values
            .values()
            .map(|it| it.stamp.0)
            .collect();
        assert_eq!(stamps, [2, 3]);
    }
}
