//! The limit of open files. Each connection is one: clients get what the log, the other nodes,
//! operators and HTTP leave over, so that a crowd of clients never stops the node.

use anyhow::{Result, bail};
use ionian_deployment::Deployment;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// For the files of the log, of snapshots and of certificates, and what the process itself opens.
const FILES: u64 = 64;

/// For connections of each other node: one each way, and those that replace them.
const FOR_EACH_NODE: u64 = 4;

/// For callers in a handshake, at the address for other nodes and at the Unix socket, and for
/// operators.
const CALLERS: u64 = 160;

/// For clients that the gateway has refused and that have not read why.
const REFUSED: u64 = 128;

/// For HTTP.
const HTTP: u64 = 110;

/// The fewest clients for which a node is started.
const FEWEST: u64 = 16;

/// The default limit of services is lower than that of clients: raises it as far as this process
/// may.
pub(super) fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(
            id = "E0110",
            "the limit of {soft} open files cannot be raised: {error}"
        );
    }
}

/// The deployment with no more clients than this process has open files for.
///
/// # Errors
/// If the limit leaves too few.
pub(super) fn fit(deployment: Deployment, nodes: usize) -> Result<Deployment> {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(deployment);
    };
    let wanted = deployment.options.options().clients.connections as u64;
    let fits = clients(limit, nodes)?;
    if wanted <= fits {
        return Ok(deployment);
    }
    tracing::warn!(
        id = "E0111",
        "max_clients = {wanted}, but the limit of {limit} open files leaves room for {fits} clients"
    );
    Ok(deployment.with_overrides(&[format!("options.max_clients={fits}")])?)
}

/// How many clients fit into a limit of open files.
fn clients(limit: u64, nodes: usize) -> Result<u64> {
    let reserved = FILES + CALLERS + REFUSED + HTTP + FOR_EACH_NODE * nodes as u64;
    let fits = limit.saturating_sub(reserved);
    if fits < FEWEST {
        bail!(
            "the limit of open files is {limit}: a node of a cluster with {nodes} nodes needs at least {}, and one more \
             for each further client (LimitNOFILE of the service, or `ulimit -n`)",
            reserved + FEWEST
        );
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_node_itself_leaves_over() {
        assert_eq!(clients(1024, 3).unwrap(), 550);
        assert_eq!(clients(490, 3).unwrap(), 16);
        let refused = clients(489, 3).unwrap_err().to_string();
        assert!(
            refused.contains("is 489") && refused.contains("at least 490"),
            "{refused}"
        );
    }
}
