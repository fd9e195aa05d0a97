//! The client lane of an unreplicated server; see [`crate::multipaxos::client`] for what a lane is.
//!
//! Stands at both ends of the chart. Writes go to a batcher, or to the server where there is none;
//! reads go to the server.

use super::metrics;
use super::{Envelope, SERVER, batcher, kind, server};
use alloc::sync::Arc;
use ionian_kernel::client::Request;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, Batch, BatchBuilder};
use ionian_replication::lane::{Due, DueWrite, Lane};
use ionian_replication::suspicion::Choice;

messages! {
    /// The messages that a client lane receives.
    "client" In {
        /// The application wants this done.
        0 => Submit {
            /// The command.
            request: Request,
        },
        /// The server's answers, perhaps by way of an unbatcher.
        1 for "answers" of answers => Answers {
            /// The answers to this lane.
            answers: Answers,
        },
    }
}

/// A client lane.
pub struct ClientLane {
    id: ClientId,
    lane: Lane,
    due: Due,
    batchers: Choice<BatcherId>,
    /// Writes of this burst, for a batcher.
    writes: BatchBuilder,
    via: Option<(BatcherId, Set<BatcherId>)>,
}

impl ClientLane {
    /// The lane of this birth.
    pub fn new(layout: &Layout, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ClientId(birth.address.index);
        let options = &layout.options;
        ClientLane {
            id,
            batchers: Choice::new(
                layout.all(kind::Batcher),
                layout.near(kind::Batcher, birth.node),
                random.any(),
            ),
            lane: Lane::new(id, options, random),
            due: Due::default(),
            writes: BatchBuilder::default(),
            via: None,
        }
    }

    fn carry_out(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut due = core::mem::take(&mut self.due);
        for reply in due.replies.drain(..) {
            out.send(Envelope::ToApplication(self.id, reply));
        }
        // An empty drain is not free, and nearly always one of the three is filled.
        if !due.writes.is_empty() {
            for write in due.writes.drain(..) {
                self.write(now, write, out);
            }
        }
        if !due.reads.is_empty() {
            for (_, command, _) in due.reads.drain(..) {
                out.send(Envelope::ToServers(
                    SERVER,
                    server::In::Read {
                        reads: Batch::one(&command),
                    },
                ));
            }
        }
        self.due = due;
    }

    fn write(&mut self, now: Instant, write: DueWrite, out: &mut Out<'_, Self>) {
        let DueWrite { command, via, .. } = write;
        if let Some(silent) = via {
            self.batchers.silent(BatcherId(silent), now);
            self.via = self.via.filter(|(batcher, _)| batcher.0 != silent);
        }
        if self.via.is_none() {
            self.flush(out);
            self.via = self.batchers.next(now);
        }
        match self.via {
            None => {
                let message = server::In::Execute {
                    from: None,
                    batch: Batch::one(&command),
                };
                out.send(Envelope::ToServers(SERVER, message));
            }
            Some((batcher, _)) => {
                self.lane
                    .sent_via(command.purpose, command.number, batcher.0);
                self.writes.push(&command);
            }
        }
    }

    fn flush(&mut self, out: &mut Out<'_, Self>) {
        if let Some((_, batchers)) = self.via
            && !self.writes.is_empty()
        {
            let message = batcher::In::Commands {
                commands: self.writes.take(),
            };
            out.send(Envelope::ToBatchers(batchers, message));
        }
    }
}

impl Role for ClientLane {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Layout>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.start(now, &mut self.due);
        self.carry_out(now, out);
    }

    fn on_retire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.give_up_all(&mut self.due);
        self.carry_out(now, out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Submit { request } => self.lane.submit(now, request, &mut self.due),
            In::Answers { answers } => {
                let via = self.lane.on_answers(now, &answers, &mut self.due);
                Set::from_members(via.writes)
                    .iter()
                    .for_each(|batcher| self.batchers.heard(batcher));
            }
        }
        self.carry_out(now, out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.on_timer(now, &mut self.due);
        self.carry_out(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.lane.next_timer()
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.flush(out);
        self.via = None;
    }

    fn invariants(&self) {
        self.lane.invariants();
    }

    const METRICS: Metrics = &[metrics::CLIENT];

    fn status(&self, status: &mut Status) {
        self.lane.report(status);
        status.add([self.lane.in_flight() as u64]);
    }
}
