//! A protocol for tests of the driver: a client lane asks a set of echo instances and replies when
//! all of them have answered.
//!
//! ```text
//! application --Submit--> client --Ask--> echo (each addressed instance)
//!                         client <-Told-- echo
//! ```
//!
//! The first byte of a payload selects the action, see [`Client::on_message`] and [`Echo`].
use bytes::Bytes;
use ionian_kernel::id::{Epoch, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId, numbered};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Protocol, Transition};
use ionian_kernel::service::Service;
use ionian_kernel::status::Metrics;
use ionian_kernel::time::Timestamp;
use ionian_runtime::NodeError;
use ionian_runtime::{
    Application, AuditCheck, Durability, Identity, LaneHandle, NodeSettings, NodeStatus,
    QueryError, Runnable, StartupWatch, query_status, run_node_blocking,
};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, Once};
use std::thread::JoinHandle;
use std::time::Duration;

pub use crate::support::*;

ionian_kernel::ids! {
    /// What a client lane asks.
    ServerId "server"
}

pub mod client {
    use super::ServerId;
    use super::{Envelope, Never};
    use bytes::Bytes;
    use ionian_kernel::client::{Reply, Request};
    use ionian_kernel::id::{ClientId, Set, Slot};
    use ionian_kernel::messages;
    use ionian_kernel::role::{Out, Role};
    use ionian_kernel::status::{Metric, Metrics, Status};
    use ionian_kernel::time::{Duration, Instant};
    use std::collections::BTreeMap;

    messages! {
        /// What arrives at a client lane.
        "client" In {
            0 => Submit { request: Request },
            1 => Told { token: u64, by: ServerId, payload: Bytes },
        }
    }

    pub struct Client {
        pub id: ClientId,
        pub servers: usize,
        pub resend_after: Duration,
        pub open: BTreeMap<u64, Open>,
    }

    pub struct Open {
        payload: Bytes,
        missing: Set<ServerId>,
        /// The answers, by instance.
        told: BTreeMap<u8, Bytes>,
        asked: Instant,
    }

    impl Client {
        fn ask(&self, token: u64, open: &Open, out: &mut Out<'_, Self>) {
            let ask = super::echo::In::Ask {
                client: self.id,
                token,
                payload: open.payload.clone(),
            };
            out.send(Envelope::ToEcho(open.missing, ask));
        }
    }

    impl Role for Client {
        type In = In;
        type Send = Envelope;
        type Config = ionian_kernel::layout::Layout;
        type Record = Never;

        fn recover(&mut self, record: Never) {
            match record {}
        }

        /// A payload `@x..` asks instance x only, any other asks all.
        fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
            match message {
                In::Submit { request } => {
                    let payload = request.payload;
                    let missing = match payload.get(..2) {
                        Some([b'@', index]) => Set::one(ServerId(index - b'0')),
                        _ => Set::first(self.servers),
                    };
                    let open = Open {
                        payload,
                        missing,
                        told: BTreeMap::new(),
                        asked: now,
                    };
                    self.ask(request.token, &open, out);
                    self.open.insert(request.token, open);
                }
                In::Told { token, by, payload } => {
                    let Some(open) = self.open.get_mut(&token) else {
                        return;
                    };
                    open.missing.remove(by);
                    open.told.insert(by.0, payload);
                    if open.missing.is_empty() {
                        let open = self.open.remove(&token).unwrap();
                        let all = open.told.values().flatten().copied().collect::<Vec<u8>>();
                        let reply = Reply {
                            token,
                            command: None,
                            outcome: Ok(all.into()),
                            seen: Slot::ZERO,
                        };
                        out.send(Envelope::ToApplication(self.id, reply));
                    }
                }
            }
        }

        fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
            let mut open = std::mem::take(&mut self.open);
            for (token, open) in &mut open {
                if open.asked + self.resend_after <= now {
                    open.asked = now;
                    self.ask(*token, open, out);
                }
            }
            self.open = open;
        }

        fn next_timer(&self) -> Option<Instant> {
            self.open
                .values()
                .map(|open| open.asked + self.resend_after)
                .min()
        }

        const METRICS: Metrics = &[&[Metric::gauge("open", "requests", "no answer yet")]];

        fn status(&self, status: &mut Status) {
            status.add([self.open.len() as u64]);
        }
    }
}

