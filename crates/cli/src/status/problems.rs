//! What needs attention, in words.

use super::cluster::{Answer, ClusterStatus, instances, lags};
use super::presumed::connected_to;
use super::trouble::{Id, Trouble};
use crate::protocols::{ServiceNeeds, members};
use ionian_deployment::{Configuration, Durability};
use ionian_kernel::layout::NodeId;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::{DrainStatus, LogStatus, RoleStatus, RoomStatus};
use ionian_tls::{date, now};
use std::collections::BTreeMap;
use std::time::Duration;

/// For how many hours nodes may run different programs: a rolling upgrade is no trouble.
const MIXED_HOURS: u64 = 2;

/// What the cluster has lost permanently because too many instances have lost their memory, and
/// whether it is unable to serve without it.
pub(super) fn losses(
    cluster: &ClusterStatus,
    service_needs: &ServiceNeeds,
) -> Vec<(&'static str, bool)> {
    let roles: Vec<&RoleStatus> = instances(cluster).map(|(_, role)| role).collect();
    losses_of(service_needs, &roles)
}

fn losses_of(service_needs: &ServiceNeeds, roles: &[&RoleStatus]) -> Vec<(&'static str, bool)> {
    let forgot = |kind| {
        let name = service_needs.name(kind);
        let forgot = roles
            .iter()
            .filter(|role| role.role == name && role.remembers == Some(false));
        members(forgot.map(|role| role.index))
    };
    let memories = service_needs.service.memories.iter();
    memories
        .filter(|memory| {
            !memory
                .by
                .is_met(memory.by.of.without(forgot(memory.by.kind)))
        })
        .map(|memory| (memory.lost, memory.is_vital))
        .collect()
}

/// What an instance without memory waits for.
fn forgot(
    node: &str,
    role: &RoleStatus,
    (service_needs, durability): (&ServiceNeeds, Durability),
) -> String {
    // What is on disk is not lost: a new member has not got it yet.
    let what = match durability {
        Durability::Disk => "does not hold yet what was acknowledged",
        Durability::Memory => "lost its memory when its process ended",
    };
    let mut memories = service_needs.service.memories.iter();
    let memory = memories.find(|memory| service_needs.name(memory.by.kind) == role.role);
    let waits = memory.map_or("", |memory| memory.waits);
    let text = format!("{} {} on {node} {what}. {waits}", role.role, role.index);
    text.trim_end().to_owned()
}

/// The effect of a drain.
fn drained(node: &str, left: DrainStatus) -> String {
    let ends = format!("until it restarts or `ionian drain {node} --undo` ends the drain");
    match left.is_done() {
        true => format!("node {node} is drained: it accepts no clients and does not lead {ends}"),
        false => {
            format!("node {node} is draining: it accepts no clients {ends}, and still has {left}")
        }
    }
}

/// What comparing the states of replicas has shown, if they are not equal.
fn diverged(node: &str, role: &RoleStatus) -> Option<String> {
    let what = match role.divergence? {
        0 => return None,
        1 => "finds that other replicas have diverged",
        2 => "finds that replicas have diverged, and no result has a majority",
        _ => "has diverged and does nothing more until its node restarts",
    };
    Some(format!("{} {} on {node} {what}", role.role, role.index))
}

/// The certificates of a node that end soon.
fn ending(name: &str, status: &NodeStatus) -> Vec<Trouble> {
    let tls = status.tls.iter();
    let near = tls.flat_map(|tls| tls.near_end(now()));
    near.map(|(what, it)| {
        let ends = match it.not_after > now() {
            true => "ends",
            false => "has ended",
        };
        Id::CertificateEnds.with(format!(
            "the {what} {} of node {name} {ends} at {}: renew it",
            it.subject,
            date(it.not_after)
        ))
    })
    .collect()
}

/// A node that does not answer.
fn silent(
    known: &Configuration,
    cluster: &ClusterStatus,
    (node, error): (&Answer, &str),
) -> Trouble {
    let name = &node.name;
    let near = known.member(name).filter(|_| node.refused);
    let near = near.map_or(Vec::new(), |(id, _)| connected_to(cluster, id));
    if near.is_empty() && node.refused {
        return Id::NoStatus.with(format!("node {name} refuses this command: {error}"));
    }
    if near.is_empty() {
        return Id::NodeDown.with(format!("node {name} does not answer: {error}"));
    }
    let near: Vec<&str> = near.iter().map(|node| node.name.as_str()).collect();
    Id::NoStatus.with(format!(
        "node {name} does not answer this command, though it is connected to {}: {error}",
        near.join(", ")
    ))
}

/// Nodes that have run different programs for longer than an upgrade takes.
fn mixed(cluster: &ClusterStatus) -> Option<Trouble> {
    let statuses = || cluster.nodes.iter().filter_map(|node| node.status.as_ref());
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in statuses() {
        let release = status.release.as_deref().unwrap_or("one without levels");
        nodes.entry(release).or_default().push(&status.name);
    }
    let since = statuses().map(|status| status.uptime_us).min()?;
    let hours = since / 3_600_000_000;
    if nodes.len() < 2 || hours < MIXED_HOURS {
        return None;
    }
    let each = nodes
        .iter()
        .map(|(release, on)| format!("{release} on {}", on.join(", ")));
    let programs = each.collect::<Vec<_>>().join("; ");
    Some(Id::VersionsMixed.with(format!(
        "nodes have run different programs for {hours} hours: {programs}. Finish the upgrade"
    )))
}

