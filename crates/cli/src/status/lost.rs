//! Slots that no node has that answers: those that voted have dropped them, because replicas had
//! stored them, and no replica has them now. A snapshot was damaged or deleted, or nodes are down.

use super::cluster::{ClusterStatus, instances};
use super::trouble::{Id, Trouble};
use crate::protocols::ServiceNeeds;
use ionian_runtime::status::RoleStatus;
use std::collections::BTreeSet;

/// The slots that are missing, and what they come back with.
pub(super) fn lost_slots(cluster: &ClusterStatus, service_needs: &ServiceNeeds) -> Option<Trouble> {
    // Chain nodes hold what is ordered by no log.
    let replicas = || {
        let executors = instances(cluster).filter(|(_, it)| it.role != service_needs.hub());
        executors.filter(|(_, it)| it.current.is_some())
    };
    // One that holds what is chosen may have been asked before voters were.
    if replicas().any(|(_, it)| it.current == Some(true)) {
        return None;
    }
    let executed = replicas().filter_map(|(_, it)| it.executed).max()?;
    let dropped = |role: &RoleStatus| role.metrics.get("forgotten").copied();
    let voters = instances(cluster).filter_map(|(_, it)| Some((&it.role, dropped(it)?)));
    let (voter, dropped) = voters.max_by_key(|(_, dropped)| *dropped)?;
    let kinds: BTreeSet<&str> = replicas().map(|(_, it)| it.role.as_str()).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(" or ");
    let voters = &service_needs.service.voters;
    let which = match voters.as_ref().is_none_or(|it| it.is_log) {
        true => format!("slots {executed} to {}", dropped.saturating_sub(1)),
        false => format!("{} slots", dropped.saturating_sub(executed)),
    };
    let down = cluster.nodes.iter().filter(|node| node.status.is_none());
    let down: Vec<&str> = down.map(|node| node.name.as_str()).collect();
    let back = match down.is_empty() {
        true => String::new(),
        false => format!("{}, or with ", down.join(" or ")),
    };
    (executed < dropped).then(|| {
        Id::SlotsLost.with(format!(
            "anything, for want of {which}: each {voter} has dropped them, and no {kinds} that answers has executed \
             them. They come back with {back}a snapshot of a {kinds} that was damaged or deleted"
        ))
    })
}
