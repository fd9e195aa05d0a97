//! The chain node: receives writes from the node before it, passes them on, applies them when they
//! are committed, and answers reads. The head numbers writes; the tail commits and answers them.
//!
//! Stands between client (or batcher) and client (or unbatcher), and between chain nodes.
//!
//! # Why writes are safe
//!
//! A node is in one epoch at a time, writes it to disk, never returns to an earlier one, and takes
//! messages of chain nodes only of the epoch that it is in. The members of the next chain are
//! members of this one, in the same order, and perhaps one node that holds all that the member
//! before it holds (`sealing.rs`).
//!
//! - *What a member holds contains what each member behind it holds.* Entries are passed on in
//!   order, each behind its record (`Out::send`), a member drops none, and a node that loses its
//!   memory is another member. It stays so in the next chain, whichever of the two enters it first.
//!   So a successor that is `Sync`ed gets what it lacks, and lacks nothing that its predecessor has
//!   dropped: that is applied, so committed.
//! - *Each member holds all that is committed.* An entry that is committed in an epoch has passed
//!   every member while that was in the epoch. So it is in the history of each member of a later
//!   chain when that member enters it. All that a tail holds is committed, therefore, as soon as
//!   its disk has it.
//!
//! A node applies only what is committed, so no two nodes apply different entries under one number.
//! What a node has received and not applied when it leaves the chain is void (`enter`): the chain
//! goes on without it, and may give the numbers to other entries.
//!
//! The reads have an argument of their own (`reads.rs`).

mod changing;
mod entering;
mod history;
mod joining;
mod lease;
mod leaving;
mod link;
mod peers;
mod reads;
mod records;
mod replies;
mod sealing;
mod standing;
mod writes;

use self::changing::Changing;
use self::history::History;
use self::joining::Joining;
use self::lease::Inquiries;
use self::leaving::Waits;
use self::link::Link;
use self::peers::Peers;
use self::reads::Reads;
pub use self::records::Record;
use self::records::Snapshots;
use self::replies::Replies;
use self::sealing::Sealing;
use self::writes::{Down, Up, Writes};
use super::config::Config;
use super::id::{ChainEpoch, ChainNodeId};
use super::message::Chain;
use super::{Envelope, branch, kind, metrics};
use crate::multipaxos;
use crate::parts::leader::clock::LogClock;
use crate::parts::{self, workers::workers};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp, earliest};
use ionian_kernel::wire::WireError;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::executor::Executor;
use ionian_replication::flow::ByteWindow;

