//! What to do about the limit of a running cluster.
//!
//! Each change adds one node. What it brings is computed from what the nodes do now: the share of
//! each role is scaled by what the same role would do in the changed deployment, by the model, in
//! terms of what it does in the present one.

use super::bottleneck::{Bottleneck, Kind, judge, percent};
use super::grain::too_coarse;
use super::machine::Shared;
use super::rates::Rates;
use crate::counted::count;
use crate::demand::{Measured, SystemCalls};
use crate::family::validate;
use crate::prices::{Commands, Corner, Prices};
use anyhow::Result;
use ionian_deployment::{CLIENT, Deployment, Node, Placed, presets};
use serde::Serialize;
use std::collections::BTreeMap;

/// A change that brings less is not worth a node.
const WORTH: f64 = 1.05;

/// Requests with fewer commands count as not pipelined.
const PIPELINED: f64 = 2.0;

/// Requests in flight when messages are counted.
const BURST: usize = 64;

/// Where a new node stands in place of the addresses that only its operator knows.
const SOMEWHERE: &str = "HOST:PORT";

/// What limits a cluster, and what to do about it.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// What limits it.
    pub bottleneck: Bottleneck,
    /// What the nodes on the machine of a node take that is short of processors.
    pub machine: Option<Shared>,
    /// What clients could do about it, if they can.
    pub clients: Option<String>,
    /// Changes of one node that bring something, the best first.
    pub changes: Vec<Change>,
    /// Why there are no changes, if a role or a gateway is the limit.
    pub why_none: Option<String>,
}

/// A node more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its roles.
    pub roles: Vec<String>,
    /// How many times as much the cluster could do.
    pub times: f64,
    /// The node that is the limit then.
    pub then: String,
    /// The command that adds it.
    pub command: String,
}

impl Advice {
    /// From the rates of all nodes that answer.
    pub fn of(deployment: &Deployment, nodes: &[(&str, &Rates)], prices: &Prices) -> Self {
        let bottleneck = judge(nodes);
        let mut advice = Advice {
            machine: bottleneck
                .short
                .as_ref()
                .and_then(|short| Shared::with(&short.node, deployment, nodes)),
            clients: None,
            changes: Vec::new(),
            why_none: None,
            bottleneck,
        };
        if advice.bottleneck.kind != Kind::Loop {
            return advice;
        }
        advice.clients = pipelines(&advice.bottleneck, nodes, prices);
        advice.why_none = advice.too_coarse(deployment, nodes);
        if advice.why_none.is_some() {
            return advice;
        }
        match changes(deployment, &advice.bottleneck, nodes, prices) {
            Ok(changes) => {
                advice.changes = changes;
                if advice.changes.is_empty() {
                    let text = "no single node more relieves it by 5 % or more";
                    advice.why_none = Some(text.to_owned());
                }
            }
            Err(error) => advice.why_none = Some(format!("what a node brings is unknown: {error}")),
        }
        advice
    }

    /// See [`too_coarse`].
    fn too_coarse(&self, deployment: &Deployment, nodes: &[(&str, &Rates)]) -> Option<String> {
        let (_, named) = named(deployment, &self.bottleneck)?;
        let shares = |name: &str| {
            let place = deployment.place(name).ok()?;
            deployment.nodes[place].instances().get(named).map(|_| ())
        };
        let sharing = nodes.iter().filter(|(name, _)| shares(name).is_some());
        let sharing: Vec<&Rates> = sharing.map(|(_, rates)| *rates).collect();
        too_coarse(nodes, &sharing)
    }

    /// As text.
    pub fn text(&self) -> String {
        let Bottleneck { title, text, .. } = &self.bottleneck;
        let mut shown = match self.bottleneck.kind {
            Kind::None => format!("nothing limits the cluster. {text}\n"),
            _ => format!("limit: {title}\n{text}\n"),
        };
        if let Some(machine) = &self.machine {
            shown += &format!("\n{}\n", machine.text());
        }
        if let Some(clients) = &self.clients {
            shown += &format!("\n{clients}\n");
        }
        for change in &self.changes {
            shown += &format!(
                "\none node with {}: {:.2} times as much, then {} is the limit\n  {}\n",
                change.roles.join(", ").replace('_', " "),
                change.times,
                change.then,
                change.command
            );
        }
        if !self.changes.is_empty() {
            shown += &format!(
                "\nStart the new node with the same command as the others, and put its addresses in place of {SOMEWHERE}. The \
                 gain is computed, not measured: it assumes that clients and load spread over all nodes.\n"
            );
        }
        if let Some(why) = &self.why_none {
            shown += &format!("\n{why}\n");
        }
        shown
    }
}

