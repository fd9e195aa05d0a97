//! What every protocol's client lane does alike: numbers commands within a session, remembers them
//! until they are answered, asks again, and gives up in the end. Where a command goes is the
//! protocol's affair.

use crate::batch::{Answer, Answers, Command, Outcome, SessionId};
use crate::client::{LaneLimits, Operation, ReadLevel, Refusal, Reply, Request};
use crate::id::{ClientId, Slot};
use crate::random::Random;
use crate::session::SESSION_WINDOW;
use crate::time::{Duration, Instant, transit};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// The number of a command that only says that its session is in use. It lies beyond every session's
/// window, so no replica executes it.
const KEEP_ALIVE: u64 = u64::MAX;

/// The requests of one client lane.
pub struct Lane {
    id: ClientId,
    limits: LaneLimits,
    session: Session,
    writes: InFlight,
    /// Reads, and changes of the membership: what needs no session.
    reads: InFlight,
    /// The slot after the highest that an answer to this lane came from.
    seen: Slot,
    /// When something may have to be asked again or given up; `None` with nothing in flight.
    check_at: Option<Instant>,
    /// When an idle session must be used so that it does not expire.
    keep_alive_at: Instant,
    keep_alive_every: Duration,
    random: Random,
}

enum Session {
    /// Asked for with this nonce.
    Opening { nonce: u64, ask_at: Instant, asked: u32 },
    /// Open under this id.
    Open(SessionId),
}

/// Requests by number, from the lowest unanswered on.
struct InFlight {
    floor: u64,
    requests: VecDeque<Option<Pending>>,
    occupied: usize,
    /// What their payloads hold.
    bytes: usize,
}

struct Pending {
    token: u64,
    operation: Operation,
    payload: Bytes,
    give_up_at: Instant,
    ask_at: Instant,
    asked: u32,
    via: u8,
}

/// Which instances answered commands had been sent to: bit `i` for instance `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Via {
    /// Those that carried writes.
    pub writes: u64,
    /// Those that carried reads.
    pub reads: u64,
}

/// What a lane wants done; reused from call to call.
#[derive(Debug, Default)]
pub struct Due {
    /// Answers for the application.
    pub replies: Vec<Reply>,
    /// Writes to send, each with the place of the instance that it was last sent to, if any.
    pub writes: Vec<(Command, Option<u8>)>,
    /// Reads to send, likewise.
    pub reads: Vec<(ReadLevel, Command, Option<u8>)>,
    /// Whether a write or the request for a session went unanswered for too long.
    pub writes_overdue: bool,
}

impl Lane {
    /// The lane `id`, whose sessions the cluster forgets after `session_expiry` without use.
    pub fn new(id: ClientId, limits: LaneLimits, session_expiry: Duration, mut random: Random) -> Self {
        // Reads of an earlier process of this lane must not be answered to this one.
        let first_read = random.any() >> 1;
        let nonce = random.any();
        Lane {
            id,
            limits,
            session: Session::Opening { nonce, ask_at: Instant::ZERO, asked: 0 },
            writes: InFlight::new(0),
            reads: InFlight::new(first_read),
            seen: Slot::ZERO,
            check_at: None,
            keep_alive_at: Instant::ZERO,
            keep_alive_every: session_expiry / 4,
            random,
        }
    }

    /// Begins to open the session.
    pub fn start(&mut self, now: Instant, due: &mut Due) {
        self.ask_for_session(now, due);
        self.check_at = Some(now + self.limits.retry_after);
    }

    /// Takes a request of the application in.
    pub fn submit(&mut self, now: Instant, request: Request, due: &mut Due) {
        let Request { token, operation, payload } = request;
        let in_flight = match operation {
            Operation::Write => &self.writes,
            Operation::Read(_) | Operation::Change => &self.reads,
        };
        if payload.len() > self.limits.payload_bytes {
            due.replies.push(Reply { token, outcome: Err(Refusal::TooLarge) });
        } else if self.writes.occupied + self.reads.occupied >= self.limits.in_flight || in_flight.is_stretched() {
            due.replies.push(Reply { token, outcome: Err(Refusal::Busy) });
        } else {
            let give_up_at = now + self.limits.patience;
            let pending = Pending { token, operation, payload, give_up_at, ask_at: now, asked: 0, via: 0 };
            match operation {
                Operation::Write => self.begin_write(now, pending, due),
                Operation::Read(_) | Operation::Change => self.begin_sessionless(now, pending, due),
            }
        }
    }

