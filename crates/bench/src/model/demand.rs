//! Service demands: what one instance of a role spends on a command, measured by `ionian bench
//! role` on one saturated process of each role.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The demands that come with this version, measured by its authors.
const BUILT_IN: &str = include_str!("../../../../docs/figures/demands.json");

/// What `ionian bench role all --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Demands {
    /// The machine, in words: processors, memory, system.
    pub(crate) machine: String,
    /// When it was measured, `YYYY-MM-DD`.
    pub(crate) date: String,
    /// The version of Ionian that was measured.
    pub(crate) version: String,
    /// Whether the numbers are invented, for development. What is drawn from such says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) placeholder: bool,
    /// One measurement each.
    pub(crate) demands: Vec<Demand>,
}

fn is_false(it: &bool) -> bool {
    !it
}

/// The state machine of nearly all measurements.
pub(crate) const KV: &str = "kv";
/// The one that does nothing.
pub(crate) const NOTHING: &str = "nothing";

fn kv() -> String {
    KV.to_owned()
}

fn all() -> f64 {
    1.0
}

/// What one saturated instance of a role spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Demand {
    /// The preset that the instance belonged to: it says how many messages a command takes.
    pub(crate) deployment: String,
    /// The role, by its name in a deployment file.
    pub(crate) role: String,
    /// What it was asked for.
    pub(crate) workload: Kind,
    /// Commands of a batch; for reads, reads of an inquiry.
    pub(crate) batch: usize,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// The state machine that executed.
    #[serde(default = "kv")]
    pub(crate) machine: String,
    /// Whether the rest of the deployment was real: then it is by command of the whole deployment.
    #[serde(default)]
    pub(crate) real: bool,
    /// The part of the time for which the process was allowed to run.
    #[serde(default = "all")]
    pub(crate) share: f64,
    /// Commands in which that one instance took part, per second.
    pub(crate) commands_per_second: f64,
    /// Microseconds of its processor time for each of them.
    pub(crate) demand_us: f64,
    /// The part of a processor that the process had while it was allowed to run. Well below 1 it
    /// slept between bursts, which costs: the demand is then an upper bound.
    pub(crate) busy: f64,
    /// The least and the most microseconds for each command in any round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) range_us: Option<(f64, f64)>,
    /// Messages that it took in for each.
    pub(crate) messages_in: f64,
    /// Messages that it sent for each; one that goes to several nodes counts several times.
    pub(crate) messages_out: f64,
    /// Their bytes.
    pub(crate) bytes_in: f64,
    /// Their bytes.
    pub(crate) bytes_out: f64,
}

/// What a role was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Its part in a write.
    Write,
    /// Its part in a read.
    Read,
    /// Of a replica: to execute a write without answering it.
    Execute,
    /// Of a replica: to answer a write that it executes anyway.
    Answer,
    /// Of a stabilizer: to keep a write.
    Store,
    /// Of a stabilizer: to hand a write that it keeps to the replicas.
    Deliver,
}

/// Every role that can be measured, with what can be asked of it.
pub(crate) const ROLES: &[(&str, &[Kind])] = &[
    ("leader", &[Kind::Write]),
    ("proxy_leader", &[Kind::Write]),
    ("acceptor", &[Kind::Write, Kind::Read]),
    ("replica", &[Kind::Execute, Kind::Answer, Kind::Read]),
    ("batcher", &[Kind::Write]),
    ("read_batcher", &[Kind::Read]),
    ("unbatcher", &[Kind::Write]),
    ("disseminator", &[Kind::Write]),
    ("stabilizer", &[Kind::Store, Kind::Deliver]),
    ("server", &[Kind::Write, Kind::Read]),
    (NODE, &[Kind::Write]),
];

/// A whole node of a deployment that has every role on each of its nodes, in place of a role.
pub(crate) const NODE: &str = "node";

impl Kind {
    /// Its name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Execute => "execute",
            Kind::Answer => "answer",
            Kind::Store => "store",
            Kind::Deliver => "deliver",
        }
    }

    /// An instance that does this does that as well, and the measurement contains both.
    pub(crate) fn comes_on_top_of(self) -> Option<Kind> {
        match self {
            Kind::Answer => Some(Kind::Execute),
            Kind::Deliver => Some(Kind::Store),
            _ => None,
        }
    }
}

/// A process that had less of a processor than this was not saturated.
pub(crate) const SATURATED: f64 = 0.9;

