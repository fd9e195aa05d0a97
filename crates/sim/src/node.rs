//! A simulated node: the kernel's node with a disk, a clock and a queue of arrived messages.

use crate::clock::Clock;
use crate::configurations::Configuration;
use crate::disk::{Disk, Loss, Past, Unopened};
use crate::event::Micros;
use crate::giving_up;
use crate::leaving::Standing;
use crate::loops::RoleLoops;
use crate::scenario::{Canary, Durability, Scenario};
use crate::trace::mix;
use crate::workers;
use bytes::Bytes;
use ionian_kernel::client::Reply;
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::machine::{Frozen, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::{Burst as LoopBurst, Input, Instances};
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::Recording;
use ionian_kernel::wire::{Reader, decode_all};
use std::collections::VecDeque;
use std::rc::Rc;

/// One node; the disk and the clock outlive its crashes.
pub(crate) struct SimNode<P: Protocol> {
    pub(crate) id: NodeId,
    /// Its membership, which is stored and survives crashes.
    pub(crate) membership: Membership,
    pub(crate) configuration: Rc<Configuration<P>>,
    pub(crate) standing: Standing,
    /// The process, with the roles of its main event loop; `None` while the node is down.
    pub(crate) host: Option<Node<P>>,
    /// The other event loops, if it has any.
    loops: Option<RoleLoops<P>>,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    /// Arrived messages that were not delivered yet: destinations and bytes.
    pub(crate) arrived: VecDeque<(Members, Bytes)>,
    pub(crate) paused: bool,
    /// Whether the process is to lead nothing, and whether its roles know.
    pub(crate) drains: bool,
    roles_drain: bool,
    /// When its roles were called last.
    called_at: Micros,
    /// The number of crashes.
    pub(crate) life: u32,
    /// How many there were before its machine began.
    pub(crate) born: u32,
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
    pub(crate) lowered_until: Lsn,
    /// Snapshots that have reached the disk since the roles were last called.
    stored: Vec<(Address, (u64, bool))>,
    /// A checkpoint in progress: when everything up to the first position is on disk, everything
    /// before the second is dropped.
    checkpoint: Option<(Lsn, Lsn)>,
}

/// The effects of one call of a node's roles.
pub(crate) struct Effects<M> {
    pub(crate) sends: Vec<(u8, Members, M)>,
    pub(crate) replies: Vec<(ClientId, Reply)>,
    /// The number of records that were appended.
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    /// The number of snapshots that were started.
    pub(crate) snapshots: u64,
    /// The membership that the log has decided.
    pub(crate) announced: Option<Membership>,
    /// The rare branches taken.
    pub(crate) reached: Vec<&'static str>,
}

impl<M> Effects<M> {
    pub(crate) fn new() -> Self {
        Effects {
            sends: Vec::new(),
            replies: Vec::new(),
            records: 0,
            record_bytes: 0,
            snapshots: 0,
            announced: None,
            reached: Vec::new(),
        }
    }
}

/// The node's `World` while its roles are called.
struct Port<'a, P: Protocol> {
    disk: &'a mut Disk,
    /// What the node's clock shows.
    clock: Instant,
    effects: &'a mut Effects<P::Message>,
    loops: Option<&'a mut RoleLoops<P>>,
}

impl<P: Protocol> World<P> for Port<'_, P> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message),
        };
        if let Some((members, message)) = rest {
            self.effects.sends.push((kind, members, message));
        }
    }

    fn append(&mut self, from: Address, record: &[u8], _: bool) -> Lsn {
        self.effects.records += 1;
        self.effects.record_bytes += record.len() as u64;
        self.disk.append(from, record)
    }

    fn durable(&self) -> Lsn {
        self.disk.durable()
    }

    fn clock(&self) -> Instant {
        self.clock
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, mut frozen: Box<dyn Frozen>) {
        let mut snapshot = Vec::new();
        while frozen.write_some(&mut snapshot) {}
        self.effects.records += 1;
        self.effects.record_bytes += snapshot.len() as u64;
        self.effects.snapshots += 1;
        self.disk.store_snapshot(from, stamp, Bytes::from(snapshot));
    }

    fn announce(&mut self, membership: Membership) {
        self.effects.announced = Some(membership);
    }

    fn reply(&mut self, lane: ClientId, reply: Reply) {
        self.effects.replies.push((lane, reply));
    }

    fn reached(&mut self, branch: &'static str) {
        self.effects.reached.push(branch);
    }
}

