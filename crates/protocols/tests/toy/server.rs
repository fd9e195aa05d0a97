//! The server of a toy: executes what it receives, in that order.

use super::{Envelope, client, copies};
use alloc::sync::Arc;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::status::{Metric, Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::{messages, wire_struct};
use ionian_replication::batch::{AnswersByClient, Batch, Value};
use ionian_replication::executor::Executor;

messages! {
    /// The messages to the server.
    "oracle" In {
        /// Commands to execute.
        0 => Execute {
            /// The commands.
            batch: Batch,
        },
        /// Reads to answer.
        1 => Read {
            /// The reads.
            reads: Batch,
        },
    }
}

/// A batch that was executed.
#[derive(Clone, Debug)]
pub struct Record {
    /// The number of batches before.
    pub slot: Slot,
    /// The commands and the server's time.
    pub value: Value,
}

wire_struct! { Record { slot, value } }

/// The server.
pub struct Oracle {
    executor: Executor,
    executed: Slot,
    /// Everything below is in the last snapshot on disk.
    kept: Slot,
    /// The slot behind the snapshot that is being stored.
    storing: Option<Slot>,
    keeps_records: bool,
    snapshot_slots: u64,
    stamp: Timestamp,
    answers: AnswersByClient,
    copies: u64,
    copied: u64,
}

impl Oracle {
    /// The server of this birth.
    pub fn new(layout: &Layout, birth: &Birth<'_>) -> Self {
        Oracle {
            executor: Executor::of(birth, layout),
            executed: Slot::ZERO,
            kept: Slot::ZERO,
            keeps_records: birth.keeps_records,
            storing: None,
            snapshot_slots: layout.options.snapshot_slots as u64,
            stamp: Timestamp(0),
            answers: AnswersByClient::default(),
            copies: copies(&layout.options),
            copied: 0,
        }
    }

    fn execute(&mut self, now: Instant, batch: Batch, out: &mut Out<'_, Self>) {
        self.stamp = self.stamp.max(now.timestamp());
        let (slot, stamp) = (self.executed, self.stamp);
        let value = Value { stamp, batch };
        out.persist(Record {
            slot,
            value: value.clone(),
        });
        self.executor.execute(slot, &value, Some(&mut self.answers));
        self.executed = slot.next();
        self.store_if_due(out);
    }

    fn store_if_due(&mut self, out: &mut Out<'_, Self>) {
        if self.executed.distance(self.kept) >= self.snapshot_slots
            && self.storing.is_none()
            && self.keeps_records
        {
            self.storing = Some(self.executed);
            out.store_snapshot(self.executed.0, self.executor.freeze());
        }
    }

    fn answer(&mut self, out: &mut Out<'_, Self>) {
        for (client, answers) in self.answers.drain(0, self.executed) {
            for _ in 0..self.copies {
                let answers = answers.clone();
                let message = client::In::Answers { answers };
                out.send(Envelope::ToClients(Set::one(client), message));
            }
            self.copied += self.copies - 1;
        }
    }

    /// When the passing of time next changes the state machine.
    fn deadline(&self) -> Option<Instant> {
        let deadline = self.executor.next_deadline()?;
        Some(Instant(deadline.0.saturating_mul(1000)))
    }
}

impl Role for Oracle {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Layout>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        if record.slot == self.executed {
            self.executor.execute(record.slot, &record.value, None);
            self.stamp = record.value.stamp;
            self.executed = self.executed.next();
        }
    }

    fn key(record: &Record) -> Option<u64> {
        Some(record.slot.0)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.executor.restore(snapshot)?;
        self.stamp = self.executor.now();
        (self.executed, self.kept) = (Slot(stamp), Slot(stamp));
        Ok(())
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        self.storing.take_if(|it| it.0 == stamp);
        if stored {
            self.kept = Slot(stamp);
            out.release_below(stamp);
        }
        self.store_if_due(out);
    }

    fn freeze(&mut self, _: Instant, cover: Cover) -> Picture {
        match cover.stamp().is_some_and(|at| self.executed.0 >= at) {
            true => Picture::Taken(self.executed.0, self.executor.freeze()),
            false => Picture::NotYet(self.executed.0),
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Execute { batch } => self.execute(now, batch, out),
            In::Read { reads } => {
                let mut rest = Some(reads);
                while let Some(reads) = rest {
                    rest = self
                        .executor
                        .read(now.timestamp(), &reads, &mut self.answers);
                    self.answer(out);
                }
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.execute(now, Batch::default(), out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.deadline()
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.answer(out);
    }

    const METRICS: Metrics = &[&[Metric::counter(
        "copied_answers",
        "messages",
        "answers that were sent once more",
    )]];

    fn status(&self, status: &mut Status) {
        status.executed = Some(self.executed);
        status.add([self.copied]);
    }
}
