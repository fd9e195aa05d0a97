//! A replica's part: each group's log is executed on the part of the machine that is its own, by a
//! worker; g_all's on the whole machine, while all workers wait (P-SMR, algorithm 1).
//!
//! # The merge
//!
//! In the paper a worker takes turns between the log of its group and that of g_all, so an idle log
//! must be kept going by empty messages, and every command waits for the slower of the two. Here a
//! worker reads the log of its group alone. A *marker* in it is a number u of g_all: before what
//! comes next in the group, every slot of g_all below u is executed. A worker that finds a marker
//! above what is executed stops. When all have stopped, the slots of g_all up to the *lowest* of
//! their markers are executed, and the workers whose markers that reaches go on. So each slot of
//! g_all meets each worker before its first marker above the slot: at the same place on every
//! replica, since the logs are the same. The worker with the lowest marker goes on each time, and
//! a worker that has stopped waits only for the others to find markers as high, which their
//! leaders propose: there is no deadlock. A number that is lower than one before says nothing new,
//! so a marker may come twice or late.
//!
//! Why this is linearizable. Let X be a command of a group g and Y one of g_all. X answered before
//! Y is sent: X is executed somewhere, and so is everything of g_all below the markers before X. Y
//! gets a slot that is not executed anywhere, so no marker above Y is before X. Y answered before X
//! is sent: a replica has executed Y, so it had found a marker above Y in g; X gets a later slot.
//! Two commands of g_all, or of one group, are in one log; two of different groups touch nothing in
//! common.
//!
//! # The state
//!
//! When all workers have stopped and what comes before their markers is executed, the state is
//! given by how far g_all is executed, and how far each group is. Only then is a picture of it
//! taken: then the machine is whole, and time is the same in all parts. A picture contains these
//! numbers and the sessions of all groups. It is g_all's replica that stores it and hands it to
//! peers, because all groups wait for g_all: one that has executed more of g_all has executed more
//! of every group.
//!
//! Others forget what f+1 replicas keep. Where nodes keep nothing through a crash, that is what is
//! executed; here it is what was executed when the workers stopped last. If it were what each group
//! has executed, of two replicas one could need a forgotten slot in one group, and the other in
//! another, and neither could help. So the replica that has executed most of g_all needs none that
//! is forgotten, and takes the others with it.

use super::backup::Backup;
use super::config::Config;
use super::groups::{Groups, Member, Sends, send};
use super::message::Message;
use super::router::parts;
use super::vacant::Vacant;
use super::workers::Delivery;
use crate::multipaxos::replica::{In, Replica};
use crate::multipaxos::{self, kind};
use crate::parts::replica::Gate;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::{ReplicaId, Set, Slot};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::{Birth, Instance as _};
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_replication::backoff::doubled;
use ionian_replication::executor::Cut;

/// An execution in g_all that is needed for a snapshot is asked for again after this time.
const BARRIER_EVERY: Duration = Duration::from_millis(500);

/// A peer that waits for a picture asks again sooner.
const WAITS_FOR: Duration = Duration::from_secs(10);

/// Where nodes keep nothing through a crash, the workers stop this long after they have executed
/// something, so that it can be forgotten elsewhere.
const KEPT_AFTER: Duration = Duration::from_secs(1);

/// See the top of this file.
pub(super) struct Merge {
    pub(super) me: ReplicaId,
    pub(super) config: Arc<Config>,
    /// How many parts the machine has; none if it cannot be divided.
    parts: usize,
    /// Every slot of g_all below this one is executed.
    done: Slot,
    pub(super) delivery: Delivery,
    keeps_records: bool,
    /// The snapshot that is being stored: its stamp, and how far the groups are in it.
    storing: Option<(u64, Vec<Slot>)>,
    /// When markers that do not come are asked for, and how often they were.
    markers_at: Option<Instant>,
    attempts: u32,
    /// When an execution in g_all is asked for.
    barrier_at: Option<Instant>,
    pub(super) backup: Option<Backup>,
    /// The peers that wait for a picture: how far each has executed g_all, and since when.
    waiting: BTreeMap<ReplicaId, (Slot, Instant)>,
    pub(super) random: Random,
}

