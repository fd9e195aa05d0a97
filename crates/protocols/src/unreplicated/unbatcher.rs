//! The unbatcher of an unreplicated server: hands each client its answers to a batch.
//!
//! Stands between server and client.

use super::metrics;
use super::{Envelope, client};
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::messages;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, AnswersByClient};

messages! {
    /// The messages that an unbatcher receives.
    "unbatcher" In {
        /// The server's answers to the commands of a batch.
        0 for "unbatch" of answers => Results {
            /// The answers, to several clients.
            answers: Answers,
        },
    }
}

/// An unbatcher.
#[derive(Default)]
pub struct Unbatcher {
    by_client: AnswersByClient,
    batches: u64,
}

impl Role for Unbatcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Layout>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
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

    const METRICS: Metrics = &[metrics::UNBATCHER];

    fn status(&self, status: &mut Status) {
        status.add([self.batches]);
    }
}
