//! The batcher: gathers commands into batches, so that a disseminator handles one message a batch.
//!
//! Stands between client and disseminator. It keeps every batch until it hears that it was chosen,
//! and sends it to another disseminator if it does not.

use super::config::Config;
use super::id::DisseminatorId;
use super::{Envelope, disseminator, kind};
use crate::multipaxos::batcher::batches::{Batches, Due};
use crate::multipaxos::metrics;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Batch;
use ionian_replication::suspicion::Choice;

messages! {
    /// The messages that a batcher receives.
    "batcher" In {
        /// Commands of a client.
        0 for "batch.wait" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// A disseminator got these batches chosen.
        1 => BatchesChosen {
            /// The disseminator.
            from: DisseminatorId,
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
    }
}

/// How long a disseminator may leave a batch unchosen before another receives it too. Well above
/// what it needs to get round a dead stabilizer or leader, since a batch that is ordered twice is
/// work done twice.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(1000);

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    config: Config,
    node: NodeId,
    batches: Batches<Option<DisseminatorId>>,
    disseminators: Choice<DisseminatorId>,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let near = config.near(kind::Disseminator, birth.node);
        Batcher {
            id: BatcherId(birth.address.index),
            node: birth.node,
            batches: Batches::new(SEND_AGAIN_AFTER, &config.layout().options, &mut random),
            disseminators: Choice::new(config.disseminators, near, random.any()),
            config,
        }
    }

    /// Closes the open batch and sends what there is room for.
    fn close(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.batches.close(now, None);
        self.send_waiting(now, out);
    }

    fn send_waiting(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some(due) = self.batches.next(now) {
            self.send(now, due, out);
        }
    }

    fn send(&mut self, now: Instant, Due { number, batch, .. }: Due, out: &mut Out<'_, Self>) {
        let (by, disseminators) = self
            .disseminators
            .next(now)
            .expect("a deployment has disseminators");
        *self.batches.with(number) = Some(by);
        let message = disseminator::In::Disseminate {
            from: self.id,
            number,
            batch,
        };
        out.send(Envelope::ToDisseminators(disseminators, message));
    }

    fn send_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for due in self.batches.overdue(now) {
            if let Some(silent) = *self.batches.with(due.number) {
                self.disseminators.silent(silent, now);
            }
            self.send(now, due, out);
        }
    }
}

impl Role for Batcher {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Config, _: &mut Out<'_, Self>) {
        self.batches.reconfigure(&config.layout().options);
        self.disseminators.reconfigure(
            config.disseminators,
            config.near(kind::Disseminator, self.node),
        );
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => {
                if self
                    .batches
                    .take_in(now, &commands, &self.config.layout().options)
                {
                    self.close(now, out);
                }
            }
            In::BatchesChosen { from, numbers } => {
                self.disseminators.heard(from);
                self.batches.settle(&numbers, drop);
                self.send_waiting(now, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.batches.check_at.is_some_and(|at| at <= now) {
            self.send_again(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(
            self.batches.check_at,
            self.batches.closes_at(&self.config.layout().options),
        )
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.batches.is_due(now, &self.config.layout().options) {
            self.close(now, out);
        }
    }

    fn invariants(&self) {
        self.batches.invariants();
    }

    const METRICS: Metrics = &[metrics::BATCHES];

    fn status(&self, status: &mut Status) {
        self.batches.report(status);
    }
}
