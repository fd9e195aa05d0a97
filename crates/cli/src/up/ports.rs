//! Checks that the addresses of a deployment are free before any process starts: one clear error is
//! better than one per node.

use crate::address::{listen, resolve};
use anyhow::{Result, bail};
use ionian_deployment::Node;
use std::io::ErrorKind;

/// Binds every address once, before the nodes start.
///
/// # Errors
/// Names the first address that is not available.
pub(crate) fn check(nodes: &[Node]) -> Result<()> {
    check_all(nodes, |key, flag| {
        format!("stop what uses it, or choose another with {flag} or --set {key}=HOST:PORT")
    })
}

/// The same for a node that joins a running cluster.
///
/// # Errors
/// Names the first address that is not available.
pub(crate) fn check_joining(node: &Node) -> Result<()> {
    let name = &node.name;
    check_all(std::slice::from_ref(node), |_, _| {
        format!(
            "stop what uses it, and node {name} starts; or take the node back (`ionian member abandon`, or `ionian member \
             remove {name}` if the change is finished) and add it with another address"
        )
    })
}

fn check_all(nodes: &[Node], remedy: impl Fn(&str, &str) -> String) -> Result<()> {
    let mut taken = Vec::new();
    for node in nodes {
        let key = |own: &Option<String>, usual: &str, other: &str| {
            format!(
                "node.{}.{}",
                node.name,
                if own.is_some() { other } else { usual }
            )
        };
        let address_key = key(&node.listen, "address", "listen");
        check_one(&mut taken, &address_key, node.listens_at(), || {
            remedy(&address_key, "--node-port PORT")
        })?;
        if let Some(gateway) = node.gateway_listens_at() {
            let key = key(&node.gateway_listen, "gateway", "gateway_listen");
            check_one(&mut taken, &key, gateway, || {
                remedy(&key, "--listen HOST:PORT")
            })?;
        }
    }
    Ok(())
}

fn check_one(
    taken: &mut Vec<std::net::TcpListener>,
    key: &str,
    text: &str,
    remedy: impl FnOnce() -> String,
) -> Result<()> {
    let address = resolve(key, text)?;
    match listen(address) {
        Ok(listener) => taken.push(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {} is in use ({key} = {text:?}): {}",
            address.port(),
            remedy()
        ),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => bail!(
            "{key} = {text:?} is no address of this machine, and `ionian up` starts every node on this machine; \
             across machines, start each with `ionian node`"
        ),
        Err(error) => bail!("cannot listen on {key} = {text:?}: {error}"),
    }
    Ok(())
}
