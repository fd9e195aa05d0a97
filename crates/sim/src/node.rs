//! A simulated node: the kernel's node with a disk, a clock and a queue of arrived messages.

use crate::clock::Clock;
use crate::disk::{Disk, Loss, Unopened};
use crate::event::Micros;
use crate::leaving::Standing;
use crate::roles::{
    AnyInstance, Checkpoint, Create, Effects, Log, Outside, Roles, Simulated, Site, Start, Watcher,
};
use crate::scenario::{Canary, Durability, Scenario};
use crate::trace::mix;
use crate::{giving_up, workers};
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Lsn;
use std::collections::VecDeque;
use std::rc::Rc;

/// One node; the disk and the clock outlive its crashes.
pub(crate) struct SimNode {
    pub(crate) protocol: Simulated,
    pub(crate) id: NodeId,
    /// Its membership, which is stored and survives crashes.
    pub(crate) membership: Membership,
    /// The layout of that membership.
    pub(crate) layout: Rc<Layout>,
    pub(crate) standing: Standing,
    /// The process, with its roles; `None` while the node is down.
    pub(crate) host: Option<Box<dyn Roles>>,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    /// Arrived messages that were not delivered yet: destinations and bytes.
    pub(crate) arrived: VecDeque<(Members, Bytes)>,
    pub(crate) paused: bool,
    /// Whether the process is to lead nothing, and whether its roles know.
    pub(crate) drains: bool,
    roles_drain: bool,
    /// Whether a membership has brought roles that do not know.
    has_new_roles: bool,
    /// When its roles were called last.
    called_at: Micros,
    /// The number of crashes.
    pub(crate) life: u32,
    /// How many there were before its machine began.
    pub(crate) born: u32,
    /// How many disks of it were lost and [replaced by an empty one](crate::losing).
    pub(crate) predecessors: u32,
    /// Whether it has all that was on the last of them.
    pub(crate) has_regained: bool,
    /// Whether the machine that it ran on last is there.
    pub(crate) has_machine: bool,
    /// The time of the next wake-up.
    pub(crate) wake_at: Option<Micros>,
    burst_open: bool,
    /// The disk position that the roles know.
    told: Lsn,
    /// The one that they knew before they were called.
    told_before: Lsn,
    /// What they said at a higher level may wait for records before this one.
    lowered_until: Lsn,
    /// Snapshots that have reached the disk since the roles were last called.
    stored: Vec<(Address, (u64, bool))>,
    /// A checkpoint that is not on disk yet.
    checkpoint: Option<Checkpoint>,
}

/// The work of a node in one step.
pub(crate) struct Burst {
    /// Maximum number of arrived messages to deliver.
    pub(crate) deliver: usize,
    /// Maximum number of queued messages to pass to roles.
    pub(crate) run: usize,
    /// Whether the burst ends here.
    pub(crate) ends: bool,
    /// Whether the node starts a checkpoint of its log, if none is in progress.
    pub(crate) checkpoint: bool,
    /// The clock was read before the input came, when this share (of 256) of the time since the
    /// last step had passed: it may have been a pause.
    pub(crate) clock_share: u64,
}

impl Burst {
    /// The clock is read when the input has come.
    pub(crate) const AT_ONCE: u64 = 256;
}

/// The parameters of a node's start.
pub(crate) struct Boot<'a> {
    pub(crate) seed: u64,
    /// Whether ordinary records are stored.
    pub(crate) keeps_records: bool,
    /// Whether a node learns after a crash that its memory is lost.
    pub(crate) tells_amnesia: bool,
    pub(crate) machine: &'a dyn Fn(Address, u32) -> Box<dyn StateMachine>,
    pub(crate) scenario: &'a Scenario,
}

