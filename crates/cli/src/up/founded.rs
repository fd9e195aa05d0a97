//! The file `founded`: the nodes whose directories were made here. `up` writes it before it starts
//! them, and after their directories are durable. So a directory that it names and that is not
//! there was lost, and not only never made: an `up` that was killed may have made none.
//!
//! `up` writes [`MADE`] to the first file of such a directory. A node that has lost its directory
//! makes the file anew without it, and the directory stays lost until the node takes part.

use crate::data_paths::DataPaths;
use crate::durable::{self, sync_names};
use anyhow::{Context, Result, bail};
use ionian_deployment::Node;
use ionian_runtime::has_taken_part;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// At the top of the file.
const ABOUT: &str = "# The nodes whose directories `ionian up` has made. It starts no new cluster in their place.\n";

/// What a node has in its directory first, and then permanently.
const FIRST: &str = "lock";

/// What `up` writes to that file.
const MADE: &str = "made by ionian up\n";

/// Checks that most of these nodes still have their directories. A smaller number that has lost
/// them is recognised by the others, which are a majority: the cluster admits a new directory only
/// if a majority of the other nodes does.
///
/// # Errors
/// If most are lost, so that the nodes would found another cluster over what is left.
pub(crate) fn check(places: &DataPaths, nodes: &[Node]) -> Result<()> {
    let (made, is_there): (_, fn(&Path) -> bool) = match read(places)? {
        Some(made) => (made, was_made_here),
        // Written by an earlier program, or `up` was killed before it had started a node.
        None => (have_run(places, nodes), is_of_a_node),
    };
    let is_lost = |node: &&Node| made.contains(&node.name) && !is_there(&places.node(&node.name));
    let lost: Vec<&Node> = nodes.iter().filter(is_lost).collect();
    if lost.len() * 2 <= nodes.len() {
        return Ok(());
    }
    let lost: Vec<_> = lost.iter().map(|node| node.name.as_str()).collect();
    bail!(
        "{root} holds a cluster, and the directories of its nodes are missing in {}: {}. Without them a new and empty \
         cluster would begin. Put them back (is a disk not mounted?), use another directory with --data DIR and restore \
         a backup (docs/backup.md), or delete {root} to start a new cluster",
        places.nodes().display(),
        lost.join(", "),
        root = places.root().display(),
    )
}

/// Makes the directories of these nodes, and then the record of it. On return both are durable. A
/// node that has lost its directory makes it itself: if it cannot, the others do without it.
///
/// # Errors
/// If the system refuses.
pub(crate) fn make(places: &DataPaths, nodes: &[Node]) -> Result<()> {
    let mut made = read(places)?.unwrap_or_default();
    let new = nodes.iter().map(|node| node.name.clone());
    let new: Vec<String> = new.filter(|name| !made.contains(name)).collect();
    if new.is_empty() {
        return Ok(());
    }
    for name in new {
        let node = places.node(&name);
        make_one(&node).with_context(|| format!("cannot create {}", node.display()))?;
        made.insert(name);
    }
    for directory in [&places.nodes(), places.root()] {
        sync_names(directory).with_context(|| format!("cannot sync {}", directory.display()))?;
    }
    let text = made.iter().map(|name| format!("{name}\n"));
    let text: String = [ABOUT.to_owned()].into_iter().chain(text).collect();
    durable::write(&places.founded(), &text, 0o644)
}

fn make_one(node: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(node)?;
    let mut lock = File::options();
    let mut lock = lock.create(true).append(true).open(node.join(FIRST))?;
    // It may be half written.
    lock.set_len(0)?;
    lock.write_all(MADE.as_bytes())?;
    lock.sync_all()?;
    sync_names(node)
}

/// Whether a directory is that of a node. A disk that is not mounted leaves an empty one.
fn is_of_a_node(node: &Path) -> bool {
    [FIRST, "identity"]
        .iter()
        .any(|file| node.join(file).exists())
}

/// Whether `up` has made a directory, or its node has taken part.
fn was_made_here(node: &Path) -> bool {
    let is_made = fs::read_to_string(node.join(FIRST)).is_ok_and(|text| text == MADE);
    is_made || has_taken_part(node)
}

/// The names in the file, if there is one.
fn read(places: &DataPaths) -> Result<Option<BTreeSet<String>>> {
    let path = places.founded();
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let names = text.lines().filter(|line| !line.starts_with('#'));
    Ok(Some(names.map(str::to_owned).collect()))
}

/// The nodes of an existing cluster whose logs have lines.
fn have_run(places: &DataPaths, nodes: &[Node]) -> BTreeSet<String> {
    let is_begun = |path: &Path| path.metadata().is_ok_and(|it| it.len() > 0);
    let names = nodes.iter().map(|node| node.name.clone());
    names
        .filter(|name| places.deployment().exists() && is_begun(&places.log(name)))
        .collect()
}
