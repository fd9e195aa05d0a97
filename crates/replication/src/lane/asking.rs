//! When a lane asks again for what is not answered.
//!
//! The wait doubles each time: a cluster that cannot serve is not asked ever more. One that has
//! answered what was sent later does serve. Then a write is not late because too much waits before
//! it: it was lost on its way, or with a node, and is asked again after the first wait.

use super::pending::Pending;
use super::{Due, DueWrite, Lane, Session};
use crate::batch::Purpose;
use ionian_kernel::time::{Duration, Instant, transit};

/// When the latest write was sent that was answered and had been sent only once: of small ones,
/// and of large ones.
#[derive(Default)]
pub(super) struct Served([Option<Instant>; 2]);

impl Lane {
    /// A write is answered. It says nothing of when it arrived if it was sent more than once.
    pub(super) fn note_served(&mut self, pending: &Pending) {
        if pending.asked == 1 {
            let class = self.window.class(pending.payload.len());
            let served = &mut self.served.0[class];
            *served = (*served).max(Some(pending.asked_at));
        }
    }

    /// When each write that is sent is to be asked again.
    fn due_of_writes(&self) -> impl Fn(&Pending) -> Instant + use<> {
        let (transit, first) = (self.transit(), self.limits.retry_after);
        let (window, served) = (self.window.clone(), self.served.0);
        move |pending| {
            let due = pending.due(transit);
            let served = served[window.class(pending.payload.len())];
            match served > Some(pending.asked_at) {
                true => due.min(pending.asked_at + first + transit),
                false => due,
            }
        }
    }

    /// Asks again for writes that went unanswered for too long.
    pub(super) fn send_overdue(&mut self, now: Instant, due: &mut Due) {
        let Session::Open(session) = self.session else {
            return;
        };
        let due_at = self.due_of_writes();
        for (number, pending) in self
            .writes
            .iter_mut()
            .filter(|(_, it)| it.sent && due_at(it) <= now)
        {
            pending.mark_asked(now, self.limits.retry_after);
            let command =
                pending.command(self.id, Purpose::Execute(session), number, pending.floor);
            due.writes.push(DueWrite {
                command,
                via: pending.via,
                again: true,
            });
        }
    }

    /// Says whether the request for a session, a write or a change went unanswered for too long.
    pub(super) fn find_overdue_writes(&mut self, now: Instant, due: &mut Due) {
        if matches!(self.session, Session::Opening { ask_at, .. } if ask_at <= now) {
            self.ask_for_session(now, true, due);
            due.writes_overdue = true;
        }
        let (due_at, transit) = (self.due_of_writes(), self.transit());
        let mut writes = self.writes.iter().filter(|pending| pending.sent);
        let mut changes = self.reads.iter().filter(|pending| pending.logged);
        due.writes_overdue |= writes.any(|it| it.asked > 0 && due_at(it) <= now)
            || changes.any(|it| it.asked > 0 && it.due(transit) <= now);
    }

    /// Asks again for reads and changes that went unanswered for too long.
    pub(super) fn send_overdue_reads(&mut self, now: Instant, transit: Duration, due: &mut Due) {
        let overdue = self
            .reads
            .iter_mut()
            .filter(|(_, it)| it.due(transit) <= now);
        for (number, pending) in overdue {
            // A read may wait for acceptors next: no instance has it then.
            let via = pending.via.take();
            pending.mark_asked(now, self.limits.retry_after);
            pending.send_sessionless(self.id, number, via, due);
        }
    }

    /// How much later an answer may come because of what is under way with it.
    pub(super) fn transit(&self) -> Duration {
        transit(self.window.bytes() + self.reads.bytes)
    }

    /// The same of a read: short requests can have long answers, of which none is to be given twice
    /// while others wait.
    pub(super) fn transit_of_reads(&self) -> Duration {
        transit(
            self.window.bytes() + self.reads.bytes + self.reads.occupied * self.read_answer_bytes,
        )
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        let opening = match self.session {
            Session::Opening { ask_at, .. } => Some(ask_at),
            Session::Open(_) => None,
        };
        let (due_at, transit_of_reads) = (self.due_of_writes(), self.transit_of_reads());
        let waiting = self
            .writes
            .iter()
            .filter(|pending| !pending.sent)
            .map(|pending| pending.give_up_at);
        let writes = self
            .writes
            .iter()
            .filter(|pending| pending.sent)
            .map(|pending| due_at(pending).min(pending.give_up_at));
        let end = |pending: &Pending| pending.due(transit_of_reads).min(pending.give_up_at);
        let reads = self.reads.iter().map(end);
        waiting.chain(writes).chain(reads).chain(opening).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, lane, write};
    use super::*;
    use crate::batch::Outcome;
    use alloc::vec::Vec;
    use bytes::Bytes;
    use ionian_kernel::id::SessionId;

    /// When the first write of a lane is sent again, in milliseconds, where others are submitted
    /// each 100 ms, and answered if `serves`.
    fn sent_again(serves: bool) -> Vec<u64> {
        let (mut lane, mut due, nonce) = lane();
        let open = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(4)));
        lane.on_answers(Instant(0), &open, &mut due);
        lane.submit(Instant(0), write(0), &mut due);
        due.writes.clear();
        let mut times = Vec::new();
        for ms in 1..3000 {
            let now = Instant(0) + Duration::from_millis(ms);
            if ms % 100 == 50 {
                lane.submit(now, write(ms), &mut due);
                let sent = due.writes.pop().expect("it is sent at once").command;
                if serves {
                    let done = answer(sent.purpose, sent.number, Outcome::Done(Bytes::new()));
                    lane.on_answers(now, &done, &mut due);
                }
            }
            if lane.next_timer().is_some_and(|at| at <= now) {
                lane.on_timer(now, &mut due);
            }
            let writes = due.writes.drain(..);
            let again = writes.filter(|write| write.command.number == 0);
            times.extend(again.map(|_| ms));
        }
        times
    }

    #[test]
    fn a_write_is_asked_again_at_the_first_interval_while_later_ones_are_answered() {
        let steady = sent_again(true);
        // It is overtaken when the next one is submitted, up to 100 ms later.
        let mut waits = steady.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            steady.len() == 7 && waits.all(|wait| (300..=400).contains(&wait)),
            "{steady:?}"
        );
        let doubled = sent_again(false);
        assert_eq!(doubled.len(), 3, "{doubled:?}");
    }
}
