//! `ionian log show`.

use super::arguments::Show;
use crate::data_paths::directories_of_nodes;
use crate::output::say;
use anyhow::{Context, Result, bail};
use ionian_kernel::id::Slot;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::wire::decode_all;
use ionian_protocols::multipaxos::message::Vote;
use ionian_protocols::multipaxos::{MultiPaxos, acceptor, kind};
use ionian_replication::batch::Purpose;
use ionian_runtime::storage::executing::unfinished;
use ionian_runtime::storage::machine_failure::MachineFailure;
use ionian_runtime::storage::offline::StoppedNode;
use ionian_runtime::storage::skips::{CommandName, Skips};
use std::path::Path;

/// Number of bytes of a command that are printed.
const SHOWN: usize = 200;

pub(crate) fn run(arguments: &Show) -> Result<()> {
    let directories = directories_of_nodes(&arguments.data)?;
    match arguments.slot {
        None => directories
            .iter()
            .try_for_each(|directory| show_node(directory)),
        Some(slot) => {
            let mut found = false;
            for directory in &directories {
                found |= show_slot(&StoppedNode::open(directory)?, Slot(slot))?;
            }
            if !found {
                bail!(
                    "no acceptor of {} has a vote in slot {slot}: nothing was proposed there, or snapshots cover it",
                    arguments.data.display()
                );
            }
            Ok(())
        }
    }
}

/// The commands that a node was executing when it ended, the one on which it failed last, and those
/// that it skips.
fn show_node(directory: &Path) -> Result<()> {
    let node = StoppedNode::open(directory)?;
    let failed = MachineFailure::stored(directory)?;
    let failed = failed.map_or_else(
        || "the state machine has not panicked".to_owned(),
        |failure| failure.to_string(),
    );
    for command in unfinished(directory)? {
        say!("node {}: {command}", node.name());
    }
    let skips = Skips::stored(directory)?.to_string();
    let skips = if skips.is_empty() {
        "no command"
    } else {
        &skips
    };
    say!("node {}: {failed}; skipped: {skips}", node.name());
    Ok(())
}

/// Prints the last votes of a node's acceptors in a slot; returns false if there are none.
fn show_slot(node: &StoppedNode, slot: Slot) -> Result<bool> {
    if node.protocol() != MultiPaxos::NAME {
        bail!(
            "node {} runs {}: only the log of {} can be shown",
            node.name(),
            node.protocol(),
            MultiPaxos::NAME
        );
    }
    let mut last: Option<Vote> = None;
    for record in node.records()? {
        let (author, record) = record?;
        if author.kind != kind::Acceptor {
            continue;
        }
        let record = decode_all(&record);
        match record.with_context(|| format!("a record of node {} cannot be read", node.name()))? {
            acceptor::Record::Voted { slot: of, vote } if of == slot => last = Some(vote),
            acceptor::Record::Confirmed { slot: of, round } if of == slot => {
                last = last.map(|vote| Vote { round, ..vote });
            }
            _ => {}
        }
    }
    let Some(Vote { round, value }) = last else {
        return Ok(false);
    };
    say!(
        "node {}, slot {}: voted for in {round:?}, {} commands",
        node.name(),
        slot.0,
        value.batch.len()
    );
    for command in value.batch.commands() {
        let (number, payload) = (command.number, command.payload);
        let name = match command.purpose {
            Purpose::Execute(session) => {
                CommandName::new(slot, session, number, payload).to_string()
            }
            Purpose::KeepAlive(session) => format!("keeps session {} open", session.0),
            Purpose::Open => "opens a session".to_owned(),
            Purpose::Change => "changes the membership".to_owned(),
            Purpose::Read => "reads".to_owned(),
            Purpose::Internal => "of the protocol itself".to_owned(),
        };
        let (shown, more) = match payload.get(..SHOWN) {
            Some(start) if payload.len() > SHOWN => (start, "..."),
            _ => (payload, ""),
        };
        say!(
            "{name}  {} bytes: \"{}{more}\"",
            payload.len(),
            shown.escape_ascii()
        );
    }
    Ok(true)
}
