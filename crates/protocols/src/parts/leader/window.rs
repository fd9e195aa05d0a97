//! The slots that a leader has proposed and that no replica is known to have executed, and the
//! proxy leaders that have them.

use super::LeaderPort;
use super::failing::Failing;
use super::repliers::Repliers;
use crate::multipaxos::config::Config;
use crate::multipaxos::kind;
use crate::parts::message::Proposer;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::{Duration, Instant, earliest, transit};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::flow::ByteWindow;
use ionian_replication::suspicion::{PRESENT_FOR, Presence};
use ionian_replication::window::SlotWindow;

/// How far beyond what is executed a leader's window can reach: more than its own flow control lets
/// it (`window_slots`), for a predecessor may have left votes further on.
const MAX_WINDOW: usize = 1 << 22;

/// How many resend times a proposed slot may stay unexecuted before it is handed over again, though
/// its proxy leader lives: a message was lost.
const HAND_OVER_AFTER: u32 = 5;

/// If a slot executes within this many `resend_after` after its reassignment, its first proxy
/// leader caused the delay: each allows for a round trip, and it takes about two until the leader
/// learns it.
const PROMPT: u32 = 2;

/// Only this many of the lowest unexecuted slots can count as stuck: those behind them wait for
/// them.
const STUCK_SLOTS: usize = 16;

/// How many slots are handed over again at a time.
const HAND_OVER_SLOTS: usize = 256;

/// The window. A proxy leader that is not present is given no slots, and those that it has go to
/// others.
pub(super) struct Window {
    config: Arc<Config>,
    node: NodeId,
    near: Set<ProxyLeaderId>,
    slots: SlotWindow<Proposed>,
    /// The bytes of the values in these slots.
    pub(super) flow: ByteWindow,
    /// The slot of the next proposal.
    pub(super) next_slot: Slot,
    /// No new value is proposed in slots from this one on; noops may be.
    pub(super) limit: Slot,
    check_at: Option<Instant>,
    /// How much later an answer may come because of what was under way when it was last looked.
    transit: Duration,
    replicas: Repliers,
    proxies: Presence<ProxyLeaderId>,
    failing: Failing,
    turn: u64,
    pub(super) handed_over: u64,
}

/// A value on its way, and who waits for it.
pub(super) struct Proposed {
    value: Value,
    proposer: Proposer,
    /// Replicas from which an answer has the shortest way.
    near: Set<ReplicaId>,
    proxy: ProxyLeaderId,
    proposed_at: Instant,
    attempts: u32,
}

impl Window {
    pub(super) fn new(config: Arc<Config>, node: NodeId, turn: u64) -> Self {
        Window {
            near: config.near(kind::ProxyLeader, node),
            node,
            slots: SlotWindow::new(Slot::ZERO, MAX_WINDOW),
            flow: ByteWindow::new(config.options().window_bytes),
            next_slot: Slot::ZERO,
            limit: Slot::MAX,
            check_at: None,
            transit: Duration::ZERO,
            replicas: Repliers::new(config.serving()),
            proxies: Presence::new(config.all(kind::ProxyLeader), PRESENT_FOR),
            failing: Failing::default(),
            turn: turn >> 1,
            handed_over: 0,
            config,
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.near = config.near(kind::ProxyLeader, self.node);
        self.replicas.reconfigure(config.serving());
        self.proxies.reconfigure(config.all(kind::ProxyLeader));
        self.failing.reconfigure(config.all(kind::ProxyLeader));
        let under_way = self
            .slots
            .iter()
            .map(|(_, proposed)| proposed.value.batch.byte_len());
        self.flow.resize(config.options().window_bytes, under_way);
        self.config = config;
    }

    /// Counts all replicas and proxy leaders as heard at `now`.
    pub(super) fn start(&mut self, now: Instant) {
        self.replicas.start(now);
        self.proxies.start(now);
    }

    /// The replicas that were heard of lately.
    pub(super) fn present_replicas(&self, now: Instant) -> Set<ReplicaId> {
        self.replicas.present(now)
    }

    /// Whether it hears no proxy leader any more, or no replica: nothing would be chosen, or there
    /// would soon be no room.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        self.proxies.is_cut_off(now) || self.replicas.is_cut_off(now)
    }

