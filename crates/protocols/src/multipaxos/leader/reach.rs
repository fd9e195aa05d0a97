//! Whether a leader still reaches a write quorum. One that does not must stop saying that it lives: those that hear it would
//! wait for it, though they may be the only ones who could lead.
//!
//! While what it has proposed is executed there is no question. When nothing was for an election timeout it asks the
//! acceptors, as a candidate does, with every heartbeat; when no write quorum has answered for twice as long, it stops.

use super::{Leader, State};
use crate::multipaxos::canary::Canary;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};

/// Answers wait behind the acceptors' records: they are given so many election timeouts.
const GIVES_UP_AFTER: u32 = 2;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Reach {
    executed: Slot,
    /// When something was executed last, or nothing was outstanding.
    advanced_at: Instant,
    /// Since when the acceptors are asked, and who has answered.
    asked: Option<(Instant, AcceptorSet)>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing.
    Advances,
    /// Ask the acceptors.
    Unknown,
    /// Stop leading.
    Lost,
}

impl Reach {
    /// It begins to lead.
    pub(super) fn begin(&mut self, now: Instant, executed: Slot) {
        *self = Reach { executed, advanced_at: now, asked: None };
    }

    /// An acceptor answers.
    pub(super) fn answered(&mut self, from: AcceptorId) {
        if let Some((_, answered)) = &mut self.asked {
            answered.insert(from);
        }
    }

    /// Looks at how far replicas are; `outstanding` while something was proposed that they have not executed.
    pub(super) fn look(
        &mut self,
        now: Instant,
        (executed, outstanding): (Slot, bool),
        timeout: Duration,
        is_write_quorum: impl Fn(AcceptorSet) -> bool,
    ) -> Finding {
        if !outstanding || executed > self.executed {
            self.begin(now, executed);
        }
        match self.asked {
            None if now.since(self.advanced_at) < timeout => Finding::Advances,
            None => {
                self.asked = Some((now, AcceptorSet::EMPTY));
                Finding::Unknown
            }
            Some((_, answered)) if is_write_quorum(answered) => {
                self.begin(now, executed);
                Finding::Advances
            }
            Some((since, _)) if now.since(since) >= timeout * GIVES_UP_AFTER => Finding::Lost,
            Some(_) => Finding::Unknown,
        }
    }
}

impl Leader {
    /// With every heartbeat; false when it has stopped leading.
    pub(super) fn still_reaches(&mut self, now: Instant, out: &mut Out<'_, Self>) -> bool {
        let Some(quorums) = self.config.quorums_of(self.round) else { return true };
        // Also what waits for leave to be proposed: in Mencius acceptors give that, too.
        let progress = (self.progress.executed(), self.window.len() > 0 || self.window.waits);
        let timeout = self.config.options().election_timeout;
        match self.reach.look(now, progress, timeout, |answered| quorums.is_write_quorum(answered)) {
            Finding::Unknown => self.ask_witnesses(out),
            Finding::Lost if !self.config.has(Canary::LeadsAlone) => {
                debug_assert!(matches!(self.state, State::Leading));
                self.on_higher_round(now, self.round, out);
                return false;
            }
            Finding::Advances | Finding::Lost => {}
        }
        true
    }
}
