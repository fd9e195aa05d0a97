//! Chosen payloads that a stabilizer is to hand over and does not hold: it asks others for them,
//! until it has them.

use super::super::message::PayloadId;
use crate::spaxos::id::StabilizerId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Instant, Timestamp};

/// How many wait at most. For what comes beyond, replicas ask the leader again.
const MAX_WAITING: usize = 1 << 14;

/// The number of payloads that others are asked for at a time: each can be as large as the largest
/// command. The next are asked for when these arrive, lowest slots first, because replicas execute
/// in order.
const MAX_ASKED: usize = 32;

/// What replicas are to be told, but for the payload.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) slot: Slot,
    pub(super) stamp: Timestamp,
    pub(super) replier: ReplicaId,
    pub(super) replicas: Set<ReplicaId>,
}

/// By payload: a payload is chosen in one slot at most.
pub(super) struct Waiting {
    me: StabilizerId,
    orders: BTreeMap<PayloadId, Missing>,
    /// The number of these that others were asked for.
    asked: usize,
    turn: u64,
}

struct Missing {
    order: Order,
    /// Those who were known to hold it when it was proposed.
    stored: Set<StabilizerId>,
    attempts: u32,
    ask_at: Instant,
}

impl Waiting {
    pub(super) fn new(me: StabilizerId, turn: u64) -> Self {
        Waiting {
            me,
            orders: BTreeMap::new(),
            asked: 0,
            turn,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Keeps an order until its payload is there; others are asked from `ask_at` on, for most are
    /// still on their way.
    pub(super) fn push(
        &mut self,
        id: PayloadId,
        order: Order,
        stored: Set<StabilizerId>,
        ask_at: Instant,
    ) {
        if let Some(missing) = self.orders.get_mut(&id) {
            missing.order.replicas = missing.order.replicas.or(order.replicas);
        } else if self.orders.len() < MAX_WAITING {
            let stored = stored.without(Set::one(self.me));
            self.orders.insert(
                id,
                Missing {
                    order,
                    stored,
                    attempts: 0,
                    ask_at,
                },
            );
        }
    }

    /// The order that waits for this payload, if one does.
    pub(super) fn take(&mut self, id: PayloadId) -> Option<Order> {
        let missing = self.orders.remove(&id)?;
        self.asked -= usize::from(missing.attempts > 0);
        Some(missing.order)
    }

    /// Replicas keep every slot below `kept`: none of these is waited for any more.
    pub(super) fn forget_kept(&mut self, kept: Slot) {
        self.orders.retain(|_, missing| missing.order.slot >= kept);
        self.asked = self.orders.values().filter(|it| it.attempts > 0).count();
    }

    /// What to ask of whom: at first of one who is known to hold it, then of all.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        others: Set<StabilizerId>,
        resend_after: Duration,
    ) -> Vec<(PayloadId, Slot, Set<StabilizerId>)> {
        let is_due = |missing: &Missing| missing.ask_at <= now;
        let due = self.orders.iter().filter(|(_, missing)| is_due(missing));
        let due = due.map(|(id, missing)| (missing.attempts == 0, missing.order.slot, *id));
        let mut due: Vec<_> = due.collect();
        // Those that were asked for before come first, and count already.
        due.sort_unstable();
        let again = due.partition_point(|(is_first, ..)| !is_first);
        due.truncate(again + MAX_ASKED.saturating_sub(self.asked));
        self.asked += due.len() - again;
        let ask = |(_, slot, id)| {
            let missing = self.orders.get_mut(&id).expect("it is due");
            self.turn += 1;
            let known = missing.stored.and(others).pick(self.turn);
            let one = known.filter(|_| missing.attempts == 0);
            missing.ask_at = now + resend_after * (1 << missing.attempts.min(5));
            missing.attempts += 1;
            (id, slot, one.map_or(others, Set::one))
        };
        due.into_iter().map(ask).collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let may_ask = |missing: &&Missing| missing.attempts > 0 || self.asked < MAX_ASKED;
        let asks = self.orders.values().filter(may_ask);
        asks.map(|missing| missing.ask_at).min()
    }
}
