//! How a chain node finds its neighbours in a new chain, and how one that is not a member copies
//! what is committed.
//!
//! A member asks its predecessor for what it has not received (`Sync`), until that says that it
//! sends (`Handover`). A node outside the chain copies what is committed from the tail, entry by
//! entry if the tail still has them, or else a snapshot first; when it has nearly all, it has a
//! member sealed (`sealing.rs`). Until then the chain serves as before. What is copied is
//! committed, and stays so in every later chain: it matters little which member sends it.
//!
//! A state that was taken over must be on disk before anything that follows it.

use super::writes::Down;
use super::{ChainNode, In};
use crate::craq::branch;
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::parts::replica::offer::{Offer, Piece, time_for};
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::Slot;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;

/// A node that lacks this many entries or fewer has a member sealed.
const NEARLY: u64 = 64;

/// A piece of a snapshot is larger than other messages: it is waited for this many times longer.
const PIECE_PATIENCE: u32 = 4;

/// A node that leaves this number of requests unanswered is given up.
pub(super) const ATTEMPTS: u32 = 3;

/// What a node that copies lacks is kept until it has not asked for this long.
const KEPT: Duration = Duration::from_secs(10);

/// How often the time doubles that a node waits before it joins again, if it is removed again and
/// again: writes wait whenever it joins.
pub(super) const DOUBLINGS: u32 = 3;

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
    pub(super) copying: SmallMap<ChainNodeId, (Slot, Instant)>,
    /// How often it was removed from chains that had not settled, and when it may join again.
    removals: u32,
    pub(super) not_before: Instant,
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
        if now.since(self.entered) > silence * SETTLED {
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
        self.place.is_some() && !self.up.synced
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
        if Some(from) != self.successor() || !(base..=end).contains(&received) {
            self.stale += 1;
            return;
        }
        self.down = Some(Down {
            received,
            sent: received,
            resend_at: now + self.config.options().resend_after,
            attempts: 0,
        });
        let message = In::Handover {
            from: self.id,
            epoch,
        };
        self.send(from, message, out);
    }

    /// The predecessor has found this node.
    pub(super) fn on_handover(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        if Some(from) != self.predecessor() {
            self.stale += 1;
            return;
        }
        self.up.synced = true;
        self.writes_ack();
    }

    /// Whether it copies what is committed.
    fn copies(&self) -> bool {
        self.place.is_none() && !self.sealing.is_joining() && !self.snapshots.is_busy()
    }

    pub(super) fn fetch_timer(&self) -> Option<Instant> {
        self.copies().then_some(self.joining.at)
    }

    /// The member to copy from: the tail; others if it does not answer.
    fn source(&self) -> Option<ChainNodeId> {
        match self.joining.attempts / ATTEMPTS {
            0 => self.chain.tail(),
            turn => self.chain.nodes().pick(turn.into()),
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
        if !self.is_member() || !self.others().contains(to) {
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
        if applied.distance(self.history.end()) <= NEARLY {
            self.ask_for_seal(now, out);
        }
        if is_new && self.history.end() < applied && self.copies() {
            self.fetch(now, out);
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
        let slots = self.config.options().retained_slots;
        self.history.trim(slots, needed);
    }
}