    pub(super) fn heard_replica(&mut self, from: ReplicaId, executed: Slot, now: Instant) {
        self.replicas.heard(from, executed, now);
    }

    pub(super) fn heard_proxy(&mut self, from: ProxyLeaderId, now: Instant) {
        self.proxies.heard(from, now);
    }

    /// Begins anew at `base`, with nothing proposed; closed for new values, if it is not `open`.
    pub(super) fn reset(&mut self, base: Slot, next_slot: Slot, open: bool) {
        self.slots.reset(base);
        self.flow.clear();
        self.next_slot = next_slot;
        self.limit = if open { Slot::MAX } else { Slot::ZERO };
        self.check_at = None;
    }

    /// Some replica has executed every slot below `executed`; `gone` receives what was in them.
    pub(super) fn advance_to(
        &mut self,
        now: Instant,
        executed: Slot,
        mut gone: impl FnMut(&Batch),
    ) {
        let prompt = self.config.options().resend_after * PROMPT;
        let (flow, failing) = (&mut self.flow, &mut self.failing);
        self.slots
            .advance_with(executed.min(self.next_slot), |proposed| {
                flow.remove(proposed.value.batch.byte_len());
                if proposed.attempts == 0 {
                    failing.succeeded(proposed.proxy);
                } else if now.since(proposed.proposed_at) < prompt {
                    failing.another_succeeded();
                }
                gone(&proposed.value.batch);
            });
    }

