//! A cluster in this process with a slow role instance, under load.

use super::slowed::{Slowed, handled, slow_down};
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::id::Index;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_machines::nothing::Nothing;
use ionian_planner::live::bottleneck::{Bottleneck, judge};
use ionian_planner::live::rates::Rates;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::{Cluster, NodeStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands a second that are asked for, half of them reads. Few, so that the roles that are not
/// slowed down have little to do.
pub(crate) const RATE: u32 = 600;

/// Threads that ask, each for one command at a time.
const CLIENTS: u32 = 12;

/// The share of a processor that the slow instance is to take.
const BUSY: f64 = 0.75;

/// Commands from which it is known how many messages an instance handles.
const OBSERVED: u64 = 600;

/// Commands after a change until a window begins.
const SETTLED: u64 = 150;

/// A window that is longer than this would never end.
const LIMIT: Duration = Duration::from_secs(120);

/// A client fails after this many commands in a row without an answer, and a request for a report
/// after as many attempts. Fewer can be due to busy processors.
const SILENT: usize = 20;

/// How often it is looked whether a window has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Locked while a cluster runs. One test takes the processors from its cluster, and would take them
/// from that of another test.
static RUNNING: Mutex<()> = Mutex::new(());

/// See the top of this file. Dropping it ends the load.
pub(crate) struct Running {
    cluster: Cluster<Slowed<MultiPaxos>>,
    nodes: Vec<NodeId>,
    answered: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    /// Released last, when the nodes have stopped.
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    /// Starts the deployment of a preset, and the load.
    pub(crate) fn start(preset: &str) -> Self {
        let mut running = Running::start_idle(preset);
        running.clients = (0..CLIENTS).map(|it| running.client(it)).collect();
        running.pass(OBSERVED);
        running
    }

    /// Starts the deployment of a preset, without load.
    pub(crate) fn start_idle(preset: &str) -> Self {
        let alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
        let layout = deployment.layout(MultiPaxos::KINDS).unwrap();
        let nodes = layout.nodes().into_iter().collect();
        let cluster = Cluster::start(layout, || Box::new(Nothing)).unwrap();
        let (answered, stops) = (Arc::default(), Arc::default());
        Running {
            cluster,
            nodes,
            answered,
            stops,
            clients: Vec::new(),
            _alone: alone,
        }
    }

    /// A thread that asks for its share of the commands, evenly spread, and in turn with the
    /// others.
    fn client(&self, number: u32) -> JoinHandle<()> {
        let client = self.cluster.client();
        let (answered, stops) = (self.answered.clone(), self.stops.clone());
        let every = Duration::from_secs(1) * CLIENTS / RATE;
        std::thread::spawn(move || {
            let mut next = Instant::now() + every * number / CLIENTS;
            let mut writes = false;
            let mut unanswered = 0;
            while !stops.load(Ordering::Relaxed) {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                // After a stall the commands that are overdue are not asked for at once.
                next = next.max(Instant::now()) + every;
                writes = !writes;
                let answer = match writes {
                    true => client.write_blocking("command"),
                    false => client.read_blocking("query", ReadLevel::Linearizable),
                };
                if let Err(error) = answer {
                    unanswered += 1;
                    assert!(unanswered < SILENT, "the cluster does not answer: {error}");
                    continue;
                }
                unanswered = 0;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Waits until this number of further commands has been answered.
    fn pass(&self, commands: u64) {
        let end = self.answered.load(Ordering::Relaxed) + commands;
        while self.answered.load(Ordering::Relaxed) < end {
            let ended = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!ended, "a client has ended: see above");
            std::thread::sleep(LOOK);
        }
    }

    fn reports(&self) -> Vec<NodeStatus> {
        let nodes = self.nodes.iter();
        let report = |node: &NodeId| {
            let found = || self.cluster.status(*node);
            let early = (1..SILENT).find_map(|_| found().ok());
            early.unwrap_or_else(|| found().unwrap())
        };
        nodes.map(report).collect()
    }

    /// Slows down the busiest instance of a kind, so that it takes [`BUSY`] of a processor.
    pub(crate) fn slow(&self, kind: u8) -> Address {
        let (before, began) = (handled(kind), Instant::now());
        self.pass(OBSERVED);
        let seconds = began.elapsed().as_secs_f64();
        let after = handled(kind).into_iter().zip(before);
        let more = after.map(|((index, after), (_, before))| (index, after - before));
        let (index, messages): (Index, u64) = more.max_by_key(|(_, more)| *more).unwrap();
        assert!(
            messages > 0,
            "no instance of kind {kind} has anything to do"
        );
        let at = Address { kind, index };
        let each = BUSY * seconds / messages as f64;
        slow_down(at, Duration::from_secs_f64(each));
        self.pass(SETTLED);
        at
    }

    /// The instance is as fast as the others again.
    pub(crate) fn speed_up(&self, at: Address) {
        slow_down(at, Duration::ZERO);
        self.pass(SETTLED);
    }

    /// What is named while this number of commands is answered, as `ionian advise` and the
    /// dashboard would.
    pub(crate) fn window(&self, commands: u64) -> Bottleneck {
        self.judged(|| self.pass(commands))
    }

    /// The same without load, while each loop turns this often, for heartbeats and timers.
    pub(crate) fn idle_window(&self, turns: u64) -> Bottleneck {
        let pumps = |status: &NodeStatus| status.event_loop.pumps;
        let ends: Vec<u64> = self.reports().iter().map(|it| pumps(it) + turns).collect();
        let since = Instant::now();
        self.judged(|| {
            while self
                .reports()
                .iter()
                .zip(&ends)
                .any(|(it, end)| pumps(it) < *end)
            {
                assert!(since.elapsed() < LIMIT, "loops do not turn {turns} times");
                std::thread::sleep(LOOK * 20);
            }
        })
    }

    /// What is named from a report before `pass` and one after it.
    fn judged(&self, pass: impl FnOnce()) -> Bottleneck {
        let earlier = self.reports();
        pass();
        let later = self.reports();
        let both = earlier.iter().zip(&later);
        let rates: Vec<(&str, Rates)> = both
            .map(|(then, now)| (now.name.as_str(), Rates::between(then, now).unwrap()))
            .collect();
        let rates: Vec<_> = rates.iter().map(|(name, rates)| (*name, rates)).collect();
        judge(&rates)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // It has said why it failed, and the test fails for it.
            let _ = client.join();
        }
    }
}
