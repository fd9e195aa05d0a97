//! A plan: the deployment, what it can do, and why it is not a smaller one.

use crate::family::{Family, MAX_NODES};
use crate::model::{Counts, Model, NodeLoad};
use crate::prices::{Prices, Provenance};
use crate::search::{Candidate, MAX_AFTER_FAILURES, Outcome, Search};
use crate::workload::{Workload, short};
use anyhow::{Result, bail, ensure};
use ionian_deployment::{Deployment, Durability, MAX_F, PresetOptions, presets};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is asked of a plan.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What clients will ask.
    pub workload: Workload,
    /// How many nodes may fail.
    pub f: usize,
    /// Where nodes store state that must survive a crash.
    pub durability: Durability,
    /// The only protocol that is considered; all without one.
    pub protocol: Option<String>,
    /// How busy an event loop may be, as a share of a processor.
    pub headroom: f64,
    /// How many times as fast a processor is as the one of the prices.
    pub speed: f64,
    /// The name and the addresses of the cluster.
    pub addresses: PresetOptions,
}

/// See the top of this file.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The preset that the deployment has grown from.
    pub preset: &'static str,
    /// Its protocol.
    pub protocol: &'static str,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many may fail.
    pub f: usize,
    /// Commands a second that it is to carry.
    pub commands: f64,
    /// Commands a second at which the first node is busy all the time.
    pub peak: f64,
    /// Commands a second up to which all limits hold.
    pub within_limits: f64,
    /// How busy a node may be.
    pub headroom: f64,
    /// The nodes, by their roles.
    pub groups: Vec<GroupPlan>,
    /// Microseconds of a processor that each node spends on a command of the cluster, by its name.
    pub node_us: BTreeMap<String, f64>,
    /// The group that is nearest to its limit, by its title.
    pub binds: String,
    /// With one more node of the group that is busiest, or one more column of the grid.
    pub one_more: Option<Step>,
    /// With one less.
    pub one_less: Option<Step>,
    /// What the other presets would take.
    pub others: Vec<Other>,
    /// Where the prices were measured.
    pub demands: Provenance,
    /// How many times as fast a processor is as the one of the prices.
    pub speed: f64,
    /// How many connections wait for an answer at a time.
    pub connections: usize,
    /// How long each may wait for it, in milliseconds, so that they ask for so much: with longer
    /// answers it takes more connections.
    pub answer_ms: f64,
    /// The deployment.
    #[serde(skip)]
    pub deployment: Deployment,
}

/// Nodes with the same roles.
#[derive(Clone, Debug, Serialize)]
pub struct GroupPlan {
    /// Their roles in words.
    pub title: String,
    /// How many.
    pub count: usize,
    /// How busy the busiest is, as a share of a processor.
    pub busy: f64,
    /// How busy one may become when f nodes are gone.
    pub after_failures: f64,
    /// Bytes a second that the busiest sends to other nodes.
    pub bytes_out: f64,
    /// Which limit it is nearest to.
    pub nearest: Limit,
    /// How much of that limit it uses.
    pub used: f64,
}

/// What bounds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// How busy it may be while all nodes work.
    Headroom,
    /// How busy it may be after f failures.
    AfterFailures,
}

/// What a deployment with one node more or less would do.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The group, by its title.
    pub group: String,
    /// Its nodes then.
    pub count: usize,
    /// All nodes then.
    pub nodes: usize,
    /// Commands a second at which the first node is busy all the time.
    pub peak: f64,
    /// Whether all limits would hold.
    pub fits: bool,
    /// The group that is nearest to its limit then, and how much of it it uses.
    pub binds: String,
    /// See `binds`.
    pub used: f64,
}

/// Another preset.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    /// Its name.
    pub preset: &'static str,
    /// Nodes that it would take; none if it cannot carry the load.
    pub nodes: Option<usize>,
    /// Why it cannot.
    pub why: Option<String>,
}

impl Wanted {
    /// Checks that a plan can be made for it.
    ///
    /// # Errors
    /// Names what is not as it must be.
    pub fn check(&self) -> Result<()> {
        self.workload.check()?;
        ensure!(self.f <= MAX_F, "f = {}: must be 0 to {MAX_F}", self.f);
        ensure!(
            (0.05..=MAX_AFTER_FAILURES).contains(&self.headroom),
            "headroom {}: must be 0.05 to {MAX_AFTER_FAILURES}",
            short(self.headroom)
        );
        ensure!(
            (0.01..=100.0).contains(&self.speed),
            "speed {}: must be 0.01 to 100",
            short(self.speed)
        );
        Ok(())
    }
}

