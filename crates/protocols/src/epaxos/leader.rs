//! The leader: proposes its clients' commands in instances of its own space, and recovers instances
//! that other leaders left unfinished.
//!
//! Stands between client and acceptor. It asks the acceptor on its node first, whose answer (the
//! *past*) goes to the rest of the fast quorum. If every dependency was named by f members, its
//! acceptor decides (fast path); otherwise f + 1 acceptors vote (slow path). Atlas (EuroSys 2020),
//! algorithm 1.
//!
//! Where the roles are apart, it asks a majority of dependency nodes, and hands the union of what
//! they answer to a proxy leader, which runs phase 2. Recoveries are its own.

mod barriers;
mod flights;
mod peers;
mod proposing;
mod recovering;
mod unexecuted;
mod waiting;

use self::barriers::Barriers;
use self::flights::Flights;
use self::peers::Peers;
use self::recovering::Recoveries;
use self::unexecuted::Unexecuted;
use self::waiting::Waiting;
use super::committing;
use super::config::Config;
use super::duty::Duty;
use super::instance::{Ballot, Deps, InstanceId, Space, next_life};
use super::message::{self, Evidence, Life, Lives, Replier, Run};
use super::{Envelope, acceptor, kind, metrics, replica};
use crate::parts::leader::clock::LogClock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp, earliest};
use ionian_kernel::{messages, wire_enum};
use ionian_replication::batch::Batch;
use ionian_replication::executor::Executor;
use ionian_replication::suspicion::{Choice, PRESENT_FOR, Presence};

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// A client's command.
        0 for "propose" of batch => Propose {
            /// The replicas that are to answer, if possible.
            near: Set<ReplicaId>,
            /// The command.
            batch: Batch,
        },
        /// An acceptor has recorded a command.
        1 for "preaccepted" of id => PreAccepted {
            /// The acceptor.
            from: AcceptorId,
            /// Its life, and those of others that it knew of when it recorded the command.
            lives: Lives,
            /// The instance.
            id: InstanceId,
            /// What it had recorded that conflicts, and the past.
            deps: Deps,
        },
        /// The acceptor of this node has decided.
        2 for "chosen" of id => Decided {
            /// The instance.
            id: InstanceId,
        },
        /// An acceptor has voted.
        3 for "chosen" of id => Accepted {
            /// The acceptor.
            from: AcceptorId,
            /// The instance.
            id: InstanceId,
            /// The ballot of the vote.
            ballot: Ballot,
        },
        /// An acceptor has promised a higher ballot than it was asked in.
        4 => Refused {
            /// The acceptor.
            from: AcceptorId,
            /// The instance.
            id: InstanceId,
            /// The ballot that it has promised.
            promised: Ballot,
        },
        /// An acceptor promises the ballot of a recovery.
        5 => Prepared {
            /// The acceptor.
            from: AcceptorId,
            /// Its life, and those of others that it knows of.
            lives: Lives,
            /// The instance.
            id: InstanceId,
            /// The ballot.
            ballot: Ballot,
            /// In which life of this leader it was asked.
            asked_in: u32,
            /// What it knows of the instance.
            evidence: Box<Evidence>,
        },
        /// An instance of this leader is decided.
        6 => Learned {
            /// The instance.
            id: InstanceId,
            /// Whether it is a noop.
            noop: bool,
        },
        /// A leader is alive.
        7 => Heartbeat {
            /// The leader.
            from: LeaderId,
            /// Which of its lives.
            life: u32,
            /// The time of its node.
            clock: Timestamp,
        },
        /// A replica waits for these, and no acceptor has them as decided.
        8 => Recover {
            /// The instances.
            ids: Vec<InstanceId>,
        },
        /// What a replica has executed: one of this node, if there is one.
        9 => Executed {
            /// The replica.
            from: ReplicaId,
            /// The time of its state machine.
            time: Timestamp,
            /// When the state machine next changes by the passing of time.
            deadline: Option<Timestamp>,
            /// How many instances it has executed since the last barrier, large ones counted as
            /// several.
            since_barrier: u64,
        },
        /// Replicas have an instance in snapshots, and no acceptor knows it any more.
        10 => Kept {
            /// The instance.
            id: InstanceId,
        },
        /// An acceptor that has lost its memory asks which instances are new to it.
        11 => Begin {
            /// The acceptor.
            from: AcceptorId,
            /// What it does.
            duty: Duty,
            /// Its life.
            life: u32,
        },
        /// The acceptor of this node had lost its memory, and takes part again.
        12 => Returned {},
        /// A proxy leader has got an instance decided, as it was proposed.
        13 for "chosen" of id => Chosen {
            /// The proxy leader.
            from: ProxyLeaderId,
            /// The instance.
            id: InstanceId,
        },
        /// What a replica has executed of the space of this leader.
        14 since 18 => Progress {
            /// The first of its runs, in order.
            executed: Vec<Run>,
        },
    }
}

