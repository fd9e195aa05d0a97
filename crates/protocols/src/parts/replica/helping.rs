//! Handing slots to a peer that misses them. A peer that says that it waits, because it is cut off
//! from a peer whose slots it needs, is answered as soon as this replica has what it asks for: so
//! a third replica passes on what two servers whose link is broken cannot tell each other.

use super::{ReplicaCore, ReplicaPort};
use crate::parts::branch;
use crate::parts::message::ChosenSlots;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::MAX_MESSAGE_BYTES;
use ionian_replication::page::Page;

/// Slots and bytes handed to a peer at a time.
const FETCH_SLOTS: u64 = 256;
const FETCH_BYTES: usize = 1 << 20;

/// A slot with more bytes than this is in no message. Only slots that order what several processes
/// hold (Scalog) can be so large.
const MESSAGE_BYTES: usize = MAX_MESSAGE_BYTES - (64 << 10);

/// A peer waits for this many times as long as it asks again at the earliest.
const PATIENCE: u32 = 8;

/// Peers that wait for slots from `start` up to `end`, until when.
#[derive(Default)]
pub(super) struct Helping {
    waiting: SmallMap<ReplicaId, (Slot, Slot, Instant)>,
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
        self.hand_over(now, from, (start, end), port);
    }

    fn hand_over(
        &mut self,
        now: Instant,
        to: ReplicaId,
        (start, end): (Slot, Slot),
        port: &mut impl ReplicaPort,
    ) {
        let first = self.log.get(start).filter(|_| start < self.executed);
        if first.is_some_and(|first| first.value.batch.byte_len() > MESSAGE_BYTES) {
            // No message carries it. A snapshot goes in pieces.
            port.reached(branch::OFFERS_SNAPSHOT);
            return self.offer_snapshot(now, to, start, port);
        }
        let (mut slots, mut page) = (ChosenSlots::new(), Page::new(FETCH_BYTES));
        let end = end.min(start.plus(FETCH_SLOTS));
        for (slot, chosen) in self
            .log
            .iter_from(start)
            .take_while(|(slot, _)| *slot < end)
        {
            if !page.takes(chosen.value.batch.byte_len()) {
                break;
            }
            slots.push((slot, chosen.value.clone()));
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
                self.hand_over(now, *peer, (*start, *end), port);
            }
            !has_come && now < *until
        });
        self.helping.waiting = waiting;
    }
}
