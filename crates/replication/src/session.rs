//! Sessions: what makes a command that is sent twice take effect once.
//!
//! A table that keeps only the largest number of each client is wrong as soon as commands are
//! pipelined: an older number that arrives later would be taken for a duplicate and dropped. So a
//! session keeps every result above its floor, the number below which its client has seen all
//! answers. The table is part of the replicated state: it changes only by what is in the log.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ionian_kernel::id::SessionId;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire, WireError, encode_bytes};
use ionian_kernel::wire_struct;

mod away;
mod unordered;

pub use away::Results;

/// How far above its floor a session may number commands. Lanes stay far below; a command with a
/// number above it does not come from a lane and is not executed.
pub const SESSION_WINDOW: u64 = 1 << 16;

/// The most sessions that are remembered, and the most bytes of results that they keep together
/// when one is opened: then those that were unused for the longest time are forgotten. Between two
/// openings a session grows by what its lane lets it keep (`LaneLimits::in_flight_bytes`), and
/// there are at most 64 lanes; the sessions of earlier processes do not grow.
///
/// The limits hold where a session is opened, and not where a result is kept, because this must be
/// the same on every replica: nothing is executed out of order across the opening of a session.
pub const MAX_SESSIONS: usize = 1 << 14;
const MAX_RESULT_BYTES: usize = 2 << 30;

/// All sessions of the cluster.
#[derive(Clone, Debug)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    next: SessionId,
    /// By how much the next number is higher than the one before, and what is left of each number
    /// when it is divided by that.
    step: u64,
    rest: u64,
    expiry_ms: u64,
    next_sweep: Timestamp,
}

#[derive(Clone, Debug)]
struct Session {
    /// The client has seen the answers to all commands below this number.
    floor: u64,
    /// Results of the commands from the floor on; `None` where not executed yet.
    results: VecDeque<Option<Kept>>,
    last_used: Timestamp,
}

wire_struct! { Session { floor, results, last_used } }

/// A result as it is kept. Most are a few bytes, which lie in the table itself: nothing is
/// allocated for them, and forgetting them touches no other memory.
#[derive(Clone, Debug)]
enum Kept {
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    Long(Bytes),
    /// There is none.
    Mark(Mark),
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The command was given up.
    GivenUp,
    /// The command was executed, and its client has seen the answer. Only in the unordered mode,
    /// like the next one.
    Seen,
    /// The client waits for it no more, but it was not executed here yet.
    Awaited,
    /// The command is executed by another thread, which has the result.
    Away,
}

/// These stand where the length of a result would.
const GIVEN_UP: u32 = u32::MAX;
const SEEN: u32 = u32::MAX - 1;
const AWAITED: u32 = u32::MAX - 2;

/// The longest result that is kept in the table itself.
const SHORT: usize = 30;

impl Kept {
    fn new(result: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..result.len()) {
            None => Kept::Long(Bytes::copy_from_slice(result)),
            Some(start) => {
                start.copy_from_slice(result);
                Kept::Short {
                    length: result.len() as u8,
                    bytes,
                }
            }
        }
    }

    /// The result, if the command was executed.
    fn result(&self) -> Option<&[u8]> {
        match self {
            Kept::Short { length, bytes } => Some(&bytes[..usize::from(*length)]),
            Kept::Long(bytes) => Some(bytes),
            Kept::Mark(_) => None,
        }
    }
}

impl Wire for Kept {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Kept::Mark(Mark::GivenUp) => GIVEN_UP.encode(out),
            Kept::Mark(Mark::Seen) => SEEN.encode(out),
            Kept::Mark(Mark::Awaited) => AWAITED.encode(out),
            Kept::Mark(Mark::Away) => unreachable!("results come back before they are stored"),
            Kept::Short { length, bytes } => {
                encode_bytes(&bytes[..usize::from(*length)], out);
            }
            Kept::Long(bytes) => encode_bytes(bytes, out),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match u32::decode(reader)? {
            GIVEN_UP => Ok(Kept::Mark(Mark::GivenUp)),
            SEEN => Ok(Kept::Mark(Mark::Seen)),
            AWAITED => Ok(Kept::Mark(Mark::Awaited)),
            length => reader.take(length as usize).map(Kept::new),
        }
    }
}

