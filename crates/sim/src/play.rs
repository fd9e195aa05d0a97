//! Plays: texts that script one exact scenario. Nothing happens in a play unless its text says so:
//! a message stays under way until it is delivered or dropped, a disk never syncs and time stands
//! still. A node that is given something works until it has nothing left to do.
//!
//! ```text
//! # Comments and empty lines are for people.
//! submit c0 append x 1              a request on client lane 0
//! deliver server::Execute n1->n0    the oldest such message; the link can be left out, `*` is any name or node
//! deliver all client::Answer        all of them that are under way now
//! drop server::Execute              as deliver: it is lost
//! repeat server::Execute            as deliver, and it stays under way as well
//! cut server::Execute n1->n0        such messages are lost from now on, when they are sent
//! heal                              no messages are cut any more
//! sync n0                           everything appended on n0 so far is on disk
//! wait 20ms                         time passes and nothing happens
//! timer n0                          time passes up to n0's next timer, which goes off
//! crash n0                          the node loses its memory, and all records that are not synced
//! crash n0 keeping all              the same, but all records happen to have reached the disk
//! restart n0
//! run until quiet                   delivers and syncs everything, and what comes of it; no timers
//! run for 300ms                     the same, and timers go off as well
//! expect reply c0 length 1          the next reply of lane 0 that was not asked for yet
//! expect no reply c0
//! > n0 appends 1                    what the command above is expected to leave in the trace: lines that
//! > n0 synced 1                     begin so are compared with all it did, and may be left out
//! ```
//!
//! Requests are written as the model reads them; for the simulator's own see
//! [`Lists`](crate::machine::Lists).

use crate::clock::Clock;
use crate::disk::{Defect, Disk, Unopened};
use crate::event::Micros;
use crate::journal::{self, Journal, Recorded, SharedJournal, told_time};
use crate::membership::Configurations;
use crate::model::Model;
use crate::node::{Boot, Burst, Effects, SimNode};
use crate::oracle::{Oracle, OwnInvariants, View};
use crate::run::catching;
use crate::scenario::Scenario;
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::{Message, Protocol};
use ionian_kernel::wire::encode_all;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// A parsed play.
#[derive(Clone, Debug)]
pub struct Play {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    number: usize,
    text: String,
    /// None for a comment.
    command: Option<Command>,
    expected: Vec<String>,
}

#[derive(Clone, Debug)]
enum Command {
    Submit(ClientId, String),
    Move { how: How, all: bool, which: Which },
    Cut(Which),
    Heal,
    Sync(usize),
    Wait(Micros),
    Timer(usize),
    Crash { node: usize, keeping: bool },
    Restart(usize),
    UntilQuiet,
    RunFor(Micros),
    ExpectReply(ClientId, String),
    ExpectNoReply(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Deliver,
    Drop,
    Repeat,
}

/// Messages of this name (or any) on this link (or any).
#[derive(Clone, Debug)]
struct Which {
    name: String,
    link: Option<Link>,
}

impl Which {
    fn has(&self, parcel: &Parcel) -> bool {
        let named = self.name == "*" || self.name == parcel.name;
        let (from, to) = self.link.unwrap_or_default();
        named && from.is_none_or(|from| from == parcel.from) && to.is_none_or(|to| to == parcel.to)
    }
}

/// From and to which node; `None` for any.
type Link = (Option<usize>, Option<usize>);

/// What is wrong with a play, or with what it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for PlayError {}

impl Play {
    /// Reads a play.
    ///
    /// # Errors
    /// Says which line is wrong and how.
    pub fn parse(text: &str) -> Result<Play, PlayError> {
        let mut lines: Vec<Line> = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            let trimmed = text.trim();
            if let Some(expected) = trimmed.strip_prefix('>') {
                match lines.last_mut().filter(|line| line.command.is_some()) {
                    Some(line) => line.expected.push(expected.trim().to_owned()),
                    None => {
                        return Err(PlayError {
                            line: number,
                            message: "there is no command above".into(),
                        });
                    }
                }
                continue;
            }
            let quiet = trimmed.is_empty() || trimmed.starts_with('#');
            let command = if quiet {
                Ok(None)
            } else {
                parse_command(trimmed).map(Some)
            };
            let command = command.map_err(|message| PlayError {
                line: number,
                message,
            })?;
            lines.push(Line {
                number,
                text: text.trim_end().to_owned(),
                command,
                expected: Vec::new(),
            });
        }
        Ok(Play { lines })
    }

