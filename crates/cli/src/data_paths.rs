//! The paths in a data directory.

use anyhow::{Context, Result};
use ionian_kernel::id::Epoch;
use ionian_program::BadUsage;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The data directory of `ionian up` and of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct DataPaths {
    root: PathBuf,
}

impl DataPaths {
    pub(crate) fn new(root: &Path) -> Self {
        DataPaths {
            root: root.to_owned(),
        }
    }

    /// The data directory in which nodes are to run.
    ///
    /// # Errors
    /// If it belongs to one node: another one would have its directory inside.
    pub(crate) fn for_nodes(root: &Path) -> Result<Self, BadUsage> {
        if !root.join("identity").exists() {
            return Ok(Self::new(root));
        }
        let path = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let above = path.ancestors().nth(2).unwrap_or(&path);
        Err(BadUsage(format!(
            "--data {}: this is the directory of node {name} alone; name the data directory that has it as nodes/{name}, \
             {}",
            root.display(),
            above.display()
        )))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The deployment that runs in this directory.
    pub(crate) fn deployment(&self) -> PathBuf {
        self.root.join("deployment.toml")
    }

    /// Which nodes had a directory here.
    pub(crate) fn founded(&self) -> PathBuf {
        self.root.join("founded")
    }

    /// The directory of process id files.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub(crate) fn pid(&self, node: &str) -> PathBuf {
        self.run().join(format!("{node}.pid"))
    }

    /// How the last process of a node has ended, while no other runs.
    pub(crate) fn ended(&self, node: &str) -> PathBuf {
        self.run().join(format!("{node}.ended"))
    }

    /// `ionian up` locks this file while it runs, and writes its process id to it. No node can have
    /// this name, because names contain no dots.
    pub(crate) fn lock(&self) -> PathBuf {
        self.run().join("ionian.up.lock")
    }

    /// The certificates that `ionian up --tls` makes.
    pub(crate) fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn log(&self, node: &str) -> PathBuf {
        self.logs().join(format!("{node}.log"))
    }

    /// The directory with one directory per node.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// The data directory of one node.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.nodes().join(node)
    }

    /// Where the data directory of a node that left is kept when a new node has its name. No node
    /// can have this name, because names contain no dots.
    pub(crate) fn left(&self, node: &str, epoch: Epoch) -> PathBuf {
        self.nodes().join(format!("{node}.left-{}", epoch.0))
    }

    /// The data directories of all nodes that have ever run here.
    pub(crate) fn node_directories(&self) -> Result<Vec<PathBuf>> {
        let path = self.nodes();
        let context = || format!("cannot list {}", path.display());
        match fs::read_dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries
                .with_context(context)?
                .map(|entry| Ok(entry.with_context(context)?.path()))
                .collect(),
        }
    }
}

/// The directories of the nodes in `data`, or `data` itself if it belongs to one node. Those that
/// are kept of nodes that have left are not of the cluster any more.
pub(crate) fn directories_of_nodes(data: &Path) -> Result<Vec<PathBuf>> {
    let mut nodes = DataPaths::new(data).node_directories()?;
    nodes.retain(|path| path.extension().is_none());
    nodes.sort_unstable();
    Ok(if nodes.is_empty() {
        vec![data.to_owned()]
    } else {
        nodes
    })
}
