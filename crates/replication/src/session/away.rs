//! Results of commands that other threads execute.
//!
//! The table of sessions decides whether a command is new, as always; of what is given away it
//! keeps a mark. The result stays with the thread that executed the command until it is needed: for
//! another copy of the command, for the table's limits, in a snapshot. Most are forgotten before.

use super::{Kept, Mark, Session, Sessions};
use alloc::collections::{BTreeMap, VecDeque};
use ionian_kernel::id::SessionId;
use ionian_kernel::time::Timestamp;

/// The results of one thread, by session.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<SessionId, Session>);

impl Results {
    /// Keeps the result of a command, or (`None`) that it was given up. `floor` is that of the
    /// command: results below it are forgotten.
    pub fn keep(&mut self, id: SessionId, number: u64, floor: u64, result: Option<&[u8]>) {
        let session = self.0.entry(id).or_insert_with(|| Session {
            floor: 0,
            results: VecDeque::new(),
            last_used: Timestamp(0),
        });
        session.forget_below(floor.min(number));
        session.keep(number, result.map_or(Kept::Mark(Mark::GivenUp), Kept::new));
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
        for (id, away) in core::mem::take(&mut results.0) {
            // Of a session that is forgotten nothing is kept.
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            for (number, kept) in (away.floor..).zip(away.results) {
                let Some(kept) = kept else { continue };
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