messages! {
    /// The messages that a chain node receives.
    "chain_node" In {
        /// Commands to execute, for the head.
        0 for "head" of batch => Write {
            /// The commands.
            batch: Batch,
            /// The batcher that waits to hear that they are executed, with its number for them.
            from: Option<(BatcherId, u64)>,
            /// Whether another chain node has handed them on.
            handed: bool,
        },
        /// Entries of the predecessor.
        1 for "chain" of values => Forward {
            /// The predecessor.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// The number of the first entry.
            start: Slot,
            /// The entries.
            values: Vec<Value>,
        },
        /// How far the successor is.
        2 => Ack {
            /// The successor.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// It has received every entry below this one.
            received: Slot,
            /// Every entry below this one is committed.
            committed: Slot,
        },
        /// Linearizable reads.
        3 for "read" of reads => Read {
            /// The reads.
            reads: Batch,
            /// Whether another chain node has handed them on.
            handed: bool,
        },
        /// Reads to answer once every entry below `executed` is applied.
        4 for "read" of reads => ReadAt {
            /// The reads.
            reads: Batch,
            /// What they must see.
            executed: Slot,
        },
        /// Asks the tail what is committed.
        5 for "inquire" of inquiry => Query {
            /// The node that asks.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// Its number for the question.
            inquiry: u64,
        },
        /// The tail's answer.
        6 for "inquired" of inquiry => Committed {
            /// Its epoch.
            epoch: ChainEpoch,
            /// The question.
            inquiry: u64,
            /// Every entry below this one is committed.
            committed: Slot,
        },
        /// A chain node lives.
        7 => Beat {
            /// The node.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// How many steps have changed the chain within it.
            revision: u64,
            /// The chain nodes that it hears.
            hears: Set<ChainNodeId>,
            /// The members that it takes for dead.
            suspects: Set<ChainNodeId>,
            /// Whether it knows how far its successor is, or has none.
            synced: bool,
            /// What its clock shows.
            clock: Timestamp,
        },
        /// The successor wants what it has not received.
        8 => Sync {
            /// The successor.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// It has received every entry below this one.
            received: Slot,
        },
        /// The predecessor sends entries from now on.
        9 => Handover {
            /// The predecessor.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
        },
        /// A node that joins wants what is committed.
        10 => Fetch {
            /// The node.
            from: ChainNodeId,
            /// The first entry that it has not received.
            start: Slot,
            /// The snapshot that it is receiving, if any, and from where on it wants that.
            snapshot: Option<(Slot, u64)>,
        },
        /// Committed entries.
        11 => Entries {
            /// The node that sends them.
            from: ChainNodeId,
            /// The number of the first entry.
            start: Slot,
            /// The entries.
            values: Vec<Value>,
            /// Up to where it has applied them.
            applied: Slot,
        },
        /// A piece of a snapshot.
        12 => Piece {
            /// The node that sends it.
            from: ChainNodeId,
            /// The snapshot is of the state before this entry.
            executed: Slot,
            /// Where the piece begins.
            offset: u64,
            /// Whether the snapshot ends with the piece.
            last: bool,
            /// The piece.
            bytes: Bytes,
        },
        /// A chain that the master has decided.
        13 => Chain {
            /// The chain.
            chain: Chain,
        },
        /// From itself: entries are on its disk.
        14 => Stored {
            /// The epoch in which it sent this.
            epoch: ChainEpoch,
            /// Every entry below this one is.
            received: Slot,
        },
        /// A message of the master's log to its client.
        15 => Master via message internal {
            /// The message.
            message: multipaxos::client::In,
        },
        /// An unbatcher lives.
        16 => UnbatcherAlive {
            /// The unbatcher.
            from: UnbatcherId,
        },
        /// A node that joins wants a member to take nothing more in this epoch, and what it holds.
        17 => Seal {
            /// The node.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// The first entry that it has not received.
            start: Slot,
        },
        /// The member takes nothing more in this epoch.
        18 => Sealed {
            /// The member.
            from: ChainNodeId,
            /// Its epoch.
            epoch: ChainEpoch,
            /// The number of the first entry.
            start: Slot,
            /// Entries that it holds, committed or not.
            values: Vec<Value>,
            /// It holds the entries below this one.
            end: Slot,
        },
    }
}

/// A chain node.
pub struct ChainNode {
    id: ChainNodeId,
    node: NodeId,
    config: Arc<Config>,
    amnesiac: bool,
    /// Which of its lives this is: one more for each time that it has lost its memory.
    life: u64,
    /// The chain that it has entered.
    chain: Chain,
    /// Its place in the chain, if it is a member.
    place: Option<usize>,
    /// As the tail it has not committed yet what it had received below this one when it became
    /// that: earlier tails may have.
    tail_from: Slot,
    /// When it entered the chain.
    entered: Instant,
    executor: Executor,
    history: History,
    writes: Writes,
    replies: Replies,
    up: Up,
    /// How far the successor is, when that is known in this epoch.
    down: Option<Down>,
    reads: Reads,
    inquiries: Inquiries,
    waits: Waits,
    peers: Peers,
    /// The time of reads, and what it stamps as the head.
    clock: LogClock,
    link: Link,
    changing: Changing,
    joining: Joining,
    sealing: Sealing,
    snapshots: Snapshots,
    beat_at: Instant,
    stale: u64,
}

