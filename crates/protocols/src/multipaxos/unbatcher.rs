//! The unbatcher (4.2): takes a replica's answers to a batch and hands each client its own, so that
//! the replica sends one message a batch.
//!
//! Stands between replica and client.

use super::config::Config;
use super::metrics;
use super::{Envelope, client, replica};
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, AnswersByClient};
use ionian_replication::suspicion::ALIVE_EVERY;

messages! {
    /// The messages that an unbatcher receives.
    "unbatcher" In {
        /// A replica's answers to the commands of a batch.
        0 for "unbatch" of answers => Results {
            /// The answers, to several clients.
            answers: Answers,
        },
    }
}

/// An unbatcher.
pub struct Unbatcher {
    id: UnbatcherId,
    replicas: Set<ReplicaId>,
    by_client: AnswersByClient,
    alive_at: Instant,
    batches: u64,
}

impl Unbatcher {
    /// The unbatcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Unbatcher {
            id: UnbatcherId(birth.address.index),
            replicas: config.replicas(),
            by_client: AnswersByClient::default(),
            alive_at: Instant::ZERO,
            batches: 0,
        }
    }
}

impl Role for Unbatcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.replicas = config.replicas();
    }

    fn on_message(&mut self, _: Instant, message: In, out: &mut Out<'_, Self>) {
        let In::Results { answers } = message;
        self.batches += 1;
        for (client, answers) in self.by_client.divide(&answers) {
            out.send(Envelope::ToClients(
                Set::one(client),
                client::In::Answers { answers },
            ));
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            out.send(Envelope::ToReplicas(
                self.replicas,
                replica::In::UnbatcherAlive { from: self.id },
            ));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        Some(self.alive_at)
    }

    const METRICS: Metrics = &[metrics::UNBATCHER];

    fn status(&self, status: &mut Status) {
        status.add([self.batches]);
    }
}
