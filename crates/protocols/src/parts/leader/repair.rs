//! Repairing single slots below the leader's window (l2): phase 1 for one slot, within the leader's
//! round.
//!
//! Such a slot is chosen, since some replica executed beyond it, but the leader has forgotten its
//! value or never knew it. The value of the highest round that a read quorum voted for in it is the
//! chosen one: from the round in which it was chosen on, nothing else can have been proposed. That
//! holds while each of them still has its vote: where one has forgotten the slot, no value follows
//! from the others.

use super::Notes;
use super::phase1::Phase1;
use crate::multipaxos::config::Config;
use crate::parts::message::Votes;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::batch::Value;

/// How many slots are mended at a time; a replica that misses more asks again.
const MAX_REPAIRS: usize = 256;

/// The slots that are being mended.
pub(super) struct Repairs<N> {
    config: Arc<Config>,
    slots: BTreeMap<Slot, Phase1<N>>,
}

impl<N: Notes> Repairs<N> {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Repairs {
            config,
            slots: BTreeMap::new(),
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Another round begins: its phase 1 comes first.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Begins to mend `slot`; what to ask, unless it is being mended already.
    pub(super) fn begin(&mut self, now: Instant, round: Round, slot: Slot) -> Option<&Phase1<N>> {
        if self.slots.len() >= MAX_REPAIRS || self.slots.contains_key(&slot) {
            return None;
        }
        let repair = Phase1::new(self.config.clone(), round, slot, slot.next(), now);
        Some(self.slots.entry(slot).or_insert(repair))
    }

    /// Takes votes in; the slot and its value when they are known.
    pub(super) fn on_votes(
        &mut self,
        from: AcceptorSet,
        votes: Votes,
        notes: N::Page,
    ) -> Option<(Slot, Value)> {
        let slot = votes.start;
        let repair = self.slots.get_mut(&slot)?;
        repair.on_votes(from, votes, notes);
        let forgotten = repair.is_forgotten(slot);
        if !forgotten && !repair.is_complete() {
            return None;
        }
        let repair = self.slots.remove(&slot).expect("just found");
        // What one acceptor has forgotten, f+1 replicas keep: a peer will give it, or a snapshot.
        // The votes that others still hold say nothing, not even those of a whole read quorum: the
        // one that forgot may be the only member that voted for what was chosen, and what remains
        // is then a vote of an older round, for something else.
        if forgotten {
            return None;
        }
        let noop = || repair.is_noop_without_votes().then(Value::default);
        let value = repair.value(slot).cloned().or_else(noop);
        value.map(|value| (slot, value))
    }

    /// Those whose answers are overdue, each with the acceptors to ask again.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(&Phase1<N>, AcceptorSet)> {
        let asked = self.slots.values_mut().map(|repair| {
            let overdue = repair.overdue(now);
            (&*repair, overdue)
        });
        asked.filter(|(_, overdue)| !overdue.is_empty()).collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.slots.values().map(Phase1::next_timer).min()
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

    fn repairs() -> Repairs<()> {
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
        let mut repairs = Repairs::new(Arc::new(config));
        assert!(
            repairs
                .begin(Instant(0), Round::new(Epoch(0), 9, LeaderId(0)), SLOT)
                .is_some()
        );
        repairs
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
        let mut found = None;
        for (from, votes) in answers {
            assert!(
                found.is_none(),
                "a repair has ended before acceptor {from} answered"
            );
            found = repairs.on_votes(Set::one(AcceptorId(*from)), votes.clone(), ());
        }
        found.map(|(slot, value)| (slot, value.stamp.0))
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
            assert!(repairs.on_votes(from, votes, ()).is_none());
        }
        assert!(repairs.next_timer().is_none());
        assert!(
            repairs
                .begin(Instant(0), Round::new(Epoch(0), 9, LeaderId(0)), SLOT)
                .is_some()
        );
    }
}