impl<'a> Boot<'a> {
    /// As the scenario has it.
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        machine: &'a dyn Fn(Address, u32) -> Box<dyn StateMachine>,
    ) -> Self {
        Boot {
            seed,
            keeps_records: scenario.durability == Durability::Disk,
            tells_amnesia: scenario.canary != Canary::HideAmnesia,
            machine,
            scenario,
        }
    }

    /// What the roles of a node are created with. It has crashed `life` times and lost
    /// `predecessors` disks; an earlier process of it has taken part in the cluster, or (`has_past`
    /// false) none has.
    fn births<'b>(
        &'b self,
        layout: &'b Layout,
        node: NodeId,
        (life, predecessors): (u32, u32),
        has_past: bool,
    ) -> impl Fn(Address, &mut Create<'_>) + 'b {
        let guard = giving_up::guard(self.scenario, node);
        move |address, create| {
            let who =
                u64::from(address.kind) << 32 | u64::from(address.index) << 24 | u64::from(life);
            create(Birth {
                address,
                node,
                seed: mix(self.seed, who ^ u64::from(layout.epoch.0) << 40),
                keeps_records: self.keeps_records,
                amnesiac: has_past && !self.keeps_records && self.tells_amnesia,
                predecessors: if self.tells_amnesia { predecessors } else { 0 },
                machine: &|| (self.machine)(address, life),
                guard: guard.as_ref(),
                workers: Some(&|count| workers::hire(mix(self.seed, who), count)),
            });
        }
    }
}

impl SimNode {
    pub(crate) fn new(
        protocol: Simulated,
        id: NodeId,
        layout: Rc<Layout>,
        disk: Disk,
        clock: Clock,
    ) -> Self {
        SimNode {
            protocol,
            id,
            membership: Membership::founding(layout.founding_level),
            layout,
            standing: Standing::default(),
            host: None,
            disk,
            clock,
            arrived: VecDeque::new(),
            paused: false,
            called_at: 0,
            life: 0,
            born: 0,
            predecessors: 0,
            has_regained: true,
            has_machine: true,
            wake_at: None,
            burst_open: false,
            drains: false,
            roles_drain: false,
            has_new_roles: false,
            told: Lsn(0),
            told_before: Lsn(0),
            lowered_until: Lsn(0),
            stored: Vec::new(),
            checkpoint: None,
        }
    }

    /// Whether the process runs.
    pub(crate) fn runs(&self) -> bool {
        self.host.is_some() && !self.paused
    }

