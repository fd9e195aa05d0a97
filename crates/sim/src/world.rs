//! The simulated world: nodes, network and clients on one event heap.

use crate::clock::{self, Clock};
use crate::configurations::{Configurations, OPERATOR};
use crate::disk::{Defect, Disk, Loss, Unopened};
use crate::event::{Heap, Micros};
use crate::fault::{Fault, Outages};
use crate::journal::{self, Journal, Recorded, SharedJournal};
use crate::model::Model;
use crate::network::{Network, Passage};
use crate::node::{Boot, Burst, SimNode};
use crate::oracle::{Oracle, View};
use crate::report::{Failure, FailureKind, Report};
use crate::rest::Rest;
use crate::roles::{AnyInstance, AnyMessage, Effects, Log as _, Simulated};
use crate::run::Watch;
use crate::scenario::{Canary, Scenario};
use crate::swarm::Knobs;
use crate::trace::{Trace, hash_bytes, mix};
use crate::workload::{Plan, Turn, Workload};
use bytes::Bytes;
use ionian_kernel::client::Reply;
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::Description;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;

/// What can happen.
pub(crate) enum Event {
    /// A message reaches a node.
    Arrive(Parcel),
    /// A node looks whether there is something to do.
    Wake(usize),
    /// A sync of a node's disk is done, if the node still lives the same life.
    Synced { node: usize, life: u32 },
    /// A client thread goes on.
    Ready { thread: usize, turn: u64 },
    /// An operator asks for a change of the membership.
    Operate,
    /// Something breaks, or is repaired.
    Fault(Fault),
    /// The faults are over.
    Heal,
    /// It is looked at whether the healed cluster has come to rest.
    Look,
    /// The run is over.
    Over,
}

/// A message under way.
pub(crate) struct Parcel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) members: Members,
    /// Nothing but the news when it is empty.
    pub(crate) bytes: Bytes,
    pub(crate) name: &'static str,
    pub(crate) digest: u64,
    /// What the sender knows of the membership.
    pub(crate) news: Membership,
}

/// Whether the run goes on.
pub(crate) type Step = Result<(), Failure>;

/// One run.
pub(crate) struct Simulation<M: Model> {
    pub(crate) protocol: Simulated,
    pub(crate) scenario: Scenario,
    pub(crate) knobs: Knobs,
    pub(crate) seed: u64,
    pub(crate) configurations: Configurations,
    pub(crate) random: Random,
    pub(crate) heap: Heap<Event>,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) network: Network,
    pub(crate) outages: Outages,
    pub(crate) workload: Workload<M>,
    pub(crate) journal: SharedJournal,
    pub(crate) oracles: Vec<Box<dyn Oracle>>,
    pub(crate) trace: Trace,
    pub(crate) report: Report,
    pub(crate) effects: Effects,
    /// Whether the faults are over.
    pub(crate) healed: bool,
    /// The cluster must finish by this time, once it is healed.
    pub(crate) deadline: Option<Micros>,
    /// The latest time of the log.
    time: Timestamp,
    /// How far the healed cluster has come to rest.
    pub(crate) rest: Rest,
    over: bool,
}

/// Faults end at the latest when a run has had one in this many of the events that it may have.
const BUSY_WITH_FAULTS: u64 = 32;

/// How long the run goes on after the work is done: a straggler may still do harm.
const GRACE: Micros = 1_500_000;

/// How often a healed cluster is looked at for rest: not in phase with what roles do each 20 ms.
const LOOK_EVERY: Micros = 19_037;

/// After this number of events it is looked at what must hold between two calls of a role: that
/// reads all that the role has, which in a sparse log takes longer than the calls.
const INVARIANTS_EVERY: u64 = 16;

/// A node begins a checkpoint of its log so often: far more than in life, where logs grow large
/// first.
const CHECKPOINT_ONCE_IN: u64 = 40;

