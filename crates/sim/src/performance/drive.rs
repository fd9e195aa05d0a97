//! The event heap between servers and clients.

use super::clients::Clients;
use super::links::Links;
use super::server::{Nanos, Outcome, Server, Terms};
use super::{Costs, Measured, Service, Setting};
use crate::event::Heap;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Address, LayoutError};
use ionian_kernel::protocol::Protocol;
use std::collections::BTreeMap;

enum Event<M> {
    /// What a burst sent to one node.
    Arrive { server: usize, messages: Vec<(u64, M)> },
    /// A server has something to do.
    Look(usize),
}

struct Run<'a, P: Protocol, C, S> {
    setting: &'a Setting,
    costs: &'a C,
    service: &'a S,
    servers: Vec<Server<P>>,
    /// The server of each instance, by kind and number.
    places: Vec<Vec<Option<usize>>>,
    clients: Clients,
    heap: Heap<Event<P::Message>>,
    outcome: Outcome<P::Message>,
    links: Links,
}

/// Measures one deployment.
///
/// # Errors
/// When the layout is no deployment of the protocol.
///
/// # Panics
/// When there is no client, or a request is refused: it was in flight for longer than the layout's patience, say.
pub fn measure<P: Protocol>(
    setting: &Setting,
    costs: &impl Costs<P>,
    service: &impl Service,
) -> Result<Measured, LayoutError> {
    assert!(setting.clients > 0, "a measurement needs a client");
    let mut run = Run::<P, _, _>::new(setting, costs, service)?;
    run.start();
    run.until(|run| run.clients.answered >= setting.warm_up_requests);
    let (began, answered) = (run.heap.now(), run.clients.answered);
    run.clients.begin();
    run.servers.iter_mut().for_each(|server| server.spent = 0);
    let last = began + setting.longest_us * 1000;
    run.until(|run| run.clients.answered >= answered + setting.requests || run.heap.now() >= last);
    let elapsed = (run.heap.now() - began).max(1) as f64;
    let requests = run.clients.answered - answered;
    // A burst that begins before the end is counted whole.
    let utilization = run.servers.iter().map(|server| (server.id, (server.spent as f64 / elapsed).min(1.0)));
    Ok(Measured {
        requests,
        requests_per_second: requests as f64 * 1e9 / elapsed,
        utilization: utilization.collect(),
        latency_us: run.clients.latency(),
    })
}

impl<'a, P: Protocol, C: Costs<P>, S: Service> Run<'a, P, C, S> {
    fn new(setting: &'a Setting, costs: &'a C, service: &'a S) -> Result<Self, LayoutError> {
        let layout = &setting.layout;
        let config = P::configure(layout.clone())?;
        let nodes: Vec<_> = layout.nodes().into_iter().collect();
        let links = Links::new(nodes.len(), setting);
        let servers = nodes.iter().map(|node| Server::new(*node, setting, &config, service)).collect();
        let place = |kind, index| {
            let node = layout.node_of(Address { kind, index })?;
            nodes.iter().position(|known| *known == node)
        };
        let places = (0..P::KINDS.len() as u8).map(|kind| (0..64).map(|index| place(kind, index)).collect()).collect();
        let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().collect();
        let (clients, heap, outcome) = (Clients::new(setting, &lanes), Heap::new(), Outcome::new());
        Ok(Run { setting, costs, service, servers, places, clients, heap, outcome, links })
    }

    fn start(&mut self) {
        for server in 0..self.servers.len() {
            self.servers[server].start(&mut self.outcome);
            self.dispatch(server, 0);
        }
        for client in 0..self.setting.clients {
            self.ask(0, client);
        }
        for server in 0..self.servers.len() {
            self.plan(server);
        }
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            match self.heap.pop().expect("clients in a closed loop always wait for something") {
                Event::Arrive { server, messages } => {
                    for (members, message) in messages {
                        self.servers[server].arrive(members, message);
                    }
                    self.plan(server);
                }
                Event::Look(server) if self.servers[server].looks_at == Some(self.heap.now()) => self.work(server),
                // It has been planned anew since.
                Event::Look(_) => {}
            }
        }
    }

    /// Has a server look for work as soon as there is some.
    fn plan(&mut self, server: usize) {
        let at = self.servers[server].next_look(self.heap.now());
        let planned = &mut self.servers[server].looks_at;
        if let Some(at) = at
            && planned.is_none_or(|planned| at < planned)
        {
            *planned = Some(at);
            self.heap.plan(at, Event::Look(server));
        }
    }

    fn work(&mut self, server: usize) {
        let now = self.heap.now();
        let Setting { wake_us, burst_us, .. } = *self.setting;
        self.servers[server].looks_at = None;
        let terms = Terms { wake_us, burst_us };
        let done = self.servers[server].burst(now, self.costs, terms, &mut self.outcome);
        self.dispatch(server, done);
        for (_, reply) in std::mem::take(&mut self.outcome.replies) {
            let client = self.clients.on_reply(done, &reply);
            self.ask(done, client);
        }
        self.plan(server);
    }

    fn ask(&mut self, now: Nanos, client: usize) {
        let (lane, request) = self.clients.next(now, client, self.setting, self.service);
        let server = self.places[0][usize::from(lane.0)].expect("every lane lives somewhere");
        self.servers[server].submit(lane, request);
    }

    /// Puts what a burst sent on its way, all to one node together.
    fn dispatch(&mut self, from: usize, leaves: Nanos) {
        let mut parcels: BTreeMap<usize, Vec<(u64, P::Message)>> = BTreeMap::new();
        for (kind, mut members, message) in self.outcome.sends.drain(..) {
            // Each node is told once, of all members that live there.
            let mut nodes: BTreeMap<usize, u64> = BTreeMap::new();
            while members != 0 {
                let index = members.trailing_zeros() as usize;
                members &= members - 1;
                if let Some(server) = self.places[usize::from(kind)][index] {
                    *nodes.entry(server).or_default() |= 1 << index;
                }
            }
            for (server, members) in nodes {
                parcels.entry(server).or_default().push((members, message.clone()));
            }
        }
        for (server, messages) in parcels {
            let arrives = self.links.arrival(from, server, leaves);
            self.heap.plan(arrives, Event::Arrive { server, messages });
        }
    }
}
