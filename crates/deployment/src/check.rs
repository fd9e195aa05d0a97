//! Checks that the parts of a deployment fit together. Each part was checked when it was set.

use crate::deployment::{Deployment, MAX_NODES, Node};
use crate::endpoint::Endpoint;
use crate::error::{DeploymentError, Problem};
use std::collections::BTreeSet;

impl Deployment {
    /// Checks what parsing checks of the parts together; for a deployment made or changed in code.
    ///
    /// # Errors
    /// Names the parts that do not fit together.
    pub fn check(&self) -> Result<(), DeploymentError> {
        self.check_stored()?;
        self.check_addresses(&[])
    }

    /// As [`check`](Self::check), but compares no addresses: a cluster goes on with those that an
    /// earlier program accepted.
    pub(crate) fn check_stored(&self) -> Result<(), DeploymentError> {
        self.options.check(&self.protocol)?;
        let nodes = self.nodes.len();
        if !(1..=MAX_NODES).contains(&nodes) {
            let (key, allowed) = (
                "node".to_owned(),
                format!("1 to {MAX_NODES} [[node]] tables"),
            );
            return Err(Problem::Value {
                key,
                value: format!("{nodes} nodes"),
                allowed,
            }
            .into());
        }
        self.check_names()?;
        self.check_numbers()?;
        self.check_gateways()?;
        self.check_network()?;
        match self.nodes.iter().find(|node| node.instances().is_empty()) {
            None => Ok(()),
            Some(idle) => {
                let key = format!("node.{}.roles", idle.name);
                let allowed =
                    "a list with at least one role, or the node must have a gateway".to_owned();
                Err(Problem::Value {
                    key,
                    value: "[]".to_owned(),
                    allowed,
                }
                .into())
            }
        }
    }

    fn check_names(&self) -> Result<(), DeploymentError> {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(other) = self.nodes[..index]
                .iter()
                .position(|other| other.name == node.name)
            {
                let (key, by) = (format!("node[{index}].name"), format!("node[{other}].name"));
                return Err(Problem::Taken {
                    key,
                    value: node.name.clone(),
                    by,
                }
                .into());
            }
        }
        Ok(())
    }

    /// Checks that the new nodes of `to` have no address of a member that stays. Those of a node
    /// that leaves are free when it has stopped: at most f new nodes may wait for at most f others
    /// to stop, so that the quorums of both configurations can be reached without them.
    pub(crate) fn check_new_addresses(&self, to: &Deployment) -> Result<(), DeploymentError> {
        let most = self.f.min(to.f);
        let (mut new, mut old) = (BTreeSet::new(), BTreeSet::new());
        let held: Vec<_> = self.nodes.iter().flat_map(all_sockets).collect();
        for (socket, holder) in self.collisions(to, &held) {
            let (key, value, by) = (socket.key(), socket.text.to_owned(), holder.key());
            if to.place(&holder.node.name).is_ok() {
                return Err(Problem::Taken { key, value, by }.into());
            }
            new.insert(&socket.node.name);
            old.insert(&holder.node.name);
            if new.len().max(old.len()) > most {
                return Err(Problem::TakenDuringChange {
                    key,
                    value,
                    by,
                    most,
                }
                .into());
            }
        }
        Ok(())
    }

    /// The nodes of `to` that are not in this deployment and have an address of one that leaves:
    /// each with that one. They can start only when it has stopped.
    pub fn successions(&self, to: &Deployment) -> BTreeSet<(String, String)> {
        let held: Vec<_> = self.nodes.iter().flat_map(all_sockets).collect();
        let name = |socket: &Socket<'_>| socket.node.name.clone();
        self.collisions(to, &held)
            .filter(|(_, holder)| to.place(&holder.node.name).is_err())
            .map(|(new, holder)| (name(&new), name(holder)))
            .collect()
    }

    fn collisions<'a>(
        &'a self,
        to: &'a Deployment,
        held: &'a [Socket<'a>],
    ) -> impl Iterator<Item = (Socket<'a>, &'a Socket<'a>)> {
        let new = to.nodes.iter().filter(|it| self.place(&it.name).is_err());
        new.flat_map(all_sockets).flat_map(move |socket| {
            let holders = held.iter().filter(move |holder| socket.collides(holder));
            holders.map(move |holder| (socket, holder))
        })
    }

    fn check_gateways(&self) -> Result<(), DeploymentError> {
        if let Some(node) = self
            .nodes
            .iter()
            .find(|node| node.gateway.is_none() && node.gateway_listen.is_some())
        {
            let (key, allowed) = (
                format!("node.{}.gateway", node.name),
                "where clients find it, beside gateway_listen",
            );
            return Err(Problem::Missing {
                key,
                allowed: allowed.to_owned(),
            }
            .into());
        }
        Ok(())
    }

    /// Two nodes must not have the same address. Listening addresses may be equal, because they are
    /// local to a machine or container. Nodes that both have the addresses that they have in
    /// `accepted` are not compared.
    pub(crate) fn check_addresses(&self, accepted: &[Node]) -> Result<(), DeploymentError> {
        let places = |it: &Node| {
            (
                it.address.clone(),
                it.gateway.clone(),
                it.gateway_listen.clone(),
            )
        };
        let is_same = |it: &Node, node: &Node| it.name == node.name && places(it) == places(node);
        let is_new = |node: &Node| !accepted.iter().any(|it| is_same(it, node));
        let sockets: Vec<_> = self.nodes.iter().flat_map(sockets).collect();
        for (index, socket) in sockets.iter().enumerate() {
            let meets = |other: &&Socket<'_>| {
                (socket.collides(other) || socket.is_same_place(other))
                    && (is_new(socket.node) || is_new(other.node))
            };
            if let Some(other) = sockets[..index].iter().find(meets) {
                let value = socket.text.to_owned();
                return Err(Problem::Taken {
                    key: socket.key(),
                    value,
                    by: other.key(),
                }
                .into());
            }
        }
        Ok(())
    }
}

