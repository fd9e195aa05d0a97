//! What every protocol's client lane does alike: numbers commands within a session, remembers them
//! until they are answered, asks again, and gives up in the end. Where a command goes is the
//! protocol's affair.

mod asking;
mod in_flight;
mod invariants;
mod opening;
mod pending;
mod report;

use self::asking::Served;
use self::in_flight::InFlight;
use self::opening::Session;
use self::pending::Pending;
use crate::batch::{Answer, Answers, Command, Outcome, Purpose};
use crate::flow::ByteWindow;
use crate::names::named;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::client::{LaneLimits, Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::{ClientId, Index, Members, Slot};
use ionian_kernel::layout::Options;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant, earliest};

/// The estimate of the answer size decays by 1/FORGETS with each answer.
const FORGETS: usize = 16;

/// The requests of one client lane.
pub struct Lane {
    id: ClientId,
    limits: LaneLimits,
    session: Session,
    writes: InFlight,
    /// The writes that are sent and unanswered. Writes that do not fit wait, so that a new leader
    /// receives at most one window.
    window: ByteWindow,
    /// The numbers of the writes that wait for room, by class; some may be answered or given up
    /// meanwhile.
    waiting: [VecDeque<u64>; 2],
    served: Served,
    /// Reads, and changes of the membership: what needs no session.
    reads: InFlight,
    /// What the answer to one of them takes, about: as the largest lately.
    read_answer_bytes: usize,
    /// Requests that were given up since the last answer: when the first was submitted, and when
    /// the last was given up.
    unserved: Option<(Instant, Instant)>,
    /// The slot after the highest that an answer to this lane came from.
    seen: Slot,
    /// When something may have to be asked again or given up; `None` with nothing in flight.
    check_at: Option<Instant>,
    /// When an idle session must be used so that it does not expire.
    keep_alive_at: Instant,
    keep_alive_every: Duration,
    random: Random,
    /// See [`goes_round`](Self::goes_round).
    turns: u32,
    /// See [`logs_reads`](Self::logs_reads).
    logs_reads: bool,
}

/// Which instances answered commands had been sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Via {
    /// Those that carried writes.
    pub writes: Members,
    /// Those that carried linearizable reads. (Other reads go to a replica, which is known by its
    /// answer.)
    pub reads: Members,
}

/// What a lane wants done; reused from call to call.
#[derive(Debug, Default)]
pub struct Due {
    /// Answers for the application.
    pub replies: Vec<Reply>,
    /// Writes to send.
    pub writes: Vec<DueWrite>,
    /// Reads to send, likewise.
    pub reads: Vec<(ReadLevel, Command, Option<Index>)>,
    /// Whether a write or the request for a session went unanswered for too long.
    pub writes_overdue: bool,
}

/// A write to send.
#[derive(Debug)]
pub struct DueWrite {
    /// The write.
    pub command: Command,
    /// The index of the instance that it was last sent to and that left it unanswered, if any.
    pub via: Option<Index>,
    /// Whether it was sent before, to any instance: one that has it need not take it again.
    pub again: bool,
}

impl Lane {
    /// The lane `id`.
    pub fn new(id: ClientId, options: &Options, mut random: Random) -> Self {
        let Options {
            lane: limits,
            window_bytes,
            session_expiry,
            ..
        } = *options;
        // Reads of an earlier process of this lane must not be answered to this one.
        let first_read = random.any() >> 1;
        let nonce = random.any();
        Lane {
            id,
            limits,
            session: Session::Opening {
                nonce,
                ask_at: Instant::ZERO,
                asked: 0,
                via: None,
            },
            writes: InFlight::new(0),
            window: ByteWindow::new(window_bytes),
            waiting: Default::default(),
            served: Served::default(),
            reads: InFlight::new(first_read),
            read_answer_bytes: 0,
            unserved: None,
            seen: Slot::ZERO,
            check_at: None,
            keep_alive_at: Instant::ZERO,
            keep_alive_every: session_expiry / 4,
            random,
            turns: 1,
            logs_reads: false,
        }
    }

    /// Reads go through the log, like changes.
    pub fn logs_reads(&mut self) {
        self.logs_reads = true;
    }

    /// Other limits, for requests to come, and another life of sessions.
    pub fn reconfigure(&mut self, now: Instant, options: &Options) {
        self.limits = options.lane;
        self.keep_alive_every = options.session_expiry / 4;
        self.keep_alive_at = self.keep_alive_at.min(now + self.keep_alive_every);
        let sent = self.writes.iter().filter(|pending| pending.sent);
        self.window.resize(
            options.window_bytes,
            sent.map(|pending| pending.payload.len()),
        );
        self.wait_anew();
    }