pub mod echo {
    use super::Envelope;
    use super::ServerId;
    use bytes::Bytes;
    use ionian_kernel::id::{ClientId, Set};
    use ionian_kernel::messages;
    use ionian_kernel::role::{Lsn, Out, Role};
    use ionian_kernel::status::{Metric, Metrics, Status};
    use ionian_kernel::time::Instant;

    messages! {
        /// What arrives at an echo instance.
        "echo" In {
            0 => Ask { client: ClientId, token: u64, payload: Bytes },
        }
    }

    pub struct Echo {
        pub id: ServerId,
        pub amnesiac: bool,
        pub asked: u64,
        /// How many vital records it has written, in all its processes.
        pub kept: u64,
        pub durable: u64,
    }

    impl Role for Echo {
        type In = In;
        type Send = Envelope;
        type Config = ionian_kernel::layout::Layout;
        type Record = u64;

        fn recover(&mut self, record: u64) {
            assert_eq!(
                record, self.kept,
                "records come back in order, none missing"
            );
            self.kept += 1;
        }

        /// `k..` first stores a vital record and answers with their number; any other payload is
        /// answered by `index:payload;`.
        fn on_message(&mut self, _: Instant, message: In, out: &mut Out<'_, Self>) {
            let In::Ask {
                client,
                token,
                payload,
            } = message;
            self.asked += 1;
            let told = if payload.first() == Some(&b'k') {
                out.persist_vital(self.kept);
                self.kept += 1;
                format!("{}:{};", self.id.0, self.kept).into_bytes()
            } else {
                [format!("{}:", self.id.0).as_bytes(), &payload, b";"].concat()
            };
            let told = super::client::In::Told {
                token,
                by: self.id,
                payload: told.into(),
            };
            out.send(Envelope::ToClient(Set::one(client), told));
        }

        fn on_durable(&mut self, lsn: Lsn, _: &mut Out<'_, Self>) {
            self.durable = lsn.0;
        }

        const METRICS: Metrics = &[&[
            Metric::counter("asked", "requests", "taken in"),
            Metric::counter("kept", "records", "written as vital"),
            Metric::gauge("durable", "records", "on disk"),
        ]];

        fn status(&self, status: &mut Status) {
            status.remembers = Some(!self.amnesiac);
            status.add([self.asked, self.kept, self.durable]);
        }
    }
}

pub use ionian_kernel::wire::Never;

ionian_kernel::protocol! {
    config Layout;
    0 Client "client" ToClient(ionian_kernel::id::ClientId) client::Client,
    1 Echo "echo" ToEcho(ServerId) echo::Echo,
}

pub struct Toy;

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = &[];
    const EXECUTORS: &'static [u8] = &[];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance_;
    type Config = Layout;
    type Invariants = ionian_kernel::protocol::NoInvariants;

    fn configure(layout: Layout) -> Result<Layout, LayoutError> {
        match layout.instances.len() {
            2 => Ok(layout),
            count => Err(LayoutError(format!(
                "a toy has 2 kinds of roles, not {count}"
            ))),
        }
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Err(LayoutError("a toy stays as it is".into()))
    }

    fn latest_epoch(config: &Self::Config) -> ionian_kernel::id::Epoch {
        config.epoch
    }

    fn service(_: &Layout, _: Epoch) -> Service {
        Service {
            hub: kind::Client,
            parts: Vec::new(),
            voters: None,
            needs: Vec::new(),
            memories: Vec::new(),
        }
    }

    fn founding_records(_: &Layout, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn instantiate(layout: &Layout, birth: Birth<'_>) -> Instance_ {
        let index = birth.address.index;
        match birth.address.kind {
            kind::Client => Instance_::Client(client::Client {
                id: ionian_kernel::id::ClientId(index),
                servers: layout.count(kind::Echo),
                resend_after: layout.options.resend_after,
                open: Default::default(),
            }),
            _ => {
                let (amnesiac, asked, kept, durable) = (birth.amnesiac, 0, 0, 0);
                Instance_::Echo(echo::Echo {
                    id: ServerId(index),
                    amnesiac,
                    asked,
                    kept,
                    durable,
                })
            }
        }
    }
}

