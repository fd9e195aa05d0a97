//! What a deployment with workers can do: every node of it, and every worker, has a processor of
//! its own (`threads`), and the busiest is busy all the time.

use super::kernel::waking;
use super::measure::processor_time;
use super::threads::{Look, Spent, Timelines, Waking};
use anyhow::{Context, Result, ensure};
use ionian_costs::count::{Counter, Pass, Place, Uncounted};
use ionian_costs::{Load, Run, Service, Traffic, begin_with};
use ionian_deployment::{CLIENT, Deployment};
use ionian_planner::demand::SystemCalls;
use std::sync::Arc;
use std::time::Duration;

/// Executed slots that a replica keeps for its peers.
const RETAINED_SLOTS: &str = "options.retained_slots=1024";

/// How deployments with workers are measured.
#[derive(Clone)]
pub(crate) struct Meter {
    look: Look,
    kernel: Option<SystemCalls>,
    waking: Waking,
    /// Of a number of rounds the median counts.
    rounds: usize,
    /// Commands of each, and before the first.
    commands: usize,
}

impl Meter {
    /// With the processor's clock. To wake a thread lasts `lasts`.
    ///
    /// # Errors
    /// If the system does not have such a clock, or threads cannot be started.
    pub(crate) fn processor(
        kernel: SystemCalls,
        lasts: Duration,
        (rounds, commands): (usize, usize),
    ) -> Result<Self> {
        processor_time()?;
        let takes = waking()?;
        Ok(Meter {
            look: Look::new(|| processor_time().unwrap_or_default()),
            kernel: Some(kernel),
            waking: Waking { takes, lasts },
            rounds,
            commands,
        })
    }

    /// With a clock that goes on by a microsecond whenever it is looked at, or by ten.
    #[cfg(test)]
    pub(crate) fn invented() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        let looks = AtomicU64::new(0);
        let us = Duration::from_micros;
        let look = move || {
            let looks = looks.fetch_add(1, Ordering::Relaxed);
            us(looks + looks / 5 * 9)
        };
        Meter {
            look: Look::new(look),
            kernel: None,
            waking: Waking {
                takes: us(1),
                lasts: us(5),
            },
            rounds: 1,
            commands: 200,
        }
    }

    /// Processor time of the thread that wakes another.
    pub(crate) fn wake_us(&self) -> f64 {
        self.waking.takes.as_secs_f64() * 1e6
    }

    /// Measures a deployment under a load of a service.
    ///
    /// # Errors
    /// If it is not a deployment of its protocol.
    pub(crate) fn measure(
        &self,
        deployment: &Deployment,
        service: Box<dyn Service>,
        burst: usize,
    ) -> Result<Found> {
        let deployment = deployment.clone().with_overrides(&[RETAINED_SLOTS])?;
        let load = Load {
            burst,
            filled: false,
            separate_clients: true,
            ..super::Workload::writes(1).load(1, true)
        };
        let nodes = deployment.nodes.len();
        let timelines = Arc::new(Timelines::new(nodes, &self.look, self.waking));
        let hire = timelines.clone();
        let hire = move |node, count| hire.hire(node, count);
        let mut run = begin_with(&deployment, &load, service, &hire)?;
        ensure!(run.nodes().len() == nodes, "every node has a role");
        let bursts = self.commands.div_ceil(burst).max(2);
        (0..bursts).for_each(|_| run.burst(&mut Uncounted));
        let rounds: Vec<Found> = (0..self.rounds)
            .map(|_| self.round(&deployment, &mut *run, &timelines, bursts))
            .collect();
        let found = median(rounds).context("there is a round")?;
        ensure!(
            found.busiest_us() > 0.0,
            "nothing in this deployment takes part in a command"
        );
        Ok(found)
    }

    fn round(
        &self,
        deployment: &Deployment,
        run: &mut dyn Run,
        timelines: &Timelines,
        bursts: usize,
    ) -> Found {
        let places = 0..deployment.nodes.len();
        let before: Vec<Spent> = places.clone().map(|node| timelines.spent(node)).collect();
        let (commands, traffic) = (run.commands(), run.traffic().to_vec());
        (0..bursts).for_each(|_| run.burst(&mut Watch(timelines)));
        let commands = (run.commands() - commands) as f64;
        let us =
            |after: Duration, before: Duration| (after - before).as_secs_f64() * 1e6 / commands;
        let node = |place: usize| {
            let (after, before) = (timelines.spent(place), &before[place]);
            let roles = deployment.nodes[place].instances();
            let workers = after.workers.iter().zip(&before.workers);
            NodeTime {
                roles: roles.keys().map(|role| (*role).to_owned()).collect(),
                thread_us: us(after.thread - after.waited, before.thread - before.waited),
                waited_us: us(after.waited, before.waited),
                system_us: self.system(&traffic[place], &run.traffic()[place]) / commands,
                workers_us: workers.map(|(after, before)| us(*after, *before)).collect(),
            }
        };
        Found {
            nodes: places.map(node).collect(),
        }
    }

    fn system(&self, before: &Traffic, after: &Traffic) -> f64 {
        let kernel = self.kernel.as_ref();
        kernel.map_or(0.0, |kernel| kernel.us(&after.since(before)))
    }
}

