//! One node of a cluster on several machines, in a user's program.

use crate::StartError;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::machine::StateMachine;
use ionian_runtime::storage::membership_file;
use ionian_runtime::{
    Calls, Client, Hosted, NodeError, NodeSettings, NodeTls, Published, Runnable, StatusReader,
    Stop, TlsMode, status_feed, wait_for_membership,
};
use ionian_tls::{ClientAuth, TlsError};
use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

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
    /// How connections to other nodes and from operators are secured. With `None` they are not:
    /// every process that reaches the node's address can copy all data and change the members.
    pub tls: Option<Tls>,
}

/// The certificate of a node, and which connections the node accepts: what `ionian node --tls` is
/// given.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The directory with `tls.crt`, `tls.key` and `ca.crt`, as `ionian certs create` makes it. The
    /// node reads new files while it runs, within 10 s.
    pub directory: PathBuf,
    /// Which connections the node accepts.
    pub mode: TlsMode,
}

impl Tls {
    /// Accepts connections with TLS only.
    pub fn required(directory: impl Into<PathBuf>) -> Self {
        Tls {
            directory: directory.into(),
            mode: TlsMode::Required,
        }
    }

    fn open(&self, name: &str) -> Result<NodeTls, StartError> {
        NodeTls::of_node(&self.directory, name, self.mode, ClientAuth::None, &|_| ())
            .map_err(|source| refused(&self.directory, source))
    }
}

fn refused(directory: &Path, source: TlsError) -> StartError {
    StartError::Tls {
        directory: directory.to_owned(),
        source: Box::new(source),
    }
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
    /// It blocks the calling thread: async code has [`start_async`](Self::start_async).
    ///
    /// # Errors
    /// When the deployment is not well formed, has no such node or another machine; when the
    /// address cannot be listened on; or when the data directory or the certificate cannot be used,
    /// which says what to do.
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

    /// Like [`start`](Self::start), without blocking the calling thread; it needs no runtime. If
    /// the future is dropped, the node stops.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub async fn start_async<M: StateMachine + Default + 'static>(
        options: NodeOptions,
    ) -> Result<Node, StartError> {
        Self::start_boxed_async(options, Box::new(|| Box::new(M::default()))).await
    }

    /// No type parameters: what it calls, which is the driver with every protocol, is compiled with
    /// this crate, and not once more for each user.
    fn start_boxed(options: NodeOptions, machine: MakeMachine) -> Result<Node, StartError> {
        let started = on_a_thread(move || begin(options, machine, pending()))?.join();
        let started = started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(started.expect("it waits until the node is a member"))
    }

    /// No type parameters, as above.
    async fn start_boxed_async(
        options: NodeOptions,
        machine: MakeMachine,
    ) -> Result<Node, StartError> {
        let (mut done, started) = oneshot::channel();
        on_a_thread(move || {
            if let Some(node) = begin(options, machine, done.closed()).transpose() {
                // Where no caller waits any more, the node is dropped.
                let _ = done.send(node);
            }
        })?;
        started
            .await
            .expect("the thread sends a result while a caller waits for it")
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

/// The thread of a caller may run an async runtime, on which a start must neither wait nor begin
/// another runtime.
fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NodeError> {
    let thread = std::thread::Builder::new().name("ionian-start".to_owned());
    thread.spawn(work).map_err(NodeError::Start)
}

/// Starts a node on this thread; none if the start is given up while the node is not a member.
fn begin(
    options: NodeOptions,
    machine: MakeMachine,
    given_up: impl Future<Output = ()>,
) -> Result<Option<Node>, StartError> {
    let data = options.data.join("nodes").join(&options.name);
    let tls = options.tls.as_ref();
    let secured = tls.map(|tls| tls.open(&options.name)).transpose()?;
    let given = match options.origin {
        Origin::Founded(deployment) => Some(Configuration::founded(deployment)),
        Origin::Joining(contact) => {
            match membership_file::stored(&data).map_err(NodeError::from)? {
                Some(known) => Some(known),
                None => join(&options.name, contact, secured.as_ref(), given_up)?,
            }
        }
    };
    let Some(given) = given else {
        return Ok(None);
    };
    given.deployment.check_machine(&[&options.machine])?;
    if let (Some(tls), Some(secured)) = (tls, &secured) {
        let checked = secured.check_cluster(&given.deployment.cluster, &options.name);
        checked.map_err(|source| refused(&tls.directory, source))?;
    }
    let protocol = given.deployment.protocol.clone();
    let start = Start {
        given,
        name: options.name,
        data,
        machine,
        tls: secured,
    };
    // The protocol exists, because parsing the deployment has checked that.
    let runnable = Runnable::named(&protocol).ok_or(StartError::Protocol(protocol))?;
    start.run(runnable).map(Some)
}

/// Waits until the node is a member; none if the start is given up before.
fn join(
    name: &str,
    contact: String,
    tls: Option<&NodeTls>,
    given_up: impl Future<Output = ()>,
) -> Result<Option<Configuration>, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(NodeError::Start)?;
    let contacts = [contact];
    Ok(runtime.block_on(async {
        tokio::select! {
            known = wait_for_membership(name, &contacts, tls) => Some(known),
            () = given_up => None,
        }
    }))
}

struct Start {
    given: Configuration,
    name: String,
    data: PathBuf,
    machine: MakeMachine,
    tls: Option<NodeTls>,
}

impl Start {
    fn run(self, protocol: Runnable) -> Result<Node, StartError> {
        let Start {
            given,
            name,
            data,
            machine,
            tls,
        } = self;
        let mut settings = NodeSettings::new(protocol.protocol(), given, &name, Some(&data))?;
        settings.tls = tls;
        let (feed, status) = status_feed();
        settings.feed = Some(feed);
        #[cfg(feature = "metrics")]
        let metrics = sources(&status, &settings.identity.cluster, &name, data);
        protocol.protocol().configure(settings.layout.clone())?;
        let known = settings
            .configuration
            .as_ref()
            .and_then(|known| known.member(&name));
        let gateway = known.and_then(|(_, node)| node.gateway.clone());
        let (hosted, calls) = Hosted::start(protocol, settings, machine)?;
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
