//! The replica: executes decided instances after what they depend on, answers for those that it was
//! named for, and answers reads.
//!
//! Stands between acceptor and client. It learns decisions from the acceptor of its node; what it
//! misses it fetches from acceptors, and asks leaders to recover what none of them has as decided.

mod backup;
mod executing;
mod missing;
mod progress;
mod reads;
mod snapshots;

use self::backup::Backup;
use self::executing::Pending;
use self::missing::Missing;
use self::progress::Progress;
use self::reads::Reads;
use self::snapshots::Snapshots;
pub(super) use self::snapshots::state_in;
use super::config::Config;
use super::executed::ExecutedSet;
use super::graph::Graph;
use super::instance::{Deps, InstanceId, Space};
use super::message::{Choice, Instance, Reach, Replier, Run, Sees};
use super::{Envelope, client, kind, leader, metrics};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::{AnswersByClient, Batch};
use ionian_replication::executor::Executor;
use ionian_replication::suspicion::{ALIVE_EVERY, PRESENT_FOR, Presence};

messages! {
    /// The messages that a replica receives.
    "replica" In {
        /// An instance is decided.
        0 for "execute" of id choice => Committed {
            /// The instance.
            id: InstanceId,
            /// What it is decided to be.
            choice: Choice,
            /// The replica that answers the clients.
            replier: Replier,
        },
        /// A leader is alive.
        1 => Heartbeat {
            /// Its space.
            space: Space,
            /// It has proposed the instances below this number.
            below: u64,
            /// What it would stamp now.
            time: Timestamp,
        },
        /// Reads of a client.
        2 for "read" of reads => Read {
            /// What they must see.
            sees: Sees,
            /// The reads.
            reads: Batch,
        },
        /// What an acceptor has recorded that reads conflict with.
        3 for "inquired" of inquiry => PreReadAck {
            /// The acceptor.
            from: AcceptorId,
            /// The question that it answers.
            inquiry: u64,
            /// What conflicts.
            deps: Deps,
        },
        /// Decided instances that an acceptor has of those asked for.
        4 => Fetched {
            /// The acceptor.
            from: AcceptorId,
            /// The instances.
            instances: Vec<Instance>,
            /// The runs of which it has forgotten some: replicas have them in snapshots.
            forgotten: Vec<Run>,
            /// How far it knows each space to reach.
            reaches: Vec<Reach>,
        },
        /// A peer wants a piece of a snapshot.
        5 => FetchSnapshot {
            /// The peer.
            from: ReplicaId,
            /// Which snapshot; none for any.
            snapshot: Option<u64>,
            /// But not this one, which was of no use.
            unlike: Option<u64>,
            /// Where the piece begins.
            offset: u64,
        },
        /// A piece of a peer's snapshot.
        6 => SnapshotChunk {
            /// The peer.
            from: ReplicaId,
            /// Which snapshot.
            snapshot: u64,
            /// Where the piece begins.
            offset: u64,
            /// Whether the snapshot ends with the piece.
            last: bool,
            /// The piece.
            bytes: Bytes,
        },
    }
}

/// Answers leave at the latest after this number of instances.
const ANSWER_INSTANCES: u64 = 64;

/// How often a replica asks for the time when its machine waits for it.
const ASK_CLOCK_EVERY: Duration = Duration::from_millis(50);

/// A replica.
pub struct Replica {
    id: ReplicaId,
    config: Arc<Config>,
    random: Random,
    /// Names this process: what an earlier one had executed this one may not have.
    life: u64,
    executor: Executor,
    /// What came before the first instance of this cluster, as a count.
    founded: u64,
    /// Which decided instances wait for which, and what is executed.
    graph: Graph<()>,
    /// Components on their way to be executed. Reused.
    ready: Vec<(InstanceId, ())>,
    /// Decided instances that are not executed.
    pending: BTreeMap<InstanceId, Pending>,
    pending_bytes: usize,
    since_barrier: u64,
    progress: Progress,
    missing: Missing,
    reads: Reads,
    snapshots: Snapshots,
    backup: Option<Backup>,
    answers: AnswersByClient,
    /// The leaders of the instances that these answers are of.
    answered: Set<LeaderId>,
    /// Answers leave when this number of instances is executed.
    flush_at: u64,
    /// Those of its node, and all if there is none.
    leaders: Set<LeaderId>,
    near_leaders: Set<LeaderId>,
    /// Those that can propose reads.
    proposers: Presence<LeaderId>,
    report_at: Instant,
    ask_clock_at: Instant,
    /// The time of the commands as a leader told it last, and when.
    told_time: Option<(Instant, Timestamp)>,
    learned: u64,
    stale: u64,
}

