//! Judges whether a cluster serves, and how many more of its nodes may fail, from the statuses of
//! all nodes together. What one node reports about itself is not enough.

use super::cluster::{Answer, ClusterStatus, instances};
use super::links::Links;
use super::lost::lost_slots;
use super::needs::{Need, Present, needs, tolerance};
use super::presumed::presume;
use super::probe::Probes;
use super::problems;
use super::trouble::{Id, Trouble};
use crate::protocols::{ServiceNeeds, members};
use ionian_deployment::{CLIENT, Configuration};
use ionian_kernel::id::Epoch;
use ionian_runtime::status::{LeadsStatus, RoleStatus};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The overall verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The cluster serves, nothing is missing, and f nodes may fail.
    Healthy,
    /// The cluster serves, but something needs attention.
    Degraded,
    /// The cluster does not serve clients.
    NotServing,
    /// No node has shown its status, and some have refused to.
    Unknown,
}

impl Verdict {
    /// The exit code of `ionian status`.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Healthy => 0,
            Verdict::NotServing => 1,
            Verdict::Degraded => 3,
            Verdict::Unknown => 4,
        }
    }
}

/// The health of a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) health: Verdict,
    /// How many more nodes may fail, whichever they are, before something is no longer served;
    /// `None` if something is not served already.
    pub(crate) failure_tolerance: Option<usize>,
    /// The same by role: how many of the nodes with this role may fail.
    pub(crate) tolerance_by_role: BTreeMap<&'static str, usize>,
    /// The node that leads, if the log has one leader and a node leads.
    pub(crate) leader: Option<String>,
    /// How many parts the log has, each with its own leader; 0 if the protocol has no leader.
    #[serde(skip)]
    pub(crate) parts: usize,
    /// What is not served, and why.
    pub(crate) not_served: Vec<Trouble>,
    /// What needs attention.
    pub(crate) troubles: Vec<Trouble>,
    /// How long a command took to pass the log, by the node that submitted it; only with `--probe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probe_ms: Option<BTreeMap<String, u64>>,
}

impl Health {
    /// What can be said where no node has shown its status: nothing, if one has refused to, as
    /// nodes with TLS do if the command has no certificate.
    pub(super) fn or_unknown(mut self, answers: &ClusterStatus) -> Self {
        let mut nodes = answers.nodes.iter();
        if answers.nodes_up == 0 && nodes.any(|node| node.refused) {
            self.health = Verdict::Unknown;
            self.not_served.clear();
        }
        self
    }
}

