//! The acceptor: MultiPaxos's own, once for each stripe, and a keeper of reservations.
//!
//! Stands behind the proxy leader, and answers leaders in phase 1 and readers. The promise to take
//! part in no lower round is made stripe by stripe; a reader is told the highest slot of the whole
//! log.

use super::branch;
use super::canary::Canary;
use super::config::Config;
use super::stripe::Stripe;
use super::{Envelope, client, kind, leader, read_batcher, replica, striped};
use crate::multipaxos;
use crate::multipaxos::message::{ReaderId, Reserved};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::inner::{Inner, Tag};
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::wire::Wire;
use ionian_kernel::{messages, wire_enum};

messages! {
    /// What an acceptor is told.
    "acceptor" In {
        /// What MultiPaxos's is told, of the slots of a stripe.
        0 => InStripe via message {
            /// The stripe.
            stripe: Stripe,
            /// The message.
            message: multipaxos::acceptor::In,
        },
        /// A reader asks for the vote watermark of the log.
        1 => PreRead {
            /// The reader.
            from: ReaderId,
            /// Its number for the inquiry.
            inquiry: u64,
        },
        /// A leader wants to skip slots of its stripe as it likes.
        2 => Reserve {
            /// The leader.
            from: LeaderId,
            /// The stripe.
            stripe: Stripe,
            /// Its round, and the positions.
            reserved: Reserved,
        },
    }
}

/// What an acceptor must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// What MultiPaxos's must, of a stripe.
    InStripe {
        /// The stripe.
        stripe: Stripe,
        /// The record.
        record: multipaxos::acceptor::Record,
    },
    /// These slots were reserved. Vital: rare, and no vote tells of a slot that was skipped.
    Reserved {
        /// The stripe.
        stripe: Stripe,
        /// The round, and the positions.
        reserved: Reserved,
    },
}

wire_enum! { Record { 0 => InStripe { stripe, record }, 1 => Reserved { stripe, reserved } } }

/// Makes a record of a stripe a record of the acceptor. Keys stay positions of the stripe.
struct RecordTag(Stripe);

impl Tag for RecordTag {
    fn write(&self, out: &mut Vec<u8>) {
        0u8.encode(out);
        self.0.encode(out);
    }
}

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    node: NodeId,
    config: Arc<Config>,
    stripes: Vec<InStripe>,
    /// Replicas of the own node, if they execute out of order.
    listeners: Set<ReplicaId>,
}

/// What it does and knows in one stripe.
struct InStripe {
    inner: Inner<multipaxos::acceptor::Acceptor>,
    /// What leaders have reserved of it, but for what others have reserved again in later rounds.
    reserved: Vec<Reserved>,
    /// Of positions below this one it needs no records. All stripes' records are released by one
    /// number: what is kept of the log grows in all of them alike.
    released: u64,
}

/// Whom an acceptor on `node` tells what is suggested.
fn listeners(config: &Config, node: NodeId) -> Set<ReplicaId> {
    match config.settings.out_of_order {
        true => config.of(Stripe(0)).near(kind::Replica, node),
        false => Set::EMPTY,
    }
}

