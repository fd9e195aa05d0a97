//! One measurement: a real process with the role that is measured, the rest of its deployment in
//! this one, and loopback between them.

use super::commands::Commands;
use super::emulated::{Emulated, Script};
use super::flow::Flow;
use super::throttle::Throttle;
use super::work::Work;
use super::{mencius, multipaxos, spaxos, unreplicated};
use crate::model::demand::NODE;
use anyhow::{Context, Result, bail, ensure};
use ionian_deployment::{Configuration, Deployment, Node, Placed};
use ionian_harness::Cluster;
use ionian_harness::cluster::place_on_free_ports;
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::kv::Kv;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_replication::batch::Batch;
use ionian_runtime::{
    Application, NodeError, NodeSettings, NodeStatus, query_status, resolve, run_node,
};
use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
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
    /// The role as deployment files call it.
    pub(crate) role: String,
    pub(crate) work: Work,
    /// Commands in a batch.
    pub(crate) batch: u64,
    pub(crate) value_bytes: usize,
    pub(crate) keys: u64,
    /// Commands under way at most.
    pub(crate) in_flight: u64,
    /// Commands that a client lane sends a batcher at once.
    pub(crate) gathered: u64,
    /// The state machine of the deployment.
    pub(crate) machine: String,
    /// Whether the rest of the deployment is real.
    pub(crate) real: bool,
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
    /// When the deployment has no node with this role alone, or nothing flows.
    pub(crate) fn run(mut self) -> Result<Measured> {
        self.lay_out()?;
        if self.real {
            return self.run_among_real();
        }
        match self.deployment.protocol.as_str() {
            MultiPaxos::NAME => self.run_multipaxos(),
            Mencius::NAME => self.run_mencius(),
            SPaxos::NAME => self.run_spaxos(),
            Unreplicated::NAME => self.run_unreplicated(),
            other => bail!("roles of the protocol {other:?} cannot be measured alone yet"),
        }
    }

    /// The node where the role lives alone.
    fn subject(&self) -> Result<usize> {
        if self.role == NODE {
            return Ok(0);
        }
        // The two kinds of batchers share a node, and the other one has nothing to do.
        let pair = ["batcher", "read_batcher"];
        let of_its_kind = |role: &str| {
            role == self.role || pair.contains(&role) && pair.contains(&self.role.as_str())
        };
        let alone = |node: &Node| node.roles.iter().all(|placed| of_its_kind(&placed.role));
        let place = self.deployment.nodes.iter().position(alone);
        place.with_context(|| {
            format!(
                "the deployment has no node with the role {} alone",
                self.role
            )
        })
    }

    /// Ports for all.
    fn lay_out(&mut self) -> Result<()> {
        // A client beside the server would be measured with it.
        let is_mixed =
            |node: &&mut Node| node.roles.len() == 2 && node.instances().contains_key("server");
        if let Some(server) = self.deployment.nodes.iter_mut().find(is_mixed) {
            server.roles.retain(|placed| placed.role == "server");
            let mut gateway = server.clone();
            (gateway.name, gateway.roles) = ("gateway-0".into(), vec![Placed::some("client", 1)]);
            self.deployment.nodes.push(gateway);
        }
        place_on_free_ports(&mut self.deployment)?;
        self.deployment
            .nodes
            .iter_mut()
            .for_each(|node| node.gateway = None);
        Ok(())
    }

    pub(super) fn commands(&self, lanes: usize) -> Commands {
        Commands::new(
            self.keys,
            self.value_bytes,
            lanes.max(1) as u64,
            self.batch,
            self.in_flight,
        )
    }

    fn run_multipaxos(self) -> Result<Measured> {
        let config = MultiPaxos::configure(self.deployment.layout(MultiPaxos::KINDS)?)?;
        let subject = kind_of::<MultiPaxos>(&self.role)?;
        let play = self.play(config.clone(), None);
        let casting = play.clone();
        let cast = move |address: Address| multipaxos::cast(&casting, subject, address);
        self.perform::<MultiPaxos>(
            Script {
                config,
                cast: Box::new(cast),
            },
            &play.flow,
        )
    }

    fn run_mencius(self) -> Result<Measured> {
        let config = Mencius::configure(self.deployment.layout(Mencius::KINDS)?)?;
        let subject = kind_of::<Mencius>(&self.role)?;
        let play = self.play(config.of(Stripe(0)).clone(), None);
        let (casting, striped) = (play.clone(), Arc::new(mencius::Striped(config.stripes)));
        let cast = move |address: Address| mencius::cast(&casting, &striped, subject, address);
        self.perform::<Mencius>(
            Script {
                config,
                cast: Box::new(cast),
            },
            &play.flow,
        )
    }

    fn run_spaxos(self) -> Result<Measured> {
        let config = SPaxos::configure(self.deployment.layout(SPaxos::KINDS)?)?;
        let subject = kind_of::<SPaxos>(&self.role)?;
        let play = self.play(config.ordering.clone(), Some(spaxos::held(&config)));
        let (references, acknowledged) = (config.clone(), spaxos::Acknowledged::default());
        let references = Arc::new(spaxos::References {
            play: play.clone(),
            config: references,
            acknowledged,
        });
        let cast = move |address: Address| spaxos::cast(&references, subject, address);
        self.perform::<SPaxos>(
            Script {
                config,
                cast: Box::new(cast),
            },
            &play.flow,
        )
    }

    /// What the parts of MultiPaxos know; the log holds batches, or what stands for them.
    fn play(&self, config: Arc<Config>, held: Option<Batch>) -> Arc<multipaxos::Play> {
        let commands = self.commands(
            config
                .layout()
                .count(ionian_protocols::multipaxos::kind::Client),
        );
        Arc::new(multipaxos::Play {
            held: held.unwrap_or_else(|| commands.writes(0)),
            commands,
            config,
            flow: Flow::new(self.in_flight),
            work: self.work,
            gathered: self.gathered,
        })
    }

    fn run_unreplicated(self) -> Result<Measured> {
        let layout: Layout = self.deployment.layout(Unreplicated::KINDS)?;
        let config = Unreplicated::configure(layout)?;
        ensure!(
            self.role == "server",
            "of an unreplicated deployment only the server can be measured alone"
        );
        let play = Arc::new(unreplicated::Play {
            layout: config.clone(),
            flow: Flow::new(self.in_flight),
            commands: self.commands(1),
            work: self.work,
        });
        let casting = play.clone();
        let cast = move |address: Address| unreplicated::cast(&casting, address);
        self.perform::<Unreplicated>(
            Script {
                config,
                cast: Box::new(cast),
            },
            &play.flow,
        )
    }

    fn perform<P: Protocol>(&self, script: Script<P>, flow: &Flow) -> Result<Measured> {
        let subject = Subject::start(self)?;
        let address = resolve(&self.deployment.nodes[subject.node].address)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let script = Arc::new(script);
        let failure = Rc::new(RefCell::new(None));
        LocalSet::new().block_on(&runtime, async {
            let nodes = self.deployment.nodes.iter().enumerate();
            for (_, node) in nodes.filter(|(place, _)| *place != subject.node) {
                let known = Configuration::founded(self.deployment.clone());
                let settings = NodeSettings::new::<P>(known, &node.name, None)?;
                let (script, failure) = (script.clone(), failure.clone());
                tokio::task::spawn_local(async move {
                    let machine = || Box::new(Kv::default()) as Box<dyn StateMachine>;
                    let application = |_| Box::new(()) as Box<dyn Application>;
                    let ran = run_node::<Emulated<P>>(
                        settings,
                        script,
                        machine,
                        application,
                        std::future::pending(),
                    )
                    .await;
                    *failure.borrow_mut() = ran.err();
                });
            }
            self.watch(&subject, address, flow, &failure).await
        })
    }

    /// Measures the process while commands flow; what went wrong around it comes first.
    pub(super) async fn watch(
        &self,
        subject: &Subject,
        address: SocketAddr,
        flow: &Flow,
        failure: &RefCell<Option<NodeError>>,
    ) -> Result<Measured> {
        let measured = tokio::select! {
            measured = self.observe(subject, address, flow) => measured,
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
        flow: &Flow,
    ) -> Result<Measured> {
        let began = Instant::now();
        while flow.done() == 0 {
            ensure!(
                began.elapsed() < PATIENCE,
                "no command was done in {} s",
                PATIENCE.as_secs()
            );
            flow.forget_lost();
            tokio::time::sleep(ROUND_TRIP).await;
        }
        let throttle = Throttle::start(subject.cluster.process(subject.node)?, self.share)?;
        tokio::time::sleep(self.warm_up).await;
        let look = async || -> Result<_> {
            let status = query_status(address, PATIENCE)
                .await
                .with_context(|| address.to_string())?;
            Ok((status, flow.done(), Instant::now(), throttle.allowed()))
        };
        let (before, commands_before, from, allowed_before) = look().await?;
        tokio::time::sleep(self.window).await;
        while flow.done() < commands_before + LEAST_WINDOWS * self.in_flight
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

fn kind_of<P: Protocol>(role: &str) -> Result<u8> {
    let place = P::KINDS.iter().position(|kind| *kind == role);
    let known = P::KINDS.join(", ");
    Ok(place.with_context(|| format!("role {role:?}: must be one of {known}"))? as u8)
}

/// The process that is measured. It ends with this, and nothing of it stays.
pub(super) struct Subject {
    cluster: Cluster,
    pub(super) node: usize,
}

impl Subject {
    pub(super) fn start(scene: &Scene) -> Result<Self> {
        let node = scene.subject()?;
        let cluster = Cluster::new(&scene.ionian, &scene.root, scene.deployment.clone())?;
        let mut subject = Subject { cluster, node };
        subject.cluster.start(node)?;
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
