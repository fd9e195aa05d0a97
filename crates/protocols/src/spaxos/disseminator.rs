//! The disseminator: has stabilizers keep commands, and then has them ordered.
//!
//! Stands between client (or batcher) and stabilizers, and between stabilizers and leader. It keeps
//! every payload until a proxy leader says that it was chosen, and has it ordered anew, under
//! another name, where that may not happen any more: by a new leader, or because it became void.
//! Sessions see to it that a command that is ordered twice is executed once.

mod helping;
mod neighbours;
mod proposing;

use self::helping::Helping;
use self::neighbours::Neighbours;
use super::branch;
use super::config::Config;
use super::id::{DisseminatorId, PayloadNumber, StabilizerId};
use super::lives::{Heard, Lives};
use super::message::{Payload, PayloadId, Ticket};
use super::metrics;
use super::{Envelope, batcher, kind, leader, stabilizer};
use crate::multipaxos;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest, transit};
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Batch, BatchBuilder, OpenBatch};
use ionian_replication::settled::Sweep;
use ionian_replication::suspicion::Suspicion;

messages! {
    /// The messages that a disseminator receives.
    "disseminator" In {
        /// Commands of a client.
        0 for "batch.wait" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// A batch of a batcher.
        1 for "disseminate" of batch => Disseminate {
            /// The batcher.
            from: BatcherId,
            /// Its number for the batch.
            number: u64,
            /// The batch.
            batch: Batch,
        },
        /// A stabilizer would find these payloads again after a crash.
        2 for "stored" of tickets => Stored {
            /// The stabilizer.
            from: StabilizerId,
            /// The payloads: of this disseminator, or of one that this one helps.
            tickets: Vec<Ticket>,
            /// How often stabilizers have lost their memory, as far as this one knows.
            lives: Vec<(StabilizerId, u64)>,
        },
        /// These payloads are chosen.
        3 => Chosen {
            /// This disseminator's numbers of the payloads.
            numbers: Vec<PayloadNumber>,
            /// Each is chosen in a slot below this one.
            below: Slot,
        },
        /// A leader has finished phase 1, or leads in another round than that of a payload that
        /// came to it.
        4 => NewLeader {
            /// Its round.
            round: Round,
        },
        /// A payload came to a leader that was deposed before its turn came.
        5 => NotLeader {
            /// The highest round that it knows of.
            round: Round,
        },
        /// The leader lives, and some replica has executed every slot below `executed`.
        6 => Progress {
            /// The leader's round.
            round: Round,
            /// How far the log is executed.
            executed: Slot,
        },
    }
}

impl From<multipaxos::batcher::In> for In {
    /// What roles of MultiPaxos send to those that propose to the leader.
    fn from(message: multipaxos::batcher::In) -> Self {
        use multipaxos::batcher::In as Theirs;
        match message {
            Theirs::Commands { commands } => In::Commands { commands },
            // Nothing is said of the slots: they are taken for the worst.
            Theirs::BatchesChosen { numbers } => In::Chosen {
                numbers: numbers.into_iter().map(PayloadNumber).collect(),
                below: Slot::MAX,
            },
            Theirs::NewLeader { round } => In::NewLeader { round },
            Theirs::NotLeader { round } => In::NotLeader { round },
        }
    }
}

/// Payloads that are not known to be chosen hold at most this many bytes, and are at most this
/// many. What comes beyond is dropped; its client or batcher sends it again.
const MAX_BYTES: usize = 64 << 20;
const MAX_IN_FLIGHT: usize = 1 << 17;

/// How long the leader may leave a payload unchosen before it is proposed again. That costs little:
/// a leader that has taken it sees that it has.
const PROPOSE_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A disseminator.
pub struct Disseminator {
    id: DisseminatorId,
    config: Config,
    node: NodeId,
    neighbours: Neighbours,
    open: OpenBatch,
    /// Payloads not known chosen, by number.
    in_flight: BTreeMap<PayloadNumber, InFlight>,
    in_flight_bytes: usize,
    sweep: Sweep,
    life: u64,
    next_number: PayloadNumber,
    /// The highest round in which a leader has said that it leads: payloads name it. Not the
    /// highest round heard of: it may never get a leader.
    round: Round,
    /// How far the log is known to be executed. Nothing can be disseminated before that is known.
    executed: Option<Slot>,
    /// What it has heard of the log reaches to this slot.
    reached: Slot,
    suspicion: Suspicion<StabilizerId>,
    lives: Lives,
    turn: u64,
    helping: Helping,
    /// Batches chosen in this burst, by the batcher that waits for them.
    chosen_batches: SmallMap<BatcherId, Vec<u64>>,
    check_at: Option<Instant>,
    dropped: u64,
    payloads: u64,
    again: u64,
}