    fn begin_write(&mut self, now: Instant, pending: Pending, due: &mut Due) {
        let number = self.writes.push(pending);
        self.watch(now);
        // Without a session it waits, and is sent with all others as soon as there is one.
        if let Session::Open(session) = self.session {
            let floor = self.writes.floor;
            let pending = self.writes.get_mut(number).expect("just pushed");
            pending.mark_asked(now, self.limits.retry_after);
            due.writes.push((pending.command(self.id, session, number, floor), None));
        }
        self.keep_alive_at = now + self.keep_alive_every;
    }

    fn begin_sessionless(&mut self, now: Instant, pending: Pending, due: &mut Due) {
        let number = self.reads.push(pending);
        self.watch(now);
        let pending = self.reads.get_mut(number).expect("just pushed");
        pending.mark_asked(now, self.limits.retry_after);
        pending.send_sessionless(self.id, number, None, due);
    }

    fn watch(&mut self, now: Instant) {
        if self.check_at.is_none() {
            self.check_at = Some(now + self.limits.retry_after);
        }
    }

    /// Remembers which instance a command was sent to, so that another is asked next time.
    pub fn sent_via(&mut self, session: SessionId, number: u64, via: u8) {
        let sessionless = matches!(session, SessionId::READ | SessionId::CHANGE);
        let in_flight = if sessionless { &mut self.reads } else { &mut self.writes };
        if let Some(pending) = in_flight.get_mut(number) {
            pending.via = via;
        }
    }

    /// Takes answers in; returns which instances the answered commands had been sent to.
    pub fn on_answers(&mut self, now: Instant, answers: &Answers, due: &mut Due) -> Via {
        self.seen = self.seen.max(answers.executed);
        let mut via = Via::default();
        for answer in answers.iter() {
            if answer.client == self.id {
                self.on_answer(now, answer, due, &mut via);
            }
        }
        via
    }

    fn on_answer(&mut self, now: Instant, answer: Answer, due: &mut Due, via: &mut Via) {
        let Answer { session, number, outcome, .. } = answer;
        match (session, outcome, &self.session) {
            (SessionId::OPEN, Outcome::Opened(id), Session::Opening { nonce, .. }) if *nonce == number => {
                self.session = Session::Open(id);
                self.keep_alive_at = now + self.keep_alive_every;
                self.writes.floor = 0;
                self.send_writes(now, due, |_| true);
            }
            (SessionId::READ, outcome, _) => via.reads |= self.settle_sessionless(number, outcome, due),
            (SessionId::CHANGE, outcome, _) => via.writes |= self.settle_sessionless(number, outcome, due),
            (id, Outcome::NoSession, Session::Open(open)) if id == *open => {
                self.lose_session(now, due);
            }
            (id, outcome, Session::Open(open)) if id == *open => via.writes |= self.settle_write(number, outcome, due),
            // A duplicate, or an answer to an earlier process or session.
            _ => {}
        }
    }

    fn settle_sessionless(&mut self, number: u64, outcome: Outcome, due: &mut Due) -> u64 {
        let Some(pending) = self.reads.take(number) else { return 0 };
        let outcome = match outcome {
            Outcome::Done(reply) => Ok(reply),
            _ => Err(Refusal::NotARead),
        };
        due.replies.push(Reply { token: pending.token, outcome });
        1 << (pending.via % 64)
    }

    fn settle_write(&mut self, number: u64, outcome: Outcome, due: &mut Due) -> u64 {
        let Outcome::Done(reply) = outcome else { return 0 };
        let Some(pending) = self.writes.take(number) else { return 0 };
        due.replies.push(Reply { token: pending.token, outcome: Ok(reply) });
        1 << (pending.via % 64)
    }

    /// The cluster has forgotten the session. What was sent in it may have been executed before
    /// that; what was not is sent in the next one.
    fn lose_session(&mut self, now: Instant, due: &mut Due) {
        let requests = core::mem::replace(&mut self.writes, InFlight::new(0)).requests;
        for pending in requests.into_iter().flatten() {
            if pending.asked > 0 {
                due.replies.push(Reply { token: pending.token, outcome: Err(Refusal::Unknown) });
            } else {
                self.writes.push(pending);
            }
        }
        self.session = Session::Opening { nonce: self.random.any(), ask_at: now, asked: 0 };
        self.ask_for_session(now, due);
    }

    fn ask_for_session(&mut self, now: Instant, due: &mut Due) {
        if let Session::Opening { nonce, ask_at, asked } = &mut self.session {
            // The wait doubles, up to sixteen times the first: a cluster that cannot serve for long should
            // not find a heap of such requests when it can. (A new leader is asked at once.)
            *ask_at = now + self.limits.retry_after * (1 << (*asked).min(4));
            *asked += 1;
            let command =
                Command { client: self.id, session: SessionId::OPEN, number: *nonce, floor: 0, payload: Bytes::new() };
            due.writes.push((command, None));
        }
    }