impl Acceptor {
    /// The acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let of = |stripe| multipaxos::acceptor::Acceptor::new(config.of(stripe).clone(), birth);
        let stripes = config.stripes.iter().map(|stripe| InStripe {
            inner: Inner::new(of(stripe), birth.keeps_records),
            reserved: Vec::new(),
            released: 0,
        });
        let (id, node, listeners) = (
            AcceptorId(birth.address.index),
            birth.node,
            listeners(&config, birth.node),
        );
        Acceptor {
            id,
            node,
            stripes: stripes.collect(),
            listeners,
            config,
        }
    }

    /// What it does in each stripe, for those who watch.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, &multipaxos::acceptor::Acceptor)> {
        self.config
            .stripes
            .iter()
            .zip(self.stripes.iter().map(|stripe| &*stripe.inner))
    }

    fn call(
        &mut self,
        stripe: Stripe,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(
            &mut multipaxos::acceptor::Acceptor,
            &mut Out<'_, multipaxos::acceptor::Acceptor>,
        ),
    ) {
        let InStripe {
            inner,
            reserved,
            released,
        } = &mut self.stripes[usize::from(stripe.0)];
        inner.call(act);
        let stripes = self.config.stripes;
        let left = inner.pour(out, &RecordTag(stripe), |envelope, relay| match envelope {
            multipaxos::Envelope::ToLeaders(
                to,
                multipaxos::leader::In::Phase1b {
                    from,
                    round,
                    mut votes,
                    clock,
                },
            ) => {
                votes.reserved = reserved.clone();
                let message = multipaxos::leader::In::Phase1b {
                    from,
                    round,
                    votes,
                    clock,
                };
                relay.send(Envelope::ToLeaders(
                    to,
                    leader::In::InStripe { stripe, message },
                ));
            }
            envelope => relay.send(striped(stripes, stripe, envelope)),
        });
        if let Some(key) = left.release {
            *released = (*released).max(key);
            let all = self.stripes.iter().map(|stripe| stripe.released).min();
            out.release_below(all.expect("a log has stripes"));
        }
    }

    /// Replicas of this node hear of what is suggested: they may execute other commands before it.
    fn tell_suggestion(
        &self,
        stripe: Stripe,
        message: &multipaxos::acceptor::In,
        out: &mut Out<'_, Self>,
    ) {
        if let multipaxos::acceptor::In::Phase2a { slot, value, .. } = message
            && !self.listeners.is_empty()
            && !value.batch.is_empty()
        {
            let (slot, value) = (self.config.stripes.slot(stripe, *slot), value.clone());
            // Unfenced: that it was suggested is so whatever becomes of this vote.
            out.send_unfenced(Envelope::ToReplicas(
                self.listeners,
                replica::In::Suggested { slot, value },
            ));
        }
    }

    /// The slot of the log after the highest in which it ever voted, and the highest epoch of its
    /// promises, in all stripes in which it may take part.
    fn watermark(&self) -> (Slot, Epoch) {
        let stripes = self.config.stripes.iter().zip(&self.stripes);
        stripes.fold(
            (Slot::ZERO, Epoch::default()),
            |(watermark, epoch), (stripe, InStripe { inner, .. })| {
                let (position, promise) = inner.watermark().unwrap_or_default();
                (
                    watermark.max(self.config.stripes.end(stripe, position)),
                    epoch.max(promise.epoch()),
                )
            },
        )
    }

    /// The highest slot of the log in which it ever voted decides, whichever stripe that is in:
    /// what is below it in other stripes is voted for, or skipped, or revoked before a replica
    /// executes that slot.
    fn on_pre_read(&self, from: ReaderId, inquiry: u64, out: &mut Out<'_, Self>) {
        if self
            .stripes
            .iter()
            .any(|stripe| stripe.inner.watermark().is_none())
        {
            return out.reached(branch::READ_WHILE_FORGETFUL);
        }
        let (watermark, epoch) = self.watermark();
        let from_me = self.id;
        out.send(match from {
            ReaderId::Client { id } => {
                let message = client::In::PreReadAck {
                    from: from_me,
                    inquiry,
                    watermark,
                    epoch,
                };
                Envelope::ToClients(Set::one(id), message)
            }
            ReaderId::ReadBatcher { id } => {
                let message = read_batcher::In::PreReadAck {
                    from: from_me,
                    inquiry,
                    watermark,
                    epoch,
                };
                Envelope::ToReadBatchers(Set::one(id), message)
            }
        });
    }

    /// Whoever leads the stripe after this leader must ask a read quorum, which meets the write
    /// quorum that granted the reservation. If an acceptor of both was asked by the later leader
    /// first, it has promised its round and refuses here; if not, the later leader hears of the
    /// reservation. So a reservation that is complete is known to all later leaders, and none of
    /// them puts anything but a noop into a slot that may have been skipped.
    fn on_reserve(
        &mut self,
        from: LeaderId,
        stripe: Stripe,
        reserved: Reserved,
        out: &mut Out<'_, Self>,
    ) {
        let place = &mut self.stripes[usize::from(stripe.0)];
        let Some((_, promise)) = place.inner.watermark() else {
            return;
        };
        if reserved.round < promise && !self.config.has(Canary::S12ReservesForTheDeposed) {
            out.reached(branch::RESERVE_REFUSED);
            let message = multipaxos::leader::In::Nack { round: promise };
            return out.send(Envelope::ToLeaders(
                Set::one(from),
                leader::In::InStripe { stripe, message },
            ));
        }
        if place.reserve(reserved) {
            out.persist_vital(Record::Reserved { stripe, reserved });
        } else {
            out.reached(branch::RESERVED_ALREADY);
        }
        let message = leader::In::Reserved {
            from: self.id,
            stripe,
            reserved,
        };
        // Fenced: what is skipped because of it must never be used by another.
        out.send(Envelope::ToLeaders(Set::one(from), message));
    }
}