/// A request that waits for longer than this is not served: less is an election.
const UNANSWERED: Duration = Duration::from_secs(3);

/// The client lanes whose oldest request waits for too long, and whether all lanes that wait do.
/// Where no client asks for anything, nothing is wrong.
pub(super) fn unanswered(cluster: &ClusterStatus) -> (bool, Vec<Trouble>) {
    let waiting = instances(cluster).filter_map(|(node, role)| {
        let waits = Duration::from_millis(role.unanswered_ms?);
        Some((node, role, waits))
    });
    let (late, others): (Vec<_>, Vec<_>) = waiting.partition(|(.., waits)| *waits > UNANSWERED);
    let texts = late.into_iter().map(|(node, role, waits)| {
        let (kind, index, node, waits) = (&role.role, role.index, &node.name, waits.as_secs());
        Id::Unanswered.with(format!(
            "{kind} {index} on {node} has got no answer for {waits} s: clients of {node} wait"
        ))
    });
    (others.is_empty(), texts.collect())
}

/// An instance that does not hold what is chosen.
fn catching_up((node, role): (&Answer, &RoleStatus)) -> Option<Trouble> {
    let known = role.executed.zip(role.log_end);
    let known = known.filter(|(executed, end)| executed < end);
    let far = known.map_or(String::new(), |(executed, end)| {
        format!(": it has executed {executed} of the {end} slots that it knows of")
    });
    (role.current == Some(false)).then(|| {
        Id::CatchingUp.with(format!(
            "{} {} on {} does not hold yet what is chosen, and counts as failed{far}",
            role.role, role.index, node.name
        ))
    })
}

/// What the disk of a node lacks, or will lack.
fn room(node: &str, log: &LogStatus) -> Option<Trouble> {
    if log.is_full {
        return Some(Id::FullDisk.with(format!(
            "the disk of node {node} is full: its gateway accepts only reads and what frees memory"
        )));
    }
    let RoomStatus {
        free_bytes,
        needed_bytes,
    } = log.room.filter(|it| it.free_bytes < it.needed_bytes)?;
    Some(Id::DiskFillsUp.with(format!(
        "the disk of node {node} has {} MiB free, and the log and the next snapshot may need {} MiB: \
         then its gateway accepts only reads and what frees memory",
        free_bytes >> 20,
        needed_bytes >> 20
    )))
}

/// Nodes that have executed much less than others.
fn left_behind(known: &Configuration, cluster: &ClusterStatus) -> Vec<Trouble> {
    let retained = known.deployment.options.options().retained_slots as u64;
    let far = lags(cluster).into_iter();
    let far = far.filter(|(_, lag)| lag * 5 > retained * 4);
    far.map(|(node, lag)| {
        Id::ReplicaLeftBehind.with(format!(
            "node {node} is {lag} slots behind the others, which keep {retained} slots for it: \
             beyond that it needs a snapshot"
        ))
    })
    .collect()
}

