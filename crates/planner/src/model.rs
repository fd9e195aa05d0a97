//! How busy each node of a deployment is under a workload. The law is that of utilization: an event
//! loop is one processor, and what it does grows with the load.

use crate::counted::{Counted, count, together};
use crate::demand::Measured;
use crate::family::{Family, Shape};
use crate::prices::{Commands, Corner, Prices};
use crate::workload::Workload;
use anyhow::{Context, Result};
use ionian_deployment::{CLIENT, Durability};
use ionian_protocols::registry;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What deployments were counted already. Counts depend neither on prices nor on rates.
#[derive(Debug, Default)]
pub struct Counts(RefCell<BTreeMap<Key, Rc<Counted>>>);

type Key = (
    (&'static str, usize, bool),
    Shape,
    (Commands, Corner, usize),
);

impl Counts {
    fn of(
        &self,
        family: &Family,
        shape: &Shape,
        (commands, corner, burst): (Commands, Corner, usize),
    ) -> Result<Rc<Counted>> {
        let kept = family.durability == Durability::Disk;
        let key = (
            (family.name, family.f, kept),
            shape.clone(),
            (commands, corner, burst),
        );
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = Rc::new(count(&family.deployment(shape)?, commands, corner, burst)?);
        self.0.borrow_mut().insert(key, found.clone());
        Ok(found)
    }
}

/// From a deployment to how busy its nodes are.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// What messages cost.
    pub prices: &'a Prices,
    /// What clients ask.
    pub workload: &'a Workload,
    /// How many times as fast a processor is as the one that the prices were measured on.
    pub speed: f64,
    /// What was counted already.
    pub counts: &'a Counts,
}

/// How busy the nodes of a deployment are.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads(pub Vec<NodeLoad>);

/// How busy a node is: shares of one processor.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLoad {
    /// Its name.
    pub name: String,
    /// Its group, an index of [`Family::groups`].
    pub group: usize,
    /// Of each kind of role; connections of clients count for the client lane.
    pub roles: BTreeMap<u8, f64>,
    /// At most, after any f nodes are gone.
    pub failed: f64,
    /// Bytes that it sends to other nodes, a second.
    pub bytes_out: f64,
}

impl NodeLoad {
    /// While all nodes work.
    pub fn busy(&self) -> f64 {
        self.roles.values().sum()
    }
}

impl Loads {
    /// The nodes of a group.
    pub fn of_group(&self, group: usize) -> impl Iterator<Item = &NodeLoad> {
        self.0.iter().filter(move |node| node.group == group)
    }
}

/// What every instance of a kind of role does for every command, however many instances there are,
/// as a share of one processor. The rest of its work is shared by all.
pub(crate) type Unshared = BTreeMap<u8, f64>;