impl<P: Protocol> Port<'_, P> {
    /// Takes in what a role loop has handed over. Returns from where on the log is needed, if that
    /// was the last part of a checkpoint.
    fn take_in(&mut self, host: &mut Node<P>, place: usize, burst: LoopBurst<P>) -> Option<Lsn> {
        let last = burst.append(self);
        let needed = self.loops.as_mut()?.homes.appended(place, &burst, last);
        burst.pass_on(host, self);
        needed
    }

    fn is_in_checkpoint(&self) -> bool {
        let loops = self.loops.as_ref();
        loops.is_some_and(|loops| loops.homes.is_in_checkpoint())
    }
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

/// What nodes note for traces, where they do.
const EVERYTHING: Recording = Recording {
    one_in: 1,
    until: Instant(u64::MAX),
};

/// The parameters of a node's start.
pub(crate) struct Boot<'a> {
    pub(crate) seed: u64,
    /// Whether ordinary records are stored.
    pub(crate) keeps_records: bool,
    /// Whether a node learns after a crash that its memory is lost.
    pub(crate) tells_amnesia: bool,
    pub(crate) machine: &'a dyn Fn(Address, u32) -> Box<dyn StateMachine>,
    scenario: &'a Scenario,
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
}

impl<P: Protocol> SimNode<P> {
    pub(crate) fn new(
        id: NodeId,
        configuration: Rc<Configuration<P>>,
        disk: Disk,
        clock: Clock,
    ) -> Self {
        SimNode {
            id,
            membership: Membership::founding(configuration.layout.founding_level),
            configuration,
            standing: Standing::default(),
            host: None,
            loops: None,
            disk,
            clock,
            arrived: VecDeque::new(),
            paused: false,
            called_at: 0,
            life: 0,
            born: 0,
            has_machine: true,
            wake_at: None,
            burst_open: false,
            drains: false,
            roles_drain: false,
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
        self.configuration.layout.client_lanes(self.id).iter()
    }

    /// Starts the node's process: constructs its roles, replays their records, and starts them.
    /// Returns what is lost. If the storage fails there is no process.
    pub(crate) fn boot(
        &mut self,
        now: Micros,
        boot: &Boot<'_>,
        effects: &mut Effects<P::Message>,
    ) -> Result<Loss, Unopened> {
        let mut host = Node::new(&self.configuration.config, boot.keeps_records);
        for (address, instance) in self.missing(|_| false, boot, self.life > self.born) {
            host.host(address, instance);
        }
        let hosted = self.configuration.layout.on_node(self.id);
        let Past {
            snapshots,
            records,
            loss,
        } = self.disk.open(&hosted)?;
        for (from, stamp, snapshot) in snapshots
            .into_iter()
            .filter(|(from, ..)| hosted.contains(from))
        {
            host.restore(from, stamp, &snapshot)
                .map_err(|error| format!("{from:?}: {error}"))?;
        }
        for (from, lsn, record) in records
            .into_iter()
            .filter(|(from, ..)| hosted.contains(from))
        {
            let record = Bytes::from(record);
            let mut reader = Reader::new(&record);
            host.recover(from, lsn, &mut reader)
                .and_then(|()| reader.finish())
                .map_err(|error| format!("record {} of {from:?}, {record:02x?}: {error}", lsn.0))?;
        }
        if boot.scenario.records {
            host.record(self.clock.read(now), EVERYTHING);
        }
        self.told = self.disk.durable();
        let opened = Lsn(self.disk.next().0 - 1);
        let loops = self.configuration.layout.options.loops;
        let who = mix(boot.seed, u64::from(self.id.0) << 32 | u64::from(self.life));
        let local = self.clock.read(now);
        self.called_at = now;
        self.loops = (loops > 1).then(|| RoleLoops::split((&mut host, local), loops, opened, who));
        host.start(
            local,
            &mut Port {
                disk: &mut self.disk,
                clock: local,
                effects,
                loops: self.loops.as_mut(),
            },
        );
        self.burst_open = true;
        self.host = Some(host);
        Ok(loss)
    }

    /// Constructs the roles that the configuration places here and that are not here yet.
    fn missing(
        &self,
        is_here: impl Fn(Address) -> bool,
        boot: &Boot<'_>,
        amnesiac: bool,
    ) -> Instances<P> {
        let Configuration { layout, config } = &*self.configuration;
        let mut missing = layout.on_node(self.id);
        missing.retain(|address| !is_here(*address));
        let guard = giving_up::guard(boot.scenario, self.id);
        let create = |address: Address| {
            let who = u64::from(address.kind) << 32
                | u64::from(address.index) << 24
                | u64::from(self.life);
            let birth = Birth {
                address,
                node: self.id,
                seed: mix(boot.seed, who ^ u64::from(layout.epoch.0) << 40),
                keeps_records: boot.keeps_records,
                amnesiac: amnesiac && !boot.keeps_records && boot.tells_amnesia,
                machine: &|| (boot.machine)(address, self.life),
                guard: guard.as_ref(),
                workers: Some(&|count| workers::hire(mix(boot.seed, who), count)),
            };
            (address, P::instantiate(config, birth))
        };
        missing.into_iter().map(create).collect()
    }

    /// The node has learned another configuration.
    pub(crate) fn reconfigure(
        &mut self,
        now: Micros,
        boot: &Boot<'_>,
        effects: &mut Effects<P::Message>,
    ) {
        let local = self.clock.read(now);
        self.called_at = now;
        let Some(mut host) = self.host.take() else {
            return;
        };
        let configuration = self.configuration.clone();
        let loops = self.loops.as_ref();
        let is_here = |address| {
            let home = loops.and_then(|loops| loops.homes.home(address));
            host.hosts(address) || home.is_some()
        };
        let mut new = self.missing(is_here, boot, false);
        let change = (&configuration.layout, &configuration.config, self.id);
        let mut port = Port {
            disk: &mut self.disk,
            clock: local,
            effects,
            loops: self.loops.as_mut(),
        };
        host.reconfigure(local, change, &mut port);
        if let Some(loops) = &mut port.loops {
            new = loops.reconfigure(change, new);
        }
        for (address, instance) in new {
            host.host(address, instance);
        }
        host.start(local, &mut port);
        // Roles that the membership has brought do not know yet.
        self.roles_drain = false;
        self.burst_open = true;
        self.host = Some(host);
    }

    /// Ends the process and drops its memory.
    pub(crate) fn die(&mut self) {
        self.host = None;
        self.loops = None;
        self.arrived.clear();
        self.paused = false;
        (self.drains, self.roles_drain) = (false, false);
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
            let here = self.configuration.layout.on_node(self.id).into_iter();
            let executors = here.filter(|it| P::EXECUTORS.contains(&it.kind));
            self.stored.extend(executors.map(|it| (it, (0, false))));
        }
    }

