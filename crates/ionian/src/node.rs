//! One node of a cluster of several machines, in a program of the user's.

use crate::StartError;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::registry::{self, Work};
use ionian_runtime::storage::membership_file;
use ionian_runtime::{Calls, Client, Hosted, NodeError, NodeSettings, Stop, wait_for_membership};
use std::path::PathBuf;

/// Which node it is to be.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name in the deployment, such as `n0`.
    pub name: String,
    /// How it finds the others.
    pub origin: Origin,
    /// The data directory. The node's own is `nodes/NAME` in it, as with `ionian node` and `ionian
    /// snapshot restore`.
    pub data: PathBuf,
    /// The name of the state machine, which the deployment must have as its `machine`: so that no
    /// program runs a node whose commands it does not understand.
    pub machine: String,
}

/// How a node that is started finds the others. What it has learned of changes of the members since
/// is in its data directory, and counts when it is started again.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a node, at its start"
)]
pub enum Origin {
    /// The deployment with which the cluster was founded: the same for all of its first nodes.
    Founded(Deployment),
    /// `host:port` of a node of a running cluster that this one is to join, or has joined.
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

    /// As [`start`](Self::start), with a machine that `machine` makes: always in the same state.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        options: NodeOptions,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + 'static,
    ) -> Result<Node, StartError> {
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
                            .block_on(wait_for_membership(&options.name, &contact))
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
        // A deployment has one of the protocols that there are: reading it checks that.
        registry::with_protocol(&protocol, start).ok_or(StartError::Protocol(protocol))?
    }

    /// A handle on the node's client lane.
    pub fn client(&self) -> Client {
        self.calls.client()
    }

    /// What the deployment says about where this node serves clients, its `gateway`: `host:port`.
    /// Nothing listens there but what you put there.
    pub fn gateway(&self) -> Option<&str> {
        self.gateway.as_deref()
    }

    /// Waits until the node has ended by itself: because its disk fails, because others refuse it,
    /// or, which is no error, because it is no member of the cluster any more.
    ///
    /// # Errors
    /// Says why it has ended.
    pub fn wait(mut self) -> Result<(), NodeError> {
        self.hosted.wait()
    }

    /// Whether it has ended by itself; [`wait`](Self::wait) says why.
    pub fn has_ended(&self) -> bool {
        self.hosted.has_ended()
    }

    /// Stops the node in order: what waits is written out first.
    ///
    /// # Errors
    /// When it had ended before, and why.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.hosted.ask_to_stop(Stop::InOrder);
        self.hosted.wait()
    }
}

struct Start<F> {
    given: Configuration,
    name: String,
    data: PathBuf,
    machine: F,
}

impl<F: Fn() -> Box<dyn StateMachine> + Send + 'static> Work for Start<F> {
    type Output = Result<Node, StartError>;

    fn run<P: Protocol>(self) -> Self::Output {
        let Start {
            given,
            name,
            data,
            machine,
        } = self;
        let settings = NodeSettings::new::<P>(given, &name, Some(&data))?;
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
        })
    }
}