/// An address of a node.
#[derive(Clone, Copy)]
struct Socket<'a> {
    node: &'a Node,
    name: &'static str,
    text: &'a str,
    at: Endpoint<'a>,
    /// The address for other nodes, which identifies the machine as far as a file can tell.
    machine: Endpoint<'a>,
    /// Whether it is only for listening: local to a machine or container.
    is_local: bool,
}

/// Where others find the node.
fn sockets(node: &Node) -> impl Iterator<Item = Socket<'_>> {
    all_sockets(node).filter(|socket| !socket.is_local)
}

/// Where others find the node, and where it listens.
fn all_sockets(node: &Node) -> impl Iterator<Item = Socket<'_>> {
    let machine = Endpoint::parse(&node.address);
    let texts = [
        ("address", Some(&node.address), false),
        ("gateway", node.gateway.as_ref(), false),
        ("listen", node.listen.as_ref(), true),
        ("gateway_listen", node.gateway_listen.as_ref(), true),
    ];
    texts.into_iter().filter_map(move |(name, text, is_local)| {
        let text = text?;
        Some(Socket {
            node,
            name,
            text,
            at: Endpoint::parse(text)?,
            machine: machine?,
            is_local,
        })
    })
}

impl Socket<'_> {
    /// Whether two sockets conflict. Gateways on different machines may share an address that is
    /// local to each machine, such as `0.0.0.0:7379` or `127.0.0.1:7379`; nodes in containers of
    /// one machine may listen at the same wildcard.
    fn collides(&self, other: &Self) -> bool {
        let is_wildcard = self.at.is_wildcard() || other.at.is_wildcard();
        let overlap = match self.is_local || other.is_local {
            true => !is_wildcard && self.at.same_host(other.at),
            false => is_wildcard || self.at.same_host(other.at),
        };
        self.at.port == other.at.port && overlap && self.machine.same_machine(other.machine)
    }

    /// Whether others find two nodes at one address, wherever these are. Gateways behind something
    /// that passes connections on may share one: they have other addresses to listen at.
    fn is_same_place(&self, other: &Self) -> bool {
        let is_gateway = self.name == "gateway" && other.name == "gateway";
        let passes_on = |socket: &Self| socket.node.gateway_listen.is_some();
        let is_shared = is_gateway && (passes_on(self) || passes_on(other));
        let is_same = self.at.port == other.at.port && self.at.same_host(other.at);
        is_same && !self.at.is_of_each_machine() && !is_shared
    }

    fn key(&self) -> String {
        format!("node.{}.{}", self.node.name, self.name)
    }
}