    /// Requests for a session go round among this number of instances.
    pub fn goes_round(&mut self, turns: usize) {
        self.turns = turns.max(1) as u32;
    }

    /// Begins to open the session.
    pub fn start(&mut self, now: Instant, due: &mut Due) {
        self.ask_for_session(now, false, due);
        self.check_at = Some(now + self.limits.retry_after);
    }

    /// Takes a request of the application in.
    pub fn submit(&mut self, now: Instant, request: Request, due: &mut Due) {
        let Request {
            token,
            operation,
            payload,
        } = request;
        let in_flight = match operation {
            Operation::Write => &self.writes,
            Operation::Read(_) | Operation::Change => &self.reads,
        };
        if payload.len() > self.limits.payload_bytes {
            self.refuse(token, Refusal::TooLarge, due);
        } else if self.is_full(payload.len()) || in_flight.is_stretched(self.limits.in_flight_bytes)
        {
            self.refuse(token, Refusal::Busy, due);
        } else {
            let give_up_at = now + self.limits.patience;
            let pending = Pending {
                token,
                operation,
                payload,
                give_up_at,
                asked_at: now,
                ask_at: now,
                asked: 0,
                sent: false,
                floor: 0,
                via: None,
                logged: operation == Operation::Change || self.logs_reads,
            };
            match operation {
                Operation::Write => {
                    self.replace_stale_session(now, due);
                    self.begin_write(now, pending, due);
                }
                Operation::Read(_) | Operation::Change => self.begin_sessionless(now, pending, due),
            }
        }
    }

    fn refuse(&self, token: u64, refusal: Refusal, due: &mut Due) {
        due.replies.push(Reply {
            seen: self.seen,
            ..Reply::refused(token, refusal)
        });
    }

    /// Whether there is no room for `bytes` more. A request that comes alone always has room.
    fn is_full(&self, bytes: usize) -> bool {
        let held = self.writes.bytes + self.reads.bytes;
        self.in_flight() >= self.limits.in_flight
            || (held > 0 && held + bytes > self.limits.in_flight_bytes)
    }

    fn begin_write(&mut self, now: Instant, pending: Pending, due: &mut Due) {
        let bytes = pending.payload.len();
        let number = self.writes.push(pending);
        self.watch(now);
        let waiting = &mut self.waiting[self.window.class(bytes)];
        // Without a session it waits, and is sent with all others as soon as there is one.
        if let Session::Open(session) = self.session
            && waiting.is_empty()
            && self.window.has_room(bytes)
        {
            self.window.add(bytes);
            let floor = self.writes.floor;
            let pending = self.writes.get_mut(number).expect("just pushed");
            (pending.sent, pending.floor) = (true, floor);
            pending.mark_asked(now, self.limits.retry_after);
            let command = pending.command(self.id, Purpose::Execute(session), number, floor);
            due.writes.push(DueWrite {
                command,
                via: None,
                again: false,
            });
        } else {
            waiting.push_back(number);
        }
        self.keep_alive_at = now + self.keep_alive_every;
    }

    /// Sends what waits, as far as there is room.
    fn send_waiting(&mut self, now: Instant, due: &mut Due) {
        let Session::Open(session) = self.session else {
            return;
        };
        let floor = self.writes.floor;
        for waiting in &mut self.waiting {
            while let Some(number) = waiting.front().copied() {
                if let Some(pending) = self.writes.get_mut(number) {
                    if !self.window.has_room(pending.payload.len()) {
                        break;
                    }
                    self.window.add(pending.payload.len());
                    let again = pending.asked > 0;
                    pending.sent = true;
                    pending.floor = if again { pending.floor } else { floor };
                    let floor = pending.floor;
                    pending.mark_asked(now, self.limits.retry_after);
                    let command =
                        pending.command(self.id, Purpose::Execute(session), number, floor);
                    due.writes.push(DueWrite {
                        command,
                        via: pending.via.filter(|_| again),
                        again,
                    });
                }
                waiting.pop_front();
            }
        }
    }

    /// Everything waits anew: who serves now may have none of it.
    fn requeue(&mut self) {
        self.window.clear();
        self.writes
            .iter_mut()
            .for_each(|(_, pending)| pending.sent = false);
        self.wait_anew();
    }