    /// Runs the roles. `watch` is called for each role that received a message, or whose snapshot
    /// is on disk.
    pub(crate) fn step(
        &mut self,
        now: Micros,
        burst: &Burst,
        effects: &mut Effects<P::Message>,
        watch: &mut dyn FnMut(Address, &P::Instance),
    ) -> Result<(), String> {
        let since = now - self.called_at;
        let read_at = self.called_at + since * burst.clock_share / Burst::AT_ONCE;
        let (local, clock) = (self.clock.read(read_at), self.clock.read(now));
        self.called_at = now;
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        if let Some(loops) = &mut self.loops {
            loops.run((local, clock), burst.run, watch);
        }
        let mut port = Port {
            disk: &mut self.disk,
            clock,
            effects,
            loops: self.loops.as_mut(),
        };
        let durable = port.disk.durable();
        self.told_before = self.told;
        if durable > self.told {
            self.told = durable;
            host.on_durable(&mut port);
        }
        if let Some(loops) = &mut port.loops {
            loops.report_durable(durable);
        }
        for (from, snapshot) in self.stored.drain(..) {
            let home = port.loops.as_ref().and_then(|it| it.homes.home(from));
            match (home, &mut port.loops) {
                (Some(place), Some(loops)) => loops.give(place, Input::Snapshot(from, snapshot)),
                _ => {
                    host.on_snapshot(from, snapshot, &mut port);
                    host.instance(from).iter().for_each(|it| watch(from, it));
                }
            }
        }
        if std::mem::replace(&mut self.roles_drain, self.drains) != self.drains {
            host.drain(local, self.drains, &mut port);
            if let Some(loops) = &mut port.loops {
                loops.drain(self.drains);
            }
        }
        while let Some((place, burst)) = port.loops.as_mut().and_then(|it| it.next_burst()) {
            if let Some(needed) = port.take_in(host, place, burst) {
                self.checkpoint = Some((Lsn(port.disk.next().0 - 1), needed));
            }
        }
        match self.checkpoint {
            Some((written, needed)) if durable >= written => {
                port.disk.truncate_below(needed);
                self.checkpoint = None;
            }
            None if burst.checkpoint && !port.is_in_checkpoint() => {
                let next = port.disk.next();
                let needed = host.checkpoint(next, &mut port);
                match &mut port.loops {
                    None => self.checkpoint = Some((Lsn(port.disk.next().0 - 1), needed)),
                    Some(loops) => loops.begin_checkpoint(needed),
                }
            }
            _ => {}
        }
        for _ in 0..burst.deliver {
            let Some((members, bytes)) = self.arrived.pop_front() else {
                break;
            };
            let message = decode_all(&bytes)
                .map_err(|error| format!("{bytes:02x?} does not decode: {error}"))?;
            let rest = match &mut port.loops {
                None => Some((members, message)),
                Some(loops) => loops.pass(members, message),
            };
            if let Some((members, message)) = rest {
                host.deliver(members, message);
            }
        }
        for _ in 0..burst.run {
            let Some((taker, _)) = host.front() else {
                break;
            };
            host.run(local, 1, &mut port);
            watch(taker, host.instance(taker).expect("it was just called"));
        }
        if host.next_timer().is_some_and(|timer| timer <= local) {
            host.fire_timers(local, &mut port);
        }
        self.burst_open = !burst.ends;
        if burst.ends {
            host.end_burst(local, &mut port);
        }
        if let Some(loops) = &mut self.loops {
            loops.run((local, clock), burst.run, watch);
        }
        let loops = self.loops.iter().flat_map(RoleLoops::nodes);
        match host.ignored() + loops.map(Node::ignored).sum::<u64>() {
            0 => Ok(()),
            // The argument for ignoring them (`Node::run`) is that it keeps no client waiting, for
            // there are none.
            _ => Err("a message names an epoch of which its sender has not told this node".into()),
        }
    }