impl<M: Model> Simulation<M> {
    pub(crate) fn new(
        protocol: Simulated,
        scenario: &Scenario,
        seed: u64,
        model: M,
        watch: Watch,
    ) -> Result<Self, Failure> {
        let mut scenario = scenario.clone();
        let description = protocol.description();
        let knobs = Knobs::draw(seed, &scenario, description.settings, description.readmits);
        scenario.layout.options = knobs.options.clone();
        scenario.layout.founding_level = knobs.founding_level.max(description.founded_since);
        scenario.order = scenario.promised_order(description, &model);
        let explain = |message| Failure {
            kind: FailureKind::Layout,
            message,
            at: 0,
        };
        let configurations = Configurations::new(protocol.protocol(), &scenario);
        let mut configurations = configurations.map_err(explain)?;
        let founding = configurations.founding().map_err(explain)?;
        let mut oracles = watch.oracles;
        oracles.push(protocol.invariants(&founding));
        let mut random = Random::new(seed);
        let defect = match scenario.canary {
            Canary::NoFence => Defect::Lies,
            Canary::ForgetDisk => Defect::Forgets,
            Canary::IgnoresDiskErrors => Defect::IgnoresErrors,
            _ => Defect::None,
        };
        let nodes: Vec<SimNode> = (0..scenario.nodes())
            .map(|index| {
                let id = NodeId(index as u16);
                let drift = random.between(0, 2 * knobs.clock_drift_ppm as u64) as i64
                    - knobs.clock_drift_ppm;
                let clock = Clock {
                    ahead: random.between(0, knobs.clock_ahead),
                    drift_ppm: drift,
                };
                let mut disk =
                    Disk::new(mix(mix(seed, 3), index as u64), knobs.segment_bytes, defect);
                disk.snapshots = knobs.snapshots;
                SimNode::new(protocol, id, founding.clone(), disk, clock)
            })
            .collect();
        let lanes = configurations.lanes();
        let branches = (description.branches)()
            .into_iter()
            .map(|branch| (branch, 0))
            .collect();
        Ok(Simulation {
            protocol,
            seed,
            configurations,
            random,
            heap: Heap::new(),
            network: Network::new(nodes.len(), knobs.network.clone()),
            nodes,
            outages: Outages::default(),
            workload: Workload::new(model, mix(seed, 1), lanes, &knobs),
            journal: Journal::shared(scenario.order, scenario.stable_log),
            oracles,
            trace: Trace::new(watch.trace),
            report: Report {
                runs: 1,
                calm_runs: u64::from(knobs.calm),
                branches,
                ..Report::default()
            },
            effects: Effects::default(),
            healed: false,
            deadline: None,
            time: Timestamp(0),
            rest: Rest::default(),
            over: false,
            scenario,
            knobs,
        })
    }

