//! Whether a leader still reaches a write quorum, and hears proxy leaders and replicas. One that
//! does not must stop saying that it lives: those that hear it would wait for it, though they may
//! be the only ones who could lead.
//!
//! While slots are executed there is no question. When none was for an election timeout it asks the
//! acceptors, as a candidate does, with every heartbeat; when no write quorum has answered for
//! twice as long, it stops. Also when it has nothing to do: where messages get lost on their way to
//! it alone, it does not hear that there is anything.
//!
//! The same where it has heard proxy leaders and replicas since it leads, and of either none any
//! more. Then it also lets others stand first, and none has it take over. One that has not heard
//! them since goes on: they may be down for all, and another leader would be no better.

use super::{LeaderCore, LeaderPort, Notes, State};
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Instant};

/// The leader waits this many election timeouts for answers: nodes answer only at the end of a
/// burst.
const GIVES_UP_AFTER: u32 = 2;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Reach {
    executed: Slot,
    /// When something was executed last, or a write quorum has answered.
    advanced_at: Instant,
    /// Since when the acceptors are asked, and who has answered.
    asked: Option<(Instant, AcceptorSet)>,
    /// Whether it has heard proxy leaders and replicas since it leads.
    was_helped: bool,
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
        *self = Reach {
            executed,
            advanced_at: now,
            asked: None,
            was_helped: false,
        };
    }

    /// There is no question now.
    fn settle(&mut self, now: Instant, executed: Slot) {
        *self = Reach {
            executed,
            advanced_at: now,
            asked: None,
            ..*self
        };
    }

    /// An acceptor answers.
    pub(super) fn answered(&mut self, from: AcceptorId) {
        if let Some((_, answered)) = &mut self.asked {
            answered.insert(from);
        }
    }

    /// Looks at how far replicas are; `cut_off` while of proxy leaders or replicas none is heard.
    pub(super) fn look(
        &mut self,
        now: Instant,
        (executed, cut_off): (Slot, bool),
        timeout: Duration,
        is_write_quorum: impl Fn(AcceptorSet) -> bool,
    ) -> Finding {
        self.was_helped |= !cut_off;
        if executed > self.executed {
            self.settle(now, executed);
        }
        match self.asked {
            None if now.since(self.advanced_at) < timeout => Finding::Advances,
            None => {
                self.asked = Some((now, AcceptorSet::EMPTY));
                Finding::Unknown
            }
            Some((_, answered)) if is_write_quorum(answered) && !(cut_off && self.was_helped) => {
                self.settle(now, executed);
                Finding::Advances
            }
            Some((since, _)) if now.since(since) >= timeout * GIVES_UP_AFTER => Finding::Lost,
            Some(_) => Finding::Unknown,
        }
    }
}

impl<N: Notes> LeaderCore<N> {
    /// With every heartbeat; false when it has stopped leading.
    pub(super) fn still_reaches(&mut self, now: Instant, port: &mut impl LeaderPort) -> bool {
        let Some(quorums) = self.config.quorums_of(self.round) else {
            return true;
        };
        let (executed, timeout) = (
            self.progress.executed(),
            self.config.options().election_timeout,
        );
        let progress = (executed, self.window.is_cut_off(now));
        match self.reach.look(now, progress, timeout, |answered| {
            quorums.is_write_quorum(answered)
        }) {
            Finding::Unknown => self.ask_witnesses(port),
            Finding::Lost => {
                debug_assert!(matches!(self.state, State::Leading));
                self.on_higher_round(now, self.round, port);
                return false;
            }
            Finding::Advances => {}
        }
        true
    }
}
