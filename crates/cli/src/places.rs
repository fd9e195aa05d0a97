//! What lies where in a data directory.

use std::path::{Path, PathBuf};

/// The data directory of `ionian up` and of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    root: PathBuf,
}

impl Places {
    pub(crate) fn new(root: &Path) -> Self {
        Places { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The deployment that runs here.
    pub(crate) fn deployment(&self) -> PathBuf {
        self.root.join("deployment.toml")
    }

    /// Where process ids are.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub(crate) fn pid(&self, node: &str) -> PathBuf {
        self.run().join(format!("{node}.pid"))
    }

    /// Locked as long as an `ionian up` runs here, and holds its process id. No node can be called
    /// this: names have no dots.
    pub(crate) fn lock(&self) -> PathBuf {
        self.run().join("ionian.up.lock")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn log(&self, node: &str) -> PathBuf {
        self.logs().join(format!("{node}.log"))
    }

    /// Where the nodes' own directories are.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// What a node must find again.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.nodes().join(node)
    }
}
