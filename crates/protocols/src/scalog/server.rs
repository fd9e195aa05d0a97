//! The server of a shard: takes commands, appends them to its log, and keeps copies of the logs of
//! the other servers of its shard.
//!
//! Stands between client lanes and replicas. It reports how much it holds of each log of its shard;
//! what all of them hold can be ordered.
//!
//! **Its word must survive it.** A report counts as durable: it is sent behind the records that it
//! counts, and it counts only what has no gap. Records go to replicas behind their own records too,
//! because a server that finds its disk again goes on with the next index: what it showed under an
//! index before must be what it finds there.
//!
//! **Lives.** A server that finds its records again has the life that it had. One that does not
//! begins another life, and so has no part in the generation that it was in (see [`cut`]): it holds
//! nothing of what it has reported. The shard is closed when it says so, and until f+1 replicas
//! keep all that was ordered before the shard was opened with its new life, it counts as failed.
//!
//! **A generation that is over.** A server that knows so notes it on its disk before it forgets
//! anything of it. Otherwise it might come back, be told of an earlier cut by a replica that is
//! behind, and take part again: with other records under the same indexes, which that replica would
//! take for those that are ordered.
//!
//! Records beyond the last cut of it are void. Replicas drop them at
//! the closing slot, all of them alike, so no server need drop them for the sake of safety. Their
//! commands were not executed: this server passes those of its own log on to a server of an open
//! shard, and the lanes of a dead server send theirs to others; both under the same numbers.
//!
//! [`cut`]: super::cut

mod commands;
mod cuts;
mod kept;
mod logs;
mod reporting;

use self::kept::Kept;
use self::logs::{Logs, Recovered};
use self::reporting::Reporting;
use super::config::Config;
use super::cut::{Cut, LogId};
use super::id::{Generation, RecordPlace, ServerId};
use super::{Envelope, branch, metrics, replica};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::Options;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::{messages, wire_enum};
use ionian_replication::batch::{Batch, OpenBatch};

messages! {
    /// The messages that a server receives.
    "server" In {
        /// A client lane wants these executed.
        0 for "append" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// A server of a closed shard passes commands on.
        1 for "append" of commands => PassedOn {
            /// The commands.
            commands: Batch,
        },
        /// A server of the same shard wants its records kept.
        2 for "backup" of records => Backup {
            /// The log.
            log: LogId,
            /// The index of the first record.
            first: u64,
            /// The records.
            records: Vec<Batch>,
            /// The turn of the aggregator that its server asks.
            turn: u64,
        },
        /// A replica has executed the log so far.
        3 => Ordered {
            /// The replica.
            from: ReplicaId,
            /// Every slot below this one is executed.
            slot: Slot,
            /// Every slot below this one would be found again after a crash.
            kept: Slot,
            /// What these slots have ordered.
            cut: Cut,
        },
        /// A replica misses records.
        4 => FetchRecords {
            /// The replica.
            from: ReplicaId,
            /// The log.
            log: LogId,
            /// The first that it misses.
            first: u64,
            /// The one after the last.
            end: u64,
        },
        /// A server asks another aggregator than before.
        5 => Turn {
            /// The server.
            from: ServerId,
            /// The turn of that aggregator.
            turn: u64,
        },
    }
}

/// What a server must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// A record of a log.
    Kept {
        /// Its place among the records that this server has stored.
        place: RecordPlace,
        /// The log.
        log: LogId,
        /// Its index there.
        index: u64,
        /// The commands.
        batch: Batch,
    },
    /// Replicas keep what comes before an index of a log: it may be missing.
    Trimmed {
        /// The log.
        log: LogId,
        /// The index.
        below: u64,
    },
    /// It has begun this life.
    Begun {
        /// The life.
        life: u64,
    },
    /// Generations up to this one are over, and it may have forgotten records of them.
    Left {
        /// The generation.
        generation: Generation,
    },
}

wire_enum! {
    Record {
        0 => Kept { place, log, index, batch }, 1 => Trimmed { log, below }, 2 => Begun { life },
        3 => Left { generation }
    }
}

/// Bytes of records in one message, at least one record.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;

