//! The verdict on artificial clusters, in which connections can be missing.

use super::cluster::{Answer, ClusterStatus};
use super::health::{Health, Verdict, judge};
use super::seen::connected_peer;
use super::tolerance_seen_by;
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_kernel::id::{Epoch, Index};
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::Membership;
use ionian_runtime::status::{
    CertificateStatus, LeadsStatus, PeerState, PeerStatus, RoleStatus, TlsStatus,
};
use ionian_runtime::{DrainStatus, NodeStatus, Published};

mod holding;
mod width;

/// An artificial healthy cluster: node 0 leads, or with Mencius each node its own part.
struct Made {
    known: Configuration,
    cluster: ClusterStatus,
}

impl Made {
    fn new(preset: &str) -> Made {
        Made::of(Configuration::founded(
            Deployment::preset(preset, &PresetOptions::default()).unwrap(),
        ))
    }

    fn of(known: Configuration) -> Made {
        let deployments = known.next.iter().chain([&known.deployment]);
        let numbered = deployments.flat_map(|deployment| deployment.numbered().unwrap().nodes);
        let numbered: Vec<_> = numbered.map(|node| (node.id.unwrap(), node)).collect();
        let ids: Vec<u16> = known.nodes().into_keys().map(|node| node.0).collect();
        let nodes = ids.iter().map(|id| {
            let (_, node) = numbered.iter().find(|(number, _)| number == id).unwrap();
            let roles = node
                .roles
                .iter()
                .map(|placed| role(&placed.role, placed.number.unwrap(), &known));
            let peers = ids
                .iter()
                .filter(|other| *other != id)
                .map(|other| peer(*other))
                .collect();
            let status = node_status(&node.name, *id, roles.collect(), peers);
            let (name, address) = (node.name.clone(), node.address.clone());
            Answer {
                name,
                address,
                gateway: node.gateway.clone(),
                up: true,
                error: None,
                refused: false,
                status: Some(status),
            }
        });
        let cluster = ClusterStatus {
            cluster: "made".into(),
            protocol: known.deployment.protocol.clone(),
            f: known.deployment.f,
            durability: "disk",
            founding: String::new(),
            level: known.membership.level.0,
            epoch: known.epoch().0,
            changing: known.next.is_some(),
            nodes_up: ids.len(),
            nodes: nodes.collect(),
        };
        Made { known, cluster }
    }

    fn status(&mut self, node: usize) -> &mut NodeStatus {
        self.cluster.nodes[node].status.as_mut().unwrap()
    }

    /// The first node no longer receives messages from the second.
    fn deaf(&mut self, one: usize, other: usize) {
        let number = self
            .known
            .member(&self.cluster.nodes[other].name)
            .unwrap()
            .0
            .0;
        let peer = self
            .status(one)
            .peers
            .iter_mut()
            .find(|peer| peer.node == number)
            .unwrap();
        peer.state = PeerState::Disconnected;
    }

    fn cut(&mut self, one: usize, other: usize) {
        self.deaf(one, other);
        self.deaf(other, one);
    }

    fn gone(&mut self, node: usize) {
        for other in (0..self.cluster.nodes.len()).filter(|other| *other != node) {
            if self.cluster.nodes[other].status.is_some() {
                self.deaf(other, node);
            }
        }
        self.silent(node);
        self.cluster.nodes[node].refused = false;
    }

    /// The node runs, and refuses to answer the command.
    fn silent(&mut self, node: usize) {
        let node = &mut self.cluster.nodes[node];
        (node.up, node.status, node.error) = (false, None, Some("it is silent".into()));
        node.refused = true;
    }

    /// Changes what the first instance of this kind on the node reports.
    fn set(&mut self, node: usize, role: &str, change: impl FnOnce(&mut RoleStatus)) {
        let mut roles = self.status(node).roles.iter_mut();
        change(roles.find(|it| it.role == role).unwrap());
    }

