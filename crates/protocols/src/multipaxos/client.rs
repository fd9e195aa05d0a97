//! The client lane: carries the commands of one application (a gateway with its many connections, a
//! library's handle) into the cluster.
//!
//! Stands at both ends of the chart. Writes go to a batcher, or to the leader where the deployment
//! has no batchers; linearizable reads to a read batcher, or to acceptors and then a replica;
//! sequential and eventual reads to a replica at once. Whatever is not answered is asked again
//! elsewhere, under the same id, until the lane's patience ends.

use super::config::Config;
use super::message::{Proposer, ReaderId};
use super::metrics;
use super::quorum_reader::{Found, QuorumReader};
use super::{Envelope, batcher, kind, leader, read_batcher, replica};
use crate::pigpaxos::message::Watermarks;
use alloc::boxed::Box;
use alloc::sync::Arc;
use ionian_kernel::client::{ReadLevel, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, Batch, BatchBuilder, Command};
use ionian_replication::lane::{Due, DueWrite, Lane};
use ionian_replication::suspicion::Choice;

messages! {
    /// The messages that a client lane receives.
    "client" In {
        /// The application wants this done.
        0 => Submit {
            /// The command.
            request: Request,
        },
        /// A replica's answers, perhaps by way of an unbatcher.
        1 for "answers" of answers => Answers {
            /// The answers to this lane.
            answers: Answers,
        },
        /// An acceptor's vote watermark.
        2 for "inquired" of inquiry => PreReadAck {
            /// The acceptor.
            from: AcceptorId,
            /// The inquiry that it answers.
            inquiry: u64,
            /// The slot after the highest it has voted in.
            watermark: Slot,
            /// The epoch of the highest round that it has promised.
            epoch: Epoch,
        },
        /// A leader has finished phase 1.
        3 => NewLeader {
            /// Its round.
            round: Round,
        },
        /// The command came to a leader that does not lead.
        4 => NotLeader {
            /// The highest round that it knows of.
            round: Round,
        },
        /// The watermarks of several acceptors.
        5 for "inquired" of watermarks => Watermarks {
            /// The highest of them, and whose they are.
            watermarks: Box<Watermarks>,
        },
        /// What it sent to a batcher was passed on (Scalog): at present others take commands in.
        6 => PassedOn {
            /// These.
            to: Set<BatcherId>,
        },
    }
}

/// How long a lane leaves out batchers that pass commands on, before it tries them again.
const LEFT_OUT_FOR: Duration = Duration::from_secs(1);

/// A command of at least this many bytes is large.
const LARGE_BYTES: usize = 32 << 10;

/// How often a large command is first sent to the leader of the round before others are tried.
const LARGE_STRAYS_AFTER: u64 = 3;

/// A client lane.
pub struct ClientLane {
    id: ClientId,
    node: NodeId,
    config: Arc<Config>,
    lane: Lane,
    due: Due,
    /// The highest round known; its owner is asked.
    round: Round,
    /// Turns to the next leader when the one of the round leaves everything unanswered.
    stray: u64,
    batchers: Choice<BatcherId>,
    /// The batchers that take commands in, as one of the others has said, and until when it leaves
    /// out these. Who is suspected stays so meanwhile.
    taking: Option<(Set<BatcherId>, Instant)>,
    read_batchers: Choice<ReadBatcherId>,
    replicas: Choice<ReplicaId>,
    reader: QuorumReader,
    /// Writes of this burst, for a batcher.
    writes: BatchBuilder,
    writes_via: Option<(BatcherId, Set<BatcherId>)>,
    /// Linearizable reads of this burst, for a read batcher.
    reads: BatchBuilder,
    reads_via: Option<(ReadBatcherId, Set<ReadBatcherId>)>,
}

