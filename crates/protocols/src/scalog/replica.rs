//! The replica: that of MultiPaxos behind a stage that puts records in place of cuts.
//!
//! Stands between servers and proxy leaders on one side, and clients or unbatchers on the other.
//! Servers send it records as soon as they have them; the proxy leader tells it what is chosen. In
//! the order of slots it puts together what a slot orders, and hands it on as the value of the
//! slot: from there on the log is one of commands, as in MultiPaxos. Execution, sessions,
//! snapshots, reads, answers, and catching up with peers are MultiPaxos's, whose slots and tokens
//! are those of cuts.
//!
//! **The cut is part of the state.** The value that it puts together begins with the cut behind the
//! slot, as a [note] of the log to itself. So what a peer hands over says where to go on: a value
//! that was fetched, and a snapshot. And all replicas put the same bytes together, which the part
//! asserts when it receives a value twice.
//!
//! A slot waits until all that it orders is here, and so do all slots behind it, whatever they
//! order. What does not come by itself is asked of a server of the shard, then of the next one; and
//! MultiPaxos's catching up, which takes the slot for a hole, asks peers for the whole value. If
//! servers have forgotten records, f+1 replicas keep them, and a peer has a snapshot.
//!
//! [note]: ionian_replication::executor::Executor::keep_notes

mod gathering;

use self::gathering::Gathering;
use super::config::Config;
use super::cut::{Cut, LogId, Range, changes_of, note};
use super::id::ServerId;
use super::{Envelope, aggregator, branch, metrics, server};
use crate::multipaxos;
use crate::multipaxos::replica::In as Ordering;
use crate::parts;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::adapted::Adapted;
use ionian_kernel::id::*;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest, transit};
use ionian_kernel::wire::{Never, Reader, Wire, encode_all};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, BatchBuilder, Value};
use ionian_replication::suspicion::ALIVE_EVERY;

messages! {
    /// The messages that a replica receives.
    "replica" In {
        /// A message that MultiPaxos's replica receives too.
        0 => Ordering via message {
            /// The message.
            message: multipaxos::replica::In,
        },
        /// A server has these records.
        1 for "execute" of records => Records {
            /// The log.
            log: LogId,
            /// The index of the first.
            first: u64,
            /// The records.
            records: Vec<Batch>,
        },
        /// Records that this one misses.
        2 for "execute" of records => Fetched {
            /// The log.
            log: LogId,
            /// The index of the first.
            first: u64,
            /// The records.
            records: Vec<Batch>,
        },
    }
}

/// How many slots ahead of the one that it puts together a replica notes what is chosen. What lies
/// beyond is asked for when its turn comes.
const MAX_AHEAD: u64 = 1 << 14;

/// For how many slots behind the next one a replica asks at the same time as for that one, so that
/// one that is far behind does not wait for an answer for each slot. A server answers with as many
/// bytes as a message holds.
const SLOTS_AHEAD: usize = 256;

/// Of how many logs it asks for records that the next slot orders, and of how many altogether for
/// what slots behind it order, at a time. The answer to each is at most one message.
const MOST_ASKED: usize = 8;

/// See the top of this file.
pub struct Replica {
    id: ReplicaId,
    config: Config,
    inner: Inner,
    /// The cut before the slot that the part executes next.
    cut: Cut,
    /// That slot, for which `cut` holds.
    at: Slot,
    /// What is chosen from that slot on, with the replica that answers.
    chosen: BTreeMap<Slot, (Value, ReplicaId)>,
    /// What the next slot orders, and the cut behind it, once that is chosen.
    next: Option<(Cut, Vec<Range>)>,
    gathering: Gathering,
    /// When it asks a server for what is missing, and how often it did.
    fetch: Option<(Instant, u32)>,
    /// Up to where it has asked for a log, and has no answer yet.
    asked: SmallMap<LogId, u64>,
    /// Whether records come only because it asks for them: they were sent before it could take
    /// them in. Then it asks at once for what a slot lacks.
    is_behind: bool,
    /// Since when it waits for records of the next slot.
    waits_since: Option<Instant>,
    /// Whether it is the one to tell the others of the cut.
    tells: bool,
    told: (Instant, Slot),
    turn: u64,
    fetches: u64,
}

/// MultiPaxos's replica.
type Inner = Adapted<multipaxos::replica::Replica, super::Verbatim>;

