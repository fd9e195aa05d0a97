//! Changes of the membership: from the deployment of a running cluster to the next one.

use crate::deployment::{Deployment, Node, Placed};
use crate::error::{DeploymentError, Problem};
use crate::numbers::{InUse, Numbers};
use crate::words::shortened;
use std::collections::BTreeMap;

impl Deployment {
    /// The deployment with one more node. New nodes and instances get numbers that this deployment
    /// does not use.
    ///
    /// # Errors
    /// If the name or an address is taken, or the node has no roles.
    pub fn with_node(&self, node: Node) -> Result<Deployment, DeploymentError> {
        self.check_is_new(&node)?;
        let mut to = self.numbered()?;
        to.nodes.push(node);
        to.successor_of(self)
    }

    /// The deployment without a node.
    ///
    /// # Errors
    /// If no node has this name, or it is the only node.
    pub fn without_node(&self, name: &str) -> Result<Deployment, DeploymentError> {
        let mut to = self.numbered()?;
        to.nodes.remove(self.place(name)?);
        to.successor_of(self)
    }

    /// The deployment with `new` instead of the node `old`. The new node takes over the roles, each
    /// instance with a new number.
    ///
    /// # Errors
    /// If no node is named `old`, or the name or an address of `new` is taken.
    pub fn with_replaced(&self, old: &str, mut new: Node) -> Result<Deployment, DeploymentError> {
        self.check_is_new(&new)?;
        let mut to = self.numbered()?;
        let left = to.nodes.remove(self.place(old)?);
        let roles = left.roles.into_iter();
        new.roles = roles
            .map(|Placed { role, count, .. }| Placed {
                role,
                count,
                number: None,
            })
            .collect();
        to.nodes.push(new);
        to.successor_of(self)
    }

    fn check_is_new(&self, node: &Node) -> Result<(), DeploymentError> {
        match self.place(&node.name) {
            Ok(_) => Err(Problem::IsMember(node.name.clone()).into()),
            Err(_) => Ok(()),
        }
    }

    /// This hand-written deployment as the successor of `before`: nodes of the same name and their
    /// instances keep their numbers; new ones get numbers that `before` does not use.
    ///
    /// # Errors
    /// If the deployment is not well formed, or has too many instances.
    pub fn successor_of(&self, before: &Deployment) -> Result<Deployment, DeploymentError> {
        self.check_stored()?;
        self.check_addresses(&before.nodes)?;
        let before = before.numbered()?;
        let mut to = self.clone();
        for node in &mut to.nodes {
            if let Some(earlier) = before
                .nodes
                .iter()
                .find(|earlier| earlier.name == node.name)
            {
                node.id = node.id.or(earlier.id);
                node.roles = kept(node, earlier);
            }
        }
        to.options.take_tuned(&before.options);
        to.check_numbers()?;
        to.numbered_apart(InUse::default().stated(&before), Numbers::next)
    }

    /// Whether a running cluster can change from this deployment to `to`, without regard to the
    /// protocol.
    ///
    /// # Errors
    /// Names what cannot be changed.
    pub fn check_change(&self, to: &Deployment) -> Result<(), DeploymentError> {
        let (before, after) = (self.numbered()?, to.numbered()?);
        self.check_lasting(to)?;
        for node in &after.nodes {
            let name = &node.name;
            if let Some(earlier) = before.nodes.iter().find(|earlier| earlier.name == *name) {
                let id = |node: &Node| format!("{}", node.id.expect("it is numbered"));
                fixed(&format!("node.{name}.id"), id(earlier), id(node), REPLACE)?;
                let address = |node: &Node| format!("{:?}", node.address);
                fixed(
                    &format!("node.{name}.address"),
                    address(earlier),
                    address(node),
                    REPLACE,
                )?;
                let gateway = |node: &Node| {
                    node.gateway
                        .as_ref()
                        .map_or("none".into(), |text| format!("{text:?}"))
                };
                fixed(
                    &format!("node.{name}.gateway"),
                    gateway(earlier),
                    gateway(node),
                    REPLACE,
                )?;
            } else if let Some(holder) = before.nodes.iter().find(|holder| holder.id == node.id) {
                let (key, value) = (
                    format!("node.{name}.id"),
                    node.id.map(|id| id.to_string()).unwrap_or_default(),
                );
                return Err(Problem::NumberTaken {
                    key,
                    value,
                    by: format!("node.{}.id", holder.name),
                }
                .into());
            }
        }
        before.check_new_addresses(&after)?;
        after.check_addresses(&before.nodes)?;
        match before.numbers_and_quorums() == after.numbers_and_quorums() {
            true => Err(Problem::NothingToChange.into()),
            false => Ok(()),
        }
    }

