//! What nodes report: which of them leads, and which executes.

use anyhow::{Context, Result};
use ionian_runtime::NodeStatus;
use ionian_runtime::status::RoleStatus;

/// The number of the node whose leader leads.
pub(crate) fn leader(statuses: &[NodeStatus]) -> Result<usize> {
    let round = |status: &NodeStatus| {
        let leads = |role: &&RoleStatus| role.leads.is_some_and(|leads| leads.own);
        let leaders = status.roles.iter().filter(leads);
        leaders.filter_map(RoleStatus::ballot).max()
    };
    let leading = statuses
        .iter()
        .enumerate()
        .filter_map(|(node, status)| Some((round(status)?, node)));
    leading.max().map(|(_, node)| node).context("no node leads")
}

/// The role of the node that executes commands, if it has one.
pub(crate) fn executor(status: &NodeStatus) -> Option<&RoleStatus> {
    status.roles.iter().find(|role| role.executed.is_some())
}

/// Before which slot the node has executed everything, if it executes.
pub(crate) fn executed(status: &NodeStatus) -> Option<u64> {
    executor(status)?.executed
}
