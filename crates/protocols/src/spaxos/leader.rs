//! The leader: as in MultiPaxos, but that it orders references and gives each payload one slot at
//! most.
//!
//! Stands between disseminator and proxy leader.
//!
//! One slot at most is what lets stabilizers forget a payload as soon as the slot in which it was
//! chosen is kept: no later slot will ask for it. A disseminator names the round in which its
//! payload is to be ordered, and has it ordered in another only under another name. A round has one
//! leader, who leads in it in one of its lives only. So it is enough that this leader, while it
//! leads in a round, remembers the payloads that it has taken in the round.

mod change;
mod port;
mod taken;

use self::change::Change;
use self::port::Port;
use self::taken::Taken;
use super::branch;
use super::config::Config;
use super::id::{DisseminatorId, PayloadNumber, StabilizerId, as_batcher};
use super::message::{PayloadId, Reference, Ticket};
use super::metrics;
use super::{Envelope, disseminator};
use crate::multipaxos;
use crate::multipaxos::message::Proposer;
use crate::parts;
pub use crate::parts::leader::Record;
use crate::parts::leader::{LeaderCore, Proposal, Ready};
use crate::pigpaxos::leading::{self, Leading};
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::trace::LogSlot;
use ionian_replication::batch::Batch;

/// For traces.
fn payload_in(reference: &Batch) -> Option<LogSlot> {
    Reference::traced(reference)
}

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// A payload is stable: it can be ordered.
        0 for "propose" of reference -> payload_in => Propose {
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
        /// A message that MultiPaxos's leader receives too.
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
    id: LeaderId,
    core: LeaderCore<()>,
    /// How it speaks to acceptors through relays, where there are any.
    leading: Leading,
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
        let id = LeaderId(birth.address.index);
        let (ordering, is_new) = (config.ordering.clone(), !birth.amnesiac);
        Leader {
            id,
            leading: Leading::new(&ordering, birth),
            core: LeaderCore::new(ordering, (id, birth.node), is_new, birth.seed),
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
        self.core.is_leading()
    }

    /// The leader's part, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        now: Instant,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut LeaderCore<()>, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            now,
            leading: &mut self.leading,
            config: &self.config,
            taken: &mut self.taken,
            change: &mut self.change,
            carry_to: self.carry_to,
            out,
        };
        (&mut self.core, port)
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
        let (Some(reference), true) = (Reference::of(&batch), self.core.is_leading()) else {
            return;
        };
        let (id, round) = (reference.id, self.core.round());
        if proposed_in != round {
            return self.refuse_other_round(id.disseminator, proposed_in, out);
        }
        let next = self.core.place_of_next();
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
        let proposer = Proposer::Batcher {
            id: as_batcher(id.disseminator),
            number: id.number.0,
        };
        let proposal = Proposal {
            proposer,
            near,
            batch,
        };
        let (core, mut port) = self.part(now, out);
        if !core.on_propose(now, proposal, false, &mut port) {
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
        let round = self.core.round();
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
        let executed = self.core.executed();
        if let Some(slot) = slot.filter(|slot| *slot < executed) {
            let message = disseminator::In::Chosen {
                numbers: vec![id.number],
                below: slot.next(),
            };
            let to = Set::one(id.disseminator);
            out.send(Envelope::ToDisseminators(to, message));
        }
    }

    /// A message of those that MultiPaxos has too.
    fn on_ordering(
        &mut self,
        now: Instant,
        message: multipaxos::leader::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::leader::In as Message;
        let (core, mut port) = self.part(now, out);
        let port = &mut port;
        match message {
            // Commands reach the log by way of stabilizers only.
            Message::Propose { .. } => return,
            Message::Executed {
                from,
                executed,
                kept,
                round,
                times,
            } => {
                core.on_executed(now, from, (executed, kept), (round, times), port);
                core.finish_change(now, port);
            }
            Message::ProxyAlive { from } => core.on_proxy_alive(now, from),
            Message::Phase1b {
                from,
                round,
                votes,
                clock,
            } => {
                // A slot without votes says nothing here.
                let noops = core.on_phase1b(now, (from, round), (votes, ()), clock, port);
                debug_assert!(noops.is_empty());
            }
            Message::Nack { round } => core.on_nack(now, round, port),
            Message::Heartbeat { round } => core.on_heartbeat(now, round, port),
            Message::PreVoteReply {
                from,
                gone,
                promise,
            } => core.on_pre_vote_reply(now, from, gone, promise, port),
            Message::Recover { slots } => core.on_recover(now, &slots, port),
            Message::AdvanceClock { deadline } => core.on_advance_clock(now, deadline, port),
            Message::Rejoin {
                from,
                nonce,
                promise,
            } => core.on_rejoin(now, from, nonce, promise, port),
            Message::TakeOver { from, round } => core.on_take_over(now, from, round, port),
            Message::Declined { from } => core.on_declined(now, from, port),
            Message::Relayed { from } => port.leading.heard(now, from, AcceptorSet::EMPTY),
            Message::Promises {
                from,
                round,
                promises,
            } => {
                port.leading.heard(now, from, promises.missing);
                leading::on_promises(core, now, round, *promises, port);
            }
            // Stabilizers say themselves what they have taken over.
            Message::Ready { .. } => {}
        }
        self.carry(now, out);
    }

    /// Says what stabilizers are ready for.
    fn look_ready(&mut self, now: Instant) {
        let ready = match self.config.is_joint() {
            true => self.change.ready(now, &self.config),
            false => Ready::default(),
        };
        self.core.set_ready(ready);
    }

    /// Goes on to where the log is to be carried, as far as replicas are ready for it.
    fn carry(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let slot = self.carry_to;
        if !self.core.is_leading() {
            self.carry_to = Slot::ZERO;
        } else if slot > self.core.next_slot() {
            out.reached(branch::CARRIES);
            let (core, mut port) = self.part(now, out);
            core.fill_below(now, slot, &mut port);
        }
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.core.recover(record);
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(self.core.checkpoint());
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.core.start(now);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Config, out: &mut Out<'_, Self>) {
        self.config = config;
        self.change.reconfigure(&self.config);
        self.look_ready(now);
        let ordering = self.config.ordering.clone();
        self.leading.reconfigure(&ordering);
        let (core, mut port) = self.part(now, out);
        core.reconfigure(now, ordering, &mut port);
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
            In::Ordering { message } => self.on_ordering(now, message, out),
            In::CarryTo { slot } => {
                // No payload is void later than one that is disseminated now.
                self.carry_to = self
                    .carry_to
                    .max(slot.min(self.config.void_from(self.core.executed())));
                self.carry(now, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.config.is_joint() {
            self.look_ready(now);
        }
        let (core, mut port) = self.part(now, out);
        core.on_timer(now, &mut port);
        core.finish_change(now, &mut port);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.core.next_timer()
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        core.on_drain(now, drains, &mut port);
    }

    fn is_drained(&self) -> bool {
        self.core.is_drained()
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[
        parts::metrics::LEADER_POSITIONS,
        parts::metrics::LEADER,
        metrics::LEADER,
    ];

    fn status(&self, status: &mut Status) {
        self.core.report_status(status);
        status.add([
            self.taken.len() as u64,
            self.repeated,
            self.late,
            self.carry_to.0,
        ]);
    }
}
