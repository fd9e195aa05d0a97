//! The way of a write through a chain node: numbered by the head, stored, passed on, committed by
//! the tail, applied and acknowledged.
//!
//! What is under way is bounded at the head, in number (`window_slots`) and in bytes
//! (`window_bytes`, small batches and large ones apart): what is not committed is held by every
//! node of the chain, and is what may have to be sent again. What comes beyond that waits, the
//! small ones not behind the large ones. What comes again while it waits is dropped, and so is what
//! finds no room: its clients ask again.

use super::changing::change_in;
use super::{ChainNode, In, Record};
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::{Envelope, batcher, branch, client};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::machine::Footprint;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::queue::{Held, Queue};

/// How often the wait doubles until a successor is sent the same again.
const DOUBLINGS: u32 = 4;

/// A batch that waits at the head, with the batcher that waits for it.
type Waiting = (Batch, Option<(BatcherId, u64)>);

/// What a chain node keeps for the writes under way.
pub(super) struct Writes {
    /// Batches for which the window has no room, and what is in hand while there are some.
    queue: Queue<Waiting>,
    held: Held,
    /// The batchers that wait for entries.
    owners: BTreeMap<Slot, (BatcherId, u64)>,
    done: SmallMap<BatcherId, Vec<u64>>,
    /// Whether the predecessor is to be sent an acknowledgement, and what the last one said is
    /// committed.
    ack_due: bool,
    acknowledged: Slot,
    pub(super) dropped: u64,
    pub(super) repeated: u64,
    /// What the last entry touches. Reused.
    footprint: Footprint,
    /// Whether this node writes entries to its disk.
    keeps_records: bool,
}

impl Writes {
    pub(super) fn new(keeps_records: bool) -> Self {
        Writes {
            queue: Queue::default(),
            held: Held::default(),
            owners: BTreeMap::new(),
            done: SmallMap::new(),
            ack_due: false,
            acknowledged: Slot::ZERO,
            dropped: 0,
            repeated: 0,
            footprint: Footprint::default(),
            keeps_records,
        }
    }
}

/// What is known of the predecessor in this epoch.
#[derive(Debug, Default)]
pub(super) struct Up {
    /// Whether it has handed over, or there is none.
    pub(super) synced: bool,
    /// When it is asked again.
    pub(super) ask_at: Instant,
}

impl Up {
    pub(super) fn new(now: Instant, is_head: bool) -> Self {
        Up {
            synced: is_head,
            ask_at: now,
        }
    }
}

/// What is known of the successor in this epoch.
#[derive(Debug)]
pub(super) struct Down {
    /// It has received every entry below this one.
    pub(super) received: Slot,
    /// Entries up to here were sent.
    pub(super) sent: Slot,
    /// When they are sent again, if nothing is heard of them.
    pub(super) resend_at: Instant,
    pub(super) attempts: u32,
}

impl ChainNode {
    /// Commands come in.
    pub(super) fn on_write(
        &mut self,
        now: Instant,
        (batch, from): Waiting,
        handed: bool,
        out: &mut Out<'_, Self>,
    ) {
        if let Some(change) = change_in(&batch) {
            return self.on_change(now, &change, out);
        }
        if !self.is_head() {
            if !handed && from.is_none() {
                self.replies.note(&batch);
            }
            return self.hand_on(batch, from, handed, out);
        }
        if self.writes.queue.is_empty() && self.has_room(batch.byte_len()) {
            return self.propose(now, batch, from, out);
        }
        let Writes { queue, held, .. } = &mut self.writes;
        let pending = self.history.iter_from(self.history.applied());
        if held.has(&batch, queue, pending.map(|(_, value)| &value.batch)) {
            self.writes.repeated += 1;
            return;
        }
        held.add(&batch);
        let class = self.history.flow().class(batch.byte_len());
        if let Err((batch, _)) = queue.push(class, (batch, from)) {
            held.remove(&batch);
            self.writes.dropped += 1;
            return;
        }
        queue.drop_settled(
            now,
            |floors, (batch, _)| floors.settle(batch),
            |(batch, _)| held.remove(&batch),
        );
        out.reached(branch::QUEUED);
        self.propose_queued(now, out);
    }

