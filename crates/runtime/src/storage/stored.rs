//! The file `stored`: of which roles this node has stored snapshots. A role whose snapshots are
//! gone would begin with an empty state, though others count on what it has stored.

use super::directory::sync;
use super::error::{LogError, io_error};
use super::sealed;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "stored";

/// The list, in the file and in memory.
pub(crate) struct StoredList {
    path: PathBuf,
    names: BTreeSet<String>,
}

impl StoredList {
    /// Reads the file beside the directory `snapshots`. Nodes that have stored no snapshot have
    /// none, nor have those of programs before it.
    pub(crate) fn open(snapshots: &Path) -> Result<Self, LogError> {
        let path = snapshots.with_file_name(FILE);
        let exists = fs::exists(&path).map_err(io_error("look for", &path))?;
        let names = match exists {
            true => sealed::read(&path)?,
            false => BTreeSet::new(),
        };
        Ok(StoredList { path, names })
    }

    /// Checks that there is a snapshot if one was stored.
    pub(crate) fn check(&self, name: &str, is_there: bool, at: PathBuf) -> Result<(), LogError> {
        match self.names.contains(name) && !is_there {
            true => Err(LogError::Lost {
                lost: at,
                proof: self.path.clone(),
            }),
            false => Ok(()),
        }
    }

    /// A snapshot of this role is on disk. On return the list is too.
    pub(crate) fn add(&mut self, name: String) -> Result<(), LogError> {
        if !self.names.insert(name.clone()) {
            return Ok(());
        }
        let saved = self.save();
        if saved.is_err() {
            self.names.remove(&name);
        }
        saved
    }

    /// Leaves out roles that are not on this node any more, before their snapshots are deleted.
    pub(crate) fn retain(&mut self, is_here: impl Fn(&str) -> bool) -> Result<(), LogError> {
        let before = self.names.len();
        self.names.retain(|name| is_here(name));
        match self.names.len() < before {
            true => self.save(),
            false => Ok(()),
        }
    }

    fn save(&self) -> Result<(), LogError> {
        sealed::write(&self.path, &self.names)?;
        sync(self.path.parent().expect("it is in a directory"))
    }
}