impl ClientLane {
    /// The lane of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ClientId(birth.address.index);
        let mut lane = Lane::new(id, config.options(), Random::new(random.any()));
        lane.goes_round(askable(&config));
        ClientLane {
            id,
            node: birth.node,
            lane,
            due: Due::default(),
            round: Round(0),
            stray: 0,
            batchers: Choice::new(
                config.all(kind::Batcher),
                config.near(kind::Batcher, birth.node),
                random.any(),
            ),
            taking: None,
            read_batchers: Choice::new(
                config.all(kind::ReadBatcher),
                config.near(kind::ReadBatcher, birth.node),
                random.any(),
            ),
            replicas: Choice::new(
                config.serving(),
                config.near(kind::Replica, birth.node),
                random.any(),
            ),
            reader: QuorumReader::new(
                config.clone(),
                ReaderId::Client { id },
                birth.node,
                &mut random,
            ),
            writes: BatchBuilder::default(),
            writes_via: None,
            reads: BatchBuilder::default(),
            reads_via: None,
            config,
        }
    }

    /// The same lane, whose reads go through the log. For state of which no replica has all between
    /// two slots of this log (P-SMR).
    pub(crate) fn logging_reads(mut self) -> Self {
        self.lane.logs_reads();
        self
    }

    /// Carries out what the lane wants done.
    fn carry_out(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut due = core::mem::take(&mut self.due);
        for reply in due.replies.drain(..) {
            out.send(Envelope::ToApplication(self.id, reply));
        }
        // An empty drain is not free, and nearly always one of the three is filled.
        if !due.writes.is_empty() {
            for write in due.writes.drain(..) {
                self.write(now, write, out);
            }
        }
        if !due.reads.is_empty() {
            for (level, command, via) in due.reads.drain(..) {
                self.read(now, level, command, via, out);
            }
        }
        self.due = due;
    }

    /// Small ones find out who leads: a large one would go to each that does not, and then to the
    /// right one again.
    fn leader_for(&self, command: &Command) -> LeaderId {
        let large = command.payload.len() >= LARGE_BYTES;
        self.config.leader(
            self.round,
            if large {
                self.stray.saturating_sub(LARGE_STRAYS_AFTER)
            } else {
                self.stray
            },
        )
    }

    /// Whether the leader that is asked now has left a write unanswered, and not only those before
    /// it.
    fn is_leader_silent(&self) -> bool {
        let blames = |write: &DueWrite| match write.via {
            Some(via) => via == self.leader_for(&write.command).index(),
            None => write.again,
        };
        self.due.writes.iter().any(blames)
    }

    fn write(&mut self, now: Instant, write: DueWrite, out: &mut Out<'_, Self>) {
        let DueWrite {
            command,
            via,
            again,
        } = write;
        if self.batchers.is_empty() {
            let (proposer, near) = (Proposer::Client { id: self.id }, self.replicas.preferred());
            let large = command.payload.len() >= LARGE_BYTES;
            // Of a large one all copies are the same bytes: one that waits for its way need not
            // wait twice.
            let (batch, again) = (Batch::one(&command), again || large);
            let leader = self.leader_for(&command);
            self.lane
                .sent_via(command.purpose, command.number, leader.index());
            let message = leader::In::Propose {
                proposer,
                near,
                batch,
                again,
            };
            return out.send(Envelope::ToLeaders(Set::one(leader), message));
        }
        let silent = via.map(BatcherId);
        let is_silent = |taking: Set<BatcherId>| silent.is_some_and(|it| taking.contains(it));
        self.taking = (self.taking).filter(|(taking, until)| now < *until && !is_silent(*taking));
        if let Some(silent) = via {
            self.batchers.silent(BatcherId(silent), now);
            self.writes_via = self
                .writes_via
                .filter(|(batcher, _)| batcher.index() != silent);
        }
        if self.writes_via.is_none() {
            self.flush_writes(out);
            self.writes_via = match self.taking {
                Some((taking, _)) => self.batchers.next_among(taking, now),
                None => self.batchers.next(now),
            };
        }
        let (batcher, _) = self.writes_via.expect("there are batchers");
        self.lane
            .sent_via(command.purpose, command.number, batcher.index());
        self.writes.push(&command);
        if self.writes.byte_len() >= self.config.options().batch_bytes {
            self.flush_writes(out);
        }
    }

    /// Leaves out batchers that pass on what they get, if there are others, until one of the others
    /// is silent, but not for long.
    fn leave_out(&mut self, now: Instant, to: Set<BatcherId>) {
        if self.config.all::<BatcherId>(kind::Batcher).meets(to) {
            self.taking = Some((to, now + LEFT_OUT_FOR));
        }
    }

    fn read(
        &mut self,
        now: Instant,
        level: ReadLevel,
        command: Command,
        via: Option<Index>,
        out: &mut Out<'_, Self>,
    ) {
        let executed = match level {
            ReadLevel::Linearizable if self.read_batchers.is_empty() => {
                // None while acceptors have left it unanswered.
                if let Some(silent) = via {
                    self.replicas.silent(ReplicaId(silent), now);
                }
                return self.reader.add_one(now, &command);
            }
            ReadLevel::Linearizable => return self.read_by_batcher(now, command, via, out),
            ReadLevel::Sequential => self.lane.seen(),
            ReadLevel::Eventual => Slot::ZERO,
        };
        if let Some(silent) = via {
            self.replicas.silent(ReplicaId(silent), now);
        }
        self.send_to_replica(now, Batch::one(&command), executed, out);
    }

    fn read_by_batcher(
        &mut self,
        now: Instant,
        command: Command,
        via: Option<Index>,
        out: &mut Out<'_, Self>,
    ) {
        if let Some(silent) = via {
            self.read_batchers.silent(ReadBatcherId(silent), now);
            self.reads_via = self
                .reads_via
                .filter(|(batcher, _)| batcher.index() != silent);
        }
        if self.reads_via.is_none() {
            self.flush_reads(out);
            self.reads_via = self.read_batchers.next(now);
        }
        let (batcher, _) = self.reads_via.expect("there are read batchers");
        self.lane
            .sent_via(command.purpose, command.number, batcher.index());
        self.reads.push(&command);
    }

    fn send_to_replica(
        &mut self,
        now: Instant,
        reads: Batch,
        executed: Slot,
        out: &mut Out<'_, Self>,
    ) {
        let Some((replica, replicas)) = self.replicas.next(now) else {
            return;
        };
        for read in reads.commands() {
            self.lane
                .sent_via(read.purpose, read.number, replica.index());
        }
        out.send(Envelope::ToReplicas(
            replicas,
            replica::In::Read { reads, executed },
        ));
    }

    /// An inquiry has ended: the reads go to the nearest replica, or to one that need not wait, if
    /// the nearest must.
    fn read_from(&mut self, now: Instant, found: Found, out: &mut Out<'_, Self>) {
        let Found {
            reads,
            watermark,
            ready,
        } = found;
        let ready = match ready.meets(self.replicas.preferred()) {
            true => Set::EMPTY,
            false => self.replicas.trusted(ready),
        };
        let Some(replica) = ready.pick(watermark.0) else {
            return self.send_to_replica(now, reads, watermark, out);
        };
        for read in reads.commands() {
            self.lane
                .sent_via(read.purpose, read.number, replica.index());
        }
        let message = replica::In::Read {
            reads,
            executed: watermark,
        };
        out.send(Envelope::ToReplicas(Set::one(replica), message));
    }

    fn flush_writes(&mut self, out: &mut Out<'_, Self>) {
        if let Some((_, batchers)) = self.writes_via
            && !self.writes.is_empty()
        {
            let message = batcher::In::Commands {
                commands: self.writes.take(),
            };
            out.send(Envelope::ToBatchers(batchers, message));
        }
    }

    fn flush_reads(&mut self, out: &mut Out<'_, Self>) {
        if let Some((_, batchers)) = self.reads_via
            && !self.reads.is_empty()
        {
            let message = read_batcher::In::Reads {
                reads: self.reads.take(),
            };
            out.send(Envelope::ToReadBatchers(batchers, message));
        }
    }

    /// Turns to the leader of `round`, which may have none of what is in flight.
    fn follow(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        (self.round, self.stray) = (round, 0);
        // Where there are batchers it is they who propose again. A lane that has no session yet
        // asks all the same: it must have one before it can serve a client.
        if self.batchers.is_empty() || !self.lane.is_open() {
            self.lane.resend_writes(now, &mut self.due);
            self.carry_out(now, out);
        }
    }

    /// The guessed leader does not lead: returns to the leader of the round again, which has none
    /// of what went astray.
    fn come_back(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.stray > LARGE_STRAYS_AFTER {
            return self.follow(now, self.round, out);
        }
        self.stray = 0;
        if self.batchers.is_empty() || !self.lane.is_open() {
            // Large ones did not.
            self.lane
                .resend_small_writes(now, LARGE_BYTES, &mut self.due);
            self.carry_out(now, out);
        }
    }
}

