//! The state machine, replicated in the simulator.

use super::exercise::shown;
use super::{Commands, Random, Report};
use crate::{Deployment, Footprint, NotARead, PresetOptions, StartError, StateMachine, Timestamp};
use bytes::Bytes;
use ionian_kernel::client::Operation;
use ionian_kernel::delegate;
use ionian_kernel::protocol::Protocol as _;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::model::{Call, Model, Specification, Want};
use ionian_sim::{Durability, Failure, Scenario, Simulated, Watch, run_seed_with};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::PathBuf;

/// Each command contains a number by which the simulator identifies it in the log; the machine does
/// not see it.
const NUMBER: usize = size_of::<u64>();

/// Simulated clusters of your machine: the protocol's real code on a simulated network, simulated
/// clocks and disks, with clients that work while messages are lost, repeated and delayed, nodes
/// stand still, are cut off and crash. Then the faults stop, and the cluster must finish
/// everything.
///
/// What is checked: all replicas execute the same commands with the same answers, each command
/// once; what was acknowledged is never lost, and what was refused has no effect; answers are
/// linearizable, the machine itself being the measure: a copy that executes the commands one after
/// the other, each at the time at which the log has it, and is never restored.
#[derive(Clone, Debug)]
pub struct Simulation {
    preset: String,
    seeds: Range<u64>,
    operations: u64,
    in_memory: bool,
    check_steps: Option<u64>,
    trace: Option<PathBuf>,
}

/// A seed that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimulationFailure {
    /// The deployment cannot be simulated.
    Start(StartError),
    /// The trace cannot be written.
    Trace(std::io::Error),
    /// A run failed.
    Run {
        /// The seed that reproduces it.
        seed: u64,
        /// The faults that the seed selected.
        knobs: String,
        /// What was wrong.
        failure: Failure,
    },
    /// A run did everything, but whether its answers are linearizable is not known: the check of
    /// the history of a part ended at its limit.
    Unchecked {
        /// The seed that reproduces it.
        seed: u64,
        /// The number of such parts; see [`Commands::part`].
        parts: u64,
    },
}

impl fmt::Display for SimulationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulationFailure::Start(error) => error.fmt(f),
            SimulationFailure::Trace(error) => write!(f, "the trace cannot be written: {error}"),
            SimulationFailure::Run {
                seed,
                knobs,
                failure,
            } => write!(
                f,
                "seed {seed} fails: {failure}\n(faults: {knobs})\nIt fails again with .seeds({seed}..{}); \
                 .trace(\"FILE\") writes down every event of it",
                seed + 1
            ),
            SimulationFailure::Unchecked { seed, parts } => write!(
                f,
                "seed {seed}: whether the answers are linearizable is not known, because {parts} histories are too long \
                 to check; divide the state with Commands::part, or use fewer .operations(..) or more .check_steps(..)"
            ),
        }
    }
}

impl std::error::Error for SimulationFailure {}

impl Simulation {
    /// Clusters of this preset, such as `colocated`: 100 seeds of about 60 operations, with disks.
    pub fn new(preset: &str) -> Self {
        Simulation {
            preset: preset.into(),
            seeds: 0..100,
            operations: 60,
            in_memory: false,
            check_steps: None,
            trace: None,
        }
    }

    /// Sets the seeds.
    pub fn seeds(self, seeds: Range<u64>) -> Self {
        Simulation { seeds, ..self }
    }

    /// Sets the approximate number of client requests per run while there are faults.
    pub fn operations(self, operations: u64) -> Self {
        Simulation { operations, ..self }
    }

    /// Nodes have no disks: after a crash they return without their memory.
    pub fn in_memory(self) -> Self {
        Simulation {
            in_memory: true,
            ..self
        }
    }

    /// Sets how many steps the check of linearizability may take for one part, in place of 500,000.
    pub fn check_steps(self, steps: u64) -> Self {
        Simulation {
            check_steps: Some(steps),
            ..self
        }
    }

    /// Writes every event of the last run to this file; if a run fails, it is the last one.
    pub fn trace(self, file: impl Into<PathBuf>) -> Self {
        Simulation {
            trace: Some(file.into()),
            ..self
        }
    }

    /// Runs the seeds until one fails.
    ///
    /// # Errors
    /// The first seed that fails, and why.
    pub fn run<M: Commands>(&self) -> Result<Report, SimulationFailure> {
        self.run_service(Service::of::<M>())
    }

    fn run_service(&self, service: Service) -> Result<Report, SimulationFailure> {
        let preset = Deployment::preset(&self.preset, &PresetOptions::default());
        let deployment = preset.map_err(|error| SimulationFailure::Start(error.into()))?;
        let unknown =
            || SimulationFailure::Start(StartError::Protocol(deployment.protocol.clone()));
        let protocol = Simulated::named(&deployment.protocol).ok_or_else(unknown)?;
        let scenario = self.scenario(protocol, &deployment)?;
        let mut report = Report::default();
        for seed in self.seeds.clone() {
            let mut watch = Watch::default();
            if let Some(file) = &self.trace {
                let file = std::fs::File::create(file).map_err(SimulationFailure::Trace)?;
                watch.trace = Some(Box::new(std::io::BufWriter::new(file)));
            }
            let clients = Clients { next: 0, service };
            let outcome = run_seed_with(protocol, &scenario, seed, clients, watch);
            report.merge(&outcome.report);
            if let Err(failure) = outcome.result {
                return Err(SimulationFailure::Run {
                    seed,
                    knobs: outcome.knobs,
                    failure,
                });
            }
            if outcome.report.unchecked_keys > 0 {
                return Err(SimulationFailure::Unchecked {
                    seed,
                    parts: outcome.report.unchecked_keys,
                });
            }
        }
        Ok(report)
    }