impl Merge {
    pub(super) fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Merge {
            me: ReplicaId(birth.address.index),
            parts: 0,
            done: Slot::ZERO,
            delivery: Delivery::new(config.count(), birth),
            keeps_records: birth.keeps_records,
            storing: None,
            markers_at: None,
            attempts: 0,
            barrier_at: None,
            backup: None,
            waiting: BTreeMap::new(),
            random: Random::new(birth.seed ^ 1),
            config,
        }
    }

    /// The instance has just been built: divides the machine.
    pub(super) fn found(&mut self, groups: &mut Groups) {
        let all = groups.all();
        let step = all as u64 + 1;
        for group in 0..=all {
            let core = replica(groups.member(group)).core_mut();
            let executor = core.executor_mut();
            executor.number_sessions(group as u64 + 1, step);
            core.keep_elsewhere();
            core.set_gate(match group == all {
                true => Gate::Below(Slot::ZERO),
                false => Gate::Marker(Slot::ZERO),
            });
        }
        let whole = replica(groups.member(all)).core_mut().executor_mut();
        whole.expect_cuts(all, false);
        self.divide(groups);
    }

    /// Divides the machine, which is whole, and gives each group its part.
    fn divide(&mut self, groups: &mut Groups) {
        let all = groups.all();
        let executor = replica(groups.member(all)).core_mut().executor_mut();
        self.parts = parts(executor.machine_mut(), all);
        self.spread(groups);
    }

    /// Gives each group its part of the machine.
    fn spread(&mut self, groups: &mut Groups) {
        let all = groups.all();
        for group in 0..self.parts {
            let whole = replica(groups.member(all)).core_mut().executor_mut();
            let machine = whole.machine_mut().parts().expect("it has parts");
            let part = machine.lend(group);
            replica(groups.member(group))
                .core_mut()
                .executor_mut()
                .swap_machine(part);
        }
    }

    /// Time in all logs is as late as in any: all workers have stopped, so it is the same on all
    /// replicas.
    fn meet(&mut self, groups: &mut Groups) {
        let all = groups.all();
        let times = (0..=all).map(|group| core(groups, group).executor().now());
        let latest = times.max().expect("there are groups");
        for group in 0..=all {
            let core = replica(groups.member(group)).core_mut();
            core.executor_mut().advance(latest);
        }
    }

    /// Takes the parts back into the machine.
    fn gather(&mut self, groups: &mut Groups) {
        let all = groups.all();
        for group in 0..self.parts {
            let executor = replica(groups.member(group)).core_mut().executor_mut();
            let part = executor.swap_machine(Box::new(Vacant));
            let whole = replica(groups.member(all)).core_mut().executor_mut();
            let machine = whole.machine_mut().parts().expect("it has parts");
            machine.take_back(group, part);
        }
    }

    /// A message of MultiPaxos in a group.
    pub(super) fn on_message(
        &mut self,
        now: Instant,
        (group, message): (usize, multipaxos::Message),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        use multipaxos::Message::Replica as To;
        let all = groups.all();
        match message {
            To(In::SnapshotChunk {
                ref bytes, last, ..
            }) if group == all && (last || !bytes.is_empty()) => {
                self.delivery.finish(groups);
                groups.call(all, out, |it, outbox| it.on_message(now, message, outbox));
                self.adopt(now, groups);
            }
            // One picture at a time: that of another peer would take its place.
            To(In::SnapshotChunk { .. }) if core(groups, all).is_installing() => {}
            // No lane sends it: reads of several parts are in the log.
            To(In::Read { .. }) if group == all => {}
            // The peer has forgotten slots that are missing here, or the picture under way.
            To(In::SnapshotChunk { from, .. }) => {
                let (me, executed) = (self.me, self.done);
                let message = Message::NeedState { from: me, executed };
                send(out, kind::Replica, Set::one(from), message);
            }
            message if group == all => {
                groups.call(all, out, |it, outbox| it.on_message(now, message, outbox));
            }
            message => self.delivery.queue(now, group, message, groups),
        }
    }

    /// A peer that has executed g_all up to a slot needs the state of all logs. If this replica has
    /// executed no more of it, something is to be executed first.
    pub(super) fn on_need_state(
        &mut self,
        now: Instant,
        (from, executed): (ReplicaId, Slot),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        if !self.config.all().replicas().contains(from) {
            return;
        }
        let all = groups.all();
        let mut is_offered = false;
        groups.call(all, out, |it, outbox| {
            is_offered = of(it).offer_at_hand(now, from, executed, &mut Out::new(outbox));
        });
        if !is_offered {
            self.waiting.insert(from, (executed, now));
            self.barrier_at = self.barrier_at.or(Some(now));
        }
    }

    /// All groups have stopped at their markers, and the machine is whole: takes the pictures that
    /// are waited for.
    fn take_pictures(&mut self, now: Instant, groups: &mut Groups) {
        let all = groups.all();
        if !self.keeps_records {
            for group in 0..=all {
                let core = replica(groups.member(group)).core_mut();
                core.kept(match group == all {
                    true => self.done,
                    false => core.behind_markers(self.done),
                });
            }
        }
        let is_to_be_kept = |group| core(groups, group).is_to_be_kept();
        let stores = self.storing.is_none() && (0..=all).any(is_to_be_kept);
        let member = groups.member(all);
        self.picture_for_backup(replica(member).core_mut().executor_mut());
        if !stores && self.waiting.is_empty() {
            return;
        }
        let done = self.done;
        let cuts: Vec<Cut> = (0..all).map(|group| cut(groups, group)).collect();
        let whole = replica(groups.member(all)).core_mut().executor_mut();
        whole.set_cuts(Some(&cuts));
        let Member { instance, outbox } = groups.member(all);
        let out = &mut Out::new(outbox);
        if stores {
            let executed = cuts.into_iter().map(|(executed, _)| executed);
            self.storing = Some((self.done.0, executed.collect()));
            of(instance).store(out);
        }
        self.waiting.retain(|peer, (executed, _)| {
            let serves = *executed < done;
            if serves {
                of(instance).offer(now, *peer, out);
            }
            !serves
        });
        let whole = of(instance).core_mut().executor_mut();
        whole.set_cuts(None);
        // Until the peer has it, it will need what comes next in each group.
        if of(instance).core().has_offer() {
            for group in 0..all {
                replica(groups.member(group)).core_mut().retain_from_now();
            }
        }
    }

    /// If the replica of g_all has taken over a snapshot, the groups take over what it says of
    /// them: what they have is void.
    fn adopt(&mut self, now: Instant, groups: &mut Groups) {
        let all = groups.all();
        let core = replica(groups.member(all)).core_mut();
        let Some(cuts) = core.executor_mut().take_cuts() else {
            return;
        };
        let done = core.executed();
        self.divide(groups);
        for (group, (executed, sessions)) in cuts.into_iter().enumerate() {
            let executor = replica(groups.member(group)).core_mut().executor_mut();
            executor.take_sessions(&sessions).expect("it was checked");
            self.delivery
                .replaced(now, group, executed, Gate::Marker(done));
        }
        let core = replica(groups.member(all)).core_mut();
        core.set_gate(Gate::Below(done));
        self.done = done;
    }

    /// Executes what can be executed: of the groups up to their markers, and of g_all when all have
    /// stopped.
    pub(super) fn advance(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        loop {
            self.delivery.finish(groups);
            if !self.pass_markers(now, groups) {
                break;
            }
        }
        for group in 0..=groups.all() {
            groups.pour(group, out);
        }
        self.watch(now, groups);
    }

    /// Executes g_all up to the lowest marker if all groups have stopped; says whether that let any
    /// go on.
    fn pass_markers(&mut self, now: Instant, groups: &mut Groups) -> bool {
        let all = groups.all();
        let stopped = |group| core(groups, group).stopped_until();
        let markers: Vec<Slot> = (0..all).filter_map(stopped).collect();
        let Some(lowest) = markers.iter().min().copied() else {
            return false;
        };
        let member = groups.member(all);
        let whole = replica(member);
        whole.core_mut().want(now, lowest);
        if markers.len() < all || !whole.core().waits_at_gate() {
            return false;
        }
        self.look_for_mark(lowest, groups);
        self.gather(groups);
        self.meet(groups);
        let Member { instance, outbox } = groups.member(all);
        of(instance).open(now, Gate::Below(lowest), &mut Out::new(outbox));
        self.done = of(instance).executed();
        self.attempts = 0;
        // What is missing below comes while the parts are away.
        let shut = Gate::Below(self.done);
        of(instance).core_mut().set_gate(shut);
        self.meet(groups);
        self.take_pictures(now, groups);
        self.spread(groups);
        for group in 0..all {
            self.delivery.open(now, group, Gate::Marker(self.done));
        }
        true
    }

    /// Whether g_all is known to have something that is not executed.
    fn is_behind(&self, groups: &Groups) -> bool {
        core(groups, groups.all()).known_end() > self.done
    }

    /// Watches for markers that do not come, and for what must be executed in g_all.
    fn watch(&mut self, now: Instant, groups: &mut Groups) {
        let resend_after = self.config.options().resend_after;
        if !self.is_behind(groups) {
            (self.markers_at, self.attempts) = (None, 0);
        } else if self.markers_at.is_none() {
            self.markers_at = Some(now + resend_after);
        }
        let is_to_be_kept = |group| core(groups, group).is_to_be_kept();
        let is_not_kept = |group| core(groups, group).is_ahead_of_kept();
        if self.storing.is_none() && (0..=groups.all()).any(is_to_be_kept) {
            self.barrier_at = self.barrier_at.or(Some(now));
        } else if !self.keeps_records && (0..groups.all()).any(is_not_kept) {
            self.barrier_at = self.barrier_at.or(Some(now + KEPT_AFTER));
        } else if self.waiting.is_empty() {
            self.barrier_at = None;
        }
        self.waiting
            .retain(|_, (_, since)| now.since(*since) < WAITS_FOR);
        if !core(groups, groups.all()).has_offer() {
            for group in 0..groups.all() {
                if core(groups, group).retains_more() {
                    replica(groups.member(group)).core_mut().retain_as_ever();
                }
            }
        }
    }

    /// Does what is due.
    pub(super) fn on_timer(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        self.delivery.finish(groups);
        groups.on_timer(now, out);
        let leaders = self.config.all().leaders();
        if self.markers_at.is_some_and(|at| at <= now) {
            let until = core(groups, groups.all()).known_end();
            for group in 0..groups.all() {
                if core(groups, group).stopped_until().is_none() {
                    let group = group as u8;
                    let message = Message::WantMarker { group, until };
                    send(out, kind::Leader, leaders, message);
                }
            }
            let after = doubled(self.config.options().resend_after, self.attempts, 3);
            self.attempts += 1;
            self.markers_at = Some(now + self.random.duration(after, 2 * after));
        }
        if self.barrier_at.is_some_and(|at| at <= now) {
            send(
                out,
                kind::Leader,
                leaders,
                Message::WantBarrier { number: 0 },
            );
            self.barrier_at = Some(now + BARRIER_EVERY);
        }
        self.ask_for_mark(now, out);
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let backup = self.backup.as_ref().map(Backup::next_timer);
        earliest(earliest(self.markers_at, self.barrier_at), backup)
    }

    /// The burst ends.
    pub(super) fn on_burst_end(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        self.advance(now, groups, out);
        groups.on_burst_end(now, out);
    }

    /// The snapshot with this stamp is on disk.
    pub(super) fn on_snapshot(&mut self, stamp: u64, groups: &mut Groups, out: &mut Sends) {
        self.delivery.finish(groups);
        let all = groups.all();
        groups.call(all, out, |it, outbox| it.on_snapshot(stamp, outbox));
        let Some((_, executed)) = self.storing.take_if(|(storing, _)| *storing == stamp) else {
            return;
        };
        for (group, executed) in executed.into_iter().enumerate() {
            replica(groups.member(group)).core_mut().kept(executed);
        }
    }

    /// Takes in the snapshot that it stored last before a crash, or that the cluster begins with.
    pub(super) fn restore(
        &mut self,
        stamp: u64,
        snapshot: &Bytes,
        groups: &mut Groups,
    ) -> Result<(), RestoreError> {
        let all = groups.all();
        let restored = groups.member(all).instance.restore(stamp, snapshot);
        let whole = replica(groups.member(all)).core_mut().executor_mut();
        let cuts = whole.take_cuts().unwrap_or_default();
        whole.expect_cuts(all, true);
        restored?;
        self.divide(groups);
        self.done = Slot(stamp);
        for (group, (executed, sessions)) in cuts.into_iter().enumerate() {
            let core = replica(groups.member(group)).core_mut();
            core.executor_mut().take_sessions(&sessions)?;
            core.begin_at(executed);
        }
        for group in 0..all {
            let core = replica(groups.member(group)).core_mut();
            core.set_gate(Gate::Marker(self.done));
        }
        let whole = replica(groups.member(all)).core_mut();
        whole.set_gate(Gate::Below(self.done));
        self.meet(groups);
        Ok(())
    }

    /// How far g_all is executed.
    pub(super) fn done(&self) -> Slot {
        self.done
    }

    /// How many threads execute commands, how many messages they were given, and how many slots of
    /// g_all were executed.
    pub(super) fn work(&self) -> [u64; 3] {
        let (threads, given) = self.delivery.work();
        [threads, given, self.done.0]
    }
}

/// How far a group is, and its time and sessions.
fn cut(groups: &mut Groups, group: usize) -> Cut {
    let core = replica(groups.member(group)).core();
    let mut sessions = Vec::new();
    core.executor().put_sessions(&mut sessions);
    (core.executed(), Bytes::from(sessions))
}

/// The replica of a group.
pub(super) fn replica(member: &mut Member) -> &mut Replica {
    of(&mut member.instance)
}

/// The same.
pub(super) fn of(instance: &mut multipaxos::Instance) -> &mut Replica {
    match instance {
        multipaxos::Instance::Replica(replica) => replica,
        _ => unreachable!("a replica is one in every group"),
    }
}

/// What the replica of a group has learned and executed.
pub(super) fn core(groups: &Groups, group: usize) -> &crate::parts::replica::ReplicaCore {
    match groups.get(group).map(|member| &member.instance) {
        Some(multipaxos::Instance::Replica(replica)) => replica.core(),
        _ => unreachable!("a replica is one in every group, and it is here"),
    }
}