/// The round whose peak is the median.
fn median(mut rounds: Vec<Found>) -> Option<Found> {
    rounds.sort_by(|one, other| one.busiest_us().total_cmp(&other.busiest_us()));
    let middle = rounds.len() / 2;
    rounds.into_iter().nth(middle)
}

/// What each node spends on a command of the deployment.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) nodes: Vec<NodeTime>,
}

/// Microseconds for each command of the deployment.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTime {
    pub(crate) roles: Vec<String>,
    /// Of the node's thread, without system calls.
    pub(crate) thread_us: f64,
    /// What that thread waits for workers.
    pub(crate) waited_us: f64,
    /// What the system calls of the thread cost.
    pub(crate) system_us: f64,
    /// Of each worker.
    pub(crate) workers_us: Vec<f64>,
}

impl NodeTime {
    /// From the beginning of one command to that of the next, when the node is always busy.
    pub(crate) fn us(&self) -> f64 {
        self.thread_us + self.waited_us + self.system_us
    }

    /// What the busiest of its workers does.
    pub(crate) fn worker_us(&self) -> f64 {
        self.workers_us.iter().copied().fold(0.0, f64::max)
    }

    fn serves_clients_only(&self) -> bool {
        self.roles == [CLIENT]
    }

    /// Which of its threads keeps it from more.
    fn bottleneck(&self) -> String {
        let of = self.roles.join("+");
        match self.waited_us > self.us() / 4.0 {
            true => format!("{of}: its workers"),
            false if self.workers_us.is_empty() => of,
            false => format!("{of}: its thread"),
        }
    }
}

impl Found {
    fn busiest(&self) -> Option<&NodeTime> {
        let nodes = self.nodes.iter().filter(|node| !node.serves_clients_only());
        nodes.max_by(|one, other| one.us().total_cmp(&other.us()))
    }

    fn busiest_us(&self) -> f64 {
        self.busiest().map_or(0.0, NodeTime::us)
    }

    /// Commands per second.
    pub(crate) fn peak(&self) -> f64 {
        1e6 / self.busiest_us()
    }

    /// The role, and the thread, that is busy first.
    pub(crate) fn bottleneck(&self) -> String {
        self.busiest()
            .map_or_else(String::new, NodeTime::bottleneck)
    }
}

/// Lets each node's time pass on its own timeline.
struct Watch<'a>(&'a Timelines);

impl Counter for Watch<'_> {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        self.0.begin(at.node);
        node.receive();
        node.work();
        self.0.end(at.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(role: &str, thread_us: f64, waited_us: f64, workers_us: &[f64]) -> NodeTime {
        NodeTime {
            roles: vec![role.to_owned()],
            thread_us,
            waited_us,
            system_us: 0.5,
            workers_us: workers_us.to_vec(),
        }
    }

    #[test]
    fn the_busiest_thread_is_named_and_clients_are_free() {
        let mut found = Found {
            nodes: vec![
                node(CLIENT, 9.0, 0.0, &[]),
                node("leader", 1.0, 0.0, &[]),
                node("replica", 0.5, 1.0, &[1.0, 1.5]),
            ],
        };
        assert_eq!(found.peak(), 500_000.0);
        assert_eq!(found.bottleneck(), "replica: its workers");
        found.nodes[2].waited_us = 0.25;
        assert_eq!(found.bottleneck(), "leader");
        found.nodes[1].thread_us = 0.1;
        assert_eq!(found.bottleneck(), "replica: its thread");
        let replica = &found.nodes[2];
        assert_eq!((replica.us(), replica.worker_us()), (1.25, 1.5));
    }
}
