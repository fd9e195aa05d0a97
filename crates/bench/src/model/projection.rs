//! The utilization law: a deployment in which each node has a processor of its own reaches its peak
//! when one of them is busy all the time.

use super::price::Prices;
use super::share::{self, Share};
use super::{Workload, demand::Demands};
use anyhow::{Result, bail};
use ionian_deployment::Deployment;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use std::collections::{BTreeMap, BTreeSet};

/// What a deployment can do under a workload, and what it is that it cannot do more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Projection {
    /// Commands per second.
    pub(crate) peak: f64,
    /// The role that spends the most on the node that is busy first; "a whole node" where several
    /// roles share it.
    pub(crate) bottleneck: String,
    /// For each role the microseconds that its busiest node spends on it for each command of the
    /// workload.
    pub(crate) roles: BTreeMap<String, f64>,
}

/// Projects one deployment.
///
/// # Errors
/// When it is no deployment of its protocol, or a demand was not measured.
pub(crate) fn project(
    demands: &Demands,
    deployment: &Deployment,
    workload: &Workload,
    exempt: &[&str],
) -> Result<Projection> {
    let prices = Prices::new(demands, deployment, workload.value_bytes, exempt)?;
    let (shares, layout) = shares(deployment, workload)?;
    let mut nodes: BTreeMap<NodeId, f64> = BTreeMap::new();
    let mut roles: BTreeMap<(NodeId, &str), f64> = BTreeMap::new();
    for Share {
        role,
        node,
        kind,
        part,
    } in shares
    {
        let us = part * prices.command_us(role, kind, workload.batch);
        *nodes.entry(node).or_default() += us;
        *roles.entry((node, role)).or_default() += us;
    }
    let Some((node, us)) = nodes
        .iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
    else {
        bail!("nothing in this deployment takes part in a command")
    };
    let here: BTreeSet<&str> = roles
        .keys()
        .filter(|(at, _)| at == node)
        .map(|(_, role)| *role)
        .collect();
    let bottleneck = match here.len() {
        1 => here.into_iter().collect(),
        _ => format!("a whole node ({})", layout.name(*node)),
    };
    let mut busiest: BTreeMap<String, f64> = BTreeMap::new();
    for ((_, role), us) in &roles {
        let most = busiest.entry((*role).to_owned()).or_default();
        *most = most.max(*us);
    }
    Ok(Projection {
        peak: 1e6 / us,
        bottleneck,
        roles: busiest,
    })
}

