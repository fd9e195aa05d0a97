//! What a lane reports: whether it has a session, and since when it waits for answers.

use super::pending::Pending;
use super::{Due, Lane};
use ionian_kernel::status::Status;
use ionian_kernel::time::Instant;

impl Lane {
    /// Reports whether the session is open, and since when requests are unanswered.
    pub fn report(&self, status: &mut Status) {
        status.has_session = Some(self.is_open());
        status.unanswered_since = self.unanswered_since();
    }

    /// When the oldest unanswered request was submitted; one that was given up shortly before it,
    /// and since the last answer, counts too. Without requests no time is known.
    fn unanswered_since(&self) -> Option<Instant> {
        let patience = self.limits.patience;
        let first = [&self.writes, &self.reads].map(|all| all.iter().next());
        let submitted = |pending: &Pending| pending.give_up_at - patience;
        let oldest = first.into_iter().flatten().map(submitted).min()?;
        let recent = self.unserved.filter(|(_, last)| oldest <= *last + patience);
        Some(recent.map_or(oldest, |(since, _)| since.min(oldest)))
    }

    /// Gives up the requests whose time is over.
    pub(super) fn give_up_late(&mut self, now: Instant, due: &mut Due) {
        let (since, before) = (self.unanswered_since(), due.replies.len());
        let writes = self.writes.occupied;
        self.give_up(|pending| pending.give_up_at <= now, due);
        if writes > 0 && self.writes.occupied == 0 {
            self.keep_alive_at = now;
        }
        if due.replies.len() > before {
            self.unserved = since.map(|since| (since, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, lane, write};
    use super::*;
    use crate::batch::{Outcome, Purpose};
    use alloc::vec::Vec;
    use bytes::Bytes;
    use ionian_kernel::id::SessionId;
    use ionian_kernel::time::Duration;

    #[test]
    fn requests_that_are_given_up_count_as_unanswered_until_one_is_answered() {
        let (mut lane, mut due, nonce) = lane();
        let open = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(4)));
        lane.on_answers(Instant(0), &open, &mut due);
        let since = |lane: &Lane| {
            let mut status = Status::default();
            lane.report(&mut status);
            status.unanswered_since
        };
        let patience = lane.limits.patience;
        let at = |ms: u64| Instant(0) + Duration::from_millis(ms);
        assert_eq!(since(&lane), None, "it asks for nothing");
        lane.submit(at(10), write(1), &mut due);
        lane.submit(at(20), write(2), &mut due);
        assert_eq!(since(&lane), Some(at(10)));
        // A client whose command is given up sends another one.
        for turn in 1..4 {
            let now = at(20) + patience * turn;
            lane.on_timer(now, &mut due);
            assert_eq!(since(&lane), None, "no client waits");
            lane.submit(now, write(9), &mut due);
            assert_eq!(since(&lane), Some(at(10)));
        }
        let done = Outcome::Done(Bytes::new());
        let execute = Purpose::Execute(SessionId(4));
        lane.on_answers(at(1), &answer(execute, 4, done), &mut due);
        let now = at(30) + patience * 3;
        lane.submit(now, write(10), &mut due);
        assert_eq!(since(&lane), Some(now));
        // Clients are long gone when the next one comes.
        lane.on_timer(now + patience, &mut due);
        let later = now + patience * 3;
        lane.submit(later, write(11), &mut due);
        assert_eq!(since(&lane), Some(later));
    }

    /// The floors of the keep-alives that a lane sends now.
    fn floors_sent(lane: &mut Lane, now: Instant, due: &mut Due) -> Vec<u64> {
        lane.on_timer(now, due);
        let writes = due.writes.drain(..).map(|write| write.command);
        let sent = writes.filter(|it| matches!(it.purpose, Purpose::KeepAlive(_)));
        sent.map(|it| it.floor).collect()
    }

    #[test]
    fn when_the_last_write_is_given_up_a_keep_alive_says_so() {
        let (mut lane, mut due, nonce) = lane();
        let open = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(4)));
        lane.on_answers(Instant(0), &open, &mut due);
        let patience = lane.limits.patience;
        let at = |ms: u64| Instant(0) + Duration::from_millis(ms);
        for (ms, token) in [(10, 1), (20, 2)] {
            lane.submit(at(ms), write(token), &mut due);
        }
        let mut sent = |lane: &mut Lane, now| floors_sent(lane, now, &mut due);
        let none: Vec<u64> = Vec::new();
        assert_eq!(sent(&mut lane, at(10) + patience), none, "one is in flight");
        assert_eq!(sent(&mut lane, at(20) + patience), [2]);
        assert_eq!(sent(&mut lane, at(30) + patience), none);
    }
}
