//! How a chain node finds its neighbours in a new chain, and how one that is not a member, or lacks
//! too much, gets what it lacks.
//!
//! A member asks its predecessor for what it has not received (`Sync`), until that says from where
//! on it sends (`Handover`). A node outside the chain copies what is committed from the tail, entry
//! by entry if the tail still has them, or else a snapshot first; when it has nearly all, it asks
//! the master to be made the tail. Meanwhile the chain serves as before. What is copied is
//! committed, and stays so in every later chain: it matters little who sends it.
//!
//! A state that was taken over must be on disk before anything that follows it.

use super::writes::Down;
use super::{ChainNode, In};
use crate::craq::branch;
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::message::Step;
use crate::parts::replica::offer::{Offer, Piece, time_for};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::{Set, Slot};
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;

/// A node that lacks this many entries or fewer asks to become the tail.
const NEARLY: u64 = 64;

/// A piece of a snapshot is larger than other messages: it is waited for this many times longer.
const PIECE_PATIENCE: u32 = 4;

/// A node that leaves this number of requests unanswered is given up.
const ATTEMPTS: u32 = 3;

/// What a node that copies lacks is kept until it has not asked for this long.
const KEPT: Duration = Duration::from_secs(10);

/// How often the time doubles that a node waits before it joins again, if it is removed again and
/// again: writes wait whenever it joins.
const DOUBLINGS: u32 = 3;

/// A chain that has lasted for this many times as long as a node may be silent has settled.
const SETTLED: u32 = 64;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Joining {
    /// When more is asked for.
    at: Instant,
    /// How many requests are unanswered.
    attempts: u32,
    install: Option<Install>,
    /// The snapshot that other nodes are given.
    offer: Option<Offer>,
    /// What other nodes that copy have asked for last, and when.
    copying: BTreeMap<ChainNodeId, (Slot, Instant)>,
    /// How often it was removed from chains that had not settled, and when it may join again.
    removals: u32,
    not_before: Instant,
    pub(super) installed: u64,
}

/// A snapshot on its way here.
struct Install {
    from: ChainNodeId,
    executed: Slot,
    received: Vec<u8>,
}

impl Joining {
    /// In a new chain, or a new life.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.at, self.attempts) = (now, 0);
    }
}

impl ChainNode {
    /// It was removed: it waits before it joins again, longer each time.
    pub(super) fn was_removed(&mut self, now: Instant) {
        let silence = self.config.options().election_timeout;
        if now.since(self.entered.0) > silence * SETTLED {
            self.joining.removals = 0;
        }
        let wait = doubled(silence, self.joining.removals, DOUBLINGS);
        self.joining.not_before = now + wait;
        self.joining.removals += 1;
    }
}

impl ChainNode {
    /// Whether the predecessor is to be asked.
    fn is_to_sync(&self) -> bool {
        self.place.is_some() && !self.up.synced && !self.up.far && !self.snapshots.is_busy()
    }

    pub(super) fn sync_timer(&self) -> Option<Instant> {
        self.is_to_sync().then_some(self.up.ask_at)
    }

    /// Asks the predecessor for what it has not received, if it is not known to have heard that.
    pub(super) fn sync(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.is_to_sync() || self.up.ask_at > now {
            return;
        }
        let Some(predecessor) = self.predecessor() else {
            return;
        };
        self.up.ask_at = now + self.config.options().resend_after;
        let message = In::Sync {
            from: self.id,
            epoch: self.chain.epoch,
            received: self.history.end(),
        };
        self.send(predecessor, message, out);
    }

