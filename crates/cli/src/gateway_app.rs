//! Connects a node's gateway to its client lane.
//!
//! ```text
//! Redis client -> Gateway -> LaneHandle::submit -> client lane -> the protocol
//! Redis client <- Gateway <- Application::on_reply <- client lane <-
//! ```

use crate::node::Sink;
use crate::protocols;
use ionian_deployment::Deployment;
use ionian_gateway::{ClientTls, Family, Gateway, InfoWriter, Limits, Measured, Outcome, Peer};
use ionian_kernel::client::{DiskRoom, Reply};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::Options;
use ionian_protocols::registry;
use ionian_runtime::status::{ClientsStatus, counts};
use ionian_runtime::{Application, Kept, LaneHandle, PUBLISHED_EVERY};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How much longer the gateway waits than the lane, which answers by itself when its patience ends.
const GRACE: Duration = Duration::from_millis(250);

/// A gateway as the application of a node.
struct GatewayApplication {
    gateway: Gateway,
}

impl Application for GatewayApplication {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        self.gateway.on_reply(reply);
    }

    fn on_burst_end(&mut self) {
        self.gateway.flush();
    }

    fn drain(&mut self, drains: bool) {
        self.gateway.drain(drains);
    }

    fn disk_has_room(&mut self, room: DiskRoom) {
        self.gateway.set_disk_room(room);
    }

    fn clients(&self) -> usize {
        self.gateway.connections()
    }

    fn keep(&mut self, one_in: u64, lasting: Duration) {
        self.gateway.sample(one_in, lasting);
    }

    fn kept(&self) -> Vec<Kept> {
        let kept = self.gateway.kept().into_iter();
        kept.map(|it| Kept {
            name: it.name,
            together: it.together,
            command: it.command,
            parent: it.parent,
            slow: it.slow,
            received: it.received,
            submitted: it.submitted,
            answered: it.answered,
            written: it.written,
            id: it.id,
        })
        .collect()
    }

    fn measured(&self) -> Option<ClientsStatus> {
        let measured = self.gateway.measured();
        let commands = Family::ALL.iter().zip(&measured.commands);
        let commands = commands.map(|((_, family), outcomes)| {
            let outcomes = Outcome::ALL.iter().zip(outcomes);
            let outcomes = outcomes.map(|((_, name), count)| (name.to_string(), *count));
            (family.to_string(), outcomes.collect())
        });
        let service = Family::ALL.iter().zip(&measured.service);
        Some(ClientsStatus {
            connections: measured.connections,
            data_limit_bytes: measured.memory.0,
            data_bytes: measured.memory.1,
            commands: commands.collect(),
            service: service
                .map(|((_, family), times)| (family.to_string(), counts(times)))
                .collect(),
        })
    }
}

/// Starts the gateway on a listening socket. Call it on the node's event loop.
///
/// All connections share the node's first lane, so sequential reads of all of them see the same
/// prefix of the log.
///
/// What the gateway measures goes to `measured` once a second, while that has a reader.
pub(crate) fn start(
    (deployment, name): (&Deployment, &str),
    listener: TcpListener,
    handle: LaneHandle,
    (measured, tls, audit): (
        watch::Sender<Option<Measured>>,
        Option<ClientTls>,
        Option<Arc<Sink>>,
    ),
) -> Box<dyn Application> {
    let first = handle
        .first_lane()
        .expect("a node with a gateway has a client lane");
    let level = handle.clone();
    // A membership change can give the node another lane. Without a lane the node refuses requests.
    let submit = move |request| handle.submit(handle.first_lane().unwrap_or(first), request);
    let gateway = Gateway::new(
        limits(deployment),
        info(deployment, name),
        Box::new(submit),
        tls,
    );
    if let Some(sink) = audit {
        gateway.set_audit(Box::new(move || sink.check()));
    }
    gateway.set_gateways(gateways(deployment, name));
    gateway.set_level(Box::new(move || level.level()));
    // The node runs this protocol, so it is known.
    if let Ok(Some(_)) = protocols::fixed_level(&deployment.protocol) {
        gateway.set_fixed_level(&deployment.protocol);
    }
    // The socket listens and is non-blocking. Tokio accepts such a socket unless it is out of
    // memory.
    let listener = tokio::net::TcpListener::from_std(listener)
        .expect("the event queue takes a listening socket");
    gateway.serve(listener);
    tokio::task::spawn_local(publish(gateway.clone(), measured));
    Box::new(GatewayApplication { gateway })
}

async fn publish(gateway: Gateway, measured: watch::Sender<Option<Measured>>) {
    let mut ticks = tokio::time::interval(PUBLISHED_EVERY);
    while !measured.is_closed() {
        ticks.tick().await;
        measured.send_replace(Some(gateway.measured()));
    }
}

/// The gateways of a deployment; this node's gateway comes first.
fn gateways(deployment: &Deployment, name: &str) -> Vec<Peer> {
    let peers = deployment
        .nodes
        .iter()
        .filter_map(|node| Peer::new(&node.name, node.gateway.as_deref()?));
    let (mut own, others): (Vec<_>, Vec<_>) = peers.partition(|peer| peer.name == name);
    own.extend(others);
    own
}

/// The limits for clients that follow from the limits of lanes.
fn limits(deployment: &Deployment) -> Limits {
    let Options { lane, clients, .. } = deployment.options.options();
    let defaults = Limits::default();
    let protocol =
        registry::description(&deployment.protocol).expect("the node runs this protocol");
    Limits {
        bulk_bytes: defaults.bulk_bytes.min(lane.payload_bytes),
        compound_bytes: defaults.compound_bytes.min(lane.payload_bytes),
        transaction_bytes: defaults.transaction_bytes.min(lane.payload_bytes),
        deadline: lane.patience + GRACE,
        connections: clients.connections,
        memory_bytes: clients.memory_bytes,
        client_bytes: clients.client_bytes,
        unfinished: clients.unfinished,
        idle: clients.idle,
        slower_than: clients.slower_than,
        copies: deployment.f as u32,
        asks_by_ranges: protocol.logs_spanning_reads,
        logs_reads: protocol.logs_reads,
        ..defaults
    }
}

/// The node's sections of INFO.
fn info(deployment: &Deployment, name: &str) -> Box<dyn Fn(&mut InfoWriter)> {
    let Deployment {
        cluster,
        protocol,
        f,
        nodes,
        durability,
        ..
    } = deployment.clone();
    let name = name.to_owned();
    Box::new(move |info| {
        // Clients look here to find out whether the server accepts writes. Every gateway does.
        info.section("Replication")
            .field("role", "master")
            .field("connected_slaves", 0)
            .field("master_failover_state", "no-failover");
        info.section("Ionian")
            .field("cluster", &cluster)
            .field("node", &name)
            .field("nodes", nodes.len())
            .field("protocol", &protocol)
            .field("f", f)
            .field("durability", durability.name());
    })
}
