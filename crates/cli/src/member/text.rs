//! The members as text.

use super::progress::{Statuses, waits};
use ionian_deployment::{Configuration, Placed};
use std::fmt::Write;

/// The nodes with their roles, and the change in progress.
pub(super) fn show(known: &Configuration, statuses: &Statuses) -> String {
    let deployment = known.target();
    let (cluster, epoch) = (&deployment.cluster, known.epoch().0);
    let mut text = match &known.next {
        None => format!("cluster {cluster}: epoch {epoch}\n"),
        Some(_) => format!("cluster {cluster}: epoch {epoch}, a change is in progress\n"),
    };
    for (id, node) in known.nodes() {
        let state = if statuses.contains_key(&node.name) {
            "up"
        } else {
            "DOWN"
        };
        let [before, after] =
            [&known.deployment, deployment].map(|of| of.place(&node.name).is_ok());
        let what = match (before, after) {
            (true, true) => "",
            (false, _) => " (joins)",
            (true, false) => " (leaves)",
        };
        let name = format!("{}{what}", node.name);
        let gateway = node.gateway.as_deref().unwrap_or("-");
        let _ = writeln!(
            text,
            "{:>4}  {name:<20} {state:<5} {:<22} {gateway:<22} {}",
            id.0,
            node.address,
            roles(known, &node.name)
        );
    }
    for wait in waits(known, statuses) {
        let _ = writeln!(text, "! waits for {wait}");
    }
    text
}

/// The node's roles in both deployments: `+` marks added roles, `-` removed ones.
fn roles(known: &Configuration, name: &str) -> String {
    let of = |deployment: &ionian_deployment::Deployment| -> Vec<Placed> {
        let nodes = deployment
            .numbered()
            .map(|numbered| numbered.nodes)
            .unwrap_or_default();
        nodes
            .into_iter()
            .find(|node| node.name == name)
            .map(|node| node.roles)
            .unwrap_or_default()
    };
    let (before, after) = (of(&known.deployment), of(known.target()));
    let stay = before
        .iter()
        .filter(|placed| after.contains(placed))
        .map(Placed::to_string);
    let leave = before
        .iter()
        .filter(|placed| !after.contains(placed))
        .map(|placed| format!("-{placed}"));
    let join = after
        .iter()
        .filter(|placed| !before.contains(placed))
        .map(|placed| format!("+{placed}"));
    stay.chain(leave).chain(join).collect::<Vec<_>>().join(" ")
}