    fn send_writes(&mut self, now: Instant, due: &mut Due, which: impl Fn(&Pending) -> bool) {
        let Session::Open(session) = self.session else { return };
        let floor = self.writes.floor;
        for (number, pending) in self.writes.iter_mut().filter(|(_, pending)| which(pending)) {
            let via = (pending.asked > 0).then_some(pending.via);
            pending.mark_asked(now, self.limits.retry_after);
            due.writes.push((pending.command(self.id, session, number, floor), via));
        }
    }

    /// There is a new leader: everything that it may not have is asked again at once.
    pub fn resend_writes(&mut self, now: Instant, due: &mut Due) {
        self.ask_for_session(now, due);
        self.send_writes(now, due, |_| true);
        for (number, pending) in self.reads.iter_mut().filter(|(_, it)| it.operation == Operation::Change) {
            pending.mark_asked(now, self.limits.retry_after);
            pending.send_sessionless(self.id, number, None, due);
        }
    }

    /// Asks again what went unanswered for too long, and gives up what did for even longer.
    pub fn on_timer(&mut self, now: Instant, due: &mut Due) {
        if self.check_at.is_some_and(|at| at <= now) {
            self.give_up(now, due);
            if matches!(self.session, Session::Opening { ask_at, .. } if ask_at <= now) {
                self.ask_for_session(now, due);
                due.writes_overdue = true;
            }
            let late = now - self.transit();
            let overdue = |pending: &Pending| pending.asked > 0 && pending.ask_at <= late;
            let changes = self.reads.iter().filter(|pending| pending.operation == Operation::Change);
            due.writes_overdue |= self.writes.iter().chain(changes).any(overdue);
            self.send_writes(now, due, |pending| pending.ask_at <= late);
            for (number, pending) in self.reads.iter_mut().filter(|(_, pending)| pending.ask_at <= late) {
                let via = Some(pending.via);
                pending.mark_asked(now, self.limits.retry_after);
                pending.send_sessionless(self.id, number, via, due);
            }
            self.check_at = self.next_check();
        }
        if let Session::Open(session) = self.session
            && self.keep_alive_at <= now
        {
            self.keep_alive_at = now + self.keep_alive_every;
            let (number, floor) = (KEEP_ALIVE, self.writes.floor);
            let command = Command { client: self.id, session, number, floor, payload: Bytes::new() };
            due.writes.push((command, None));
        }
    }

    /// How much later an answer may come because of what is under way with it.
    fn transit(&self) -> Duration {
        transit(self.writes.bytes + self.reads.bytes)
    }

    fn give_up(&mut self, now: Instant, due: &mut Due) {
        let hopeless = |pending: &Pending| pending.give_up_at <= now;
        for pending in self.writes.take_if(hopeless) {
            let outcome = Err(if pending.asked == 0 { Refusal::Unavailable } else { Refusal::Unknown });
            due.replies.push(Reply { token: pending.token, outcome });
        }
        for pending in self.reads.take_if(hopeless) {
            let changes = pending.operation == Operation::Change;
            let refusal = if changes { Refusal::Unknown } else { Refusal::Unavailable };
            due.replies.push(Reply { token: pending.token, outcome: Err(refusal) });
        }
    }

    fn next_check(&self) -> Option<Instant> {
        let opening = match self.session {
            Session::Opening { ask_at, .. } => Some(ask_at),
            Session::Open(_) => None,
        };
        let waiting = self.writes.iter().filter(|pending| pending.asked == 0).map(|pending| pending.give_up_at);
        let asked = self.writes.iter().filter(|pending| pending.asked > 0).chain(self.reads.iter());
        let asked = asked.map(|pending| (pending.ask_at + self.transit()).min(pending.give_up_at));
        waiting.chain(asked).chain(opening).min()
    }

    /// When [`on_timer`](Lane::on_timer) must be called.
    pub fn next_timer(&self) -> Option<Instant> {
        let keep_alive = matches!(self.session, Session::Open(_)).then_some(self.keep_alive_at);
        crate::time::earliest(self.check_at, keep_alive)
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

    /// Asserts that the lane stays within what sessions allow.
    pub fn invariants(&self) {
        assert!((self.writes.requests.len() as u64) < SESSION_WINDOW, "a lane numbers commands beyond its session");
        assert!(self.in_flight() == 0 || self.check_at.is_some(), "requests in flight and no timer to ask again");
    }
}

impl InFlight {
    fn new(floor: u64) -> Self {
        InFlight { floor, requests: VecDeque::new(), occupied: 0, bytes: 0 }
    }

