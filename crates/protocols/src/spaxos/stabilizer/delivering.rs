//! How chosen payloads reach the replicas, and how a stabilizer gets those that it lacks.

use super::waiting::Order;
use super::{ANNOUNCE_AFTER, ANNOUNCE_PAYLOADS, In, Stabilizer};
use crate::spaxos::id::StabilizerId;
use crate::spaxos::message::{Payload, PayloadId, Reference};
use crate::spaxos::{Envelope, branch, replica};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Instant, earliest};
use ionian_replication::batch::{Batch, Value};

impl Stabilizer {
    /// A value is chosen that this stabilizer is to send to replicas.
    pub(super) fn on_chosen(
        &mut self,
        now: Instant,
        order: Order,
        value: &Value,
        out: &mut Out<'_, Self>,
    ) {
        let Some(reference) = Reference::of(&value.batch) else {
            return self.send_to_replicas(&order, value.batch.clone(), out);
        };
        let id = reference.id;
        if reference.is_void(order.slot) {
            // By the slot alone: all stabilizers send the same, whether they store it or not.
            self.void += 1;
            out.reached(branch::VOID);
            return self.send_to_replicas(&order, Batch::default(), out);
        }
        match self.payloads.get(id).cloned() {
            Some(batch) => {
                self.deliver(now, id, &order, batch, out);
            }
            // It need not be sent: f+1 replicas keep it, and give it to those that do not.
            None if order.slot < self.kept => {}
            None => {
                out.reached(branch::WAITS);
                let ask_at = now + self.config.layout().options.resend_after / 4;
                self.waiting.push(id, order, reference.stored, ask_at);
            }
        }
    }

    /// Sends a payload to replicas in its slot.
    fn deliver(
        &mut self,
        now: Instant,
        id: PayloadId,
        order: &Order,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        self.send_to_replicas(order, batch, out);
        self.delivered += 1;
        if self.payloads.chosen(id, order.slot) {
            self.unannounced.push((id, order.slot));
            self.announce_at = earliest(self.announce_at, Some(now + ANNOUNCE_AFTER));
            if self.unannounced.len() >= ANNOUNCE_PAYLOADS {
                self.announce_delivered(out);
            }
        }
    }

    fn send_to_replicas(&self, order: &Order, batch: Batch, out: &mut Out<'_, Self>) {
        let Order {
            slot,
            stamp,
            replier,
            replicas,
        } = *order;
        let message = replica::In::Chosen {
            slot,
            value: Value { stamp, batch },
            replier,
        };
        // What is chosen here, and what its payload is, was settled elsewhere: no crash of this
        // node undoes it.
        out.send_unfenced(Envelope::ToReplicas(replicas, message));
    }

    /// Tells the other stabilizers what it has sent to replicas: they forget that too when it is
    /// kept.
    pub(super) fn announce_delivered(&mut self, out: &mut Out<'_, Self>) {
        self.announce_at = None;
        let places = core::mem::take(&mut self.unannounced);
        // Unfenced for the same reason.
        out.send_unfenced(Envelope::ToStabilizers(
            self.others(),
            In::Delivered { places },
        ));
    }

    /// A payload has come in: its slot may wait for it.
    pub(super) fn deliver_waiting(&mut self, now: Instant, id: PayloadId, out: &mut Out<'_, Self>) {
        if let (Some(order), Some(batch)) = (self.waiting.take(id), self.payloads.get(id).cloned())
        {
            self.deliver(now, id, &order, batch, out);
        }
    }

    /// Another stabilizer lacks a payload that is chosen in `slot`.
    pub(super) fn on_fetch(
        &self,
        from: StabilizerId,
        id: PayloadId,
        slot: Slot,
        out: &mut Out<'_, Self>,
    ) {
        let message = match self.payloads.payload(id) {
            Some(payload) => In::Fetched { payload },
            None if slot < self.kept => {
                out.reached(branch::KEPT_ANSWER);
                In::Kept {
                    round: self.stale.round(),
                    kept: self.kept,
                }
            }
            None => return out.reached(branch::NO_ANSWER),
        };
        let from = Set::one(from).and(self.others());
        out.send(Envelope::ToStabilizers(from, message));
    }

    /// A payload that this one lacks.
    pub(super) fn on_fetched(&mut self, now: Instant, payload: Payload, out: &mut Out<'_, Self>) {
        if payload.void_from > self.kept && !self.holds(payload.id) {
            self.fetched += 1;
            out.reached(branch::FETCHED);
            self.keep(now, payload, out);
        }
    }

    /// Asks for payloads for which slots wait.
    pub(super) fn fetch_waiting(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (others, resend_after) = (self.others(), self.config.layout().options.resend_after);
        for (id, slot, asked) in self.waiting.overdue(now, others, resend_after) {
            out.send(Envelope::ToStabilizers(
                asked,
                In::Fetch {
                    from: self.id,
                    id,
                    slot,
                },
            ));
        }
    }
}
