//! What keeps a replica from executing what it has: nothing, where there is one log. In P-SMR a
//! replica follows several, which wait for each other at markers.

use super::{AHEAD_BYTES, MAX_AHEAD, ReplicaCore, ReplicaPort};
use bytes::Bytes;
use ionian_kernel::id::{ClientId, ReplicaId, Slot};
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, Command, Purpose, Value};
use ionian_replication::executor::Executor;

/// See the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Nothing does.
    Open,
    /// It executes slots below this one.
    Below(Slot),
    /// It stops before a [`marker`] of a slot above this one, below which the other log is
    /// executed; or, by turns, before a value whose turn is after a message above this one.
    Marker(Slot),
}

/// Where the logs are merged by turns: how a replica counts them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// It takes this many messages of its own log, and then as many of the other.
    every: u64,
    /// How many it has taken since it began to count.
    taken: u64,
    /// Whether the next value, if it is a skip, counts for nothing: counting began before it.
    ends_skip: bool,
}

impl Turns {
    fn new(every: u64) -> Self {
        Turns {
            every,
            taken: 0,
            ends_skip: false,
        }
    }

    /// How many messages a value counts for.
    fn weight(self, value: &Value) -> u64 {
        match skipped(&value.batch) {
            Some(_) if self.ends_skip => 0,
            Some(count) => count,
            None => 1,
        }
    }

    /// This number of messages of the other log come before the last message of a value.
    fn until(self, value: &Value) -> Slot {
        let last = self.taken.saturating_add(self.weight(value));
        Slot(last.saturating_sub(1) / self.every * self.every)
    }

    /// The count behind a value.
    pub(super) fn after(self, value: &Value) -> Self {
        Turns {
            taken: self.taken.saturating_add(self.weight(value)),
            ends_skip: false,
            ..self
        }
    }
}

/// Where a replica continues in its log with the state that it has taken over from a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    /// The state is that before this slot.
    pub(crate) executed: Slot,
    /// This gate holds from there on.
    pub(crate) gate: Gate,
    /// See [`ReplicaCore::begin_turns`].
    pub(crate) ends_skip: bool,
}

/// A batch that says: before this, every slot of another log below `until` is executed.
pub fn marker(until: Slot) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: until.0,
        floor: 0,
        payload: Bytes::new(),
    })
}

/// A batch that stands for `count` messages without effect, where logs are merged by turns.
pub fn skip(count: u64) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: 0,
        floor: count,
        payload: Bytes::new(),
    })
}

/// The messages that a [`skip`] stands for.
pub(crate) fn skipped(batch: &Batch) -> Option<u64> {
    let first = batch.commands().next()?;
    (first.purpose == Purpose::Internal && first.floor > 0).then_some(first.floor)
}

/// Before this value the other log is executed below the slot that is given, if it says so; by
/// turns, below the message of this number.
fn until(turns: Option<Turns>, value: &Value) -> Option<Slot> {
    if let Some(turns) = turns {
        return Some(turns.until(value));
    }
    let first = value.batch.commands().next()?;
    (first.purpose == Purpose::Internal).then_some(Slot(first.number))
}

impl Gate {
    #[inline]
    pub(super) fn lets(self, turns: Option<Turns>, slot: Slot, value: &Value) -> bool {
        match self {
            Gate::Open => true,
            Gate::Below(end) => slot < end,
            Gate::Marker(reached) => until(turns, value).is_none_or(|until| until <= reached),
        }
    }
}

impl ReplicaCore {
    /// Executes what this gate lets pass.
    pub(crate) fn open(&mut self, now: Instant, gate: Gate, port: &mut impl ReplicaPort) {
        self.gate = gate;
        self.execute_ready(now, port);
    }

    /// This gate holds from now on. Of what it has, nothing is executed yet.
    pub(crate) fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Logs are merged by turns of this many messages.
    pub(crate) fn take_turns(&mut self, every: u64) {
        self.turns = Some(Turns::new(every));
    }

