//! Clients and what they have asked.

use super::super::Service;
use super::super::server::Nanos;
use super::observed::{Answer, Series};
use super::{Pace, Source};
use ionian_kernel::client::{Operation, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::random::Random;
use std::collections::BTreeMap;

/// All of them, numbered one source after the other.
pub(super) struct Sources {
    sources: Vec<Source>,
    clients: Vec<Client>,
    random: Random,
    /// What is not answered, by token.
    open: BTreeMap<u64, Open>,
    asked: u64,
    /// What came of each source's requests.
    series: Vec<Series>,
}

struct Client {
    source: usize,
    number: u64,
}

struct Open {
    client: usize,
    asked_at: Nanos,
}

impl Sources {
    pub(super) fn new(sources: &[Source]) -> Self {
        let clients = |(place, source): (usize, &Source)| {
            std::iter::repeat_n(place, source.clients).map(|source| Client { source, number: 0 })
        };
        Sources {
            clients: sources.iter().enumerate().flat_map(clients).collect(),
            series: vec![Series::default(); sources.len()],
            sources: sources.to_vec(),
            random: Random::new(4),
            open: BTreeMap::new(),
            asked: 0,
        }
    }

    /// When each client asks first.
    pub(super) fn firsts(&mut self) -> Vec<Nanos> {
        let Sources {
            sources,
            clients,
            random,
            ..
        } = self;
        let first = |client: &Client| {
            let Source { from_us, pace, .. } = sources[client.source];
            match pace {
                Pace::Answered => from_us * 1000,
                Pace::Waits { longest_us, .. } => {
                    from_us * 1000 + random.between(0, longest_us * 1000)
                }
            }
        };
        clients.iter().map(first).collect()
    }

    /// Who carries what a client asks.
    pub(super) fn lane(&self, client: usize) -> ClientId {
        self.sources[self.clients[client].source].lane
    }

    /// What a client asks now, and when it asks next if it does not wait to be answered. Nothing
    /// when it asks no more.
    pub(super) fn ask(
        &mut self,
        now: Nanos,
        client: usize,
        service: &dyn Service,
    ) -> Option<(Request, Option<Nanos>)> {
        let Client { source, number } = &mut self.clients[client];
        let Source { pace, until_us, .. } = self.sources[*source];
        if now >= until_us * 1000 {
            return None;
        }
        let token = self.asked;
        // Reads too are ordered by the log, as in the Mencius paper.
        let request = Request {
            token,
            operation: Operation::Write,
            payload: service.write(client, *number),
        };
        *number += 1;
        self.asked += 1;
        self.open.insert(
            token,
            Open {
                client,
                asked_at: now,
            },
        );
        let next = match pace {
            Pace::Answered => None,
            Pace::Waits {
                shortest_us,
                longest_us,
            } => Some(now + self.random.between(shortest_us * 1000, longest_us * 1000)),
        };
        Some((request, next))
    }

    /// Takes an answer in; the client, if that is what it waited for.
    pub(super) fn on_reply(&mut self, now: Nanos, reply: &Reply) -> Option<usize> {
        let Open { client, asked_at } = self
            .open
            .remove(&reply.token)
            .expect("each request is answered once");
        let source = self.clients[client].source;
        let closed = self.sources[source].pace == Pace::Answered;
        match reply.outcome {
            Ok(_) => self.series[source].answers.push(Answer {
                at_us: now / 1000,
                latency_us: (now - asked_at) / 1000,
            }),
            Err(refusal) => {
                assert!(
                    !closed || refusal != Refusal::Busy,
                    "a lane carries fewer requests than it has clients"
                );
                self.series[source].refused += 1;
            }
        }
        closed.then_some(client)
    }

    /// The measurement begins.
    pub(super) fn begin(&mut self) {
        self.series.fill(Series::default());
    }

    /// What came of it, by source.
    pub(super) fn into_series(self) -> Vec<Series> {
        self.series
    }
}
