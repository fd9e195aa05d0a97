//! The leader: that of MultiPaxos, which orders references and gives each payload one slot at most.
//!
//! Stands between disseminator and proxy leader.
//!
//! One slot at most is what lets stabilizers forget a payload as soon as the slot in which it was
//! chosen is kept: no later slot will ask for it. A disseminator names the round in which its
//! payload is to be ordered, and has it ordered in another only under another name. A round has one
//! leader, who leads in it in one of its lives only. So it is enough that this leader, while it
//! leads in a round, remembers the payloads that it has taken in the round.

mod change;
mod taken;

use self::change::Change;
use self::taken::Taken;
use super::branch;
use super::config::Config;
use super::id::{DisseminatorId, PayloadNumber, StabilizerId, as_batcher, of_batcher};
use super::message::{PayloadId, Reference, Ticket};
use super::metrics;
use super::{Envelope, disseminator, stabilizer};
use crate::multipaxos;
use crate::multipaxos::leader::{Leader as Ordered, Record};
use crate::multipaxos::message::Proposer;
use crate::parts;
use crate::parts::leader::Ready;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::inner::{Inner, Untagged};
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_replication::batch::Batch;

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// A payload is stable: it can be ordered.
        0 => Propose {
            /// The round in which to order it.
            round: Round,
            /// Its disseminator proposes nothing more that has a number below this one.
            floor: PayloadNumber,
            /// The replicas on the disseminator's node: an answer given there has the shortest way.
            near: Set<ReplicaId>,
            /// The [reference](Reference) to it, as the log is to hold it.
            reference: Batch,
        },
        /// A stabilizer stores too many payloads that no leader orders. From this slot on those to
        /// be rid of are void.
        2 => CarryTo {
            /// The slot.
            slot: Slot,
        },
        /// A stabilizer lives: said while the membership is changing.
        3 => StabilizerAlive {
            /// The stabilizer.
            from: StabilizerId,
        },
        /// A stabilizer of the new configuration holds all payloads of earlier epochs that can
        /// still be chosen.
        4 => TookOver {
            /// The stabilizer.
            from: StabilizerId,
            /// The round in which it was asked to.
            round: Round,
            /// How often stabilizers have lost their memory, as far as this one knows.
            lives: Vec<(StabilizerId, u64)>,
        },
        /// A message for the leader of MultiPaxos.
        1 => Ordering via message {
            /// The message.
            message: multipaxos::leader::In,
        },
    }
}

impl In {
    /// Asks the leader of the ticket's round to order its payload, which these stabilizers hold.
    pub fn propose(ticket: &Ticket, stored: Set<StabilizerId>, near: Set<ReplicaId>) -> In {
        let Ticket {
            id,
            void_from,
            round,
            floor,
        } = *ticket;
        In::Propose {
            round,
            floor,
            near,
            reference: Reference {
                id,
                void_from,
                stored,
            }
            .batch(),
        }
    }
}

