//! Connects what a node of a file system serves at its gateway address to its client lane.

use ionian_deployment::Deployment;
use ionian_kernel::client::{DiskRoom, Reply};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::Options;
use ionian_netfs::{ServeLimits, Server};
use ionian_runtime::{Application, LaneHandle};
use std::net::TcpListener;

/// A server of mounts as the application of a node.
struct NetFsApplication(Server);

impl Application for NetFsApplication {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        self.0.on_reply(reply);
    }

    fn drain(&mut self, drains: bool) {
        self.0.drain(drains);
    }

    fn disk_has_room(&mut self, room: DiskRoom) {
        self.0.set_disk_room(room);
    }

    fn clients(&self) -> usize {
        self.0.connections()
    }
}

/// Starts the server on a listening socket. Call it on the node's event loop.
pub(crate) fn start(
    deployment: &Deployment,
    listener: TcpListener,
    handle: LaneHandle,
) -> Box<dyn Application> {
    let first = handle
        .first_lane()
        .expect("a node with a gateway has a client lane");
    // A membership change can give the node another lane. Without a lane the node refuses requests.
    let submit = move |request| handle.submit(handle.first_lane().unwrap_or(first), request);
    let Options { lane, clients, .. } = deployment.options.options();
    let limits = ServeLimits {
        connections: clients.connections,
        memory_bytes: clients.memory_bytes,
        payload_bytes: lane.payload_bytes,
    };
    let server = Server::new(limits, Box::new(submit));
    // The socket listens and is non-blocking. Tokio accepts such a socket unless it is out of
    // memory.
    let listener = tokio::net::TcpListener::from_std(listener)
        .expect("the event queue takes a listening socket");
    server.serve(listener);
    Box::new(NetFsApplication(server))
}