impl ChainNode {
    /// The chain node of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let (layout, options) = (config.layout(), config.options());
        let mut executor = Executor::with_workers(birth, layout, workers(options));
        executor.has_its_level_elsewhere();
        ChainNode {
            id: ChainNodeId(birth.address.index),
            node: birth.node,
            amnesiac: birth.amnesiac,
            life: 0,
            chain: config.founding(),
            place: None,
            tail_from: Slot::ZERO,
            entered: Instant::ZERO,
            executor,
            history: History::new(ByteWindow::new(config.options().window_bytes)),
            writes: Writes::new(birth.keeps_records),
            replies: Replies::new(&config, birth),
            up: Up::default(),
            down: None,
            reads: Reads::new(birth.seed),
            inquiries: Inquiries::default(),
            waits: Waits::default(),
            peers: Peers::default(),
            clock: LogClock::new(birth.node, layout.f),
            link: Link::new(config.master.clone(), birth),
            changing: Changing::new(config.founding().nodes()),
            joining: Joining::default(),
            sealing: Sealing::default(),
            snapshots: Snapshots::new(birth.keeps_records),
            beat_at: Instant::ZERO,
            stale: 0,
            config,
        }
    }
}

impl Role for ChainNode {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn check_record(&self, record: &Record) -> Result<(), WireError> {
        records::check(record, &self.history, !self.config.is_founding())
    }

    fn recover(&mut self, record: Record) {
        self.recover_record(record);
    }