    /// The head gets a write that came here, and the sender learns who that is. One that was handed
    /// on already is dropped: two nodes that take each other for the head would hand it on without
    /// end.
    fn hand_on(
        &mut self,
        batch: Batch,
        from: Option<(BatcherId, u64)>,
        handed: bool,
        out: &mut Out<'_, Self>,
    ) {
        let chain = || self.chain.clone();
        match from {
            Some((batcher, _)) => {
                let message = batcher::In::Chain { chain: chain() };
                out.send(Envelope::ToBatchers(Set::one(batcher), message));
            }
            None => {
                let clients: Set<ClientId> = batch.commands().map(|one| one.client).collect();
                let message = client::In::Chain { chain: chain() };
                out.send(Envelope::ToClients(clients, message));
            }
        }
        let head = self.chain.head().filter(|head| *head != self.id && !handed);
        match head {
            Some(head) => {
                out.reached(branch::HANDED_ON);
                let handed = true;
                let message = In::Write {
                    batch,
                    from,
                    handed,
                };
                self.send(head, message, out);
            }
            None => self.writes.dropped += 1,
        }
    }

    /// It is no longer the head: what waits here is for another one.
    pub(super) fn hand_on_writes(&mut self, out: &mut Out<'_, Self>) {
        self.writes.owners.clear();
        self.writes.held.clear();
        for (batch, from) in core::mem::take(&mut self.writes.queue).drain() {
            self.hand_on(batch, from, false, out);
        }
    }

    /// Whether the window has room for a batch of this size.
    fn has_room(&self, bytes: usize) -> bool {
        self.is_open() && self.history.flow().has_room(bytes)
    }

    /// Whether the window has room for a batch, whatever its size.
    fn is_open(&self) -> bool {
        self.numbers() && self.history.pending() < self.config.options().window_slots
    }

    /// Whether the head numbers anything. It must know the clocks of enough nodes to stamp it: of f
    /// beside its own, so that one is right. It needs no more than f failures leave, or than there
    /// are other members if these are more: a dead one leaves the chain. And it must not be sealed.
    fn numbers(&self) -> bool {
        let (now, _) = self.config.standing();
        let (nodes, f) = (now.len(), self.config.layout().f);
        let alive = (nodes - 1).saturating_sub(f);
        let others = self.chain.members.len().saturating_sub(1);
        !self.sealing.is_sealed() && self.peers.known() >= f.min(alive.max(others))
    }

    /// Numbers what waits, as far as there is room.
    pub(super) fn propose_queued(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while self.is_head() && self.is_open() {
            let flow = self.history.flow();
            let Some((batch, from)) = self.writes.queue.pop(|bytes| flow.has_room(bytes)) else {
                break;
            };
            self.propose(now, batch, from, out);
        }
        if self.writes.queue.is_empty() {
            self.writes.held.clear();
        }
    }

    /// The head gives a batch the next number.
    fn propose(
        &mut self,
        now: Instant,
        batch: Batch,
        from: Option<(BatcherId, u64)>,
        out: &mut Out<'_, Self>,
    ) {
        self.learn_time(now);
        let stamp = self.clock.stamp(now);
        if let Some(owner) = from {
            self.writes.owners.insert(self.history.end(), owner);
        }
        self.receive(Value { stamp, batch }, out);
        self.commit_as_tail(now, out);
    }

    /// A new head's clock may be behind: time never falls, and goes on from there.
    fn learn_time(&mut self, now: Instant) {
        let last = self.history.last_stamp().unwrap_or_default();
        self.clock.learn(now, last.max(self.executor.now()));
    }

