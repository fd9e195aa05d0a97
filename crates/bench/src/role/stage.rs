//! One measurement: a real process, the rest of its deployment in this one, and loopback between
//! them.
//!
//! The other nodes run on the thread of the bench, and so do the client lanes, each on a node of
//! its own. They cost more than the node that is measured, so that one is throttled.

use super::clients::Clients;
use super::throttle::Throttle;
use super::{LANES, SATURATED};
use anyhow::{Context, Result, bail, ensure};
use ionian_costs::{Commands, Load};
use ionian_deployment::{Configuration, Deployment};
use ionian_harness::Cluster;
use ionian_harness::cluster::place_on_free_ports;
use ionian_runtime::{
    NodeError, NodeSettings, NodeStatus, Runnable, query_status, resolve, run_node,
};
use std::cell::{Cell, RefCell};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

/// How long a cluster may take until commands flow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Far more than a command takes, once connections stand.
const ROUND_TRIP: Duration = Duration::from_millis(200);

/// It is measured until a multiple of what is in flight was done: what was begun before and what is
/// not done at the end count for nothing then, on a machine that others use too.
const LEAST_WINDOWS: u64 = 16;

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) deployment: Deployment,
    /// The node whose process is measured.
    pub(crate) node: usize,
    /// A burst of it is in flight, all the time.
    pub(crate) load: Load,
    /// The part of the time that the process may run.
    pub(crate) share: f64,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// The program whose process is measured.
    pub(crate) ionian: PathBuf,
    /// A directory for its files, which is removed afterwards.
    pub(crate) root: PathBuf,
}

/// What a process did in the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) commands: u64,
    pub(crate) seconds: f64,
    /// For so long of these it was allowed to run.
    pub(crate) allowed_seconds: f64,
    pub(crate) cpu_us: u64,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) writes: u64,
}

impl Measured {
    /// Microseconds of processor time for a command.
    pub(crate) fn demand_us(&self) -> f64 {
        self.per_command(self.cpu_us)
    }

    /// Which part of a processor it had while it was allowed to run.
    pub(crate) fn busy(&self) -> f64 {
        self.cpu_us as f64 / 1e6 / self.allowed_seconds
    }

    /// Whether it was busy for nearly all of that time.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy() >= SATURATED
    }

    pub(crate) fn commands_per_second(&self) -> f64 {
        self.commands as f64 / self.seconds
    }

    pub(crate) fn per_command(&self, number: u64) -> f64 {
        number as f64 / self.commands as f64
    }
}