/// What is known of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not executed yet: execute it and record its result.
    New,
    /// Executed before: here is its result.
    Executed,
    /// Its turn came before, and it was left out. Execute nothing.
    GivenUp,
    /// The client has had its answer, or has given it up. Execute nothing, answer nothing.
    Settled,
    /// It was given to another thread, and what came of it is not back.
    Away,
    /// There is no such session.
    NoSession,
}

impl Sessions {
    /// No sessions yet; each will be forgotten when unused for `expiry` of log time.
    pub fn new(expiry: Duration) -> Self {
        Sessions {
            sessions: BTreeMap::new(),
            next: SessionId(1),
            step: 1,
            rest: 0,
            expiry_ms: expiry.as_millis() as u64,
            next_sweep: Timestamp(0),
        }
    }

    /// Numbers the sessions that are opened `first`, `first + step`, and so on.
    pub fn number(&mut self, first: u64, step: u64) {
        (self.next, self.step, self.rest) = (SessionId(first), step, first % step);
    }

    /// Sets the expiry of all sessions, open ones included.
    pub fn set_expiry(&mut self, now: Timestamp, expiry: Duration) {
        self.expiry_ms = expiry.as_millis() as u64;
        self.next_sweep = self
            .next_sweep
            .min(Timestamp(now.0.saturating_add(self.expiry_ms / 8)));
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Opens a session.
    pub fn open(&mut self, now: Timestamp) -> SessionId {
        self.make_room(MAX_SESSIONS, MAX_RESULT_BYTES);
        let id = self.next;
        self.next = SessionId(id.0 + self.step);
        self.sessions.insert(
            id,
            Session {
                floor: 0,
                results: VecDeque::new(),
                last_used: now,
            },
        );
        id
    }

    /// Forgets the sessions longest unused, until there are fewer than `sessions` and the results
    /// of the rest hold at most `bytes`.
    fn make_room(&mut self, sessions: usize, bytes: usize) {
        // Counted here, because this is rare and commands are not.
        let mut held: usize = self.sessions.values().map(Session::result_bytes).sum();
        while self.sessions.len() >= sessions || held > bytes {
            let unused = |(id, session): &(&SessionId, &Session)| (session.last_used, **id);
            let oldest = self.sessions.iter().min_by_key(unused).map(|(id, _)| *id);
            let Some(gone) = oldest.and_then(|oldest| self.sessions.remove(&oldest)) else {
                return;
            };
            held -= gone.result_bytes();
        }
    }

    /// A session is in use, and its client has seen all results below `floor`. False where the
    /// session is not known.
    pub fn keep_alive(&mut self, stamp: Timestamp, id: SessionId, floor: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        session.last_used = session.last_used.max(stamp);
        session.forget_below(floor);
        true
    }

    /// Looks a command up, and forgets the results below `floor`. The result of one that was
    /// executed before is appended to `result`. `stamp` is the command's own: commands in any order
    /// leave the session used last at the latest of them.
    pub fn begin(
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
        session.forget_below(floor.min(number));
        match number.checked_sub(session.floor) {
            None => Standing::Settled,
            Some(ahead) if ahead >= SESSION_WINDOW => Standing::Settled,
            Some(ahead) => match session.results.get(ahead as usize) {
                Some(Some(Kept::Mark(Mark::Away))) => Standing::Away,
                Some(Some(kept)) => match kept.result() {
                    Some(kept) => {
                        result.extend_from_slice(kept);
                        Standing::Executed
                    }
                    None => Standing::GivenUp,
                },
                _ => Standing::New,
            },
        }
    }

    /// Records the result of a command that [`begin`](Sessions::begin) has just called new.
    pub fn finish(&mut self, id: SessionId, number: u64, result: &[u8]) {
        self.keep(id, number, Kept::new(result));
    }

    /// Records that a command that [`begin`](Sessions::begin) has just called new is not executed,
    /// now or later.
    pub fn give_up(&mut self, id: SessionId, number: u64) {
        self.keep(id, number, Kept::Mark(Mark::GivenUp));
    }

    fn keep(&mut self, id: SessionId, number: u64, kept: Kept) {
        self.sessions
            .get_mut(&id)
            .expect("begun")
            .keep(number, kept);
    }

    /// Forgets the sessions that were unused for too long. Runs an eighth as often as sessions
    /// live.
    pub fn expire(&mut self, now: Timestamp) {
        if now >= self.next_sweep {
            self.next_sweep = Timestamp(now.0.saturating_add(self.expiry_ms / 8));
            let expiry_ms = self.expiry_ms;
            self.sessions
                .retain(|_, session| now.0.saturating_sub(session.last_used.0) <= expiry_ms);
        }
    }

    /// Whether no session can be forgotten by `time`, whatever is executed until then.
    pub fn is_quiet_until(&self, time: Timestamp) -> bool {
        time < self.next_sweep
    }

    /// Appends the whole table, the same bytes on every replica.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        self.next.encode(out);
        self.next_sweep.encode(out);
        (self.sessions.len() as u32).encode(out);
        for (id, session) in &self.sessions {
            id.encode(out);
            session.encode(out);
        }
    }

