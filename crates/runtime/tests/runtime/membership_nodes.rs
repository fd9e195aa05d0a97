//! A cluster of MultiPaxos whose nodes are threads that are started from deployments, one by one,
//! with a register as the state.

use crate::support;
use bytes::Bytes;
use ionian_deployment::{Configuration, Deployment, DeploymentError, Node, Placed, PresetOptions};
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::membership::{Change, Verdict};
use ionian_kernel::protocol::any;
use ionian_machines::register::{self, Register};
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::admin::change::{self, Response};
use ionian_runtime::query_status;
use ionian_runtime::{
    Application, Durability, LaneHandle, NodeError, NodeSettings, NodeStatus, Runnable,
};
use ionian_runtime::{query_membership, request_change};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

pub(crate) use support::{DEADLINE, Directory, eventually};

/// A request to a node's lane, and where the answer goes.
type Call = (
    Operation,
    Bytes,
    std::sync::mpsc::Sender<Result<Bytes, Refusal>>,
);

struct Running {
    calls: mpsc::UnboundedSender<Call>,
    /// True stops the node in order; dropping it is a crash.
    stop: Option<oneshot::Sender<bool>>,
    thread: JoinHandle<Result<(), NodeError>>,
}

pub(crate) struct Nodes {
    pub(crate) founding: Deployment,
    data: PathBuf,
    addresses: BTreeMap<String, String>,
    running: BTreeMap<String, Running>,
}