/// Among how many instances it goes round with what is not answered.
fn askable(config: &Config) -> usize {
    match config.all::<BatcherId>(kind::Batcher).len() {
        0 => config.all::<LeaderId>(kind::Leader).len(),
        batchers => batchers,
    }
}

impl Role for ClientLane {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.start(now, &mut self.due);
        self.carry_out(now, out);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        let (node, options) = (self.node, config.options());
        self.lane.reconfigure(now, options);
        self.lane.goes_round(askable(&config));
        self.batchers
            .reconfigure(config.all(kind::Batcher), config.near(kind::Batcher, node));
        self.read_batchers.reconfigure(
            config.all(kind::ReadBatcher),
            config.near(kind::ReadBatcher, node),
        );
        self.replicas
            .reconfigure(config.serving(), config.near(kind::Replica, node));
        self.reader.reconfigure(now, config.clone());
        (self.config, self.taking) = (config, None);
    }

    fn on_retire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.give_up_all(&mut self.due);
        self.carry_out(now, out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Submit { request } => {
                self.lane.submit(now, request, &mut self.due);
                self.carry_out(now, out);
            }
            In::Answers { answers } => {
                self.replicas.heard(ReplicaId(answers.from));
                let via = self.lane.on_answers(now, &answers, &mut self.due);
                Set::from_members(via.writes)
                    .iter()
                    .for_each(|batcher| self.batchers.heard(batcher));
                Set::from_members(via.reads)
                    .iter()
                    .for_each(|batcher| self.read_batchers.heard(batcher));
                self.carry_out(now, out);
            }
            In::PreReadAck {
                from,
                inquiry,
                watermark,
                epoch,
            } => {
                let told = (watermark, epoch);
                if let Some(found) = self.reader.on_ack(from, inquiry, told) {
                    self.read_from(now, found, out);
                }
            }
            In::Watermarks { watermarks } => {
                if let Some(found) = self.reader.on_watermarks(now, &watermarks) {
                    self.read_from(now, found, out);
                }
            }
            In::NewLeader { round } if round >= self.round => self.follow(now, round, out),
            In::NotLeader { round } if round > self.round => self.follow(now, round, out),
            // The stray was wrong. (Not when there was none: then the leader of the round itself
            // does not lead, and none better is known.)
            In::NotLeader { round } if round == self.round && self.stray > 0 => {
                self.come_back(now, out)
            }
            In::NewLeader { .. } | In::NotLeader { .. } => {}
            In::PassedOn { to } => self.leave_out(now, to),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.on_timer(now, &mut self.due);
        if core::mem::take(&mut self.due.writes_overdue) && self.is_leader_silent() {
            self.stray += 1;
        }
        self.carry_out(now, out);
        for ask in self.reader.overdue(now) {
            self.reader.ask(now, ask, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(self.lane.next_timer(), self.reader.next_timer())
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.flush_writes(out);
        self.flush_reads(out);
        // The next burst may choose others.
        (self.writes_via, self.reads_via) = (None, None);
        while let Some(ask) = self.reader.begin(now) {
            self.reader.ask(now, ask, out);
        }
    }

    fn invariants(&self) {
        self.lane.invariants();
        self.reader.invariants();
    }

    const METRICS: Metrics = &[metrics::CLIENT];

    fn status(&self, status: &mut Status) {
        self.lane.report(status);
        status.add([
            self.lane.in_flight() as u64,
            self.lane.seen().0,
            self.reader.under_way() as u64,
            self.reader.dropped(),
        ]);
    }
}
