//! The data directory: who uses it, which deployment it holds, and which node directories start
//! empty.

use super::arguments::{self, Arguments};
use crate::data_paths::DataPaths;
use crate::durable;
use crate::output::say_on_stderr;
use crate::protocols;
use crate::source;
use anyhow::{Context, Result, bail};
use ionian_deployment::{DEFAULT_PRESET, Deployment, Node, PresetOptions};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nodes stop at once when their `up` was killed; this leaves time to write their last lines.
const EARLIER_NODES_LIMIT: Duration = Duration::from_secs(5);

/// A data directory that is locked against other `ionian up` processes while this exists.
pub(crate) struct LockedDirectory {
    places: DataPaths,
    _lock: Flock<File>,
}

impl LockedDirectory {
    pub(crate) fn places(&self) -> &DataPaths {
        &self.places
    }
}

/// Creates the directory if needed and locks it for this process.
pub(crate) fn claim(places: &DataPaths) -> Result<LockedDirectory> {
    for directory in [places.run(), places.logs()] {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let path = places.lock();
    let context = || format!("cannot open {}", path.display());
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(context)?;
    let mut owner = String::new();
    file.read_to_string(&mut owner).with_context(context)?;
    let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((_, Errno::EWOULDBLOCK)) => bail!(
            "another `ionian up` (process {1}) runs in {0}: stop it, or use another directory with --data DIR",
            places.root().display(),
            owner.trim()
        ),
        Err((_, errno)) => bail!("cannot lock {}: {errno}", path.display()),
    };
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut lock).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(LockedDirectory {
        places: places.clone(),
        _lock: lock,
    })
}

/// The deployment to run: that of the flags, that of the directory, or both if they agree.
///
/// `file` is the content of the file that the flags name.
pub(crate) fn deployment(
    places: &DataPaths,
    arguments: &Arguments,
    file: Option<Deployment>,
) -> Result<Deployment> {
    let earlier = source::in_directory(places.root())?;
    let has_preset = arguments.preset.is_some() || arguments.nodes.is_some();
    let chosen = file.is_some() || has_preset;
    let base = match (file, &earlier) {
        (Some(file), _) => file,
        (None, Some(earlier)) if !chosen => with_node_port(earlier.clone(), arguments.node_port)?,
        _ => {
            let preset = arguments.preset.as_deref().unwrap_or(DEFAULT_PRESET);
            let options = PresetOptions {
                nodes: arguments.nodes.map(usize::from),
                ..source::preset_options(arguments.listen, arguments.node_port)
            };
            Deployment::preset(preset, &options)?
        }
    };
    let durability = arguments.durability.map(|durability| {
        format!(
            "durability={}",
            match durability {
                arguments::Durability::Disk => "disk",
                arguments::Durability::Memory => "memory",
            }
        )
    });
    let overrides: Vec<&String> = durability.iter().chain(&arguments.overrides).collect();
    let mut wanted = base.with_overrides(&overrides)?;
    if let Some(listen) = arguments.listen {
        wanted = source::move_gateways(wanted, listen)?;
    }
    let Some(earlier) = earlier else {
        return Ok(wanted);
    };
    let tuned = options_alone(&earlier, &wanted);
    if !tuned.is_empty() {
        let root = places.root().display();
        let how = match protocols::fixed_options(&earlier.protocol)? {
            None => format!(
                "To change the options of an existing cluster, start it without them, then run: ionian options set {} \
                 --data {root}",
                tuned.join(" "),
            ),
            Some(reason) => format!("Start it without them: {reason} (docs/backup.md)"),
        };
        bail!(
            "{root} holds a cluster with other options ({}). {how}",
            differences(&earlier, &wanted).join("; "),
        );
    }
    if wanted.digest() != earlier.digest() {
        bail!(
            "{} holds another deployment: {}. Use another directory with --data DIR, omit the flags that differ, or \
             delete {} to start a new cluster",
            places.root().display(),
            differences(&earlier, &wanted).join("; "),
            places.root().display(),
        );
    }
    if has_preset {
        // A preset does not set addresses: without flags they stay as they were.
        keep_addresses(&mut wanted, &earlier, arguments);
    }
    for change in differences(&earlier, &wanted) {
        say_on_stderr!("changed since the last run: {change}");
    }
    wanted.check()?;
    Ok(wanted)
}

/// The changed options, if nothing but shared options has changed.
fn options_alone(earlier: &Deployment, wanted: &Deployment) -> Vec<String> {
    let others = earlier.settings().filter(|setting| setting.shared);
    let others =
        others.filter(|setting| earlier.options.value(setting) != wanted.options.value(setting));
    let others: Vec<String> = others
        .map(|setting| format!("{}={}", setting.key, wanted.options.value(setting)))
        .collect();
    let with_options = Deployment {
        options: wanted.options.clone(),
        ..earlier.clone()
    };
    match with_options.digest() == wanted.digest() {
        true => others,
        false => Vec::new(),
    }
}

/// Changes the addresses of the nodes to consecutive ports.
fn with_node_port(deployment: Deployment, first: Option<u16>) -> Result<Deployment> {
    let Some(first) = first else {
        return Ok(deployment);
    };
    let moves: Vec<String> = (u32::from(first)..)
        .zip(&deployment.nodes)
        .filter_map(|(port, node)| {
            let (host, _) = node.address.rsplit_once(':')?;
            Some(format!("node.{}.address={host}:{port}", node.name))
        })
        .collect();
    Ok(deployment.with_overrides(&moves)?)
}

/// Whether the address of a node changes.
pub(crate) fn moves(earlier: &Deployment, wanted: &Deployment) -> bool {
    let places = |deployment: &Deployment| -> Vec<_> {
        deployment
            .nodes
            .iter()
            .map(|node| (node.address.clone(), node.gateway.clone()))
            .collect()
    };
    places(earlier) != places(wanted)
}

