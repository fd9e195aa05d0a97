//! From a deployment and a workload to what the simulator measures, or the utilization law
//! projects.

use super::arguments::Figure;
use super::deployments::in_words;
use super::point::{Measure, Point};
use crate::model::Workload;
use crate::model::costs::MessageCosts;
use crate::model::demand::{Demands, KV, Kind, NODE};
use crate::model::price::Prices;
use crate::model::projection::{Projection, project};
use crate::payload::payload;
use anyhow::{Result, bail};
use bytes::Bytes;
use ionian_deployment::{CLIENT, Deployment};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::kv;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::performance::{Measured, Service, Setting, measure};

/// A burst with so much to do ends: what it sent is on its way before a node looks at its sockets
/// again.
const BURST_US: f64 = 100.0;
/// By how much the delay of the network varies.
const NETWORK_JITTER: f64 = 0.2;
/// Keys that clients write and read.
const KEYS: u64 = 1000;

/// What all figures of a run are made with.
pub(crate) struct Bench {
    pub(crate) demands: Demands,
    pub(crate) network_delay_us: f64,
    pub(crate) wake_us: f64,
    pub(crate) quick: bool,
}

impl Bench {
    pub(crate) fn new(arguments: &Figure) -> Result<Self> {
        let Figure {
            demands,
            network_delay_us,
            wake_us,
            quick,
            ..
        } = arguments;
        Ok(Bench {
            demands: Demands::load(demands.as_deref())?,
            network_delay_us: *network_delay_us,
            wake_us: *wake_us,
            quick: *quick,
        })
    }

    /// A few of `all` when it is to be quick: the first, the last and one between.
    pub(crate) fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.quick && all.len() > 3 => {
                vec![*first, all[all.len() / 2], *last]
            }
            _ => all.to_vec(),
        }
    }

    /// The projected peak of a deployment.
    pub(crate) fn project(
        &self,
        series: &str,
        deployment: &Deployment,
        workload: &Workload,
        exempt: &[&str],
    ) -> Result<Point> {
        let Projection {
            peak, bottleneck, ..
        } = project(&self.demands, deployment, workload, exempt)?;
        let point = about(
            Point::new(series, Measure::Projected, peak),
            deployment,
            workload,
        );
        Ok(Point {
            bottleneck: Some(bottleneck),
            ..point
        })
    }

    /// What a whole node of this preset was measured to do among real ones, unbatched; `None` where
    /// that was not measured.
    pub(crate) fn whole_node(&self, series: &str, preset: &str, batch: usize) -> Option<Point> {
        let node = self
            .demands
            .measured(preset, NODE, Kind::Write, KV)
            .ok()
            .filter(|_| batch == 1)?;
        let point = Point::new(series, Measure::Measured, 1e6 / node.demand_us);
        Some(Point {
            demand_us: Some(node.demand_us),
            value_bytes: Some(node.value_bytes),
            ..point
        })
    }

    /// What the simulator measures with this number of clients.
    pub(crate) fn simulate(
        &self,
        series: &str,
        deployment: &Deployment,
        workload: &Workload,
        exempt: &[&str],
        clients: usize,
    ) -> Result<Point> {
        let measured = match deployment.protocol.as_str() {
            MultiPaxos::NAME => {
                self.measure(deployment, workload, exempt, clients, measure::<MultiPaxos>)?
            }
            Mencius::NAME => {
                self.measure(deployment, workload, exempt, clients, measure::<Mencius>)?
            }
            SPaxos::NAME => {
                self.measure(deployment, workload, exempt, clients, measure::<SPaxos>)?
            }
            Unreplicated::NAME => self.measure(
                deployment,
                workload,
                exempt,
                clients,
                measure::<Unreplicated>,
            )?,
            other => bail!("protocol = {other:?}: there is no simulation of its performance"),
        };
        let ms = |us: f64| Some(us / 1000.0);
        let point = Point::new(series, Measure::Simulated, measured.requests_per_second);
        Ok(Point {
            clients: Some(clients),
            mean_ms: ms(measured.latency_us.mean),
            p50_ms: ms(measured.latency_us.p50),
            p99_ms: ms(measured.latency_us.p99),
            bottleneck: busiest(deployment, &measured),
            ..about(point, deployment, workload)
        })
    }

    fn measure(
        &self,
        deployment: &Deployment,
        workload: &Workload,
        exempt: &[&str],
        clients: usize,
        measure: impl Fn(
            &Setting,
            &MessageCosts,
            &KeyValue,
        ) -> Result<Measured, ionian_kernel::layout::LayoutError>,
    ) -> Result<Measured> {
        let kinds = match deployment.protocol.as_str() {
            MultiPaxos::NAME => MultiPaxos::KINDS,
            Mencius::NAME => Mencius::KINDS,
            SPaxos::NAME => SPaxos::KINDS,
            _ => Unreplicated::KINDS,
        };
        let is_clients = |kind: &str| kind == CLIENT || exempt.contains(&kind);
        let prices = Prices::new(&self.demands, deployment, workload.value_bytes, exempt)?;
        let costs = MessageCosts::new(prices, workload.batch);
        let rounds = if self.quick { 3 } else { 20 };
        let least = if self.quick { 1_000 } else { 20_000 };
        let setting = Setting {
            layout: deployment.layout(kinds)?,
            clients,
            read_fraction: workload.read_fraction,
            read_level: workload.read_level,
            client_kinds: (0..)
                .zip(kinds)
                .filter(|(_, kind)| is_clients(kind))
                .map(|(place, _)| place)
                .collect(),
            network_delay_us: self.network_delay_us,
            network_jitter: NETWORK_JITTER,
            wake_us: self.wake_us,
            burst_us: BURST_US,
            warm_up_requests: (rounds / 2).max(5) * clients as u64,
            requests: least.max(rounds * clients as u64),
            longest_us: 1_000_000,
        };
        Ok(measure(
            &setting,
            &costs,
            &KeyValue {
                value_bytes: workload.value_bytes,
            },
        )?)
    }
}