impl InStripe {
    /// Takes a reservation down; false when it is known. It stands for all earlier ones that it
    /// covers.
    fn reserve(&mut self, reserved: Reserved) -> bool {
        let covers = |one: &Reserved, other: &Reserved| {
            one.round >= other.round && one.start <= other.start && one.end >= other.end
        };
        if self.reserved.iter().any(|known| covers(known, &reserved)) {
            return false;
        }
        self.reserved.retain(|known| !covers(&reserved, known));
        // What is forgotten here is chosen, and replicas keep it: it needs no reservation.
        let forgotten = self.inner.forgotten();
        self.reserved.retain(|known| known.end > forgotten);
        self.reserved.push(reserved);
        true
    }
}

impl Role for Acceptor {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        match record {
            Record::InStripe { stripe, record } if self.config.knows(stripe) => {
                self.stripes[usize::from(stripe.0)].inner.recover(record);
            }
            Record::Reserved { stripe, reserved }
                if self.config.knows(stripe) && !self.config.has(Canary::ReservationLost) =>
            {
                self.stripes[usize::from(stripe.0)].reserve(reserved);
            }
            _ => {}
        }
    }

    /// The stripe's own slots say how long a vote is kept; all else is small and written again at a
    /// checkpoint.
    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::InStripe { record, .. } => multipaxos::acceptor::Acceptor::key(record),
            Record::Reserved { .. } => None,
        }
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for stripe in self.config.stripes.iter() {
            self.call(stripe, out, |role, out| role.on_start(now, out));
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        for (
            stripe,
            InStripe {
                inner, reserved, ..
            },
        ) in self.config.stripes.iter().zip(&self.stripes)
        {
            inner.checkpoint(out, &RecordTag(stripe));
            for reserved in reserved.iter().copied() {
                out.persist_vital(Record::Reserved { stripe, reserved });
            }
        }
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        self.listeners = listeners(&config, self.node);
        self.config = config;
        for stripe in self.config.stripes.iter() {
            let within = self.config.of(stripe).clone();
            self.call(stripe, out, |role, out| {
                role.on_reconfigure(now, within, out)
            });
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::InStripe { stripe, message } if self.config.knows(stripe) => {
                self.tell_suggestion(stripe, &message, out);
                self.call(stripe, out, |role, out| role.on_message(now, message, out));
            }
            In::PreRead { from, inquiry } => self.on_pre_read(from, inquiry, out),
            In::Reserve {
                from,
                stripe,
                reserved,
            } if self.config.knows(stripe) => {
                self.on_reserve(from, stripe, reserved, out);
            }
            In::InStripe { .. } | In::Reserve { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for stripe in self.config.stripes.iter() {
            self.call(stripe, out, |role, out| role.on_timer(now, out));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.stripes.iter().fold(None, |next, stripe| {
            earliest(next, stripe.inner.next_timer())
        })
    }

    fn invariants(&self) {
        self.stripes
            .iter()
            .for_each(|stripe| stripe.inner.invariants());
    }

    const METRICS: Metrics = &[
        multipaxos::metrics::ACCEPTOR_POSITIONS,
        multipaxos::metrics::ACCEPTOR,
    ];

    fn status(&self, status: &mut Status) {
        let forgotten = self
            .stripes()
            .map(|(stripe, inner)| self.config.stripes.slot(stripe, inner.forgotten()));
        let forgotten = forgotten.min().unwrap_or_default();
        let each = self.stripes().map(|(_, inner)| {
            let mut status = Status::default();
            inner.report_work(&mut status);
            status
        });
        *status = Status::of_all(each, multipaxos::metrics::ACCEPTOR);
        status.voted = Some(self.watermark().0);
        status.metrics.insert(0, forgotten.0);
    }
}