    /// The client lanes of the node.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = ClientId> {
        self.layout.client_lanes(self.id).iter()
    }

    /// Starts the node's process: constructs its roles, replays their records, and starts them.
    /// Returns what is lost. If the storage fails there is no process.
    pub(crate) fn boot(
        &mut self,
        now: Micros,
        boot: &Boot<'_>,
        effects: &mut Effects,
    ) -> Result<Loss, Unopened> {
        let layout = self.layout.clone();
        let has_past = self.life > self.born;
        let site = Site {
            layout: &layout,
            node: self.id,
            keeps_records: boot.keeps_records,
            birth: &boot.births(&layout, self.id, (self.life, self.predecessors), has_past),
        };
        let mut host = self.protocol.create(&site);
        let past = self.disk.open(&layout.on_node(self.id))?;
        let loss = past.loss;
        host.recover(past)?;
        self.told = self.disk.durable();
        self.called_at = now;
        let loops = layout.options.loops;
        let seed = u64::from(self.id.0) << 32 | u64::from(self.life);
        let start = Start {
            records: boot.scenario.records,
            loops: (loops > 1).then_some((loops, mix(boot.seed, seed))),
        };
        host.start(start, &mut self.outside(now, effects));
        self.burst_open = true;
        self.host = Some(host);
        Ok(loss)
    }

    fn outside<'a>(&'a mut self, now: Micros, effects: &'a mut Effects) -> Outside<'a> {
        let clock = self.clock.read(now);
        Outside {
            disk: &mut self.disk,
            now: clock,
            clock,
            effects,
        }
    }

    /// The node has learned another layout.
    pub(crate) fn reconfigure(&mut self, now: Micros, boot: &Boot<'_>, effects: &mut Effects) {
        self.called_at = now;
        let Some(mut host) = self.host.take() else {
            return;
        };
        let layout = self.layout.clone();
        let site = Site {
            layout: &layout,
            node: self.id,
            keeps_records: boot.keeps_records,
            birth: &boot.births(&layout, self.id, (self.life, self.predecessors), false),
        };
        host.reconfigure(&site, &mut self.outside(now, effects));
        self.host = Some(host);
        self.has_new_roles = true;
        self.burst_open = true;
    }

    /// Ends the process and drops its memory.
    pub(crate) fn die(&mut self) {
        self.host = None;
        self.arrived.clear();
        self.paused = false;
        (self.drains, self.roles_drain, self.has_new_roles) = (false, false, false);
        self.burst_open = false;
        self.wake_at = None;
        self.stored.clear();
        self.checkpoint = None;
        self.life += 1;
    }

    /// The sync is done; the roles learn of it at their next call.
    pub(crate) fn complete_sync(&mut self) {
        self.stored.extend(self.disk.complete_sync());
        if self.disk.wants_snapshots() {
            let executors = self.protocol.description().executors;
            let here = self.layout.on_node(self.id).into_iter();
            let executors = here.filter(|it| executors.contains(&it.kind));
            self.stored.extend(executors.map(|it| (it, (0, false))));
        }
    }

    /// Runs the roles. `watch` is called for each role that received a message, or whose snapshot
    /// is on disk.
    pub(crate) fn step(
        &mut self,
        now: Micros,
        burst: &Burst,
        effects: &mut Effects,
        watch: &mut Watcher<'_>,
    ) -> Result<(), String> {
        let since = now - self.called_at;
        let read_at = self.called_at + since * burst.clock_share / Burst::AT_ONCE;
        self.called_at = now;
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let (now, clock) = (self.clock.read(read_at), self.clock.read(now));
        let outside = &mut Outside {
            disk: &mut self.disk,
            now,
            clock,
            effects: &mut *effects,
        };
        host.run_loops(burst.run, outside, watch);
        host.on_durable(self.told, outside);
        let durable = outside.disk.durable();
        (self.told_before, self.told) = (self.told, self.told.max(durable));
        for (from, snapshot) in self.stored.drain(..) {
            host.on_snapshot(from, snapshot, outside);
            host.instance(from)
                .into_iter()
                .for_each(|it| watch(from, it));
        }
        let is_news = std::mem::take(&mut self.has_new_roles) && self.drains;
        if std::mem::replace(&mut self.roles_drain, self.drains) != self.drains || is_news {
            host.drain(self.drains, outside);
        }
        self.checkpoint = host.take_in(outside).or(self.checkpoint);
        match self.checkpoint {
            Some((written, needed)) if durable >= written => {
                self.disk.truncate_below(needed);
                self.checkpoint = None;
            }
            None if burst.checkpoint => self.checkpoint = host.checkpoint(outside),
            _ => {}
        }
        for _ in 0..burst.deliver {
            let Some((members, bytes)) = self.arrived.pop_front() else {
                break;
            };
            host.receive(members, &bytes)?;
        }
        self.burst_open = !burst.ends;
        let outside = &mut Outside {
            disk: &mut self.disk,
            now,
            clock,
            effects,
        };
        run(&mut **host, burst, outside, watch)
    }

    /// It learns of a membership, which may have a lower level than what it has sent until now.
    pub(crate) fn lower(&mut self, membership: &Membership) {
        if membership.level < Level::LATEST {
            self.lowered_until = self.disk.next();
        }
    }

    /// Whether what it sends now may have waited for the disk since the level was higher.
    pub(crate) fn may_send_of_higher_levels(&self) -> bool {
        self.told_before < self.lowered_until
    }

    /// Whether there is work to do.
    pub(crate) fn busy(&self) -> bool {
        let host = self.host.as_ref();
        self.burst_open || !self.arrived.is_empty() || host.is_some_and(|host| host.is_busy())
    }

    /// Its role instances; none while the node is down.
    pub(crate) fn instances(&self) -> impl Iterator<Item = (Address, &dyn AnyInstance)> {
        self.host.iter().flat_map(|host| host.instances())
    }

    /// The time of the next timer.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        Some(self.clock.when(self.host.as_ref()?.next_timer()?))
    }
}

/// Passes queued messages to roles and fires their timers, on the main loop and then on role loops.
fn run(
    host: &mut dyn Roles,
    burst: &Burst,
    outside: &mut Outside<'_>,
    watch: &mut Watcher<'_>,
) -> Result<(), String> {
    for _ in 0..burst.run {
        let Some((taker, _)) = host.front() else {
            break;
        };
        host.run_one(outside);
        watch(taker, host.instance(taker).expect("it was just called"));
    }
    host.fire_timers(outside);
    if burst.ends {
        host.end_burst(outside);
    }
    host.run_loops(burst.run, outside, watch);
    match host.ignored() {
        0 => Ok(()),
        // The argument for ignoring them (`Node::run`) is that it keeps no client waiting, for
        // there are none.
        _ => Err("a message names an epoch of which its sender has not told this node".into()),
    }
}