/// Judges the answers of all nodes.
pub(crate) fn judge(
    known: &Configuration,
    answers: &ClusterStatus,
    probes: Option<&Probes>,
) -> Health {
    let cluster = &presume(known, answers);
    let present = Present::of(cluster);
    let service_needs = match ServiceNeeds::of(known, epoch_led(known, cluster)) {
        Ok(service_needs) => service_needs,
        Err(error) => return unknown(error),
    };
    let needs = needs(&service_needs);
    let answer = cluster.nodes.iter().any(|node| node.status.is_some());
    let mut not_served: Vec<Trouble> = match answer {
        false => vec![Id::NoAnswer.with("no node answers")],
        true => needs
            .iter()
            .filter_map(|need| need.lost(present.all(), None))
            .map(|lost| Id::NoQuorum.with(lost))
            .collect(),
    };
    if let Some(lost) = lost_slots(cluster, &service_needs) {
        not_served.insert(0, lost);
    }
    let mut troubles = problems::troubles(known, answers, &service_needs);
    let missing = Links::of(answers).troubles();
    troubles.extend(missing.into_iter().map(|text| Id::NotConnected.with(text)));
    if not_served.is_empty() {
        match led_from(cluster, &service_needs, &needs, &present) {
            Ok(leading) => troubles.extend(cut_off(&present, &leading)),
            Err(why) => match may_lead(cluster, &service_needs) {
                Some(unknown) => troubles.push(unknown),
                None => not_served.push(why),
            },
        }
    }
    for (loss, is_vital) in problems::losses(cluster, &service_needs) {
        let list = if is_vital {
            &mut not_served
        } else {
            &mut troubles
        };
        list.push(Id::MemoryLost.with(loss));
    }
    let (all, unanswered) = problems::unanswered(cluster);
    match all && not_served.is_empty() {
        true => not_served.extend(unanswered),
        false => troubles.extend(unanswered),
    }
    let mut logs = cluster
        .nodes
        .iter()
        .filter_map(|it| Some(&it.status.as_ref()?.log))
        .peekable();
    if not_served.is_empty() && logs.peek().is_some() && logs.all(|log| log.is_full) {
        let full = "writes: the disks of all nodes that answer are full";
        not_served.push(Id::FullDisk.with(full));
    }
    let mut lanes = instances(cluster)
        .filter_map(|(_, role)| role.has_session)
        .peekable();
    if not_served.is_empty() && lanes.peek().is_some() && lanes.all(|open| !open) {
        not_served.push(Id::NoSession.with("no client has a session yet"));
    }
    let probe_ms = probes.map(|probes| {
        let failed = probes
            .iter()
            .filter_map(|(node, probe)| Some((node, probe.as_ref().err()?)));
        let failed = failed.map(|(node, why)| {
            let text = format!("a command of node {node} did not pass the log: {why}");
            Id::ProbeFailed.with(text)
        });
        let done: BTreeMap<String, u64> = probes
            .iter()
            .filter_map(|(node, probe)| Some((node.clone(), *probe.as_ref().ok()?)))
            .collect();
        if done.is_empty() && !probes.is_empty() && not_served.is_empty() {
            not_served.push(Id::ProbeFailed.with("no command passes the log"));
        }
        troubles.extend(failed);
        done
    });
    let (failure_tolerance, tolerance_by_role) = match not_served.is_empty() {
        false => (None, BTreeMap::new()),
        true => tolerance(&service_needs, &present, cluster),
    };
    let is_less = failure_tolerance.is_some_and(|tolerance| tolerance < cluster.f);
    if is_less {
        troubles.push(Id::ToleranceLow.with(match failure_tolerance {
            Some(0) | None => no_further(&tolerance_by_role),
            Some(tolerance) => format!(
                "{tolerance} more may fail; the deployment is meant to tolerate {}",
                cluster.f
            ),
        }));
    }
    let health = match (not_served.is_empty(), troubles.is_empty()) {
        (false, _) => Verdict::NotServing,
        (true, false) => Verdict::Degraded,
        (true, true) => Verdict::Healthy,
    };
    Health {
        health,
        failure_tolerance,
        tolerance_by_role,
        leader: the_leader(cluster, service_needs.service.parts.len()),
        parts: service_needs.service.parts.len(),
        not_served,
        troubles,
        probe_ms,
    }
}

/// The node that leads in the latest round, if the log has one part.
fn the_leader(cluster: &ClusterStatus, parts: usize) -> Option<String> {
    let leading = instances(cluster).filter(|(_, role)| role.leads.is_some_and(|leads| leads.own));
    let latest = leading.max_by_key(|(_, role)| role.ballot());
    latest
        .filter(|_| parts == 1)
        .map(|(node, _)| node.name.clone())
}

/// No further node may fail: one with some roles, if their numbers are why.
pub(super) fn no_further(tolerance_by_role: &BTreeMap<&'static str, usize>) -> String {
    let none_more = tolerance_by_role.iter().filter(|(_, more)| **more == 0);
    let roles: Vec<&str> = none_more.map(|(role, _)| *role).collect();
    match (roles.len(), tolerance_by_role.len()) {
        (none, all) if none == 0 || none == all => "no further node may fail".to_owned(),
        _ => format!("no further node with {} may fail", roles.join(" or ")),
    }
}

/// The health of a cluster whose protocol rejects its configuration.
fn unknown(error: anyhow::Error) -> Health {
    Health {
        health: Verdict::NotServing,
        failure_tolerance: None,
        tolerance_by_role: BTreeMap::new(),
        leader: None,
        parts: 0,
        not_served: vec![Id::InvalidConfiguration.with(format!("{error:#}"))],
        troubles: Vec::new(),
        probe_ms: None,
    }
}

/// The epoch of the latest round in which a node reports that it leads. If no node does, the epoch
/// of the oldest quorums that can still be in use.
fn epoch_led(known: &Configuration, cluster: &ClusterStatus) -> Epoch {
    let leading = instances(cluster).filter(|(_, role)| role.leads.is_some_and(|leads| leads.own));
    let latest = leading.filter_map(|(_, role)| role.ballot()).max();
    let epoch = latest.map(|(epoch, _)| Epoch(epoch));
    epoch
        .unwrap_or(known.membership.since)
        .clamp(known.membership.since, known.epoch())
}