    /// Whatever is not sent waits, by the classes that hold now.
    fn wait_anew(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
        for (number, pending) in self.writes.iter_mut().filter(|(_, pending)| !pending.sent) {
            self.waiting[self.window.class(pending.payload.len())].push_back(number);
        }
    }

    /// A write is answered or given up: those that wait for it may have room.
    fn make_room(&mut self, pending: &Pending) {
        if pending.sent {
            self.window.remove(pending.payload.len());
        }
    }

    fn begin_sessionless(&mut self, now: Instant, pending: Pending, due: &mut Due) {
        let number = self.reads.push(pending);
        self.watch(now);
        let pending = self.reads.get_mut(number).expect("just pushed");
        pending.mark_asked(now, self.limits.retry_after);
        pending.send_sessionless(self.id, number, None, due);
    }

    fn watch(&mut self, now: Instant) {
        // Earlier, if what else is in flight is asked again only late.
        self.check_at = earliest(self.check_at, Some(now + self.limits.retry_after));
    }

    /// Remembers which instance a command was sent to, so that another is asked next time.
    pub fn sent_via(&mut self, purpose: Purpose, number: u64, via: Index) {
        let sent_via = match purpose {
            Purpose::Read | Purpose::Change => self.reads.via(number),
            Purpose::Execute(_) => self.writes.via(number),
            Purpose::Open => match &mut self.session {
                Session::Opening { via, .. } => Some(via),
                Session::Open(_) => None,
            },
            // It is not answered.
            Purpose::KeepAlive(_) | Purpose::Internal => None,
        };
        if let Some(sent_via) = sent_via {
            *sent_via = Some(via);
        }
    }

    /// Takes answers in; returns which instances the answered commands had been sent to.
    pub fn on_answers(&mut self, now: Instant, answers: &Answers, due: &mut Due) -> Via {
        self.seen = self.seen.max(answers.executed);
        let before = due.replies.len();
        let mut via = Via::default();
        for answer in answers.iter() {
            if answer.client == self.id {
                self.on_answer(now, answer, due, &mut via);
            }
        }
        if due.replies.len() > before {
            self.unserved = None;
        }
        if self.waiting.iter().any(|waiting| !waiting.is_empty()) {
            self.send_waiting(now, due);
        }
        via
    }

    fn on_answer(&mut self, now: Instant, answer: Answer, due: &mut Due, via: &mut Via) {
        let Answer {
            purpose,
            number,
            outcome,
            ..
        } = answer;
        match (purpose, outcome, &self.session) {
            (
                Purpose::Open,
                Outcome::Opened(id),
                Session::Opening {
                    nonce, via: asked, ..
                },
            ) if *nonce == number => {
                via.writes.extend(*asked);
                self.session = Session::Open(id);
                self.keep_alive_at = now + self.keep_alive_every;
                self.writes.floor = 0;
                self.requeue();
                self.send_waiting(now, due);
            }
            (Purpose::Read, outcome, _) => via
                .reads
                .extend(self.settle_sessionless(number, outcome, due)),
            (Purpose::Change, outcome, _) => via
                .writes
                .extend(self.settle_sessionless(number, outcome, due)),
            (of, Outcome::NoSession, Session::Open(open)) if of.session() == Some(*open) => {
                self.lose_session(now, due);
            }
            (Purpose::Execute(of), outcome, Session::Open(open)) if of == *open => {
                via.writes.extend(self.settle_write(number, outcome, due))
            }
            // A duplicate, or an answer to an earlier process or session.
            _ => {}
        }
    }

    fn settle_sessionless(
        &mut self,
        number: u64,
        outcome: Outcome,
        due: &mut Due,
    ) -> Option<Index> {
        let pending = self.reads.take(number, 0)?;
        let command = Some(named(self.id, true, number));
        let outcome = match outcome {
            Outcome::Done(reply) => {
                let before = self.read_answer_bytes;
                self.read_answer_bytes = reply.len().max(before - before.div_ceil(FORGETS));
                Ok(reply)
            }
            Outcome::Failed => Err(Refusal::Failed),
            _ => Err(Refusal::NotARead),
        };
        due.replies.push(Reply {
            token: pending.token,
            command,
            outcome,
            seen: self.seen,
        });
        match pending.operation {
            Operation::Read(ReadLevel::Sequential | ReadLevel::Eventual) => None,
            _ => pending.via,
        }
    }

