//! The status of a cluster for people.

use super::health::{Health, Verdict};
use super::{Answer, ClusterStatus};
use crate::config;
use crate::family;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{AcceptorId, AcceptorSet, Set, StabilizerId};
use ionian_kernel::layout::NodeId;
use ionian_runtime::DrainStatus;
use ionian_runtime::status::{PeerState, RoleStatus};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All of it. What needs attention comes last, where the eye is when the command has ended.
pub(crate) fn show(known: &Configuration, cluster: &ClusterStatus, health: &Health) -> String {
    let mut text = head(&known.deployment, cluster);
    text += &verdict(health);
    // Who believes to lead is of no interest where nobody is led.
    text += &if health.health == Verdict::NotServing {
        String::new()
    } else {
        leaders(known, cluster)
    };
    text.push('\n');
    text += &nodes(cluster);
    text.push('\n');
    text += &roles(cluster);
    if !(health.not_served.is_empty() && health.troubles.is_empty()) {
        text.push('\n');
    }
    for trouble in &health.troubles {
        let _ = writeln!(text, "! {trouble}");
    }
    for what in &health.not_served {
        let _ = writeln!(text, "! not served: {what}");
    }
    text
}

/// The verdict in one line.
fn verdict(health: &Health) -> String {
    let word = match health.health {
        Verdict::Healthy => "healthy",
        Verdict::Degraded => "DEGRADED",
        Verdict::NotServing => return "health: NOT SERVING\n".to_owned(),
    };
    let tolerance = match health.failure_tolerance {
        None | Some(0) => "no more node may fail".to_owned(),
        Some(1) => "any 1 more node may fail".to_owned(),
        Some(more) => format!("any {more} more nodes may fail"),
    };
    let least = health.failure_tolerance.unwrap_or(0);
    let more = health
        .tolerance_by_role
        .iter()
        .filter(|(_, tolerance)| **tolerance > least);
    let more: Vec<String> = more
        .map(|(role, tolerance)| format!("{tolerance} with {role}"))
        .collect();
    let more = if more.is_empty() {
        String::new()
    } else {
        format!(" (of those: {})", more.join(", "))
    };
    let probe = match health
        .probe_ms
        .as_ref()
        .and_then(|probes| probes.values().max())
    {
        None => String::new(),
        Some(ms) => format!("; a command takes up to {ms} ms"),
    };
    format!("health: {word}; {tolerance}{more}{probe}\n")
}

fn head(deployment: &Deployment, cluster: &ClusterStatus) -> String {
    let ClusterStatus {
        cluster: name,
        protocol,
        f,
        durability,
        nodes_up,
        nodes,
        ..
    } = cluster;
    let acceptors: usize = deployment
        .nodes
        .iter()
        .filter_map(|node| node.instances().get("acceptor").copied())
        .sum();
    let quorums = match acceptors {
        0 => String::new(),
        acceptors => format!(", {}", config::quorums(deployment.quorums, acceptors)),
    };
    let epoch = match (cluster.epoch, cluster.changing) {
        (0, _) => String::new(),
        (epoch, false) => format!(", epoch {epoch}"),
        (epoch, true) => format!(", epoch {epoch}: its membership is changing"),
    };
    format!(
        "cluster {name}: {protocol}, f = {f}{quorums}, durability {durability}{epoch}; {nodes_up} of {} nodes answer\n",
        nodes.len()
    )
}

/// Every role instance that answered, with the node it is on.
pub(super) fn instances(cluster: &ClusterStatus) -> impl Iterator<Item = (&Answer, &RoleStatus)> {
    let up = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.status.as_ref()?)));
    up.flat_map(|(node, status)| status.roles.iter().map(move |role| (node, role)))
}

pub(super) fn figure(role: &RoleStatus, name: &str) -> Option<u64> {
    role.figures.get(name).copied()
}

/// Who leads.
fn leaders(known: &Configuration, cluster: &ClusterStatus) -> String {
    let led = instances(cluster).filter(|(_, role)| role.figures.contains_key("leading"));
    let led: Vec<_> = led.map(|(node, role)| (node.name.as_str(), role)).collect();
    if led.is_empty() {
        return String::new();
    }
    if led
        .iter()
        .all(|(_, role)| figure(role, STRIPES_LED).is_none())
    {
        return the_leader(&led);
    }
    let nodes = known.deployment.nodes.iter();
    let stripes = nodes
        .filter_map(|node| node.instances().get("leader").copied())
        .sum::<usize>();
    leaders_of_stripes(&led, stripes as u64)
}