    /// Whether one old request has held the floor for so long that numbers run out.
    fn is_stretched(&self) -> bool {
        self.requests.len() as u64 >= SESSION_WINDOW / 2
    }

    fn push(&mut self, pending: Pending) -> u64 {
        self.bytes += pending.payload.len();
        self.requests.push_back(Some(pending));
        self.occupied += 1;
        self.floor + self.requests.len() as u64 - 1
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        let index = usize::try_from(number.checked_sub(self.floor)?).ok()?;
        self.requests.get_mut(index)?.as_mut()
    }

    fn take(&mut self, number: u64) -> Option<Pending> {
        let index = usize::try_from(number.checked_sub(self.floor)?).ok()?;
        let pending = self.requests.get_mut(index)?.take()?;
        self.occupied -= 1;
        self.bytes -= pending.payload.len();
        self.raise_floor();
        Some(pending)
    }

    fn take_if(&mut self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let gone: Vec<Pending> = self
            .requests
            .iter_mut()
            .filter(|slot| slot.as_ref().is_some_and(&which))
            .filter_map(Option::take)
            .collect();
        self.occupied -= gone.len();
        self.bytes -= gone.iter().map(|pending| pending.payload.len()).sum::<usize>();
        self.raise_floor();
        gone
    }

    fn raise_floor(&mut self) {
        while let Some(None) = self.requests.front() {
            self.requests.pop_front();
            self.floor += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.requests.iter().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Pending)> {
        let floor = self.floor;
        (floor..).zip(self.requests.iter_mut()).filter_map(|(number, pending)| Some((number, pending.as_mut()?)))
    }
}

impl Pending {
    /// Has a command sent that needs no session.
    fn send_sessionless(&self, lane: ClientId, number: u64, via: Option<u8>, due: &mut Due) {
        match self.operation {
            Operation::Read(level) => due.reads.push((level, self.command(lane, SessionId::READ, number, 0), via)),
            Operation::Change => due.writes.push((self.command(lane, SessionId::CHANGE, number, 0), via)),
            Operation::Write => unreachable!("writes have a session"),
        }
    }

    /// The wait doubles with each time of asking, up to eight times the first.
    fn mark_asked(&mut self, now: Instant, retry_after: Duration) {
        self.ask_at = now + retry_after * (1 << self.asked.min(3));
        self.asked += 1;
    }