impl Replica {
    /// The replica of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let ordering = config.ordering.clone();
        let mut inner = multipaxos::replica::Replica::new(ordering, birth);
        inner.core_mut().executor_mut().keep_notes();
        Replica {
            id: ReplicaId(birth.address.index),
            inner: Adapted::new(inner, birth.keeps_records, super::Verbatim),
            cut: Cut::default(),
            at: Slot::ZERO,
            chosen: BTreeMap::new(),
            next: None,
            gathering: Gathering::default(),
            fetch: None,
            asked: SmallMap::new(),
            is_behind: false,
            waits_since: None,
            tells: false,
            told: (Instant::ZERO, Slot::ZERO),
            turn: u64::from(birth.address.index),
            fetches: 0,
            config,
        }
    }

    /// Every slot below this one is executed.
    pub fn executed(&self) -> Slot {
        self.inner.executed()
    }

    /// What it has learned and executed.
    pub fn core(&self) -> &parts::replica::ReplicaCore {
        self.inner.core()
    }

    /// The cut behind what it has executed.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Calls the part; what it asks for is this role's.
    fn call(&mut self, out: &mut Out<'_, Self>, act: impl FnOnce(&mut Inner, &mut Out<'_, Inner>)) {
        act(&mut self.inner, &mut out.of_part());
    }

    // What is chosen.

    fn on_chosen(
        &mut self,
        now: Instant,
        slot: Slot,
        chosen: (Value, ReplicaId),
        out: &mut Out<'_, Self>,
    ) {
        // The part watches for a slot that is missing: also for one whose records are.
        self.inner.core_mut().want(now, slot.next());
        if slot >= self.at && slot.distance(self.at) < MAX_AHEAD {
            self.chosen.insert(slot, chosen);
        }
        self.go_on(now, out);
    }

    /// Hands on what is complete, slot by slot.
    fn go_on(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.follow(out);
        while let Some(value) = self.put_together() {
            let slot = self.at;
            let (_, replier) = self.chosen.remove(&slot).expect("it is put together");
            self.tells |= replier == self.id;
            let message = Ordering::Chosen {
                slot,
                value,
                replier,
            };
            self.call(out, |inner, out| inner.on_message(now, message, out));
            let before = self.at;
            self.follow(out);
            if self.at == before {
                break;
            }
        }
        self.watch(now, out);
    }

    /// The value of the next slot, if all that belongs to it is here.
    fn put_together(&mut self) -> Option<Value> {
        let (chosen, _) = self.chosen.get(&self.at)?;
        let stamp = chosen.stamp;
        if self.next.is_none() {
            let Some(changes) = changes_of(&chosen.batch) else {
                let batch = chosen.batch.clone();
                return Some(Value { stamp, batch });
            };
            let mut cut = self.cut.clone();
            let ranges = cut.apply(self.at, &changes, self.config.size());
            self.next = Some((cut, ranges));
        }
        let (cut, ranges) = self.next.as_ref()?;
        let records = self.gathering.all(ranges)?;
        let batch = value_of(cut, records);
        Some(Value { stamp, batch })
    }

    /// Takes over the cut where the part has got to: by a value that it was handed, or a peer's, or
    /// a snapshot.
    fn follow(&mut self, out: &mut Out<'_, Self>) {
        let executed = self.inner.executed();
        if executed == self.at {
            return;
        }
        let closed = |cut: &Cut| cut.shards.iter().filter(|shard| !shard.is_open).count();
        let before = closed(&self.cut);
        match self.next.take().filter(|_| executed == self.at.next()) {
            // The part has executed what was put together, or what a peer did.
            Some((cut, _)) => self.cut = cut,
            None => self.take_over(out),
        }
        if closed(&self.cut) > before {
            out.reached(branch::CLOSED);
        }
        self.at = executed;
        self.chosen = self.chosen.split_off(&executed);
        (self.fetch, self.waits_since) = (None, None);
        let (cut, size) = (&self.cut, self.config.size());
        self.asked.retain(|log, _| !cut.is_over(*log, size));
        self.gathering.pass(&self.cut, self.config.size());
    }

    /// Reads the cut from the note that the log has left.
    fn take_over(&mut self, out: &mut Out<'_, Self>) {
        let executor = self.inner.core_mut().executor_mut();
        let noted = executor
            .note()
            .map(|note| Cut::decode(&mut Reader::new(note)));
        // A snapshot that a cluster was founded with has none.
        let Ok(cut) = noted.unwrap_or_else(|| Ok(Cut::default())) else {
            // A faulty peer's: its value is in the log of this replica now.
            return;
        };
        if cut != self.cut {
            out.reached(branch::TAKES_OVER_CUT);
        }
        self.cut = cut;
    }

    // Records.

    fn on_records(&mut self, log: LogId, first: u64, records: Vec<Batch>, out: &mut Out<'_, Self>) {
        let wanted = self.next.as_ref().map_or(&[][..], |(_, ranges)| ranges);
        let (cut, size) = (&self.cut, self.config.size());
        let has_room = self.gathering.add((cut, size), wanted, log, first, records);
        if !has_room {
            out.reached(branch::NO_ROOM);
        }
    }

    /// Watches for what is missing of the next slot. Most of it is on its way, unless this replica
    /// is behind.
    fn watch(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.next.is_some() && self.fetch.is_none() {
            if self.is_behind {
                self.ask_for_missing(out);
            }
            self.fetch = Some((self.answered_by(now, 0), 0));
            self.waits_since = Some(now);
        }
    }

    /// When what was asked for should be here, if it was asked for without success this often.
    fn answered_by(&self, now: Instant, attempts: u32) -> Instant {
        let wait = doubled(self.config.options().resend_after, attempts, 4);
        now + wait + transit(server::MESSAGE_BYTES * self.asked.len())
    }

    /// Asks for what is missing of the next slot, each time the next server of a shard, and for
    /// what it has not asked for of slots behind it.
    fn fetch_missing(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some((_, attempts)) = self.fetch.filter(|(at, _)| *at <= now) else {
            return;
        };
        self.turn += 1;
        let ranges = self.next.as_ref().map_or(&[][..], |(_, ranges)| ranges);
        (self.asked).retain(|log, _| !ranges.iter().any(|range| range.log == *log));
        self.ask_for_missing(out);
        self.fetch = Some((self.answered_by(now, attempts), attempts + 1));
    }

    /// What the next slot orders, and slots behind it that are chosen: of each log one range.
    fn wanted(&self) -> Vec<Range> {
        let Some((cut, ranges)) = &self.next else {
            return Vec::new();
        };
        let (mut cut, mut wanted) = (cut.clone(), ranges.clone());
        let behind = self.chosen.range(self.at.next()..).take(SLOTS_AHEAD);
        let in_turn = behind.zip(1..);
        for ((slot, (value, _)), _) in
            in_turn.take_while(|((slot, _), distance)| **slot == self.at.plus(*distance))
        {
            let Some(changes) = changes_of(&value.batch) else {
                continue;
            };
            for range in cut.apply(*slot, &changes, self.config.size()) {
                match wanted.iter_mut().find(|known| known.log == range.log) {
                    Some(known) => known.to = range.to,
                    None => wanted.push(range),
                }
            }
        }
        wanted
    }

    /// A server has sent records that were asked for. One answer leads to one question at most for
    /// each log, and only if it was of help: others are under way.
    fn on_fetched(
        &mut self,
        now: Instant,
        log: LogId,
        (first, records): (u64, Vec<Batch>),
        out: &mut Out<'_, Self>,
    ) {
        let before = self.gathering.len();
        self.on_records(log, first, records, out);
        let is_help = self.gathering.len() > before;
        if is_help {
            self.is_behind = true;
            self.asked.remove(&log);
        }
        self.go_on(now, out);
        if is_help {
            self.ask_for_missing(out);
            let ranges = self.next.as_ref().map_or(&[][..], |(_, ranges)| ranges);
            if ranges.iter().any(|range| range.log == log) {
                let attempts = self.fetch.map_or(0, |(_, attempts)| attempts);
                self.fetch = Some((self.answered_by(now, attempts), attempts));
            }
        }
    }

    /// Asks for what is wanted, but for what was asked for already.
    fn ask_for_missing(&mut self, out: &mut Out<'_, Self>) {
        let ranges = self.next.as_ref().map_or(&[][..], |(_, ranges)| ranges);
        let of_next: BTreeSet<LogId> = ranges.iter().map(|range| range.log).collect();
        for range in self.wanted() {
            let log = range.log;
            let asked = match of_next.contains(&log) {
                true => self.asked.keys().filter(|it| of_next.contains(it)).count(),
                false => self.asked.len(),
            };
            if asked >= MOST_ASKED && !self.asked.contains_key(&log) {
                continue;
            }
            let is_asked = |first: &u64| self.asked.get(&log).is_some_and(|end| first < end);
            let first = self.gathering.first_missing(&range);
            let Some(first) = first.filter(|first| !is_asked(first)) else {
                continue;
            };
            let (shard, _) = self.config.place_of(log.server);
            let servers: Set<ServerId> = self.config.servers_of(shard).collect();
            let Some(server) = servers.pick(self.turn) else {
                continue;
            };
            self.fetches += 1;
            out.reached(branch::FETCHES_RECORDS);
            self.asked.insert(log, range.to);
            let message = server::In::FetchRecords {
                from: self.id,
                log,
                first,
                end: range.to,
            };
            out.send(Envelope::ToServers(Set::one(server), message));
        }
    }

    // Telling the others.

    /// Tells servers and aggregators how far the log is: the replica that answers for a cut does at
    /// once, the others now and then.
    fn tell(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let is_due = self.next_telling() <= now || (self.tells && self.told.1 != self.at);
        self.tells = false;
        if !is_due {
            return;
        }
        self.told = (now, self.at);
        let (slot, cut) = (self.at, self.cut.clone());
        let message = server::In::Ordered {
            from: self.id,
            slot,
            kept: self.core().kept_below(),
            cut: cut.clone(),
        };
        out.send(Envelope::ToServers(self.config.servers, message));
        let late = self.late(now);
        let message = aggregator::In::Ordered { slot, cut, late };
        out.send(Envelope::ToAggregators(self.config.aggregators, message));
    }

    /// The shards whose records it has waited for too long.
    fn late(&self, now: Instant) -> Vec<Index> {
        let too_long = self.config.server_timeout() * 2;
        let Some((since, (_, ranges))) = self.waits_since.zip(self.next.as_ref()) else {
            return Vec::new();
        };
        if now.since(since) < too_long {
            return Vec::new();
        }
        let missing = ranges.iter();
        let missing = missing.filter(|range| self.gathering.first_missing(range).is_some());
        let mut shards: Vec<Index> = missing
            .map(|range| self.config.place_of(range.log.server).0)
            .collect();
        shards.dedup();
        shards
    }

    fn next_telling(&self) -> Instant {
        let (at, slot) = self.told;
        let after = match slot == self.at {
            true => ALIVE_EVERY,
            false => self.config.options().heartbeat,
        };
        at + after
    }
}

