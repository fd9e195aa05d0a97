//! A replica's part: each group's log is executed on the part of the machine that is its own, by a
//! worker; g_all's on the whole machine, while all workers wait (P-SMR, algorithm 1).
//!
//! # The merge
//!
//! In the paper a worker takes turns between the log of its group and that of g_all, so an idle log
//! must be kept going by empty messages, and every command waits for the slower of the two. Here a
//! worker reads the log of its group alone. A *marker* in it is a number u of g_all: before what
//! comes next in the group, every slot of g_all below u that touches the group's part is executed.
//! A worker that finds a marker stops unless it knows that this holds: that all slots below u are
//! known, and those that touch its part are executed. g_all is executed in the order of its slots.
//! A slot's turn has come when all before it are executed, and the workers of the parts that it
//! touches have stopped at markers above it; others go on. So each slot of g_all meets each worker
//! that it touches before its first marker above the slot: at the same place on every replica,
//! since the logs are the same. Nothing waits in a circle: the first slot that is not executed
//! waits for its groups to find markers above it, which their leaders propose, and no worker stops
//! at a marker that is not above it. A number that is lower than one before says nothing new, so a
//! marker may come twice or late.
//!
//! With the setting `turn_slots` = M the logs are merged as published: a worker takes M slots of
//! its group, then M of g_all, and so on, and leaders propose [skips](super::skips). So every value
//! of a group says how much of g_all comes before it, as a marker does, by its place: the rest is
//! the same. A skip of n messages may be taken at the turn of its last, as it has no effect; and
//! skips of g_all stop no worker. One thing is ours: turns are counted anew behind each slot that
//! touches all parts, where all workers have stopped at the same places. So a picture need not
//! contain the counts. Since level 18, a skip before which a worker has stopped there counts for
//! nothing. Otherwise a skip of 12,000 messages and the commands behind it would wait without end:
//! skips bring g_all 9,000 messages a second, and counting can begin anew twice a second.
//!
//! Why this is linearizable. Let commands be ordered as replicas execute them: by slots within a
//! log, and as said above between g_all and a group that a command of it touches. Along each such
//! step from g_all through a group and back, slots of g_all grow, so there is no circle; and two
//! commands without such an order touch nothing in common. Let each command take effect when a
//! replica first executes it. That is after it was sent and before it is answered. And what comes
//! before it in the order took effect earlier: that replica had executed it, or taken over a state
//! with it.
//!
//! # The state
//!
//! The state is given by how far g_all is executed, and how far each group is. A picture of it is
//! taken when a slot of g_all has just been executed that touches all parts: then the machine is
//! whole, time is the same in all parts, and each group is at its first marker above that slot, on
//! every replica. So of two pictures one contains the other; and no worker of a replica that has
//! not executed that slot is further than the picture is. A picture contains these numbers and the
//! sessions of all groups. It is g_all's replica that stores it and hands it to peers.
//!
//! Others forget what f+1 replicas keep. Where nodes keep nothing through a crash, that is what is
//! executed; here it is what was executed at such a slot. If it were what each group has executed,
//! of two replicas one could need a forgotten slot in one group, and the other in another, and
//! neither could help. So the replica that has executed most of g_all needs none that is forgotten,
//! and takes the others with it. The marker that a worker has stopped before counts as kept too, or
//! an idle group would never be: all that have stopped there have it. What comes behind it does not
//! count.

