//! A cluster to measure on, in a directory of its own.

use super::arguments::Common;
use crate::cluster::deployment;
use crate::gateway::Gateway;
use crate::settle::{ANSWER_LIMIT, serving};
use anyhow::{Context, Result};
use ionian_harness::Cluster;
use ionian_harness::cluster::program;
use ionian_runtime::{NodeStatus, query_status};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// See the top of this file. The directory is removed at the end.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    root: PathBuf,
}

impl Bench {
    /// Starts a cluster and waits until every gateway takes writes. `overrides` come before what
    /// was typed.
    pub(crate) async fn start(common: &Common, name: &str, overrides: &[&str]) -> Result<Self> {
        let ionian = program(common.ionian.as_deref())?;
        let root = std::path::absolute(common.data.join(format!("{name}-{}", std::process::id())))?;
        let settings: Vec<String> = overrides
            .iter()
            .map(ToString::to_string)
            .chain(common.overrides.clone())
            .collect();
        let cluster = Cluster::new(&ionian, &root, deployment(&common.preset, &settings)?)?;
        let mut bench = Bench { cluster, root };
        (0..bench.cluster.len()).try_for_each(|node| bench.cluster.start(node))?;
        bench.serving().await?;
        Ok(bench)
    }

    async fn serving(&mut self) -> Result<()> {
        let gateways = self.cluster.gateways()?.into_iter().map(Gateway::from);
        let served = serving(&gateways.collect::<Vec<_>>()).await;
        // A node that has ended says better what is wrong.
        self.cluster.check_all()?;
        served.map(drop)
    }

    /// What every node says of itself, in the order of the deployment.
    pub(crate) async fn statuses(&self) -> Result<Vec<NodeStatus>> {
        let mut statuses = Vec::new();
        for address in self.cluster.addresses()? {
            let status = query_status(address, ANSWER_LIMIT).await;
            statuses.push(status.with_context(|| address.to_string())?);
        }
        Ok(statuses)
    }

    /// All gateways, that of the leader's node first, if it has one.
    pub(crate) fn gateways_from(&self, leader: usize) -> Result<Vec<SocketAddr>> {
        let mut gateways = self.cluster.gateways()?;
        if let Some(text) = &self.cluster.deployment().nodes[leader].gateway {
            let of_leader = gateways
                .iter()
                .position(|gateway| gateway.to_string() == *text);
            gateways.rotate_left(of_leader.unwrap_or(0));
        }
        Ok(gateways)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What cannot be removed stays visible there.
        if self.cluster.kill_all().is_ok() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}