struct InFlight {
    id: PayloadId,
    /// The round in which alone it may be ordered.
    round: Round,
    batch: Batch,
    /// The batcher that waits for it, with its number.
    from: Option<(BatcherId, u64)>,
    void_from: Slot,
    asked: Set<StabilizerId>,
    stored: Set<StabilizerId>,
    /// Whether a write quorum has stored it.
    stable: bool,
    /// How often stabilizers, and then leaders, were asked.
    attempts: u32,
    due: Instant,
}

impl InFlight {
    /// What goes with it, when nothing below `floor` is proposed any more.
    fn ticket(&self, floor: PayloadNumber) -> Ticket {
        let InFlight {
            id,
            round,
            void_from,
            ..
        } = *self;
        Ticket {
            id,
            void_from,
            round,
            floor,
        }
    }
}

impl Disseminator {
    /// The disseminator of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let life = random.any() >> 1;
        let id = DisseminatorId(birth.address.index);
        Disseminator {
            id,
            node: birth.node,
            neighbours: Neighbours::of(&config, birth.node),
            open: OpenBatch::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            sweep: Sweep::default(),
            life,
            next_number: PayloadNumber(life),
            round: Round(0),
            executed: None,
            reached: Slot::ZERO,
            suspicion: Suspicion::default(),
            lives: Lives::default(),
            turn: random.any() >> 1,
            helping: Helping::new(config.clone(), id),
            chosen_batches: SmallMap::new(),
            check_at: None,
            dropped: 0,
            payloads: 0,
            again: 0,
            config,
        }
    }

    fn options(&self) -> &Options {
        &self.config.layout().options
    }

    // Commands come in.

    fn has_room(&mut self, commands: &Batch) -> bool {
        let bytes = self.in_flight_bytes + self.open.byte_len() + commands.byte_len();
        let has_room = bytes <= MAX_BYTES && self.in_flight.len() < MAX_IN_FLIGHT;
        self.dropped += if has_room { 0 } else { commands.len() as u64 };
        has_room
    }

    fn on_commands(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        if self.has_room(commands) {
            self.open.append(now, commands);
            if self.open.is_full(self.options()) {
                self.close(now, out);
            }
        }
    }

    /// Disseminates the open batch; where batches hold one command, each command by itself.
    fn close(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let batch = self.open.take();
        if self.options().batch_commands > 1 {
            return self.disseminate(now, batch, None, out);
        }
        for command in batch.commands() {
            let mut builder = BatchBuilder::default();
            builder.push(&command);
            self.disseminate(now, builder.take(), None, out);
        }
    }

    fn disseminate(
        &mut self,
        now: Instant,
        batch: Batch,
        from: Option<(BatcherId, u64)>,
        out: &mut Out<'_, Self>,
    ) {
        let number = self.next_number;
        self.next_number = number.next();
        self.payloads += 1;
        self.in_flight_bytes += batch.byte_len();
        let void_from = self
            .config
            .void_from(self.reached.max(self.executed.unwrap_or_default()));
        let id = PayloadId {
            disseminator: self.id,
            life: self.life,
            number,
        };
        let (asked, stored) = (Set::EMPTY, Set::EMPTY);
        let payload = InFlight {
            id,
            round: self.round,
            batch,
            from,
            void_from,
            asked,
            stored,
            stable: false,
            attempts: 0,
            due: now,
        };
        self.in_flight.insert(number, payload);
        if self.sweep.is_due(now, self.in_flight.len()) {
            self.drop_settled();
        }
        if self.in_flight.contains_key(&number) {
            self.store(now, number, out);
        }
    }

    /// Has what may never be chosen any more ordered anew, as another payload.
    fn disseminate_again(
        &mut self,
        now: Instant,
        numbers: Vec<PayloadNumber>,
        out: &mut Out<'_, Self>,
    ) {
        for number in numbers {
            if let Some(payload) = self.remove(number) {
                self.again += 1;
                out.reached(branch::VOID_ANEW);
                self.disseminate(now, payload.batch, payload.from, out);
            }
        }
    }

    fn remove(&mut self, number: PayloadNumber) -> Option<InFlight> {
        let payload = self.in_flight.remove(&number)?;
        self.in_flight_bytes -= payload.batch.byte_len();
        Some(payload)
    }

    /// It proposes nothing more that has a number below this one.
    fn floor(&self) -> PayloadNumber {
        let first = self.in_flight.first_key_value();
        first.map_or(self.next_number, |(number, _)| *number)
    }

    // Stabilizers.

    /// Asks one write quorum of stabilizers that answered lately to keep a payload, then another,
    /// then all; beside them always those that tell the replicas on their own node.
    fn store(&mut self, now: Instant, number: PayloadNumber, out: &mut Out<'_, Self>) {
        if self.executed.is_none() {
            return;
        }
        self.turn += 1;
        let floor = self.floor();
        let payload = self.in_flight.get_mut(&number);
        let payload = payload.expect("asked for a payload in flight");
        let Some(quorums) = self.config.stabilizers_of(payload.round) else {
            // Its round's epoch is over: a leader of a later one will say that it leads, and the
            // payload is stored under another name.
            return self.wait(now, number);
        };
        let resend_after = self.config.layout().options.resend_after;
        let all = quorums.members();
        let trusted = self.suspicion.trusted(all);
        let probe = self.suspicion.probe(now).and(all);
        let (near, beside) = (self.neighbours.stabilizers, self.neighbours.beside.and(all));
        let asked = match quorums.write_quorum(trusted, near, self.turn) {
            Some(quorum) if payload.attempts < 2 => quorum.or(probe).or(beside),
            _ => all,
        };
        if payload.attempts > 0 && asked == all {
            out.reached(branch::ASKS_ALL);
        }
        payload.asked = asked.without(payload.stored);
        payload.due = now + resend_after * (1 << payload.attempts.min(5));
        self.check_at = earliest(self.check_at, Some(payload.due));
        let message = stabilizer::In::Store {
            floor,
            payload: Payload {
                id: payload.id,
                round: payload.round,
                void_from: payload.void_from,
                batch: payload.batch.clone(),
            },
        };
        out.send(Envelope::ToStabilizers(payload.asked, message));
    }

    /// Leaves a payload as it is for a while.
    fn wait(&mut self, now: Instant, number: PayloadNumber) {
        let due = now + self.options().resend_after;
        if let Some(payload) = self.in_flight.get_mut(&number) {
            (payload.due, payload.asked) = (due, Set::EMPTY);
        }
        self.check_at = earliest(self.check_at, Some(due));
    }

    fn on_stored(
        &mut self,
        now: Instant,
        from: StabilizerId,
        tickets: &[Ticket],
        out: &mut Out<'_, Self>,
    ) {
        self.suspicion.heard(from);
        for ticket in tickets {
            if ticket.id.disseminator != self.id {
                if let Some((stored, near)) = self.helping.on_stored(from, ticket) {
                    let leader = Set::one(ticket.round.leader());
                    out.send(Envelope::ToLeaders(
                        leader,
                        leader::In::propose(ticket, stored, near),
                    ));
                }
            } else if ticket.id.life == self.life {
                self.on_own_stored(now, from, ticket.id.number, out);
            }
        }
    }

    /// Takes in what is known of stabilizers that lost their memory: what they acknowledged before
    /// does not count for what is not stable yet. False when `from` said this in such an earlier
    /// life. See `stabilizer/copying.rs`.
    fn is_of_present_life(
        &mut self,
        from: StabilizerId,
        lives: &[(StabilizerId, u64)],
        out: &mut Out<'_, Self>,
    ) -> bool {
        let Heard {
            renewed,
            is_present,
        } = self.lives.hear(from, lives);
        if !renewed.is_empty() {
            out.reached(branch::LIFE_RENEWED);
            for payload in self
                .in_flight
                .values_mut()
                .filter(|payload| !payload.stable)
            {
                payload.stored = payload.stored.without(renewed);
            }
            self.helping.renew(renewed);
        }
        if !is_present {
            out.reached(branch::EARLIER_LIFE);
        }
        is_present
    }

    fn on_own_stored(
        &mut self,
        now: Instant,
        from: StabilizerId,
        number: PayloadNumber,
        out: &mut Out<'_, Self>,
    ) {
        let resend_at = now + self.options().resend_after;
        let Some(payload) = self.in_flight.get_mut(&number) else {
            return;
        };
        payload.stored.insert(from);
        if payload.stable || !self.config.is_stable(payload.round, payload.stored) {
            return;
        }
        (payload.stable, payload.attempts) = (true, 0);
        if self.helping.is_helped(payload.round) {
            // Proposed already, unless an answer to the one beside the leader was lost.
            payload.due = resend_at;
            self.check_at = earliest(self.check_at, Some(resend_at));
        } else {
            self.propose(now, number, out);
        }
    }

    /// What was left unanswered is asked again.
    fn ask_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let executed = self.executed.unwrap_or_default();
        let transit = transit(self.in_flight_bytes);
        let is_overdue = |payload: &InFlight| payload.due + transit <= now;
        let overdue = self.numbers_of(is_overdue);
        let mut void = Vec::new();
        for number in overdue {
            let payload = self.in_flight.get_mut(&number).expect("just found");
            if executed >= payload.void_from {
                void.push(number);
            } else if payload.stable {
                self.propose(now, number, out);
            } else {
                self.suspicion
                    .silent(payload.asked.without(payload.stored), now);
                payload.attempts += 1;
                self.store(now, number, out);
            }
        }
        self.disseminate_again(now, void, out);
        self.check_at = self
            .in_flight
            .values()
            .map(|payload| payload.due + transit)
            .min();
    }
}