/// An address that no other test of this process is given, outside the range from which the system
/// takes ports for outgoing connections: a stopped node finds its port free when it starts again.
fn free_address() -> String {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let offset = (std::process::id().wrapping_mul(97) % 4_000) as u16;
    loop {
        let port = 12_000 + offset + GIVEN.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

impl Nodes {
    /// Three nodes with every role but batchers.
    pub(crate) fn start(directory: &Directory, durability: Durability) -> Self {
        Self::start_with(directory, durability, 1)
    }

    /// As [`start`](Self::start), on this number of event loops each.
    pub(crate) fn start_with(directory: &Directory, durability: Durability, loops: u64) -> Self {
        let mut founding = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        founding.durability = match durability {
            Durability::Disk => ionian_deployment::Durability::Disk,
            Durability::Memory => ionian_deployment::Durability::Memory,
        };
        founding.options.set("loops", loops).unwrap();
        for node in &mut founding.nodes {
            (node.address, node.gateway) = (free_address(), None);
        }
        let addresses = founding
            .nodes
            .iter()
            .map(|node| (node.name.clone(), node.address.clone()))
            .collect();
        let mut nodes = Nodes {
            founding,
            data: directory.0.clone(),
            addresses,
            running: BTreeMap::new(),
        };
        for name in ["n0", "n1", "n2"] {
            nodes.start_again(name);
        }
        nodes.write("n0", "first");
        nodes
    }

    /// A node to be added.
    pub(crate) fn new_node(&self, name: &str, roles: &[&str]) -> Node {
        let roles = roles.iter().map(|role| Placed::some(role, 1)).collect();
        Node {
            name: name.into(),
            address: free_address(),
            roles,
            ..Node::default()
        }
    }

    /// The settings of a node that starts with the founding deployment.
    pub(crate) fn settings(&self, name: &str) -> Result<NodeSettings, NodeError> {
        let data = self.data.join(name);
        NodeSettings::new(
            any::<MultiPaxos>(),
            Configuration::founded(self.founding.clone()),
            name,
            Some(&data),
        )
    }

    /// Starts a node with the founding deployment.
    pub(crate) fn start_again(&mut self, name: &str) {
        let settings = self.settings(name).unwrap();
        self.run(settings);
    }

    /// Starts a new node with what `contact` knows, as soon as it is a member.
    pub(crate) fn join(&mut self, name: &str, contact: &str) {
        self.join_in(name, contact, name);
    }

    /// As [`join`](Self::join), with a data directory of this name.
    pub(crate) fn join_in(&mut self, name: &str, contact: &str, directory: &str) {
        eventually("it is a member", || {
            self.known(contact).member(name).is_some()
        });
        let data = self.data.join(directory);
        let settings =
            NodeSettings::new(any::<MultiPaxos>(), self.known(contact), name, Some(&data)).unwrap();
        self.addresses
            .insert(name.into(), settings.address.to_string());
        self.run(settings);
    }

    fn run(&mut self, settings: NodeSettings) {
        let (calls, queue) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<bool>();
        let name = settings.name.clone();
        let thread = std::thread::spawn(move || {
            let (in_order, shutdown) = oneshot::channel::<()>();
            let shutdown = async move {
                let _ = shutdown.await;
            };
            let machine = || Box::new(Register::default()) as Box<_>;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let application = move |handle| serve(handle, queue);
            let node = ionian_runtime::run_node(
                Runnable::of::<MultiPaxos>(),
                settings,
                machine,
                application,
                shutdown,
            );
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let mut node = std::pin::pin!(node);
                tokio::select! {
                    ended = &mut node => return ended,
                    how = stopped => match how {
                        Ok(true) => drop(in_order),
                        _ => return Ok(()),
                    }
                }
                node.await
            })
        });
        self.running.insert(
            name,
            Running {
                calls,
                stop: Some(stop),
                thread,
            },
        );
    }

    fn end(&mut self, name: &str, in_order: bool) {
        let Running { stop, thread, .. } = self.running.remove(name).expect("it runs");
        let _ = stop.expect("it was not stopped").send(in_order);
        thread.join().unwrap().unwrap();
    }

    /// Ends a node as a crash would.
    pub(crate) fn kill(&mut self, name: &str) {
        self.end(name, false);
    }

    pub(crate) fn stop(&mut self, name: &str) {
        self.end(name, true);
    }

    /// Waits until a node has ended by itself.
    pub(crate) fn ends_by_itself(&mut self, name: &str) {
        let Running { stop, thread, .. } = self.running.remove(name).expect("it runs");
        eventually("it ends", || thread.is_finished());
        drop(stop);
        thread.join().unwrap().unwrap();
    }

    pub(crate) fn known(&self, name: &str) -> Configuration {
        let address = self.addresses[name].parse::<SocketAddr>().unwrap();
        let mut found = None;
        eventually("the node answers", || {
            found = block_on(query_membership(address, DEADLINE)).ok();
            found.is_some()
        });
        found.unwrap()
    }

    fn status(&self, name: &str) -> Option<NodeStatus> {
        block_on(query_status(
            self.addresses[name].parse::<SocketAddr>().unwrap(),
            DEADLINE,
        ))
        .ok()
    }

    /// The roles on a node, as `ROLE NUMBER`.
    pub(crate) fn roles(&self, name: &str) -> Vec<String> {
        let roles = self.status(name).unwrap().roles;
        roles
            .iter()
            .map(|role| format!("{} {}", role.role, role.index))
            .collect()
    }

    /// Waits until these nodes are in the epoch, and the lane of the first has acknowledged a
    /// write.
    pub(crate) fn wait_for_epoch(&self, epoch: u32, names: &[&str]) {
        let there = |name: &&str| {
            self.status(name)
                .is_some_and(|status| status.epoch == epoch)
        };
        eventually("all are in the epoch", || names.iter().all(there));
    }

    pub(crate) fn begin(&self, known: &Configuration, to: &Deployment) -> Change {
        change::begin(any::<MultiPaxos>(), known, to).unwrap()
    }

    pub(crate) fn request_once(&self, via: &str, change: &Change) -> Response {
        block_on(request_change(
            self.addresses[via].parse::<SocketAddr>().unwrap(),
            change,
            DEADLINE,
        ))
        .unwrap()
    }

    /// Repeats the request until it is decided.
    pub(crate) fn request(&self, via: &str, change: &Change) -> Response {
        let address = self.addresses[via].parse::<SocketAddr>().unwrap();
        let mut response = None;
        // The leader may have failed a moment ago.
        eventually("the log decides", || {
            response = block_on(request_change(address, change, DEADLINE)).ok();
            matches!(response, Some(Response::Decided(_) | Response::Refused(_)))
        });
        response.unwrap()
    }

    /// Plans a change of the cluster that `via` knows, and has it submit the change.
    pub(crate) fn try_change(
        &self,
        via: &str,
        plan: impl Fn(&Deployment) -> Result<Deployment, DeploymentError>,
    ) -> Result<u32, String> {
        let known = self.known(via);
        let to = plan(&known.deployment).map_err(|error| error.to_string())?;
        let change =
            change::begin(any::<MultiPaxos>(), &known, &to).map_err(|error| error.to_string())?;
        match self.request(via, &change) {
            Response::Decided(Verdict::Accepted { epoch }) => Ok(epoch.0),
            other => Err(other.to_string()),
        }
    }

    pub(crate) fn change(
        &self,
        via: &str,
        plan: impl Fn(&Deployment) -> Result<Deployment, DeploymentError>,
    ) -> u32 {
        self.try_change(via, plan).unwrap()
    }

    pub(crate) fn abandon(&self, via: &str) {
        let change = change::abandon(&self.known(via)).unwrap();
        assert!(matches!(
            self.request(via, &change),
            Response::Decided(Verdict::Accepted { .. })
        ));
    }

    /// Writes through the lane of a node until it is acknowledged.
    pub(crate) fn write(&self, via: &str, value: &str) {
        let calls = &self.running[via].calls;
        eventually("it is written", || {
            call(
                calls,
                Operation::Write,
                register::write(value.as_bytes()).into(),
            )
            .is_ok()
        });
    }

    /// Reads through the lane of a node.
    pub(crate) fn read(&self, via: &str) -> String {
        let calls = &self.running[via].calls;
        let mut found = None;
        eventually("it is read", || {
            let level = Operation::Read(ReadLevel::Linearizable);
            found = call(calls, level, register::read().into()).ok();
            found.is_some()
        });
        String::from_utf8(found.unwrap().to_vec()).unwrap()
    }

    /// Writes through the lane of a node until it is stopped.
    pub(crate) fn writer(&self, via: &str) -> Writer {
        let calls = self.running[via].calls.clone();
        let (written, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, stopped) = (written.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            let (mut number, mut possible) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                assert!(
                    began.elapsed() < 2 * DEADLINE,
                    "nothing is written any more"
                );
                let value = format!("{number}");
                match call(
                    &calls,
                    Operation::Write,
                    register::write(value.as_bytes()).into(),
                ) {
                    Ok(_) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        number += 1;
                    }
                    // It may still be executed, after the next.
                    Err(Refusal::Unknown) => possible.push(value),
                    Err(_) => {}
                }
            }
            possible.push(format!("{}", number - 1));
            possible
        });
        Writer {
            written,
            stop,
            thread,
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for running in std::mem::take(&mut self.running).into_values() {
            drop(running.stop);
            let _ = running.thread.join();
        }
    }
}