/// A server.
pub struct Server {
    id: ServerId,
    config: Config,
    shard: Index,
    place: usize,
    life: u64,
    /// Whether it has found its life again.
    has_begun: bool,
    /// Whether it may have lost records that no enough replicas keep.
    forgets: bool,
    keeps_records: bool,
    logs: Logs,
    recovered: Recovered,
    open: OpenBatch,
    /// A batch that is larger than its part of what may wait, and waits until nothing else does.
    large: Option<Batch>,
    /// The cut of the furthest replica that told it, and the slot before which it is the cut.
    known: Option<(Slot, Cut)>,
    /// The generation in which it takes part.
    generation: Option<Generation>,
    /// It takes no part in generations up to this one any more.
    left: Generation,
    /// The bytes of records of its own log that are not ordered.
    unordered_bytes: usize,
    /// Its own records below this one were sent.
    sent: u64,
    kept: Kept,
    reporting: Reporting,
    /// When it sends again what is not ordered, and how often it did.
    again: Option<(Instant, u32)>,
    turn: u64,
    counts: Counts,
}

/// What it has done so far.
#[derive(Default)]
struct Counts {
    commands: u64,
    passed_on: u64,
    void: u64,
    fetched: u64,
    dropped: u64,
}

impl Server {
    /// The server of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ServerId(birth.address.index);
        let (shard, place) = config.place_of(id);
        Server {
            id,
            shard,
            place,
            life: random.any(),
            has_begun: false,
            forgets: birth.amnesiac,
            keeps_records: birth.keeps_records,
            logs: Logs::default(),
            recovered: Recovered::default(),
            open: OpenBatch::default(),
            large: None,
            known: None,
            generation: None,
            left: Generation::ZERO,
            unordered_bytes: 0,
            sent: 0,
            kept: Kept::default(),
            reporting: Reporting::default(),
            again: None,
            turn: random.any() >> 1,
            counts: Counts::default(),
            config,
        }
    }

    /// The generation in which it takes part.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// How much it has of a log: the index of its first record, and of the one after its last.
    pub fn extent(&self, log: LogId) -> (u64, u64) {
        (self.logs.start(log), self.logs.length(log))
    }

    /// The records of a log that it has from an index on, each with its own.
    pub fn records_from(&self, log: LogId, index: u64) -> impl Iterator<Item = (u64, &Batch)> {
        self.logs.from(log, index)
    }

    /// Whether what it holds survives a crash.
    pub fn keeps_records(&self) -> bool {
        self.keeps_records
    }

    fn options(&self) -> &Options {
        self.config.options()
    }

    fn log_of(&self, server: ServerId) -> Option<LogId> {
        let generation = self.generation?;
        Some(LogId { generation, server })
    }

    fn own_log(&self) -> Option<LogId> {
        self.log_of(self.id)
    }

    /// How many records of its own log are ordered, as far as it knows.
    fn ordered(&self) -> u64 {
        let known = self.known.as_ref().zip(self.own_log());
        let ordered = known.and_then(|((_, cut), log)| cut.ordered(log, self.config.size()));
        ordered.unwrap_or(0)
    }

    /// How many records of its own log are not.
    fn unordered(&self) -> u64 {
        let length = self.own_log().map_or(0, |log| self.logs.length(log));
        length.saturating_sub(self.ordered())
    }

    // Copies.

    /// Keeps a peer's records, if none is missing before them: a length counts what has no gap.
    fn on_backup(
        &mut self,
        now: Instant,
        log: LogId,
        (first, records): (u64, Vec<Batch>),
        turn: u64,
        out: &mut Out<'_, Self>,
    ) {
        let of_peer = self.config.peers_of(self.id).contains(log.server);
        if Some(log.generation) != self.generation || !of_peer {
            return;
        }
        if turn < self.reporting.turn() {
            self.send_turn(Set::one(log.server), out);
        }
        self.reporting.agree(now, turn);
        let length = self.logs.length(log);
        if first > length {
            return out.reached(branch::BACKUP_GAP);
        }
        let known = (length - first) as usize;
        for batch in records.into_iter().skip(known) {
            self.append(log, batch, out);
        }
    }

    fn on_turn(&mut self, now: Instant, from: ServerId, turn: u64) {
        if self.config.place_of(from).0 == self.shard {
            self.reporting.agree(now, turn);
        } else {
            self.reporting.follow_shard(now, turn, &self.config);
        }
    }

    fn on_fetch(
        &mut self,
        from: ReplicaId,
        log: LogId,
        (first, end): (u64, u64),
        out: &mut Out<'_, Self>,
    ) {
        if first < self.logs.start(log) {
            // The replica finds it in a snapshot of a peer.
            out.reached(branch::TRIMMED);
        }
        let mut records = self.logs.read(log, first, MESSAGE_BYTES);
        records.truncate(end.saturating_sub(first) as usize);
        if records.is_empty() {
            return;
        }
        self.counts.fetched += records.len() as u64;
        let message = replica::In::Fetched {
            log,
            first,
            records,
        };
        out.send(Envelope::ToReplicas(Set::one(from), message));
    }

    // Reports.

    fn lengths(&self) -> Vec<u64> {
        let servers = self.config.servers_of(self.shard);
        servers
            .filter_map(|server| self.log_of(server))
            .map(|log| self.logs.length(log))
            .collect()
    }

    fn report(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let shard = self.known.as_ref().map(|(_, cut)| cut.shard(self.shard));
        let is_its = |shard: &super::cut::Shard| Some(shard.generation) == self.generation;
        let ordered = shard.filter(is_its).map(|shard| shard.lengths);
        let report = super::aggregator::In::Report {
            from: self.id,
            life: self.life,
            generation: self.generation.unwrap_or_default(),
            lengths: self.lengths(),
            seen: self.known.as_ref().map_or(Slot::ZERO, |(slot, _)| *slot),
        };
        let ordered = ordered.unwrap_or_default();
        let due = self.reporting.due(now, &report, &ordered, &self.config);
        if due.turns {
            out.reached(branch::NEXT_AGGREGATOR);
            let others = self.config.servers.without(Set::one(self.id));
            self.send_turn(others, out);
        }
        if !due.to.is_empty() {
            out.send(Envelope::ToAggregators(due.to, report));
        }
    }
}

