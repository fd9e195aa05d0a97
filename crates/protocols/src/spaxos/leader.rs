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

use self::change::Change;
use super::branch;
use super::config::Config;
use super::id::{DisseminatorId, StabilizerId};
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
use ionian_replication::window::SlotWindow;

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// A payload is stable: it can be ordered.
        0 => Propose {
            /// The round in which to order it.
            round: Round,
            /// Its disseminator proposes nothing more that has a number below this one.
            floor: u64,
            /// The replicas on the disseminator's node: an answer given there has the shortest way.
            near: Set<ReplicaId>,
            /// The [reference](Reference) to it, as the log is to hold it.
            reference: Batch,
        },
        /// A stabilizer holds too many payloads that nobody orders, all of them void from this slot
        /// on.
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
        /// What one of MultiPaxos is told.
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
            until,
            round,
            floor,
        } = *ticket;
        In::Propose {
            round,
            floor,
            near,
            reference: Reference { id, until, stored }.batch(),
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

/// The payloads taken in one round, by the process that disseminates them.
#[derive(Default)]
struct Taken {
    round: Round,
    /// A few, the latest last.
    lives: Vec<(DisseminatorId, u64, Life)>,
}

/// The payloads of one process, by their numbers as those of a log are by slots: what was taken
/// from the floor on, with the slot in the log as soon as it has one.
type Life = SlotWindow<Option<Slot>>;

/// So many payloads of one process are taken at most, counted from the first that it may propose
/// again.
const MAX_TAKEN: usize = 1 << 20;

impl Taken {
    fn life(&mut self, id: PayloadId) -> &mut Life {
        let PayloadId {
            disseminator, life, ..
        } = id;
        let known = self
            .lives
            .iter()
            .rposition(|(of, number, _)| (*of, *number) == (disseminator, life));
        let place = known.unwrap_or_else(|| {
            self.lives
                .push((disseminator, life, Life::new(Slot::ZERO, MAX_TAKEN)));
            self.lives.len() - 1
        });
        &mut self.lives[place].2
    }

    /// A slot was given to what a disseminator calls `number`.
    fn placed(&mut self, disseminator: DisseminatorId, number: u64, slot: Slot) {
        for (_, _, life) in self.lives.iter_mut().filter(|(of, ..)| *of == disseminator) {
            if let Some(place) = life.get_mut(Slot(number)) {
                *place = Some(slot);
            }
        }
    }
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
        (proposed_in, floor): (Round, u64),
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        let round = self.inner.round();
        let Some(Reference { id, until, .. }) = Reference::of(&batch) else {
            return;
        };
        let to = Set::one(id.disseminator);
        if !self.inner.is_leading() {
            // Whoever leads tells the disseminators.
            return;
        }
        if proposed_in != round {
            out.reached(branch::OF_OLD_ROUND);
            if proposed_in < round {
                out.send(Envelope::ToDisseminators(
                    to,
                    disseminator::In::NewLeader { round },
                ));
            }
            return;
        }
        if self.taken.round != round {
            self.taken = Taken {
                round,
                lives: Vec::new(),
            };
        }
        let executed = self.inner.core().executed();
        let number = id.number;
        let (life, place) = (self.taken.life(id), Slot(number));
        life.advance_to(Slot(floor));
        if !life.admits(place) || life.get(place).is_some() {
            self.repeated += 1;
            out.reached(branch::REPEATED);
            // The disseminator may have missed that it was chosen.
            if let Some(slot) = life
                .get(place)
                .copied()
                .flatten()
                .filter(|slot| *slot < executed)
            {
                let message = disseminator::In::Chosen {
                    numbers: vec![number],
                    below: slot.next(),
                };
                out.send(Envelope::ToDisseminators(to, message));
            }
            return;
        }
        if self.inner.core().place_of_next() >= until {
            // Void by the time its turn comes: a slot for nothing, and the work to have it ordered
            // anew would only make the queue longer. The disseminator does that in its time.
            self.late += 1;
            return out.reached(branch::LATE);
        }
        life.insert(place, None);
        let dropped = self.inner.core().dropped();
        let proposer = Proposer::Batcher {
            id: BatcherId(id.disseminator.0),
            number,
        };
        let message = multipaxos::leader::In::Propose {
            proposer,
            near,
            batch,
            again: false,
        };
        self.call(out, |leader, out| leader.on_message(now, message, out));
        if self.inner.core().dropped() > dropped {
            self.taken.life(id).remove(place);
        }
    }

    fn call(
        &mut self,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(&mut Ordered, &mut Out<'_, Ordered>),
    ) {
        use multipaxos::Envelope as Theirs;
        use multipaxos::{acceptor, proxy_leader, replica};
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
        let left = inner.pour(out, &Untagged, |mut envelope, relay| {
            match &mut envelope {
                Theirs::ToProxyLeaders(
                    _,
                    proxy_leader::In::Phase2a {
                        slot,
                        proposer: Proposer::Batcher { id, number },
                        ..
                    },
                ) => taken.placed(DisseminatorId(id.0), *number, *slot),
                Theirs::ToAcceptors(_, acceptor::In::Heartbeat { round, kept }) => {
                    let message = stabilizer::In::Kept {
                        round: *round,
                        kept: *kept,
                    };
                    relay.send(Envelope::ToStabilizers(
                        config.stabilizers.members(),
                        message,
                    ));
                }
                Theirs::ToReplicas(
                    _,
                    replica::In::Heartbeat {
                        round,
                        executed,
                        keep,
                        ..
                    },
                ) => {
                    // Stabilizers forget void payloads once replicas keep those slots.
                    *keep = (*keep).max(*carry_to);
                    let message = disseminator::In::Progress {
                        round: *round,
                        executed: *executed,
                    };
                    relay.send(Envelope::ToDisseminators(config.disseminators, message));
                    // Only now: payloads of kept slots need no take-over.
                    if replicas_are_ready {
                        let message = stabilizer::In::TakeOver { round: *round };
                        let to = change.ask(*round, config);
                        relay.send(Envelope::ToStabilizers(to, message));
                    }
                }
                _ => {}
            }
            relay.send(envelope.into());
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
                    .max(slot.min(self.config.until(self.inner.core().executed())));
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
        let lives = self.taken.lives.iter();
        status.add([
            lives.map(|(_, _, life)| life.len() as u64).sum(),
            self.repeated,
            self.late,
            self.carry_to.0,
        ]);
    }
}
