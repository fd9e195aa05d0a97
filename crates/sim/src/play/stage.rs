//! The cluster on which a play runs.

use super::changing::answer;
use super::command::{Command, How, Which};
use crate::clock::Clock;
use crate::configurations::{Configurations, OPERATOR};
use crate::disk::{Defect, Disk, Unopened};
use crate::event::Micros;
use crate::journal::{self, Journal, Recorded, SharedJournal, told_time};
use crate::machine::{self, Lists};
use crate::model::Model;
use crate::node::{Boot, Burst, SimNode};
use crate::oracle::{Oracle, View};
use crate::roles::{Effects, Log as _, Simulated};
use crate::scenario::Scenario;
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::membership::Membership;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The cluster on which a play runs.
pub(super) struct Stage {
    protocol: Simulated,
    scenario: Scenario,
    model: Lists,
    now: Micros,
    pub(super) configurations: Configurations,
    pub(super) nodes: Vec<SimNode>,
    journal: SharedJournal,
    watch: Box<dyn Oracle>,
    effects: Effects,
    under_way: VecDeque<Parcel>,
    cut: Vec<Which>,
    asked: BTreeMap<u64, machine::Command>,
    heard: BTreeMap<ClientId, VecDeque<String>>,
    /// What has happened since the last command.
    pub(super) trace: Vec<String>,
}

/// A message under way. One without bytes brings the sender's membership alone.
#[derive(Clone)]
pub(super) struct Parcel {
    pub(super) name: &'static str,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) members: Members,
    pub(super) bytes: Bytes,
    /// The sender's membership.
    pub(super) news: Membership,
}

const SEGMENT_BYTES: u64 = 16 << 10;

/// Limit of steps per command, above which a play would not end.
const MOST_STEPS: usize = 100_000;

impl Stage {
    pub(super) fn new(
        protocol: Simulated,
        scenario: &Scenario,
        model: Lists,
    ) -> Result<Self, String> {
        let mut configurations = Configurations::new(protocol.protocol(), scenario)?;
        let founding = configurations.founding()?;
        let nodes = (0..scenario.nodes()).map(|index| {
            let id = NodeId(index as u16);
            let disk = Disk::new(index as u64, SEGMENT_BYTES, Defect::None);
            SimNode::new(
                protocol,
                id,
                founding.clone(),
                disk,
                Clock {
                    ahead: 0,
                    drift_ppm: 0,
                },
            )
        });
        let order = scenario.promised_order(protocol.description(), &model);
        let mut stage = Stage {
            protocol,
            model,
            configurations,
            now: 0,
            nodes: nodes.collect(),
            journal: Journal::shared(order, scenario.stable_log),
            watch: protocol.invariants(&founding),
            effects: Effects::default(),
            under_way: VecDeque::new(),
            cut: Vec::new(),
            asked: BTreeMap::new(),
            heard: BTreeMap::new(),
            trace: Vec::new(),
            scenario: scenario.clone(),
        };
        for node in 0..stage.nodes.len() {
            stage.boot(node)?;
        }
        stage.trace.clear();
        Ok(stage)
    }

