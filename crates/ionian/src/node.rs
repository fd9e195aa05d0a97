//! One node of a cluster on several machines, in a user's program.

use crate::StartError;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::registry::{self, Work};
use ionian_runtime::storage::membership_file;
use ionian_runtime::{
    Calls, Client, Hosted, NodeError, NodeSettings, Published, StatusReader, Stop, status_feed,
    wait_for_membership,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The identity of the node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name in the deployment, such as `n0`.
    pub name: String,
    /// How the node finds the others.
    pub origin: Origin,
    /// The data directory. The node uses `nodes/NAME` in it, like `ionian node` and `ionian
    /// snapshot restore`.
    pub data: PathBuf,
    /// The name of the state machine. It must equal the `machine` of the deployment, so that no
    /// program runs a node whose commands it does not understand.
    pub machine: String,
}

/// How a starting node finds the others. Its data directory stores later changes of the members,
/// which override this at the next start.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a node, at its start"
)]
pub enum Origin {
    /// The deployment with which the cluster was founded: the same for all founding nodes.
    Founded(Deployment),
    /// `host:port` of any node of the running cluster, to join it or to rejoin it.
    Joining(String),
}

/// A node that runs on a thread of its own. Dropping it stops it in order.
///
/// It handles no signals and never ends the process. To end the process without stopping the node
/// is safe with durability `disk`: that is a crash, and what was acknowledged is on disk.
pub struct Node {
    hosted: Hosted,
    calls: Calls,
    gateway: Option<String>,
    status: StatusReader,
    #[cfg(feature = "metrics")]
    metrics: Metrics,
}

/// The metrics of a [`Node`] and of its process. Clones are the same; they may outlive the node.
#[cfg(feature = "metrics")]
#[derive(Clone)]
pub struct Metrics(Arc<ionian_metrics::Sources>);

#[cfg(feature = "metrics")]
impl Metrics {
    /// The text format of Prometheus (0.0.4): the metrics that `ionian node --http` serves, but for
    /// the gateway's and for how many nodes may fail. They come from what the node published last,
    /// so this asks it nothing, and works while it is stuck: `ionian_metrics_age_seconds` is then
    /// large.
    pub fn text(&self) -> String {
        self.0.prometheus()
    }
}

impl Node {
    /// Starts a node, and returns when it is reachable for the others. A node that is to join a
    /// cluster is waited for until it is a member there, however long that takes.
    ///
    /// # Errors
    /// When the deployment is not well formed, has no such node or another machine; when the
    /// address cannot be listened on; or when the data directory cannot be used, which says what to
    /// do.
    pub fn start<M: StateMachine + Default + 'static>(
        options: NodeOptions,
    ) -> Result<Node, StartError> {
        Self::start_with(options, || Box::new(M::default()))
    }

    /// Like [`start`](Self::start), with machines made by `machine`, which must always return the
    /// same state.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn start_with(
        options: NodeOptions,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + 'static,
    ) -> Result<Node, StartError> {
        Self::start_boxed(options, Box::new(machine))
    }

    /// No type parameters: what it calls, which is the driver with every protocol, is compiled with
    /// this crate, and not once more for each user.
    fn start_boxed(options: NodeOptions, machine: MakeMachine) -> Result<Node, StartError> {
        let data = options.data.join("nodes").join(&options.name);
        let given = match options.origin {
            Origin::Founded(deployment) => Configuration::founded(deployment),
            Origin::Joining(contact) => {
                match membership_file::stored(&data).map_err(NodeError::from)? {
                    Some(known) => known,
                    None => {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build();
                        runtime
                            .map_err(NodeError::Start)?
                            .block_on(wait_for_membership(&options.name, &[contact], None))
                    }
                }
            }
        };
        given.deployment.check_machine(&[&options.machine])?;
        let protocol = given.deployment.protocol.clone();
        let start = Start {
            given,
            name: options.name,
            data,
            machine,
        };
        // The protocol exists, because parsing the deployment has checked that.
        registry::with_protocol(&protocol, start).ok_or(StartError::Protocol(protocol))?
    }

    /// A handle to the node's client lane.
    pub fn client(&self) -> Client {
        self.calls.client()
    }

    /// The `gateway` of this node in the deployment: `host:port`. The library does not listen
    /// there; your program may.
    pub fn gateway(&self) -> Option<&str> {
        self.gateway.as_deref()
    }

    /// What the node published of itself last, with the time: it does so once a second, and this
    /// asks it nothing. `None` until it has recovered and listens. An old status means that its
    /// event loop is stuck. The status can be serialized: it is what `ionian status --json` prints.
    pub fn status(&self) -> Option<Arc<Published>> {
        self.status.last()
    }

    /// Whether the cluster can write now, seen from this node: sends a command without effect
    /// through the log. For a readiness check.
    ///
    /// # Errors
    /// Why the command did not pass the log, or that it did not within `limit`.
    pub async fn probe(&self, limit: Duration) -> Result<(), String> {
        self.status.probe(limit).await
    }

    /// The metrics of the node and of its process, for a program that serves them itself. With the
    /// feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Waits until the node ends by itself: because its disk fails, because others refuse it, or,
    /// without an error, because it is no longer a member of the cluster.
    ///
    /// # Errors
    /// The reason why it has ended.
    pub fn wait(mut self) -> Result<(), NodeError> {
        self.hosted.wait()
    }

    /// Whether it has ended by itself; [`wait`](Self::wait) returns the reason.
    pub fn has_ended(&self) -> bool {
        self.hosted.has_ended()
    }

    /// Stops the node in order, after it has written its pending output.
    ///
    /// # Errors
    /// If it had already ended, with the reason.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.hosted.ask_to_stop(Stop::InOrder);
        self.hosted.wait()
    }
}

type MakeMachine = Box<dyn Fn() -> Box<dyn StateMachine> + Send>;

struct Start {
    given: Configuration,
    name: String,
    data: PathBuf,
    machine: MakeMachine,
}

impl Work for Start {
    type Output = Result<Node, StartError>;

    fn run<P: Protocol>(self) -> Self::Output {
        let Start {
            given,
            name,
            data,
            machine,
        } = self;
        let mut settings = NodeSettings::new::<P>(given, &name, Some(&data))?;
        let (feed, status) = status_feed();
        settings.feed = Some(feed);
        #[cfg(feature = "metrics")]
        let metrics = sources(&status, &settings.identity.cluster, &name, data);
        let config = P::configure(settings.layout.clone())?;
        let known = settings
            .configuration
            .as_ref()
            .and_then(|known| known.member(&name));
        let gateway = known.and_then(|(_, node)| node.gateway.clone());
        let (hosted, calls) = Hosted::start::<P>(settings, config, machine)?;
        Ok(Node {
            hosted,
            calls,
            gateway,
            status,
            #[cfg(feature = "metrics")]
            metrics,
        })
    }
}

/// Where the metrics of a node come from.
#[cfg(feature = "metrics")]
fn sources(status: &StatusReader, cluster: &str, node: &str, data: PathBuf) -> Metrics {
    ionian_metrics::started();
    Metrics(Arc::new(ionian_metrics::Sources {
        status: status.clone(),
        gateway: tokio::sync::watch::channel(None).1,
        tolerance: Box::new(|_| None),
        cluster: Arc::new(cluster.to_owned().into()),
        node: node.to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        data,
        audit: None,
    }))
}