/// What a leader must find again.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// It began this life.
    Life {
        /// Which: the first is 1.
        life: u32,
    },
}

wire_enum! { Record { 0 => Life { life } } }

/// A leader.
pub struct Leader {
    id: LeaderId,
    config: Arc<Config>,
    random: Random,
    /// Which life this process is: it names the space, and grows with each start.
    life: u32,
    /// Whether its acceptor has lost its memory, and answers nothing yet: clients turn to others.
    amnesiac: bool,
    /// How many leaders with its number were lost with their disks.
    predecessors: u32,
    /// The lives of acceptors. Answers of earlier ones count no more: see
    /// `acceptor/returning.rs`.
    lives: Lives,
    /// Those of dependency nodes.
    recorder_lives: Lives,
    /// The proxy leaders that it gives work to.
    proxies: Choice<ProxyLeaderId>,
    /// The replicas that can answer clients. Those of other nodes send reports where none is on
    /// this.
    repliers: Presence<ReplicaId>,
    /// The replicas near this leader, those that record commands, and the acceptors.
    near: Set<ReplicaId>,
    near_recorders: AcceptorSet,
    near_acceptors: AcceptorSet,
    /// Counts commands, so that the replica that answers is not always the same.
    reply_turn: u64,
    /// Computes what commands touch; it executes nothing.
    machine: Executor,
    clock: LogClock,
    peers: Peers,
    waiting: Waiting,
    flights: Flights,
    unexecuted: Unexecuted,
    recoveries: Recoveries,
    barriers: Barriers,
    heartbeat_at: Instant,
    stale: u64,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = LeaderId(birth.address.index);
        let machine = Executor::of(birth, config.layout());
        Leader {
            id,
            life: 0,
            amnesiac: birth.amnesiac && !config.is_apart(),
            predecessors: birth.predecessors,
            lives: Lives::default(),
            recorder_lives: Lives::default(),
            proxies: Choice::new(
                config.layout().all(kind::ProxyLeader),
                config.layout().near(kind::ProxyLeader, birth.node),
                random.any(),
            ),
            repliers: Presence::new(config.replicas(), PRESENT_FOR),
            near: config.layout().near(kind::Replica, birth.node),
            near_recorders: config.layout().near(config.recorder_kind(), birth.node),
            near_acceptors: config.layout().near(kind::Acceptor, birth.node),
            reply_turn: random.any() >> 1,
            clock: LogClock::new(birth.node, config.f()),
            peers: Peers::new(id, &config),
            waiting: Waiting::default(),
            flights: Flights::new(id, random.any()),
            unexecuted: Unexecuted::new(birth.seed),
            recoveries: Recoveries::default(),
            barriers: Barriers::default(),
            heartbeat_at: Instant::ZERO,
            stale: 0,
            machine,
            random,
            config,
        }
    }

    /// The space of this life.
    pub fn space(&self) -> Space {
        Space {
            leader: self.id,
            life: self.life,
        }
    }

    /// The acceptor of its node, if it is paired with one.
    fn acceptor(&self) -> Option<AcceptorId> {
        self.config.acceptor_of(self.id)
    }

    fn own(&self) -> AcceptorSet {
        self.acceptor().into_iter().collect()
    }

    /// Passes on what an instance is decided to be, without the payload to those in `holders`.
    fn commit(
        &self,
        id: InstanceId,
        choice: &message::Choice,
        holders: AcceptorSet,
        replier: Replier,
        out: &mut Out<'_, Self>,
    ) {
        let messages = committing::commit(&self.config, id, choice, holders, replier);
        messages.for_each(|message| out.send(message));
    }

    fn heartbeat(&mut self, now: Instant, to: Set<LeaderId>, out: &mut Out<'_, Self>) {
        let message = In::Heartbeat {
            from: self.id,
            life: self.life,
            clock: now.timestamp(),
        };
        out.send(Envelope::ToLeaders(to, message));
    }

    /// Tells all leaders that it is alive, and all replicas how far its space reaches. Others leave
    /// alone what a leader that sends heartbeats has begun, so one that is cut off sends none.
    fn heartbeat_all(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.heartbeat_at = now + self.config.options().heartbeat;
        if self.is_cut_off(now) {
            return;
        }
        self.heartbeat(now, self.config.leaders().without(Set::one(self.id)), out);
        let message = replica::In::Heartbeat {
            space: self.space(),
            below: self.flights.next_number(),
            time: self.clock.read(now),
        };
        out.send(Envelope::ToReplicas(self.config.replicas(), message));
    }

    fn on_heartbeat(
        &mut self,
        now: Instant,
        from: LeaderId,
        life: u32,
        clock: Timestamp,
        out: &mut Out<'_, Self>,
    ) {
        let Some(node) = self.node_of(from) else {
            return;
        };
        self.clock.hear(now, node, clock);
        if self.node_of(self.id) != Some(node) {
            self.peers.received();
        }
        if self.peers.heard(now, from, life) {
            // It has just started, and may propose nothing before it knows other clocks.
            self.heartbeat(now, Set::one(from), out);
        }
        self.pump(now, out);
    }

    /// Whether nothing comes from other nodes, though they are asked about an instance that is
    /// undecided. They are asked again at each `resend_after`, so the first answer ends it: without
    /// that instance two leaders that were cut off from each other would both stay silent.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        !self.flights.is_empty() && self.peers.is_cut_off(now)
    }

    /// An acceptor has answered.
    fn has_answered(&mut self, from: AcceptorId) {
        if !self.near_acceptors.contains(from) {
            self.peers.received();
        }
    }

    fn node_of(&self, leader: LeaderId) -> Option<NodeId> {
        let places = self.config.layout().places(kind::Leader);
        places.node_of(leader.index())
    }

    /// Takes in which lives those are in that do this. What earlier ones answered is forgotten;
    /// says whether an answer of `from` in this life counts.
    fn learn_lives(&mut self, duty: Duty, from: AcceptorId, lives: &Lives) -> bool {
        let known = match duty {
            Duty::Records {} => &mut self.recorder_lives,
            Duty::All {} | Duty::Votes {} => &mut self.lives,
        };
        let all = match duty.records() {
            true => self.config.recorders(),
            false => self.config.acceptors(),
        };
        for life in lives.iter().filter(|life| all.contains(life.acceptor)) {
            if known.learn(life) {
                if duty.records() {
                    self.flights.forget_answers(life.acceptor);
                }
                if duty.votes() {
                    self.recoveries.forget_answers(life.acceptor);
                }
            }
        }
        lives.of(from) == known.of(from)
    }

    /// An acceptor that has lost its memory asks which instances it cannot have known.
    fn on_begin(
        &mut self,
        (acceptor, duty): (AcceptorId, Duty),
        life: u32,
        out: &mut Out<'_, Self>,
    ) {
        if duty != self.config.recording() && duty != self.config.voting() {
            self.stale += 1;
            return;
        }
        // It may have found on disk that it had begun to copy.
        self.amnesiac |= self.acceptor() == Some(acceptor);
        let mut lives = Lives::default();
        lives.learn(Life { acceptor, life });
        self.learn_lives(duty, acceptor, &lives);
        let message = acceptor::In::Boundary {
            life,
            space: self.space(),
            below: self.flights.next_number(),
        };
        out.send(duty.envelope(Set::one(acceptor), message));
    }

    fn on_refused(&mut self, id: InstanceId, promised: Ballot) {
        self.flights.refused(id);
        self.recoveries.refused(id, promised);
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        let Record::Life { life } = record;
        self.life = self.life.max(life);
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(Record::Life { life: self.life });
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        // Never an instance of an earlier life again: what it was proposed with is forgotten.
        let is_lost = self.life == 0 && self.predecessors > 0;
        self.amnesiac |= is_lost && !self.config.is_apart();
        self.life = next_life(self.life, self.predecessors);
        out.persist_vital(Record::Life { life: self.life });
        self.flights.begin(self.space());
        self.peers.start(now);
        self.repliers.start(now);
        self.barriers.start(now, &mut self.random);
        self.heartbeat_all(now, out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Propose { near, batch } => self.on_propose(now, near, batch, out),
            In::PreAccepted {
                from,
                lives,
                id,
                deps,
            } => match self.learn_lives(self.config.recording(), from, &lives) {
                true => self.on_pre_accepted(now, from, id, deps, out),
                false => self.stale += 1,
            },
            In::Decided { id } => self.on_decided(now, id, out),
            In::Accepted { from, id, ballot } => {
                self.has_answered(from);
                self.on_accepted(now, from, id, ballot, out);
            }
            In::Refused { from, id, promised } => {
                self.has_answered(from);
                self.on_refused(id, promised);
            }
            In::Prepared {
                from,
                lives,
                id,
                ballot,
                asked_in,
                evidence,
            } => {
                self.has_answered(from);
                let learned = self.learn_lives(self.config.voting(), from, &lives);
                match learned && asked_in == self.life {
                    true => self.on_prepared(now, from, (id, ballot), *evidence, out),
                    // An answer to an earlier process. A ballot is the same again if that one had
                    // used it, and what was answered then may have changed.
                    false => self.stale += 1,
                }
            }
            In::Learned { id, noop } => self.on_learned(now, id, noop, out),
            In::Heartbeat { from, life, clock } => self.on_heartbeat(now, from, life, clock, out),
            In::Recover { ids } => self.on_recover(now, &ids, out),
            In::Executed {
                from,
                time,
                deadline,
                since_barrier,
            } => {
                self.repliers.heard(from, now);
                self.on_executed(now, time, deadline, since_barrier, out);
            }
            In::Kept { id } => self.on_kept(now, id, out),
            In::Begin { from, duty, life } => self.on_begin((from, duty), life, out),
            In::Returned {} => {
                self.amnesiac = false;
                self.pump(now, out);
            }
            In::Chosen { from, id } => {
                self.proxies.heard(from);
                self.on_learned(now, id, false, out);
            }
            In::Progress { executed } => self.on_progress(now, &executed, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.heartbeat_at <= now {
            self.heartbeat_all(now, out);
        }
        self.send_overdue(now, out);
        self.recover_overdue(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let work = earliest(self.flights.next_timer(), self.recoveries.next_timer());
        earliest(Some(self.heartbeat_at), work)
    }

    fn is_drained(&self) -> bool {
        self.flights.is_empty() && self.waiting.len() == 0
    }

    fn invariants(&self) {
        self.flights.invariants();
        self.unexecuted.invariants();
        self.waiting.invariants();
    }

    const METRICS: Metrics = &[metrics::LEADER];

    fn status(&self, status: &mut Status) {
        status.add([
            self.flights.len() as u64,
            self.flights.bytes() as u64,
            self.unexecuted.len() as u64,
            self.waiting.len() as u64,
            self.flights.next_number(),
            self.life.into(),
            self.flights.fast,
            self.flights.slow,
            self.flights.again,
            self.recoveries.len() as u64,
            self.recoveries.begun,
            self.waiting.dropped,
            self.waiting.repeated,
            self.stale,
            self.clock.correction_ms().unsigned_abs(),
        ]);
    }
}
