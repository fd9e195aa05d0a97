//! The utilization law: a deployment in which each node has a processor of its own reaches its peak
//! when one of them is busy all the time.

use crate::demand::Measured;
use anyhow::{Context, Result};
use ionian_deployment::CLIENT;
use std::collections::BTreeMap;

/// What a deployment can do under a workload, and what it is that it cannot do more.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// Commands per second.
    pub peak: f64,
    /// The role on the node that is busy first; "a whole node" where several roles share it.
    pub bottleneck: String,
    /// For each role the microseconds that its busiest node spends on it for each command of the
    /// workload.
    pub roles: BTreeMap<String, f64>,
}

/// A role with a smaller part of what its node spends does not take part in commands.
const PART: f64 = 0.01;

/// Projects one deployment. Clients and the roles in `exempt` take no time: they stand for the
/// paper's client machines.
///
/// # Errors
/// When no node takes part in a command.
pub fn project(measured: &Measured, exempt: &[&str]) -> Result<Projection> {
    let is_free = |kind: u8| {
        let name = measured.kinds[usize::from(kind)];
        name == CLIENT || exempt.contains(&name)
    };
    let mut roles: BTreeMap<String, f64> = BTreeMap::new();
    let mut busiest: Option<(f64, String)> = None;
    for node in &measured.nodes {
        let mut here = node.roles();
        here.retain(|kind, us| !is_free(*kind) && *us > 0.0);
        for (kind, us) in &here {
            let name = measured.kinds[usize::from(*kind)].to_owned();
            let most = roles.entry(name).or_default();
            *most = most.max(*us);
        }
        let us: f64 = here.values().sum();
        if us > busiest.as_ref().map_or(0.0, |(most, _)| *most) {
            here.retain(|_, of| *of > PART * us);
            let kinds: Vec<u8> = here.into_keys().collect();
            let name = match kinds[..] {
                [kind] => measured.kinds[usize::from(kind)].to_owned(),
                _ => format!("a whole node ({})", node.name),
            };
            busiest = Some((us, name));
        }
    }
    let (us, bottleneck) = busiest.context("nothing in this deployment takes part in a command")?;
    Ok(Projection {
        peak: 1e6 / us,
        bottleneck,
        roles,
    })
}