    /// Begins to count turns anew, before the same value on all replicas. With `ends_skip` that
    /// value counts for nothing if it is a skip: a skip that is longer than what the other log has
    /// between two such places would never have its turn.
    pub(crate) fn begin_turns(&mut self, ends_skip: bool) {
        self.turns = self.turns.map(|turns| Turns {
            ends_skip,
            ..Turns::new(turns.every)
        });
    }

    /// How many messages its log has up to the first slot that is missing, by turns: of those that
    /// are executed, since it began to count.
    pub(crate) fn messages_at_hand(&self) -> u64 {
        let ahead = self
            .log
            .iter_from(self.executed)
            .zip(self.executed.until(Slot::MAX));
        let in_turn = ahead.take_while(|((slot, _), next)| slot == next);
        let turns = self.turns.unwrap_or(Turns::new(1));
        let after = in_turn.fold(turns, |turns, ((_, chosen), _)| turns.after(&chosen.value));
        after.taken
    }

    /// Whether it has all of its log that it knows of.
    pub(crate) fn is_complete(&self) -> bool {
        self.log.base().plus(self.log.len() as u64) >= self.wanted
    }

    /// Values have come, or it goes on elsewhere.
    pub(super) fn find_missing(&mut self) {
        self.missing = self.missing.max(self.executed);
        while self.log.get(self.missing).is_some() {
            self.missing = self.missing.next();
        }
    }

    /// Its state is that before the slot `executed`, from a snapshot stored before a crash.
    pub(crate) fn begin_at(&mut self, executed: Slot) {
        (self.executed, self.wanted) = (executed, executed);
        self.snapshots.stored(executed, self.executor.work());
        self.log.reset(executed);
        self.missing = executed;
        self.begin_to_compare();
    }

    /// Whether it has the slot that it executes next, and does not execute it.
    pub(crate) fn waits_at_gate(&self) -> bool {
        let next = self.log.get(self.executed);
        next.is_some_and(|next| !self.gate.lets(self.turns, self.executed, &next.value))
    }

    /// Watches for the first slot that is missing, also while it waits at a gate: the logs are
    /// fetched side by side, and other logs wait until what is in this one is known.
    pub(super) fn watch(&mut self, now: Instant) {
        self.currency.executed(self.executed);
        if self.catch_up.is_installing() {
            self.catch_up.watch(now, self.executed, self.wanted);
        } else if self.fetches_ahead() {
            self.catch_up.watch(now, self.missing, self.wanted);
        } else {
            self.catch_up.pause(self.missing);
        }
    }

    /// Until when it counts as one that holds what is chosen. One that installs a snapshot lacks
    /// what others have dropped.
    pub(super) fn current_until(&self) -> Instant {
        match self.catch_up.is_installing() || self.is_out() {
            true => Instant::ZERO,
            false => self.currency.until(self.config.options()),
        }
    }

    /// Whether more is fetched: what waits at a gate must leave room for what comes by itself.
    pub(super) fn fetches_ahead(&self) -> bool {
        let ahead = self.missing.distance(self.executed);
        ahead == 0 || (ahead < MAX_AHEAD as u64 / 2 && self.ahead_bytes < AHEAD_BYTES / 2)
    }

    /// What the marker says that it has stopped before.
    pub(crate) fn stopped_until(&self) -> Option<Slot> {
        let next = self.log.get(self.executed)?;
        until(self.turns, &next.value).filter(|_| self.waits_at_gate())
    }

    /// As far as it knows, the log ends before this slot.
    pub(crate) fn known_end(&self) -> Slot {
        self.wanted
    }

    /// The log reaches up to this slot: what is missing below is asked for, as far as it would be
    /// kept.
    pub(crate) fn want(&mut self, now: Instant, end: Slot) {
        let limit = self.executed.plus(MAX_AHEAD as u64);
        self.wanted = self.wanted.max(end.min(limit));
        self.watch(now);
    }

    /// A peer's snapshot reaches up to a slot. This replica may know no more of this log,
    /// and lack slots of others.
    pub(super) fn want_with_others(&mut self, now: Instant, end: Slot) {
        if self.gate != Gate::Open {
            self.want(now, end);
        }
    }

    /// Whether it has a snapshot at hand for peers.
    pub(crate) fn has_offer(&self) -> bool {
        self.offer.is_some()
    }

