//! The batcher of an unreplicated server: gathers commands into batches.
//!
//! Stands between client and server. A batch that is lost is asked again by its clients.

use super::metrics;
use super::{Envelope, SERVER, server};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Batch, OpenBatch};

messages! {
    /// The messages that a batcher receives.
    "batcher" In {
        /// Commands of a client.
        0 for "batch.wait" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// The server has executed these batches.
        1 => BatchesDone {
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
    }
}

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    layout: Arc<Layout>,
    open: OpenBatch,
    /// When each batch under way was sent: one that is lost must not count without end.
    under_way: BTreeMap<u64, Instant>,
    next_number: u64,
    batches: u64,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(layout: Arc<Layout>, birth: &Birth<'_>) -> Self {
        Batcher {
            id: BatcherId(birth.address.index),
            layout,
            open: OpenBatch::default(),
            under_way: BTreeMap::new(),
            next_number: Random::new(birth.seed).any() >> 1,
            batches: 0,
        }
    }

    fn close_if_due(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let options = &self.layout.options;
        while let Some(oldest) = self.under_way.first_entry()
            && now.since(*oldest.get()) > options.resend_after
        {
            oldest.remove();
        }
        if self.open.is_due(now, self.under_way.len(), options) {
            self.under_way.insert(self.next_number, now);
            let from = Some((self.id, self.next_number));
            out.send(Envelope::ToServers(
                SERVER,
                server::In::Execute {
                    from,
                    batch: self.open.take(),
                },
            ));
            self.next_number += 1;
            self.batches += 1;
        }
    }
}

impl Role for Batcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Layout>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => {
                self.open.append(now, &commands);
                if self.open.is_full(&self.layout.options) {
                    self.close_if_due(now, out);
                }
            }
            In::BatchesDone { numbers } => {
                for number in numbers {
                    self.under_way.remove(&number);
                }
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.open.closes_at(&self.layout.options)
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.close_if_due(now, out);
    }

    const METRICS: Metrics = &[metrics::BATCHER];

    fn status(&self, status: &mut Status) {
        status.add([self.batches, self.under_way.len() as u64]);
    }
}
