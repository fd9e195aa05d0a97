//! `ionian snapshot inspect`.

use super::file::{self, Head, Origin};
use super::stopped::{level_in, machine_in, newest};
use super::{arguments, state};
use crate::output::say;
use crate::protocols::MACHINE;
use anyhow::{Context, Result};
use bytes::Bytes;
use ionian_runtime::storage::offline::StoppedNode;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What is known of a snapshot whose checksums are right.
#[derive(Serialize)]
struct Report {
    file: PathBuf,
    file_bytes: u64,
    #[serde(flatten)]
    head: Head,
    state_bytes: u64,
    /// For the key-value store only.
    keys: Option<u64>,
    sessions: u64,
}

pub(crate) fn run(arguments: &arguments::Inspect) -> Result<()> {
    let report = inspect(&arguments.file)?;
    match arguments.json {
        true => say!("{}", serde_json::to_string_pretty(&report)?),
        false => say!("{}", text(&report)),
    }
    Ok(())
}

fn inspect(path: &Path) -> Result<Report> {
    let (file, file_bytes, head, state) = match path.is_dir() {
        true => of_node(path)?,
        false => {
            let opened = file::open(path)?;
            (opened.path, opened.bytes, opened.head, opened.state)
        }
    };
    let mut executor =
        state::restored(&state, &head.machine).with_context(|| file.display().to_string())?;
    let keys = (head.machine == MACHINE)
        .then(|| state::keys(&mut executor))
        .transpose()?;
    let sessions = executor.session_count() as u64;
    Ok(Report {
        file,
        file_bytes,
        head,
        state_bytes: state.len() as u64,
        keys,
        sessions,
    })
}

/// The newest snapshot of a stopped node, with the head that `save --stopped` would write.
fn of_node(path: &Path) -> Result<(PathBuf, u64, Head, Bytes)> {
    let node = StoppedNode::open(path)?;
    let none = || {
        format!(
            "node {} in {} has stored no snapshot yet",
            node.name(),
            path.display()
        )
    };
    let stored = newest(&node)?.with_context(none)?;
    let metadata = stored
        .path
        .metadata()
        .with_context(|| format!("cannot look at {}", stored.path.display()))?;
    let written = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = written.map_or(0, |time| time.as_secs());
    let head = Head::new(
        node.cluster(),
        node.protocol(),
        &machine_in(path)?,
        node.name(),
        Origin::Copied,
        level_in(path)?,
    );
    Ok((
        stored.path,
        metadata.len(),
        Head {
            slot: stored.stamp,
            time,
            ..head
        },
        stored.snapshot,
    ))
}

fn text(report: &Report) -> String {
    let Report {
        file,
        file_bytes,
        head,
        state_bytes,
        keys,
        sessions,
    } = report;
    let time = head.began();
    let origin = match head.origin {
        Origin::Saved => "saved from the running cluster",
        Origin::Copied => "copied from a stopped node",
        Origin::Salvaged => "salvaged from the remaining directories of the cluster",
    };
    let keys = match keys {
        Some(keys) => format!("keys       {keys}\n"),
        None => String::new(),
    };
    let complete = match head.complete {
        true => "every write acknowledged before",
        false => "possibly not every acknowledged write",
    };
    format!(
        "{}: sound\n\
         cluster    {} ({} replicating {})\n\
         origin     {origin}, node {}\n\
         time       {time}\n\
         slot       {}: every slot below is executed\n\
         holds      {complete}\n\
         {keys}\
         sessions   {sessions}\n\
         size       {file_bytes} bytes, the state {state_bytes}\n\
         format     {}.{}",
        file.display(),
        head.cluster,
        head.protocol,
        head.machine,
        head.node,
        head.slot,
        head.format,
        head.wire_version,
    )
}
