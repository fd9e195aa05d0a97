//! From a deployment and a workload to what the simulator measures, or the utilization law
//! projects.

use super::arguments::Figure;
use super::deployments::in_words;
use super::live::{self, Subject};
use super::point::{Measure, Point};
use crate::model::Workload;
use crate::model::costs::MessageCosts;
use crate::model::kernel;
use crate::model::measure::{Clock, measure};
use crate::model::parallel::{Found, Meter};
use anyhow::{Context, Result};
use bytes::Bytes;
use ionian_costs::{Commands, Service};
use ionian_deployment::{CLIENT, Deployment};
use ionian_harness::host::Machine;
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::StateMachine;
use ionian_machines::kv;
use ionian_planner::demand::Measured;
use ionian_planner::executed::Counted;
use ionian_planner::projection::{Projection, project};
use ionian_sim::Simulated;
use ionian_sim::performance::{self, Setting};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A burst with so much to do ends: what it sent is on its way before a node looks at its sockets
/// again.
const BURST_US: f64 = 100.0;
/// By how much the delay of the network varies.
const NETWORK_JITTER: f64 = 0.2;
/// Keys that clients write and read.
const KEYS: usize = 1000;
/// Commands under way at most when it is to be quick.
const FEW_UNDER_WAY: usize = 256;
/// How often the processor time of a deployment is measured.
const ROUNDS: usize = 7;

/// The same of one with workers, which takes longer.
const LOADED_ROUNDS: usize = 3;

/// What all figures of a run are made with.
pub(crate) struct Bench {
    clock: Clock,
    /// How a real process is measured.
    pub(super) live: fn(&Subject) -> Result<live::Found>,
    /// What was measured already, by deployment and workload.
    measured: RefCell<BTreeMap<String, Rc<Measured>>>,
    /// How deployments with workers are measured.
    pub(super) meter: Meter,
    /// What was measured so, by deployment and load.
    parallel: RefCell<BTreeMap<String, Rc<Found>>>,
    /// The machine, in words: processors, memory, system.
    pub(super) machine: String,
    /// When it was measured, `YYYY-MM-DD`.
    pub(super) date: String,
    pub(crate) network_delay_us: f64,
    pub(crate) wake_us: f64,
    pub(crate) quick: bool,
    /// Why the numbers may be wrong, if so.
    pub(super) caution: Option<String>,
}