    fn leads(&mut self, node: usize, own: bool, others: u64) {
        self.set(node, "leader", |leader| {
            leader.leads = Some(LeadsStatus {
                own,
                others,
                elections: 0,
            });
        });
    }

    fn round(&mut self, node: usize, role: &str, epoch: u32, round: u64) {
        self.set(node, role, |role| {
            (role.epoch, role.round) = (Some(epoch), Some(round));
        });
    }

    fn drain(&mut self, node: usize) {
        self.status(node).drains = Some(DrainStatus {
            clients: 0,
            unanswered: 0,
            leads: false,
        });
    }

    fn health(&self) -> Health {
        judge(&self.known, &self.cluster, None)
    }
}

fn role(role: &str, index: Index, known: &Configuration) -> RoleStatus {
    let own = known.deployment.protocol == "mencius" || index == 0;
    let leads = LeadsStatus {
        own,
        ..LeadsStatus::default()
    };
    let has_round = matches!(role, "leader" | "acceptor");
    RoleStatus {
        role: role.to_owned(),
        index,
        leads: (role == "leader").then_some(leads),
        epoch: has_round.then_some(0),
        round: has_round.then_some(64),
        remembers: (role == "acceptor").then_some(true),
        has_session: (role == "client").then_some(true),
        ..RoleStatus::default()
    }
}

fn peer(node: u16) -> PeerStatus {
    PeerStatus {
        connections: 1,
        ..connected_peer(node, "")
    }
}

fn node_status(
    name: &str,
    node: u16,
    roles: Vec<RoleStatus>,
    peers: Vec<PeerStatus>,
) -> NodeStatus {
    NodeStatus {
        cluster: "made".into(),
        node,
        name: name.into(),
        level: 17,
        takes_part: true,
        roles,
        peers,
        ..NodeStatus::default()
    }
}

/// The verdict, how many more nodes may fail, and the problems.
fn said(made: &Made) -> (Verdict, Option<usize>, Vec<String>) {
    let Health {
        health,
        failure_tolerance,
        troubles,
        not_served,
        ..
    } = made.health();
    let texts = not_served.into_iter().chain(troubles).map(|it| it.text);
    (health, failure_tolerance, texts.collect())
}

const PRESETS: [&str; 3] = ["colocated", "mencius", "spaxos"];

#[test]
fn a_cluster_with_all_connections_is_healthy() {
    for preset in [
        "colocated",
        "mencius",
        "spaxos",
        "spaxos-batched",
        "compartmentalized",
    ] {
        assert_eq!(
            said(&Made::new(preset)),
            (Verdict::Healthy, Some(1), vec![]),
            "{preset}"
        );
    }
    assert_eq!(
        said(&Made::new("unreplicated")),
        (Verdict::Healthy, Some(0), vec![])
    );
}

/// There are too many sets of 5 of 25 nodes to try all.
#[test]
fn a_cluster_of_many_nodes_is_healthy_and_knows_when_it_is_not() {
    let mut made = Made::new("pigpaxos-25");
    assert_eq!(said(&made), (Verdict::Healthy, Some(12), vec![]));
    for node in (5..25).step_by(2) {
        for other in (0..25).filter(|other| *other != node) {
            made.cut(node, other);
        }
    }
    let (verdict, tolerance, said) = said(&made);
    assert_eq!((verdict, tolerance), (Verdict::Degraded, Some(2)));
    let said = said.last().unwrap();
    assert_eq!(
        said,
        "2 more may fail; the deployment is meant to tolerate 12"
    );
}

#[test]
fn nodes_that_answer_without_connections_serve_nothing() {
    for preset in PRESETS {
        let mut made = Made::new(preset);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            made.cut(one, other);
        }
        let (verdict, tolerance, said) = said(&made);
        assert_eq!(
            (verdict, tolerance),
            (Verdict::NotServing, None),
            "{preset}: {said:?}"
        );
        let why = "writes, for want of a write quorum: node n0, which leads, is connected to 1 of 3 acceptors";
        assert_eq!(
            said,
            [
                why,
                "node n0 answers, and has no connection to n1, n2",
                "node n1 answers, and has no connection to n2"
            ],
            "{preset}"
        );
    }
}