/// A leader.
pub struct Leader {
    inner: Inner<Ordered>,
    config: Config,
    taken: Taken,
    /// The log is to be carried to this slot, with noops if there is nothing else.
    carry_to: Slot,
    change: Change,
    repeated: u64,
    late: u64,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let inner = Inner::new(
            Ordered::new(config.ordering.clone(), birth),
            birth.keeps_records,
        );
        Leader {
            inner,
            config,
            taken: Taken::default(),
            carry_to: Slot::ZERO,
            change: Change::default(),
            repeated: 0,
            late: 0,
        }
    }

    /// Whether it leads.
    pub fn is_leading(&self) -> bool {
        self.inner.is_leading()
    }

    fn on_propose(
        &mut self,
        now: Instant,
        (proposed_in, floor): (Round, PayloadNumber),
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        // If it does not lead, the one that does says so to the disseminators.
        let (Some(reference), true) = (Reference::of(&batch), self.inner.is_leading()) else {
            return;
        };
        let (id, round) = (reference.id, self.inner.round());
        if proposed_in != round {
            return self.refuse_other_round(id.disseminator, proposed_in, out);
        }
        let next = self.inner.core().place_of_next();
        if reference.is_void(next) {
            // A slot for nothing, and the work to have it ordered anew would only make the queue
            // longer. The disseminator does that in its time.
            self.late += 1;
            return out.reached(branch::LATE);
        }
        self.taken.enter(round);
        if let Err(slot) = self.taken.take(id, (floor, reference.void_from, next)) {
            return self.on_repeated(id, slot, out);
        }
        let dropped = self.inner.core().dropped();
        let proposer = Proposer::Batcher {
            id: as_batcher(id.disseminator),
            number: id.number.0,
        };
        let message = multipaxos::leader::In::Propose {
            proposer,
            near,
            batch,
            again: false,
        };
        self.call(out, |leader, out| leader.on_message(now, message, out));
        if self.inner.core().dropped() > dropped {
            self.taken.drop(id, next);
        }
    }

    /// A payload is to be ordered in another round than the present one.
    fn refuse_other_round(
        &mut self,
        disseminator: DisseminatorId,
        proposed_in: Round,
        out: &mut Out<'_, Self>,
    ) {
        out.reached(branch::OF_OLD_ROUND);
        let round = self.inner.round();
        if proposed_in < round {
            let message = disseminator::In::NewLeader { round };
            out.send(Envelope::ToDisseminators(Set::one(disseminator), message));
        }
    }

    /// A payload is proposed that was taken already; `slot` is the one that it got, if any. The
    /// disseminator may have missed that it was chosen.
    fn on_repeated(&mut self, id: PayloadId, slot: Option<Slot>, out: &mut Out<'_, Self>) {
        self.repeated += 1;
        out.reached(branch::REPEATED);
        let executed = self.inner.core().executed();
        if let Some(slot) = slot.filter(|slot| *slot < executed) {
            let message = disseminator::In::Chosen {
                numbers: vec![id.number],
                below: slot.next(),
            };
            let to = Set::one(id.disseminator);
            out.send(Envelope::ToDisseminators(to, message));
        }
    }

    /// Has the role that orders act, and does what follows for the roles that MultiPaxos does not
    /// have from what it says to acceptors, proxy leaders and replicas.
    fn call(
        &mut self,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(&mut Ordered, &mut Out<'_, Ordered>),
    ) {
        use multipaxos::Envelope as Theirs;
        use multipaxos::acceptor::In::Heartbeat as ToAcceptor;
        use multipaxos::proxy_leader::In::Phase2a;
        use multipaxos::replica::In::Heartbeat as ToReplica;
        let Leader {
            inner,
            config,
            taken,
            carry_to,
            change,
            ..
        } = self;
        inner.call(act);
        let replicas_are_ready = config.is_joint() && inner.core().replicas_are_ready();
        let left = inner.pour(out, &Untagged, |mut envelope, same_fence| {
            match &mut envelope {
                Theirs::ToProxyLeaders(
                    _,
                    Phase2a {
                        slot,
                        proposer: Proposer::Batcher { id, number },
                        ..
                    },
                ) => taken.placed(of_batcher(*id), PayloadNumber(*number), *slot),
                Theirs::ToAcceptors(_, ToAcceptor { round, kept }) => {
                    same_fence.send(kept_to_stabilizers(config, *round, *kept));
                }
                Theirs::ToReplicas(
                    _,
                    ToReplica {
                        round,
                        executed,
                        keep,
                        ..
                    },
                ) => {
                    // Stabilizers forget void payloads once replicas keep those slots.
                    *keep = (*keep).max(*carry_to);
                    same_fence.send(progress_to_disseminators(config, *round, *executed));
                    // Only now: payloads of kept slots need no take-over.
                    if replicas_are_ready {
                        same_fence.send(change.take_over(*round, config));
                    }
                }
                _ => {}
            }
            same_fence.send(envelope.into());
        });
        left.pass_on(out);
    }

    /// Tells the role that orders what stabilizers are ready for.
    fn look_ready(&mut self, now: Instant) {
        let ready = match self.config.is_joint() {
            true => self.change.ready(now, &self.config),
            false => Ready::default(),
        };
        self.inner.set_ready(ready);
    }

    /// Goes on to where the log is to be carried, as far as replicas are ready for it.
    fn carry(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let slot = self.carry_to;
        if !self.inner.is_leading() {
            self.carry_to = Slot::ZERO;
        } else if slot > self.inner.core().next_slot() {
            out.reached(branch::CARRIES);
            self.call(out, |leader, out| leader.fill_below(now, slot, out));
        }
    }
}

/// Every slot below `kept` is kept by f+1 replicas.
fn kept_to_stabilizers(config: &Config, round: Round, kept: Slot) -> Envelope {
    let message = stabilizer::In::Kept { round, kept };
    Envelope::ToStabilizers(config.stabilizers.members(), message)
}

/// Every slot below `executed` is executed by some replica.
fn progress_to_disseminators(config: &Config, round: Round, executed: Slot) -> Envelope {
    let message = disseminator::In::Progress { round, executed };
    Envelope::ToDisseminators(config.disseminators, message)
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.inner.recover(record);
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        self.inner.checkpoint(out, &Untagged);
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |leader, out| leader.on_start(now, out));
    }

    fn on_reconfigure(&mut self, now: Instant, config: Config, out: &mut Out<'_, Self>) {
        self.config = config;
        self.change.reconfigure(&self.config);
        self.look_ready(now);
        let within = self.config.ordering.clone();
        self.call(out, |leader, out| leader.on_reconfigure(now, within, out));
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.config.is_joint() {
            self.look_ready(now);
        }
        match message {
            In::StabilizerAlive { from } => self.change.heard(from, now),
            In::TookOver { from, round, lives } => {
                if self.change.on_took_over(from, round, &lives, &self.config) {
                    out.reached(branch::TAKEN_OVER);
                }
            }
            In::Propose {
                round,
                floor,
                near,
                reference,
            } => {
                self.on_propose(now, (round, floor), near, reference, out);
            }
            In::Ordering {
                message: multipaxos::leader::In::Propose { .. },
            } => {}
            In::Ordering { message } => {
                self.call(out, |leader, out| leader.on_message(now, message, out));
                self.carry(now, out);
            }
            In::CarryTo { slot } => {
                // No payload is void later than one that is disseminated now.
                self.carry_to = self
                    .carry_to
                    .max(slot.min(self.config.void_from(self.inner.core().executed())));
                self.carry(now, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.config.is_joint() {
            self.look_ready(now);
        }
        self.call(out, |leader, out| leader.on_timer(now, out));
    }

    fn next_timer(&self) -> Option<Instant> {
        self.inner.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |leader, out| leader.on_burst_end(now, out));
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        self.call(out, |leader, out| leader.on_drain(now, drains, out));
    }

    fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    fn invariants(&self) {
        self.inner.invariants();
    }

    const METRICS: Metrics = &[
        parts::metrics::LEADER_POSITIONS,
        parts::metrics::LEADER,
        metrics::LEADER,
    ];

    fn status(&self, status: &mut Status) {
        self.inner.status(status);
        status.add([
            self.taken.len() as u64,
            self.repeated,
            self.late,
            self.carry_to.0,
        ]);
    }
}
