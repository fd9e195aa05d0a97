//! The page of a running cluster names the role that is slowed down on purpose.

#[path = "../../planner/tests/judgement/slowed.rs"]
mod slowed;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use ionian_dashboard::{Dashboard, Look, Looking, Node};
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::id::Index;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_machines::nothing::Nothing;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::{Cluster, status_feed};
use serde_json::Value;
use slowed::{Slowed, handled, slow_down};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The kinds that are slowed down, one after the other.
const KINDS: [&str; 2] = ["leader", "unbatcher"];

/// Threads that write, each one command at a time, and how long each rests after one.
const CLIENTS: usize = 12;
const REST: Duration = Duration::from_millis(20);

/// The share of a processor that the slow instance is to take.
const BUSY: f64 = 0.75;

/// In how many looks, one after the other, the role must be named once. Something else may take the
/// processors meanwhile: then no loop works enough to limit anything.
const LOOKS: usize = 30;

/// Far more than a look takes: without one the test fails.
const LIMIT: Duration = Duration::from_secs(60);

type Running = Cluster<Slowed<MultiPaxos>>;

/// The load on a cluster, until it is dropped.
struct Load {
    stops: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(cluster: &Running) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (client, stops) = (cluster.client(), stops.clone());
            std::thread::spawn(move || {
                while !stops.load(Ordering::Relaxed) {
                    client.write_blocking("command").expect("it is answered");
                    std::thread::sleep(REST);
                }
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Load { stops, clients }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // It has said why it failed.
            let _ = client.join();
        }
    }
}

/// What a node would find that asks all of them.
fn look(cluster: &Running, nodes: &[NodeId]) -> Look {
    let node = |id: &NodeId| {
        let mut status = cluster.status(*id).expect("it runs");
        // All nodes share the processors of this machine, and wait for each other.
        let work = status.work.as_mut().expect("it is reported");
        work.loop_wait_us = Some(0);
        Node {
            name: status.name.clone(),
            status: Some(status),
            ..Node::default()
        }
    };
    Look {
        document: "{}".to_owned(),
        kinds: MultiPaxos::KINDS
            .iter()
            .map(|it| (*it).to_owned())
            .collect(),
        nodes: nodes.iter().map(node).collect(),
        ..Look::default()
    }
}

/// The stream of a page.
struct Page(BoxBody<Bytes, Infallible>);

impl Page {
    async fn open(dashboard: &Arc<Dashboard>) -> Self {
        let answer = dashboard.page("/api/v1/events", BTreeMap::new());
        Page(answer.expect("a page").await.into_body())
    }

    /// What it draws next.
    async fn picture(&mut self) -> Value {
        let next = tokio::time::timeout(LIMIT, self.0.frame()).await;
        let frame = next.expect("a look in time").expect("it goes on");
        let frame = frame.expect("a frame");
        let bytes = frame.into_data().expect("an event");
        let event = String::from_utf8(bytes.into()).expect("text");
        let data = event.strip_prefix("event: look\ndata: ").expect("a look");
        serde_json::from_str(data).expect("a picture")
    }
}

/// Slows down the busiest instance of a kind, so that it takes [`BUSY`] of a processor.
async fn slow(kind: &str, page: &mut Page) -> Address {
    let place = MultiPaxos::KINDS.iter().position(|it| *it == kind);
    let kind = place.expect("a kind") as u8;
    let (before, began) = (handled(kind), Instant::now());
    // Two looks are some seconds apart.
    page.picture().await;
    page.picture().await;
    let seconds = began.elapsed().as_secs_f64();
    let after = handled(kind).into_iter().zip(before);
    let more = after.map(|((index, after), (_, before))| (index, after - before));
    let busiest: (Index, u64) = more.max_by_key(|(_, more)| *more).expect("an instance");
    let (index, messages) = busiest;
    assert!(
        messages > 0,
        "no instance of kind {kind} has anything to do"
    );
    let at = Address { kind, index };
    slow_down(
        at,
        Duration::from_secs_f64(BUSY * seconds / messages as f64),
    );
    at
}

#[tokio::test]
async fn the_page_names_the_role_that_is_slowed_down() {
    let deployment = Deployment::preset("colocated", &PresetOptions::default());
    let layout = deployment.and_then(|it| it.layout(MultiPaxos::KINDS));
    let layout = layout.expect("a layout");
    let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
    let cluster = Cluster::start(layout, || Box::new(Nothing)).expect("it starts");
    let cluster = Arc::new(cluster);
    let _load = Load::on(&cluster);
    let asked = cluster.clone();
    let looking: Looking = Box::new(move || {
        let (asked, nodes) = (asked.clone(), nodes.clone());
        // What a cluster in this process reports is waited for.
        let found = tokio::task::spawn_blocking(move || look(&asked, &nodes));
        Box::pin(async move { found.await.ok() })
    });
    let (_feed, reader) = status_feed();
    let dashboard = Dashboard::start(reader, looking).expect("a thread");
    let mut page = Page::open(&dashboard).await;
    for kind in KINDS {
        let at = slow(kind, &mut page).await;
        let expected = format!("{kind} {}", at.index);
        // It was not slow in all of the time before this one.
        page.picture().await;
        page.picture().await;
        let mut named = None;
        for _ in 0..LOOKS {
            let picture = page.picture().await;
            let bottleneck = &picture["bottleneck"];
            named = bottleneck["role"].as_str().map(str::to_owned);
            if named.is_some() {
                assert_eq!(named.as_ref(), Some(&expected), "{bottleneck:#}");
                break;
            }
        }
        assert!(named.is_some(), "no role is named, and {expected} is slow");
        slow_down(at, Duration::ZERO);
    }
}
