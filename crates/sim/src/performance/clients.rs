//! Clients in a closed loop, distributed over the lanes, and their latencies.

use super::server::Nanos;
use super::{Latency, Service, Setting};
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::random::Random;

/// All clients.
pub(super) struct Clients {
    clients: Vec<Client>,
    random: Random,
    /// Requests answered so far.
    pub(super) answered: u64,
    /// Latencies of the requests answered since the measurement started.
    latencies: Vec<Nanos>,
}

struct Client {
    lane: ClientId,
    number: u64,
    asked_at: Nanos,
}

impl Clients {
    pub(super) fn new(setting: &Setting, lanes: &[ClientId]) -> Self {
        let client = |index: usize| Client {
            lane: lanes[index % lanes.len()],
            number: 0,
            asked_at: 0,
        };
        let clients = (0..setting.clients).map(client).collect();
        Clients {
            clients,
            random: Random::new(1),
            answered: 0,
            latencies: Vec::new(),
        }
    }

    /// The next request of a client, with its lane.
    pub(super) fn next(
        &mut self,
        now: Nanos,
        index: usize,
        setting: &Setting,
        service: &dyn Service,
    ) -> (ClientId, Request) {
        let reads = self.random.chance(setting.read_fraction);
        let client = &mut self.clients[index];
        let (operation, payload) = match reads {
            true => (
                Operation::Read(setting.read_level),
                service.read(index, client.number),
            ),
            false => (Operation::Write, service.write(index, client.number)),
        };
        client.number += 1;
        client.asked_at = now;
        (
            client.lane,
            Request {
                token: index as u64,
                operation,
                payload,
            },
        )
    }

    /// Handles an answer; returns its client.
    pub(super) fn on_reply(&mut self, now: Nanos, reply: &Reply) -> usize {
        assert!(
            reply.outcome.is_ok(),
            "without faults nothing is refused, and this was: {:?}",
            reply.outcome
        );
        let index = reply.token as usize;
        self.answered += 1;
        self.latencies.push(now - self.clients[index].asked_at);
        index
    }

    /// Starts the measurement.
    pub(super) fn begin(&mut self) {
        self.latencies.clear();
    }

    pub(super) fn latency(&mut self) -> Latency {
        self.latencies.sort_unstable();
        Latency::of_sorted(&self.latencies, 1000.0)
    }
}
