//! What `ionian status` would say, for the dashboard of a node.

use super::cluster::{Answer, ask_all, lags};
use super::health::{Verdict, judge};
use super::{Report, Trouble};
use crate::protocols;
use ionian_dashboard::{Look, Node, Placed};
use ionian_deployment::Configuration;
use std::time::Duration;

/// Time limit for one node. A node without an answer is drawn as failed, so the limit is shorter
/// than that of commands.
const LIMIT: Duration = Duration::from_secs(1);

/// Asks all nodes, and judges as `ionian status` does.
pub(crate) async fn look_from_node(known: &Configuration) -> Look {
    let cluster = ask_all(known, LIMIT).await;
    let health = judge(known, &cluster, None);
    let report = Report { health, cluster };
    let document = report.document();
    let lags = lags(&report.cluster);
    let nodes = report.cluster.nodes.iter().map(|node| {
        let lag = lags.get(node.name.as_str()).copied();
        member(known, node, lag)
    });
    let Report { health, cluster } = &report;
    let stops = health.not_served.iter().map(|it| trouble(it, true));
    let others = health.troubles.iter().map(|it| trouble(it, false));
    Look {
        document,
        cluster: cluster.cluster.clone(),
        protocol: cluster.protocol.clone(),
        f: cluster.f,
        epoch: cluster.epoch,
        changing: cluster.changing,
        health: name_of(&health.health),
        failure_tolerance: health.failure_tolerance,
        leader: health
            .leader
            .clone()
            .filter(|_| health.health != Verdict::NotServing),
        troubles: stops.chain(others).collect(),
        kinds: protocols::kinds(&cluster.protocol),
        nodes: nodes.collect(),
    }
}

fn member(known: &Configuration, node: &Answer, lag: Option<u64>) -> Node {
    let deployments = known.next.iter().chain([&known.deployment]);
    let numbered = deployments.filter_map(|deployment| deployment.numbered().ok());
    let mut placed: Vec<Placed> = numbered
        .flat_map(|deployment| deployment.nodes)
        .filter(|it| it.name == node.name)
        .flat_map(|it| it.roles)
        .filter_map(|it| {
            Some(Placed {
                role: it.role,
                index: it.number?,
            })
        })
        .collect();
    // While the membership changes both deployments name a node.
    placed.sort_by(|one, other| (&one.role, one.index).cmp(&(&other.role, other.index)));
    placed.dedup();
    Node {
        name: node.name.clone(),
        gateway: node.gateway.clone(),
        error: node.error.clone(),
        status: node.status.clone(),
        lag,
        placed,
    }
}

fn trouble(it: &Trouble, stops: bool) -> ionian_dashboard::Trouble {
    ionian_dashboard::Trouble {
        id: name_of(&it.id),
        text: it.text.clone(),
        alert: it.id.alert(),
        stops,
    }
}

/// The name of a variant, as JSON has it.
fn name_of(variant: &impl serde::Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a variant without fields is a string, not {other:?}"),
    }
}