#[test]
fn a_disconnected_node_counts_as_failed() {
    let mut made = Made::new("colocated");
    // One end reports it; the other has not noticed yet.
    made.deaf(2, 0);
    made.deaf(1, 2);
    let lines = [
        "node n2 answers, and has no connection to n0, n1",
        "clients of n2 may not be served: it has no connection to n0, which leads",
        "no further node with acceptor may fail",
    ];
    assert_eq!(
        said(&made),
        (Verdict::Degraded, Some(0), lines.map(String::from).to_vec())
    );

    // The leader reports that it leads until it learns of its successor. With Mencius another node
    // leads its part of the log.
    let mut made = Made::new("colocated");
    made.cut(0, 1);
    made.cut(0, 2);
    assert_eq!(made.health().health, Verdict::NotServing);
    made.leads(1, true, 0);
    made.round(1, "leader", 0, 129);
    (1..3).for_each(|node| made.round(node, "acceptor", 0, 129));
    let (verdict, tolerance, what) = said(&made);
    assert_eq!(
        (verdict, tolerance),
        (Verdict::Degraded, Some(0)),
        "{what:?}"
    );
    assert_eq!(
        what[1],
        "clients of n0 may not be served: it has no connection to n1, which leads"
    );
    let mut made = Made::new("mencius");
    made.cut(2, 0);
    made.cut(2, 1);
    assert_eq!(
        made.health().health,
        Verdict::NotServing,
        "no leader stands in for n2"
    );
    made.leads(0, true, 1);
    assert_eq!(said(&made).0, Verdict::Degraded);
}

/// The two outer nodes are connected to the middle one only, so each quorum needs the middle one.
#[test]
fn the_only_node_connected_to_the_others_may_not_fail() {
    let mut made = Made::new("colocated");
    made.cut(0, 1);
    made.leads(0, false, 0);
    made.leads(2, true, 0);
    let lines = [
        "node n0 answers, and has no connection to n1",
        "no further node may fail",
    ];
    assert_eq!(
        said(&made),
        (Verdict::Degraded, Some(0), lines.map(String::from).to_vec())
    );
}

#[test]
fn drained_nodes_accept_no_clients() {
    for preset in PRESETS {
        let mut made = Made::new(preset);
        made.drain(0);
        let drained = |node| {
            format!(
                "node {node} is drained: it accepts no clients and does not lead until it restarts or \
                 `ionian drain {node} --undo` ends the drain"
            )
        };
        assert_eq!(
            said(&made),
            (Verdict::Degraded, Some(1), vec![drained("n0")]),
            "{preset}"
        );
        made.drain(1);
        assert_eq!(
            (said(&made).0, said(&made).1),
            (Verdict::Degraded, Some(0)),
            "{preset}: n2 alone takes clients"
        );
        made.drain(2);
        let why = "anything, for want of a node that serves clients and is not drained: 0 of 3 clients answer and work";
        let all = [why.to_owned(), drained("n0"), drained("n1"), drained("n2")];
        assert_eq!(
            said(&made),
            (Verdict::NotServing, None, all.to_vec()),
            "{preset}"
        );
    }
}