/// What all replicas execute for a slot: the cut behind it, and the records that it orders.
pub(super) fn value_of<'a>(cut: &Cut, records: impl IntoIterator<Item = &'a Batch>) -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push(&note(encode_all(cut).into()));
    for record in records {
        builder.append(record);
    }
    builder.take()
}

impl Role for Replica {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.inner.restore(stamp, snapshot)
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        self.call(out, |inner, out| inner.on_snapshot(stamp, stored, out));
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.inner.freeze(now, cover)
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |inner, out| inner.on_start(now, out));
        self.go_on(now, out);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Config, out: &mut Out<'_, Self>) {
        self.config = config.clone();
        self.call(out, |inner, out| inner.on_reconfigure(now, config, out));
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.core().is_out() {
            return;
        }
        match message {
            In::Ordering {
                message:
                    Ordering::Chosen {
                        slot,
                        value,
                        replier,
                    },
            } => self.on_chosen(now, slot, (value, replier), out),
            In::Ordering { message } => {
                self.call(out, |inner, out| inner.on_message(now, message, out));
                self.go_on(now, out);
            }
            In::Records {
                log,
                first,
                records,
            } => {
                let before = self.at;
                self.on_records(log, first, records, out);
                self.go_on(now, out);
                // Where these lead on, the next ones will.
                self.is_behind &= self.at == before;
            }
            In::Fetched {
                log,
                first,
                records,
            } => {
                out.reached(branch::FETCHED);
                self.on_fetched(now, log, (first, records), out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |inner, out| inner.on_timer(now, out));
        self.go_on(now, out);
        self.fetch_missing(now, out);
        self.tell(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        if self.core().is_out() {
            return None;
        }
        let fetch = self.fetch.map(|(at, _)| at);
        let own = earliest(Some(self.next_telling()), fetch);
        earliest(self.inner.next_timer(), own)
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.core().is_out() {
            return;
        }
        self.call(out, |inner, out| inner.on_burst_end(now, out));
        self.tell(now, out);
    }

    fn invariants(&self) {
        self.inner.invariants();
        self.gathering.invariants();
        assert_eq!(
            self.at,
            self.inner.executed(),
            "a replica is behind its part"
        );
        assert!(
            self.next.is_none() || self.fetch.is_some(),
            "no timer watches missing records"
        );
    }

    const METRICS: Metrics = &[
        parts::metrics::REPLICA,
        parts::metrics::WORKERS,
        metrics::REPLICA,
    ];

    fn status(&self, status: &mut Status) {
        self.inner.status(status);
        status.add([
            self.cut.base,
            self.gathering.len() as u64,
            self.gathering.bytes() as u64,
            self.gathering.dropped(),
            self.fetches,
        ]);
    }
}
