//! The acceptor: promises and votes as in MultiPaxos, once for each stripe, and reservations.
//!
//! Stands behind the proxy leader, and answers leaders in phase 1 and readers. The promise to take
//! part in no lower round is made stripe by stripe; a reader learns the highest slot of the whole
//! log.

mod port;

use self::port::Port;
use super::branch;
use super::config::Config;
use super::message::Reserved;
use super::stripe::{Stripe, StripePosition};
use super::{Envelope, client, kind, leader, read_batcher, replica};
use crate::multipaxos;
use crate::multipaxos::message::ReaderId;
use crate::parts;
use crate::parts::acceptor::AcceptorCore;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::{messages, wire_enum};
use ionian_replication::batch::Value;

messages! {
    /// The messages that an acceptor receives.
    "acceptor" In {
        /// What MultiPaxos's receives, of the slots of a stripe.
        0 in stripe => InStripe via message {
            /// The stripe.
            stripe: Stripe,
            /// The message.
            message: multipaxos::acceptor::In,
        },
        /// A reader asks for the vote watermark of the log.
        1 for "inquire" of inquiry => PreRead {
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

/// The most reservations of a stripe that an acceptor keeps: each page of votes in phase 1 comes
/// with all of them. A leader adds at most 65, where the one before it has voted since; replicas
/// that store snapshots remove them. At the limit the acceptor refuses new ones, as it refuses
/// votes at the limit of those.
const MAX_RESERVATIONS: usize = 1 << 12;

/// What an acceptor must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// What concerns the votes of one stripe.
    InStripe {
        /// The stripe.
        stripe: Stripe,
        /// The record.
        record: parts::acceptor::Record,
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

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    node: NodeId,
    config: Arc<Config>,
    stripes: Vec<StripeState>,
    /// By stripe: the first position whose record it needs. All stripes' records are released by
    /// one number, the lowest: what replicas keep is a prefix of the log, so it grows in all
    /// stripes alike, also in one whose leader does not reach this acceptor (`on_kept`).
    released: Vec<StripePosition>,
    /// Replicas of the own node, if they execute out of order.
    listeners: Set<ReplicaId>,
}

/// What it does and knows in one stripe.
struct StripeState {
    core: AcceptorCore,
    /// The reservations of this stripe that no later one covers.
    reserved: Vec<Reserved>,
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
        let stripes = config.stripes.iter().map(|stripe| StripeState {
            core: AcceptorCore::new(config.of(stripe).clone(), birth),
            reserved: Vec::new(),
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
            released: vec![StripePosition::ZERO; config.stripes.count()],
            listeners,
            config,
        }
    }

    /// What it has promised and voted for in each stripe.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, &AcceptorCore)> {
        self.config
            .stripes
            .iter()
            .zip(self.stripes.iter().map(|stripe| &stripe.core))
    }

    /// The part that does the work of one stripe, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        stripe: Stripe,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut AcceptorCore, Port<'a, 'b>) {
        let StripeState { core, reserved } = &mut self.stripes[usize::from(stripe.0)];
        let port = Port {
            id: self.id,
            stripes: self.config.stripes,
            stripe,
            reserved,
            released: &mut self.released,
            out,
        };
        (core, port)
    }

    fn in_stripe(
        &mut self,
        now: Instant,
        stripe: Stripe,
        message: multipaxos::acceptor::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::acceptor::In as Message;
        if let Message::Phase2a { slot, value, .. } = &message {
            self.tell_suggestion(stripe, StripePosition::of_part(*slot), value, out);
        }
        let (core, mut port) = self.part(stripe, out);
        let port = &mut port;
        match message {
            Message::Phase1a {
                from,
                round,
                start,
                end,
            } => drop(core.on_phase1a(now, from, round, (start, end), port)),
            Message::Phase2a {
                from,
                slot,
                round,
                value,
            } => core.on_phase2a(now, from, (slot, round), value, port),
            // A reader asks about the whole log.
            Message::PreRead { .. } => {}
            Message::Heartbeat { round, kept } => {
                if core.on_heartbeat(now, round, kept, port) {
                    let kept = StripePosition::of_part(kept);
                    self.on_kept(self.config.stripes.end(stripe, kept), round.epoch(), out);
                }
            }
            Message::PreVote { from } => core.on_pre_vote(now, from, port),
            Message::Admit {
                nonce,
                round,
                frontier,
            } => core.on_admit(nonce, round, frontier, port),
            Message::Learn {
                slot,
                round,
                replier,
            } => {
                core.on_learn(slot, round, replier, port);
            }
            // Mencius has no relays.
            Message::RelayedPhase2a { .. }
            | Message::LearnSlots { .. }
            | Message::RelayedPhase1a { .. }
            | Message::RelayedPreRead { .. }
            | Message::Executed { .. } => {}
        }
    }

    /// f+1 replicas keep every slot of the log below `kept`, as the leader of one stripe says in a
    /// round of `epoch`.
    fn on_kept(&mut self, kept: Slot, epoch: Epoch, out: &mut Out<'_, Self>) {
        for stripe in self.config.stripes.iter() {
            let position = self.config.stripes.from(stripe, kept);
            let (core, mut port) = self.part(stripe, out);
            core.on_kept(position.in_part(), epoch, &mut port);
        }
    }

    /// Replicas of this node hear of what is suggested: they may execute other commands before it.
    fn tell_suggestion(
        &self,
        stripe: Stripe,
        position: StripePosition,
        value: &Value,
        out: &mut Out<'_, Self>,
    ) {
        if !self.listeners.is_empty() && !value.batch.is_empty() {
            let (slot, value) = (self.config.stripes.slot(stripe, position), value.clone());
            // Unfenced: the suggestion exists even if this vote is lost.
            out.send_unfenced(Envelope::ToReplicas(
                self.listeners,
                replica::In::Suggested { slot, value },
            ));
        }
    }

    /// The slot of the log after the highest in which it ever voted, and the highest epoch of its
    /// promises, in all stripes in which it may take part. At least the frontier of its
    /// configuration: below that one acceptors of an earlier configuration have voted.
    fn watermark(&self) -> (Slot, Epoch) {
        let stripes = self.config.stripes.iter().zip(&self.stripes);
        stripes.fold(
            (self.config.layout().frontier, Epoch::default()),
            |(watermark, epoch), (stripe, StripeState { core, .. })| {
                let (voted, promise) = core.watermark().unwrap_or_default();
                let position = StripePosition::of_part(voted);
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
            .any(|stripe| stripe.core.watermark().is_none())
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

    /// A later leader of the stripe must ask a read quorum, which meets the write
    /// quorum that granted the reservation. If an acceptor of both was asked by the later leader
    /// first, it has promised its round and refuses here; if not, the later leader hears of the
    /// reservation. So a reservation that is complete is known to all later leaders, and none of
    /// them puts anything but a noop into a slot that may have been skipped.
    ///
    /// Nothing is promised here, also not by an acceptor of two configurations: where a leader of
    /// the joint epoch has won phase 1, every write quorum of the configuration before has a member
    /// that refuses what an earlier round reserves.
    fn on_reserve(
        &mut self,
        from: LeaderId,
        stripe: Stripe,
        reserved: Reserved,
        out: &mut Out<'_, Self>,
    ) {
        // The leader of a round alone reserves in it, and at least one position.
        if reserved.start >= reserved.end || reserved.round.leader() != from {
            return;
        }
        // As for votes: one that is new has no part in the configuration before, and must not
        // depose its leader.
        if !self.config.of(stripe).takes_part(self.id, reserved.round) {
            return;
        }
        let place = &mut self.stripes[usize::from(stripe.0)];
        let Some((_, promise)) = place.core.watermark() else {
            return;
        };
        if reserved.round < promise {
            out.reached(branch::RESERVE_REFUSED);
            let message = multipaxos::leader::In::Nack { round: promise };
            return out.send(Envelope::ToLeaders(
                Set::one(from),
                leader::In::InStripe { stripe, message },
            ));
        }
        if place.covers(&reserved) {
            out.reached(branch::RESERVED_ALREADY);
        } else if place.has_room_for(&reserved) {
            place.reserve(reserved);
            out.persist_vital(Record::Reserved { stripe, reserved });
        } else {
            // The leader asks again.
            return out.reached(branch::RESERVATIONS_FULL);
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

impl StripeState {
    /// Whether a reservation stands for this one already.
    fn covers(&self, reserved: &Reserved) -> bool {
        self.reserved.iter().any(|known| known.covers(reserved))
    }

    /// Whether there is room for one more, or this one takes the place of another. Those of
    /// positions that are forgotten here are not needed: these are chosen, and replicas keep them.
    fn has_room_for(&mut self, new: &Reserved) -> bool {
        let forgotten = StripePosition::of_part(self.core.forgotten());
        self.reserved.retain(|known| known.end > forgotten);
        self.reserved.len() < MAX_RESERVATIONS || self.reserved.iter().any(|one| new.covers(one))
    }

    /// Notes a reservation. It stands for all earlier ones that it covers.
    fn reserve(&mut self, new: Reserved) {
        self.reserved.retain(|known| !new.covers(known));
        self.reserved.push(new);
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
                self.stripes[usize::from(stripe.0)].core.recover(record);
            }
            Record::Reserved { stripe, reserved } if self.config.knows(stripe) => {
                // All of them: the limit held when they were recorded.
                let place = &mut self.stripes[usize::from(stripe.0)];
                if !place.covers(&reserved) {
                    place.reserve(reserved);
                }
            }
            _ => {}
        }
    }

    /// A vote is kept until its position is released; all else is small and written again at a
    /// checkpoint.
    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::InStripe { record, .. } => record.slot().map(|slot| slot.0),
            Record::Reserved { .. } => None,
        }
    }

    fn on_start(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        for stripe in self.config.stripes.iter() {
            let (core, mut port) = self.part(stripe, out);
            core.start(&mut port);
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        for (stripe, StripeState { core, reserved }) in
            self.config.stripes.iter().zip(&self.stripes)
        {
            let (vital, others) = core.checkpoint();
            out.persist_vital(Record::InStripe {
                stripe,
                record: vital,
            });
            others.for_each(|record| out.persist(Record::InStripe { stripe, record }));
            for reserved in reserved.iter().copied() {
                out.persist_vital(Record::Reserved { stripe, reserved });
            }
        }
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.listeners = listeners(&config, self.node);
        self.config = config;
        for (stripe, state) in self.config.stripes.iter().zip(&mut self.stripes) {
            state.core.reconfigure(self.config.of(stripe).clone());
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::InStripe { stripe, message } if self.config.knows(stripe) => {
                self.in_stripe(now, stripe, message, out);
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
            let (core, mut port) = self.part(stripe, out);
            core.on_timer(now, &mut port);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.stripes.iter().fold(None, |next, stripe| {
            earliest(next, stripe.core.next_timer())
        })
    }

    fn invariants(&self) {
        for StripeState { core, reserved } in &self.stripes {
            core.invariants();
            assert!(
                reserved.iter().all(|one| one.start < one.end),
                "an acceptor noted a reservation of nothing"
            );
        }
    }

    const METRICS: Metrics = &[parts::metrics::ACCEPTOR_POSITIONS, parts::metrics::ACCEPTOR];

    fn status(&self, status: &mut Status) {
        let of_log = |stripe, slot| {
            let position = StripePosition::of_part(slot);
            self.config.stripes.slot(stripe, position)
        };
        let forgotten = self
            .stripes()
            .map(|(stripe, core)| of_log(stripe, core.forgotten()));
        let forgotten = forgotten.min().unwrap_or_default();
        let each = self.stripes().map(|(_, core)| {
            let mut status = Status::default();
            core.report_work(&mut status);
            status
        });
        *status = Status::of_all(each, parts::metrics::ACCEPTOR);
        status.voted = Some(self.watermark().0);
        status.metrics.insert(0, forgotten.0);
    }
}
