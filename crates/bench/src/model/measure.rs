//! What each node of a deployment spends on a command. The whole deployment runs in this process
//! (`crates/costs`): real roles, bytes in and bytes out, no system call. The processor time of this
//! thread is measured node by node; what the kernel would take for the node's writes and reads is
//! added ([`kernel`]). No node waits for another one or for the bench, so each is as busy as a
//! bottleneck, and what else the machine does is not in the numbers.

use super::Workload;
use super::kernel;
use super::profile::{Handled, Profile};
use anyhow::{Context, Result};
use ionian_costs::count::{Counter, Pass, Place, Uncounted};
use ionian_costs::{KeyValue, Load, Run, Traffic, begin_with};
use ionian_deployment::Deployment;
use ionian_kernel::work::Inline;
use ionian_planner::demand::{By, Measured, Message, Name, Node, PerCommand, SystemCalls, scale};
use ionian_planner::executed::CountedService;
use ionian_planner::handled;
use ionian_planner::line::Line;
use ionian_protocols::registry;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::Duration;

/// Commands of the executed slots that a replica keeps for its peers: few, so that its log soon has
/// the size that it keeps.
const RETAINED_COMMANDS: usize = 1024;
/// What they may be of large values.
const RETAINED_BYTES: usize = 16 << 20;

/// Commands before anything is measured: then every log has the size that it keeps. A quarter of
/// them makes a round.
const WARM_UP: usize = 20_000;

/// Commands of a burst in which messages are as short as they get.
const FEW_COMMANDS: usize = 16;

/// Where a lane sends the commands of a burst in one message, its receivers take turns: each must
/// have had its turn.
const LEAST_BURSTS: usize = 16;

/// Who says how long it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The processor, with what the kernel takes; this many rounds, of which the median counts.
    Processor { kernel: SystemCalls, rounds: usize },
    /// A test, which invents what a message of this name and this many bytes costs.
    #[cfg(test)]
    Invented(fn(&str, f64) -> f64),
}

impl Clock {
    /// The processor's.
    ///
    /// # Errors
    /// If the costs of the kernel cannot be measured.
    pub(crate) fn processor(rounds: usize) -> Result<Self> {
        let kernel = kernel::measure()?;
        Ok(Clock::Processor { kernel, rounds })
    }

    fn warm_up(self) -> usize {
        match self {
            Clock::Processor { .. } => WARM_UP,
            #[cfg(test)]
            Clock::Invented(_) => WARM_UP / 20,
        }
    }
}

/// Measures a deployment. `keys` are written and read; `separate_clients` is explained at [`Load`].
///
/// # Errors
/// If it is not a deployment of its protocol, or the clock fails.
pub(crate) fn measure(
    deployment: &Deployment,
    workload: &Workload,
    (keys, separate_clients): (usize, bool),
    clock: Clock,
) -> Result<Measured> {
    let load = workload.load(keys, separate_clients);
    let mut trial = Trial::run(deployment, &load, clock)?;
    trial.measure(clock)?;
    // The same messages with few commands each say what a message costs by its size: batches, and
    // messages that gather what has arrived by the end of a burst (S-Paxos).
    let one = deployment
        .clone()
        .with_overrides(&["options.batch_commands=1"])?;
    let burst = FEW_COMMANDS.min(load.burst);
    let small = Trial::run(&one, &Load { burst, ..load }, clock)?;
    let description = registry::description(&deployment.protocol)
        .with_context(|| format!("protocol = {:?}: does not exist", deployment.protocol))?;
    let names = deployment.layout(description.kinds)?;
    let nodes = trial
        .run
        .nodes()
        .iter()
        .enumerate()
        .map(|(place, id)| Node {
            id: *id,
            name: names.name(*id).to_owned(),
            messages: trial.messages(place, &small, clock),
            traffic: PerCommand::of(&trial.traffic[place], trial.profiled),
        });
    Ok(Measured {
        nodes: nodes.collect(),
        kinds: description.kinds,
    })
}

/// Processor time of this thread so far.
///
/// # Errors
/// If the system does not have this clock.
pub(crate) fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Runs a deployment for some bursts, until it is in its steady state.
///
/// # Errors
/// If it is not a deployment of its protocol.
pub(crate) fn steady(deployment: &Deployment, load: &Load, bursts: usize) -> Result<Box<dyn Run>> {
    let batch = deployment.options.options().batch_commands;
    let most = RETAINED_BYTES / (load.value_bytes + 64);
    let retained = (RETAINED_COMMANDS.min(most) / batch).max(1);
    let retained = format!("options.retained_slots={retained}");
    let deployment = deployment.clone().with_overrides(&[retained])?;
    let service = Box::new(CountedService(KeyValue::new(&deployment.machine, load)?));
    let hire = |_: usize, count| Inline::hire(count);
    let mut run = begin_with(&deployment, load, service, &hire)?;
    (0..bursts).for_each(|_| run.burst(&mut Uncounted));
    Ok(run)
}

/// One deployment under one load.
struct Trial {
    run: Box<dyn Run>,
    /// Bursts of one round.
    bursts: usize,
    profile: Profile,
    /// Commands while the profile was made.
    profiled: f64,
    traffic: Vec<Traffic>,
    /// Microseconds of each node for a command, without system calls; none where they are
    /// invented.
    us: Option<Vec<f64>>,
}