impl Demands {
    /// How many of the measurements were of processes that were not saturated, and of how many.
    pub(crate) fn unsaturated(&self) -> (usize, usize) {
        (
            self.demands
                .iter()
                .filter(|demand| demand.busy < SATURATED)
                .count(),
            self.demands.len(),
        )
    }

    /// Those of a file; without one those that come with this version.
    ///
    /// # Errors
    /// When the file cannot be read, or is not what `ionian bench role all --json` prints.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self> {
        let (text, name) = match path {
            Some(path) => {
                let name = path.display().to_string();
                (
                    std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?,
                    name,
                )
            }
            None => (
                BUILT_IN.to_owned(),
                "the demands that come with this version".to_owned(),
            ),
        };
        Demands::parse(&text)
            .with_context(|| format!("{name}: not what `ionian bench role all --json` prints"))
    }

    fn parse(text: &str) -> Result<Self> {
        let demands: Demands = serde_json::from_str(text)?;
        for demand in &demands.demands {
            let Demand {
                deployment,
                role,
                workload,
                batch,
                demand_us,
                ..
            } = demand;
            let name = format!("{role} of {deployment}, {}", workload.name());
            ensure!(
                *batch > 0,
                "{name}: batch = 0: a batch has at least one command"
            );
            // What comes on top of something may be lost in the noise; everything else costs
            // something.
            let least = if workload.comes_on_top_of().is_some() {
                0.0
            } else {
                1e-6
            };
            ensure!(
                (least..=1e6).contains(demand_us),
                "{name}: demand_us = {demand_us}: must be {least} to 1000000"
            );
        }
        Ok(demands)
    }

    /// What one measurement found, of values of 16 bytes.
    ///
    /// # Errors
    /// Names it when there is none.
    pub(crate) fn measured(
        &self,
        deployment: &str,
        role: &str,
        kind: Kind,
        machine: &str,
    ) -> Result<&Demand> {
        let is_it = |it: &&Demand| {
            let real = it.real == (role == NODE);
            real && (
                it.deployment.as_str(),
                it.role.as_str(),
                it.workload,
                it.machine.as_str(),
                it.value_bytes,
            ) == (deployment, role, kind, machine, 16)
        };
        let found = self.demands.iter().find(is_it);
        found.with_context(|| {
            format!(
                "the demands lack {role}, {}, of {deployment} with machine {machine}",
                kind.name()
            )
        })
    }

    /// What was measured with the rest of the deployment real, executing for good.
    pub(crate) fn among_real(&self) -> impl Iterator<Item = &Demand> {
        self.demands
            .iter()
            .filter(|demand| demand.real && demand.machine == KV)
    }

    /// What the measurements say of a role; `adjust` says what each comes to where it is to be
    /// used. `None` when there are none.
    ///
    /// # Errors
    /// Those of `adjust`.
    pub(crate) fn curve(
        &self,
        deployments: &[&str],
        role: &str,
        kind: Kind,
        value_bytes: usize,
        adjust: impl Fn(&Demand) -> Result<f64>,
    ) -> Result<Option<Curve>> {
        let known = self.demands.iter().filter(|demand| {
            demand.role == role
                && demand.workload == kind
                && demand.machine == KV
                && !demand.real
                && deployments.contains(&demand.deployment.as_str())
        });
        let points: Vec<_> = known
            .map(|demand| {
                Ok((
                    demand.batch as f64,
                    demand.value_bytes as f64,
                    adjust(demand)?,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Curve::new(&points, value_bytes as f64))
    }
}

/// What a whole batch costs, by the number of its commands: straight lines through what was
/// measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// From measurements: batch, bytes of a value, microseconds a command.
    fn new(points: &[(f64, f64, f64)], value_bytes: f64) -> Option<Self> {
        let mut batches: Vec<f64> = points.iter().map(|(batch, ..)| *batch).collect();
        batches.sort_by(f64::total_cmp);
        batches.dedup();
        let whole = |batch: f64| {
            let mut sizes: Vec<(f64, f64)> = points
                .iter()
                .filter(|(of, ..)| *of == batch)
                .map(|(_, bytes, us)| (*bytes, *us))
                .collect();
            sizes.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            (batch, batch * straight(&sizes, value_bytes))
        };
        (!batches.is_empty()).then(|| Curve(batches.into_iter().map(whole).collect()))
    }

    /// Microseconds for a batch of this many commands.
    pub(crate) fn batch_us(&self, commands: f64) -> f64 {
        match self.0[..] {
            // One measurement says nothing of a part that all commands of a batch share.
            [(batch, us)] => us * commands / batch,
            _ => straight(&self.0, commands),
        }
    }

    /// Microseconds for each command of such a batch.
    pub(crate) fn command_us(&self, batch: f64) -> f64 {
        self.batch_us(batch) / batch
    }
}

/// The value at `x` of the straight lines through `points`, which are in order; the first and the
/// last line go on, but not below zero. A single point says that it is the same everywhere.
fn straight(points: &[(f64, f64)], x: f64) -> f64 {
    let [.., last] = points else { return 0.0 };
    if points.len() == 1 {
        return last.1;
    }
    let right = points
        .iter()
        .position(|(at, _)| *at >= x)
        .unwrap_or(points.len() - 1)
        .max(1);
    let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
    (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demands_that_come_with_this_version_are_well_formed() {
        let demands = Demands::load(None).unwrap();
        let again = serde_json::to_string(&demands).unwrap();
        assert_eq!(Demands::parse(&again).unwrap(), demands);
        let wrong = again.replace("\"demand_us\":", "\"demand_us\":-");
        assert!(
            Demands::parse(&wrong)
                .unwrap_err()
                .to_string()
                .contains("must be 0.000001 to")
        );
    }

    #[test]
    fn what_was_measured_otherwise_is_no_price_of_a_role() {
        let mut demands = super::super::price::tests::demands();
        let us = |demands: &Demands| {
            let curve = demands.curve(
                &["compartmentalized"],
                "replica",
                Kind::Execute,
                16,
                |demand| Ok(demand.demand_us),
            );
            curve.unwrap().unwrap().command_us(1.0)
        };
        let (before, known) = (
            us(&demands),
            demands
                .demands
                .iter()
                .position(|demand| demand.role == "replica")
                .unwrap(),
        );
        let execute = demands.demands[known].clone();
        let nothing = Demand {
            machine: NOTHING.to_owned(),
            demand_us: 1.5,
            ..execute.clone()
        };
        demands.demands.splice(
            0..0,
            [
                nothing,
                Demand {
                    real: true,
                    demand_us: 9.0,
                    ..execute
                },
            ],
        );
        assert_eq!(us(&demands), before);
        let of =
            |role, machine| demands.measured("compartmentalized", role, Kind::Execute, machine);
        assert_eq!(of("replica", NOTHING).unwrap().demand_us, 1.5);
        assert_eq!(of("replica", KV).unwrap().demand_us, before);
        let error = of(NODE, KV).unwrap_err().to_string();
        assert_eq!(
            error,
            "the demands lack node, execute, of compartmentalized with machine kv"
        );
        assert_eq!(
            demands
                .among_real()
                .map(|demand| demand.demand_us)
                .collect::<Vec<_>>(),
            [9.0]
        );
    }

    #[test]
    fn a_batch_costs_what_it_costs_alone_and_something_for_each_command() {
        // Alone 1 us, a hundred together 100 x 0.02 us: so 0.99 us and 0.0101 us a command.
        let curve = Curve::new(&[(100.0, 16.0, 0.02), (1.0, 16.0, 1.0)], 16.0).unwrap();
        assert_eq!((curve.batch_us(1.0), curve.batch_us(100.0)), (1.0, 2.0));
        let ten = 1.0 + 9.0 / 99.0;
        assert!(
            (curve.batch_us(10.0) - ten).abs() < 1e-12
                && (curve.command_us(10.0) - ten / 10.0).abs() < 1e-12
        );
        assert!(
            (curve.batch_us(199.0) - 3.0).abs() < 1e-12,
            "the last line goes on"
        );
    }

    #[test]
    fn values_between_two_sizes_cost_what_lies_between() {
        let points = [(1.0, 16.0, 1.0), (1.0, 1016.0, 3.0)];
        let us = |bytes| Curve::new(&points, bytes).unwrap().batch_us(1.0);
        assert_eq!((us(16.0), us(516.0), us(1016.0)), (1.0, 2.0, 3.0));
        assert_eq!(
            Curve::new(&points[..1], 1000.0).unwrap().command_us(7.0),
            1.0,
            "nothing is known of other sizes"
        );
        assert_eq!(Curve::new(&[], 16.0), None);
    }
}
