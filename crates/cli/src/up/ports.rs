//! Checks that the addresses of a deployment are free before any process starts: one clear error is
//! better than one per node.

use super::http::Http;
use crate::address::{self, listen, resolve};
use anyhow::{Result, bail};
use ionian_deployment::Node;
use ionian_kernel::layout::NodeId;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::TcpListener;

/// An address of a node at which another program listens.
#[derive(Debug)]
pub(crate) struct InUse {
    /// The key in the deployment, such as `node.n0.gateway`.
    pub(crate) key: String,
    text: String,
    port: u16,
    /// The flag that moves all addresses of this kind.
    flag: &'static str,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InUse {
            key, text, port, ..
        } = self;
        write!(f, "port {port} is in use ({key} = {text:?})")
    }
}

/// The nodes of which an address is in use, by name, with the first such address of each.
pub(crate) type Taken = BTreeMap<String, InUse>;

/// Binds every address once, before the nodes start.
///
/// # Errors
/// Names the first address at which no node can ever listen.
pub(crate) fn taken(nodes: &[Node]) -> Result<Taken> {
    let (mut held, mut taken) = (Vec::new(), Taken::new());
    for node in nodes {
        if let Some(in_use) = first_in_use(node, &mut held)? {
            taken.insert(node.name.clone(), in_use);
        }
    }
    Ok(taken)
}

/// The address of a node that was in use before its start and still is.
pub(crate) fn still_in_use(taken: &Taken, node: &Node) -> Option<InUse> {
    taken.get(&node.name)?;
    first_in_use(node, &mut Vec::new()).ok()?
}

/// Checks that the nodes that must start together can. `may_move`: whether flags can give them
/// other addresses.
///
/// # Errors
/// Names the first address that is in use, and what to do.
pub(crate) fn check(taken: &Taken, may_move: bool) -> Result<()> {
    let Some((name, in_use)) = taken.first_key_value() else {
        return Ok(());
    };
    let InUse { key, flag, .. } = in_use;
    match may_move {
        true => {
            bail!(
                "{in_use}: stop what uses it, or choose another with {flag} or --set {key}=HOST:PORT"
            )
        }
        false => bail!(
            "{in_use}: stop what uses it. No flag moves node {name}, because the addresses are those of the membership, \
             which has changed since the cluster was founded"
        ),
    }
}

/// Checks the addresses of a node that joins a running cluster.
///
/// # Errors
/// Names the first address that is not available.
pub(crate) fn check_joining(node: &Node) -> Result<()> {
    let name = &node.name;
    match first_in_use(node, &mut Vec::new())? {
        None => Ok(()),
        Some(in_use) => bail!(
            "{in_use}: stop what uses it, and node {name} starts; or take the node back (`ionian member abandon`, or \
             `ionian member remove {name}` if the change is finished) and add it with another address"
        ),
    }
}

/// Checks that the nodes leave each other their addresses, and the HTTP server of each its own.
///
/// # Errors
/// Names both of two that are the same.
pub(crate) fn check_apart(nodes: &[(NodeId, &Node)], http: Option<Http>) -> Result<()> {
    let mut all = Vec::new();
    for (_, node) in nodes {
        for (key, text, _) in places(node) {
            let address = resolve(&key, text)?;
            all.push((key, address));
        }
    }
    for (id, node) in nodes {
        let address = http.and_then(|http| http.of(*id));
        all.extend(address.map(|it| (format!("--http of node {}", node.name), it)));
    }
    Ok(address::check_apart(&all)?)
}

/// Where a node listens: key, text, and the flag that moves all addresses of the kind.
fn places(node: &Node) -> impl Iterator<Item = (String, &str, &'static str)> {
    let key = |own: &Option<String>, usual: &str, other: &str| {
        let key = if own.is_some() { other } else { usual };
        format!("node.{}.{key}", node.name)
    };
    let address = (
        key(&node.listen, "address", "listen"),
        node.listens_at(),
        "--node-port PORT",
    );
    let gateway = node.gateway_listens_at().map(|text| {
        let key = key(&node.gateway_listen, "gateway", "gateway_listen");
        (key, text, "--listen HOST:PORT")
    });
    [address].into_iter().chain(gateway)
}

fn first_in_use(node: &Node, held: &mut Vec<TcpListener>) -> Result<Option<InUse>> {
    for (key, text, flag) in places(node) {
        let address = resolve(&key, text)?;
        match listen(address) {
            Ok(listener) => held.push(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                return Ok(Some(InUse {
                    text: text.to_owned(),
                    port: address.port(),
                    key,
                    flag,
                }));
            }
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => bail!(
                "{key} = {text:?} is no address of this machine, and `ionian up` starts every node on this machine; \
                 across machines, start each with `ionian node`"
            ),
            Err(error) => bail!("cannot listen on {key} = {text:?}: {error}"),
        }
    }
    Ok(None)
}