pub(crate) struct Writer {
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Writer {
    /// Waits until this number of further writes are acknowledged.
    pub(crate) fn go_on(&self, more: u64) {
        let goal = self.written.load(Ordering::Relaxed) + more;
        eventually("writes are acknowledged", || {
            self.written.load(Ordering::Relaxed) >= goal
        });
    }

    /// The values that a read may return now: the last one that was acknowledged, or one whose
    /// result is unknown.
    pub(crate) fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn call(
    calls: &mpsc::UnboundedSender<Call>,
    operation: Operation,
    payload: Bytes,
) -> Result<Bytes, Refusal> {
    let (answer, answered) = std::sync::mpsc::channel();
    calls
        .send((operation, payload, answer))
        .map_err(|_| Refusal::Unavailable)?;
    answered.recv().unwrap_or(Err(Refusal::Unknown))
}

type Open = Rc<RefCell<HashMap<u64, std::sync::mpsc::Sender<Result<Bytes, Refusal>>>>>;

/// Takes over calls from other threads, to the first lane of the node.
struct Lanes(Open);

fn serve(handle: LaneHandle, mut queue: mpsc::UnboundedReceiver<Call>) -> Box<dyn Application> {
    let open = Open::default();
    let lanes = Lanes(open.clone());
    tokio::task::spawn_local(async move {
        let mut token = 0;
        while let Some((operation, payload, answer)) = queue.recv().await {
            token += 1;
            if let Some(lane) = handle.first_lane().filter(|_| !handle.is_closed()) {
                open.borrow_mut().insert(token, answer);
                handle.submit(
                    lane,
                    Request {
                        token,
                        operation,
                        payload,
                    },
                );
            }
        }
    });
    Box::new(lanes)
}

impl Application for Lanes {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        if let Some(answer) = self.0.borrow_mut().remove(&reply.token) {
            let _ = answer.send(reply.outcome);
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.0.borrow_mut().clear();
    }
}