fn keep_addresses(wanted: &mut Deployment, earlier: &Deployment, arguments: &Arguments) {
    let set = |key: String| {
        arguments
            .overrides
            .iter()
            .any(|text| text.trim_start().starts_with(&key))
    };
    for (node, before) in wanted.nodes.iter_mut().zip(&earlier.nodes) {
        if arguments.node_port.is_none() && !set(format!("node.{}.address=", node.name)) {
            node.address.clone_from(&before.address);
        }
        if arguments.listen.is_none() && !set(format!("node.{}.gateway=", node.name)) {
            node.gateway.clone_from(&before.gateway);
        }
    }
}

/// The differences, each as `key was x, is to be y`.
fn differences(earlier: &Deployment, wanted: &Deployment) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |key: &str, before: String, after: String| {
        if before != after {
            found.push(format!("{key} was {before}, is to be {after}"));
        }
    };
    compare("cluster", earlier.cluster.clone(), wanted.cluster.clone());
    compare(
        "protocol",
        earlier.protocol.clone(),
        wanted.protocol.clone(),
    );
    compare("machine", earlier.machine.clone(), wanted.machine.clone());
    compare("f", earlier.f.to_string(), wanted.f.to_string());
    compare(
        "quorums",
        format!("{:?}", earlier.quorums),
        format!("{:?}", wanted.quorums),
    );
    compare(
        "durability",
        earlier.durability.name().into(),
        wanted.durability.name().into(),
    );
    for setting in wanted.settings() {
        let value = |deployment: &Deployment| deployment.options.value(setting).to_string();
        compare(
            &format!("options.{}", setting.key),
            value(earlier),
            value(wanted),
        );
    }
    let names = |deployment: &Deployment| {
        let names: Vec<_> = deployment
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        format!("{} ({})", names.len(), names.join(", "))
    };
    if names(earlier) != names(wanted) {
        compare("the list of nodes", names(earlier), names(wanted));
        return found;
    }
    for (before, after) in earlier.nodes.iter().zip(&wanted.nodes) {
        let key = |what| format!("node.{}.{what}", after.name);
        let gateway = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        compare(
            &key("address"),
            before.address.clone(),
            after.address.clone(),
        );
        compare(
            &key("gateway"),
            gateway(&before.gateway),
            gateway(&after.gateway),
        );
        compare(
            &key("roles"),
            format!("{:?}", before.instances()),
            format!("{:?}", after.instances()),
        );
    }
    found
}

/// Waits until the nodes of an `up` that was killed have stopped.
pub(crate) fn wait_for_earlier_nodes(claimed: &LockedDirectory, nodes: &[Node]) -> Result<()> {
    let deadline = Instant::now() + EARLIER_NODES_LIMIT;
    for node in nodes {
        let path = claimed.places.node(&node.name).join("lock");
        while is_locked(&path)? {
            if Instant::now() >= deadline {
                let pid = fs::read_to_string(claimed.places.pid(&node.name)).unwrap_or_default();
                let pid = if pid.is_empty() {
                    String::new()
                } else {
                    format!(" (process {})", pid.trim())
                };
                bail!(
                    "node {}{pid} runs in {} without an `ionian up`: stop it first",
                    node.name,
                    claimed.places.root().display()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // An `up` that was killed may have left this file.
        let _ = fs::remove_file(claimed.places.pid(&node.name));
    }
    Ok(())
}

fn is_locked(path: &Path) -> Result<bool> {
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, errno)) => bail!("cannot lock {}: {errno}", path.display()),
    }
}

/// Comment at the top of the deployment file if the deployment in force is another one.
const CHANGED: &str = "\
# The cluster was founded with this deployment, which identifies it permanently. Its membership has changed
# since: the deployment in force is in nodes/NAME/membership.toml of each node, and `ionian member list --toml` prints it.

";

/// The files of a node with durability "memory".
const MARKS: [&str; 7] = [
    "lock",
    "identity",
    "identity.new",
    "vital",
    "membership.toml",
    "membership.new",
    "executing",
];

/// Deletes the past of a memory cluster. Then every node is new, and no acceptor waits for the
/// others to recover what it has forgotten. Only for a start of *all* nodes. Returns whether there
/// was a past.
///
/// # Errors
/// If a node's directory contains other files than those of a memory node, which `up` must not
/// delete.
pub(crate) fn delete_memory_nodes(claimed: &LockedDirectory) -> Result<bool> {
    let mut earlier = false;
    for path in claimed.places.node_directories()? {
        let context = || format!("cannot empty {}", path.display());
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries
                .collect::<Result<Vec<_>, _>>()
                .with_context(context)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(context),
        };
        if let Some(other) = entries
            .iter()
            .find(|entry| !MARKS.iter().any(|mark| entry.file_name() == *mark))
        {
            bail!(
                "{} does not belong to a cluster with durability \"memory\" and may hold data. Use another directory with \
                 --data DIR",
                other.path().display()
            );
        }
        fs::remove_dir_all(&path).with_context(context)?;
        earlier = true;
    }
    Ok(earlier)
}

/// Writes the founding deployment of the cluster.
pub(crate) fn write(
    claimed: &LockedDirectory,
    deployment: &Deployment,
    has_changed: bool,
) -> Result<()> {
    let about = if has_changed { CHANGED } else { "" };
    let text = format!("{about}{}", deployment.to_toml());
    let path = claimed.places.deployment();
    // A full disk does not keep a cluster from its start.
    match fs::read_to_string(&path).is_ok_and(|known| known == text) {
        true => Ok(()),
        false => durable::write(&path, &text, 0o644),
    }
}
