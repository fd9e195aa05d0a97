//! The part of a replica (2.3, 3.3, 3.4): executes the log in order, answers for the slots that it
//! was named for, answers reads, and catches up when it misses something.

mod catch_up;
pub(crate) mod currency;
mod deferred;
pub mod divergence;
mod early;
mod gate;
mod helping;
mod levels;
pub(crate) mod offer;
mod port;
mod reads;
mod reports;
mod snapshots;
mod stretches;

pub use self::catch_up::Chunk;
use self::catch_up::{Ask, CatchUp, Progress};
use self::currency::Currency;
use self::deferred::Deferred;
use self::divergence::Divergence;
use self::early::Early;
use self::gate::Turns;
pub use self::gate::{Gate, marker, skip};
pub(crate) use self::gate::{Resumption, skipped};
use self::helping::Helping;
use self::offer::Offer;
pub use self::port::ReplicaPort;
use self::reports::Reports;
use self::snapshots::Snapshots;
use super::branch;
use super::message::{ChosenSlots, Times};
use super::workers::workers;
use crate::multipaxos::config::Config;
use crate::multipaxos::kind;
use alloc::sync::Arc;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_replication::batch::{AnswersByClient, Value};
use ionian_replication::executor::Executor;
use ionian_replication::suspicion::{ALIVE_EVERY, PRESENT_FOR, Presence};
use ionian_replication::window::SlotWindow;

/// Answers leave at the latest after this many slots.
const ANSWER_SLOTS: u64 = 64;

/// How far ahead of what it has executed a replica keeps chosen values. What lies beyond is fetched
/// when its turn comes, which takes long: so this is more than what acceptors still hold when all
/// nodes were down at once, which a new leader proposes in one go, namely the slots since the
/// snapshots (`snapshot_slots`) and those that came while these were written.
const MAX_AHEAD: usize = 1 << 18;

/// And at the latest with this many bytes of them.
const AHEAD_BYTES: usize = 64 << 20;

/// Executed values kept for peers hold at most this many bytes, beside the limit of their number.
const RETAINED_BYTES: usize = 64 << 20;

/// While a peer is given a snapshot, what was executed since is kept for it up to these limits: it
/// would otherwise need another snapshot as soon as it has this one.
const OFFER_RETAINED_SLOTS: u64 = MAX_AHEAD as u64 / 2;
const OFFER_RETAINED_BYTES: usize = 2 * RETAINED_BYTES;

/// How often a replica asks for the time when its machine waits for it.
const ASK_CLOCK_EVERY: Duration = Duration::from_millis(50);

/// See the top of this file.
pub struct ReplicaCore {
    id: ReplicaId,
    node: NodeId,
    config: Arc<Config>,
    executor: Executor,
    /// Chosen values: executed ones, kept for peers, and those from `executed` on.
    log: SlotWindow<Chosen>,
    /// Every slot below this one is executed.
    executed: Slot,
    /// The first slot from there on of which it has no value.
    missing: Slot,
    /// Bytes of the executed values in the log, and of the others.
    retained_bytes: usize,
    ahead_bytes: usize,
    /// How far the log is known to reach: something was chosen or voted for below this slot.
    wanted: Slot,
    currency: Currency,
    /// What keeps it from executing what it has.
    gate: Gate,
    turns: Option<Turns>,
    /// A peer is given a snapshot of the state of several logs, before this slot of this one.
    retained_from: Option<Slot>,
    deferred: Deferred,
    early: Early,
    answers: AnswersByClient,
    unbatchers: Set<UnbatcherId>,
    present: Presence<UnbatcherId>,
    turn: u64,
    catch_up: CatchUp,
    helping: Helping,
    offer: Option<Offer>,
    divergence: Divergence,
    snapshots: Snapshots,
    /// The epoch of the membership that the driver was told of last.
    announced: Epoch,
    reports: Reports,
    alive_at: Instant,
    read_batchers: Set<ReadBatcherId>,
    /// The time of the log as a leader told it last, and when.
    told_time: Option<(Instant, Timestamp)>,
    ask_clock_at: Instant,
    /// Values that it was told of and keeps, or has executed.
    learned: u64,
    stale: u64,
    reads: u64,
    installed: u64,
}

