//! Mending single slots below the leader's window (l2): phase 1 for one slot, within the leader's round.
//!
//! Such a slot is chosen, since some replica executed beyond it, but the leader has forgotten its value
//! or never knew it. The value of the highest round that a read quorum voted for in it is the chosen
//! one: from the round in which it was chosen on, nothing else can have been proposed.

use super::super::config::Config;
use super::super::message::Votes;
use super::phase1::Phase1;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::batch::Value;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

/// How many slots are mended at a time; a replica that misses more asks again.
const MAX_REPAIRS: usize = 256;

/// The slots that are being mended.
pub(super) struct Repairs {
    config: Arc<Config>,
    slots: BTreeMap<Slot, Phase1>,
}

impl Repairs {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Repairs { config, slots: BTreeMap::new() }
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
    pub(super) fn begin(&mut self, now: Instant, round: Round, slot: Slot) -> Option<&Phase1> {
        if self.slots.len() >= MAX_REPAIRS || self.slots.contains_key(&slot) {
            return None;
        }
        let ask_at = now + self.config.options().resend_after;
        let repair = Phase1::new(self.config.clone(), round, slot, slot.next(), ask_at);
        Some(self.slots.entry(slot).or_insert(repair))
    }

    /// Takes votes in; the slot and its value when they are known.
    pub(super) fn on_votes(&mut self, from: AcceptorId, votes: Votes) -> Option<(Slot, Value)> {
        let slot = votes.start;
        let repair = self.slots.get_mut(&slot)?;
        repair.on_votes(from, votes);
        // What acceptors have forgotten, f+1 replicas keep: a peer will give it, or a snapshot.
        if !repair.is_forgotten(slot) && !repair.is_complete() {
            return None;
        }
        let repair = self.slots.remove(&slot).expect("just found");
        // A deposed leader may have proposed something there itself, which a later one has skipped: not its affair.
        let skipped = self.config.skips && !repair.is_forgotten(slot) && !repair.is_deposed();
        let value = repair.value(slot).cloned().or(skipped.then(Value::default));
        value.map(|value| (slot, value))
    }

    /// Those whose answers are overdue.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<&Phase1> {
        let resend_after = self.config.options().resend_after;
        let overdue = self.slots.values_mut().filter(|repair| repair.ask_at <= now);
        overdue
            .map(|repair| {
                repair.ask_at = now + resend_after;
                &*repair
            })
            .collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.slots.values().map(|repair| repair.ask_at).min()
    }
}