/// The nodes of the leaders. As an error: what is not served, because no node leads, or because the
/// leaders are not connected to what they need, or not followed. What counts is what a write quorum
/// of acceptors has promised, not what a leader reports about itself.
fn led_from<'a>(
    cluster: &'a ClusterStatus,
    service_needs: &ServiceNeeds,
    needs: &[Need<'_>],
    present: &Present<'_>,
) -> Result<Vec<&'a str>, Trouble> {
    let parts = service_needs.service.parts.len() as u64;
    let hubs = instances(cluster).filter(|(_, role)| role.role == service_needs.hub());
    // If the protocol has no elections, the hub always leads.
    let leads = |role: &RoleStatus| match parts {
        0 => 1,
        _ => role.leads.map_or(0, LeadsStatus::parts),
    };
    let leading: Vec<_> = hubs.filter(|(_, role)| leads(role) > 0).collect();
    let is_led = |led: u64| if parts > 1 { led >= parts } else { led > 0 };
    let parts_led = |leading: &[(&Answer, &RoleStatus)]| {
        leading.iter().map(|(_, role)| leads(role)).sum::<u64>()
    };
    let led = parts_led(&leading);
    if !is_led(led) {
        return Err(Id::NoLeader.with(match parts {
            2.. => format!(
                "writes: {} of {parts} parts of the log have no leader now",
                parts - led
            ),
            _ => "writes: there is no leader now".to_owned(),
        }));
    }
    let lost_at = |node: &str| {
        needs
            .iter()
            .find_map(|need| need.lost(present.near(node), Some(node)))
    };
    let (near, cut): (Vec<_>, Vec<_>) = leading
        .into_iter()
        .partition(|(node, _)| lost_at(&node.name).is_none());
    if !is_led(parts_led(&near)) {
        let lost = cut.iter().find_map(|(node, _)| lost_at(&node.name));
        let lost = lost.expect("fewer instances lead, so some are cut off");
        return Err(Id::LeaderCutOff.with(lost));
    }
    let followed: Vec<_> = near
        .into_iter()
        .filter(|(node, role)| {
            parts != 1 || is_followed(cluster, service_needs, present, node, role)
        })
        .collect();
    if followed.is_empty() {
        return Err(Id::LeaderCutOff
            .with("writes: no write quorum of acceptors follows the node that claims to lead"));
    }
    Ok(followed
        .into_iter()
        .map(|(node, _)| node.name.as_str())
        .collect())
}

/// Which nodes may lead where none that answers does.
fn may_lead(cluster: &ClusterStatus, service_needs: &ServiceNeeds) -> Option<Trouble> {
    let hubs = instances(cluster)
        .filter(|(node, role)| node.is_presumed() && role.role == service_needs.hub());
    let names: BTreeSet<&str> = hubs.map(|(node, _)| node.name.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" or ");
    let text = format!("no node that answers leads; whether {names} does is not known");
    (!names.is_empty()).then(|| Id::LeaderUnknown.with(text))
}

/// Whether a write quorum of the voters that the leader is connected to have promised no round
/// above the leader's.
fn is_followed(
    cluster: &ClusterStatus,
    service_needs: &ServiceNeeds,
    present: &Present<'_>,
    node: &Answer,
    leader: &RoleStatus,
) -> bool {
    let Some(voters) = &service_needs.service.voters else {
        return true;
    };
    let Some(led) = leader.ballot() else {
        return false;
    };
    let follows = instances(cluster).filter(|(other, role)| {
        role.role == service_needs.name(voters.write.kind)
            && role.remembers != Some(false)
            && present.links().connect(&node.name, &other.name)
            && (other.is_presumed() || role.ballot().is_some_and(|promise| promise <= led))
    });
    voters
        .write
        .is_met(members(follows.map(|(_, role)| role.index)))
}

/// The nodes that accept clients but have no connection to a leader.
fn cut_off(present: &Present<'_>, leading: &[&str]) -> Vec<Trouble> {
    let takes = present.nodes(Some(CLIENT));
    let cut = takes.iter().filter(|node| {
        !leading
            .iter()
            .any(|leader| present.links().connect(node, leader))
    });
    cut.map(|node| {
        Id::CutOff.with(format!(
            "clients of {node} may not be served: it has no connection to {}, which leads",
            leading.join(", ")
        ))
    })
    .collect()
}