/// What needs attention.
pub(super) fn troubles(
    known: &Configuration,
    cluster: &ClusterStatus,
    service_needs: &ServiceNeeds,
) -> Vec<Trouble> {
    let mut found = Vec::new();
    for node in &cluster.nodes {
        if let Some(error) = &node.error {
            found.push(silent(known, cluster, (node, error)));
        }
        let Some(status) = &node.status else { continue };
        if !status.takes_part {
            found.push(Id::NotTakingPart.with(format!(
                "node {} has a new data directory, and does not take part before it has connected to a majority of the other nodes",
                node.name
            )));
        }
        if status.founding != cluster.founding {
            found.push(Id::OtherDeployment.with(format!(
                "node {} was started from another deployment file: its digest is {}, that of this file {}",
                node.name, status.founding, cluster.founding
            )));
        }
        if let Some(left) = status.drains {
            found.push(Id::Draining.with(drained(&node.name, left)));
        }
        found.extend(room(&node.name, &status.log));
        if status.log.is_slow {
            found.push(Id::SlowDisk.with(format!(
                "the disk of node {} is slow: another node is to lead until it is not",
                node.name
            )));
        }
        found.extend(ending(&node.name, status));
        if let Some(why) = status.tls.as_ref().and_then(|tls| tls.refusal.as_ref()) {
            found.push(Id::CertificateRefused.with(format!(
                "node {} does not take the certificates in its files, and keeps the old ones: {why}",
                node.name
            )));
        }
        found.extend(status.unfinished.iter().map(|command| {
            Id::CommandEndsNode.with(format!(
                "node {}: {command}. If that repeats, `ionian log skip` leaves it out",
                node.name
            ))
        }));
        if let Some(why) = &status.audit_refusal {
            found.push(Id::AuditFails.with(format!("node {} refuses changes: {why}", node.name)));
        }
        for peer in &status.peers {
            if let Some(refusal) = &peer.refusal {
                let members = known.nodes();
                let name = members
                    .get(&NodeId(peer.node))
                    .map_or("?", |node| &node.name);
                let text = format!("node {name} refuses node {}: {refusal}", node.name);
                found.push(Id::PeerRefused.with(text));
            }
        }
    }
    found.extend(mixed(cluster));
    found.extend(left_behind(known, cluster));
    found.extend(instances(cluster).filter_map(catching_up));
    let kept = (service_needs, known.deployment.durability);
    let waiting = instances(cluster).filter(|(_, role)| role.remembers == Some(false));
    found.extend(waiting.map(|(node, role)| Id::MemoryLost.with(forgot(&node.name, role, kept))));
    found.extend(instances(cluster).filter_map(|(node, role)| {
        let text = diverged(&node.name, role)?;
        Some(Id::Diverged.with(text))
    }));
    let closed = instances(cluster).filter(|(_, role)| role.has_session == Some(false));
    found.extend(closed.map(|(node, role)| {
        Id::NoSession.with(format!(
            "{} {} on {} has no session: clients of {} are not served yet",
            role.role, role.index, node.name, node.name
        ))
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::{Deployment, PresetOptions};
    use ionian_kernel::id::{Epoch, Index};

    fn service_needs(preset: &str) -> ServiceNeeds {
        let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
        ServiceNeeds::of(&Configuration::founded(deployment), Epoch::default()).unwrap()
    }

    #[test]
    fn a_disk_with_less_room_than_the_log_and_a_snapshot_need_is_named_before_it_is_full() {
        let log = |is_full, free| LogStatus {
            is_full,
            room: Some(RoomStatus {
                free_bytes: free,
                needed_bytes: 3 << 20,
            }),
            ..LogStatus::default()
        };
        let id = |log| Some(room("n1", &log)?.id);
        assert_eq!(id(log(false, 3 << 20)), None);
        assert_eq!(id(log(false, 2 << 20)), Some(Id::DiskFillsUp));
        assert_eq!(id(log(true, 2 << 20)), Some(Id::FullDisk));
        assert_eq!(id(LogStatus::default()), None, "an older program");
        let text = room("n1", &log(false, 2 << 20)).unwrap().text;
        assert!(
            text.contains("n1 has 2 MiB free") && text.contains("may need 3 MiB:"),
            "{text}"
        );
    }

    fn forgetful(role: &str, index: Index) -> RoleStatus {
        RoleStatus {
            role: role.to_owned(),
            index,
            remembers: Some(false),
            ..RoleStatus::default()
        }
    }

    #[test]
    fn an_instance_without_memory_waits_for_what_its_protocol_declares() {
        let service_needs = service_needs("spaxos");
        let said = ["acceptor", "stabilizer"].map(|kind| {
            forgot(
                "n0",
                &forgetful(kind, 0),
                (&service_needs, Durability::Memory),
            )
        });
        assert!(
            said[0].contains("must not vote before the leader has let it in again"),
            "{}",
            said[0]
        );
        assert!(
            said[1].starts_with("stabilizer 0 on n0 lost its memory"),
            "{}",
            said[1]
        );
        assert!(
            said[1].contains("read quorum of the other stabilizers") && !said[1].contains("vote"),
            "{}",
            said[1]
        );
    }

    /// A new chain node of a cluster that stores everything has lost nothing.
    #[test]
    fn an_instance_with_a_disk_has_lost_no_memory() {
        let service_needs = service_needs("craq");
        let role = forgetful("chain_node", 3);
        let said = forgot("n3", &role, (&service_needs, Durability::Disk));
        assert!(
            said.starts_with("chain_node 3 on n3 does not hold yet") && said.contains("copies"),
            "{said}"
        );
    }

    #[test]
    fn losses_are_counted_by_role() {
        let lost = |preset, places: &[(&str, Index)]| -> Vec<String> {
            let roles: Vec<RoleStatus> = places
                .iter()
                .map(|(kind, index)| forgetful(kind, *index))
                .collect();
            let losses = losses_of(&service_needs(preset), &roles.iter().collect::<Vec<_>>());
            let words = |(loss, is_vital): (&str, bool)| {
                format!("{} {is_vital}", loss.split(' ').nth(2).unwrap())
            };
            losses.into_iter().map(words).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(
            lost("spaxos-batched", &[("acceptor", 0), ("stabilizer", 1)]),
            none
        );
        assert_eq!(
            lost("spaxos-batched", &[("acceptor", 0), ("acceptor", 2)]),
            ["acceptors true"]
        );
        assert_eq!(
            lost("spaxos-batched", &[("stabilizer", 0), ("stabilizer", 2)]),
            ["stabilizers false"]
        );
        assert_eq!(
            lost("colocated", &[("acceptor", 0), ("acceptor", 2)]),
            ["acceptors true"]
        );
        assert_eq!(lost("unreplicated", &[]), none);
    }
}