    /// Replaces the table by a snapshot's.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; the table is then unchanged.
    pub fn restore(&mut self, reader: &mut Reader<'_>) -> Result<(), RestoreError> {
        let mut read = || -> Result<_, WireError> {
            let (next, next_sweep) = (SessionId::decode(reader)?, Timestamp::decode(reader)?);
            let sessions: Vec<(SessionId, Session)> = Vec::decode(reader)?;
            Ok((next, next_sweep, sessions.into_iter().collect()))
        };
        let (next, next_sweep, sessions) =
            read().map_err(|error| RestoreError(format!("sessions: {error}")))?;
        // The snapshot may be of a cluster with other logs.
        let SessionId(at_least) = next;
        let up = (self.step + self.rest - at_least % self.step) % self.step;
        self.next = SessionId(at_least.saturating_add(up));
        (self.next_sweep, self.sessions) = (next_sweep, sessions);
        Ok(())
    }
}

impl Session {
    /// The bytes of its results.
    fn result_bytes(&self) -> usize {
        let results = self.results.iter().flatten().filter_map(Kept::result);
        results.map(<[u8]>::len).sum()
    }

    /// Keeps the result of a command from the floor on.
    fn keep(&mut self, number: u64, kept: Kept) {
        let ahead = (number - self.floor) as usize;
        while self.results.len() <= ahead {
            self.results.push_back(None);
        }
        let place = &mut self.results[ahead];
        assert!(place.is_none(), "a command was executed twice");
        *place = Some(kept);
    }