use super::backup::Backup;
use super::branch;
use super::config::Config;
use super::groups::{Groups, Member, Sends, send};
use super::message::Message;
use super::router::parts;
use super::touches::{Touches, members};
use super::vacant::Vacant;
use super::workers::Delivery;
use crate::multipaxos::replica::{In, Replica};
use crate::multipaxos::{self, kind};
use crate::parts::due::SinceSnapshot;
use crate::parts::replica::{Gate, Resumption};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::{ReplicaId, Set, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::{Birth, Instance as _};
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;
use ionian_replication::executor::Cut;

/// See the top of this file.
pub(super) struct Merge {
    pub(super) me: ReplicaId,
    pub(super) config: Arc<Config>,
    /// How many parts the machine has; none if it cannot be divided.
    parts: usize,
    /// Every slot of g_all below this one is executed.
    pub(super) done: Slot,
    pub(super) touches: Touches,
    pub(super) delivery: Delivery,
    pub(super) keeps_records: bool,
    /// The snapshot that is being stored: its stamp, and how far the groups are in it.
    pub(super) storing: Option<(u64, Vec<Slot>)>,
    /// What all logs have executed since then.
    since: SinceSnapshot,
    /// When markers that do not come are asked for, and how often they were.
    pub(super) markers_at: Option<Instant>,
    pub(super) attempts: u32,
    /// When an execution in g_all is asked for.
    pub(super) barrier_at: Option<Instant>,
    pub(super) backup: Option<Backup>,
    /// The peers that wait for a picture: how far each has executed g_all, and since when.
    pub(super) waiting: SmallMap<ReplicaId, (Slot, Instant)>,
    pub(super) random: Random,
}

impl Merge {
    pub(super) fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Merge {
            me: ReplicaId(birth.address.index),
            parts: 0,
            done: Slot::ZERO,
            touches: Touches::new(&config),
            delivery: Delivery::new(config.count(), birth),
            keeps_records: birth.keeps_records,
            storing: None,
            since: SinceSnapshot::default(),
            markers_at: None,
            attempts: 0,
            barrier_at: None,
            backup: None,
            waiting: SmallMap::new(),
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
            // A part executes commands of other logs too.
            core.set_unordered(true);
            core.set_gate(match group == all {
                true => Gate::Below(Slot::ZERO),
                false => Gate::Marker(Slot::ZERO),
            });
            if let Some(turns) = self.config.turns().filter(|_| group < all) {
                core.take_turns(turns.slots);
            }
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
        self.spread(self.touches.everything(), groups);
    }

    /// Gives each of these groups its part of the machine.
    pub(super) fn spread(&mut self, set: u64, groups: &mut Groups) {
        let all = groups.all();
        for group in members(set).take_while(|group| *group < self.parts) {
            let whole = replica(groups.member(all)).core_mut().executor_mut();
            let machine = whole.machine_mut().parts().expect("it has parts");
            let part = machine.lend(group);
            replica(groups.member(group))
                .core_mut()
                .executor_mut()
                .swap_machine(part);
        }
    }

    /// Time in g_all and in these groups is as late as in any of them: their workers have stopped,
    /// so it is the same on all replicas.
    fn meet(&mut self, set: u64, groups: &mut Groups) {
        let met = || members(set).chain([groups.all()]);
        let times = met().map(|group| core(groups, group).executor().now());
        let latest = times.max().expect("there are groups");
        for group in members(set).chain([groups.all()]) {
            let core = replica(groups.member(group)).core_mut();
            core.executor_mut().advance(latest);
        }
    }

    /// Takes the parts of these groups back into the machine.
    pub(super) fn gather(&mut self, set: u64, groups: &mut Groups) {
        let all = groups.all();
        for group in members(set).take_while(|group| *group < self.parts) {
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
                if self.adopt(now, groups) {
                    out.reached(branch::ADOPTS);
                }
            }
            // One picture at a time: that of another peer would take its place.
            To(In::SnapshotChunk { .. }) if core(groups, all).is_installing() => {}
            // No lane sends it: reads of several parts are in the log.
            To(In::Read { .. }) if group == all => {}
            // The peer has forgotten slots that are missing here, or the picture under way.
            To(In::SnapshotChunk { from, .. }) => {
                let (me, executed) = (self.me, self.done);
                let message = Message::NeedState { from: me, executed };
                out.reached(branch::NEEDS_STATE);
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
        out.reached(match is_offered {
            true => branch::STATE_AT_HAND,
            false => branch::STATE_AFTER_BARRIER,
        });
        if !is_offered {
            self.waiting.insert(from, (executed, now));
            self.barrier_at = self.barrier_at.or(Some(now));
        }
    }

    /// What touches all parts was just executed, and the machine is whole: takes the pictures that
    /// are waited for.
    fn take_pictures(&mut self, now: Instant, groups: &mut Groups) {
        let all = groups.all();
        if !self.keeps_records {
            for group in 0..=all {
                let core = replica(groups.member(group)).core_mut();
                core.kept(match group == all {
                    true => self.done,
                    false => core.behind_marker(self.touches.place()),
                });
            }
            self.since.begin(executed(groups).1);
        }
        let stores = self.keeps_records && self.is_snapshot_due(groups);
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
        if stores {
            self.since.begin(executed(groups).1);
        }
        // Until the peer has it, it will need what comes next in each group.
        if core(groups, all).has_offer() {
            for group in 0..all {
                replica(groups.member(group)).core_mut().retain_from_now();
            }
        }
    }

    /// Whether enough was executed for the next snapshot: of all logs together, which are in one
    /// log on disk, or in the slots of one of them.
    pub(super) fn is_snapshot_due(&mut self, groups: &Groups) -> bool {
        if self.storing.is_some() {
            return false;
        }
        let (bytes, work) = executed(groups);
        self.since.executed_in_all(bytes);
        let is_to_be_kept = |group| core(groups, group).is_to_be_kept();
        self.since.is_enough(1, usize::MAX, work) || (0..=groups.all()).any(is_to_be_kept)
    }

    /// If the replica of g_all has taken over a snapshot, the groups take over what it says of
    /// them: what they have is void. Says whether it has.
    fn adopt(&mut self, now: Instant, groups: &mut Groups) -> bool {
        let all = groups.all();
        let core = replica(groups.member(all)).core_mut();
        let Some(cuts) = core.executor_mut().take_cuts() else {
            return false;
        };
        let done = core.executed();
        self.touches.begin_at(done);
        self.divide(groups);
        let (gate, ends_skip) = (Gate::Marker(self.touches.place()), ends_skip(groups));
        for (group, (executed, sessions)) in cuts.into_iter().enumerate() {
            let executor = replica(groups.member(group)).core_mut().executor_mut();
            executor.take_sessions(&sessions).expect("it was checked");
            let resumption = Resumption {
                executed,
                gate,
                ends_skip,
            };
            self.delivery.replaced(now, group, resumption);
        }
        let core = replica(groups.member(all)).core_mut();
        core.set_gate(Gate::Below(done));
        self.done = done;
        true
    }

    /// Executes what can be executed: of the groups up to their markers, and of g_all when those
    /// have stopped that it touches.
    pub(super) fn advance(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        loop {
            self.delivery.finish(groups);
            if !self.pass_markers(now, groups, out) {
                break;
            }
        }
        for group in 0..=groups.all() {
            groups.pour(group, out);
        }
        self.watch(now, groups, out);
    }

    /// Lets those go on whose markers are reached, and executes the next slots of g_all if the
    /// groups that they touch have stopped; says whether anything was done.
    fn pass_markers(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) -> bool {
        let all = groups.all();
        let stopped = |group| core(groups, group).stopped_until();
        let markers: Vec<Option<Slot>> = (0..all).map(stopped).collect();
        let highest = markers.iter().flatten().max().copied();
        let takes_turns = self.config.turns().is_some();
        let whole = replica(groups.member(all)).core_mut();
        match highest {
            // Skips in g_all touch nothing.
            _ if takes_turns => {
                let next = self.touches.place().next();
                let end = highest.map_or(next, |highest| highest.max(next));
                self.touches.look(end, whole, self.parts);
            }
            None => return false,
            Some(highest) => {
                // What a marker announces is in the log, or will be.
                whole.want(now, highest);
                self.touches.look(highest, whole, self.parts);
            }
        }
        let goes_on = self.let_go_on(now, &markers, out);
        let Some((set, end)) = self.touches.run(&markers) else {
            if !goes_on && highest.is_some() && self.touches.next_set().is_none() {
                out.reached(branch::HOLE_BELOW_MARKER);
            }
            return goes_on;
        };
        if set != self.touches.everything() {
            out.reached(branch::SOME_STOP);
        }
        self.execute(now, (set, end), groups);
        if highest > Some(self.touches.place()) {
            out.reached(branch::STAYS);
        }
        true
    }

    /// Lets those go on whose markers are reached; says whether there are any.
    fn let_go_on(&mut self, now: Instant, markers: &[Option<Slot>], out: &mut Sends) -> bool {
        let mut goes_on = false;
        for (group, marker) in markers.iter().enumerate() {
            let free = self.touches.free_until(group);
            if marker.is_some_and(|marker| marker <= free) {
                if free > self.touches.place() {
                    out.reached(branch::PASSES);
                }
                self.delivery.open(now, group, Gate::Marker(free));
                goes_on = true;
            }
        }
        goes_on
    }

    /// Executes the slots of g_all below `end`, which touch these groups.
    fn execute(&mut self, now: Instant, (set, end): (u64, Slot), groups: &mut Groups) {
        let all = groups.all();
        self.look_for_mark(end, groups);
        self.gather(set, groups);
        self.meet(set, groups);
        let Member { instance, outbox } = groups.member(all);
        of(instance).open(now, Gate::Below(end), &mut Out::new(outbox));
        self.done = of(instance).executed();
        assert!(self.done == end, "what is known of g_all is executed");
        self.touches.executed(self.done);
        self.attempts = 0;
        self.meet(set, groups);
        if set == self.touches.everything() {
            self.count_anew(now, groups);
            self.take_pictures(now, groups);
        }
        self.spread(set, groups);
    }

    /// All workers have stopped, at the same places on every replica: turns are counted from here,
    /// so a picture need not contain how many were taken.
    fn count_anew(&mut self, now: Instant, groups: &mut Groups) {
        if self.config.turns().is_none() {
            return;
        }
        self.touches.count_anew();
        begin_turns(groups);
        for group in 0..groups.all() {
            self.delivery.open(now, group, Gate::Marker(Slot::ZERO));
        }
    }

    /// The burst ends.
    pub(super) fn on_burst_end(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        self.advance(now, groups, out);
        groups.on_burst_end(now, out);
    }

    /// The snapshot with this stamp is on disk, or (not `stored`) has found no room.
    pub(super) fn on_snapshot(
        &mut self,
        (stamp, stored): (u64, bool),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        self.delivery.finish(groups);
        let all = groups.all();
        groups.call(all, out, |it, outbox| it.on_snapshot(stamp, stored, outbox));
        match stored {
            true => self.since.stored(executed(groups).1),
            false if self.storing.as_ref().is_none_or(|it| it.0 == stamp) => self.since.refused(),
            false => {}
        }
        let storing = self.storing.take_if(|(storing, _)| *storing == stamp);
        let Some((_, executed)) = storing.filter(|_| stored) else {
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
        restored?;
        self.divide(groups);
        self.done = Slot(stamp);
        self.touches.begin_at(self.done);
        for (group, (executed, sessions)) in cuts.into_iter().enumerate() {
            let core = replica(groups.member(group)).core_mut();
            core.executor_mut().take_sessions(&sessions)?;
            core.begin_at(executed);
        }
        begin_turns(groups);
        for group in 0..all {
            let core = replica(groups.member(group)).core_mut();
            core.set_gate(Gate::Marker(self.touches.place()));
        }
        let whole = replica(groups.member(all)).core_mut();
        whole.set_gate(Gate::Below(self.done));
        self.meet(self.touches.everything(), groups);
        Ok(())
    }

    /// What was stored is restored. Pictures are those of peers from now on, and say how far the
    /// groups are.
    pub(super) fn start(&mut self, groups: &mut Groups) {
        let all = groups.all();
        let whole = replica(groups.member(all)).core_mut().executor_mut();
        whole.expect_cuts(all, true);
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

/// The bytes of the commands that all groups have executed since the process started, and the work
/// of the machine and its parts.
fn executed(groups: &Groups) -> (u64, u64) {
    let executed = (0..=groups.all()).map(|group| core(groups, group).done());
    executed.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

/// Whether a skip before which a worker has stopped ends where turns are counted anew.
fn ends_skip(groups: &Groups) -> bool {
    let membership = core(groups, groups.all()).executor().membership();
    membership.level >= Level(18)
}

/// Begins to count turns anew in all groups.
fn begin_turns(groups: &mut Groups) {
    let ends_skip = ends_skip(groups);
    for group in 0..groups.all() {
        let core = replica(groups.member(group)).core_mut();
        core.begin_turns(ends_skip);
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