impl Trial {
    /// Runs it, and looks at its messages.
    fn run(deployment: &Deployment, load: &Load, clock: Clock) -> Result<Self> {
        let bursts = clock.warm_up().div_ceil(load.burst).max(LEAST_BURSTS);
        let mut run = steady(deployment, load, bursts)?;
        let mut profile = Profile::new(run.nodes().len());
        let (before, traffic) = (run.commands(), run.traffic().to_vec());
        let bursts = bursts.div_ceil(4);
        (0..bursts).for_each(|_| run.burst(&mut profile));
        let both = run.traffic().iter().zip(&traffic);
        Ok(Trial {
            bursts,
            profile,
            profiled: (run.commands() - before) as f64,
            traffic: both.map(|(after, before)| after.since(before)).collect(),
            us: None,
            run,
        })
    }

    fn measure(&mut self, clock: Clock) -> Result<()> {
        self.us = match clock {
            Clock::Processor { rounds, .. } => Some(timed(&mut *self.run, rounds, self.bursts)?),
            #[cfg(test)]
            Clock::Invented(_) => None,
        };
        Ok(())
    }

    /// What the messages of a node cost, so that together they cost what the node spends.
    fn messages(&self, place: usize, small: &Trial, clock: Clock) -> BTreeMap<Name, Message> {
        let price = |name: &Name, handled: &Handled| match (clock, name) {
            (Clock::Processor { .. }, _) => handled.mean_us(),
            #[cfg(test)]
            (Clock::Invented(price), (_, name)) => price(name, handled.counted.mean_bytes()),
        };
        let mut messages = BTreeMap::new();
        let all = self.profile.node(place).iter();
        for (name, handled) in all.filter(|(_, handled)| handled.counted.count > 0) {
            let small = small.profile.node(place).get(name);
            let small = small.filter(|small| small.counted.count > 0);
            let us = price(name, handled);
            let line = |size: fn(&handled::Handled) -> f64| {
                let small =
                    small.filter(|small| size(&small.counted) * 1.5 < size(&handled.counted))?;
                let less = (size(&small.counted), price(name, small));
                Some(Line::through(less, (size(&handled.counted), us)))
            };
            let (by, cost) = match (
                line(handled::Handled::mean_bytes),
                line(handled::Handled::mean_executed),
            ) {
                (Some(cost), _) => (By::Bytes, cost),
                (None, Some(cost)) => (By::Executed, cost),
                (None, None) => (By::Bytes, Line::fixed(us)),
            };
            let size = match by {
                By::Bytes => handled.counted.mean_bytes(),
                By::Executed => handled.counted.mean_executed(),
            };
            let per_command = handled.counted.count as f64 / self.profiled;
            let message = Message {
                per_command,
                by,
                size,
                cost,
            };
            messages.insert(*name, message);
        }
        if let (Some(us), Clock::Processor { kernel, .. }) = (&self.us, clock) {
            let system = kernel.us(&self.traffic[place]) / self.profiled;
            scale(&mut messages, us[place] + system);
        }
        messages
    }
}

/// Microseconds of each node for a command: the median of all rounds.
fn timed(run: &mut dyn Run, rounds: usize, bursts: usize) -> Result<Vec<f64>> {
    let mut of_rounds = vec![Vec::new(); run.nodes().len()];
    let empty = Watch::overhead()?;
    for _ in 0..rounds {
        let mut watch = Watch {
            times: vec![(Duration::ZERO, 0); run.nodes().len()],
            failure: None,
        };
        let before = run.commands();
        (0..bursts).for_each(|_| run.burst(&mut watch));
        if let Some(failure) = watch.failure {
            return Err(failure);
        }
        let commands = (run.commands() - before) as f64;
        for (of_rounds, (time, passes)) in of_rounds.iter_mut().zip(watch.times) {
            let time = time.saturating_sub(empty * passes);
            of_rounds.push(time.as_secs_f64() * 1e6 / commands);
        }
    }
    let median = |mut us: Vec<f64>| {
        us.sort_by(f64::total_cmp);
        us[us.len() / 2]
    };
    Ok(of_rounds.into_iter().map(median).collect())
}

/// The processor time of each node, and how often it was looked at.
struct Watch {
    times: Vec<(Duration, u32)>,
    failure: Option<anyhow::Error>,
}

impl Watch {
    /// What looking at the clock twice takes.
    fn overhead() -> Result<Duration> {
        let once = |_| {
            let began = processor_time()?;
            Ok(processor_time()? - began)
        };
        let mut shown = (0..101).map(once).collect::<Result<Vec<Duration>>>()?;
        shown.sort_unstable();
        Ok(shown[shown.len() / 2])
    }
}

impl Counter for Watch {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        let began = processor_time();
        node.receive();
        node.work();
        match began.and_then(|began| Ok(processor_time()? - began)) {
            Ok(took) => {
                let (time, passes) = &mut self.times[at.node];
                *time += took;
                *passes += 1;
            }
            Err(error) => self.failure = Some(error),
        }
    }
}
