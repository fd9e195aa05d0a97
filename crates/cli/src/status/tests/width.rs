//! The text of artificial clusters is as wide as a terminal.

use super::super::cluster::instances;
use super::super::text;
use super::Made;

/// With every figure of every role at its largest, a node that is down and one that drains.
#[test]
fn no_line_is_longer_than_100_columns_and_nothing_is_lost() {
    let long = |name: &str| format!("{name}-{}", "x".repeat(64 - 1 - name.len()));
    for (_, preset) in ionian_deployment::presets() {
        for is_long in [false, true] {
            let mut made = Made::new(preset.name);
            for (place, node) in made.cluster.nodes.iter_mut().enumerate() {
                let status = node.status.as_mut().unwrap();
                (status.pid, status.uptime_us) = (u32::MAX, u64::MAX);
                for role in &mut status.roles {
                    (role.executed, role.log_end) = (Some(u64::MAX), Some(u64::MAX));
                    let names = (0..9).map(|it| format!("figure_of_a_role_{it}"));
                    role.metrics = names.map(|name| (name, u64::MAX)).collect();
                }
                if is_long {
                    let host = format!("ionian-{place}.ionian.default.svc.cluster.local");
                    (node.address, node.gateway) = (format!("{host}:17400"), Some(host + ":7379"));
                    node.name = long(&node.name);
                    status.name.clone_from(&node.name);
                    made.known.deployment.nodes[place]
                        .name
                        .clone_from(&node.name);
                }
            }
            if is_long {
                made.cluster.cluster = long("made");
            }
            if made.cluster.nodes.len() > 1 {
                made.drain(0);
                made.gone(1);
            }
            let health = made.health();
            let shown = text::show(&made.known, &made.cluster, &health, true);
            let widest = shown
                .lines()
                .max_by_key(|line| line.chars().count())
                .unwrap();
            let (preset, width) = (preset.name, widest.chars().count());
            assert!(width <= 100, "{preset}, {width} columns: {widest}\n{shown}");
            let is_space = |it: char| it.is_ascii_whitespace();
            let solid = shown.replace(is_space, "");
            let texts = health
                .troubles
                .iter()
                .chain(&health.not_served)
                .map(|it| it.text.clone());
            let nodes = made.cluster.nodes.iter().flat_map(|node| {
                [&node.name, &node.address]
                    .map(String::clone)
                    .into_iter()
                    .chain(node.gateway.clone())
            });
            let figures = instances(&made.cluster).flat_map(|(_, role)| {
                let figures = role.figures().into_iter().filter(|(_, value)| *value > 0);
                figures
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
            });
            for part in texts
                .chain(nodes)
                .chain(figures)
                .chain([made.cluster.cluster.clone()])
            {
                assert!(
                    solid.contains(&part.replace(is_space, "")),
                    "{preset}: {part}\n{shown}"
                );
            }
        }
    }
}