    /// The names and tables of the protocol.
    pub(crate) fn description(&self) -> &'static Description {
        self.protocol.description()
    }

    pub(crate) fn now(&self) -> Micros {
        self.heap.now()
    }

    pub(crate) fn fail(&self, kind: FailureKind, message: String) -> Failure {
        Failure {
            kind,
            message,
            at: self.now(),
        }
    }

    /// Runs to the end.
    pub(crate) fn drive(&mut self) -> Step {
        for node in 0..self.nodes.len() {
            match self.knobs.late.get(&node).copied() {
                None => self.boot(node)?,
                Some(at) => self
                    .heap
                    .plan(at, Event::Fault(Fault::Restart { node, life: 0 })),
            }
        }
        self.plan_faults();
        self.plan_change();
        self.heap.plan(self.knobs.duration, Event::Heal);
        let most = self.scenario.most_events() * self.knobs.length;
        while !self.over {
            let Some(event) = self.heap.pop() else {
                return Err(self.stuck("does nothing any more"));
            };
            self.report.events += 1;
            if self.deadline.is_some_and(|deadline| self.now() > deadline) {
                return Err(self.stuck("did not finish in time"));
            }
            if self.report.events > most {
                return Err(self.stuck("keeps busy without an end"));
            }
            self.handle(event)?;
            self.stop_at_disk_errors();
            // Where each fault costs many messages, few of them use up what a run may cost.
            if self.report.events > most / BUSY_WITH_FAULTS {
                self.heal()?;
            }
        }
        let hosts = self.nodes.iter().flat_map(|node| &node.host);
        hosts.for_each(|host| host.invariants());
        let view = View {
            nodes: &self.nodes,
            changed: 0,
        };
        let found = self
            .oracles
            .iter_mut()
            .try_for_each(|oracle| oracle.at_end(&view));
        found.map_err(|what| self.fail(FailureKind::Invariant, what))
    }

    pub(crate) fn handle(&mut self, event: Event) -> Step {
        match event {
            Event::Arrive(parcel) => {
                let (from, to, news) = (parcel.from, parcel.to, parcel.news.clone());
                self.exchange_news(from, to, &news)?;
                self.arrive(parcel);
                Ok(())
            }
            Event::Wake(node) => self.wake(node),
            Event::Synced { node, life } => {
                if self.nodes[node].life == life {
                    self.nodes[node].complete_sync();
                    let durable = self.nodes[node].disk.durable().0;
                    self.trace
                        .note(self.heap.now(), node, "synced", durable, || {
                            format!("up to {durable}")
                        });
                    self.rouse(node, self.now());
                    // What came in meanwhile goes with the next one.
                    self.sync(node);
                }
                Ok(())
            }
            Event::Ready { thread, turn } => {
                self.submit(thread, turn);
                Ok(())
            }
            Event::Operate => self.operate(),
            Event::Fault(fault) => self.strike(fault),
            Event::Heal => self.heal(),
            Event::Look => {
                self.look_for_the_end();
                Ok(())
            }
            Event::Over => {
                self.over = true;
                Ok(())
            }
        }
    }

    fn look_for_the_end(&mut self) {
        // A node that is left apart comes to no rest.
        let all_rest = self.scenario.all_catch_up && self.report.left_apart == 0;
        let goes_on = !self.workload.done() || all_rest && self.awaited().is_some();
        if goes_on {
            return self.heap.plan(self.now() + LOOK_EVERY, Event::Look);
        }
        self.deadline = None;
        self.heap.plan(self.now() + GRACE, Event::Over);
    }

    /// Starts a node's process.
    pub(crate) fn boot(&mut self, node: usize) -> Step {
        let (journal, model, canary) = (&self.journal, &self.workload.model, self.scenario.canary);
        let protocol = self.description();
        let machine =
            |address, life| Recorded::of(protocol, (node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, mix(self.seed, 2), &machine);
        let booted = self.nodes[node].boot(self.heap.now(), &boot, &mut self.effects);
        let Loss {
            records,
            torn,
            truncated,
        } = match booted {
            Ok(loss) => loss,
            Err(Unopened::Past(what)) => return Err(self.fail(FailureKind::Recovery, what)),
            Err(Unopened::Storage(why)) => {
                self.cannot_start(node, &why);
                return Ok(());
            }
        };
        self.report.torn_records += records;
        self.report.torn_logs += u64::from(torn);
        self.report.truncated_logs += u64::from(truncated);
        let durable = self.nodes[node].disk.durable().0;
        self.trace.note(
            self.heap.now(),
            node,
            "start",
            mix(records, durable),
            || format!("with {durable} records, {records} lost"),
        );
        let lanes: Vec<ClientId> = self.nodes[node].lanes().collect();
        for lane in lanes {
            let plans = self.workload.lane_up(lane);
            self.plan_threads(&plans);
        }
        self.introduce(node);
        self.carry_out(node)
    }

    pub(crate) fn plan_threads(&mut self, plans: &[Plan]) {
        for Plan {
            thread,
            turn,
            after,
        } in plans
        {
            self.heap.plan(
                self.now() + after,
                Event::Ready {
                    thread: *thread,
                    turn: *turn,
                },
            );
        }
    }

    fn submit(&mut self, thread: usize, turn: u64) {
        let now = self.now();
        let (lane, request) = match self.workload.ready(thread, turn, now) {
            Turn::Ask(lane, request) => (lane, request),
            Turn::Later(plan) => return self.plan_threads(&[plan]),
            Turn::Nothing => return,
        };
        let node = self.lane_node(lane);
        self.report.requests += 1;
        let digest = mix(request.token, hash_bytes(&request.payload));
        let (workload, token, operation) = (&self.workload, request.token, request.operation);
        self.trace.note(now, node, "submit", digest, || {
            format!(
                "c{} #{token} {operation:?} {}",
                lane.0,
                workload.describe(token)
            )
        });
        let host = self.nodes[node]
            .host
            .as_mut()
            .expect("a lane that is down makes no requests");
        host.submit(lane, request);
        self.rouse_soon(node);
    }

    /// Where a lane that is up lives.
    fn lane_node(&self, lane: ClientId) -> usize {
        let mut nodes = self.nodes.iter();
        nodes
            .position(|node| node.host.is_some() && node.lanes().any(|here| here == lane))
            .expect("the lane is up")
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel {
            from,
            to,
            members,
            bytes,
            name,
            digest,
            ..
        } = parcel;
        let up = self.nodes[to].host.is_some();
        let what = if up { "deliver" } else { "to-dead" };
        self.trace.note(self.heap.now(), to, what, digest, || {
            format!("{name} from n{from} to {members:#b}")
        });
        if up && !bytes.is_empty() {
            self.nodes[to].arrived.push_back((members, bytes));
            self.rouse_soon(to);
        } else if !up {
            self.report.messages_dropped += 1;
        }
    }

    /// Wakes a node at the latest at `at`.
    pub(crate) fn rouse(&mut self, node: usize, at: Micros) {
        let wake_at = &mut self.nodes[node].wake_at;
        if wake_at.is_none_or(|planned| planned > at) {
            *wake_at = Some(at);
            self.heap.plan(at, Event::Wake(node));
        }
    }

    fn rouse_soon(&mut self, node: usize) {
        let after = self.random.between(self.knobs.step.0, self.knobs.step.1);
        self.rouse(node, self.now() + after);
    }

    fn wake(&mut self, node: usize) -> Step {
        if self.nodes[node].wake_at != Some(self.now()) {
            return Ok(());
        }
        self.nodes[node].wake_at = None;
        if !self.nodes[node].runs() {
            return Ok(());
        }
        let most = self.knobs.burst;
        let burst = Burst {
            deliver: self.random.between(1, most) as usize,
            run: self.random.between(1, most * 2) as usize,
            ends: !self.random.chance(self.knobs.burst_goes_on),
            checkpoint: self.random.once_in(CHECKPOINT_ONCE_IN),
            clock_share: match self.knobs.early_clock {
                Some(once_in) if self.random.once_in(once_in) => self.random.below(Burst::AT_ONCE),
                _ => Burst::AT_ONCE,
            },
        };
        let (oracles, mut seen) = (&mut self.oracles, Ok(()));
        let mut watch = |taker, instance: &dyn AnyInstance| {
            let watched = oracles
                .iter_mut()
                .try_for_each(|oracle| oracle.after_message(taker, instance));
            seen = core::mem::replace(&mut seen, Ok(())).and(watched);
        };
        let stepped = self.nodes[node].step(self.heap.now(), &burst, &mut self.effects, &mut watch);
        stepped.map_err(|what| self.fail(FailureKind::Message, what))?;
        seen.map_err(|what| self.fail(FailureKind::Invariant, what))?;
        self.carry_out(node)
    }

    /// Does what the roles of `node` asked for, then looks at what they have become.
    pub(crate) fn carry_out(&mut self, node: usize) -> Step {
        self.report.snapshots += core::mem::take(&mut self.effects.snapshots);
        for branch in self.effects.reached.drain(..) {
            self.report.reach(branch);
        }
        if self.effects.records > 0 {
            let (records, bytes) = (self.effects.records, self.effects.record_bytes);
            self.trace
                .note(self.heap.now(), node, "append", mix(records, bytes), || {
                    format!("{records}, {bytes} bytes")
                });
            self.report.records += records;
            (self.effects.records, self.effects.record_bytes) = (0, 0);
            self.sync(node);
        }
        // Before what it sends now: that may have waited for the disk until this very call.
        if let Some(membership) = &self.effects.announced {
            self.nodes[node].lower(membership);
        }
        let mut sends = std::mem::take(&mut self.effects.sends);
        for (kind, members, message) in sends.drain(..) {
            self.send(node, kind, members, &*message)?;
        }
        self.effects.sends = sends;
        let mut replies = std::mem::take(&mut self.effects.replies);
        for (lane, reply) in replies.drain(..) {
            self.answer(node, lane, &reply)?;
        }
        self.effects.replies = replies;
        if self.nodes[node].busy() {
            self.rouse_soon(node);
        } else if let Some(at) = self.nodes[node].next_timer() {
            self.rouse(node, at.max(self.now() + 1));
        }
        self.inspect(node)?;
        self.look_who_has_regained(node);
        match self.effects.announced.take() {
            Some(membership) => self.adopt(node, &membership),
            None => Ok(()),
        }
    }

    fn sync(&mut self, node: usize) {
        if !self.nodes[node].disk.begin_sync() {
            return;
        }
        self.report.fsyncs += 1;
        let mut after = self.random.between(self.knobs.sync.0, self.knobs.sync.1);
        if let Some((once_in, stall)) = self.knobs.stall
            && self.random.once_in(once_in)
        {
            after += stall;
        }
        let life = self.nodes[node].life;
        if self.knobs.crash_in_sync > 0.0 && self.random.chance(self.knobs.crash_in_sync) {
            let at = self.now() + self.random.below(after + after / 4 + 1);
            self.heap
                .plan(at, Event::Fault(Fault::CrashInSync { node, life }));
        }
        self.heap
            .plan(self.now() + after, Event::Synced { node, life });
    }

    fn send(&mut self, from: usize, kind: u8, members: Members, message: &dyn AnyMessage) -> Step {
        let id = self.nodes[from].id;
        let oracles = self.oracles.iter_mut();
        let name = message.name();
        oracles.for_each(|oracle| oracle.on_send(id, name));
        self.check_level(from, message)?;
        let bytes = Bytes::from(message.encode());
        if self.random.once_in(16) {
            let again = message.encode_again(&bytes);
            if again.as_deref() != Ok(&bytes[..]) {
                return Err(self.fail(
                    FailureKind::Message,
                    format!("{message:?} does not survive the codec: {again:?}"),
                ));
            }
        }
        let digest = mix(hash_bytes(&bytes), members.digest());
        let places = self.nodes[from].layout.places(kind);
        // A node gets one copy, whichever of its instances are meant.
        let mut left = members;
        while let Some(index) = left.iter().next() {
            let Some(to) = places.node_of(index) else {
                // Where members come and go it may be one that this node does not know of (any
                // more).
                if self.scenario.changes.is_empty() {
                    let what =
                        format!("{message:?} is sent to instance {index}, which does not exist");
                    return Err(self.fail(FailureKind::Message, what));
                }
                left.remove(index);
                continue;
            };
            let here = places.iter().filter(|(_, place)| *place == to);
            let there = left.and(here.map(|(index, _)| index).collect());
            let news = self.nodes[from].membership.clone();
            let (to, members, bytes) = (usize::from(to.0), there, bytes.clone());
            let parcel = Parcel {
                from,
                to,
                members,
                bytes,
                name,
                digest,
                news,
            };
            left = left.without(there);
            self.post(parcel);
        }
        Ok(())
    }

    pub(crate) fn post(&mut self, parcel: Parcel) {
        self.report.messages_sent += 1;
        self.report.bytes_sent += parcel.bytes.len() as u64;
        let now = self.now();
        let (link, bytes) = ((parcel.from, parcel.to), parcel.bytes.len());
        match self
            .network
            .pass(&mut self.random, now, link, parcel.name, bytes)
        {
            Passage::Lost(why) => {
                self.report.messages_dropped += 1;
                let Parcel {
                    from,
                    to,
                    name,
                    digest,
                    ..
                } = parcel;
                self.trace.note(now, from, "drop", digest, || {
                    format!("{name} to n{to}: {why}")
                });
            }
            Passage::Arrives { at, again } => {
                if let Some(again) = again {
                    self.report.messages_duplicated += 1;
                    let copy = Parcel {
                        bytes: parcel.bytes.clone(),
                        news: parcel.news.clone(),
                        ..parcel
                    };
                    self.heap.plan(again, Event::Arrive(copy));
                }
                self.heap.plan(at, Event::Arrive(parcel));
            }
        }
    }

    fn answer(&mut self, node: usize, lane: ClientId, reply: &Reply) -> Step {
        if reply.token >= OPERATOR {
            return Ok(());
        }
        let now = self.now();
        let digest = match &reply.outcome {
            Ok(bytes) => mix(reply.token, hash_bytes(bytes)),
            Err(refusal) => mix(reply.token, 1 << 32 | *refusal as u64),
        };
        let workload = &self.workload;
        self.trace.note(now, node, "reply", digest, || {
            let outcome = reply.outcome.as_ref().map(|bytes| format!("{bytes:02x?}"));
            format!(
                "c{} #{} {}: {outcome:?}",
                lane.0,
                reply.token,
                workload.describe(reply.token)
            )
        });
        // A server that may lose and redo work has at no time executed a known number of commands.
        let stable = self.scenario.stable_log;
        let executed = if stable {
            journal::open(&self.journal).length()
        } else {
            u64::MAX
        };
        let plan = self
            .workload
            .reply(lane, reply, now, executed, &mut self.report);
        let plan = plan.map_err(|(kind, what)| self.fail(kind, what))?;
        self.plan_threads(&[plan]);
        Ok(())
    }

    /// Checks everything that must hold at all times.
    fn inspect(&mut self, node: usize) -> Step {
        if self.report.events.is_multiple_of(INVARIANTS_EVERY) {
            let host = self.nodes[node].host.iter();
            host.for_each(|host| host.invariants());
        }
        let (fault, time) = {
            let mut journal = journal::open(&self.journal);
            (journal.take_fault(), journal.time())
        };
        if time > self.time {
            self.time = time;
            let (f, clocks) = (
                self.scenario.layout.f,
                self.nodes.iter().map(|node| node.clock),
            );
            if let Err(what) = clock::check_time(time, self.now(), clocks, f) {
                return Err(self.fail(FailureKind::Invariant, what));
            }
        }
        if let Some(fault) = fault {
            let kind = if fault.twice {
                FailureKind::ExactlyOnce
            } else {
                FailureKind::Divergence
            };
            let what = fault.explain(|command| self.workload.name(command));
            return Err(self.fail(kind, what));
        }
        let view = View {
            nodes: &self.nodes,
            changed: node,
        };
        let found = self
            .oracles
            .iter_mut()
            .try_for_each(|oracle| oracle.after_event(&view));
        found.map_err(|what| self.fail(FailureKind::Invariant, what))
    }
}