/// Makes a plan.
///
/// # Errors
/// If what is wanted makes no sense, cannot be planned, or no deployment carries it; the text says
/// why for each preset.
pub fn plan(wanted: &Wanted, prices: &Prices, counts: &Counts) -> Result<Plan> {
    wanted.check()?;
    let mut fitting: Vec<(Search<'_>, Candidate)> = Vec::new();
    let mut others = Vec::new();
    for preset in candidates(wanted, prices)? {
        let refuse = |why| Other {
            preset,
            nodes: None,
            why: Some(why),
        };
        let family = match Family::of(preset, wanted.f, wanted.durability) {
            Ok(family) => family.with_addresses(wanted.addresses.clone()),
            Err(error) => {
                others.push(refuse(error.to_string()));
                continue;
            }
        };
        let model = Model {
            prices,
            workload: &wanted.workload,
            speed: wanted.speed,
            counts,
        };
        let search = Search::new(model, family, wanted.headroom)?;
        match search.run()? {
            Outcome::Fits(found) => fitting.push((search, found)),
            Outcome::Refused(why) => others.push(refuse(why)),
        }
    }
    // Of equals the first, in the order of the presets.
    fitting.sort_by_key(|(_, found)| found.shape.nodes());
    let mut fitting = fitting.into_iter();
    let Some((search, found)) = fitting.next() else {
        let whys = others.iter().filter_map(|other| {
            let why = other.why.as_ref()?;
            Some(format!("\n  {}: {why}", other.preset))
        });
        bail!(
            "no deployment of at most {MAX_NODES} nodes carries this load:{}",
            whys.collect::<String>()
        );
    };
    let more = fitting.map(|(search, found)| Other {
        preset: search.family.name,
        nodes: Some(found.shape.nodes()),
        why: None,
    });
    let others = more.chain(others).collect();
    described(wanted, &search, &found, others)
}

/// The presets that are considered, in the order of the registry.
fn candidates(wanted: &Wanted, prices: &Prices) -> Result<Vec<&'static str>> {
    let known = presets().filter(|(_, preset)| prices.presets.contains_key(preset.name));
    let known: Vec<_> = known.collect();
    let chosen = known.iter().filter(|(protocol, _)| {
        let asked = wanted.protocol.as_deref();
        asked.is_none_or(|name| name == protocol.name)
    });
    let chosen: Vec<_> = chosen.map(|(_, preset)| preset.name).collect();
    if chosen.is_empty() {
        let mut names: Vec<_> = known.iter().map(|(protocol, _)| protocol.name).collect();
        names.dedup();
        bail!(
            "protocol {:?} cannot be planned: there are no demands of it; those of {} are known",
            wanted.protocol.as_deref().unwrap_or("any"),
            names.join(", ")
        );
    }
    Ok(chosen)
}

fn described(
    wanted: &Wanted,
    search: &Search<'_>,
    found: &Candidate,
    others: Vec<Other>,
) -> Result<Plan> {
    let family = &search.family;
    let binding = search.binding(&found.loads);
    let step = |shape: Option<_>| {
        let candidate = shape.map(|shape| search.candidate(shape)).transpose()?;
        anyhow::Ok(candidate.map(|it| step(wanted, search, binding, &it)))
    };
    let groups = (0..family.groups.len()).map(|group| group_plan(search, found, group));
    Ok(Plan {
        preset: family.name,
        protocol: family.protocol,
        nodes: found.shape.nodes(),
        f: wanted.f,
        commands: wanted.workload.all(),
        peak: peak(wanted, found),
        within_limits: wanted.workload.all() / search.group_strain(&found.loads, binding),
        headroom: wanted.headroom,
        groups: groups.collect(),
        node_us: node_us(wanted, found),
        binds: family.groups[binding].title(),
        one_more: step(family.grown(&found.shape, binding, 1))?,
        one_less: step(family.shrunk(&found.shape, binding))?,
        others,
        demands: search.model.prices.measured.clone(),
        speed: wanted.speed,
        connections: wanted.workload.connections,
        answer_ms: answer_ms(&wanted.workload),
        deployment: family.deployment(&found.shape)?,
    })
}

/// Of the processors that are planned for, which may be faster than those of the prices.
fn node_us(wanted: &Wanted, found: &Candidate) -> BTreeMap<String, f64> {
    let us = |busy: f64| busy * 1e6 / wanted.workload.all();
    let nodes = found.loads.0.iter();
    nodes
        .map(|node| (node.name.clone(), us(node.busy())))
        .collect()
}

/// How long answers may take where these connections ask for so much: Little's law.
fn answer_ms(workload: &Workload) -> f64 {
    (workload.connections * workload.pipeline) as f64 * 1e3 / workload.all()
}

/// Commands a second at which the first node is busy all the time.
fn peak(wanted: &Wanted, found: &Candidate) -> f64 {
    let busy = found.loads.0.iter().map(|node| node.busy());
    wanted.workload.all() / busy.fold(0.0, f64::max)
}

fn step(wanted: &Wanted, search: &Search<'_>, group: usize, then: &Candidate) -> Step {
    let binding = search.binding(&then.loads);
    Step {
        group: search.family.groups[group].title(),
        count: then.shape.counts[group],
        nodes: then.shape.nodes(),
        peak: peak(wanted, then),
        fits: search.fits(&then.loads),
        binds: search.family.groups[binding].title(),
        used: search.group_strain(&then.loads, binding),
    }
}

fn group_plan(search: &Search<'_>, found: &Candidate, group: usize) -> GroupPlan {
    let of_group = || found.loads.of_group(group);
    let most = |of: fn(&NodeLoad) -> f64| of_group().map(of).fold(0.0, f64::max);
    let (busy, failed) = (most(|node| node.busy()), most(|node| node.failed));
    let nearest = match busy / search.headroom >= failed / MAX_AFTER_FAILURES {
        true => Limit::Headroom,
        false => Limit::AfterFailures,
    };
    GroupPlan {
        title: search.family.groups[group].title(),
        count: found.shape.counts[group],
        busy,
        after_failures: failed,
        bytes_out: most(|node| node.bytes_out),
        nearest,
        used: search.group_strain(&found.loads, group),
    }
}