    fn scenario(
        &self,
        protocol: Simulated,
        deployment: &Deployment,
    ) -> Result<Scenario, SimulationFailure> {
        let layout = deployment.layout(protocol.description().kinds);
        let base = Scenario::new(
            &self.preset,
            layout.map_err(|error| SimulationFailure::Start(error.into()))?,
        );
        Ok(Scenario {
            operations: self.operations,
            durability: if self.in_memory {
                Durability::Memory { returns: true }
            } else {
                Durability::Disk
            },
            // A single server executes commands before they are on disk, and holds back the
            // answers.
            stable_log: protocol.description().name != Unreplicated::NAME,
            check_limit: self.check_steps.unwrap_or(base.check_limit),
            ..base
        })
    }
}

/// The machine and its commands. Functions instead of a type: the simulator is then compiled for
/// them with this crate, and not once more by each user for each machine.
#[derive(Clone, Copy)]
struct Service {
    machine: fn() -> Box<dyn StateMachine>,
    random_write: fn(&mut Random) -> Vec<u8>,
    random_read: fn(&mut Random) -> Vec<u8>,
    part: fn(&[u8]) -> u64,
}

impl Service {
    fn of<M: Commands>() -> Self {
        Service {
            machine: || Box::new(M::default()),
            random_write: M::random_write,
            random_read: M::random_read,
            part: M::part,
        }
    }
}

/// The clients of the machine.
struct Clients {
    next: u64,
    service: Service,
}

/// A client's request.
#[derive(Clone)]
struct Asked {
    bytes: Bytes,
    part: u64,
    is_read: bool,
    service: Service,
}

/// The answer.
#[derive(Clone, PartialEq)]
struct Told(Bytes);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            if self.is_read { "read" } else { "write" },
            shown(&self.bytes)
        )
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// The state after these commands. It is computed by executing them again, so that it does not
/// depend on `restore`, which is under test.
#[derive(Clone, Default)]
struct State {
    commands: Vec<(Timestamp, Bytes)>,
    /// Equal states have equal snapshots.
    snapshot: Vec<u8>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.snapshot == other.snapshot
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.snapshot.hash(state);
    }
}

impl Specification for Clients {
    type Action = Asked;
    type Answer = Told;
    type State = State;

    fn key(action: &Asked) -> u64 {
        action.part
    }

    fn is_read(action: &Asked) -> bool {
        action.is_read
    }

    fn apply(state: &mut State, action: &Asked, at: Timestamp) -> Told {
        let (mut machine, mut reply) = ((action.service.machine)(), Vec::new());
        for (at, command) in &state.commands {
            machine.apply(*at, command, &mut reply);
            reply.clear();
        }
        if action.is_read {
            // A query that is not a read was refused, and does not get here.
            let _ = machine.read(at, &action.bytes, &mut reply);
        } else {
            machine.apply(at, &action.bytes, &mut reply);
            state.commands.push((at, action.bytes.clone()));
            state.snapshot.clear();
            machine.snapshot(&mut state.snapshot);
        }
        Told(reply.into())
    }
}

impl Model for Clients {
    fn next(&mut self, random: &mut Random, want: Want) -> Call<Asked> {
        let operation = match want {
            Want::Read(level) => Operation::Read(level),
            Want::Any(level) if random.once_in(2) => Operation::Read(level),
            Want::Any(_) | Want::Write => Operation::Write,
        };
        let is_read = matches!(operation, Operation::Read(_));
        let bytes = if is_read {
            (self.service.random_read)(random)
        } else {
            (self.service.random_write)(random)
        };
        self.next += 1;
        let mut payload = bytes.clone();
        payload.extend_from_slice(&self.next.to_le_bytes());
        let action = Asked {
            part: (self.service.part)(&bytes),
            bytes: bytes.into(),
            is_read,
            service: self.service,
        };
        Call {
            operation,
            payload: payload.into(),
            action,
        }
    }

    fn interpret(&self, _: &Asked, reply: &[u8]) -> Result<Told, String> {
        Ok(Told(Bytes::copy_from_slice(reply)))
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Numbered((self.service.machine)()))
    }
}

/// The machine without the numbers.
struct Numbered(Box<dyn StateMachine>);

/// The command without its number.
fn plain(command: &[u8]) -> &[u8] {
    &command[..command.len().saturating_sub(NUMBER)]
}

impl StateMachine for Numbered {
    delegate!(0: snapshot freeze restore next_deadline needs work);

    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.apply(now, plain(command), reply);
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.0.read(now, plain(query), reply)
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        self.0.footprint(plain(command), footprint);
    }
}