    fn command(&self, client: ClientId, session: SessionId, number: u64, floor: u64) -> Command {
        Command { client, session, number, floor, payload: self.payload.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::AnswersByClient;
    use crate::wire::encode_all;

    const ME: ClientId = ClientId(2);

    fn lane() -> (Lane, Due, u64) {
        let mut lane = Lane::new(ME, LaneLimits::default(), Duration::from_secs(600), Random::new(1));
        let mut due = Due::default();
        lane.start(Instant(0), &mut due);
        let nonce = due.writes.pop().expect("asks for a session").0.number;
        (lane, due, nonce)
    }

    fn answer(session: SessionId, number: u64, outcome: Outcome) -> Answers {
        let mut answers = AnswersByClient::default();
        answers.push(&Answer { client: ME, session, number, outcome });
        answers.take_all(0, Slot(7))
    }

    fn write(token: u64) -> Request {
        Request { token, operation: Operation::Write, payload: Bytes::from(encode_all(&token)) }
    }

    fn tokens(due: &mut Due) -> Vec<(u64, bool)> {
        due.replies.drain(..).map(|reply| (reply.token, reply.outcome.is_ok())).collect()
    }

    #[test]
    fn writes_wait_for_the_session_and_are_numbered_in_order() {
        let (mut lane, mut due, nonce) = lane();
        lane.submit(Instant(1), write(10), &mut due);
        lane.submit(Instant(1), write(11), &mut due);
        assert!(due.writes.is_empty());
        lane.on_answers(Instant(2), &answer(SessionId::OPEN, nonce + 1, Outcome::Opened(SessionId(4))), &mut due);
        assert!(!lane.is_open(), "somebody else's session");
        lane.on_answers(Instant(2), &answer(SessionId::OPEN, nonce, Outcome::Opened(SessionId(4))), &mut due);
        let sent: Vec<_> = due.writes.drain(..).map(|(command, _)| (command.session.0, command.number)).collect();
        assert_eq!(sent, [(4, 0), (4, 1)]);
        let done = Outcome::Done(Bytes::new());
        lane.on_answers(Instant(3), &answer(SessionId(4), 1, done.clone()), &mut due);
        lane.on_answers(Instant(3), &answer(SessionId(4), 1, done.clone()), &mut due);
        assert_eq!(tokens(&mut due), [(11, true)]);
        lane.submit(Instant(4), write(12), &mut due);
        assert_eq!((due.writes[0].0.number, due.writes[0].0.floor), (2, 0), "number 0 is unanswered");
        lane.on_answers(Instant(5), &answer(SessionId(4), 0, done), &mut due);
        due.writes.clear();
        lane.submit(Instant(6), write(13), &mut due);
        assert_eq!((due.writes[0].0.number, due.writes[0].0.floor), (3, 2));
        assert_eq!(lane.seen(), Slot(7));
    }

    /// Otherwise it is asked again by a timer alone, which tries another leader each time.
    #[test]
    fn a_new_leader_is_asked_for_changes_of_the_membership_too() {
        let (mut lane, mut due, _) = lane();
        let payload = Bytes::from_static(b"change");
        lane.submit(Instant(0), Request { token: 1, operation: Operation::Change, payload }, &mut due);
        due.writes.clear();
        lane.resend_writes(Instant(1), &mut due);
        let sessions: Vec<_> = due.writes.iter().map(|(command, _)| command.session).collect();
        assert_eq!(sessions, [SessionId::OPEN, SessionId::CHANGE]);
    }

    #[test]
    fn the_unanswered_is_asked_again_and_given_up_honestly() {
        let (mut lane, mut due, nonce) = lane();
        lane.submit(Instant(0), write(1), &mut due);
        lane.on_timer(Instant(5_000_000), &mut due);
        assert_eq!(due.replies.pop().unwrap().outcome, Err(Refusal::Unavailable), "it was never sent");
        due.writes.clear();
        lane.on_answers(Instant(5_000_000), &answer(SessionId::OPEN, nonce, Outcome::Opened(SessionId(1))), &mut due);
        lane.submit(Instant(5_000_000), write(2), &mut due);
        let mut asked = 1;
        while due.replies.is_empty() {
            let timer = lane.next_timer().expect("something is in flight");
            lane.on_timer(timer, &mut due);
            asked += 1;
            assert!(asked < 20);
        }
        assert!(asked > 4, "asked only {asked} times");
        assert_eq!(due.replies.pop().unwrap().outcome, Err(Refusal::Unknown));
        lane.invariants();
    }

    #[test]
    fn a_lost_session_is_replaced_and_doubt_is_admitted() {
        let (mut lane, mut due, nonce) = lane();
        lane.on_answers(Instant(0), &answer(SessionId::OPEN, nonce, Outcome::Opened(SessionId(1))), &mut due);
        lane.submit(Instant(0), write(1), &mut due);
        due.writes.clear();
        lane.on_answers(Instant(1), &answer(SessionId(1), 0, Outcome::NoSession), &mut due);
        assert_eq!(tokens(&mut due), [(1, false)]);
        assert_eq!(due.writes.pop().unwrap().0.session, SessionId::OPEN);
        assert!(!lane.is_open());
    }

    #[test]
    fn an_idle_session_is_kept_alive() {
        let (mut lane, mut due, nonce) = lane();
        lane.on_answers(Instant(0), &answer(SessionId::OPEN, nonce, Outcome::Opened(SessionId(1))), &mut due);
        lane.on_timer(Instant(150_000_000), &mut due);
        let command = due.writes.pop().unwrap().0;
        assert_eq!((command.session, command.number), (SessionId(1), KEEP_ALIVE));
        assert!(lane.next_timer() > Some(Instant(150_000_000)));
        // Where the session has expired all the same, the lane opens another.
        lane.on_answers(Instant(150_000_001), &answer(SessionId(1), KEEP_ALIVE, Outcome::NoSession), &mut due);
        assert_eq!(due.writes.pop().unwrap().0.session, SessionId::OPEN);
    }

    #[test]
    fn limits_refuse_clearly() {
        let (mut lane, mut due, _) = lane();
        lane.limits.in_flight = 1;
        lane.limits.payload_bytes = 8;
        lane.submit(Instant(0), write(1), &mut due);
        lane.submit(Instant(0), write(2), &mut due);
        let large = Request { token: 3, operation: Operation::Write, payload: Bytes::from_static(b"nine byte") };
        lane.submit(Instant(0), large, &mut due);
        let outcomes: Vec<_> = due.replies.iter().map(|reply| reply.outcome.clone()).collect();
        assert_eq!(outcomes, [Err(Refusal::Busy), Err(Refusal::TooLarge)]);
    }
}