struct Chosen {
    value: Value,
    replier: Option<ReplicaId>,
}

impl ReplicaCore {
    /// That of the replica of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ReplicaId(birth.address.index);
        let unbatchers: Set<UnbatcherId> = config.all(kind::Unbatcher);
        ReplicaCore {
            id,
            executor: Executor::with_workers(birth, config.layout(), workers(config.options())),
            log: SlotWindow::new(Slot::ZERO, config.options().retained_slots + MAX_AHEAD),
            executed: Slot::ZERO,
            missing: Slot::ZERO,
            retained_bytes: 0,
            ahead_bytes: 0,
            wanted: Slot::ZERO,
            currency: Currency::default(),
            gate: Gate::Open,
            turns: None,
            retained_from: None,
            deferred: Deferred::default(),
            early: Early::default(),
            answers: AnswersByClient::default(),
            unbatchers: config.near(kind::Unbatcher, birth.node),
            present: Presence::new(unbatchers, PRESENT_FOR),
            turn: random.any() >> 1,
            catch_up: CatchUp::new(config.clone(), id, random),
            helping: Helping::default(),
            offer: None,
            divergence: Divergence::default(),
            snapshots: Snapshots::new(config.clone(), birth.keeps_records),
            announced: Epoch::default(),
            node: birth.node,
            reports: Reports::new(config.clone()),
            alive_at: Instant::ZERO,
            read_batchers: config.all(kind::ReadBatcher),
            told_time: None,
            ask_clock_at: Instant::ZERO,
            learned: 0,
            stale: 0,
            reads: 0,
            installed: 0,
            config,
        }
    }

    /// Every slot below this one is executed.
    pub fn executed(&self) -> Slot {
        self.executed
    }

    /// How many values it has learned in its life: as long as this stays, it holds what it held.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// The chosen values that it holds in slots from this one on.
    pub fn chosen_from(&self, slot: Slot) -> impl Iterator<Item = (Slot, &Value)> {
        self.log
            .iter_from(slot)
            .map(|(slot, chosen)| (slot, &chosen.value))
    }

    // The write path.

    /// A value is chosen; `replier`, if anyone, is to answer the clients.
    pub fn on_chosen(
        &mut self,
        now: Instant,
        slot: Slot,
        value: Value,
        replier: Option<ReplicaId>,
        port: &mut impl ReplicaPort,
    ) {
        self.wanted = self.wanted.max(slot.next());
        self.catch_up.heard(value.batch.byte_len());
        if let Some(known) = self.log.get(slot) {
            // Also when a peer says so that is wrong: one of the two would be executed here and the
            // other elsewhere.
            assert_eq!(known.value, value, "two values chosen in {slot:?}");
            self.stale += 1;
        } else if slot < self.executed || !self.has_room(slot, value.batch.byte_len()) {
            self.stale += 1;
        } else {
            self.ahead_bytes += value.batch.byte_len();
            self.log.insert(slot, Chosen { value, replier });
            self.learned += 1;
            self.find_missing();
        }
        self.execute_ready(now, port);
    }

    /// Whether a value of this many bytes may be kept until its turn comes. The one whose turn it
    /// is always may.
    fn has_room(&self, slot: Slot, bytes: usize) -> bool {
        let ahead = slot.distance(self.executed);
        let near = ahead == 0 || self.ahead_bytes + bytes <= AHEAD_BYTES;
        ahead < MAX_AHEAD as u64 && near && self.log.admits(slot)
    }

    /// Executes as far as the log has no hole.
    fn execute_ready(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        while let Some(chosen) = self.log.get(self.executed)
            && self.gate.lets(self.turns, self.executed, &chosen.value)
        {
            let answers = (chosen.replier == Some(self.id)).then_some(&mut self.answers);
            let bytes = chosen.value.batch.byte_len();
            self.retained_bytes += bytes;
            self.ahead_bytes -= bytes;
            self.snapshots.executed(bytes);
            self.reports.executed(bytes);
            match self.early.pass(self.executed) {
                false => self.executor.execute(self.executed, &chosen.value, answers),
                true => self.executor.pass(&chosen.value),
            }
            if let Some(turns) = self.turns {
                self.turns = Some(turns.after(&chosen.value));
            }
            self.executed = self.executed.next();
            self.note_executed();
            self.forget_old();
            if self.deferred.len() > 0 {
                self.answer_deferred(now);
            }
            // Answers leave with the state they were taken from; a burst may execute much more.
            if self.executed.0.is_multiple_of(ANSWER_SLOTS) || self.answers.is_full() {
                self.flush_answers(now, false, port);
            }
        }
        self.watch(now);
        self.announce_membership(port);
        self.tell_marks(port);
    }

    /// Announces a new membership to the driver, which reconfigures roles and notifies peers.
    fn announce_membership(&mut self, port: &mut impl ReplicaPort) {
        let membership = self.executor.membership();
        if membership.epoch > self.announced {
            self.announced = membership.epoch;
            port.announce(membership.clone());
            self.follow_level();
        }
    }

    /// Continues at `end`; peers behind it need a snapshot.
    fn pass_over(&mut self, end: Slot) {
        self.executed = end;
        self.retained_bytes = 0;
        match end < self.log.end() {
            true => self.log.advance_to(end),
            false => self.log.reset(end),
        }
        self.missing = end;
        self.find_missing();
        self.ahead_bytes = self
            .log
            .iter()
            .map(|(_, chosen)| chosen.value.batch.byte_len())
            .sum();
        self.wanted = self.wanted.max(end);
    }

    fn forget_old(&mut self) {
        let retained = self.config.options().retained_slots as u64;
        while self.log.base() < self.executed {
            let offered = self
                .offer
                .as_ref()
                .map(|offer| offer.executed)
                .or(self.retained_from);
            let (slots, bytes) = match offered.is_some_and(|from| from <= self.log.base()) {
                true => (retained.max(OFFER_RETAINED_SLOTS), OFFER_RETAINED_BYTES),
                false => (retained, RETAINED_BYTES),
            };
            if self.executed.distance(self.log.base()) <= slots && self.retained_bytes <= bytes {
                return;
            }
            let oldest = self.log.base();
            self.retained_bytes -= self
                .log
                .get(oldest)
                .map_or(0, |chosen| chosen.value.batch.byte_len());
            self.log.advance_to(oldest.next());
        }
    }

    // Catching up, and helping peers to.

    fn ask_for_missing(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        match self.catch_up.ask(now) {
            None => {}
            Some(Ask::Peer(peer)) => {
                port.reached(branch::FETCHES);
                self.fetch(peer, port);
            }
            Some(Ask::Leader) => self.ask_leader(port),
            Some(Ask::Snapshot(peer, executed, offset)) => {
                port.reached(branch::FETCHES_SNAPSHOT);
                port.fetch_snapshot(peer, executed, offset);
            }
        }
    }

    /// What a peer has of the slots that this replica misses.
    pub fn on_fetched(
        &mut self,
        now: Instant,
        from: ReplicaId,
        slots: ChosenSlots,
        port: &mut impl ReplicaPort,
    ) {
        let before = self.missing;
        for (slot, value) in slots {
            self.on_chosen(now, slot, value, None, port);
        }
        let helps = self.missing > before;
        let next = self.catch_up.answered(from, helps);
        if helps && self.missing < self.wanted && self.fetches_ahead() {
            // More is missing: the peer is asked again at once.
            self.ask_peer(now, from, port);
        } else if let Some(next) = next {
            port.reached(branch::FETCHES_MORE);
            self.fetch(next, port);
        }
    }

    /// Asks a peer for what is missing.
    fn fetch(&self, peer: ReplicaId, port: &mut impl ReplicaPort) {
        let waits = self.catch_up.is_cut_off();
        port.fetch(peer, (self.missing, self.wanted), waits);
    }

    fn ask_any_peer(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        self.turn += 1;
        let peers = self.config.replicas().without(Set::one(self.id));
        if let Some(peer) = peers.pick(self.turn) {
            self.ask_peer(now, peer, port);
        }
    }

    fn ask_peer(&mut self, now: Instant, peer: ReplicaId, port: &mut impl ReplicaPort) {
        port.reached(branch::FETCHES_MORE);
        self.fetch(peer, port);
        self.catch_up.asked_already(now, self.missing);
    }

    /// A piece of a peer's snapshot.
    pub fn on_chunk(&mut self, now: Instant, chunk: Chunk, port: &mut impl ReplicaPort) {
        if chunk.executed <= self.executed {
            return;
        }
        self.want_with_others(now, chunk.executed);
        match self.catch_up.on_chunk(now, chunk) {
            Progress::None => {}
            Progress::Next(peer, executed, offset) => {
                port.fetch_snapshot(peer, executed, offset);
            }
            Progress::Whole(executed, snapshot) => self.install(now, executed, &snapshot, port),
        }
    }

    fn install(
        &mut self,
        now: Instant,
        executed: Slot,
        snapshot: &Bytes,
        port: &mut impl ReplicaPort,
    ) {
        // A snapshot that does not restore is a peer's mistake; another peer is asked in due time.
        let epoch = self.executor.membership().epoch;
        if self.executor.restore(snapshot).is_err() {
            self.stale += 1;
            return;
        }
        if self.executor.membership().epoch != epoch {
            self.snapshots.level_changed(executed);
        }
        self.installed += 1;
        port.reached(branch::INSTALLS);
        self.early.forget();
        self.pass_over(executed);
        self.begin_to_compare();
        self.answer_deferred(now);
        self.execute_ready(now, port);
        if self.executed < self.wanted {
            self.ask_any_peer(now, port);
        }
    }

    // Telling the leaders.

    fn report(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        self.reports.tell(now, self.executed);
        let times = Times {
            clock: now.timestamp(),
            log: self.executor.now(),
        };
        let kept = self.snapshots.kept(self.executed);
        port.report_executed(self.executed, kept, times);
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            port.alive(self.read_batchers);
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

    /// The time that the log has by now, as far as this replica can tell: its own clock counts on
    /// from what a leader told it, and for itself only as long as none did.
    fn log_time(&self, now: Instant) -> Timestamp {
        self.told_time.map_or(now.timestamp(), |(at, time)| {
            Timestamp(time.0.saturating_add(now.since(at).as_millis() as u64))
        })
    }

    fn ask_clock(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        let Some(deadline) = self.executor.next_deadline() else {
            return;
        };
        self.ask_clock_at = now + ASK_CLOCK_EVERY;
        port.reached(branch::ASKS_CLOCK);
        port.advance_clock(deadline);
    }

    /// A leader is alive; the log is known to reach up to `wanted`, what is below `keep` is to be
    /// kept through a crash as soon as it is executed, and `time` is what the leader would stamp.
    pub fn on_heartbeat(&mut self, now: Instant, wanted: Slot, keep: Slot, time: Timestamp) {
        self.told_time = Some((now, time));
        self.snapshots.want(keep);
        self.wanted = self.wanted.max(wanted);
        let interval = self.config.options().heartbeat;
        self.currency.on_heartbeat(now, interval, self.wanted);
        self.watch(now);
    }

    /// An unbatcher is alive.
    pub fn on_unbatcher_alive(&mut self, now: Instant, from: UnbatcherId) {
        self.present.heard(from, now);
    }

    /// All that was stored is restored.
    pub fn start(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        self.present.start(now);
        self.announce_membership(port);
        self.report(now, port);
    }

    /// The membership has changed, or an option.
    pub fn reconfigure(&mut self, config: Arc<Config>) {
        self.unbatchers = config.near(kind::Unbatcher, self.node);
        self.present.reconfigure(config.all(kind::Unbatcher));
        self.read_batchers = config.all(kind::ReadBatcher);
        self.catch_up.reconfigure(config.clone());
        self.log
            .set_limit(config.options().retained_slots + MAX_AHEAD);
        self.snapshots.reconfigure(config.clone());
        self.reports.reconfigure(config.clone());
        self.config = config;
        self.compare_by_options();
        // At once: what is kept beyond what is to be kept would leave no room for what comes next.
        self.forget_old();
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        self.ask_for_missing(now, port);
        self.answer_deferred(now);
        if self.reports.at() <= now {
            self.deferred.drop_hopeless(now);
            self.report(now, port);
        }
        if self.clock_timer().is_some_and(|at| at <= now) {
            self.ask_clock(now, port);
        }
        self.offer = self.offer.take().filter(|offer| !offer.is_abandoned(now));
    }

    /// When it next wants to be called though nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
        if self.is_out() {
            return None;
        }
        // Reads that can be answered wait only for answers to leave: they are next.
        if self.deferred.is_ready(self.executed) {
            return Some(Instant::ZERO);
        }
        earliest(
            earliest(Some(self.reports.at()), self.catch_up.next_timer()),
            self.clock_timer(),
        )
    }

    /// Sends what has come together in a burst.
    pub fn on_burst_end(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        self.flush_answers(now, true, port);
        self.help_those_that_wait(now, port);
        if self.snapshots.are_free() && self.is_to_be_kept() && self.is_a_prefix(now) {
            self.store(port);
        }
        match self.reports.is_due(self.executed) {
            true => self.report(now, port),
            false => self.reports.tell_soon(now, self.executed),
        }
    }

    /// Asserts what must hold between two calls.
    pub fn invariants(&self) {
        assert!(
            self.log.base() <= self.executed,
            "a replica forgot what it has not executed"
        );
        let bytes = |(_, chosen): (Slot, &Chosen)| chosen.value.batch.byte_len();
        let held: usize = self.log.iter().map(bytes).sum();
        assert_eq!(
            held,
            self.retained_bytes + self.ahead_bytes,
            "a replica lost count of its log"
        );
        assert!(
            self.log.get(self.executed).is_none() || self.waits_at_gate(),
            "a replica holds back what it could execute"
        );
        let hole = self.missing < self.wanted && self.fetches_ahead();
        assert!(
            !hole || self.catch_up.next_timer().is_some(),
            "no replica watches a hole"
        );
        self.deferred.invariants();
    }

    /// Reports how far it is, and [its work](super::metrics::REPLICA).
    pub(crate) fn report_status(&self, status: &mut Status) {
        status.epoch = Some(self.executor.membership().epoch);
        status.executed = Some(self.executed);
        status.log_end = Some(self.wanted);
        status.current_until = Some(self.current_until());
        status.stored = Some(self.snapshots.kept(self.executed));
        status.level_stored = Some(self.snapshots.have_level(self.executed));
        status.agreement = Some(self.agreement());
        status.snapshots_installed = Some(self.installed);
        status.add([
            self.executed.distance(self.log.base()),
            self.log.room() as u64,
            self.executor.session_count() as u64,
            self.reads,
            self.executor.failed_reads(),
            self.deferred.len() as u64,
            self.catch_up.asked,
            self.stale,
        ]);
        status.add(self.divergence_status());
        status.add(self.executor.workers());
    }
}