/// Three new nodes, none of which runs, are to replace three others: the old ones continue with
/// their own quorums until a leader of the next epoch leads with the quorums of both.
#[test]
fn the_old_configuration_serves_until_the_next_one_leads() {
    let before = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
    let mut after = before.numbered().unwrap();
    for (place, node) in after.nodes.iter_mut().enumerate() {
        node.name = format!("m{place}");
        node.id = Some(node.id.unwrap() + 3);
        node.roles
            .iter_mut()
            .for_each(|placed| placed.number = placed.number.map(|number| number + 3));
    }
    let founded = Configuration::founded(before);
    let membership = Membership {
        epoch: Epoch(1),
        since: Epoch(0),
        text: founded.text().unwrap(),
        next: Some(after.to_toml().into()),
        ..Membership::default()
    };
    let mut made = Made::of(founded.advanced(membership).unwrap());
    assert_eq!(made.known.member("m2").unwrap().0, NodeId(5));
    (3..6).for_each(|node| made.gone(node));
    let (verdict, tolerance, lines) = said(&made);
    assert_eq!(
        (verdict, tolerance, lines.len()),
        (Verdict::Degraded, Some(1), 3),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line.ends_with(" does not answer: it is silent")),
        "{lines:?}"
    );

    made.round(0, "leader", 1, 0);
    let (verdict, _, lines) = said(&made);
    assert_eq!(verdict, Verdict::NotServing);
    assert_eq!(
        lines[0],
        "writes, for want of a write quorum: 3 of 6 acceptors answer and work"
    );
}

/// The count of a round starts again in each epoch.
#[test]
fn a_promise_in_a_later_epoch_does_not_count_for_the_former_leader() {
    let mut made = Made::new("colocated");
    for node in 0..2 {
        made.round(node, "acceptor", 1, 0);
    }
    let (verdict, _, lines) = said(&made);
    assert_eq!(verdict, Verdict::NotServing);
    assert_eq!(
        lines,
        ["writes: no write quorum of acceptors follows the node that claims to lead"]
    );
}

#[test]
fn a_node_counts_on_the_nodes_that_it_is_connected_to() {
    for preset in PRESETS {
        let made = Made::new(preset);
        let mut status = made.cluster.nodes[0].status.clone().unwrap();
        let seen = |status: &NodeStatus| {
            tolerance_seen_by(&Published {
                at: std::time::Instant::now(),
                status: status.clone(),
                configuration: Some(made.known.clone()),
            })
        };
        assert_eq!(seen(&status), Some(1), "{preset}");
        status.peers[0].state = PeerState::Disconnected;
        assert_eq!(seen(&status), Some(0), "{preset}");
        status.peers[1].state = PeerState::Disconnected;
        assert_eq!(seen(&status), None, "{preset}");
    }
}

