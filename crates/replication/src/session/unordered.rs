//! Sessions where replicas execute commuting commands in different orders. Only *barriers*, which
//! conflict with every command, are executed everywhere after the same commands.
//!
//! In a log, a floor forbids what is below it: a command that comes later is a copy whose client
//! has its answer. Without a log the command may be one that another replica has executed before
//! the floor came, and that comes here after it. So here a floor only drops results. A mark stays:
//! whether the command was executed. At a barrier all replicas have executed the same commands, and
//! have the same marks: those below the floor are forgotten, and what was not executed by then
//! never is.
//!
//! The table after a set of commands is the same in whatever order they were executed: floors and
//! times of use are maxima, results are of commands in an order on which replicas agree where it
//! makes a difference.

use super::{Kept, Mark, SESSION_WINDOW, Session, Sessions, Standing};
use alloc::vec::Vec;
use ionian_kernel::id::SessionId;
use ionian_kernel::time::Timestamp;

impl Sessions {
    /// As [`begin`](Sessions::begin), but the floor settles nothing.
    ///
    /// Numbers too far above the beginning of the table are not executed. That is the same on every
    /// replica, because the beginning moves at barriers only.
    pub fn begin_unordered(
        &mut self,
        stamp: Timestamp,
        id: SessionId,
        number: u64,
        floor: u64,
        result: &mut Vec<u8>,
    ) -> Standing {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Standing::NoSession;
        };
        session.last_used = session.last_used.max(stamp);
        let Some(ahead) = number.checked_sub(session.floor) else {
            return Standing::Settled;
        };
        if ahead >= SESSION_WINDOW {
            return Standing::Settled;
        }
        session.drop_below(floor.min(number));
        match session.results.get(ahead as usize) {
            Some(Some(Kept::Mark(Mark::Seen))) => Standing::Settled,
            Some(Some(Kept::Mark(Mark::GivenUp))) => Standing::GivenUp,
            None | Some(None | Some(Kept::Mark(Mark::Awaited))) => Standing::New,
            Some(Some(kept)) => {
                result.extend_from_slice(kept.result().expect("it is no mark"));
                Standing::Executed
            }
        }
    }

    /// As [`finish`](Sessions::finish), after [`begin_unordered`](Sessions::begin_unordered).
    pub fn finish_unordered(&mut self, id: SessionId, number: u64, result: &[u8]) {
        if !self.is_seen(id, number) {
            self.finish(id, number, result);
        }
    }

    /// As [`give_up`](Sessions::give_up), after [`begin_unordered`](Sessions::begin_unordered).
    pub fn give_up_unordered(&mut self, id: SessionId, number: u64) {
        if !self.is_seen(id, number) {
            self.give_up(id, number);
        }
    }

    /// A barrier of this session: forgets what is known of commands below the floor, executed or
    /// not.
    pub fn settle(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            while let Some(Some(Kept::Mark(Mark::Seen | Mark::Awaited))) = session.results.front() {
                session.results.pop_front();
                session.floor += 1;
            }
        }
    }

    /// A command is executed; whether its client has seen the answer, so that a mark is enough.
    fn is_seen(&mut self, id: SessionId, number: u64) -> bool {
        let session = self.sessions.get_mut(&id).expect("begun");
        let place = session.results.get_mut((number - session.floor) as usize);
        match place {
            Some(place @ Some(Kept::Mark(Mark::Awaited))) => {
                *place = Some(Kept::Mark(Mark::Seen));
                true
            }
            _ => false,
        }
    }
}

