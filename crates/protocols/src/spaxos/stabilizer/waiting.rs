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
        self.orders.remove(&id).map(|missing| missing.order)
    }

    /// Replicas keep every slot below `kept`: none of these is waited for any more.
    pub(super) fn forget_kept(&mut self, kept: Slot) {
        self.orders.retain(|_, missing| missing.order.slot >= kept);
    }

    /// What to ask of whom: at first of one who is known to hold it, then of all.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        others: Set<StabilizerId>,
        resend_after: Duration,
    ) -> Vec<(PayloadId, Slot, Set<StabilizerId>)> {
        let mut asked = Vec::new();
        for (id, missing) in &mut self.orders {
            if missing.ask_at <= now {
                self.turn += 1;
                let one = missing
                    .stored
                    .and(others)
                    .pick(self.turn)
                    .filter(|_| missing.attempts == 0);
                asked.push((*id, missing.order.slot, one.map_or(others, Set::one)));
                missing.ask_at = now + resend_after * (1 << missing.attempts.min(5));
                missing.attempts += 1;
            }
        }
        asked
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.orders.values().map(|missing| missing.ask_at).min()
    }
}