impl Replica {
    /// The replica of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ReplicaId(birth.address.index);
        let near = config.layout().near(kind::Leader, birth.node);
        let acceptors = config.layout().near(config.recorder_kind(), birth.node);
        Replica {
            id,
            life: random.any(),
            executor: Executor::of(birth, config.layout()),
            founded: 0,
            graph: Graph::new(ExecutedSet::default()),
            ready: Vec::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            since_barrier: 0,
            progress: Progress::default(),
            missing: Missing::new(acceptors, random.any()),
            reads: Reads::new(acceptors, &mut random),
            snapshots: Snapshots::new(birth, random.any()),
            backup: None,
            answers: AnswersByClient::default(),
            answered: Set::EMPTY,
            flush_at: ANSWER_INSTANCES,
            leaders: config.leaders().preferring(near),
            near_leaders: near,
            proposers: Presence::new(config.leaders(), PRESENT_FOR),
            report_at: Instant::ZERO,
            ask_clock_at: Instant::ZERO,
            told_time: None,
            learned: 0,
            stale: 0,
            random,
            config,
        }
    }

    /// The decided instances that it has not executed, for invariants.
    pub fn pending(&self) -> impl Iterator<Item = (InstanceId, &Choice)> {
        self.pending
            .iter()
            .map(|(id, pending)| (*id, &pending.choice))
    }

    /// What it has executed.
    pub fn executed(&self) -> &ExecutedSet {
        self.graph.executed()
    }

    /// How many decisions it has learned.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// How many instances it has executed, those of the snapshot that the cluster began with
    /// included.
    fn count(&self) -> u64 {
        self.founded + self.executed().count()
    }

    /// Sends the answers to their clients.
    fn flush_answers(&mut self, out: &mut Out<'_, Self>) {
        self.flush_at = self.executed().count() + ANSWER_INSTANCES;
        if self.answers.is_empty() {
            return;
        }
        let life = self.life;
        let leaders = core::mem::take(&mut self.answered);
        for (client, answers) in self.answers.drain(self.id.0, Slot::ZERO) {
            let message = client::In::Answers {
                answers,
                life,
                leaders,
            };
            out.send(Envelope::ToClients(Set::one(client), message));
        }
    }

    /// Has a leader propose a batch, one of `near` if any of them is there; this replica is to
    /// answer.
    fn propose(
        &self,
        now: Instant,
        (near, turn): (Set<LeaderId>, u64),
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        if let Some(leader) = self.proposers.pick(near, now, turn) {
            let near = Set::one(self.id);
            let message = leader::In::Propose { near, batch };
            out.send(Envelope::ToLeaders(Set::one(leader), message));
        }
    }

    /// When the state machine next wants to be given the time.
    fn clock_timer(&self) -> Option<Instant> {
        let deadline = self.executor.next_deadline()?;
        let at = match self.told_time {
            None => Instant(deadline.0.saturating_mul(1000)),
            Some((at, time)) => at + Duration::from_millis(deadline.0.saturating_sub(time.0)),
        };
        Some(self.ask_clock_at.max(at))
    }

    /// The time that commands are stamped with by now, as far as this replica can tell.
    fn log_time(&self, now: Instant) -> Timestamp {
        self.told_time.map_or(now.timestamp(), |(at, time)| {
            Timestamp(time.0.saturating_add(now.since(at).as_millis() as u64))
        })
    }

    /// Tells the leader of this node what it has executed, or all leaders if there is none. While
    /// it installs a snapshot, or receives nothing from any leader, it executes nothing: others
    /// are to answer clients.
    fn report(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        (self.report_at, self.ask_clock_at) = (now + ALIVE_EVERY, now + ASK_CLOCK_EVERY);
        if self.snapshots.is_installing() || self.proposers.is_cut_off(now) {
            return;
        }
        let message = leader::In::Executed {
            from: self.id,
            time: self.executor.now(),
            deadline: self.executor.next_deadline(),
            since_barrier: self.since_barrier,
        };
        out.send(Envelope::ToLeaders(self.leaders, message));
    }
}

