//! What each role of one deployment spends under one workload.

use super::demand::{Curve, Demand, Demands, Kind, ROLES};
use anyhow::{Result, anyhow};
use ionian_deployment::{Deployment, Node, PresetOptions};
use ionian_kernel::id::Set;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use std::collections::BTreeMap;

/// Prices of the roles of one deployment.
#[derive(Clone, Debug)]
pub(crate) struct Prices(BTreeMap<(String, Kind), Curve>);

impl Prices {
    /// The prices of `deployment` for values of this size. Roles in `exempt` take no time: they
    /// stand for the paper's client machines.
    ///
    /// # Errors
    /// Names what was not measured.
    pub(crate) fn new(
        demands: &Demands,
        deployment: &Deployment,
        value_bytes: usize,
        exempt: &[&str],
    ) -> Result<Self> {
        Prices::of(
            &deployment.protocol,
            demands,
            deployment,
            value_bytes,
            exempt,
        )
    }

    /// What the roles of `deployment` would cost if they cost what those of this protocol do.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of(
        protocol: &str,
        demands: &Demands,
        deployment: &Deployment,
        value_bytes: usize,
        exempt: &[&str],
    ) -> Result<Self> {
        let family = family(protocol);
        let here: Vec<&str> = deployment
            .nodes
            .iter()
            .flat_map(|node| node.instances().into_keys())
            .collect();
        let mut prices = BTreeMap::new();
        for (role, kinds) in ROLES
            .iter()
            .filter(|(role, _)| here.contains(role) && !exempt.contains(role))
        {
            for kind in *kinds {
                let adjust = |demand: &Demand| fan_out(demand, deployment);
                let family = if matches!(*role, "batcher" | "read_batcher" | "unbatcher") {
                    ALIKE
                } else {
                    family
                };
                let curve = demands.curve(family, role, *kind, value_bytes, adjust)?;
                let missing = || {
                    anyhow!(
                        "the demands lack {role}, {}, of {}",
                        kind.name(),
                        family.join(" or ")
                    )
                };
                // What an unreplicated server spends on reads is in no figure, and need not be
                // measured.
                if let Some(curve) = curve {
                    prices.insert(((*role).to_owned(), *kind), curve);
                } else if *role != "server" || *kind != Kind::Read {
                    return Err(missing());
                }
            }
        }
        Ok(Prices(prices))
    }

    /// Microseconds for a whole batch of this many commands; nothing for a role that takes no time.
    pub(crate) fn batch_us(&self, role: &str, kind: Kind, commands: usize) -> f64 {
        self.curve(role, kind)
            .map_or(0.0, |curve| curve.batch_us(commands as f64))
    }

    /// Microseconds for each command of such a batch.
    pub(crate) fn command_us(&self, role: &str, kind: Kind, batch: usize) -> f64 {
        self.curve(role, kind)
            .map_or(0.0, |curve| curve.command_us(batch as f64))
    }

    fn curve(&self, role: &str, kind: Kind) -> Option<&Curve> {
        self.0.get(&(role.to_owned(), kind))
    }
}

/// The presets whose measurements say what a role of this protocol costs. Roles on one node spare
/// each other the network, so what is measured apart is the most that they cost together.
fn family(protocol: &str) -> &'static [&'static str] {
    match protocol {
        MultiPaxos::NAME => &["compartmentalized", "batched"],
        Mencius::NAME => &["mencius-compartmentalized", "mencius-batched"],
        SPaxos::NAME => &["spaxos-compartmentalized", "spaxos-batched"],
        _ => &["unreplicated", "unreplicated-batched"],
    }
}

/// The preset that batchers and unbatchers of all protocols are measured in: they do the same
/// everywhere.
const ALIKE: &[&str] = &["batched"];

/// The demand of a role that has others to talk to than in the preset that it was measured in: in
/// proportion to its messages.
fn fan_out(demand: &Demand, target: &Deployment) -> Result<f64> {
    let measured = Deployment::preset(&demand.deployment, &PresetOptions::default())?;
    let messages = |deployment| messages(deployment, &demand.role, demand.workload);
    Ok(match (messages(target)?, messages(&measured)?) {
        (Some(there), Some(here)) => demand.demand_us * there / here,
        _ => demand.demand_us,
    })
}

/// What a role takes in and sends for one slot, or payload, where that depends on how many others
/// there are.
fn messages(deployment: &Deployment, role: &str, kind: Kind) -> Result<Option<f64>> {
    let count = |wanted: &str| {
        let of = |node: &Node| node.instances().get(wanted).copied().unwrap_or_default();
        deployment.nodes.iter().map(of).sum::<usize>()
    };
    let is_spaxos = deployment.protocol == SPaxos::NAME;
    let (beside, stored) = match is_spaxos {
        true => spaxos_copies(deployment)?,
        false => (0, 0),
    };
    let votes = 2 * quorum(&deployment.quorums, count("acceptor"));
    let messages = match (role, kind) {
        // Phase2a, to a write quorum and back; to those stabilizers that tell replicas, and to the
        // disseminator.
        ("proxy_leader", _) if is_spaxos => 1 + votes + beside.max(1) + 1,
        // The same, and to every replica.
        ("proxy_leader", _) => 1 + votes + count("replica"),
        // The payload, to those that are to have it and back, to the leader, and that it is chosen.
        ("disseminator", _) => 3 + 2 * stored,
        // Each tells the replicas beside it, or one all.
        ("stabilizer", Kind::Deliver) => 1 + if beside > 0 { 1 } else { count("replica") },
        _ => return Ok(None),
    };
    Ok(Some(messages as f64))
}

