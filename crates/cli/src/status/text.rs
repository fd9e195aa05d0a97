//! The status of a cluster as text.

use super::cluster::{Answer, ClusterStatus, instances, lags};
use super::health::{Health, Verdict, no_further};
use crate::protocols;
use ionian_deployment::{Configuration, Deployment, Durability};
use ionian_runtime::NodeStatus;
use ionian_runtime::status::{LeadsStatus, PeerState, RoleStatus};

/// The most columns of a line.
const COLUMNS: usize = 100;

/// A list in the last column of a table has at least this many columns, or a line of its own.
const LIST_COLUMNS: usize = 40;

/// What continues a line is indented by this.
const INDENT: usize = 2;

/// The verdict, the nodes, and what is wrong; with `roles` also what each role does. No line is
/// longer than [`COLUMNS`].
pub(crate) fn show(
    known: &Configuration,
    cluster: &ClusterStatus,
    health: &Health,
    with_roles: bool,
) -> String {
    let mut text = folded(&head(&known.deployment, cluster));
    text += &folded(&verdict(health, with_roles));
    // If no node leads, the nodes that claim to lead are of no interest.
    if matches!(health.health, Verdict::Healthy | Verdict::Degraded) {
        text += &folded(&leaders(cluster, health.parts));
    }
    text.push('\n');
    text += &nodes(cluster);
    if !(health.not_served.is_empty() && health.troubles.is_empty()) {
        text.push('\n');
    }
    for trouble in &health.troubles {
        text += &folded(&format!("! {}", trouble.text));
    }
    for what in &health.not_served {
        text += &folded(&format!("! not served: {}", what.text));
    }
    if with_roles {
        text.push('\n');
        text += &loops(cluster);
        text += &roles(cluster);
    }
    text
}

/// The verdict in one line; with roles also how many nodes with each may fail.
fn verdict(health: &Health, with_roles: bool) -> String {
    let word = match health.health {
        Verdict::Healthy => "healthy",
        Verdict::Degraded => "DEGRADED",
        Verdict::NotServing => return "health: NOT SERVING\n".to_owned(),
        Verdict::Unknown => return "health: UNKNOWN; nodes refuse to show it\n".to_owned(),
    };
    let tolerance = match health.failure_tolerance {
        None | Some(0) => no_further(&health.tolerance_by_role),
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
    let more = match with_roles && !more.is_empty() {
        true => format!(" (of those: {})", more.join(", ")),
        false => String::new(),
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
        level,
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
        acceptors => format!(", {}", protocols::quorums(deployment, acceptors)),
    };
    let epoch = match (cluster.epoch, cluster.changing) {
        (0, _) => String::new(),
        (epoch, false) => format!(", epoch {epoch}"),
        (epoch, true) => format!(", epoch {epoch}: its membership is changing"),
    };
    let kept = match deployment.durability {
        Durability::Disk => "on disk",
        Durability::Memory => "in memory",
    };
    format!(
        "cluster {name}: {protocol}, f = {f}{quorums}, {kept}, level {level}{epoch}; {nodes_up} of {} nodes answer\n",
        nodes.len()
    )
}

/// The leader, or the leaders.
fn leaders(cluster: &ClusterStatus, parts: usize) -> String {
    let all = instances(cluster).map(|(node, role)| (node.name.as_str(), role));
    let hubs: Vec<_> = all.filter(|(_, role)| role.leads.is_some()).collect();
    match parts {
        0 => String::new(),
        1 => the_leader(&hubs),
        parts => leaders_of_parts(&hubs, parts as u64),
    }
}

/// After a change the former leader may still claim to lead: the highest round counts.
fn the_leader(all: &[(&str, &RoleStatus)]) -> String {
    let leading = all
        .iter()
        .filter(|(_, role)| role.leads.is_some_and(|leads| leads.own));
    match leading.max_by_key(|(_, role)| role.ballot()) {
        Some(leader) => format!("leader: {}\n", leader_in_its_round(leader)),
        None => "leader: none reachable\n".to_owned(),
    }
}

fn leader_in_its_round((node, role): &(&str, &RoleStatus)) -> String {
    format!(
        "{} {} on {node}, round {}",
        role.role,
        role.index,
        role.round.unwrap_or(0)
    )
}

/// If several leaders share the log: all of them, those that stand in for others, and the number of
/// parts without a leader.
fn leaders_of_parts(all: &[(&str, &RoleStatus)], parts: u64) -> String {
    let of = |role: &RoleStatus| role.leads.map_or(0, LeadsStatus::parts);
    let mut leading: Vec<_> = all.iter().filter(|(_, role)| of(role) > 0).collect();
    leading.sort_by_key(|(_, role)| role.index);
    let mut said: Vec<String> = Vec::new();
    for leader @ (node, role) in leading {
        let leads = role.leads.unwrap_or_default();
        said.push(match (leads.own, leads.others) {
            (false, _) => format!("{} {} on {node}, only for others", role.role, role.index),
            (_, 0) => leader_in_its_round(leader),
            (_, 1) => format!("{}, with another part", leader_in_its_round(leader)),
            (_, more) => format!("{}, with {more} other parts", leader_in_its_round(leader)),
        });
    }
    let led: u64 = all.iter().map(|(_, role)| of(role)).sum();
    if led < parts {
        said.push(format!(
            "{} of {parts} parts of the log have no reachable leader",
            parts - led
        ));
    }
    format!("leaders: {}\n", said.join("; "))
}

fn nodes(cluster: &ClusterStatus) -> String {
    let lags = lags(cluster);
    let heads = [
        "node", "state", "pid", "up for", "load", "lag", "peers", "address", "gateway",
    ];
    let mut table = vec![heads.map(String::from)];
    let none = || "-".to_owned();
    for node in &cluster.nodes {
        let lag = lags.get(node.name.as_str());
        let lag = lag.map_or_else(none, u64::to_string);
        let [pid, since, load, peers] = node
            .status
            .as_ref()
            .map_or_else(|| [(); 4].map(|()| none()), process);
        let gateway = node.gateway.clone().unwrap_or_else(none);
        let [name, address] = [&node.name, &node.address].map(String::clone);
        let state = state(node).to_owned();
        table.push([name, state, pid, since, load, lag, peers, address, gateway]);
    }
    aligned(&table)
}

/// What a node does, in a word.
fn state(node: &Answer) -> &'static str {
    match (&node.status, node.refused) {
        (None, true) => "REFUSES",
        (None, false) => "NO ANSWER",
        (Some(status), _) => match status.drains {
            Some(left) if left.is_done() => "drained",
            Some(_) => "draining",
            None if !status.takes_part => "waiting",
            None => "up",
        },
    }
}