impl Role for Disseminator {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Config, _: &mut Out<'_, Self>) {
        self.neighbours = Neighbours::of(&config, self.node);
        self.helping.reconfigure(config.clone());
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => self.on_commands(now, &commands, out),
            In::Disseminate {
                from,
                number,
                batch,
            } => {
                if self.has_room(&batch) {
                    self.disseminate(now, batch, Some((from, number)), out);
                }
            }
            In::Stored {
                from,
                tickets,
                lives,
            } => {
                if self.is_of_present_life(from, &lives, out) {
                    self.on_stored(now, from, &tickets, out);
                }
            }
            In::Chosen { numbers, below } => self.on_chosen(now, &numbers, below, out),
            In::NewLeader { round } if round >= self.round => self.follow(now, round, out),
            // The present leader says so itself, again and again.
            In::NewLeader { .. } | In::NotLeader { .. } => {}
            In::Progress { round, executed } => self.on_progress(now, round, executed, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.suspicion.on_timer(now);
        if self.check_at.is_some_and(|at| at <= now) {
            self.ask_again(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let next = earliest(self.check_at, self.open.closes_at(self.options()));
        earliest(next, self.suspicion.next_timer())
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.open.is_due(now, self.in_flight.len(), self.options()) {
            self.close(now, out);
        }
        while let Some((batcher, numbers)) = self.chosen_batches.pop_first() {
            let message = batcher::In::BatchesChosen {
                from: self.id,
                numbers,
            };
            let batcher = Set::one(batcher).and(self.config.all(kind::Batcher));
            out.send(Envelope::ToBatchers(batcher, message));
        }
    }

    fn invariants(&self) {
        let bytes: usize = self
            .in_flight
            .values()
            .map(|payload| payload.batch.byte_len())
            .sum();
        assert_eq!(
            bytes, self.in_flight_bytes,
            "a disseminator lost count of its bytes"
        );
        let of_round = |payload: &InFlight| payload.round == self.round;
        assert!(
            self.executed.is_none() || self.in_flight.values().all(of_round),
            "a payload of an earlier round is in flight"
        );
        let waits = self.in_flight.is_empty() || self.executed.is_none();
        assert!(
            waits || self.check_at.is_some(),
            "no timer watches the payloads in flight"
        );
    }

    const METRICS: Metrics = &[metrics::DISSEMINATOR];

    fn status(&self, status: &mut Status) {
        status.add([
            self.payloads,
            self.in_flight.len() as u64,
            self.in_flight_bytes as u64,
            self.again,
            self.helping.helped(),
            self.suspicion.reported() as u64,
            self.dropped,
        ]);
    }
}