    /// Plays it on the scenario's layout and holds everything against what it expects.
    ///
    /// # Errors
    /// Says at which line something else came about.
    pub fn run<P: Protocol>(
        &self,
        scenario: &Scenario,
        model: impl Model,
    ) -> Result<(), PlayError> {
        self.perform::<P>(scenario, model, true).map(|_| ())
    }

    /// Plays it and writes it anew, with what really happened below each command.
    ///
    /// # Errors
    /// As [`run`](Play::run), but for the traces.
    pub fn record<P: Protocol>(
        &self,
        scenario: &Scenario,
        model: impl Model,
    ) -> Result<String, PlayError> {
        self.perform::<P>(scenario, model, false)
    }

    fn perform<P: Protocol>(
        &self,
        scenario: &Scenario,
        model: impl Model,
        compare: bool,
    ) -> Result<String, PlayError> {
        let mut text = String::new();
        let mut stage = catching(|| Stage::<P, _>::new(scenario, model))
            .and_then(|stage| stage)
            .map_err(|message| PlayError { line: 0, message })?;
        for line in &self.lines {
            text += &format!("{}\n", line.text);
            let Some(command) = &line.command else {
                continue;
            };
            let done = catching(|| stage.perform(command))
                .and_then(|done| done)
                .and_then(|()| stage.check());
            done.map_err(|message| PlayError {
                line: line.number,
                message,
            })?;
            let happened = std::mem::take(&mut stage.trace);
            if compare && !line.expected.is_empty() && happened != line.expected {
                let message = format!(
                    "expected\n  {}\nbut\n  {}",
                    line.expected.join("\n  "),
                    happened.join("\n  ")
                );
                return Err(PlayError {
                    line: line.number,
                    message,
                });
            }
            happened
                .iter()
                .for_each(|happened| text += &format!("> {happened}\n"));
        }
        Ok(text)
    }
}

fn parse_command(text: &str) -> Result<Command, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words[..] {
        ["submit", lane, _, ..] => Command::Submit(parse_lane(lane)?, words[2..].join(" ")),
        ["deliver", ref rest @ ..] => parse_move(How::Deliver, rest)?,
        ["drop", ref rest @ ..] => parse_move(How::Drop, rest)?,
        ["repeat", ref rest @ ..] => parse_move(How::Repeat, rest)?,
        ["cut", ref rest @ ..] => Command::Cut(parse_which(rest)?),
        ["heal"] => Command::Heal,
        ["sync", node] => Command::Sync(parse_node(node)?),
        ["wait", time] => Command::Wait(parse_time(time)?),
        ["timer", node] => Command::Timer(parse_node(node)?),
        ["crash", node] => Command::Crash {
            node: parse_node(node)?,
            keeping: false,
        },
        ["crash", node, "keeping", "all"] => Command::Crash {
            node: parse_node(node)?,
            keeping: true,
        },
        ["restart", node] => Command::Restart(parse_node(node)?),
        ["run", "until", "quiet"] => Command::UntilQuiet,
        ["run", "for", time] => Command::RunFor(parse_time(time)?),
        ["expect", "no", "reply", lane] => Command::ExpectNoReply(parse_lane(lane)?),
        ["expect", "reply", lane, _, ..] => {
            Command::ExpectReply(parse_lane(lane)?, words[3..].join(" "))
        }
        _ => {
            return Err(format!(
                "{text:?} is no command; known are submit, deliver, drop, repeat, cut, heal, sync, wait, timer, crash, \
                 restart, run until quiet, run for, expect reply, expect no reply"
            ));
        }
    })
}