/// What pipelines would bring, if gateways are the limit and clients do not pipeline.
fn pipelines(found: &Bottleneck, nodes: &[(&str, &Rates)], prices: &Prices) -> Option<String> {
    let (_, rates) = nodes
        .iter()
        .find(|(name, _)| found.node.as_deref() == Some(*name))?;
    let commands = rates.all_commands() / rates.requests;
    if found.role.is_some() || rates.requests < 1.0 || commands >= PIPELINED {
        return None;
    }
    let most = Corner::PIPELINED.pipeline as f64;
    let saved = 1.0 - prices.gateway.us(1.0, 1.0 / most) / prices.gateway.us(1.0, 1.0);
    Some(format!(
        "Clients do not pipeline: {commands:.1} commands in a request. If connections sent {most} at once, a gateway would spend {} \
         less on each command, by the demands of {}.",
        percent(saved),
        prices.measured.date
    ))
}

fn changes(
    deployment: &Deployment,
    found: &Bottleneck,
    nodes: &[(&str, &Rates)],
    prices: &Prices,
) -> Result<Vec<Change>> {
    let Some((node, named)) = named(deployment, found) else {
        return Ok(Vec::new());
    };
    if nodes.iter().any(|(_, rates)| rates.loops.len() > 1) {
        anyhow::bail!("a node has several event loops, whose roles are not measured one by one");
    }
    let before = Now::of(deployment, nodes, prices)?;
    let mut all = vec![vec![named.to_owned()]];
    let whole: Vec<String> = node.instances().into_keys().map(str::to_owned).collect();
    if !all.contains(&whole) {
        all.push(whole);
    }
    let mut changes = Vec::new();
    for roles in all {
        let new = new_node(deployment, &roles);
        let Ok(to) = deployment.with_node(new.clone()) else {
            continue;
        };
        if validate(&to).is_err() {
            continue;
        }
        let (times, then) = before.with(&to, &new)?;
        if times >= WORTH {
            let command = command(&new);
            changes.push(Change {
                roles,
                times,
                then,
                command,
            });
        }
    }
    changes.sort_by(|one, other| other.times.total_cmp(&one.times));
    Ok(changes)
}

/// The node that is named, and its role; without one, that which clients connect to.
fn named<'a>(deployment: &'a Deployment, found: &Bottleneck) -> Option<(&'a Node, &'a str)> {
    let place = deployment.place(found.node.as_ref()?).ok()?;
    let node = &deployment.nodes[place];
    // The instance is named with its number and without underscores.
    let role = found.role.as_ref().and_then(|title| {
        let mut roles = node.instances().into_keys();
        roles.find(|role| title.starts_with(&role.replace('_', " ")))
    });
    Some((node, role.unwrap_or(CLIENT)))
}

/// A node with these roles, with a name that is free.
fn new_node(deployment: &Deployment, roles: &[String]) -> Node {
    let prefix = match roles {
        [role] => role.replace('_', "-"),
        _ => "n".to_owned(),
    };
    let name = |number| format!("{prefix}-{number}");
    let free = |number: &usize| deployment.place(&name(*number)).is_err();
    let number = (0..).find(free).expect("some number is free");
    Node {
        name: name(number),
        address: "new-node.invalid:1".to_owned(),
        gateway: roles
            .iter()
            .any(|role| role == CLIENT)
            .then(|| "new-node.invalid:2".to_owned()),
        roles: roles.iter().map(|role| Placed::some(role, 1)).collect(),
        ..Node::default()
    }
}

fn command(node: &Node) -> String {
    let roles: Vec<String> = node.roles.iter().map(Placed::to_string).collect();
    let gateway = match node.gateway {
        Some(_) => format!(" --gateway {SOMEWHERE}"),
        None => String::new(),
    };
    format!(
        "ionian member add {} --address {SOMEWHERE}{gateway} --roles {}",
        node.name,
        roles.join(",")
    )
}