    /// The deployment with other options, given as `key=value`, for every node of the running
    /// cluster.
    ///
    /// # Errors
    /// If an option does not exist, is given twice, cannot have the value beside the others, or
    /// cannot change in a running cluster.
    pub fn tuned<S: AsRef<str>>(&self, settings: &[S]) -> Result<Deployment, DeploymentError> {
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for text in settings.iter().map(|text| text.as_ref().trim()) {
            let text = text.strip_prefix("options.").unwrap_or(text);
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| Problem::NotAnOverride(shortened(text)))?;
            let text = format!("options.{}={}", key.trim(), value.trim());
            if let Some(first) = texts.insert(key.trim(), text.clone()) {
                let (first, again) = (shortened(&first), shortened(&text));
                return Err(Problem::GivenTwice { first, again }.into());
            }
        }
        // Together, because options limit each other.
        let settings: Vec<&String> = texts.values().collect();
        let mut to = self.numbered()?.with_overrides(&settings)?;
        for key in texts.keys() {
            to.options.mark_tuned(key)?;
        }
        Ok(to)
    }

    /// Whether a running cluster can change from this deployment to `to` by changing its options
    /// only.
    ///
    /// # Errors
    /// If anything else differs, or nothing differs.
    pub fn check_tuning(&self, to: &Deployment) -> Result<(), DeploymentError> {
        self.check_cluster(to)?;
        if self.numbered()?.numbers_and_quorums() != to.numbered()?.numbers_and_quorums() {
            let (key, value) = ("node".to_owned(), "another list".to_owned());
            let allowed = "that of the running cluster: options and members cannot change together"
                .to_owned();
            return Err(Problem::Value {
                key,
                value,
                allowed,
            }
            .into());
        }
        match self.options == to.options {
            true => Err(Problem::NothingToChange.into()),
            false => Ok(()),
        }
    }

    /// Whether both deployments can belong to one cluster: they agree on everything that is fixed
    /// for the life of a cluster.
    pub fn is_same_cluster(&self, other: &Deployment) -> bool {
        let lasting = |it: &Deployment| {
            (
                it.cluster.clone(),
                it.protocol.clone(),
                it.machine.clone(),
                it.durability,
            )
        };
        lasting(self) == lasting(other)
    }

    /// Checks what is fixed for the life of a cluster.
    fn check_cluster(&self, to: &Deployment) -> Result<(), DeploymentError> {
        let quoted = |text: &str| format!("{text:?}");
        fixed(
            "cluster",
            quoted(&self.cluster),
            quoted(&to.cluster),
            LASTING,
        )?;
        fixed(
            "protocol",
            quoted(&self.protocol),
            quoted(&to.protocol),
            LASTING,
        )?;
        fixed(
            "machine",
            quoted(&self.machine),
            quoted(&to.machine),
            LASTING,
        )?;
        fixed(
            "durability",
            quoted(self.durability.name()),
            quoted(to.durability.name()),
            LASTING,
        )?;
        fixed(
            "level",
            self.level.to_string(),
            to.level.to_string(),
            FOUNDING,
        )
    }

    /// Checks what membership changes leave unchanged.
    fn check_lasting(&self, to: &Deployment) -> Result<(), DeploymentError> {
        self.check_cluster(to)?;
        self.settings().try_for_each(|setting| {
            let value = |deployment: &Deployment| deployment.options.value(setting).to_string();
            fixed(
                &format!("options.{}", setting.key),
                value(self),
                value(to),
                OPTION,
            )
        })
    }

    /// Everything that a membership change can change.
    fn numbers_and_quorums(&self) -> impl PartialEq + use<> {
        let mut nodes = self.nodes.clone();
        nodes.sort_by_key(|node| node.id);
        nodes
            .iter_mut()
            .for_each(|node| (node.listen, node.gateway_listen) = (None, None));
        nodes.iter_mut().for_each(|node| {
            node.roles
                .sort_by(|a, b| (&a.role, a.number).cmp(&(&b.role, b.number)))
        });
        (self.f, self.quorums, nodes)
    }
}

const LASTING: &str = "it is fixed for the life of a cluster";
const FOUNDING: &str =
    "it is the level that the cluster was founded with; `ionian upgrade finalize` raises it";
const OPTION: &str = "options cannot change together with the members; use `ionian options set`";
const REPLACE: &str = "to move a node, replace it by a node of another name";

fn fixed(key: &str, before: String, after: String, why: &str) -> Result<(), DeploymentError> {
    match before == after {
        true => Ok(()),
        false => {
            let allowed = format!("{before} as in the running cluster: {why}");
            Err(Problem::Value {
                key: key.to_owned(),
                value: after,
                allowed,
            }
            .into())
        }
    }
}

/// The roles of a node; instances that the node had before keep their numbers.
fn kept(node: &Node, earlier: &Node) -> Vec<Placed> {
    let stated = |role: &str, number| {
        node.roles
            .iter()
            .any(|placed| placed.role == role && placed.number.is_some() && placed.number == number)
    };
    let mut free: Vec<&Placed> = earlier
        .roles
        .iter()
        .filter(|placed| !stated(&placed.role, placed.number))
        .collect();
    let mut roles = Vec::new();
    for Placed {
        role,
        count,
        number,
    } in node.placed()
    {
        if number.is_some() {
            roles.push(Placed {
                role,
                count,
                number,
            });
            continue;
        }
        for _ in 0..count {
            let place = free.iter().position(|placed| placed.role == role);
            let number = place.and_then(|place| free.remove(place).number);
            roles.push(Placed {
                role: role.clone(),
                count: 1,
                number,
            });
        }
    }
    roles
}
