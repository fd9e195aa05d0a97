//! The client lane of a toy.

use super::{Envelope, ORACLE, server};
use alloc::sync::Arc;
use ionian_kernel::client::Request;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metric, Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, Batch};
use ionian_replication::lane::{Due, Lane};

messages! {
    /// The messages to a client lane.
    "client" In {
        /// The application wants this done.
        0 => Submit {
            /// The command.
            request: Request,
        },
        /// The server's answers.
        1 => Answers {
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
}

impl ClientLane {
    /// The lane of this birth.
    pub fn new(layout: &Layout, birth: &Birth<'_>) -> Self {
        let id = ClientId(birth.address.index);
        ClientLane {
            id,
            lane: Lane::new(id, &layout.options, Random::new(birth.seed)),
            due: Due::default(),
        }
    }

    fn carry_out(&mut self, out: &mut Out<'_, Self>) {
        for reply in self.due.replies.drain(..) {
            out.send(Envelope::ToApplication(self.id, reply));
        }
        for write in self.due.writes.drain(..) {
            let batch = Batch::one(&write.command);
            out.send(Envelope::ToOracles(ORACLE, server::In::Execute { batch }));
        }
        for (_, command, _) in self.due.reads.drain(..) {
            let reads = Batch::one(&command);
            out.send(Envelope::ToOracles(ORACLE, server::In::Read { reads }));
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
        self.carry_out(out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Submit { request } => self.lane.submit(now, request, &mut self.due),
            In::Answers { answers } => {
                self.lane.on_answers(now, &answers, &mut self.due);
            }
        }
        self.carry_out(out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.on_timer(now, &mut self.due);
        self.carry_out(out);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.lane.next_timer()
    }

    fn invariants(&self) {
        self.lane.invariants();
    }

    const METRICS: Metrics = &[&[Metric::gauge(
        "in_flight",
        "commands",
        "commands that have no answer yet",
    )]];

    fn status(&self, status: &mut Status) {
        status.has_session = Some(self.lane.is_open());
        status.add([self.lane.in_flight() as u64]);
    }
}