    /// A peer is given a snapshot of the present state of several logs: what comes next is kept for
    /// it.
    pub(crate) fn retain_from_now(&mut self) {
        self.retained_from = Some(self.executed);
    }

    /// Whether it keeps more than it would without that.
    pub(crate) fn retains_more(&self) -> bool {
        self.retained_from.is_some()
    }

    /// The peer has the snapshot.
    pub(crate) fn retain_as_ever(&mut self) {
        self.retained_from = None;
        self.forget_old();
    }

    /// Whether it takes in a snapshot.
    pub(crate) fn is_installing(&self) -> bool {
        self.catch_up.is_installing()
    }

    /// What it executes its log on.
    pub(crate) fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Its state is kept together with that of another log: it stores and offers no snapshots.
    pub(crate) fn keep_elsewhere(&mut self) {
        self.snapshots.keep_elsewhere();
    }

    /// A snapshot of its state before the slot `executed` is on disk.
    pub(crate) fn kept(&mut self, executed: Slot) {
        self.snapshots.stored(executed, self.executor.work());
    }

    /// The bytes of the commands that were executed since the process started, and the work of
    /// the machine.
    pub(crate) fn done(&self) -> (u64, u64) {
        (self.snapshots.executed_bytes(), self.executor.work())
    }

    /// Every slot below this one would be found again after a crash.
    pub(crate) fn kept_below(&self) -> Slot {
        self.snapshots.kept(self.executed)
    }

    /// Whether its state has changed since it was kept last.
    pub(crate) fn is_ahead_of_kept(&self) -> bool {
        self.kept_below() < self.executed
    }

    /// The slot behind the marker, or skip, that it stops before, if that lets it pass when the
    /// other log is executed below `reached`: it changes nothing but the time. Each replica that
    /// has stopped there has it; what comes behind it some may lack, even if it is a marker.
    pub(crate) fn behind_marker(&self, reached: Slot) -> Slot {
        let says_nothing = |batch: &Batch| {
            let mut commands = batch.commands();
            commands.all(|command| command.purpose == Purpose::Internal) && !batch.is_empty()
        };
        let passes = |value: &Value| {
            let until = until(self.turns, value);
            says_nothing(&value.batch) && until.is_some_and(|until| until <= reached)
        };
        match self.log.get(self.executed) {
            Some(next) if passes(&next.value) => self.executed.next(),
            _ => self.executed,
        }
    }

    /// Whether enough was executed since its state was kept last.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        self.snapshots
            .is_enough(self.executed, self.executor.work())
    }

    /// Stores a snapshot.
    pub(crate) fn store(&mut self, port: &mut impl ReplicaPort) {
        self.snapshots.begin(self.executed, self.executor.work());
        port.store_snapshot(self.executed.0, self.executor.freeze());
    }

    /// Its state was replaced.
    pub(crate) fn was_replaced(
        &mut self,
        now: Instant,
        resumption: Resumption,
        port: &mut impl ReplicaPort,
    ) {
        self.begin_turns(resumption.ends_skip);
        self.pass_over(resumption.executed);
        self.begin_to_compare();
        self.answer_deferred(now);
        self.open(now, resumption.gate, port);
    }

    /// Hands a peer the snapshot at hand, if it is of a state behind the slot `beyond`.
    pub(crate) fn offer_at_hand(
        &mut self,
        now: Instant,
        to: ReplicaId,
        beyond: Slot,
        port: &mut impl ReplicaPort,
    ) -> bool {
        let offer = self.offer.as_ref();
        let has = offer.is_some_and(|offer| offer.executed > beyond);
        if has {
            self.send_chunk(now, to, 0, port);
        }
        has
    }

    /// Hands a peer a snapshot of the present state.
    pub(crate) fn offer(&mut self, now: Instant, to: ReplicaId, port: &mut impl ReplicaPort) {
        let offer = self.offer.as_ref();
        if offer.is_none_or(|offer| offer.executed < self.executed) {
            self.make_offer(now);
        }
        self.send_chunk(now, to, 0, port);
    }
}