    /// If time is up for something in the state machine, the head lets it pass. What is under way
    /// has a stamp too: time passes with it.
    pub(super) fn pass_time(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some(deadline) = self.executor.next_deadline().filter(|_| self.is_head()) else {
            return;
        };
        self.learn_time(now);
        let is_due = deadline <= self.clock.read(now);
        if is_due && self.numbers() && self.history.pending() == 0 {
            self.propose(now, Batch::default(), None, out);
        }
    }

    /// Stores the next entry.
    fn receive(&mut self, value: Value, out: &mut Out<'_, Self>) {
        let (slot, committed) = (self.history.end(), self.history.applied());
        out.persist(Record::Entry {
            slot,
            committed,
            value: value.clone(),
        });
        self.add(value);
    }

    /// Takes in the next entry.
    pub(super) fn add(&mut self, value: Value) {
        let footprint = &mut self.writes.footprint;
        footprint.clear();
        self.executor.add_footprint(&value.batch, footprint);
        self.history.push(value, footprint);
    }

    /// Entries come for a node that copies: every entry below `committed` is committed.
    pub(super) fn receive_committed(
        &mut self,
        start: Slot,
        mut values: Vec<Value>,
        committed: Slot,
        out: &mut Out<'_, Self>,
    ) {
        values.truncate(committed.distance(start) as usize);
        self.receive_all(start, values, out);
        self.apply(committed, false);
    }

    /// Stores those of the entries that are new; says whether any is.
    pub(super) fn receive_all(
        &mut self,
        start: Slot,
        values: Vec<Value>,
        out: &mut Out<'_, Self>,
    ) -> bool {
        let known = self.history.end().distance(start) as usize;
        let is_new = values.len() > known;
        for value in values.into_iter().skip(known) {
            self.receive(value, out);
        }
        is_new
    }

    /// Entries come from the predecessor.
    pub(super) fn on_forward(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        start: Slot,
        values: Vec<Value>,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        if Some(from) != self.predecessor() || self.sealing.is_sealed() {
            self.stale += 1;
            return;
        }
        if start > self.history.end() {
            // They come again, after those that are missing.
            out.reached(branch::GAP);
            self.stale += 1;
            return;
        }
        let is_new = self.receive_all(start, values, out);
        self.writes.ack_due |= !is_new;
        self.commit_as_tail(now, out);
    }

    /// All that the tail has received is committed as soon as its disk has it: it says so to
    /// itself, in a message that waits for that.
    pub(super) fn commit_as_tail(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (epoch, received) = (self.chain.epoch, self.history.end());
        if !self.is_tail() || self.history.pending() == 0 {
            return;
        }
        match self.writes.keeps_records {
            true => self.send(self.id, In::Stored { epoch, received }, out),
            false => self.commit(now, received, out),
        }
    }

    /// The tail's disk has what it had received.
    pub(super) fn on_stored(
        &mut self,
        now: Instant,
        epoch: ChainEpoch,
        received: Slot,
        out: &mut Out<'_, Self>,
    ) {
        match epoch == self.chain.epoch && self.is_tail() {
            true => self.commit(now, received, out),
            false => self.stale += 1,
        }
    }

    /// Every entry below `end` is committed. The tail answers the clients.
    pub(super) fn commit(&mut self, now: Instant, end: Slot, out: &mut Out<'_, Self>) {
        let answers = self.is_tail();
        while self.history.applied() < end.min(self.history.end()) {
            self.apply(self.history.applied().next(), answers);
            if self.replies.answers.is_full() {
                self.flush_answers(now, false, None, out);
            }
        }
    }

    /// Applies the entries below `end`. If it `answers` clients, and else those that have asked it.
    pub(super) fn apply(&mut self, end: Slot, answers: bool) {
        while self.history.applied() < end.min(self.history.end()) {
            let slot = self.history.applied();
            let value = self.history.get(slot).expect("it is not applied yet");
            self.snapshots.applied(value.batch.byte_len());
            self.writes.held.remove(&value.batch);
            let answers = self.replies.to(&value.batch, answers);
            self.executor.execute(slot, value, answers);
            self.history.apply();
            if let Some((batcher, number)) = self.writes.owners.remove(&slot) {
                self.writes.done.entry(batcher).or_default().push(number);
            }
        }
    }