impl Model<'_> {
    /// How busy the nodes of a deployment are, and would be after f failures.
    pub(crate) fn loads(
        &self,
        family: &Family,
        shape: &Shape,
        unshared: &Unshared,
    ) -> Result<Loads> {
        let mut loads = self.working(family, shape)?;
        let mut failed: BTreeMap<u8, f64> = BTreeMap::new();
        for (kind, of_kind) in by_kind(&loads) {
            let (all, most) = (of_kind.iter().sum::<f64>(), of_kind.iter().copied());
            let most = most.fold(0.0, f64::max);
            let count = of_kind.len() as f64;
            let own = unshared.get(&kind).copied().unwrap_or(0.0);
            let own = own.clamp(0.0, all / count);
            let survivors = (count - family.f as f64).max(1.0);
            failed.insert(kind, most.max(own + (all - own * count) / survivors));
        }
        for node in &mut loads.0 {
            node.failed = node.roles.keys().map(|kind| failed[kind]).sum();
        }
        Ok(loads)
    }

    /// What each kind of role does not share: what all its instances together do more when one is
    /// added.
    pub(crate) fn unshared(&self, family: &Family) -> Result<Unshared> {
        let mut more = family.least.clone();
        for group in 0..family.groups.len() {
            more = family.grown(&more, group, 1).unwrap_or(more);
        }
        let before = by_kind(&self.working(family, &family.least)?);
        let after = by_kind(&self.working(family, &more)?);
        let of_kind = |(kind, before): (u8, Vec<f64>)| {
            let after = after.get(&kind)?;
            let added = after.len() - before.len();
            let sum = |of: &[f64]| of.iter().sum::<f64>();
            (added > 0).then(|| (kind, (sum(after) - sum(&before)) / added as f64))
        };
        Ok(before.into_iter().filter_map(of_kind).collect())
    }

    /// While all nodes work.
    fn working(&self, family: &Family, shape: &Shape) -> Result<Loads> {
        let description = registry::description(family.protocol)
            .with_context(|| format!("protocol = {:?}: does not exist", family.protocol))?;
        let client = description.kinds.iter().position(|kind| *kind == CLIENT);
        let groups = shape.counts.iter().enumerate();
        let groups = groups.flat_map(|(group, count)| std::iter::repeat_n(group, *count));
        let mut nodes: Vec<NodeLoad> = groups.map(NodeLoad::idle).collect();
        for (commands, rate) in self.workload.kinds() {
            let corners = self.corners(family, shape, commands)?;
            for (place, node) in nodes.iter_mut().enumerate() {
                node.name
                    .clone_from(&corners[&Corner::SMALL].nodes[place].name);
                let roles = |corner| corners[&corner].nodes[place].roles();
                for kind in roles(Corner::SMALL).into_keys() {
                    let us = |corner| roles(corner).get(&kind).copied().unwrap_or(0.0);
                    let us = self.workload.between(us);
                    *node.roles.entry(kind).or_default() += rate * us / 1e6 / self.speed;
                }
                let bytes = |corner| corners[&corner].nodes[place].traffic.bytes_out;
                node.bytes_out += rate * self.workload.between(bytes);
            }
        }
        let gateways = family.groups.iter().zip(&shape.counts);
        let gateways = gateways.filter(|(group, _)| group.has_gateway());
        let gateways: usize = gateways.map(|(_, count)| count).sum();
        for node in &mut nodes {
            if let Some(client) = client
                && family.groups[node.group].has_gateway()
            {
                let us = self.gateway_us() * self.workload.all() / gateways as f64;
                *node.roles.entry(client as u8).or_default() += us / 1e6 / self.speed;
            }
        }
        Ok(Loads(nodes))
    }

    /// What a command costs a gateway beside its client lane.
    fn gateway_us(&self) -> f64 {
        let requests = 1.0 / self.workload.pipeline as f64;
        self.prices.gateway.us(1.0, requests)
    }

    /// What each node spends on a request, at those corners that the workload needs.
    fn corners(
        &self,
        family: &Family,
        shape: &Shape,
        commands: Commands,
    ) -> Result<BTreeMap<Corner, Measured>> {
        let burst = together(self.workload.connections);
        let needed = Corner::ALL.into_iter().filter(|corner| {
            *corner == Corner::SMALL
                || (*corner == Corner::LARGE
                    && self.workload.value_bytes > Corner::SMALL.value_bytes)
                || (*corner == Corner::PIPELINED && self.workload.pipeline > 1)
        });
        let priced = |corner| {
            let costs = self.prices.of(family.name, commands, corner);
            let costs = costs.with_context(|| format!("no demands of preset {}", family.name))?;
            let counted = self.counts.of(family, shape, (commands, corner, burst))?;
            let calls = &self.prices.system_calls;
            Ok((corner, counted.priced(costs, calls)))
        };
        needed.map(priced).collect()
    }
}

impl NodeLoad {
    fn idle(group: usize) -> Self {
        NodeLoad {
            name: String::new(),
            group,
            roles: BTreeMap::new(),
            failed: 0.0,
            bytes_out: 0.0,
        }
    }
}

/// The shares of all instances of each kind.
fn by_kind(loads: &Loads) -> BTreeMap<u8, Vec<f64>> {
    let mut kinds: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
    for (kind, busy) in loads.0.iter().flat_map(|node| &node.roles) {
        kinds.entry(*kind).or_default().push(*busy);
    }
    kinds
}