fn about(point: Point, deployment: &Deployment, workload: &Workload) -> Point {
    Point {
        batch: (workload.batch > 1).then_some(workload.batch),
        value_bytes: Some(workload.value_bytes),
        read_fraction: (workload.read_fraction > 0.0).then_some(workload.read_fraction),
        deployment: Some(in_words(deployment)),
        ..point
    }
}

/// The node that was busiest, with how busy it was; none where none was nearly always.
fn busiest(deployment: &Deployment, measured: &Measured) -> Option<String> {
    let (node, part) = measured.busiest()?;
    let place = deployment.ids().iter().position(|id| *id == node)?;
    Some(format!(
        "{} {:.0} %",
        deployment.nodes[place].name,
        part * 100.0
    ))
}

/// The key-value store that comes with Ionian, with the papers' commands.
pub(super) struct KeyValue {
    pub(super) value_bytes: usize,
}

impl KeyValue {
    fn key(client: usize, number: u64) -> Bytes {
        Bytes::from(format!(
            "{:08}",
            (client as u64 * 7919 + number * 104_729) % KEYS
        ))
    }
}

impl Service for KeyValue {
    fn write(&self, client: usize, number: u64) -> Bytes {
        let value = Bytes::from(vec![b'v'; self.value_bytes]);
        payload(&[
            Bytes::from_static(b"SET"),
            KeyValue::key(client, number),
            value,
        ])
        .into()
    }

    fn read(&self, client: usize, number: u64) -> Bytes {
        payload(&[Bytes::from_static(b"GET"), KeyValue::key(client, number)]).into()
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(kv::Kv::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::deployments::{batches, preset};
    use super::*;
    use crate::model::price::tests::demands;

    /// What is projected from the demands is what the real roles do when each message takes its
    /// time.
    #[test]
    fn simulations_of_saturated_deployments_reach_what_is_projected() {
        let bench = Bench {
            demands: demands(),
            network_delay_us: 50.0,
            wake_us: 5.0,
            quick: false,
        };
        let reads = Workload {
            read_fraction: 0.9,
            ..Workload::writes(1)
        };
        let cases = [
            ("compartmentalized", Workload::writes(1), 1000),
            ("compartmentalized", reads, 1000),
            ("baseline", Workload::writes(1), 300),
            ("batched", Workload::writes(100), 4000),
            ("mencius-compartmentalized", Workload::writes(1), 1000),
            ("mencius-batched", Workload::writes(100), 4000),
            ("mencius", Workload::writes(1), 300),
            ("spaxos-compartmentalized", Workload::writes(1), 1000),
            ("spaxos-batched", Workload::writes(100), 4000),
            ("spaxos", Workload::writes(1), 300),
            ("unreplicated", Workload::writes(1), 300),
        ];
        for (name, workload, clients) in cases {
            let deployment = batches(preset(name, 9).unwrap(), workload.batch).unwrap();
            let projected = bench.project(name, &deployment, &workload, &[]).unwrap();
            let simulated = bench
                .simulate(name, &deployment, &workload, &[], clients)
                .unwrap();
            let off = simulated.commands_per_second / projected.commands_per_second - 1.0;
            assert!(
                off.abs() < 0.05,
                "{name}: {off:+.3} of {projected:?}, {simulated:?}"
            );
        }
    }
}
