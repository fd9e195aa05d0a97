//! `ionian bench figure psmr-*`: figures 3 to 8 of the P-SMR paper (section VII).
//!
//! The paper's servers have eight cores. Here each thread of a replica has a processor of its own
//! on timelines (`model::threads`), whatever the machine has.
//!
//! | file | job |
//! |---|---|
//! | `service` | the paper's key-value service, and what its clients ask for |
//! | `store` | in place of Berkeley DB: a map with locks, by itself |
//! | `independent` | psmr-3, psmr-4: each at its best number of threads |
//! | `scale` | psmr-5: 1 to 8 threads |
//! | `mixed` | psmr-6: from which part of dependent commands on one thread is better |
//! | `skew` | psmr-7: keys by Zipf's distribution |
//! | `files` | psmr-8: NetFS |
//! | `gain` | psmr-gain: what parallel execution adds to compartmentalization |

pub(super) mod files;
pub(super) mod gain;
pub(super) mod independent;
pub(super) mod mixed;
pub(super) mod scale;
pub(super) mod service;
pub(super) mod skew;
mod store;

use super::deployments::{batches, grid, preset, scaled};
use super::point::{Measure, Point, short};
use super::simulate::Bench;
use crate::model::parallel::{Found, NodeTime};
use anyhow::Result;
use ionian_costs::Service;
use ionian_deployment::Deployment;
use service::{Mix, Tree};
use std::rc::Rc;

/// Machines with clients.
const LANES: usize = 6;

/// Commands of a batch: about as many as have room in the paper's 8 KB.
const BATCH: usize = 200;

/// Commands under way: enough to fill a batch for each group.
const UNDER_WAY: usize = 65_536;

/// Keys that exist at first, as in the paper.
const KEYS: u64 = 10_000_000;
const FEW_KEYS: u64 = 2_000;

/// The most threads that the paper has.
const MOST_THREADS: usize = 8;

/// One of the paper's ways to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    NoRep,
    Smr,
    SpSmr,
    PSmr,
}

impl System {
    pub(super) const ALL: [System; 4] = [System::NoRep, System::Smr, System::SpSmr, System::PSmr];

    pub(super) fn name(self) -> &'static str {
        match self {
            System::NoRep => "no-rep",
            System::Smr => "SMR",
            System::SpSmr => "sP-SMR",
            System::PSmr => "P-SMR",
        }
    }

    /// Numbers of threads that execute.
    fn threads(self) -> &'static [usize] {
        match self {
            System::Smr => &[1],
            _ => &[1, 2, 4, MOST_THREADS],
        }
    }

    /// The deployment that executes on this number of threads. Everything but the replicas is
    /// multiplied until it keeps nothing back.
    fn deployment(self, threads: usize, batch: usize) -> Result<Deployment> {
        let base = match self {
            System::NoRep => preset("unreplicated-batched", LANES)?,
            _ => preset("batched", LANES)?,
        };
        let mut deployment = scaled(scaled(base, "batcher", 8)?, "unbatcher", 8)?;
        if self != System::NoRep {
            deployment = grid(scaled(deployment, "proxy_leader", 6)?, 2, 4)?;
        }
        if self == System::PSmr {
            deployment.protocol = "psmr".to_owned();
            // One for each group, and one for what is for all.
            deployment = scaled(deployment, "leader", threads + 1)?;
        }
        let setting = match self {
            System::PSmr => format!("options.groups={threads}"),
            _ => format!("options.workers={threads}"),
        };
        batches(deployment.with_overrides(&[setting])?, batch)
    }
}

impl Bench {
    /// What a deployment spends on the commands of the tree.
    fn tree(&self, system: System, threads: usize, mix: Mix) -> Result<Rc<Found>> {
        let keys = if self.quick { FEW_KEYS } else { KEYS };
        let deployment = system.deployment(threads, BATCH)?;
        let service = || -> Box<dyn Service> { Box::new(Tree::new(keys, mix)) };
        self.parallel(&deployment, &format!("{mix:?}"), &service, UNDER_WAY)
    }

    /// The peak of a system for the commands of the tree, with this number of threads.
    fn peak(&self, system: System, threads: usize, mix: Mix) -> Result<Point> {
        let found = self.tree(system, threads, mix)?;
        Ok(point(system.name(), threads, &found))
    }

    /// The peaks for several numbers of threads.
    fn peaks(&self, system: System, mix: Mix) -> Result<Vec<Point>> {
        let threads = self.some(system.threads());
        threads
            .into_iter()
            .map(|threads| self.peak(system, threads, mix))
            .collect()
    }
}

/// The busiest of the nodes that execute.
fn executing(found: &Found) -> Option<&NodeTime> {
    let executes = |node: &&NodeTime| {
        let mut roles = node.roles.iter();
        roles.any(|role| role == "replica" || role == "server")
    };
    let nodes = found.nodes.iter().filter(executes);
    nodes.max_by(|one, other| one.us().total_cmp(&other.us()))
}

fn point(series: &str, threads: usize, found: &Found) -> Point {
    let executing = executing(found);
    Point {
        threads: Some(threads),
        thread_us: executing.map(|node| node.thread_us + node.system_us),
        worker_us: executing.map(|node| node.worker_us()),
        bottleneck: Some(found.bottleneck()),
        ..Point::new(series, Measure::Projected, found.peak())
    }
}

/// The highest.
fn best(points: &[Point]) -> &Point {
    let best = points.iter().max_by(|one, other| {
        one.commands_per_second
            .total_cmp(&other.commands_per_second)
    });
    best.expect("there is a point")
}

/// A throughput of the paper, with the number of threads that it was reached with.
fn published(series: &str, threads: usize, per_second: f64) -> Point {
    Point {
        threads: Some(threads),
        ..Point::new(series, Measure::Published, per_second)
    }
}

/// What a system reached, in words.
fn reached(point: &Point) -> String {
    let threads = point.threads.unwrap_or(1);
    let plural = if threads == 1 { "" } else { "s" };
    format!(
        "{} {}/s with {threads} thread{plural}",
        point.series,
        short(point.commands_per_second)
    )
}

/// What must be known to read the figures.
fn notes(bench: &Bench) -> Vec<String> {
    vec![
        format!(
            "Ours is `batched` with more batchers, unbatchers and proxy leaders and a 2x4 grid of acceptors; two replicas, \
             batches of up to {BATCH} commands, {UNDER_WAY} commands under way."
        ),
        format!(
            "Each thread of a replica has a processor of its own: tasks of workers run on the thread that measures, and \
             their time passes beside its own. To wake a sleeping worker takes {:.1} us of the thread's time. What processors \
             lose by sharing memory is not in it.",
            bench.meter.wake_us()
        ),
    ]
}