#[test]
fn troubles_have_ids_and_the_leader_is_named() {
    let mut made = Made::new("colocated");
    assert_eq!(made.health().leader.as_deref(), Some("n0"));
    made.gone(2);
    let json = serde_json::to_value(made.health()).unwrap();
    let ids = |list: &str| {
        let list = json[list].as_array().unwrap().iter();
        list.map(|it| it["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("troubles"), ["node_down", "tolerance_low"]);
    assert_eq!(ids("not_served"), [""; 0]);
    made.gone(1);
    let json = serde_json::to_value(made.health()).unwrap();
    assert_eq!(json["not_served"][0]["id"], "no_quorum");
}

/// An expired certificate of one node, or of the command, says nothing about the service.
#[test]
fn a_node_that_others_are_connected_to_is_presumed_to_run() {
    let mut made = Made::new(PRESETS[0]);
    made.silent(1);
    let lines =
        ["node n1 does not answer this command, though it is connected to n0, n2: it is silent"];
    assert_eq!(
        said(&made),
        (Verdict::Degraded, Some(1), lines.map(String::from).to_vec())
    );
    // It is the one that leads.
    for preset in PRESETS {
        let mut made = Made::new(preset);
        made.silent(0);
        let (verdict, tolerance, what) = said(&made);
        assert_eq!(
            (verdict, tolerance),
            (Verdict::Degraded, Some(1)),
            "{preset}: {what:?}"
        );
        let unknown = "no node that answers leads; whether n0 does is not known";
        assert_eq!(what[1], unknown, "{preset}");
    }
    // Only one answers, and it is none that leads: a new round has begun without it.
    let mut made = Made::new(PRESETS[0]);
    (0..2).for_each(|node| made.silent(node));
    assert_eq!(said(&made).0, Verdict::Degraded);
    // The one that leads answers alone.
    let mut made = Made::new(PRESETS[0]);
    (1..3).for_each(|node| made.silent(node));
    assert_eq!(said(&made).0, Verdict::Degraded);
    // Two processes hang: the system keeps their connections for a while.
    (1..3).for_each(|node| made.cluster.nodes[node].refused = false);
    assert_eq!(said(&made).0, Verdict::NotServing);
    (1..3).for_each(|node| made.cluster.nodes[node].refused = true);
    assert_eq!(said(&made).0, Verdict::Degraded);
    made.deaf(0, 1);
    made.deaf(0, 2);
    assert_eq!(said(&made).0, Verdict::NotServing);
}

/// A node that waits for a majority answers, and is no service.
#[test]
fn nodes_that_answer_and_take_no_part_are_counted() {
    let mut made = Made::new(PRESETS[0]);
    (0..3).for_each(|node| made.status(node).takes_part = false);
    let (verdict, _, what) = said(&made);
    assert_eq!(verdict, Verdict::NotServing);
    assert!(what[0].contains(": 0 of 3 "), "{}", what[0]);
}

#[test]
fn programs_that_differ_for_hours_are_a_trouble_and_an_upgrade_is_none() {
    let mut made = Made::new("colocated");
    for (node, release) in ["1.0", "1.1", "1.1"].into_iter().enumerate() {
        let status = made.status(node);
        (status.release, status.uptime_us) = (Some(release.into()), 5 * 3_600_000_000);
    }
    let text = "nodes have run different programs for 5 hours: 1.0 on n0; 1.1 on n1, n2. Finish \
                the upgrade";
    let found = (Verdict::Degraded, Some(1), vec![text.to_owned()]);
    assert_eq!(said(&made), found);
    made.status(2).uptime_us = 3_600_000_000;
    assert_eq!(said(&made), (Verdict::Healthy, Some(1), vec![]));
}

#[test]
fn a_node_far_behind_the_others_is_a_trouble() {
    let mut made = Made::new("colocated");
    let options = made.known.deployment.options.options();
    let retained = options.retained_slots as u64;
    for (lag, troubles) in [(retained * 4 / 5, 0), (retained * 4 / 5 + 1, 1)] {
        for (node, executed) in [retained * 2, retained * 2, retained * 2 - lag]
            .into_iter()
            .enumerate()
        {
            made.status(node).roles[0].executed = Some(executed);
        }
        let (_, _, found) = said(&made);
        assert_eq!(found.len(), troubles, "{found:?}");
        let named = |text: &String| text.starts_with(&format!("node n2 is {lag} slots behind"));
        assert!(found.iter().all(named), "{found:?}");
    }
}

#[test]
fn refused_certificates_are_a_trouble() {
    let mut made = Made::new("colocated");
    made.status(1).tls = Some(TlsStatus {
        certificate: CertificateStatus {
            not_after: i64::from(u32::MAX),
            ..CertificateStatus::default()
        },
        refusal: Some("no key".into()),
        ..TlsStatus::default()
    });
    let (verdict, _, found) = said(&made);
    assert_eq!((verdict, found.len()), (Verdict::Degraded, 1), "{found:?}");
    assert!(found[0].starts_with("node n1 does not take") && found[0].ends_with(": no key"));
}

#[test]
fn a_cluster_whose_disks_are_all_full_does_not_serve_writes() {
    let mut made = Made::new(PRESETS[0]);
    for node in 0..2 {
        made.status(node).log.is_full = true;
        assert_eq!(said(&made).0, Verdict::Degraded);
    }
    made.status(2).log.is_full = true;
    let health = made.health();
    assert_eq!(health.health, Verdict::NotServing);
    let why = &health.not_served[0].text;
    assert_eq!(why, "writes: the disks of all nodes that answer are full");
}