/// The process of a node: its number, its age, its load, and its connections to other nodes.
fn process(status: &NodeStatus) -> [String; 4] {
    let peers = status.peers.iter();
    let connected = peers.filter(|peer| peer.state == PeerState::Connected);
    let load = 100.0 * status.process_cpu_us as f64 / status.uptime_us.max(1) as f64;
    [
        status.pid.to_string(),
        duration(status.uptime_us),
        format!("{load:.1} %"),
        format!("{}/{}", connected.count(), status.peers.len()),
    ]
}

/// The event loops of the nodes that have several, with a blank line behind.
fn loops(cluster: &ClusterStatus) -> String {
    let heads = [
        "loop", "node", "cpu", "load", "in", "out", "records", "roles",
    ];
    let mut table = vec![heads.map(String::from)];
    let several = |status: &&NodeStatus| !status.role_loops.is_empty();
    let answers = cluster.nodes.iter().filter_map(|node| node.status.as_ref());
    for status in answers.filter(several) {
        let mut push = |number: u64, cpu_us: u64, counts: [u64; 3], roles: String| {
            let load = 100.0 * cpu_us as f64 / status.uptime_us.max(1) as f64;
            let (cpu, load) = (
                format!("{:.1} s", cpu_us as f64 / 1e6),
                format!("{load:.1} %"),
            );
            let [inward, outward, records] = counts.map(|count| count.to_string());
            let (number, node) = (number.to_string(), status.name.clone());
            table.push([number, node, cpu, load, inward, outward, records, roles]);
        };
        let own = &status.event_loop;
        let counts = [own.messages_in, own.messages_out, own.records];
        push(0, status.loop_cpu_us, counts, "(all others)".to_owned());
        for it in &status.role_loops {
            let counts = [it.messages_in, it.messages_out, it.records];
            push(it.number, it.cpu_us, counts, it.roles.join(", "));
        }
    }
    match table.len() {
        1 => String::new(),
        _ => aligned(&table) + "\n",
    }
}