fn parse_move(how: How, words: &[&str]) -> Result<Command, String> {
    let (all, rest) = match words {
        ["all", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let which = if all && rest.is_empty() {
        parse_which(&["*"])?
    } else {
        parse_which(rest)?
    };
    Ok(Command::Move { how, all, which })
}

fn parse_which(words: &[&str]) -> Result<Which, String> {
    let (name, link) = match words {
        [name] => (*name, None),
        [name, link] => (*name, Some(parse_link(link)?)),
        _ => return Err("expected a message's name and, if need be, a link such as n0->n1".into()),
    };
    Ok(Which {
        name: name.to_owned(),
        link,
    })
}

fn parse_link(text: &str) -> Result<Link, String> {
    let (from, to) = text
        .split_once("->")
        .ok_or_else(|| format!("{text:?} is no link such as n0->n1"))?;
    let end = |node| {
        if node == "*" {
            Ok(None)
        } else {
            parse_node(node).map(Some)
        }
    };
    Ok((end(from)?, end(to)?))
}

fn parse_node(text: &str) -> Result<usize, String> {
    let number = text
        .strip_prefix('n')
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{text:?} is no node such as n0"))
}

fn parse_lane(text: &str) -> Result<ClientId, String> {
    let number = text
        .strip_prefix('c')
        .and_then(|number| number.parse().ok());
    number
        .map(ClientId)
        .ok_or_else(|| format!("{text:?} is no client lane such as c0"))
}

fn parse_time(text: &str) -> Result<Micros, String> {
    let units = [("ms", 1000), ("us", 1), ("s", 1_000_000)];
    let found = units
        .iter()
        .find_map(|(unit, us)| Some(text.strip_suffix(unit)?.parse::<Micros>().ok()? * us));
    found.ok_or_else(|| format!("{text:?} is no time such as 20ms"))
}

/// Where a play is performed.
struct Stage<P: Protocol, M: Model> {
    scenario: Scenario,
    model: M,
    now: Micros,
    nodes: Vec<SimNode<P>>,
    journal: SharedJournal,
    watch: OwnInvariants<P>,
    effects: Effects<P::Message>,
    under_way: VecDeque<Parcel>,
    cut: Vec<Which>,
    asked: BTreeMap<u64, M::Action>,
    heard: BTreeMap<ClientId, VecDeque<String>>,
    trace: Vec<String>,
}

#[derive(Clone)]
struct Parcel {
    name: &'static str,
    from: usize,
    to: usize,
    members: u64,
    bytes: Bytes,
}

const SEGMENT_BYTES: u64 = 16 << 10;

/// A play that does more than this many things at one command never ends.
const MOST_STEPS: usize = 100_000;

impl<P: Protocol, M: Model> Stage<P, M> {
    fn new(scenario: &Scenario, model: M) -> Result<Self, String> {
        let configuration = Configurations::<P>::new(scenario)?.of(&Membership::default())?;
        let nodes = (0..scenario.nodes()).map(|index| {
            let id = NodeId(index as u16);
            let disk = Disk::new(index as u64, SEGMENT_BYTES, Defect::None);
            SimNode::new(
                id,
                configuration.clone(),
                disk,
                Clock {
                    ahead: 0,
                    drift_ppm: 0,
                },
            )
        });
        let mut stage = Stage {
            model,
            now: 0,
            nodes: nodes.collect(),
            journal: Journal::shared(scenario.order, scenario.stable_log),
            watch: OwnInvariants::new(&configuration.config),
            effects: Effects::new(),
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
        let machine =
            |address, life| Recorded::of::<P>((node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, node as u64, &machine);
        if let Err(Unopened::Past(what) | Unopened::Storage(what)) =
            self.nodes[node].boot(self.now, &boot, &mut self.effects)
        {
            return Err(what);
        }
        self.settle(node)
    }

    fn perform(&mut self, command: &Command) -> Result<(), String> {
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
        }
    }

    /// Checks what must hold after every command.
    fn check(&self) -> Result<(), String> {
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

    fn note(&mut self, line: String) {
        self.trace.push(line);
    }

    fn submit(&mut self, lane: ClientId, text: &str) -> Result<(), String> {
        let place = self.scenario.layout.places(0).node_of(lane.0);
        let node = place
            .ok_or_else(|| format!("there is no lane c{}", lane.0))?
            .0 as usize;
        let call = self.model.parse(text)?;
        let token = self.asked.len() as u64 + 1;
        self.note(format!("c{} asks {}", lane.0, call.action));
        self.asked.insert(token, call.action);
        let host = self.nodes[node]
            .host
            .as_mut()
            .ok_or_else(|| format!("n{node}, where c{} lives, is down", lane.0))?;
        host.submit(
            lane,
            Request {
                token,
                operation: call.operation,
                payload: call.payload,
            },
        );
        self.settle(node)
    }

    fn find(&self, which: &Which) -> Option<usize> {
        self.under_way.iter().position(|parcel| which.has(parcel))
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
        } = parcel;
        if self.nodes[to].host.is_none() {
            self.note(format!("n{to} is down: {name} from n{from} is lost"));
            return Ok(());
        }
        self.note(format!("n{to} gets {name} from n{from}"));
        self.nodes[to].arrived.push_back((members, bytes));
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
            let unsynced = |node: &SimNode<P>| node.host.is_some() && node.disk.has_unsynced();
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
            deliver: usize::MAX,
            run: usize::MAX,
            ends: true,
            checkpoint: false,
        };
        for _ in 0..MOST_STEPS {
            let (watch, mut seen) = (&mut self.watch, Ok(()));
            self.nodes[node].step(self.now, &all, &mut self.effects, &mut |taker, instance| {
                let found = Oracle::<P>::after_message(watch, taker, instance);
                seen = core::mem::replace(&mut seen, Ok(())).and(found);
            })?;
            seen?;
            self.watch.after_event(&View {
                nodes: &self.nodes,
                changed: node,
            })?;
            self.carry_out(node);
            if let Some(host) = &self.nodes[node].host {
                host.invariants();
            }
            if !self.nodes[node].busy() {
                return Ok(());
            }
        }
        Err(format!("n{node} keeps busy without an end"))
    }

    fn carry_out(&mut self, node: usize) {
        let records = std::mem::take(&mut self.effects.records);
        if records > 0 {
            self.note(format!("n{node} appends {records}"));
        }
        for (kind, members, message) in std::mem::take(&mut self.effects.sends) {
            let (name, bytes) = (message.name(), Bytes::from(encode_all(&message)));
            for to in 0..self.nodes.len() {
                let places = self.scenario.layout.places(kind);
                let there = places
                    .iter()
                    .filter(|(_, place)| place.0 as usize == to)
                    .fold(0, |set, (index, _)| set | 1u64 << index);
                if members & there != 0 {
                    self.trace.push(format!("n{node} sends {name} to n{to}"));
                    let parcel = Parcel {
                        name,
                        from: node,
                        to,
                        members: members & there,
                        bytes: bytes.clone(),
                    };
                    match self.cut.iter().any(|which| which.has(&parcel)) {
                        true => self.lose(&parcel),
                        false => self.under_way.push_back(parcel),
                    }
                }
            }
        }
        for (lane, Reply { token, outcome }) in std::mem::take(&mut self.effects.replies) {
            let heard = match (self.asked.get(&token), outcome) {
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
    }
}
