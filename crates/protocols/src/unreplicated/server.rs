//! The unreplicated server: executes what comes, in the order in which it comes.
//!
//! Stands between client (or batcher) and client (or unbatcher).

use super::metrics;
use super::{Envelope, batcher, client, kind, unbatcher};
use crate::parts::{self, due::SinceSnapshot, workers::workers};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::WireError;
use ionian_kernel::{messages, wire_struct};
use ionian_replication::batch::{AnswersByClient, Batch, Value};
use ionian_replication::executor::Executor;

messages! {
    /// The messages that a server receives.
    "server" In {
        /// Commands to execute.
        0 for "execute" of batch => Execute {
            /// The batcher that waits to hear that they are, with its number for them.
            from: Option<(BatcherId, u64)>,
            /// The commands.
            batch: Batch,
        },
        /// Reads to answer.
        1 for "read" of reads => Read {
            /// The reads.
            reads: Batch,
        },
    }
}

/// What the server must find again: everything that it executed since its last snapshot.
#[derive(Clone, Debug)]
pub struct Record {
    /// How many batches came before.
    pub slot: Slot,
    /// The commands and the server's time.
    pub value: Value,
}

wire_struct! { Record { slot, value } }

/// The server.
pub struct Server {
    executor: Executor,
    executed: Slot,
    /// Everything below is in the last snapshot stored.
    kept: Slot,
    /// The slot behind the snapshot that is under way.
    storing: Option<Slot>,
    keeps_records: bool,
    since: SinceSnapshot,
    snapshot_slots: usize,
    last_stamp: Timestamp,
    answers: AnswersByClient,
    unbatchers: Set<UnbatcherId>,
    turn: u64,
    done: SmallMap<BatcherId, Vec<u64>>,
}

impl Server {
    /// The server of this birth.
    pub fn new(layout: &Layout, birth: &Birth<'_>) -> Self {
        Server {
            executor: Executor::with_workers(birth, layout, workers(&layout.options)),
            executed: Slot::ZERO,
            kept: Slot::ZERO,
            keeps_records: birth.keeps_records,
            storing: None,
            since: SinceSnapshot::default(),
            snapshot_slots: layout.options.snapshot_slots,
            last_stamp: Timestamp(0),
            answers: AnswersByClient::default(),
            unbatchers: layout.preferred(kind::Unbatcher, birth.node),
            turn: 0,
            done: SmallMap::new(),
        }
    }

    fn execute(&mut self, now: Instant, batch: Batch, out: &mut Out<'_, Self>) {
        self.last_stamp = self.last_stamp.max(now.timestamp());
        let value = Value {
            stamp: self.last_stamp,
            batch,
        };
        out.persist(Record {
            slot: self.executed,
            value: value.clone(),
        });
        self.executor
            .execute(self.executed, &value, Some(&mut self.answers));
        self.executed = self.executed.next();
        self.since.executed(value.batch.byte_len());
        self.store_if_due(out);
    }

    fn store_if_due(&mut self, out: &mut Out<'_, Self>) {
        if self.storing.is_some() || !self.keeps_records {
            return;
        }
        let (slots, work) = (self.executed.distance(self.kept), self.executor.work());
        if self.since.is_enough(slots, self.snapshot_slots, work) {
            self.storing = Some(self.executed);
            self.since.begin(work);
            out.store_snapshot(self.executed.0, self.executor.freeze());
        }
    }

    /// Sends the answers that there are, or (`all`) those to all that was begun.
    fn flush_answers(&mut self, all: bool, out: &mut Out<'_, Self>) {
        let mut exit = Exit {
            executed: self.executed,
            unbatchers: self.unbatchers,
            turn: &mut self.turn,
        };
        let give = &mut |answers: &mut _| exit.send(answers, out);
        match all {
            true => self.executor.finish(give),
            false => self.executor.collect(give),
        }
        give(&mut self.answers);
    }

    /// When the state machine next changes by the passing of time.
    fn clock_timer(&self) -> Option<Instant> {
        Some(Instant(
            self.executor.next_deadline()?.0.saturating_mul(1000),
        ))
    }
}

/// Where answers leave.
struct Exit<'a> {
    executed: Slot,
    unbatchers: Set<UnbatcherId>,
    turn: &'a mut u64,
}

impl Exit<'_> {
    fn send(&mut self, answers: &mut AnswersByClient, out: &mut Out<'_, Server>) {
        if answers.is_empty() {
            return;
        }
        *self.turn += 1;
        match self.unbatchers.pick(*self.turn) {
            Some(unbatcher) => {
                while !answers.is_empty() {
                    let answers = answers.take_some(0, self.executed);
                    out.send(Envelope::ToUnbatchers(
                        Set::one(unbatcher),
                        unbatcher::In::Results { answers },
                    ));
                }
            }
            None => {
                for (client, answers) in answers.drain(0, self.executed) {
                    out.send(Envelope::ToClients(
                        Set::one(client),
                        client::In::Answers { answers },
                    ));
                }
            }
        }
    }
}

impl Role for Server {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Layout>;
    type Record = Record;

    /// Every batch is in the log, until a snapshot has it.
    fn check_record(&self, record: &Record) -> Result<(), WireError> {
        match record.slot > self.executed {
            true => Err(WireError::Gap {
                what: "batch",
                missing: self.executed.0,
                found: record.slot.0,
            }),
            false => Ok(()),
        }
    }

    fn recover(&mut self, record: Record) {
        // What is in the snapshot may still be in the log.
        if record.slot == self.executed {
            self.executor.execute(record.slot, &record.value, None);
            self.last_stamp = record.value.stamp;
            self.executed = self.executed.next();
        }
    }

    fn key(record: &Record) -> Option<u64> {
        Some(record.slot.0)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.executor.restore(snapshot)?;
        self.last_stamp = self.executor.now();
        (self.executed, self.kept) = (Slot(stamp), Slot(stamp));
        Ok(())
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        self.storing.take_if(|it| it.0 == stamp);
        match stored {
            true => {
                self.kept = Slot(stamp);
                self.since.stored(self.executor.work());
                out.release_below(stamp);
            }
            false if self.storing.is_none() => self.since.refused(),
            false => {}
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
            In::Execute { from, batch } => {
                self.execute(now, batch, out);
                if let Some((batcher, number)) = from {
                    self.done.entry(batcher).or_default().push(number);
                }
            }
            In::Read { reads } => {
                let mut rest = Some(reads);
                while let Some(reads) = rest {
                    rest = self
                        .executor
                        .read(now.timestamp(), &reads, &mut self.answers);
                    if self.answers.is_full() {
                        self.flush_answers(false, out);
                    }
                }
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.clock_timer().is_some_and(|at| at <= now) {
            self.execute(now, Batch::default(), out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.clock_timer()
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.flush_answers(true, out);
        while let Some((batcher, numbers)) = self.done.pop_first() {
            out.send(Envelope::ToBatchers(
                Set::one(batcher),
                batcher::In::BatchesDone { numbers },
            ));
        }
    }

    fn invariants(&self) {
        assert!(
            self.kept <= self.executed,
            "a snapshot of what is not executed"
        );
    }

    const METRICS: Metrics = &[metrics::SERVER, parts::metrics::WORKERS];

    fn status(&self, status: &mut Status) {
        status.executed = Some(self.executed);
        status.add([
            self.executor.session_count() as u64,
            self.executor.failed_reads(),
        ]);
        status.add(self.executor.workers());
    }
}
