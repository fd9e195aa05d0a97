//! Checks that the addresses of a deployment are free before any process starts: one clear error is
//! better than one per node.

use crate::address::{listen, resolve};
use anyhow::{Result, bail};
use ionian_deployment::Node;
use std::io::ErrorKind;

/// Binds every address once.
///
/// # Errors
/// Names the first address that is not available.
pub(crate) fn check(nodes: &[Node]) -> Result<()> {
    let mut taken = Vec::new();
    for node in nodes {
        let key = |own: &Option<String>, usual: &str, other: &str| {
            format!(
                "node.{}.{}",
                node.name,
                if own.is_some() { other } else { usual }
            )
        };
        check_one(
            &mut taken,
            &key(&node.listen, "address", "listen"),
            node.listens_at(),
            "--node-port PORT",
        )?;
        if let Some(gateway) = node.gateway_listens_at() {
            let key = key(&node.gateway_listen, "gateway", "gateway_listen");
            check_one(&mut taken, &key, gateway, "--listen ADDR")?;
        }
    }
    Ok(())
}

fn check_one(
    taken: &mut Vec<std::net::TcpListener>,
    key: &str,
    text: &str,
    flag: &str,
) -> Result<()> {
    let address = resolve(key, text)?;
    match listen(address) {
        Ok(listener) => taken.push(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {} is in use ({key} = {text:?}): stop what uses it, or choose another with {flag} or --set {key}=HOST:PORT",
            address.port()
        ),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => bail!(
            "{key} = {text:?} is no address of this machine, and `ionian up` starts every node on this machine; \
             across machines, start each with `ionian node`"
        ),
        Err(error) => bail!("cannot listen on {key} = {text:?}: {error}"),
    }
    Ok(())
}