impl Role for Replica {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.restore_stored(stamp, snapshot)
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        match stored {
            true => {
                self.snapshots.stored(stamp, self.executor.work());
                self.tell_kept(out);
            }
            false => self.snapshots.refused(stamp),
        }
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.picture(now, cover)
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.proposers.start(now);
        self.report(now, out);
        self.look_around(now, out);
        if !self.snapshots.has_state() {
            self.begin_install(now, Vec::new(), out);
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Committed {
                id,
                choice,
                replier,
            } => self.on_committed(now, id, choice, replier, out),
            In::Heartbeat { space, below, time } => {
                self.told_time = Some((now, time));
                self.proposers.heard(space.leader, now);
                self.missing.note(space, below);
            }
            In::Read { sees, reads } => self.on_read(now, sees, reads, out),
            In::PreReadAck {
                from,
                inquiry,
                deps,
            } => self.on_pre_read_ack(now, from, inquiry, &deps),
            In::Fetched {
                from,
                instances,
                forgotten,
                reaches,
            } => self.on_fetched(now, from, (instances, &forgotten), &reaches, out),
            In::FetchSnapshot {
                from,
                snapshot,
                unlike,
                offset,
            } => self.on_fetch_snapshot(now, from, (snapshot, unlike), offset, out),
            In::SnapshotChunk {
                from,
                snapshot,
                offset,
                last,
                bytes,
            } => self.on_chunk(now, (from, snapshot), offset, (last, bytes), out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.report_at <= now || self.clock_timer().is_some_and(|at| at <= now) {
            self.report(now, out);
        }
        self.ask_for_missing(now, out);
        self.ask_again_for_reads(now, out);
        self.fetch_snapshot_again(now, out);
        self.snapshots.drop_abandoned(now);
        self.propose_mark(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let own = earliest(Some(self.report_at), self.clock_timer());
        let asked = earliest(self.missing.next_timer(), self.reads.next_timer());
        let backup = self.backup.as_ref().map(Backup::next_timer);
        let snapshots = earliest(self.snapshots.next_timer(), backup);
        earliest(own, earliest(asked, snapshots))
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.flush_answers(out);
        self.report_progress(out);
        self.answer_rest(now, out);
        self.begin_inquiry(now, out);
        self.store_if_due(out);
    }

    fn invariants(&self) {
        let bytes = self.pending.values().map(Pending::byte_len);
        assert_eq!(
            bytes.sum::<usize>(),
            self.pending_bytes,
            "a replica lost count of what it has to execute"
        );
        self.reads.invariants();
    }

    const METRICS: Metrics = &[metrics::REPLICA];

    fn status(&self, status: &mut Status) {
        status.epoch = Some(self.executor.membership().epoch);
        status.executed = Some(Slot(self.count()));
        status.remembers = self.remembers();
        status.log_end = Some(Slot(self.founded + self.missing.end()));
        status.current_until = Some(self.current_until());
        status.stored = Some(Slot(self.snapshots.stored_count()));
        status.snapshots_installed = Some(self.snapshots.installed);
        status.add([
            self.pending.len() as u64,
            self.pending_bytes as u64,
            self.executor.session_count() as u64,
            self.reads.count,
            self.reads.proposed,
            self.executor.failed_reads(),
            self.reads.waiting() as u64,
            self.missing.asked,
            self.missing.recoveries,
            self.stale,
        ]);
    }
}