/// After a change the old leader may believe in itself for a moment: the highest round counts.
fn the_leader(all: &[(&str, &RoleStatus)]) -> String {
    let leading = all
        .iter()
        .filter(|(_, role)| figure(role, "leading") == Some(1));
    match leading.max_by_key(|(_, role)| (figure(role, "epoch"), figure(role, "round"))) {
        Some(leader) => format!("leader: {}\n", leader_in_its_round(leader)),
        None => "leader: none that can be reached\n".to_owned(),
    }
}

fn leader_in_its_round((node, role): &(&str, &RoleStatus)) -> String {
    format!(
        "{} {} on {node}, round {}",
        role.role,
        role.index,
        figure(role, "round").unwrap_or(0)
    )
}

/// How many parts of the log a leader leads, where each has its own (Mencius).
pub(super) const STRIPES_LED: &str = "stripes_led";

/// Where the log is divided among leaders: all of them, those that stand in for others, and what
/// nobody leads.
fn leaders_of_stripes(all: &[(&str, &RoleStatus)], stripes: u64) -> String {
    let of = |role: &RoleStatus| figure(role, STRIPES_LED).unwrap_or(0);
    let mut leading: Vec<_> = all.iter().filter(|(_, role)| of(role) > 0).collect();
    leading.sort_by_key(|(_, role)| role.index);
    let mut said: Vec<String> = Vec::new();
    for leader @ (node, role) in leading {
        let own = figure(role, "leading").unwrap_or(0);
        said.push(match (own, of(role).saturating_sub(own)) {
            (0, _) => format!("{} {} on {node}, only for others", role.role, role.index),
            (_, 0) => leader_in_its_round(leader),
            (_, 1) => format!("{} and for another", leader_in_its_round(leader)),
            (_, others) => format!("{} and for {others} others", leader_in_its_round(leader)),
        });
    }
    let led: u64 = all.iter().map(|(_, role)| of(role)).sum();
    if led < stripes {
        said.push(format!(
            "{} of {stripes} stripes have none that can be reached",
            stripes - led
        ));
    }
    format!("leaders: {}\n", said.join("; "))
}

/// How many slots behind the furthest executor a node's slowest executor is.
fn lags(cluster: &ClusterStatus) -> BTreeMap<&str, u64> {
    // Leaders report a replica's figure of the same name: only those count that execute themselves.
    let executors = || {
        instances(cluster).filter(|(_, role)| matches!(role.role.as_str(), "replica" | "server"))
    };
    let executed = |role: &RoleStatus| figure(role, "executed").unwrap_or(0);
    let furthest = executors()
        .map(|(_, role)| executed(role))
        .max()
        .unwrap_or(0);
    let mut lags = BTreeMap::new();
    for (node, role) in executors() {
        let lag: &mut u64 = lags.entry(node.name.as_str()).or_default();
        *lag = (*lag).max(furthest - executed(role));
    }
    lags
}

fn nodes(cluster: &ClusterStatus) -> String {
    let lags = lags(cluster);
    let mut table = vec![
        [
            "node", "state", "pid", "up for", "cpu", "load", "lag", "peers", "address", "gateway",
        ]
        .map(String::from),
    ];
    for node in &cluster.nodes {
        let lag = lags
            .get(node.name.as_str())
            .map_or("-".to_owned(), u64::to_string);
        let gateway = node.gateway.clone().unwrap_or_else(|| "-".to_owned());
        let [name, address] = [&node.name, &node.address].map(String::clone);
        table.push(match &node.status {
            None => {
                let none = || "-".to_owned();
                [
                    name,
                    "NO ANSWER".into(),
                    none(),
                    none(),
                    none(),
                    none(),
                    lag,
                    none(),
                    address,
                    gateway,
                ]
            }
            Some(status) => {
                let connected = status
                    .peers
                    .iter()
                    .filter(|peer| peer.state == PeerState::Connected)
                    .count();
                let load = 100.0 * status.process_cpu_us as f64 / status.uptime_us.max(1) as f64;
                [
                    name,
                    "up".into(),
                    status.pid.to_string(),
                    duration(status.uptime_us),
                    format!("{:.1} s", status.process_cpu_us as f64 / 1e6),
                    format!("{load:.1} %"),
                    lag,
                    format!("{connected}/{}", status.peers.len()),
                    address,
                    gateway,
                ]
            }
        });
    }
    aligned(&table)
}