    fn forget_below(&mut self, floor: u64) {
        while self.floor < floor && self.results.pop_front().is_some() {
            self.floor += 1;
        }
        self.floor = self.floor.max(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1000);

    fn table() -> (Sessions, SessionId) {
        let mut sessions = Sessions::new(Duration::from_secs(1));
        let id = sessions.open(NOW);
        (sessions, id)
    }

    /// What is known of the command, with its result if it was executed before; if not, it is now.
    fn execute(
        sessions: &mut Sessions,
        id: SessionId,
        number: u64,
        floor: u64,
    ) -> (Standing, Vec<u8>) {
        let mut result = Vec::new();
        let standing = sessions.begin(NOW, id, number, floor, &mut result);
        if standing == Standing::New {
            sessions.finish(id, number, &[number as u8]);
        }
        (standing, result)
    }

    fn new() -> (Standing, Vec<u8>) {
        (Standing::New, Vec::new())
    }

    fn executed(result: &[u8]) -> (Standing, Vec<u8>) {
        (Standing::Executed, result.to_vec())
    }

    fn settled() -> (Standing, Vec<u8>) {
        (Standing::Settled, Vec::new())
    }

    /// s11: pipelined commands may arrive in any order, and an older one is no duplicate.
    #[test]
    fn s11_an_older_number_that_arrives_later_is_executed() {
        let (mut sessions, id) = table();
        assert_eq!(execute(&mut sessions, id, 2, 0), new());
        assert_eq!(execute(&mut sessions, id, 0, 0), new());
        assert_eq!(execute(&mut sessions, id, 2, 0), executed(&[2]));
        assert_eq!(execute(&mut sessions, id, 1, 0), new());
    }

    /// s11: a client that restarts opens a new session, and its first commands are not ignored.
    #[test]
    fn s11_a_restarted_client_starts_afresh() {
        let (mut sessions, id) = table();
        execute(&mut sessions, id, 0, 0);
        let again = sessions.open(NOW);
        assert_ne!(id, again);
        assert_eq!(execute(&mut sessions, again, 0, 0), new());
    }

    #[test]
    fn results_are_kept_until_the_client_has_seen_them() {
        let (mut sessions, id) = table();
        for number in 0..4 {
            execute(&mut sessions, id, number, 0);
        }
        assert_eq!(execute(&mut sessions, id, 4, 3), new());
        assert_eq!(execute(&mut sessions, id, 2, 0), settled());
        assert_eq!(execute(&mut sessions, id, 3, 0), executed(&[3]));
        assert_eq!(execute(&mut sessions, id, 3 + SESSION_WINDOW, 0), settled());
        assert_eq!(
            execute(&mut sessions, SessionId(99), 0, 0).0,
            Standing::NoSession
        );
        // A lane sends no floor above its own command: such a floor must not settle the command.
        assert_eq!(execute(&mut sessions, id, 5, 1000), new());
    }

    /// Processes that restart again and again leave their sessions behind, with all their results.
    #[test]
    fn sessions_longest_unused_are_forgotten_when_there_are_too_many_or_their_results_too_large() {
        let mut sessions = Sessions::new(Duration::from_secs(1));
        let ids: Vec<SessionId> = (0..4).map(|at| sessions.open(Timestamp(at))).collect();
        for (at, id) in (4..).zip([ids[2], ids[0], ids[1]]) {
            sessions.begin(Timestamp(at), id, 0, 0, &mut Vec::new());
            sessions.finish(id, 0, &[7; 100]);
        }
        let open = |sessions: &Sessions| sessions.sessions.keys().copied().collect::<Vec<_>>();
        sessions.make_room(5, 300);
        assert_eq!(open(&sessions), ids, "no limit is reached");
        sessions.make_room(4, 300);
        assert_eq!(open(&sessions), ids[..3], "the last one was not used since");
        sessions.make_room(5, 299);
        assert_eq!(open(&sessions), ids[..2]);
        sessions.make_room(5, 99);
        assert_eq!(open(&sessions), []);
        sessions.make_room(0, 0);
    }

    #[test]
    fn unused_sessions_expire_by_log_time_and_snapshots_keep_the_rest() {
        let (mut sessions, old) = table();
        sessions.expire(NOW);
        let young = sessions.open(Timestamp(1900));
        sessions.begin(Timestamp(1900), young, 0, 0, &mut Vec::new());
        sessions.finish(young, 0, b"kept");
        let long = [7; SHORT + 1];
        sessions.begin(Timestamp(1900), young, 1, 0, &mut Vec::new());
        sessions.finish(young, 1, &long);
        sessions.expire(Timestamp(2001));
        assert_eq!(
            sessions.begin(Timestamp(2001), old, 0, 0, &mut Vec::new()),
            Standing::NoSession
        );

        let mut snapshot = Vec::new();
        sessions.snapshot(&mut snapshot);
        let snapshot = Bytes::from(snapshot);
        let mut restored = Sessions::new(Duration::from_secs(1));
        restored.restore(&mut Reader::new(&snapshot)).unwrap();
        assert_eq!(execute(&mut restored, young, 0, 0), executed(b"kept"));
        assert_eq!(execute(&mut restored, young, 1, 0), executed(&long));
        assert_eq!(restored.open(NOW), sessions.open(NOW));
        assert!(
            restored
                .restore(&mut Reader::new(&snapshot.slice(..9)))
                .is_err()
        );
    }
}