/// Stands for the system calls of a node, beside its roles.
const CALLS: &str = "system calls";

/// What each role of each node spends, in microseconds a second.
type Spent = BTreeMap<(String, &'static str), f64>;

/// Instances share their work evenly if none does this many times as much as they do on average.
const EVEN: f64 = 1.2;

/// Makes instances that share their work evenly do the same: who of them got a message more when
/// messages were counted is chance.
fn evened(mut spent: Spent) -> Spent {
    let roles = spread(&spent);
    for ((_, role), us) in &mut spent {
        let of = &roles[*role];
        if of.is_even() {
            *us = of.sum / of.count;
        }
    }
    spent
}

/// What all instances of a role spend.
#[derive(Default)]
struct Spread {
    sum: f64,
    most: f64,
    count: f64,
}

impl Spread {
    fn is_even(&self) -> bool {
        self.most < EVEN * self.sum / self.count
    }
}

fn spread(spent: &Spent) -> BTreeMap<&'static str, Spread> {
    let mut roles: BTreeMap<&'static str, Spread> = BTreeMap::new();
    for ((_, role), us) in spent {
        let of = roles.entry(*role).or_default();
        of.sum += us;
        of.most = of.most.max(*us);
        of.count += 1.0;
    }
    roles
}

/// A cluster as it is.
struct Now<'a> {
    nodes: &'a [(&'a str, &'a Rates)],
    prices: &'a Prices,
    /// The preset whose prices are used.
    preset: &'static str,
    /// Writes and reads a second.
    rates: [(Commands, f64); 2],
    spent: Spent,
}

impl<'a> Now<'a> {
    fn of(
        deployment: &Deployment,
        nodes: &'a [(&'a str, &'a Rates)],
        prices: &'a Prices,
    ) -> Result<Self> {
        let preset = nearest(deployment, prices)?;
        let sum = |read: bool| {
            let of = |rates: &Rates| match read {
                true => rates.commands[0],
                false => rates.commands[1..].iter().sum(),
            };
            nodes.iter().map(|(_, rates)| of(rates)).sum::<f64>()
        };
        let rates = [
            (Commands::Writes, sum(false)),
            (Commands::LinearizableReads, sum(true)),
        ];
        let mut now = Now {
            nodes,
            prices,
            preset,
            rates,
            spent: Spent::new(),
        };
        now.spent = now.spent_in(deployment)?;
        Ok(now)
    }

    /// By the model. What a node reports of its roles does not contain system calls: they are
    /// apart here too.
    fn spent_in(&self, deployment: &Deployment) -> Result<Spent> {
        let (mut spent, mut calls) = (Spent::new(), Spent::new());
        for (commands, rate) in self.rates.iter().filter(|(_, rate)| *rate > 0.0) {
            let counted = count(deployment, *commands, Corner::SMALL, BURST)?;
            let costs = self.prices.of(self.preset, *commands, Corner::SMALL);
            let Some(costs) = costs else { continue };
            let with_calls = counted.priced(costs, &self.prices.system_calls);
            let Measured { nodes, kinds } = counted.priced(costs, &SystemCalls::default());
            for (node, with_calls) in nodes.iter().zip(&with_calls.nodes) {
                for (kind, us) in node.roles() {
                    let role = (node.name.clone(), kinds[usize::from(kind)]);
                    *spent.entry(role).or_default() += rate * us;
                }
                let us = with_calls.demand_us() - node.demand_us();
                *calls.entry((node.name.clone(), CALLS)).or_default() += rate * us;
            }
        }
        let mut spent = evened(spent);
        spent.append(&mut calls);
        Ok(spent)
    }