fn duration(us: u64) -> String {
    let s = us / 1_000_000;
    match s {
        0..60 => format!("{:.1} s", us as f64 / 1e6),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// One line per role instance with its figures that are not 0. Instances of one kind are adjacent,
/// so that their watermarks can be compared at a glance.
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
                .figures()
                .into_iter()
                .filter(|(_, value)| *value > 0)
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

/// Aligns columns, two spaces apart. Columns that exceed [`COLUMNS`] continue below, and so do the
/// words of the last one.
fn aligned<const N: usize>(table: &[[String; N]]) -> String {
    let most = |column: usize, size: fn(&str) -> usize| {
        let sizes = table.iter().map(|row| size(&row[column]));
        sizes.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(|column| most(column, |it| it.chars().count()));
    let longest_word = |it: &str| it.split(' ').map(str::len).max().unwrap_or(0);
    let list = most(N - 1, longest_word).max(LIST_COLUMNS);
    let mut at = 0;
    let starts: [usize; N] = std::array::from_fn(|column| {
        let last = column == N - 1;
        let width = widths[column].min(if last { list } else { COLUMNS });
        if at + width > COLUMNS {
            at = INDENT;
        }
        let start = at;
        at += widths[column] + 2;
        start
    });
    let mut text = String::new();
    for row in table {
        let mut line = String::new();
        for (cell, start) in row.iter().zip(starts) {
            for (part, words) in broken(cell, COLUMNS - start).into_iter().enumerate() {
                if part > 0 || line.chars().count() > start {
                    text += line.trim_end();
                    text.push('\n');
                    line.clear();
                }
                line = format!("{line:<start$}{words}");
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The line, continued below where it exceeds [`COLUMNS`].
fn folded(line: &str) -> String {
    let lines = broken(line.trim_end(), COLUMNS - INDENT);
    let folded = lines.join(&format!("\n{:INDENT$}", ""));
    match folded.is_empty() {
        true => folded,
        false => folded + "\n",
    }
}

/// Breaks a text at its spaces; what is longer than a line is cut.
fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        if used > 0 && used + 1 + word.chars().count() > columns {
            lines.push(String::new());
            used = 0;
        }
        let space = (used > 0).then_some(' ');
        for it in space.into_iter().chain(word.chars()) {
            if used == columns {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("there is a line").push(it);
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::Index;
    use ionian_runtime::DrainStatus;

    #[test]
    fn columns_line_up() {
        let table = [["a", "bb", "c"], ["aaa", "b", ""]].map(|row| row.map(String::from));
        assert_eq!(aligned(&table), "a    bb  c\naaa  b\n");
    }

    #[test]
    fn columns_that_exceed_the_width_continue_below() {
        let wide = |it: &str| it.repeat(60);
        let words = vec!["w"; 60].join(" ");
        let table = [["a".to_owned(), wide("b"), wide("c"), words]];
        let (b, c) = (wide("b"), wide("c"));
        assert_eq!(
            aligned(&table),
            format!(
                "a  {b}\n  {c}\n  {}\n  {}\n",
                "w ".repeat(48) + "w",
                "w ".repeat(10) + "w"
            )
        );
    }

    #[test]
    fn what_is_longer_than_a_line_is_cut() {
        assert_eq!(broken("abcdef gh i", 4), ["abcd", "ef", "gh i"]);
        assert_eq!(broken("", 4), [""]);
        assert_eq!(folded(""), "");
        let line = "w".repeat(99);
        assert_eq!(folded(&line), format!("{}\n  w\n", "w".repeat(98)));
    }

    #[test]
    fn a_node_that_drains_waits_or_refuses_is_not_up() {
        let mut node = Answer {
            name: "n0".to_owned(),
            address: String::new(),
            gateway: None,
            up: false,
            error: None,
            refused: false,
            status: None,
        };
        assert_eq!(state(&node), "NO ANSWER");
        node.refused = true;
        assert_eq!(state(&node), "REFUSES");
        let mut said = |takes_part, drains| {
            node.status = Some(NodeStatus {
                takes_part,
                drains,
                ..NodeStatus::default()
            });
            state(&node)
        };
        let left = |clients| {
            Some(DrainStatus {
                clients,
                unanswered: 0,
                leads: false,
            })
        };
        let all = [
            (true, None),
            (false, None),
            (true, left(1)),
            (true, left(0)),
        ];
        let all = all.map(|(takes_part, drains)| said(takes_part, drains));
        assert_eq!(all, ["up", "waiting", "draining", "drained"]);
    }

    fn leader(index: Index, round: u64, own: bool, others: u64) -> RoleStatus {
        RoleStatus {
            role: "leader".to_owned(),
            index,
            leads: Some(LeadsStatus {
                own,
                others,
                elections: 0,
            }),
            epoch: Some(0),
            round: Some(round),
            ..RoleStatus::default()
        }
    }

    #[test]
    fn the_leader_of_the_highest_round_is_named() {
        let [old, new] = [(128, 0), (129, 1)].map(|(round, index)| leader(index, round, true, 0));
        assert_eq!(
            the_leader(&[("n0", &old), ("n1", &new)]),
            "leader: leader 1 on n1, round 129\n"
        );
        let idle = leader(0, 129, false, 0);
        assert_eq!(the_leader(&[("n0", &idle)]), "leader: none reachable\n");
    }

    #[test]
    fn all_leaders_of_a_divided_log_are_named() {
        let [own, two, none, other] = [(0, true, 0), (1, true, 1), (2, false, 0), (2, false, 1)]
            .map(|(index, own, others)| leader(index, 64, own, others));
        assert_eq!(
            leaders_of_parts(&[("n1", &two), ("n0", &own), ("n2", &none)], 3),
            "leaders: leader 0 on n0, round 64; leader 1 on n1, round 64, with another part\n"
        );
        assert_eq!(
            leaders_of_parts(&[("n0", &own), ("n2", &other)], 3),
            "leaders: leader 0 on n0, round 64; leader 2 on n2, only for others; 1 of 3 parts of the log have no \
             reachable leader\n"
        );
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!(
            [1_500_000, 61_000_000, 7_320_000_000].map(duration),
            ["1.5 s", "1 min 1 s", "2 h 2 min"]
        );
    }
}
