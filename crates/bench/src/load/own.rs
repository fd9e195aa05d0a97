//! A cluster that lives as long as the run, in a directory that is removed afterwards, unless a
//! node has ended by itself.

use super::access::Place;
use super::arguments::{Account, Load, Servers};
use super::event_loop::Shared;
use super::target::wait_until_served;
use anyhow::{Result, ensure};
use ionian_deployment::{CLIENT, DEFAULT_PRESET, Deployment, PresetOptions};
use ionian_harness::Cluster;
use ionian_harness::cluster::{place_on_free_ports, program};
use ionian_program::BadUsage;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a cluster may take until every gateway takes writes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// See the top of this file.
pub(crate) struct Own {
    pub(crate) cluster: Cluster,
    /// The node that this process is, with `--lanes`.
    pub(crate) this: Option<usize>,
    root: PathBuf,
    /// Whether a node has ended by itself: what it has left is worth reading.
    failed: bool,
}

/// The deployment that was asked for, on free ports.
pub(crate) fn deployment(servers: &Servers) -> Result<Deployment> {
    let Servers {
        preset,
        file,
        overrides,
        durability,
        ..
    } = servers;
    let (mut deployment, default) = match file {
        Some(file) => (Deployment::load(file)?, None),
        None => {
            let preset = preset.as_deref().unwrap_or(DEFAULT_PRESET);
            (
                Deployment::preset(preset, &PresetOptions::default())?,
                Some("durability=memory".to_owned()),
            )
        }
    };
    place_on_free_ports(&mut deployment)?;
    let typed = durability.map(|durability| format!("durability={}", durability.name()));
    let settings: Vec<String> = default
        .into_iter()
        .chain(overrides.iter().cloned())
        .chain(typed)
        .collect();
    Ok(deployment.with_overrides(&settings)?)
}

impl Own {
    /// Starts the nodes. With `--lanes` the first that has a client lane is left out: this process
    /// is to be it.
    pub(crate) fn start(load: &Load) -> Result<Self> {
        let servers = &load.servers;
        let deployment = deployment(servers)?;
        let (in_flight, most) = (
            load.asks.in_flight(),
            deployment.options.options().lane.in_flight,
        );
        if servers.lanes && in_flight > most {
            let text = format!(
                "--in-flight {in_flight}: a lane takes {most}; --set options.in_flight=N lets it take more"
            );
            return Err(BadUsage(text).into());
        }
        let has_lane = |node: &ionian_deployment::Node| node.instances().contains_key(CLIENT);
        let this = deployment
            .nodes
            .iter()
            .position(has_lane)
            .filter(|_| servers.lanes);
        let is_asked = |node: &ionian_deployment::Node| servers.lanes || node.gateway.is_some();
        ensure!(
            deployment.nodes.iter().any(is_asked),
            "the deployment has no gateway: only --lanes can ask it"
        );
        let parent = servers.data.clone().unwrap_or_else(std::env::temp_dir);
        let root =
            std::path::absolute(parent.join(format!("ionian-bench-{}", std::process::id())))?;
        let cluster = Cluster::new(&program(None)?, &root, deployment)?;
        // From here on the directory is removed whatever happens.
        let mut own = Own {
            cluster,
            this,
            root,
            failed: false,
        };
        for node in (0..own.cluster.len()).filter(|node| Some(*node) != this) {
            own.cluster.start(node)?;
        }
        Ok(own)
    }

    /// Where clients are served, by the nodes that are processes of their own.
    pub(crate) fn gateways(&self) -> Result<Vec<Place>> {
        let nodes = self.cluster.deployment().nodes.iter().enumerate();
        let others = nodes.filter(|(place, _)| Some(*place) != self.this);
        let gateways = others.filter_map(|(_, node)| node.gateway.as_deref());
        gateways
            .map(|text| Ok(ionian_runtime::resolve(text)?.into()))
            .collect()
    }

    /// Waits until every gateway takes writes.
    pub(crate) fn wait_until_served(&mut self, shared: &Shared) -> Result<()> {
        for gateway in self.gateways()? {
            wait_until_served(&gateway, PATIENCE, || {
                shared.check()?;
                self.check()
            })?;
        }
        Ok(())
    }

    /// Makes sure that no node has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let checked = self.cluster.check_all();
        self.failed |= checked.is_err();
        checked
    }

    /// Whether the cluster's directory is in memory, where a sync costs nothing.
    pub(crate) fn is_in_memory(&self) -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        is_in_memory(&mounts, &self.root)
    }

    /// Whose processor time is counted.
    pub(crate) fn accounts(&self) -> Result<Vec<Account>> {
        let account = |node| {
            let name = self.cluster.name(node);
            match self.this == Some(node) {
                true => Ok(Account {
                    name: format!("{name}, with client"),
                    process: std::process::id(),
                }),
                false => Ok(Account {
                    name: name.to_owned(),
                    process: self.cluster.process(node)?,
                }),
            }
        };
        (0..self.cluster.len()).map(account).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // What cannot be removed stays visible there.
        if self.cluster.kill_all().is_ok() && !self.failed {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Whether the file system of `path` is in memory, by the system's table: device, directory, type,
/// and more.
fn is_in_memory(mounts: &str, path: &Path) -> bool {
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').skip(1).take(2).collect::<Vec<_>>());
    let holding = fields.filter(|fields| fields.len() == 2 && path.starts_with(fields[0]));
    // Of several at the same place, the last hides the others.
    holding
        .max_by_key(|fields| fields[0].len())
        .is_some_and(|fields| ["tmpfs", "ramfs"].contains(&fields[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_nearest_to_a_directory_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk ext4 rw 0 0\nshm /tmpx tmpfs rw 0 0\n";
        for (path, in_memory) in [
            ("/tmp/a", true),
            ("/tmp/disk/a", false),
            ("/var/a", false),
            ("/tmpx/a", true),
        ] {
            assert_eq!(is_in_memory(mounts, Path::new(path)), in_memory, "{path}");
        }
        assert!(!is_in_memory("", Path::new("/")));
    }
}