// `Instance` is also a name of the tests' clock.
use self::Instance as Instance_;

/// A machine for a protocol that has none.
pub struct NoMachine;

impl StateMachine for NoMachine {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

pub fn no_machine() -> Box<dyn StateMachine> {
    Box::new(NoMachine)
}

/// A lane on each of the first nodes, and echo instances on the given nodes. No message is sent
/// twice: a lost message shows.
pub fn layout(lanes: &[u16], echoes: &[u16]) -> Layout {
    watch();
    let place = |nodes: &[u16]| nodes.iter().map(|node| NodeId(*node)).collect();
    let mut layout = Layout {
        instances: numbered(vec![place(lanes), place(echoes)]),
        ..Layout::default()
    };
    layout.options.resend_after = Duration::from_secs(3600);
    layout
}

pub fn identity() -> Identity {
    Identity {
        cluster: "blue".into(),
        founding: 0xd1,
        protocol: "toy".into(),
        at_levels: Vec::new(),
    }
}

pub fn settings(
    node: u16,
    listener: TcpListener,
    peers: &[SocketAddr],
    layout: &Layout,
) -> NodeSettings {
    NodeSettings {
        identity: identity(),
        node: NodeId(node),
        name: format!("n{node}"),
        address: listener.local_addr().unwrap(),
        listener: Some(listener),
        peers: (0..)
            .map(NodeId)
            .zip(peers.iter().map(SocketAddr::to_string))
            .collect(),
        layout: layout.clone(),
        configuration: None,
        durability: Durability::Memory,
        disk: Default::default(),
        data: None,
        tls: None,
        clock_ahead_ms: 0,
        startup: StartupWatch::default(),
        feed: None,
        audit: AuditCheck::default(),
    }
}

pub fn bind() -> TcpListener {
    watch();
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Ends the tests of this file if one of them hangs: calls into a cluster have no deadline.
fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // `tracing` decides once a process, on the thread that logs a line first, whether the line
        // is wanted. A thread that captures nothing must want it too, or another would wait for it
        // without success.
        let _ = tracing::subscriber::set_global_default(Capture(Arc::default()));
        std::thread::spawn(|| {
            std::thread::sleep(3 * DEADLINE);
            eprintln!("a test hangs");
            std::process::exit(101);
        });
    });
}

pub fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A node on its own thread, with its log.
pub struct Running {
    pub address: SocketAddr,
    pub log: Arc<Mutex<Vec<String>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

/// Starts a node whose lanes are not used.
pub fn start(settings: NodeSettings) -> Running {
    start_with(settings, |_| Box::new(()))
}

pub fn start_with(
    settings: NodeSettings,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application> + Send + 'static,
) -> Running {
    start_as::<Toy>(settings, no_machine, application)
}

/// A node of this protocol.
pub fn start_as<P: Protocol>(
    settings: NodeSettings,
    machine: fn() -> Box<dyn StateMachine>,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application> + Send + 'static,
) -> Running {
    let address = settings.address;
    let log = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let capture = Capture(log.clone());
    let thread = std::thread::spawn(move || {
        let shutdown = async move {
            let _ = stopped.await;
        };
        tracing::subscriber::with_default(capture, || {
            run_node_blocking(
                Runnable::of::<P>(),
                settings,
                machine,
                application,
                shutdown,
            )
        })
    });
    Running {
        address,
        log,
        stop: Some(stop),
        thread: Some(thread),
    }
}

impl Running {
    pub fn status(&self) -> NodeStatus {
        status(self.address).unwrap()
    }

    /// Stops the node in order.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits for a node that ends by itself.
    pub fn join(mut self) -> Result<(), NodeError> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// How many lines of the log contain all the words.
    pub fn logged(&self, words: &[&str]) -> usize {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn status(address: SocketAddr) -> Result<NodeStatus, QueryError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(query_status(address, DEADLINE))
}

/// Stores log lines as `LEVEL text`.
struct Capture(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Capture {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("ionian")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {value:?}");
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