    /// How many times as much the cluster could do with a new node, and the limit then.
    fn with(&self, to: &Deployment, new: &Node) -> Result<(f64, String)> {
        let spent = self.spent_in(to)?;
        let (was, is) = (spread(&self.spent), spread(&spent));
        let relief = |role: &str| match (was.get(role), is.get(role)) {
            (Some(was), Some(is)) if was.most > 0.0 => {
                let times = is.most / was.most;
                // A node more does not relieve an instance that does not share its work, but may
                // give it more to do.
                let is_shared = was.is_even() && is.is_even();
                if is_shared { times } else { times.max(1.0) }
            }
            _ => 1.0,
        };
        let gateways = to.nodes.iter().filter(|node| node.gateway.is_some());
        let gateways = gateways.count() as f64;
        // Connections of clients spread over one gateway more.
        let fewer = match new.gateway {
            Some(_) => (gateways - 1.0) / gateways,
            None => 1.0,
        };
        let most = most(&self.spent);
        let (mut before, mut then) = (0.0, (self.on_new(&spent, &most, new, fewer), &*new.name));
        for (name, rates) in self.nodes {
            let busy: f64 = rates.loops.iter().map(|(_, busy)| busy).sum();
            before = f64::max(before, busy);
            let calls = |of: &Spent| of.get(&((*name).to_owned(), CALLS)).copied();
            let outside = match (calls(&self.spent), calls(&spent)) {
                _ if rates.all_commands() > 0.0 => fewer,
                (Some(was), Some(is)) if was > 0.0 => is / was,
                _ => 1.0,
            };
            let roles = rates.roles.iter();
            let roles: f64 = roles.map(|(role, _, busy)| busy * relief(role)).sum();
            let after = roles + rates.outside().unwrap_or(0.0) * outside;
            if after > then.0 {
                then = (after, name);
            }
        }
        let (after, limit) = then;
        Ok((before / after.max(f64::MIN_POSITIVE), limit.to_owned()))
    }

    /// How busy the new node would be: in each role, and in its connections, as the busiest node is
    /// now, by the ratio of the model.
    fn on_new(&self, spent: &Spent, was: &Most, new: &Node, fewer: f64) -> f64 {
        let busiest = |role: &str| {
            let all = self.nodes.iter().flat_map(|(_, rates)| &rates.roles);
            let same = all.filter(|(of, ..)| of == role).map(|(.., busy)| *busy);
            same.fold(0.0, f64::max)
        };
        let own = spent.iter().filter(|((node, _), _)| *node == new.name);
        let roles = own.map(|((_, role), us)| match was.get(role) {
            Some(was) if *was > 0.0 => busiest(role) * us / was,
            _ => 0.0,
        });
        let outside = self.nodes.iter().filter_map(|(_, rates)| rates.outside());
        let outside = match new.gateway {
            Some(_) => outside.fold(0.0, f64::max) * fewer,
            None => 0.0,
        };
        roles.sum::<f64>() + outside
    }
}

/// What the busiest instance of each role spends, where instances share their work. Others do what
/// they do however many there are: one leader leads.
type Most = BTreeMap<&'static str, f64>;

fn most(spent: &Spent) -> Most {
    let roles = spread(spent).into_iter();
    let shared = roles.filter(|(_, of)| of.is_even());
    shared.map(|(role, of)| (role, of.most)).collect()
}

/// The preset of the same protocol that has the most roles of a deployment and the fewest others.
fn nearest(deployment: &Deployment, prices: &Prices) -> Result<&'static str> {
    let nodes = deployment.nodes.iter();
    let mut own: Vec<&str> = nodes
        .flat_map(|node| node.instances().into_keys())
        .collect();
    own.sort_unstable();
    own.dedup();
    let of_protocol = presets().filter(|(protocol, preset)| {
        protocol.name == deployment.protocol && prices.presets.contains_key(preset.name)
    });
    let distance = |preset: &ionian_kernel::preset::Preset| {
        let roles = preset.nodes.iter().flat_map(|nodes| nodes.roles);
        let mut roles: Vec<&str> = roles.copied().collect();
        roles.sort_unstable();
        roles.dedup();
        let common = roles.iter().filter(|role| own.contains(role)).count();
        let whole = preset.nodes.len() == 1;
        let is_whole = deployment.nodes.iter().any(|it| it.instances().len() > 3);
        own.len() + roles.len() - 2 * common + usize::from(whole != is_whole)
    };
    let nearest = of_protocol.min_by_key(|(_, preset)| distance(preset));
    nearest
        .map(|(_, preset)| preset.name)
        .ok_or_else(|| anyhow::anyhow!("there are no demands of protocol {}", deployment.protocol))
}