/// Why numbers that are measured so may be wrong, if so.
fn caution(quick: bool, machine: &Machine) -> Option<String> {
    let quick = quick.then(|| "a quick run: its numbers are no findings".to_owned());
    let busy = machine.busy_load().map(|load| {
        let processors = machine.processors;
        format!("not a quiet machine: load average {load} on {processors} processors")
    });
    let all: Vec<String> = quick.into_iter().chain(busy).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl Bench {
    /// Measures with the processor's clock.
    ///
    /// # Errors
    /// If the costs of the kernel cannot be measured.
    pub(crate) fn new(arguments: &Figure) -> Result<Self> {
        let (rounds, loaded) = match arguments.quick {
            true => (1, (1, 2000)),
            false => (ROUNDS, (LOADED_ROUNDS, 131_072)),
        };
        let kernel = kernel::measure()?;
        let clock = Clock::Processor { kernel, rounds };
        let wake = Duration::from_nanos((arguments.wake_us * 1000.0) as u64);
        let meter = Meter::processor(kernel, wake, loaded)?;
        Ok(Bench::with(arguments, (clock, meter), live::measure))
    }

    pub(super) fn with(
        arguments: &Figure,
        (clock, meter): (Clock, Meter),
        live: fn(&Subject) -> Result<live::Found>,
    ) -> Self {
        let machine = Machine::look();
        Bench {
            clock,
            live,
            measured: RefCell::default(),
            meter,
            parallel: RefCell::default(),
            caution: caution(arguments.quick, &machine),
            machine: machine.to_string(),
            date: crate::report::today(),
            network_delay_us: arguments.network_delay_us,
            wake_us: arguments.wake_us,
            quick: arguments.quick,
        }
    }

    /// Two of `all` when it is to be quick: the first and the last.
    pub(crate) fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.quick => vec![*first, *last],
            _ => all.to_vec(),
        }
    }

    /// What each node of a deployment spends on a command.
    pub(crate) fn measured(
        &self,
        deployment: &Deployment,
        workload: &Workload,
    ) -> Result<Rc<Measured>> {
        let key = format!("{workload:?}\n{}", deployment.to_toml());
        if let Some(known) = self.measured.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = Rc::new(measure(deployment, workload, (KEYS, true), self.clock)?);
        self.measured.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// What each node of a deployment with workers spends on the commands of a service; `name`
    /// tells that apart from others.
    pub(super) fn parallel(
        &self,
        deployment: &Deployment,
        name: &str,
        service: &dyn Fn() -> Box<dyn Service>,
        under_way: usize,
    ) -> Result<Rc<Found>> {
        let under_way = if self.quick {
            under_way.min(FEW_UNDER_WAY)
        } else {
            under_way
        };
        let key = format!("{name}, {under_way}\n{}", deployment.to_toml());
        if let Some(known) = self.parallel.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = self.meter.measure(deployment, service(), under_way)?;
        let found = Rc::new(found);
        self.parallel.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// The projection of a deployment.
    pub(crate) fn projection(
        &self,
        deployment: &Deployment,
        workload: &Workload,
        exempt: &[&str],
    ) -> Result<Projection> {
        project(&*self.measured(deployment, workload)?, exempt)
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
        } = self.projection(deployment, workload, exempt)?;
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

    /// What the simulator measures with this number of clients.
    pub(crate) fn simulate(
        &self,
        series: &str,
        deployment: &Deployment,
        workload: &Workload,
        exempt: &[&str],
        clients: usize,
    ) -> Result<Point> {
        let protocol = simulated(&deployment.protocol)?;
        let demand = self.measured(deployment, workload)?;
        let layout = deployment.layout(protocol.description().kinds)?;
        let costs = MessageCosts::new(&demand, &layout, exempt);
        let service = KeyValue(Commands::new(&workload.load(KEYS, true)));
        let client_kinds = demand.kinds_named(&[&[CLIENT], exempt].concat());
        let setting = self.setting(layout.clone(), client_kinds, workload, clients);
        let measured = performance::measure(protocol, &setting, &costs, &service)?;
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

    fn setting(
        &self,
        layout: Layout,
        client_kinds: Vec<u8>,
        workload: &Workload,
        clients: usize,
    ) -> Setting {
        let rounds = if self.quick { 3 } else { 20 };
        let least = if self.quick { 1_000 } else { 20_000 };
        Setting {
            layout,
            clients,
            read_fraction: workload.read_fraction,
            read_level: workload.read_level,
            client_kinds,
            network_delay_us: self.network_delay_us,
            network_jitter: NETWORK_JITTER,
            wake_us: self.wake_us,
            burst_us: BURST_US,
            warm_up_requests: (rounds / 2).max(5) * clients as u64,
            requests: least.max(rounds * clients as u64),
            longest_us: 1_000_000,
        }
    }
}

/// The protocol of this name.
pub(super) fn simulated(name: &str) -> Result<Simulated> {
    Simulated::named(name).with_context(|| format!("protocol = {name:?}: does not exist"))
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
fn busiest(deployment: &Deployment, measured: &performance::Measured) -> Option<String> {
    let (node, part) = measured.busiest()?;
    let place = deployment.ids().iter().position(|id| *id == node)?;
    Some(format!(
        "{} {:.0} %",
        deployment.nodes[place].name,
        part * 100.0
    ))
}

/// The key-value store that comes with Ionian, with the commands by which deployments are measured.
struct KeyValue(Commands);

impl KeyValue {
    fn key(client: usize, number: u64) -> usize {
        client * 7919 + number as usize * 104_729
    }
}

impl performance::Service for KeyValue {
    fn write(&self, client: usize, number: u64) -> Bytes {
        self.0.write(KeyValue::key(client, number))
    }

    fn read(&self, client: usize, number: u64) -> Bytes {
        self.0.read(KeyValue::key(client, number))
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Counted(Box::new(kv::Kv::default())))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::deployments::{batches, preset};
    use super::super::invented::{BATCHED, UNBATCHED};
    use super::*;

    /// Measures by invented costs.
    pub(in super::super) fn invented(costs: fn(&str, f64) -> f64, quick: bool) -> Bench {
        let arguments = Figure {
            figure: "all".to_owned(),
            out: "figures".into(),
            network_delay_us: 50.0,
            wake_us: 5.0,
            quick,
        };
        let clock = Clock::Invented(costs);
        Bench::with(
            &arguments,
            (clock, Meter::invented()),
            live::tests::invented,
        )
    }

    #[test]
    fn quick_runs_and_busy_machines_are_named() {
        let machine = |load_average| Machine {
            processors: 2,
            load_average,
            ..Machine::look()
        };
        let quiet = [None, Some(0.5)].map(machine);
        assert_eq!(quiet.map(|it| caution(false, &it)), [None, None]);
        let both = caution(true, &machine(Some(8.5)));
        assert_eq!(
            both.as_deref(),
            Some(
                "a quick run: its numbers are no findings; not a quiet machine: load average 8.5 on 2 \
                 processors"
            )
        );
    }

    /// What is projected is what the real roles do in the simulator when each message takes its
    /// time.
    #[test]
    #[ignore = "takes minutes: `cargo xtask deep`"]
    fn simulations_of_saturated_deployments_reach_what_is_projected() {
        let reads = Workload {
            read_fraction: 0.9,
            ..Workload::writes(1)
        };
        // The leaders of Mencius skip slots here, where each is ahead of the others in turn.
        let (near, skipping) = (0.05, 0.08);
        let cases = [
            ("compartmentalized", Workload::writes(1), 1000, near),
            ("compartmentalized", reads, 1000, near),
            ("baseline", Workload::writes(1), 300, near),
            ("batched", Workload::writes(100), 4000, near),
            ("mencius-compartmentalized", Workload::writes(1), 1000, near),
            ("mencius-batched", Workload::writes(100), 4000, skipping),
            ("mencius", Workload::writes(1), 300, near),
            ("spaxos-compartmentalized", Workload::writes(1), 1000, near),
            ("spaxos-batched", Workload::writes(100), 4000, near),
            ("spaxos", Workload::writes(1), 300, near),
            ("unreplicated", Workload::writes(1), 300, near),
        ];
        for (name, workload, clients, most) in cases {
            let costs = if workload.batch > 1 {
                BATCHED
            } else {
                UNBATCHED
            };
            let bench = invented(costs, false);
            let deployment = batches(preset(name, 9).unwrap(), workload.batch).unwrap();
            let projected = bench.project(name, &deployment, &workload, &[]).unwrap();
            let simulated = bench
                .simulate(name, &deployment, &workload, &[], clients)
                .unwrap();
            let off = simulated.commands_per_second / projected.commands_per_second - 1.0;
            assert!(
                off.abs() < most,
                "{name}: {off:+.3} of {projected:?}, {simulated:?}"
            );
        }
    }
}