impl Role for Server {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        match record {
            Record::Kept {
                place,
                log,
                index,
                batch,
            } => self.recovered.record(place, log, index, batch),
            Record::Trimmed { log, below } => self.recovered.start(log, below),
            Record::Begun { life } => (self.life, self.has_begun) = (life, true),
            Record::Left { generation } => self.left = generation.max(self.left),
        }
    }

    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::Kept { place, .. } => Some(place.0),
            Record::Trimmed { .. } | Record::Begun { .. } | Record::Left { .. } => None,
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist(Record::Begun { life: self.life });
        let generation = self.left;
        out.persist(Record::Left { generation });
        for (log, below) in self.logs.starts() {
            out.persist(Record::Trimmed { log, below });
        }
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.logs = core::mem::take(&mut self.recovered).logs();
        if !self.has_begun {
            out.persist(Record::Begun { life: self.life });
        }
        self.report(now, out);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Config, _: &mut Out<'_, Self>) {
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => self.on_commands(now, &commands, out),
            // Not a second time: the sender may know more of shards than this one, or less.
            In::PassedOn { commands } => self.take_in(now, &commands, out),
            In::Backup {
                log,
                first,
                records,
                turn,
            } => self.on_backup(now, log, (first, records), turn, out),
            In::Ordered {
                from,
                slot,
                kept,
                cut,
            } => self.on_ordered(now, from, (slot, kept), cut, out),
            In::FetchRecords {
                from,
                log,
                first,
                end,
            } => self.on_fetch(from, log, (first, end), out),
            In::Turn { from, turn } => self.on_turn(now, from, turn),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.send_again(now, out);
        self.report(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let is_open = self.generation.is_some();
        let closes_at = self.open.closes_at(self.options()).filter(|_| is_open);
        let again = self.again.map(|(at, _)| at);
        earliest(
            earliest(closes_at, again),
            self.reporting.next_timer(&self.config),
        )
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.take_large_in(now, out);
        let under_way = self.unordered() as usize;
        if self.generation.is_some() && self.open.is_due(now, under_way, self.options()) {
            self.close(out);
        }
        self.send_new(now, out);
        self.report(now, out);
    }

    fn invariants(&self) {
        self.logs.invariants();
        let Some(log) = self.own_log() else {
            return;
        };
        assert_eq!(
            self.unordered_bytes,
            self.logs.bytes_from(log, self.ordered()),
            "a server lost count of what is not ordered"
        );
        assert!(
            self.ordered() <= self.logs.length(log),
            "a cut covers records that a server of the generation does not hold"
        );
        assert!(
            self.unordered() == 0 || self.again.is_some() || self.sent < self.logs.length(log),
            "no timer watches records that are not ordered"
        );
    }

    const METRICS: Metrics = &[metrics::SERVER];

    fn status(&self, status: &mut Status) {
        status.remembers = Some(!self.forgets);
        status.add([
            self.generation.map_or(0, |generation| generation.0),
            self.counts.commands,
            self.own_log().map_or(0, |log| self.logs.length(log)),
            self.unordered(),
            self.logs.bytes() as u64,
            self.reporting.sent(),
            self.reporting.turn(),
            self.counts.passed_on,
            self.counts.void,
            self.counts.fetched,
            self.counts.dropped,
        ]);
    }
}