fn duration(us: u64) -> String {
    let s = us / 1_000_000;
    match s {
        0..60 => format!("{:.1} s", us as f64 / 1e6),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// One line for each role instance with the figures it reports. Those of one kind are neighbours,
/// so that watermarks can be compared at a glance.
fn roles(cluster: &ClusterStatus) -> String {
    let mut order: Vec<&str> = Vec::new();
    for (_, role) in instances(cluster) {
        if !order.contains(&role.role.as_str()) {
            order.push(&role.role);
        }
    }
    let mut table = vec![["role", "node", "figures"].map(String::from)];
    for kind in order {
        let mut of_kind: Vec<_> = instances(cluster)
            .filter(|(_, role)| role.role == kind)
            .collect();
        of_kind.sort_by_key(|(_, role)| role.index);
        for (node, role) in of_kind {
            let figures: Vec<String> = role
                .figures
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            table.push([
                format!("{} {}", role.role, role.index),
                node.name.clone(),
                figures.join(" "),
            ]);
        }
    }
    aligned(&table)
}

/// What is said of a cluster that has lost more than it may.
pub(super) const LOST_VOTES: &str = "so many acceptors have lost their memory that those which remember can hold no read quorum, \
                          even if every node that is down came back: this cluster cannot serve again, for what was \
                          voted for may be gone. Stop it and start anew";
const LOST_PAYLOADS: &str = "so many stabilizers have lost their memory that those which remember can hold no read \
                             quorum, even if every node that is down came back: none of them gets whole again, payloads \
                             of what was chosen may be gone, and what still runs bears no further failure. Save a \
                             snapshot if you can, stop the cluster and start anew";

/// What the cluster has lost for good, because too many have forgotten what only they were to know.
pub(super) fn losses(known: &Configuration, cluster: &ClusterStatus) -> Vec<&'static str> {
    let roles: Vec<&RoleStatus> = instances(cluster).map(|(_, role)| role).collect();
    losses_of(known, &roles)
}

fn losses_of(known: &Configuration, roles: &[&RoleStatus]) -> Vec<&'static str> {
    let forgetful = |kind| {
        let of_kind = roles
            .iter()
            .filter(move |role| role.role == kind && figure(role, "amnesiac") == Some(1));
        of_kind.map(|role| role.index)
    };
    let mut losses = Vec::new();
    if let Ok(Some(quorums)) = family::quorums(known) {
        let forgetful: AcceptorSet = forgetful("acceptor").map(AcceptorId).collect();
        losses.extend(
            (!quorums.is_read_quorum(quorums.members().without(forgetful))).then_some(LOST_VOTES),
        );
    }
    if let Ok(Some(stabilizers)) = family::stabilizers(known) {
        let forgetful: Set<StabilizerId> = forgetful("stabilizer").map(StabilizerId).collect();
        losses.extend(
            (!stabilizers.is_read_quorum(stabilizers.members().without(forgetful)))
                .then_some(LOST_PAYLOADS),
        );
    }
    losses
}

/// What an instance that has forgotten waits for.
fn forgot(node: &str, role: &RoleStatus) -> String {
    let waits = match role.role.as_str() {
        "stabilizer" => {
            "It stores new payloads; for older ones it counts as failed, and it tells no replica, until it has copied \
             everything that a read quorum of the other stabilizers holds. Those that have lost their memory too are \
             of no help"
        }
        _ => {
            "It must not vote before the leader has let it in again, which takes a leader, and a read quorum of \
             acceptors that remember"
        }
    };
    format!(
        "{} {} on {node} has lost its memory with an earlier process. {waits}",
        role.role, role.index
    )
}

/// What a node that was told to drain does without.
fn drained(node: &str, left: DrainStatus) -> String {
    let ends = format!("until it is started again, or told so by ionian drain {node} --undo");
    match left.is_done() {
        true => format!("node {node} is drained: it takes no clients and does not lead {ends}"),
        false => {
            format!("node {node} is draining: it takes no clients {ends}, and still has {left}")
        }
    }
}

/// What needs attention, in words.
pub(super) fn troubles(known: &Configuration, cluster: &ClusterStatus) -> Vec<String> {
    let mut found = Vec::new();
    for node in &cluster.nodes {
        if let Some(error) = &node.error {
            found.push(format!("node {} does not answer: {error}", node.name));
        }
        let Some(status) = &node.status else { continue };
        if !status.takes_part {
            found.push(format!(
                "node {} has a new data directory, and does not take part before a majority of the other nodes has met it",
                node.name
            ));
        }
        if status.founding != cluster.founding {
            found.push(format!(
                "node {} was started from another deployment file: its digest is {}, that of this file {}",
                node.name, status.founding, cluster.founding
            ));
        }
        if let Some(left) = status.drains {
            found.push(drained(&node.name, left));
        }
        for peer in &status.peers {
            if let Some(refusal) = &peer.refusal {
                let members = known.nodes();
                let name = members
                    .get(&NodeId(peer.node))
                    .map_or("?", |node| &node.name);
                found.push(format!("node {name} refuses node {}: {refusal}", node.name));
            }
        }
    }
    let waiting = instances(cluster).filter(|(_, role)| figure(role, "amnesiac") == Some(1));
    found.extend(waiting.map(|(node, role)| forgot(&node.name, role)));
    let closed = instances(cluster).filter(|(_, role)| figure(role, "session_open") == Some(0));
    found.extend(closed.map(|(node, role)| {
        format!(
            "{} {} on {} has no session: clients of {} are not served yet",
            role.role, role.index, node.name, node.name
        )
    }));
    found
}