    /// What is on its way.
    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.slots.iter().map(|(_, proposed)| &proposed.value.batch)
    }

    /// The end of the unused slots that begin at `slot`; none when it is used, or not held here any
    /// more.
    pub(super) fn left_until(&self, slot: Slot) -> Option<Slot> {
        let held =
            slot >= self.slots.base() && slot < self.next_slot && self.slots.get(slot).is_none();
        let used = || self.slots.iter_from(slot).next().map(|(slot, _)| slot);
        held.then(|| used().unwrap_or(self.next_slot).min(self.next_slot))
    }

    /// Whether the next slot is within `window_slots` of what is executed.
    pub(super) fn is_open(&self, executed: Slot) -> bool {
        self.next_slot.distance(executed) < self.config.options().window_slots as u64
            && self.has_place()
            && self.next_slot < self.limit
    }

    /// Whether the next slot can be held at all.
    pub(super) fn has_place(&self) -> bool {
        self.slots.admits(self.next_slot)
    }

    /// Whether a value of this many bytes that was found in phase 1 may be proposed in `slot` now.
    pub(super) fn has_room_for(&self, slot: Slot, bytes: usize) -> bool {
        slot.distance(self.slots.base()) < self.config.options().window_slots as u64
            && self.flow.has_room(bytes)
    }

    /// How many slots are on their way.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// For how many slots it has memory.
    pub(super) fn room(&self) -> usize {
        self.slots.room()
    }

    /// Proposes `value` in `slot`.
    #[allow(clippy::too_many_arguments)] // A value and everything that is known of it.
    pub(super) fn propose(
        &mut self,
        now: Instant,
        round: Round,
        slot: Slot,
        value: Value,
        proposer: Proposer,
        near: Set<ReplicaId>,
        port: &mut impl LeaderPort,
    ) {
        let proxy = self.pick_proxy(now);
        let proposed = Proposed {
            value,
            proposer,
            near,
            proxy,
            proposed_at: now,
            attempts: 0,
        };
        self.hand_over(now, round, slot, &proposed, port);
        self.flow.add(proposed.value.batch.byte_len());
        self.slots.insert(slot, proposed);
        self.check_at = earliest(
            self.check_at,
            Some(now + self.config.options().resend_after),
        );
    }

    fn pick_proxy(&mut self, now: Instant) -> ProxyLeaderId {
        self.turn += 1;
        self.able_proxies(now)
            .preferring(self.near)
            .pick(self.turn)
            .expect("a deployment has proxy leaders")
    }

    /// Those proxy leaders to which slots are given.
    fn able_proxies(&mut self, now: Instant) -> Set<ProxyLeaderId> {
        let present = self.proxies.present(now);
        self.failing.among(present, now)
    }

    fn hand_over(
        &self,
        now: Instant,
        round: Round,
        slot: Slot,
        proposed: &Proposed,
        port: &mut impl LeaderPort,
    ) {
        let Proposed {
            value,
            proposer,
            near,
            proxy,
            ..
        } = proposed;
        let replier = self
            .replicas
            .pick(*near, now, slot.0)
            .expect("a deployment has replicas");
        let (value, proposer) = (value.clone(), *proposer);
        port.phase2a(*proxy, (slot, round), value, proposer, replier);
    }

    /// Hands a slot that is not in the window to a proxy leader: a repaired one.
    pub(super) fn hand_over_repaired(
        &mut self,
        now: Instant,
        round: Round,
        slot: Slot,
        value: Value,
        port: &mut impl LeaderPort,
    ) {
        let (proposer, near, proxy) = (Proposer::Leader {}, Set::EMPTY, self.pick_proxy(now));
        self.hand_over(
            now,
            round,
            slot,
            &Proposed {
                value,
                proposer,
                near,
                proxy,
                proposed_at: now,
                attempts: 0,
            },
            port,
        );
    }

    /// A replica misses this slot of the window; false when it is not in the window.
    pub(super) fn recover(
        &mut self,
        now: Instant,
        round: Round,
        slot: Slot,
        port: &mut impl LeaderPort,
    ) -> bool {
        let Some(proposed) = self.slots.get(slot) else {
            return false;
        };
        if now.since(proposed.proposed_at) >= self.config.options().resend_after + self.transit {
            self.hand_over_again(now, round, slot, port);
        }
        true
    }

    fn hand_over_again(
        &mut self,
        now: Instant,
        round: Round,
        slot: Slot,
        port: &mut impl LeaderPort,
    ) {
        let held_up = self
            .slots
            .iter()
            .next()
            .filter(|(lowest, it)| *lowest == slot && it.attempts == 0);
        if let Some(failed) = held_up
            .map(|(_, proposed)| proposed.proxy)
            .filter(|proxy| !self.near.contains(*proxy))
        {
            self.failing.failed(failed, now);
        }
        let proxy = self.pick_proxy(now);
        let proposed = self.slots.get_mut(slot).expect("in the window");
        (proposed.proxy, proposed.proposed_at) = (proxy, now);
        proposed.attempts += 1;
        self.handed_over += 1;
        let proposed = self.slots.get(slot).expect("in the window");
        self.hand_over(now, round, slot, proposed, port);
    }

    /// Hands over again what a dead or a failing proxy leader had, and the lowest slots when they
    /// have waited too long.
    pub(super) fn check(&mut self, now: Instant, round: Round, port: &mut impl LeaderPort) {
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        let resend_after = self.config.options().resend_after;
        self.check_at = (!self.slots.is_empty()).then(|| now + resend_after);
        let able = self.able_proxies(now);
        self.transit = transit(self.flow.bytes());
        let transit = self.transit;
        let waited = |proposed: &Proposed| now.since(proposed.proposed_at);
        let orphaned = |proposed: &Proposed| {
            !able.contains(proposed.proxy) && waited(proposed) >= resend_after + transit
        };
        // The allowance for what is under way doubles like the wait: it may be too small.
        let patience = resend_after * HAND_OVER_AFTER + transit;
        let stuck =
            |proposed: &Proposed| waited(proposed) >= doubled(patience, proposed.attempts, 5);
        let overdue = self
            .slots
            .iter()
            .enumerate()
            .filter(|(place, (_, proposed))| {
                orphaned(proposed) || (*place < STUCK_SLOTS && stuck(proposed))
            });
        let slots: Vec<Slot> = overdue
            .map(|(_, (slot, _))| slot)
            .take(HAND_OVER_SLOTS)
            .collect();
        for slot in slots {
            self.hand_over_again(now, round, slot, port);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.check_at
    }

    /// How many proxy leaders get nothing chosen, though they say that they live.
    pub(super) fn failing(&self) -> usize {
        self.failing.len()
    }

    pub(super) fn invariants(&self) {
        assert!(
            self.slots.end() <= self.next_slot.max(self.slots.base()),
            "proposed beyond the next slot"
        );
        let bytes: usize = self.batches().map(Batch::byte_len).sum();
        assert_eq!(
            bytes,
            self.flow.bytes(),
            "a leader lost count of what is on its way"
        );
        assert!(
            self.slots.is_empty() || self.check_at.is_some(),
            "slots in the window and no timer"
        );
    }
}
