//! Results of commands that other threads execute.
//!
//! The table of sessions decides whether a command is new, as always; of what is given away it
//! keeps a mark. The result stays with the thread that executed the command until it is needed: for
//! another copy of the command, for the table's limits, in a snapshot. Most are forgotten before.

use super::{Kept, Mark, Sessions};
use alloc::collections::BTreeMap;
use ionian_kernel::id::SessionId;

/// A thread keeps at most about this many bytes of results.
const RESULT_BYTES: usize = 1 << 20;

/// The results of one thread, by session.
#[derive(Debug, Default)]
pub struct Results {
    sessions: BTreeMap<SessionId, BTreeMap<u64, Kept>>,
    /// Bytes kept since they were taken back.
    bytes: usize,
}

impl Results {
    /// Keeps the result of a command, or (`None`) that it was given up. `floor` is that of the
    /// command: results below it are forgotten.
    pub fn keep(&mut self, id: SessionId, number: u64, floor: u64, result: Option<&[u8]>) {
        let session = self.sessions.entry(id).or_default();
        while session.first_key_value().is_some_and(|it| *it.0 < floor) {
            session.pop_first();
        }
        let kept = result.map_or(Kept::Mark(Mark::GivenUp), Kept::new);
        self.bytes += size_of::<Kept>() + result.map_or(0, <[u8]>::len);
        session.insert(number, kept);
    }

    /// Whether the table is to take them back, so that those of sessions that are gone, and those
    /// whose clients have their answers, do not stay.
    pub fn are_many(&self) -> bool {
        self.bytes >= RESULT_BYTES
    }
}

impl Sessions {
    /// Another thread executes a command that [`begin`](Sessions::begin) has just called new. The
    /// floor of its session, which the result is to be [kept](Results::keep) with.
    pub fn send_away(&mut self, id: SessionId, number: u64) -> u64 {
        let session = self.sessions.get_mut(&id).expect("begun");
        session.keep(number, Kept::Mark(Mark::Away));
        session.floor
    }

    /// Takes back the results that a thread has.
    pub fn take_back(&mut self, results: &mut Results) {
        results.bytes = 0;
        for (id, away) in core::mem::take(&mut results.sessions) {
            // Of a session that is forgotten nothing is kept.
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            for (number, kept) in away {
                let Some(ahead) = number.checked_sub(session.floor) else {
                    continue;
                };
                let place = &mut session.results[ahead as usize];
                assert!(
                    matches!(place, Some(Kept::Mark(Mark::Away))),
                    "a result of what was not given away"
                );
                *place = Some(kept);
            }
        }
    }
}