fn shares(deployment: &Deployment, workload: &Workload) -> Result<(Vec<Share>, Layout)> {
    Ok(match deployment.protocol.as_str() {
        MultiPaxos::NAME => {
            let layout = deployment.layout(MultiPaxos::KINDS)?;
            (
                share::multipaxos(&*MultiPaxos::configure(layout.clone())?, workload),
                layout,
            )
        }
        Mencius::NAME => {
            let layout = deployment.layout(Mencius::KINDS)?;
            (
                share::mencius(&*Mencius::configure(layout.clone())?, &layout, workload),
                layout,
            )
        }
        SPaxos::NAME => {
            let layout = deployment.layout(SPaxos::KINDS)?;
            (
                share::spaxos(&SPaxos::configure(layout.clone())?, workload),
                layout,
            )
        }
        Unreplicated::NAME => {
            let layout = deployment.layout(Unreplicated::KINDS)?;
            (share::unreplicated(&layout, workload), layout)
        }
        other => bail!("protocol = {other:?}: there is no projection for it"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::price::tests::demands;
    use super::*;
    use ionian_deployment::PresetOptions;

    fn projected(preset: &str, overrides: &[&str], workload: &Workload) -> (Projection, f64) {
        let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
        let deployment = deployment.with_overrides(overrides).unwrap();
        let projection = project(&demands(), &deployment, workload, &[]).unwrap();
        let us = 1e6 / projection.peak;
        (projection, us)
    }

    fn reads(read_fraction: f64) -> Workload {
        Workload {
            read_fraction,
            ..Workload::writes(1)
        }
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-6
    }

    #[test]
    fn writes_of_a_decoupled_deployment() {
        // Replica: 4 to execute, 2 to answer one of four. Acceptor: one of two columns. Proxy
        // leader: one of ten.
        let (projection, us) = projected("compartmentalized", &[], &Workload::writes(1));
        assert!(near(us, 4.5), "{projection:?}");
        assert_eq!(projection.bottleneck, "replica");
        let role = |role: &str| projection.roles[role];
        assert!(
            near(role("leader"), 1.0)
                && near(role("proxy_leader"), 0.9)
                && near(role("acceptor"), 1.0)
        );
    }

    #[test]
    fn writes_of_a_coupled_node_add_up() {
        // The leader's node has the proxy leader of all, votes for all, executes all and answers a
        // third. The proxy leader has 1 + 2 messages in, 2 + 3 out, where nine cost 9 us.
        let (projection, us) = projected("baseline", &[], &Workload::writes(1));
        assert!(
            near(us, 1.0 + 8.0 + 2.0 + 4.0 + 2.0 / 3.0),
            "{projection:?}"
        );
        assert_eq!(projection.bottleneck, "a whole node (n0)");
    }

    #[test]
    fn reads_ask_a_row_and_one_replica_and_no_leader() {
        let (projection, us) = projected("compartmentalized", &[], &reads(1.0));
        assert!(near(us, 1.0), "{projection:?}");
        assert_eq!(projection.bottleneck, "acceptor");
        assert!(!projection.roles.contains_key("leader"));
        let eventual = Workload {
            read_level: ReadLevel::Eventual,
            ..reads(1.0)
        };
        let (projection, us) = projected("compartmentalized", &[], &eventual);
        assert!(near(us, 0.5), "{projection:?}");
        assert_eq!(projection.bottleneck, "replica");
    }

    #[test]
    fn mixed_workloads_add_up() {
        // A quarter writes: 0.25 x 4.5 and 0.75 x 2 / 4 at each replica.
        let (projection, us) = projected("compartmentalized", &[], &reads(0.75));
        assert!(near(us, 0.25 * 4.5 + 0.75 * 0.5), "{projection:?}");
        assert!(near(projection.roles["acceptor"], 0.25 * 1.0 + 0.75 * 1.0));
    }

    #[test]
    fn batches_spare_all_roles_but_replicas() {
        let (projection, us) = projected("batched", &[], &Workload::writes(100));
        assert!(near(us, 5.0), "{projection:?}");
        let role = |role: &str| projection.roles[role];
        assert!(
            near(role("acceptor"), 0.2 * 2.0 / 3.0),
            "a majority of three votes"
        );
        assert!(
            near(role("batcher"), 0.25)
                && near(role("unbatcher"), 0.5 / 3.0)
                && near(role("leader"), 0.1)
        );
    }

    #[test]
    fn leaders_of_mencius_share_the_writes() {
        let (projection, us) = projected("mencius-compartmentalized", &[], &Workload::writes(1));
        assert!(near(us, 4.0 + 2.0 / 3.0), "{projection:?}");
        let role = |role: &str| projection.roles[role];
        assert!(
            near(role("leader"), 1.0 / 3.0)
                && near(role("proxy_leader"), 0.9)
                && near(role("acceptor"), 1.0)
        );
        // Every node leads, proposes and answers a third, votes for two thirds and executes all.
        let (projection, us) = projected("mencius", &[], &Workload::writes(1));
        assert!(
            near(us, (1.0 + 9.0 + 2.0 * 2.0 + 2.0 + 0.5) / 3.0 + 4.0),
            "{projection:?}"
        );
    }

    #[test]
    fn payloads_of_s_paxos_go_round_the_leader() {
        // A column of two stores a payload, and one of the six hands it to the four replicas.
        let (projection, us) = projected("spaxos-compartmentalized", &[], &Workload::writes(1));
        assert!(
            near(us, 4.5) && projection.bottleneck == "replica",
            "{projection:?}"
        );
        let role = |role: &str| projection.roles[role];
        assert!(
            near(role("disseminator"), 7.0 / 3.0)
                && near(role("stabilizer"), 1.0 / 3.0 + 5.0 / 6.0)
        );
        assert!(near(role("leader"), 1.0) && near(role("proxy_leader"), 0.9));
        // As published all three stabilizers store it and hand it to the replica beside them; so a
        // third of 3 + 2 x 3 messages of a disseminator, 1 + 2 of a stabilizer, and 1 + 4 + 3 + 1
        // where seven cost a proxy leader 9.
        let (projection, us) = projected("spaxos", &[], &Workload::writes(1));
        let ordering = 1.0 + 9.0 * 9.0 / 7.0 + 2.0 + 4.0 + (2.0 + 0.5) / 3.0;
        assert!(near(us, ordering + 3.0 + 1.0 + 2.0), "{projection:?}");
    }

    #[test]
    fn the_server_alone() {
        assert!(near(
            projected("unreplicated", &[], &Workload::writes(1)).1,
            5.0
        ));
    }

    use ionian_kernel::client::ReadLevel;
}
