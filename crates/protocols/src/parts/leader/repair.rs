//! Repairing slots below the leader's window (l2): phase 1 for these slots alone, within the
//! leader's round.
//!
//! Such a slot is chosen, since some replica executed beyond it, but the leader has forgotten its
//! value or never knew it. The value of the highest round that a read quorum voted for in it is the
//! chosen one: from the round in which it was chosen on, nothing else can have been proposed. That
//! holds while each of them still has its vote: where one has forgotten the slot, no value follows
//! from the others.
//!
//! One request to the acceptors can cover a stretch of slots, all of them below what some replica
//! has executed. It ends where the first acceptor's answer ends.

use super::Notes;
use super::phase1::Phase1;
use crate::multipaxos::config::Config;
use crate::parts::message::{RECOVER_SLOTS, Votes};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::batch::Value;

/// The number of requests at a time, and of bytes of votes that have come for them; a replica that
/// misses more asks again. Two replicas at different places of the log have as much under way as
/// each may.
const MAX_REPAIRS: usize = 2048;
const MAX_BYTES: usize = 64 << 20;

/// The most slots that are [repaired together](super::LeaderCore::recover_stretch): acceptors
/// answer with their votes in these, a message at the most.
const MAX_STRETCH: u64 = 1 << 16;

/// A stretch that is not full of values makes the next one this many times as long.
const GROWTH: u64 = 16;

/// The slots that are being repaired.
pub(super) struct Repairs<N> {
    config: Arc<Config>,
    /// By their first slot.
    repairs: BTreeMap<Slot, Repair<N>>,
    /// The bytes of votes that have come for them.
    bytes: usize,
    /// How many slots the next stretch has. Few where slots have values: each acceptor would answer
    /// with a message full of them, of which as many are used as a replica asks for.
    stretch: u64,
}

/// One request, for one slot or a stretch of slots.
struct Repair<N> {
    phase1: Phase1<N>,
    /// Some acceptor that answered has told nothing from here on.
    told_below: Slot,
    /// The bytes of the votes that have come.
    bytes: usize,
}

/// What a repair has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Values of slots, at most as many as a replica asks for at a time.
    pub(super) values: Vec<(Slot, Value)>,
    /// Runs of slots that hold noops, each from its first slot up to the slot after its last.
    pub(super) noops: Vec<(Slot, Slot)>,
}

impl Found {
    /// Whether nothing follows from the answers, or not yet.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.noops.is_empty()
    }
}

impl<N: Notes> Repairs<N> {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Repairs {
            config,
            repairs: BTreeMap::new(),
            bytes: 0,
            stretch: MAX_STRETCH,
        }
    }

    /// How many slots the next stretch has.
    pub(super) fn stretch(&self) -> u64 {
        self.stretch
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Another round begins: its phase 1 comes first.
    pub(super) fn clear(&mut self) {
        self.repairs.clear();
        self.bytes = 0;
    }

    /// Begins to repair the slots from `start` up to `end`; what to ask, unless the first of them
    /// is being repaired already.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        round: Round,
        (start, end): (Slot, Slot),
    ) -> Option<&Phase1<N>> {
        let before = self.repairs.range(..=start).next_back();
        let is_under_way = before.is_some_and(|(_, repair)| start < repair.phase1.end);
        let is_full = self.repairs.len() >= MAX_REPAIRS || self.bytes >= MAX_BYTES;
        if is_full || is_under_way {
            return None;
        }
        let repair = Repair {
            phase1: Phase1::new(self.config.clone(), round, start, end, now),
            told_below: end,
            bytes: 0,
        };
        Some(&self.repairs.entry(start).or_insert(repair).phase1)
    }

    /// Takes votes in; what is known when a read quorum has answered.
    pub(super) fn on_votes(&mut self, from: AcceptorSet, votes: Votes, notes: N::Page) -> Found {
        let start = votes.start;
        let Some(repair) = self.repairs.get_mut(&start) else {
            return Found::default();
        };
        self.bytes -= repair.bytes;
        repair.on_votes(from, votes, notes);
        self.bytes += repair.bytes;
        let forgotten = repair.phase1.is_forgotten(start);
        if !forgotten && !repair.phase1.is_complete() {
            return Found::default();
        }
        let repair = self.repairs.remove(&start).expect("just found");
        self.bytes -= repair.bytes;
        // What one acceptor has forgotten, f+1 replicas keep: a peer will give it, or a snapshot.
        // The votes that others still hold say nothing, not even those of a whole read quorum: the
        // one that forgot may be the only member that voted for what was chosen, and what remains
        // is then a vote of an older round, for something else.
        match forgotten {
            true => Found::default(),
            false => {
                let is_stretch = repair.phase1.end > start.next();
                let found = repair.found();
                self.stretch = match found.values.len() < RECOVER_SLOTS {
                    _ if !is_stretch => self.stretch,
                    true => (self.stretch * GROWTH).min(MAX_STRETCH),
                    false => RECOVER_SLOTS as u64,
                };
                found
            }
        }
    }

    /// Those whose answers are overdue, each with the acceptors to ask again.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(&Phase1<N>, AcceptorSet)> {
        let asked = self.repairs.values_mut().map(|Repair { phase1, .. }| {
            let overdue = phase1.overdue(now);
            (&*phase1, overdue)
        });
        asked.filter(|(_, overdue)| !overdue.is_empty()).collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let timers = self.repairs.values().map(|one| one.phase1.next_timer());
        timers.min()
    }
}