/// How many stabilizers tell the replicas beside them, and how many are asked to keep a payload.
fn spaxos_copies(deployment: &Deployment) -> Result<(usize, usize)> {
    let config = SPaxos::configure(deployment.layout(SPaxos::KINDS)?)?;
    let quorum = config
        .stabilizers
        .write_quorum(config.stabilizers.members(), Set::EMPTY, 0);
    let beside: Set<_> = config
        .beside()
        .iter()
        .map(|(stabilizer, _)| *stabilizer)
        .collect();
    Ok((beside.len(), quorum.unwrap_or_default().or(beside).len()))
}

/// How many of them are a write quorum.
fn quorum(spec: &QuorumSpec, members: usize) -> usize {
    match *spec {
        QuorumSpec::Majority => members / 2 + 1,
        QuorumSpec::Grid { rows, .. } => rows,
        QuorumSpec::Groups { groups } => members / groups / 2 + 1,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::demand::KV;
    use super::*;

    /// One measurement of a role, of 16-byte values.
    pub(crate) fn demand(
        deployment: &str,
        role: &str,
        workload: Kind,
        batch: usize,
        demand_us: f64,
    ) -> Demand {
        Demand {
            deployment: deployment.to_owned(),
            role: role.to_owned(),
            workload,
            batch,
            value_bytes: 16,
            machine: KV.to_owned(),
            real: false,
            share: 1.0,
            commands_per_second: 1e6 / demand_us,
            demand_us,
            busy: 1.0,
            range_us: None,
            messages_in: 3.0 / batch as f64,
            messages_out: 6.0 / batch as f64,
            bytes_in: 0.0,
            bytes_out: 0.0,
        }
    }

    /// Unbatched: leader 1, proxy leader 9, acceptor 2, replica 4 + 2 to answer, reads 2,
    /// disseminator 7, stabilizer 1 and 5 to deliver; of batches of 100, all but the replica a
    /// tenth of that a command, batchers and unbatchers 0.5. The same in all protocols. An
    /// unreplicated server 5.
    pub(crate) fn demands() -> Demands {
        let mut demands = Vec::new();
        let unbatched = [
            "compartmentalized",
            "mencius-compartmentalized",
            "spaxos-compartmentalized",
        ];
        let batched = ["batched", "mencius-batched", "spaxos-batched"].map(|name| (name, 100, 0.1));
        for (deployment, batch, part) in unbatched
            .map(|name| (name, 1, 1.0))
            .into_iter()
            .chain(batched)
        {
            let mut add = |role, kind, us| demands.push(demand(deployment, role, kind, batch, us));
            add("leader", Kind::Write, part);
            add("proxy_leader", Kind::Write, 9.0 * part);
            add("acceptor", Kind::Write, 2.0 * part);
            add("acceptor", Kind::Read, 2.0 * part);
            add("replica", Kind::Execute, 4.0);
            add("replica", Kind::Answer, 2.0);
            add("replica", Kind::Read, 2.0);
            if deployment.starts_with("spaxos") {
                add("disseminator", Kind::Write, 7.0 * part);
                add("stabilizer", Kind::Store, part);
                add("stabilizer", Kind::Deliver, 5.0 * part);
            }
        }
        for (role, kind) in [
            ("batcher", Kind::Write),
            ("read_batcher", Kind::Read),
            ("unbatcher", Kind::Write),
        ] {
            demands.push(demand("batched", role, kind, 100, 0.5));
        }
        demands.push(demand("unreplicated", "server", Kind::Write, 1, 5.0));
        Demands {
            machine: String::new(),
            date: String::new(),
            version: String::new(),
            placeholder: true,
            demands,
        }
    }

    fn preset(name: &str) -> Deployment {
        Deployment::preset(name, &PresetOptions::default()).unwrap()
    }

    #[test]
    fn a_proxy_leader_pays_for_the_replicas_that_it_tells() {
        // Measured with a column of 2 acceptors and 4 replicas: 1 + 2 messages in, 2 + 4 out, 1 us
        // each.
        let demands = demands();
        let six = preset("compartmentalized")
            .with_overrides(&["node.replica-0.roles=replica*3"])
            .unwrap();
        let us = |deployment| {
            Prices::new(&demands, &deployment, 16, &[])
                .unwrap()
                .command_us("proxy_leader", Kind::Write, 1)
        };
        // The batched measurement (2 of 3 acceptors, 2 replicas) was of as many messages, so it is
        // adjusted too.
        assert!((us(preset("compartmentalized")) - 9.0).abs() < 1e-9);
        assert!((us(six) - 11.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_measured_is_named_and_what_is_exempt_is_not_missed() {
        let mut demands = demands();
        demands.demands.retain(|demand| demand.role != "unbatcher");
        assert!(Prices::new(&demands, &preset("compartmentalized"), 16, &[]).is_ok());
        let error = Prices::new(&demands, &preset("batched"), 16, &[])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the demands lack unbatcher, write, of batched");
        let prices = Prices::new(&demands, &preset("batched"), 16, &["unbatcher"]).unwrap();
        assert_eq!(prices.batch_us("unbatcher", Kind::Write, 100), 0.0);
        assert!((prices.batch_us("leader", Kind::Write, 100) - 10.0).abs() < 1e-9);
    }
}
