//! Handing slots to a peer that misses them. A peer that says that it waits, because it is cut off
//! from a peer whose slots it needs, is answered as soon as this replica has what it asks for: so
//! a third replica passes on what two servers whose link is broken cannot tell each other.

use super::{ReplicaCore, ReplicaPort};
use crate::parts::branch;
use crate::parts::message::ChosenSlots;
use alloc::collections::BTreeMap;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

/// Slots and bytes handed to a peer at a time.
const FETCH_SLOTS: u64 = 256;
const FETCH_BYTES: usize = 1 << 20;

/// A peer waits for this many times as long as it asks again at the earliest.
const PATIENCE: u32 = 8;

/// Peers that wait for slots from `start` up to `end`, until when.
#[derive(Default)]
pub(super) struct Helping {
    waiting: BTreeMap<ReplicaId, (Slot, Slot, Instant)>,
}

impl ReplicaCore {
    /// A peer misses slots.
    pub fn on_fetch(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (start, end): (Slot, Slot),
        waits: bool,
        port: &mut impl ReplicaPort,
    ) {
        self.helping.waiting.remove(&from);
        if start < self.log.base() {
            // Forgotten here: the peer gets the state itself.
            port.reached(branch::OFFERS_SNAPSHOT);
            return self.offer_snapshot(now, from, start, port);
        }
        if waits && self.log.get(start).is_none() && self.config.replicas().contains(from) {
            port.reached(branch::PEER_WAITS);
            let until = now + self.config.options().resend_after * PATIENCE;
            self.helping.waiting.insert(from, (start, end, until));
            return;
        }
        self.hand_over(from, (start, end), port);
    }

    fn hand_over(&self, to: ReplicaId, (start, end): (Slot, Slot), port: &mut impl ReplicaPort) {
        let (mut slots, mut bytes) = (ChosenSlots::new(), 0);
        let end = end.min(start.plus(FETCH_SLOTS));
        for (slot, chosen) in self
            .log
            .iter_from(start)
            .take_while(|(slot, _)| *slot < end)
        {
            bytes += chosen.value.batch.byte_len();
            slots.push((slot, chosen.value.clone()));
            if bytes >= FETCH_BYTES {
                break;
            }
        }
        // Also without any: the peer need not wait to ask another.
        port.fetched(to, slots);
    }

    /// Answers the peers that wait for what has come meanwhile.
    pub(super) fn help_those_that_wait(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        if self.helping.waiting.is_empty() {
            return;
        }
        let mut waiting = core::mem::take(&mut self.helping.waiting);
        waiting.retain(|peer, (start, end, until)| {
            let has_come = self.log.base() <= *start && self.log.get(*start).is_some();
            if has_come {
                self.hand_over(*peer, (*start, *end), port);
            }
            !has_come && now < *until
        });
        self.helping.waiting = waiting;
    }
}