    /// Whether what it sends now may have waited for the disk since the level was higher.
    pub(crate) fn may_send_of_higher_levels(&self) -> bool {
        self.told_before < self.lowered_until
    }

    /// Whether there is work to do.
    pub(crate) fn busy(&self) -> bool {
        self.burst_open
            || !self.arrived.is_empty()
            || self.host.as_ref().is_some_and(|host| host.queued() > 0)
            || self.loops.as_ref().is_some_and(RoleLoops::busy)
    }

    /// The hosts of its event loops, the main one first; none while the node is down.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Node<P>> {
        let others = self.loops.iter().flat_map(RoleLoops::nodes);
        self.host.iter().chain(others)
    }

    /// Its role instances; none while the node is down. The order does not depend on their loops:
    /// what is looked at first may matter to invariants.
    pub(crate) fn instances(&self) -> Box<dyn Iterator<Item = (Address, &P::Instance)> + '_> {
        let all = self.hosts().flat_map(Node::instances);
        if self.loops.is_none() {
            return Box::new(all);
        }
        let mut sorted: Vec<_> = all.collect();
        sorted.sort_by_key(|(address, _)| *address);
        Box::new(sorted.into_iter())
    }

    /// The time of the next timer.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        let timers = self.hosts().filter_map(Node::next_timer);
        Some(self.clock.when(timers.min()?))
    }
}