impl<N: Notes> Repair<N> {
    /// An answer whose votes do not fit one message shortens the stretch; the rest is asked for
    /// again when a replica still misses it.
    fn on_votes(&mut self, from: AcceptorSet, mut votes: Votes, notes: N::Page) {
        let told_below = votes.next.min(self.told_below);
        let sizes = votes
            .votes
            .iter()
            .map(|(_, vote)| vote.value.batch.byte_len());
        let bytes: usize = sizes.sum();
        votes.next = Slot::MAX;
        if !self.phase1.on_votes(from, votes, notes).is_empty() {
            self.told_below = told_below;
            self.bytes += bytes;
        }
    }

    /// What follows from the answers of a read quorum.
    fn found(self) -> Found {
        let Repair {
            phase1, told_below, ..
        } = self;
        let mut found = Found::default();
        let mut slot = phase1.start;
        while slot < told_below && found.values.len() < RECOVER_SLOTS {
            let value = phase1.next_value(slot).filter(|(at, _)| *at < told_below);
            let run_end = value.map_or(told_below, |(at, _)| at);
            if slot < run_end {
                if !phase1.is_noop_without_votes() {
                    break;
                }
                found.noops.push((slot, run_end));
            }
            let Some((at, value)) = value else { break };
            found.values.push((at, value.clone()));
            slot = at.next();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::message::Vote;
    use alloc::vec;
    use ionian_kernel::layout::{Layout, NodeId, numbered};
    use ionian_kernel::time::Timestamp;

    const SLOT: Slot = Slot(5);
    const ROUND: Round = Round::new(Epoch(0), 9, LeaderId(0));

    fn repairs() -> Repairs<()> {
        let mut repairs = none();
        assert!(
            repairs
                .begin(Instant(0), ROUND, (SLOT, SLOT.next()))
                .is_some()
        );
        repairs
    }

    /// Of three acceptors, majorities of which are quorums.
    fn none<N: Notes>() -> Repairs<N> {
        let node = |count: u16| (0..count).map(NodeId).collect::<Vec<_>>();
        let instances = numbered(vec![
            node(1),
            vec![],
            vec![],
            node(2),
            node(2),
            node(3),
            node(2),
            vec![],
        ]);
        let config = Config::new(Layout {
            f: 1,
            instances,
            ..Layout::default()
        })
        .unwrap();
        Repairs::new(Arc::new(config))
    }

    fn votes(voted: &[(u64, u64)], forgotten: u64) -> Votes {
        let vote = |round, stamp| Vote {
            round: Round(round),
            value: Value {
                stamp: Timestamp(stamp),
                ..Value::default()
            },
        };
        Votes {
            start: SLOT,
            end: SLOT.next(),
            next: Slot::MAX,
            votes: voted
                .iter()
                .map(|(round, stamp)| (SLOT, vote(*round, *stamp)))
                .collect(),
            forgotten: Slot(forgotten),
            watermark: Slot(9),
        }
    }

    fn outcome(answers: &[(u8, Votes)]) -> Option<(Slot, u64)> {
        let mut repairs = repairs();
        let mut found = Found::default();
        for (from, votes) in answers {
            assert!(
                found.is_empty(),
                "a repair has ended before acceptor {from} answered"
            );
            found = repairs.on_votes(Set::one(AcceptorId(*from)), votes.clone(), ());
        }
        assert_eq!(found.noops, [], "nothing is known of slots without votes");
        let value = found.values.first();
        value.map(|(slot, value)| (*slot, value.stamp.0))
    }

    #[test]
    fn a_read_quorum_that_remembers_gives_the_vote_of_its_highest_round() {
        assert_eq!(
            outcome(&[(0, votes(&[(64, 1)], 0)), (2, votes(&[(128, 2)], 0))]),
            Some((SLOT, 2))
        );
        assert_eq!(outcome(&[(0, votes(&[(64, 1)], 0))]), None);
        // What was forgotten below the slot does not matter.
        assert_eq!(
            outcome(&[(0, votes(&[(64, 1)], 5)), (2, votes(&[], 4))]),
            Some((SLOT, 1))
        );
    }

    /// Acceptor 0 voted in a round that lost, acceptor 1 for what was chosen, and has forgotten it.
    #[test]
    fn where_one_acceptor_has_forgotten_the_slot_the_votes_of_others_give_nothing() {
        let (old, forgot) = (votes(&[(64, 1)], 0), votes(&[], 6));
        assert_eq!(outcome(&[(0, old.clone()), (1, forgot.clone())]), None);
        assert_eq!(outcome(&[(1, forgot)]), None);
        // The repair is over: an answer that comes late gives nothing either, and another repair
        // can begin.
        let mut repairs = repairs();
        for (from, votes) in [(1, votes(&[], 6)), (0, old.clone()), (2, old)] {
            let from = Set::one(AcceptorId(from));
            assert!(repairs.on_votes(from, votes, ()).is_empty());
        }
        assert!(repairs.next_timer().is_none());
        assert!(
            repairs
                .begin(Instant(0), ROUND, (SLOT, SLOT.next()))
                .is_some()
        );
    }

    /// Slots without votes hold noops, as in Mencius; votes of round 1 do not count.
    #[derive(Default)]
    struct Noops;

    impl Notes for Noops {
        type Page = ();
        const PROPOSES_AT_ONCE: bool = true;
        fn add(&mut self, (): ()) {}
        fn counts(&self, _: Slot, round: Round) -> bool {
            round > Round(1)
        }
        fn is_noop_without_votes(&self, _: Round) -> bool {
            true
        }
        fn unused_from(&self) -> Slot {
            Slot::ZERO
        }
        fn left_out(_: Slot, _: Slot, _: &BTreeMap<Slot, Value>) -> Vec<(Slot, Slot)> {
            Vec::new()
        }
    }

    /// An answer for the slots from 5 up to 5000: slots and rounds that were voted for.
    fn stretch(voted: &[(u64, u64)], next: Slot) -> Votes {
        let (end, value) = (Slot(5000), Value::default());
        let vote = |(slot, round): &(u64, u64)| {
            let (round, value) = (Round(*round), value.clone());
            (Slot(*slot), Vote { round, value })
        };
        let votes = voted.iter().map(vote).collect();
        Votes {
            end,
            next,
            votes,
            ..self::votes(&[], 0)
        }
    }

    fn found(answers: &[Votes]) -> (Vec<u64>, Vec<(u64, u64)>) {
        let mut repairs = none::<Noops>();
        let range = (SLOT, Slot(5000));
        assert!(repairs.begin(Instant(0), ROUND, range).is_some());
        let mut found = Found::default();
        for (from, votes) in (0..).zip(answers) {
            found = repairs.on_votes(Set::one(AcceptorId(from)), votes.clone(), ());
        }
        let values = found.values.iter().map(|(slot, _)| slot.0).collect();
        let runs = found.noops.iter();
        (values, runs.map(|(start, end)| (start.0, end.0)).collect())
    }

    #[test]
    fn one_request_finds_the_values_and_the_noops_of_a_stretch() {
        let all = Slot::MAX;
        let answers = [stretch(&[(5, 2), (300, 1)], all), stretch(&[(900, 3)], all)];
        assert_eq!(
            found(&answers),
            (vec![5, 900], vec![(6, 900), (901, 5000)]),
            "the vote in slot 300 does not count"
        );
        assert_eq!(found(&answers[..1]), (vec![], vec![]), "no read quorum");
    }

    #[test]
    fn a_stretch_ends_where_the_first_answer_ends() {
        let answers = [
            stretch(&[(900, 3)], Slot::MAX),
            stretch(&[(7, 2)], Slot(100)),
        ];
        assert_eq!(found(&answers), (vec![7], vec![(5, 7), (8, 100)]));
    }

    #[test]
    fn a_stretch_gives_as_many_values_as_a_replica_asks_for() {
        let voted: Vec<_> = (5..200).map(|slot| (slot, 2)).collect();
        let answers = [stretch(&voted, Slot::MAX), stretch(&[], Slot::MAX)];
        let (values, runs) = found(&answers);
        assert_eq!((values.len(), runs), (RECOVER_SLOTS, vec![]));
    }

    #[test]
    fn stretches_are_short_where_slots_have_values() {
        let mut repairs = none::<Noops>();
        let mut stretch_after = |values: u64| {
            let range = (SLOT, Slot(5000));
            assert!(repairs.begin(Instant(0), ROUND, range).is_some());
            let voted: Vec<_> = (5..5 + values).map(|slot| (slot, 2)).collect();
            for from in [0, 1] {
                let from = Set::one(AcceptorId(from));
                repairs.on_votes(from, stretch(&voted, Slot::MAX), ());
            }
            repairs.stretch()
        };
        let values = [31, 32, 31, 0, 9, 400, 0];
        let expected = [1 << 16, 32, 512, 8192, 1 << 16, 32, 512];
        assert_eq!(values.map(&mut stretch_after), expected);
        // What is asked for alone says nothing.
        let range = (SLOT, SLOT.next());
        assert!(repairs.begin(Instant(0), ROUND, range).is_some());
        for from in [0, 1] {
            repairs.on_votes(Set::one(AcceptorId(from)), votes(&[], 0), ());
        }
        assert_eq!(repairs.stretch(), 512);
    }

    #[test]
    fn a_slot_in_a_stretch_that_is_being_repaired_is_not_asked_for_again() {
        let mut repairs = none::<Noops>();
        let mut begin = |start, end| {
            let range = (Slot(start), Slot(end));
            repairs.begin(Instant(0), ROUND, range).is_some()
        };
        assert!(begin(5, 5000));
        assert!(!begin(5, 6) && !begin(70, 71) && !begin(4999, 9000));
        assert!(begin(5000, 5001) && begin(4, 5));
    }
}
