//! The event heap between servers and clients.

use super::clients::Clients;
use super::fleet::{Done, Fleet, Parcel};
use super::links::Links;
use super::server::{Nanos, Terms};
use super::{Costs, Measured, Service, Setting};
use crate::event::Heap;
use crate::roles::Simulated;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::LayoutError;

enum Event {
    /// Messages of a burst arrive at a node.
    Arrive { server: usize, messages: Parcel },
    /// A server has work to do.
    Look(usize),
}

struct Run<'a> {
    setting: &'a Setting,
    costs: &'a dyn Costs,
    service: &'a dyn Service,
    fleet: Fleet,
    clients: Clients,
    heap: Heap<Event>,
    links: Links,
}

/// Measures one deployment.
///
/// # Errors
/// If the layout is not a deployment of the protocol.
///
/// # Panics
/// If there is no client, or a request is refused, for example because it was in flight for longer
/// than the layout's patience.
pub fn measure(
    protocol: Simulated,
    setting: &Setting,
    costs: &dyn Costs,
    service: &dyn Service,
) -> Result<Measured, LayoutError> {
    assert!(setting.clients > 0, "a measurement needs a client");
    let Setting {
        layout,
        client_kinds,
        ..
    } = setting;
    let fleet = Fleet::new(protocol, layout, client_kinds, service, false)?;
    let mut run = Run::new(fleet, setting, costs, service);
    run.start();
    run.until(|run| run.clients.answered >= setting.warm_up_requests);
    let (began, answered) = (run.heap.now(), run.clients.answered);
    run.clients.begin();
    run.fleet.begin();
    let last = began + setting.longest_us * 1000;
    run.until(|run| run.clients.answered >= answered + setting.requests || run.heap.now() >= last);
    let elapsed = (run.heap.now() - began).max(1) as f64;
    let requests = run.clients.answered - answered;
    Ok(Measured {
        requests,
        requests_per_second: requests as f64 * 1e9 / elapsed,
        utilization: run.fleet.utilization(elapsed),
        latency_us: run.clients.latency(),
    })
}

impl<'a> Run<'a> {
    fn new(
        fleet: Fleet,
        setting: &'a Setting,
        costs: &'a dyn Costs,
        service: &'a dyn Service,
    ) -> Self {
        let lanes: Vec<ClientId> = setting.layout.all::<ClientId>(0).iter().collect();
        let (clients, links) = (
            Clients::new(setting, &lanes),
            Links::new(fleet.len(), setting),
        );
        Run {
            setting,
            costs,
            service,
            fleet,
            clients,
            heap: Heap::new(),
            links,
        }
    }

    fn start(&mut self) {
        for server in 0..self.fleet.len() {
            let done = self.fleet.start(server);
            self.carry_out(server, done);
        }
        for client in 0..self.setting.clients {
            self.ask(0, client);
        }
        for server in 0..self.fleet.len() {
            self.plan(server);
        }
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            match self
                .heap
                .pop()
                .expect("clients in a closed loop always wait for something")
            {
                Event::Arrive { server, messages } => {
                    self.fleet.arrive(server, messages);
                    self.plan(server);
                }
                Event::Look(server) if self.fleet.is_due(server, self.heap.now()) => {
                    self.work(server)
                }
                Event::Look(_) => {}
            }
        }
    }

    /// Plans a server's next look for work.
    fn plan(&mut self, server: usize) {
        if let Some(at) = self.fleet.plan(server, self.heap.now()) {
            self.heap.plan(at, Event::Look(server));
        }
    }

    fn work(&mut self, server: usize) {
        let Setting {
            wake_us, burst_us, ..
        } = *self.setting;
        let done = self.fleet.work(
            server,
            self.heap.now(),
            self.costs,
            Terms { wake_us, burst_us },
        );
        self.carry_out(server, done);
        self.plan(server);
    }

    fn carry_out(
        &mut self,
        from: usize,
        Done {
            at,
            parcels,
            replies,
        }: Done,
    ) {
        for (server, messages) in parcels {
            let arrives = self.links.arrival(from, server, at);
            self.heap.plan(arrives, Event::Arrive { server, messages });
        }
        for (_, reply) in replies {
            let client = self.clients.on_reply(at, &reply);
            self.ask(at, client);
        }
    }

    fn ask(&mut self, now: Nanos, client: usize) {
        let (lane, request) = self.clients.next(now, client, self.setting, self.service);
        self.fleet.submit(lane, request, self.costs.serving());
    }
}