    fn key(record: &Record) -> Option<u64> {
        records::key(record)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.executor.restore(snapshot)?;
        self.history.reset(Slot(stamp));
        self.snapshots.restored(Slot(stamp));
        Ok(())
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.life == 0 || self.amnesiac || self.changing.lacks_records {
            self.sealing = Sealing::default();
            self.life = match self.life {
                0 => self.first_life(),
                life => {
                    out.reached(branch::NEW_LIFE);
                    life + 1
                }
            };
            out.persist_vital(Record::Life { life: self.life });
        }
        self.begin_anew(out);
        self.take_place();
        if self.place.is_none() && !self.sealing.is_joining() {
            // What it had copied last, and did not know to have applied, is copied again.
            self.history.truncate(self.history.applied());
        }
        self.begin_in_chain(now);
        self.sealing.start(now);
        self.note_leaving(now);
        self.peers.start(now, self.config.nodes());
        self.replies.start(now);
        self.link.start(now, out);
        if self.is_tail() {
            self.tail_from = self.history.end();
        }
        self.commit_as_tail(now, out);
        self.beat_at = now;
        self.sync(now, out);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        self.link.reconfigure(now, config.master.clone(), out);
        self.clock.reconfigure(&config.master);
        let near = config.near(kind::Unbatcher, self.node);
        self.replies.reconfigure(&config, near);
        self.peers.reconfigure(now, config.nodes());
        self.config = config;
        if self.begin_anew(out) {
            self.lose_place(now, out);
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Write {
                batch,
                from,
                handed,
            } => self.on_write(now, (batch, from), handed, out),
            In::Forward {
                from,
                epoch,
                start,
                values,
            } => self.on_forward(now, (from, epoch), start, values, out),
            In::Ack {
                from,
                epoch,
                received,
                committed,
            } => self.on_ack(now, (from, epoch), (received, committed), out),
            In::UnbatcherAlive { from } => self.replies.heard(now, from),
            In::Read { reads, handed } => self.on_read(reads, handed, out),
            In::ReadAt { reads, executed } => self.on_read_at(now, reads, executed, out),
            In::Query {
                from,
                epoch,
                inquiry,
            } => self.on_query(now, (from, epoch), inquiry, out),
            In::Committed {
                epoch,
                inquiry,
                committed,
            } => self.on_committed(now, epoch, (inquiry, committed), out),
            In::Beat {
                from,
                epoch,
                revision,
                hears,
                suspects,
                synced,
                clock,
            } => {
                self.peers.suspected.insert(from, suspects);
                self.hear_clock(now, from, clock);
                self.on_beat(now, (from, (epoch, revision)), (hears, synced), out);
            }
            In::Sync {
                from,
                epoch,
                received,
            } => self.on_sync(now, (from, epoch), received, out),
            In::Handover { from, epoch } => self.on_handover(now, (from, epoch), out),
            In::Fetch {
                from,
                start,
                snapshot,
            } => self.on_fetch(now, from, start, snapshot, out),
            In::Entries {
                from,
                start,
                values,
                applied,
            } => self.on_entries(now, from, (start, values), applied, out),
            In::Piece {
                from,
                executed,
                offset,
                last,
                bytes,
            } => self.on_piece(now, (from, executed), offset, (last, bytes), out),
            In::Chain { chain } => {
                self.enter(now, chain, out);
            }
            In::Seal { from, epoch, start } => self.on_seal(now, (from, epoch), start, out),
            In::Sealed {
                from,
                epoch,
                start,
                values,
                end,
            } => self.on_sealed(now, (from, epoch), (start, values), end, out),
            In::Stored { epoch, received } => self.on_stored(now, epoch, received, out),
            In::Master { message } => {
                self.link.on_message(now, message, out);
                self.take_replies(now, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.wait_for_leases(now, out);
        self.link.on_timer(now, out);
        self.take_replies(now, out);
        if self.beat_at <= now {
            self.beat_at = now + self.config.options().heartbeat;
            self.beat(now, self.others(), out);
            self.look_around(now, out);
            self.pass_time(now, out);
        }
        self.sync_again(now, out);
        self.resend(now, out);
        self.query_again(now, out);
        self.fetch_again(now, out);
        self.seal_again(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let timers = [
            self.link.next_timer(),
            Some(self.beat_at),
            self.sync_timer(),
            self.down.as_ref().and_then(|down| self.resend_timer(down)),
            self.reads.next_timer(),
            self.fetch_timer(),
            self.sealing.next_timer(),
            self.leaving_timer(),
        ];
        timers.into_iter().fold(None, earliest)
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.propose_queued(now, out);
        self.forward(now, out);
        self.acknowledge(out);
        self.link.on_burst_end(now, out);
        self.take_replies(now, out);
        self.begin_reads(now, out);
        self.answer_queries(now, out);
        self.answer_waiting(now, out);
        self.flush_answers(now, true, None, out);
        self.answer_leased(now, out);
        self.inquire(now, out);
        self.tell_batchers(out);
        self.store_if_due(out);
        self.trim(now);
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        self.note_snapshot(stamp, stored, out);
    }

    fn freeze(&mut self, _: Instant, cover: Cover) -> Picture {
        let applied = self.history.applied();
        match cover.stamp().is_some_and(|at| applied.0 >= at) {
            true => Picture::Taken(applied.0, self.executor.freeze()),
            false => Picture::NotYet(applied.0),
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(Record::Life { life: self.life });
        let (chain, end) = (self.chain.clone(), self.history.end());
        out.persist(Record::Entered { chain, end });
        self.write_seal(out);
    }

    fn invariants(&self) {
        self.history.invariants();
        self.link.invariants();
        assert!(
            self.place.is_some() || self.sealing.is_joining() || self.history.pending() == 0,
            "what a node that is in no chain, and joins none, holds is committed"
        );
    }

    const METRICS: Metrics = &[metrics::CHAIN_NODE, parts::metrics::WORKERS];

    fn status(&self, status: &mut Status) {
        status.executed = Some(self.history.applied());
        status.log_end = Some(self.history.end());
        status.stored = Some(self.snapshots.in_last());
        status.snapshots_installed = Some(self.joining.installed);
        status.remembers = Some(self.place.is_some());
        status.current_until = self.sealing.is_sealed().then_some(Instant::ZERO);
        status.add([
            self.chain.epoch.0,
            self.chain.members.len() as u64,
            self.place.map_or(0, |place| place as u64 + 1),
            self.history.pending() as u64,
            self.history.flow().bytes() as u64,
            self.reads.under_way() as u64,
            self.reads.clean,
            self.reads.dirty,
            self.reads.leased,
            self.reads.queries,
            self.writes.dropped + self.reads.dropped,
            self.writes.repeated,
            self.executor.session_count() as u64,
            self.executor.failed_reads(),
            self.stale,
            self.clock.correction_ms().unsigned_abs(),
            u64::from(self.sealing.is_sealed()),
        ]);
        status.add(self.executor.workers());
    }
}
