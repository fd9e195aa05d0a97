//! The numbers of nodes and role instances.
//!
//! A membership change states every number, and gives each new instance a number above those of all
//! present instances. The number of a removed acceptor may be used again. That is safe: the new
//! acceptor refuses every round before the epoch in which it begins, and is no part of the
//! configurations of these rounds, so it cannot contradict what the former one promised.

use crate::deployment::{CLIENT, Deployment, MAX_NODES, Node, Placed};
use crate::error::{DeploymentError, Problem};
use ionian_kernel::id::{Index, MAX_INSTANCES};
use ionian_kernel::layout::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The used numbers of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(BTreeSet<usize>);

impl Numbers {
    /// Takes the lowest free number below `limit`.
    pub(crate) fn lowest(&mut self, limit: usize) -> Option<usize> {
        let number = (0..limit).find(|number| !self.0.contains(number))?;
        self.0.insert(number);
        Some(number)
    }

    /// Takes the number above all used ones or, if that is not below `limit`, the lowest free one.
    pub(crate) fn next(&mut self, limit: usize) -> Option<usize> {
        match self.0.last().map_or(0, |last| last + 1) {
            next if next < limit => {
                self.0.insert(next);
                Some(next)
            }
            _ => self.lowest(limit),
        }
    }
}

/// The numbers that a deployment uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse {
    nodes: Numbers,
    instances: BTreeMap<String, Numbers>,
}

impl InUse {
    /// Adds the numbers that a deployment states.
    pub(crate) fn stated(mut self, deployment: &Deployment) -> Self {
        for node in &deployment.nodes {
            self.nodes.0.extend(node.id.map(usize::from));
            for Placed { role, number, .. } in &node.roles {
                self.instances
                    .entry(role.clone())
                    .or_default()
                    .0
                    .extend(number.map(usize::from));
            }
        }
        self
    }
}

/// How to choose a number.
pub(crate) type Choice = fn(&mut Numbers, usize) -> Option<usize>;

impl Deployment {
    /// The same deployment with the number of every node and instance stated, including the clients
    /// of gateways.
    ///
    /// # Errors
    /// If parts do not fit together, other than addresses, or a role has more than 64 instances.
    pub fn numbered(&self) -> Result<Deployment, DeploymentError> {
        self.check_stored()?;
        self.numbered_apart(InUse::default(), Numbers::lowest)
    }

    /// Like [`numbered`](Deployment::numbered), with numbers that are not in `used`.
    pub(crate) fn numbered_apart(
        &self,
        used: InUse,
        choose: Choice,
    ) -> Result<Deployment, DeploymentError> {
        let mut used = used.stated(self);
        let mut numbered = self.clone();
        for (node, given) in numbered.nodes.iter_mut().zip(&self.nodes) {
            if node.id.is_none() {
                let id = choose(&mut used.nodes, MAX_NODES);
                node.id = Some(id.expect("there are fewer nodes than numbers") as u16);
            }
            node.roles.clear();
            for Placed {
                role,
                count,
                number,
            } in given.placed()
            {
                let numbers = used.instances.entry(role.clone()).or_default();
                for _ in 0..count {
                    let chosen = number
                        .or_else(|| choose(numbers, MAX_INSTANCES).map(|number| number as Index));
                    let chosen = chosen.ok_or_else(|| Problem::TooMany {
                        key: format!("node.{}.roles", given.name),
                        role: role.clone(),
                        count: MAX_INSTANCES + 1,
                        limit: MAX_INSTANCES,
                    })?;
                    node.roles.push(Placed::one(&role, chosen));
                }
            }
        }
        Ok(numbered)
    }

    /// The number of each node, in the order of [`nodes`](Deployment::nodes).
    pub fn ids(&self) -> Vec<NodeId> {
        let mut used = InUse::default().stated(self).nodes;
        let mut id = |node: &Node| {
            node.id
                .or_else(|| used.lowest(MAX_NODES).map(|id| id as u16))
        };
        self.nodes
            .iter()
            .map(|node| NodeId(id(node).expect("there are fewer nodes than numbers")))
            .collect()
    }

    /// Checks that no number is stated twice.
    pub(crate) fn check_numbers(&self) -> Result<(), DeploymentError> {
        let mut taken: BTreeMap<(&str, usize), String> = BTreeMap::new();
        for node in &self.nodes {
            let id = node
                .id
                .map(|id| ("", usize::from(id), "id", id.to_string()));
            let roles = node.roles.iter().filter_map(|placed| {
                Some((
                    placed.role.as_str(),
                    usize::from(placed.number?),
                    "roles",
                    placed.to_string(),
                ))
            });
            for (kind, number, key, value) in id.into_iter().chain(roles) {
                let key = format!("node.{}.{key}", node.name);
                if let Some(by) = taken.insert((kind, number), key.clone()) {
                    return Err(Problem::NumberTaken { key, value, by }.into());
                }
            }
        }
        Ok(())
    }

    /// The numbers, if they differ from those that follow from the order of the file.
    pub(crate) fn unusual_numbers(&self) -> Option<String> {
        let mut plain = self.clone();
        for node in &mut plain.nodes {
            node.id = None;
            node.roles
                .iter_mut()
                .for_each(|placed| placed.number = None);
        }
        let numbers = self.numbers_text()?;
        (plain.numbers_text()? != numbers).then_some(numbers)
    }

    /// `None` if there are too few numbers; another check rejects such a deployment.
    fn numbers_text(&self) -> Option<String> {
        let mut text = String::new();
        for node in self
            .numbered_apart(InUse::default(), Numbers::lowest)
            .ok()?
            .nodes
        {
            let mut roles: Vec<String> = node.roles.iter().map(Placed::to_string).collect();
            roles.sort_unstable();
            let _ = writeln!(text, "{:?} {}", node.id, roles.join(" "));
        }
        Some(text)
    }
}

impl Node {
    /// The roles, including the client of the gateway.
    pub(crate) fn placed(&self) -> Vec<Placed> {
        let has_client = self.roles.iter().any(|placed| placed.role == CLIENT);
        let implied = (self.gateway.is_some() && !has_client).then(|| Placed::some(CLIENT, 1));
        self.roles.iter().cloned().chain(implied).collect()
    }
}