    fn boot(&mut self, node: usize) -> Result<(), String> {
        let (journal, model, canary) = (&self.journal, &self.model, self.scenario.canary);
        let protocol = self.protocol.description();
        let machine =
            |address, life| Recorded::of(protocol, (node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, node as u64, &machine);
        if let Err(Unopened::Past(what) | Unopened::Storage(what)) =
            self.nodes[node].boot(self.now, &boot, &mut self.effects)
        {
            return Err(what);
        }
        self.settle(node)
    }

    /// A node acts on another layout.
    pub(super) fn reconfigure(&mut self, node: usize, to: Rc<Layout>) {
        self.watch.on_reconfigure(&to);
        self.nodes[node].layout = to;
        let (journal, model, canary) = (&self.journal, &self.model, self.scenario.canary);
        let protocol = self.protocol.description();
        let machine =
            |address, life| Recorded::of(protocol, (node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, node as u64, &machine);
        self.nodes[node].reconfigure(self.now, &boot, &mut self.effects);
    }

    pub(super) fn perform(&mut self, command: &Command) -> Result<(), String> {
        match command {
            Command::Submit(lane, text) => self.submit(*lane, text),
            Command::Move { how, all, which } => self.move_messages(*how, *all, which),
            Command::Cut(which) => {
                self.cut.push(which.clone());
                Ok(())
            }
            Command::Heal => {
                self.cut.clear();
                Ok(())
            }
            Command::Sync(node) => self.sync(self.known(*node)?),
            Command::Wait(time) => {
                self.now += time;
                Ok(())
            }
            Command::Timer(node) => self.timer(self.known(*node)?),
            Command::Crash { node, keeping } => self.crash(self.known(*node)?, *keeping),
            Command::Restart(node) => self.restart(self.known(*node)?),
            Command::UntilQuiet => self.run_until_quiet(),
            Command::RunFor(time) => self.run_for(*time),
            Command::ExpectReply(lane, text) => {
                match self.heard.entry(*lane).or_default().pop_front() {
                    Some(heard) if heard == *text => Ok(()),
                    Some(heard) => Err(format!("c{} was told {heard:?} and not {text:?}", lane.0)),
                    None => Err(format!("c{} was told nothing", lane.0)),
                }
            }
            Command::ExpectNoReply(lane) => match self.heard.entry(*lane).or_default().front() {
                Some(heard) => Err(format!("c{} was told {heard:?}", lane.0)),
                None => Ok(()),
            },
            Command::Change(lane, to) => self.change(*lane, *to),
            Command::ExpectEpoch(node, epoch) => self.expect_epoch(self.known(*node)?, *epoch),
        }
    }

    /// Checks what must hold after every command.
    pub(super) fn check(&self) -> Result<(), String> {
        match journal::open(&self.journal).take_fault() {
            Some(fault) => Err(fault.explain(|_| None)),
            None => Ok(()),
        }
    }

    fn known(&self, node: usize) -> Result<usize, String> {
        let count = self.nodes.len();
        (node < count)
            .then_some(node)
            .ok_or_else(|| format!("there is no n{node}: there are {count} nodes"))
    }

    pub(super) fn note(&mut self, line: String) {
        self.trace.push(line);
    }

    fn submit(&mut self, lane: ClientId, text: &str) -> Result<(), String> {
        let call = self.model.parse(text)?;
        let token = self.asked.len() as u64 + 1;
        self.note(format!("c{} asks {}", lane.0, call.action));
        self.asked.insert(token, call.action);
        let request = Request {
            token,
            operation: call.operation,
            payload: call.payload,
        };
        self.ask(lane, request)
    }

    /// The running node that has this client lane, as it knows itself.
    pub(super) fn home(&self, lane: ClientId) -> Result<usize, String> {
        let has_lane = |node: &SimNode| node.lanes().any(|known| known == lane);
        let all = 0..self.nodes.len();
        let mut homes = all.filter(|node| has_lane(&self.nodes[*node]));
        let (first, up) = (homes.clone().next(), |node: &usize| {
            self.nodes[*node].host.is_some()
        });
        homes.find(up).ok_or_else(|| match first {
            Some(node) => format!("n{node}, where c{} lives, is down", lane.0),
            None => format!("there is no lane c{}", lane.0),
        })
    }

    pub(super) fn ask(&mut self, lane: ClientId, request: Request) -> Result<(), String> {
        let node = self.home(lane)?;
        let host = self.nodes[node].host.as_mut();
        host.expect("a node that is up").submit(lane, request);
        self.settle(node)
    }

    fn find(&self, which: &Which) -> Option<usize> {
        self.under_way
            .iter()
            .position(|parcel| which.has(parcel.name, parcel.from, parcel.to))
    }

    fn move_messages(&mut self, how: How, all: bool, which: &Which) -> Result<(), String> {
        let mut chosen = Vec::new();
        while let Some(at) = self.find(which) {
            chosen.extend(self.under_way.remove(at));
            if !all {
                break;
            }
        }
        if chosen.is_empty() {
            let under_way = self
                .under_way
                .iter()
                .map(|parcel| format!("{} n{}->n{}", parcel.name, parcel.from, parcel.to));
            let under_way: Vec<String> = under_way.collect();
            return Err(format!(
                "no such message is under way; there are: {}",
                under_way.join(", ")
            ));
        }
        for parcel in chosen {
            if how == How::Repeat {
                self.under_way.push_back(parcel.clone());
            }
            if how == How::Drop {
                self.lose(&parcel);
            } else {
                self.deliver(parcel)?;
            }
        }
        Ok(())
    }

    fn lose(&mut self, parcel: &Parcel) {
        self.note(format!(
            "lost: {} n{}->n{}",
            parcel.name, parcel.from, parcel.to
        ));
    }

    fn deliver(&mut self, parcel: Parcel) -> Result<(), String> {
        let Parcel {
            name,
            from,
            to,
            members,
            bytes,
            news,
        } = parcel;
        if self.nodes[to].host.is_none() {
            self.note(format!("n{to} is down: {name} from n{from} is lost"));
            return Ok(());
        }
        self.note(format!("n{to} gets {name} from n{from}"));
        self.exchange_news(from, to, &news)?;
        if !bytes.is_empty() {
            self.nodes[to].arrived.push_back((members, bytes));
        }
        self.settle(to)
    }

    fn sync(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].disk.begin_sync() {
            self.nodes[node].complete_sync();
            let durable = self.nodes[node].disk.durable().0;
            self.note(format!("n{node} synced {durable}"));
        }
        self.settle(node)
    }

    fn timer(&mut self, node: usize) -> Result<(), String> {
        let timer = self.nodes[node]
            .next_timer()
            .ok_or_else(|| format!("n{node} waits for no timer"))?;
        self.now = self.now.max(timer);
        self.note(format!("n{node} timer"));
        self.settle(node)
    }

    fn crash(&mut self, node: usize, keeping: bool) -> Result<(), String> {
        if self.nodes[node].host.is_none() {
            return Err(format!("n{node} is down already"));
        }
        if keeping && self.nodes[node].disk.begin_sync() {
            self.nodes[node].complete_sync();
        }
        let torn = self.nodes[node].disk.crash_hard();
        self.nodes[node].die();
        self.watch.on_crash(self.nodes[node].id);
        self.note(format!("n{node} crashes, {torn} records lost"));
        Ok(())
    }

    fn restart(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].host.is_some() {
            return Err(format!("n{node} is up already"));
        }
        self.note(format!("n{node} restarts"));
        self.boot(node)
    }