    /// Sends the successor what it was not sent yet.
    pub(super) fn forward(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some(successor) = self.successor() else {
            return;
        };
        let wait = self.config.options().resend_after;
        let (end, epoch) = (self.history.end(), self.chain.epoch);
        let Some(down) = &mut self.down else {
            return;
        };
        while down.sent < end {
            let values = self.history.some(down.sent, end);
            if values.is_empty() {
                // It has them, though it has not said so yet: it will.
                self.down = None;
                return;
            }
            if down.sent == down.received {
                (down.resend_at, down.attempts) = (now + wait, 0);
            }
            let start = down.sent;
            down.sent = start.plus(values.len() as u64);
            let message = In::Forward {
                from: self.id,
                epoch,
                start,
                values,
            };
            out.send(Envelope::ToChainNodes(Set::one(successor), message));
        }
    }

    /// When the successor is sent again what it has not acknowledged.
    pub(super) fn resend_timer(&self, down: &Down) -> Option<Instant> {
        let is_open = self.history.pending() > 0 || down.received < self.history.end();
        is_open.then_some(down.resend_at)
    }

    /// Sends again what is not acknowledged; or nothing but a question, if all is received.
    pub(super) fn resend(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (Some(successor), Some(down)) = (self.successor(), &self.down) else {
            return;
        };
        if self.resend_timer(down).is_none_or(|at| at > now) {
            return;
        }
        out.reached(branch::RESENT);
        let wait = self.config.options().resend_after;
        let (received, epoch) = (down.received, self.chain.epoch);
        let values = self.history.some(received, self.history.end());
        let down = self.down.as_mut().expect("just looked at");
        down.sent = received.plus(values.len() as u64);
        down.attempts += 1;
        down.resend_at = now + doubled(wait, down.attempts, DOUBLINGS);
        let message = In::Forward {
            from: self.id,
            epoch,
            start: received,
            values,
        };
        self.send(successor, message, out);
    }

    /// The successor says how far it is.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        (received, committed): (Slot, Slot),
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        let (is_successor, end) = (Some(from) == self.successor(), self.history.end());
        let wait = self.config.options().resend_after;
        let Some(down) = self.down.as_mut().filter(|_| is_successor) else {
            self.stale += 1;
            return;
        };
        if received > down.received || committed > self.history.applied() {
            (down.attempts, down.resend_at) = (0, now + wait);
        }
        down.received = down.received.max(received.min(end));
        down.sent = down.sent.max(down.received);
        self.commit(now, committed, out);
    }

    /// Tells the predecessor what is committed.
    pub(super) fn acknowledge(&mut self, out: &mut Out<'_, Self>) {
        let applied = self.history.applied();
        let is_due = core::mem::take(&mut self.writes.ack_due);
        if !is_due && applied <= self.writes.acknowledged {
            return;
        }
        self.writes.acknowledged = applied;
        if let Some(predecessor) = self.predecessor() {
            let message = In::Ack {
                from: self.id,
                epoch: self.chain.epoch,
                received: self.history.end(),
                committed: applied,
            };
            self.send(predecessor, message, out);
        }
    }

    /// The predecessor is to learn how far this node is.
    pub(super) fn writes_ack(&mut self) {
        self.writes.ack_due = true;
    }

    /// Batchers learn which of their batches are executed.
    pub(super) fn tell_batchers(&mut self, out: &mut Out<'_, Self>) {
        while let Some((batcher, numbers)) = self.writes.done.pop_first() {
            let message = batcher::In::BatchesDone { numbers };
            out.send(Envelope::ToBatchers(Set::one(batcher), message));
        }
    }
}