impl Session {
    /// The client has seen the answers to all commands below `floor`, which is within the window.
    fn drop_below(&mut self, floor: u64) {
        let count = floor.saturating_sub(self.floor) as usize;
        // All below an earlier floor are marked.
        for place in self.results.iter_mut().take(count).rev() {
            let mark = match place {
                Some(Kept::Mark(Mark::Seen | Mark::Awaited)) => break,
                Some(_) => Mark::Seen,
                None => Mark::Awaited,
            };
            *place = Some(Kept::Mark(mark));
        }
        while self.results.len() < count {
            self.results.push_back(Some(Kept::Mark(Mark::Awaited)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use core::time::Duration;
    use ionian_kernel::wire::Reader;

    const NOW: Timestamp = Timestamp(1000);

    fn table() -> (Sessions, SessionId) {
        let mut sessions = Sessions::new(Duration::from_secs(1));
        let id = sessions.open(NOW);
        (sessions, id)
    }

    fn execute(sessions: &mut Sessions, id: SessionId, number: u64, floor: u64) -> Standing {
        let standing = sessions.begin_unordered(NOW, id, number, floor, &mut Vec::new());
        if standing == Standing::New {
            sessions.finish_unordered(id, number, &[number as u8]);
        }
        standing
    }

    fn bytes(sessions: &Sessions) -> Vec<u8> {
        let mut out = Vec::new();
        sessions.snapshot(&mut out);
        out
    }

    /// e17: another replica may have executed it before the floor came.
    #[test]
    fn e17_a_command_below_the_floor_is_executed_once() {
        let (mut early, id) = table();
        let mut late = early.clone();
        for (number, floor) in [(0, 0), (1, 0), (5, 4), (2, 0), (3, 0)] {
            assert_eq!(execute(&mut early, id, number, floor), Standing::New);
        }
        for (number, floor) in [(5, 4), (3, 0), (1, 0), (2, 0), (0, 0)] {
            assert_eq!(execute(&mut late, id, number, floor), Standing::New);
        }
        assert_eq!(bytes(&early), bytes(&late));
        for number in 0..4 {
            assert_eq!(execute(&mut late, id, number, 0), Standing::Settled);
        }
        assert_eq!(execute(&mut late, id, 5, 4), Standing::Executed);
        assert_eq!(execute(&mut late, id, 4, 4), Standing::New);
    }

    #[test]
    fn a_barrier_settles_what_was_not_executed_below_the_floor() {
        let (mut sessions, id) = table();
        execute(&mut sessions, id, 1, 0);
        execute(&mut sessions, id, 6, 4);
        assert_eq!(sessions.sessions[&id].results.len(), 7);
        sessions.settle(id);
        assert_eq!(sessions.sessions[&id].results.len(), 3);
        assert_eq!(execute(&mut sessions, id, 2, 0), Standing::Settled);
        assert_eq!(execute(&mut sessions, id, 5, 4), Standing::New);
        assert_eq!(execute(&mut sessions, id, 6, 4), Standing::Executed);
        sessions.settle(SessionId(9));
        // A client that keeps its session open says how far it has seen answers.
        assert!(sessions.keep_alive(NOW, id, 6));
        sessions.settle(id);
        assert_eq!(sessions.sessions[&id].results.len(), 1);
    }

    #[test]
    fn a_command_that_is_given_up_stays_so_until_its_client_knows() {
        let (mut sessions, id) = table();
        sessions.begin_unordered(NOW, id, 0, 0, &mut Vec::new());
        sessions.give_up_unordered(id, 0);
        assert_eq!(execute(&mut sessions, id, 0, 0), Standing::GivenUp);
        execute(&mut sessions, id, 2, 2);
        assert_eq!(execute(&mut sessions, id, 0, 0), Standing::Settled);
        sessions.begin_unordered(NOW, id, 1, 0, &mut Vec::new());
        sessions.give_up_unordered(id, 1);
        assert_eq!(execute(&mut sessions, id, 1, 0), Standing::Settled);
    }

    #[test]
    fn marks_are_restored_and_are_bounded_by_the_window() {
        let (mut sessions, id) = table();
        execute(&mut sessions, id, 3, 2);
        let end = SESSION_WINDOW;
        assert_eq!(execute(&mut sessions, id, end, end), Standing::Settled);
        assert_eq!(execute(&mut sessions, id, end - 1, u64::MAX), Standing::New);
        assert_eq!(sessions.sessions[&id].results.len() as u64, end);
        let snapshot = Bytes::from(bytes(&sessions));
        let mut restored = Sessions::new(Duration::from_secs(1));
        restored.restore(&mut Reader::new(&snapshot)).unwrap();
        assert_eq!(bytes(&restored), snapshot);
        assert_eq!(execute(&mut restored, id, 2, 0), Standing::New);
        assert_eq!(execute(&mut restored, id, 3, 0), Standing::Settled);
        restored.settle(id);
        assert_eq!(execute(&mut restored, id, end, end), Standing::New);
        assert_eq!(
            execute(&mut restored, SessionId(9), 0, 0),
            Standing::NoSession
        );
    }
}