/// Columns two spaces apart; the last is not padded.
fn aligned<const N: usize>(table: &[[String; N]]) -> String {
    let width = |column: usize| {
        table
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in table {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;

    #[test]
    fn columns_line_up() {
        let table = [["a", "bb", "c"], ["aaa", "b", ""]].map(|row| row.map(String::from));
        assert_eq!(aligned(&table), "a    bb  c\naaa  b\n");
    }

    fn role(role: &str, index: u8, figures: &[(&str, u64)]) -> RoleStatus {
        let figures = figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        RoleStatus {
            role: role.to_owned(),
            index,
            figures,
        }
    }

    fn leader(index: u8, figures: &[(&str, u64)]) -> RoleStatus {
        role("leader", index, figures)
    }

    #[test]
    fn who_has_forgotten_is_told_what_that_role_waits_for() {
        let said =
            ["acceptor", "stabilizer"].map(|kind| forgot("n0", &role(kind, 0, &[("amnesiac", 1)])));
        assert!(
            said[0].contains("must not vote before the leader has let it in again"),
            "{}",
            said[0]
        );
        assert!(
            said[1].starts_with("stabilizer 0 on n0 has lost its memory"),
            "{}",
            said[1]
        );
        assert!(
            said[1].contains("read quorum of the other stabilizers") && !said[1].contains("vote"),
            "{}",
            said[1]
        );
    }

    #[test]
    fn what_is_lost_is_counted_by_role() {
        let known = |preset| {
            Configuration::founded(Deployment::preset(preset, &PresetOptions::default()).unwrap())
        };
        let forgetful = |places: &[(&str, u8)]| -> Vec<RoleStatus> {
            places
                .iter()
                .map(|(kind, index)| role(kind, *index, &[("amnesiac", 1)]))
                .collect()
        };
        let lost = |preset, places| {
            let roles = forgetful(places);
            losses_of(&known(preset), &roles.iter().collect::<Vec<_>>())
        };
        let none: [&str; 0] = [];
        assert_eq!(
            lost("spaxos-batched", &[("acceptor", 0), ("stabilizer", 1)]),
            none
        );
        assert_eq!(
            lost("spaxos-batched", &[("acceptor", 0), ("acceptor", 2)]),
            [LOST_VOTES]
        );
        assert_eq!(
            lost("spaxos-batched", &[("stabilizer", 0), ("stabilizer", 2)]),
            [LOST_PAYLOADS]
        );
        assert_eq!(
            lost("colocated", &[("acceptor", 0), ("acceptor", 2)]),
            [LOST_VOTES]
        );
        assert_eq!(lost("unreplicated", &[]), none);
    }

    #[test]
    fn the_leader_of_the_highest_round_is_named() {
        let [old, new] =
            [128, 129].map(|round| leader(round as u8 % 2, &[("leading", 1), ("round", round)]));
        assert_eq!(
            the_leader(&[("n0", &old), ("n1", &new)]),
            "leader: leader 1 on n1, round 129\n"
        );
        let idle = leader(0, &[("leading", 0), ("round", 129)]);
        assert_eq!(
            the_leader(&[("n0", &idle)]),
            "leader: none that can be reached\n"
        );
    }

    #[test]
    fn where_each_leads_a_stripe_all_are_named() {
        let [own, two, none, other] =
            [(0, 1, 1), (1, 1, 2), (2, 0, 0), (2, 0, 1)].map(|(index, leading, stripes_led)| {
                leader(
                    index,
                    &[
                        ("leading", leading),
                        ("round", 64),
                        (STRIPES_LED, stripes_led),
                    ],
                )
            });
        assert_eq!(
            leaders_of_stripes(&[("n1", &two), ("n0", &own), ("n2", &none)], 3),
            "leaders: leader 0 on n0, round 64; leader 1 on n1, round 64 and for another\n"
        );
        assert_eq!(
            leaders_of_stripes(&[("n0", &own), ("n2", &other)], 3),
            "leaders: leader 0 on n0, round 64; leader 2 on n2, only for others; 1 of 3 stripes have none that can be \
             reached\n"
        );
    }

    #[test]
    fn durations_are_told_in_two_units() {
        assert_eq!(
            [1_500_000, 61_000_000, 7_320_000_000].map(duration),
            ["1.5 s", "1 min 1 s", "2 h 2 min"]
        );
    }
}