    fn run_until_quiet(&mut self) -> Result<(), String> {
        for _ in 0..MOST_STEPS {
            if let Some(parcel) = self.under_way.pop_front() {
                self.deliver(parcel)?;
                continue;
            }
            let unsynced = |node: &SimNode| node.host.is_some() && node.disk.has_unsynced();
            match self.nodes.iter().position(unsynced) {
                Some(node) => self.sync(node)?,
                None => return Ok(()),
            }
        }
        Err(format!("not quiet after {MOST_STEPS} steps"))
    }

    fn run_for(&mut self, time: Micros) -> Result<(), String> {
        let end = self.now + time;
        for _ in 0..MOST_STEPS {
            self.run_until_quiet()?;
            let timers = self.nodes.iter().enumerate();
            let next = timers
                .filter_map(|(node, state)| Some((state.next_timer()?, node)))
                .min();
            match next {
                Some((at, node)) if at <= end => self.timer(node)?,
                _ => {
                    self.now = end;
                    return Ok(());
                }
            }
        }
        Err(format!("not at the end after {MOST_STEPS} timers"))
    }

    /// Lets a node work until it has nothing left to do.
    fn settle(&mut self, node: usize) -> Result<(), String> {
        let all = Burst {
            clock_share: Burst::AT_ONCE,
            deliver: usize::MAX,
            run: usize::MAX,
            ends: true,
            checkpoint: false,
        };
        for _ in 0..MOST_STEPS {
            let (watch, mut seen) = (&mut self.watch, Ok(()));
            self.nodes[node].step(self.now, &all, &mut self.effects, &mut |taker, instance| {
                let found = watch.after_message(taker, instance);
                seen = core::mem::replace(&mut seen, Ok(())).and(found);
            })?;
            seen?;
            self.watch.after_event(&View {
                nodes: &self.nodes,
                changed: node,
            })?;
            self.carry_out(node)?;
            if let Some(host) = &self.nodes[node].host {
                host.invariants();
            }
            if !self.nodes[node].busy() {
                return Ok(());
            }
        }
        Err(format!("n{node} keeps busy without an end"))
    }

    fn carry_out(&mut self, node: usize) -> Result<(), String> {
        let records = std::mem::take(&mut self.effects.records);
        if records > 0 {
            self.note(format!("n{node} appends {records}"));
        }
        for (kind, members, message) in std::mem::take(&mut self.effects.sends) {
            let (name, bytes) = (message.name(), Bytes::from(message.encode()));
            for to in 0..self.nodes.len() {
                let layout = &self.nodes[node].layout;
                let there = layout
                    .places(kind)
                    .iter()
                    .filter(|(_, place)| place.0 as usize == to)
                    .map(|(index, _)| index)
                    .collect::<Members>()
                    .and(members);
                if !there.is_empty() {
                    self.trace.push(format!("n{node} sends {name} to n{to}"));
                    let parcel = Parcel {
                        name,
                        from: node,
                        to,
                        members: there,
                        bytes: bytes.clone(),
                        news: self.nodes[node].membership.clone(),
                    };
                    self.post(parcel);
                }
            }
        }
        for (lane, Reply { token, outcome, .. }) in std::mem::take(&mut self.effects.replies) {
            let heard = match (self.asked.get(&token), outcome) {
                (None, outcome) if token > OPERATOR => answer(&outcome),
                (None, _) => "an answer to nothing asked".into(),
                (_, Err(refusal)) => format!("{refusal:?}"),
                (Some(action), Ok(bytes)) => {
                    match told_time(&bytes)
                        .and_then(|(reply, _)| self.model.interpret(action, reply))
                    {
                        Ok(answer) => answer.to_string(),
                        Err(what) => what,
                    }
                }
            };
            self.note(format!("c{} hears {heard}", lane.0));
            self.heard.entry(lane).or_default().push_back(heard);
        }
        match self.effects.announced.take() {
            Some(membership) => self.adopt(node, &membership),
            None => Ok(()),
        }
    }

    /// A message leaves its sender.
    pub(super) fn post(&mut self, parcel: Parcel) {
        let is_lost = |which: &Which| which.has(parcel.name, parcel.from, parcel.to);
        match self.cut.iter().any(is_lost) {
            true => self.lose(&parcel),
            false => self.under_way.push_back(parcel),
        }
    }
}