    pub(super) fn sync_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.sync(now, out);
    }

    /// The successor has found this node. Its next entries follow, in order, before any others.
    pub(super) fn on_sync(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        received: Slot,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        let (base, end) = (self.history.base(), self.history.end());
        if Some(from) != self.successor() || received > end || self.snapshots.is_busy() {
            self.stale += 1;
            return;
        }
        self.down = (received >= base).then(|| Down {
            received,
            sent: received,
            resend_at: now + self.config.options().resend_after,
            attempts: 0,
        });
        if self.down.is_none() {
            out.reached(branch::FAR_BEHIND);
        }
        // A node that has restarted does not know what it had received when it entered the epoch:
        // not more than now.
        let message = In::Handover {
            from: self.id,
            epoch,
            base,
            end: self.entered.1,
        };
        self.send(from, message, out);
    }

    /// The predecessor has found this node.
    pub(super) fn on_handover(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        (base, end): (Slot, Slot),
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        if Some(from) != self.predecessor() {
            self.stale += 1;
            return;
        }
        self.up.handed_over = Some(end);
        self.up.far = base > self.history.end();
        self.up.synced = !self.up.far;
        if self.up.far {
            self.joining.restart(now);
        }
        self.writes_ack();
        self.become_whole(now, out);
        self.commit_as_tail(now, out);
    }

    /// Whether the last member has all that its predecessor had received when that entered the
    /// epoch.
    pub fn has_all(&self) -> bool {
        let has_all = |end: &Slot| self.history.end() >= *end;
        self.place.is_some() && self.up.handed_over.as_ref().is_some_and(has_all)
    }

    /// If so, the master is to know it: when a state that was copied is on disk, since this node
    /// counts on what it had then even if it crashes.
    pub(super) fn become_whole(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.lacks_nothing() {
            let (epoch, node, life) = (self.chain.epoch, self.id, self.life);
            self.link.step(now, Step::Full { epoch, node, life }, out);
        }
    }

    /// Whether only the word of the master is missing for it to be whole.
    pub(super) fn lacks_nothing(&self) -> bool {
        !self.whole && self.has_all() && !self.snapshots.is_busy()
    }

    /// Whether it must copy what it lacks: outside the chain, or where its predecessor has
    /// forgotten that.
    fn copies(&self) -> bool {
        let lacks = self.place.is_none() && !self.is_aside();
        (lacks || self.up.far) && !self.snapshots.is_busy()
    }

    pub(super) fn fetch_timer(&self) -> Option<Instant> {
        self.copies().then_some(self.joining.at)
    }

    /// Whom to copy from: the predecessor, or the tail; others if it does not answer.
    fn source(&self) -> Option<ChainNodeId> {
        let turn = self.joining.attempts / ATTEMPTS;
        if let Some(predecessor) = self.predecessor() {
            return Some(predecessor);
        }
        let full = self.chain.full().without(Set::one(self.id));
        let members = self.chain.members.iter().rev();
        let last = members
            .map(|member| member.node)
            .find(|node| full.contains(*node));
        match turn {
            0 => last,
            turn => full.pick(turn.into()),
        }
    }

    pub(super) fn fetch_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.copies() || self.joining.at > now {
            return;
        }
        if self.joining.attempts >= ATTEMPTS {
            self.joining.install = None;
        }
        self.joining.attempts += 1;
        self.fetch(now, out);
    }

    /// Asks for what it lacks.
    fn fetch(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let wait = self.config.options().resend_after;
        let install = self.joining.install.as_ref();
        let from = install
            .map(|install| install.from)
            .or_else(|| self.source());
        let snapshot = install.map(|it| (it.executed, it.received.len() as u64));
        self.joining.at = now
            + match snapshot {
                Some(_) => wait * PIECE_PATIENCE,
                None => wait,
            };
        let Some(from) = from else {
            return;
        };
        out.reached(match snapshot {
            Some(_) => branch::FETCHES_SNAPSHOT,
            None => branch::FETCHES_ENTRIES,
        });
        let message = In::Fetch {
            from: self.id,
            start: self.history.end(),
            snapshot,
        };
        self.send(from, message, out);
    }

    /// A node wants what is committed.
    pub(super) fn on_fetch(
        &mut self,
        now: Instant,
        to: ChainNodeId,
        start: Slot,
        snapshot: Option<(Slot, u64)>,
        out: &mut Out<'_, Self>,
    ) {
        if !self.whole || !self.others().contains(to) {
            self.stale += 1;
            return;
        }
        self.joining.copying.insert(to, (start, now));
        let offered = self.joining.offer.as_ref().map(|offer| offer.executed);
        if let Some((executed, offset)) = snapshot {
            if offered == Some(executed) {
                return self.send_piece(now, to, offset, out);
            }
            out.reached(branch::SNAPSHOT_GONE);
        }
        let applied = self.history.applied();
        if start >= self.history.base() {
            let values = self.history.some(start, applied);
            let message = In::Entries {
                from: self.id,
                start,
                values,
                applied,
            };
            return self.send(to, message, out);
        }
        // After an older one the node would still miss entries that are forgotten here.
        if offered.is_none_or(|executed| executed < self.history.base()) {
            let rate = self.config.options().snapshot_bytes_per_second;
            let offer = Offer::new(rate, now, applied, self.executor.freeze());
            self.joining.offer = Some(offer);
        }
        self.send_piece(now, to, 0, out);
    }

    fn send_piece(&mut self, now: Instant, to: ChainNodeId, offset: u64, out: &mut Out<'_, Self>) {
        let offer = self.joining.offer.as_mut().expect("there is one at hand");
        let executed = offer.executed;
        let Some(Piece { bytes, last }) = offer.piece(now, offset) else {
            self.stale += 1;
            return;
        };
        let message = In::Piece {
            from: self.id,
            executed,
            offset,
            last,
            bytes,
        };
        self.send(to, message, out);
    }

    /// Committed entries come.
    pub(super) fn on_entries(
        &mut self,
        now: Instant,
        from: ChainNodeId,
        (start, values): (Slot, Vec<Value>),
        applied: Slot,
        out: &mut Out<'_, Self>,
    ) {
        let fits = start <= self.history.end() && self.others().contains(from);
        if !self.copies() || !fits {
            self.stale += 1;
            return;
        }
        self.joining.attempts = 0;
        self.joining.install = None;
        let is_new = self.history.end() < applied && !values.is_empty();
        // What it has received before them is committed as well, as far as they say.
        self.receive_committed(start, values, applied, out);
        if self.place.is_some() {
            // They close the gap, or begin to.
            self.up.far = false;
            self.up.ask_at = now;
            return self.sync(now, out);
        }
        if applied.distance(self.history.end()) <= NEARLY {
            self.ask_to_join(now, out);
        }
        if is_new && self.history.end() < applied {
            self.fetch(now, out);
        }
    }

    /// It has nearly all that is committed. It must hear the tail, and the tail must hear it:
    /// otherwise each would take the other for dead, and writes would wait for that. Unless others
    /// take the tail for dead: then they may need this node to go on without it. One that is cut
    /// off would be removed again.
    fn ask_to_join(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (epoch, node, life) = (self.chain.epoch, self.id, self.life);
        let is_free = |member: &crate::craq::message::Member| member.full && member.node != node;
        let serves = |tail| self.hears(tail, now) || self.is_suspected(tail);
        let may_join = self.chain.tail().is_some_and(serves)
            && self.joining.not_before <= now
            && self.hears_enough(now);
        if self.chain.members.iter().all(is_free) && self.place.is_none() && may_join {
            out.reached(branch::READY);
            self.link.step(now, Step::Ready { epoch, node, life }, out);
        }
    }

    /// A piece of a snapshot comes.
    pub(super) fn on_piece(
        &mut self,
        now: Instant,
        (from, executed): (ChainNodeId, Slot),
        offset: u64,
        (last, bytes): (bool, Bytes),
        out: &mut Out<'_, Self>,
    ) {
        if !self.copies() || executed <= self.history.end() || !self.others().contains(from) {
            self.stale += 1;
            return;
        }
        let is_other = |it: &Install| (it.from, it.executed) != (from, executed);
        if offset == 0 && self.joining.install.as_ref().is_none_or(is_other) {
            let received = Vec::new();
            self.joining.install = Some(Install {
                from,
                executed,
                received,
            });
        }
        let install = self.joining.install.as_mut().filter(|it| {
            (it.from, it.executed, it.received.len() as u64) == (from, executed, offset)
        });
        let Some(install) = install else {
            self.stale += 1;
            return;
        };
        install.received.extend_from_slice(&bytes);
        self.joining.attempts = 0;
        if last {
            let whole = Bytes::from(core::mem::take(&mut install.received));
            self.joining.install = None;
            return self.install(now, executed, &whole, out);
        }
        // The limit of bytes a second does not let it ask for the next piece before this.
        let rate = self.config.options().snapshot_bytes_per_second;
        self.joining.at = now + time_for(bytes.len(), rate);
        if self.joining.at <= now {
            self.fetch(now, out);
        }
    }

    /// Takes over a state.
    fn install(&mut self, now: Instant, executed: Slot, whole: &Bytes, out: &mut Out<'_, Self>) {
        self.joining.at = now;
        if self.executor.restore(whole).is_err() {
            self.stale += 1;
            return;
        }
        out.reached(branch::INSTALLS);
        self.joining.installed += 1;
        self.history.reset(executed);
        self.snapshots.taken_over(executed);
        self.up.far = false;
        self.up.ask_at = now;
        self.sync(now, out);
    }

    /// Forgets entries that no node will need from here, and a snapshot that none asks for.
    pub(super) fn trim(&mut self, now: Instant) {
        let offer = &mut self.joining.offer;
        offer.take_if(|offer| offer.is_abandoned(now));
        let offered = offer.as_ref().map_or(Slot::MAX, |offer| offer.executed);
        let copying = &mut self.joining.copying;
        copying.retain(|_, (_, at)| now.since(*at) <= KEPT);
        // One that is given the snapshot lacks what is before it.
        let base = self.history.base();
        let starts = copying.values().map(|(start, _)| *start);
        let copied = starts.filter(|start| *start >= base).min();
        let needed = offered.min(copied.unwrap_or(Slot::MAX));
        let successor = self.successor();
        let is_full = successor.is_none_or(|node| self.chain.full().contains(node));
        let lacks = self.down.as_ref().filter(|_| !is_full);
        let lacks = lacks.map_or(Slot::MAX, |down| down.received);
        let slots = self.config.options().retained_slots;
        self.history.trim(slots, needed.min(lacks));
    }
}