impl Scene {
    /// Runs it.
    ///
    /// # Errors
    /// When a process cannot be started, or nothing flows.
    pub(crate) fn measure(mut self) -> Result<Measured> {
        place_on_free_ports(&mut self.deployment)?;
        let name = &self.deployment.protocol;
        let protocol = Runnable::named(name);
        let protocol = protocol.with_context(|| format!("protocol = {name:?}: does not exist"))?;
        let machine = ionian_machines::named(&self.deployment.machine)
            .with_context(|| format!("no machine {:?}", self.deployment.machine))?;
        let subject = Subject::start(&self)?;
        let address = resolve(&self.deployment.nodes[self.node].address)?;
        let commands = Rc::new(Commands::new(&self.load));
        let done = Rc::new(Cell::new(0));
        let failure = Rc::new(RefCell::new(None));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            let nodes = self.deployment.nodes.iter().enumerate();
            for (_, node) in nodes.filter(|(place, _)| *place != self.node) {
                let known = Configuration::founded(self.deployment.clone());
                let settings = NodeSettings::new(protocol.protocol(), known, &node.name, None)?;
                let failure = failure.clone();
                let (commands, done) = (commands.clone(), done.clone());
                let window = (self.load.burst / LANES) as u64;
                tokio::task::spawn_local(async move {
                    let application =
                        move |handle| Box::new(Clients::begin(handle, window, commands, done)) as _;
                    let ran = run_node(
                        protocol,
                        settings,
                        machine,
                        application,
                        std::future::pending(),
                    )
                    .await;
                    *failure.borrow_mut() = ran.err();
                });
            }
            self.watch(&subject, address, &done, &failure).await
        })
    }

    /// Measures the process while commands flow; what went wrong around it comes first.
    async fn watch(
        &self,
        subject: &Subject,
        address: SocketAddr,
        done: &Cell<u64>,
        failure: &RefCell<Option<NodeError>>,
    ) -> Result<Measured> {
        let measured = tokio::select! {
            measured = self.observe(subject, address, done) => measured,
            interrupted = interrupted() => bail!(interrupted?),
        };
        match failure.borrow_mut().take() {
            Some(error) => Err(error).context("the rest of the deployment"),
            None => measured.with_context(|| subject.last_output()),
        }
    }

    /// Waits until commands flow, lets them flow for a while, and looks twice.
    async fn observe(
        &self,
        subject: &Subject,
        address: SocketAddr,
        done: &Cell<u64>,
    ) -> Result<Measured> {
        let began = Instant::now();
        while done.get() == 0 {
            ensure!(
                began.elapsed() < PATIENCE,
                "no command was done in {} s",
                PATIENCE.as_secs()
            );
            tokio::time::sleep(ROUND_TRIP).await;
        }
        let throttle = Throttle::start(subject.cluster.process(subject.node)?, self.share)?;
        tokio::time::sleep(self.warm_up).await;
        let look = async || -> Result<_> {
            let status = query_status(address, PATIENCE)
                .await
                .with_context(|| address.to_string())?;
            Ok((status, done.get(), Instant::now(), throttle.allowed()))
        };
        let (before, commands_before, from, allowed_before) = look().await?;
        tokio::time::sleep(self.window).await;
        while done.get() < commands_before + LEAST_WINDOWS * self.load.burst as u64
            && from.elapsed() < PATIENCE
        {
            tokio::time::sleep(ROUND_TRIP).await;
        }
        let (after, commands_after, until, allowed_after) = look().await?;
        let measured = difference(&before, &after);
        let commands = commands_after - commands_before;
        ensure!(commands > 0, "no command was done while it was measured");
        let (seconds, allowed_seconds) = (
            (until - from).as_secs_f64(),
            (allowed_after - allowed_before).as_secs_f64(),
        );
        Ok(Measured {
            commands,
            seconds,
            allowed_seconds,
            ..measured
        })
    }
}

/// Waits for Ctrl-C or SIGTERM, which end the run in order: what was started is stopped and
/// removed.
async fn interrupted() -> Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done?,
        _ = terminate.recv() => {}
    }
    Ok("interrupted")
}

fn difference(before: &NodeStatus, after: &NodeStatus) -> Measured {
    let sum = |status: &NodeStatus, what: fn(&ionian_runtime::status::PeerStatus) -> u64| -> u64 {
        status.peers.iter().map(what).sum()
    };
    let peers =
        |what: fn(&ionian_runtime::status::PeerStatus) -> u64| sum(after, what) - sum(before, what);
    Measured {
        cpu_us: after.process_cpu_us - before.process_cpu_us,
        messages_in: peers(|peer| peer.frames_in),
        messages_out: peers(|peer| peer.frames_out),
        bytes_in: peers(|peer| peer.bytes_in),
        bytes_out: peers(|peer| peer.bytes_out),
        writes: peers(|peer| peer.writes),
        ..Measured::default()
    }
}

/// The process that is measured. It ends with this, and nothing of it stays.
struct Subject {
    cluster: Cluster,
    node: usize,
}

impl Subject {
    fn start(scene: &Scene) -> Result<Self> {
        let cluster = Cluster::new(&scene.ionian, &scene.root, scene.deployment.clone())?;
        let mut subject = Subject {
            cluster,
            node: scene.node,
        };
        subject.cluster.start(scene.node)?;
        Ok(subject)
    }

    /// The last lines of its log, as an explanation of a failure.
    fn last_output(&self) -> String {
        let last = self
            .cluster
            .last_output(self.node)
            .unwrap_or_else(|| "nothing".to_owned());
        format!("the process that is measured said last: {last}")
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // What fails here has ended already, or is gone.
        let _ = self.cluster.kill_all();
        let _ = fs::remove_dir_all(self.cluster.root());
    }
}