    fn settle_write(&mut self, number: u64, outcome: Outcome, due: &mut Due) -> Option<Index> {
        let outcome = match outcome {
            Outcome::Done(reply) => Ok(reply),
            Outcome::Failed => Err(Refusal::Failed),
            _ => return None,
        };
        let kept = outcome.as_ref().map_or(0, Bytes::len);
        let pending = self.writes.take(number, kept)?;
        self.make_room(&pending);
        self.note_served(&pending);
        let command = Some(named(self.id, false, number));
        due.replies.push(Reply {
            token: pending.token,
            command,
            outcome,
            seen: self.seen,
        });
        pending.via
    }

    /// There is a new leader: what it may not have is asked again at once, as far as there is room.
    pub fn resend_writes(&mut self, now: Instant, due: &mut Due) {
        self.ask_for_session(now, false, due);
        self.requeue();
        self.send_waiting(now, due);
        self.resend_changes(now, due);
    }

    fn resend_changes(&mut self, now: Instant, due: &mut Due) {
        for (number, pending) in self.reads.iter_mut().filter(|(_, it)| it.logged) {
            pending.mark_asked(now, self.limits.retry_after);
            pending.send_sessionless(self.id, number, None, due);
        }
    }

    /// Writes of less than `bytes` may have gone to those who do not serve: they are asked again at
    /// once, of those who do.
    pub fn resend_small_writes(&mut self, now: Instant, bytes: usize, due: &mut Due) {
        let Session::Open(session) = self.session else {
            return self.ask_for_session(now, false, due);
        };
        let small = self
            .writes
            .iter_mut()
            .filter(|(_, pending)| pending.sent && pending.payload.len() < bytes);
        for (number, pending) in small {
            pending.mark_asked(now, self.limits.retry_after);
            let command =
                pending.command(self.id, Purpose::Execute(session), number, pending.floor);
            due.writes.push(DueWrite {
                command,
                via: pending.via,
                again: true,
            });
        }
        self.resend_changes(now, due);
    }

    /// Asks again what went unanswered for too long, and gives up what did for even longer.
    pub fn on_timer(&mut self, now: Instant, due: &mut Due) {
        self.replace_stale_session(now, due);
        if self.check_at.is_some_and(|at| at <= now) {
            self.give_up_late(now, due);
            self.find_overdue_writes(now, due);
            let transit_of_reads = self.transit_of_reads();
            self.send_overdue(now, due);
            self.send_waiting(now, due);
            self.send_overdue_reads(now, transit_of_reads, due);
            self.check_at = self.next_check();
        }
        if let Session::Open(session) = self.session
            && self.keep_alive_at <= now
        {
            self.keep_alive(now, session, due);
        }
    }

    /// Gives up all requests: the lane ends, or the cluster is to be asked for none of them.
    pub fn give_up_all(&mut self, due: &mut Due) {
        self.give_up(|_| true, due);
    }

    fn give_up(&mut self, hopeless: impl Fn(&Pending) -> bool, due: &mut Due) {
        let gone = self.writes.take_if(&hopeless);
        if !gone.is_empty() {
            self.waiting.iter_mut().for_each(|waiting| {
                waiting.retain(|number| self.writes.get_mut(*number).is_some())
            });
        }
        for pending in gone {
            self.make_room(&pending);
            let refusal = match pending.asked {
                0 => Refusal::Unavailable,
                _ => Refusal::Unknown,
            };
            self.refuse(pending.token, refusal, due);
        }
        for pending in self.reads.take_if(hopeless) {
            let changes = pending.operation == Operation::Change;
            let refusal = if changes {
                Refusal::Unknown
            } else {
                Refusal::Unavailable
            };
            self.refuse(pending.token, refusal, due);
        }
    }

    /// When [`on_timer`](Lane::on_timer) must be called.
    pub fn next_timer(&self) -> Option<Instant> {
        let keep_alive = matches!(self.session, Session::Open(_)).then_some(self.keep_alive_at);
        earliest(self.check_at, keep_alive)
    }

    /// The slot up to which a sequential read must see the log.
    pub fn seen(&self) -> Slot {
        self.seen
    }

    /// Whether the session is open.
    pub fn is_open(&self) -> bool {
        matches!(self.session, Session::Open(_))
    }

    /// How many requests are unanswered.
    pub fn in_flight(&self) -> usize {
        self.writes.occupied + self.reads.occupied
    }
}

#[cfg(test)]
mod tests;
