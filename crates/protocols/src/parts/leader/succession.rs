//! Giving the lead away: when the node of a leader is about to stop, or is asked to do without
//! leading, the others need not find out by its silence.
//!
//! The leader asks the others in turn to begin a round at once (as Raft's `TimeoutNow`: Ongaro,
//! *Consensus: Bridging Theory and Practice*, 3.10). It goes on proposing until that round deposes
//! it, as any higher round does: what it had queued goes back to the proposers, and what it had
//! proposed the successor finds in phase 1. To ask endangers nothing, for every leader may begin a
//! round at any time; so neither the question nor the answer needs to arrive.

use super::{LeaderCore, LeaderPort, Notes, State};
use crate::multipaxos::kind;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::time::Instant;

/// A leader that drains or is cut off waits this many timeouts before it stands: the others come
/// first, but a cluster in which no other leader is left must not do without one.
const HOLDS_BACK: u32 = 4;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Succession {
    drains: bool,
    /// Who was asked in this round.
    asked: Set<LeaderId>,
    /// Who was asked last.
    candidate: Option<LeaderId>,
    /// When the next is asked; none while this leader need not hand over.
    ask_at: Option<Instant>,
    /// All were asked without success.
    hopeless: bool,
    waited: u32,
}

impl Succession {
    /// Whether this leader is to hand over, and not to lead.
    pub(super) fn drains(&self) -> bool {
        self.drains
    }

    /// Whether all others were asked and none has taken over.
    pub(super) fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// All may be asked anew.
    pub(super) fn begin(&mut self) {
        *self = Succession {
            drains: self.drains,
            hopeless: self.hopeless,
            ..Succession::default()
        };
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.ask_at.is_some_and(|at| at <= now)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Another leads.
    pub(super) fn heard(&mut self) {
        *self = Succession {
            drains: self.drains,
            ..Succession::default()
        };
    }

    /// Whether to wait for once more until another stands: while it drains, or is `cut_off` from
    /// proxy leaders or replicas.
    pub(super) fn holds_back(&mut self, cut_off: bool) -> bool {
        let waits = (self.drains || cut_off) && self.waited < HOLDS_BACK;
        self.waited += u32::from(waits);
        waits
    }
}

impl<N: Notes> LeaderCore<N> {
    /// See [`Role::on_drain`](ionian_kernel::role::Role::on_drain).
    pub fn on_drain(&mut self, now: Instant, drains: bool, port: &mut impl LeaderPort) {
        self.succession = Succession {
            drains,
            ..Succession::default()
        };
        match self.state {
            State::Leading if drains => self.ask_successor(now, port),
            State::Candidate { .. } if drains => {
                self.state = State::Standby;
                self.timer.restart(now);
                self.turn_queue_away(port);
            }
            _ => {}
        }
    }

    /// Asks the next. When all were asked it begins anew: one may have come back.
    pub(super) fn ask_successor(&mut self, now: Instant, port: &mut impl LeaderPort) {
        let others = self.config.leaders().without(Set::one(self.id));
        if others.without(self.succession.asked).is_empty() {
            self.succession.hopeless = true;
            self.succession.asked = Set::EMPTY;
        }
        let left = others.without(self.succession.asked);
        self.succession.ask_at = Some(now + self.config.options().election_timeout);
        // One beside a replica that is heard of is on a node that lives.
        let present = self.window.present_replicas(now);
        let lives = |leader: &LeaderId| {
            let node = self.config.layout().node_of(Address {
                kind: kind::Leader,
                index: leader.0,
            });
            node.is_some_and(|node| {
                !self
                    .config
                    .near(kind::Replica, node)
                    .and(present)
                    .is_empty()
            })
        };
        let next = left.iter().find(lives).or_else(|| left.iter().next());
        self.succession.candidate = next;
        if let Some(next) = next {
            self.succession.asked.insert(next);
            port.take_over(next, self.round);
        }
    }

    /// The leader of `round` wants this one to lead.
    pub fn on_take_over(
        &mut self,
        now: Instant,
        from: LeaderId,
        round: Round,
        port: &mut impl LeaderPort,
    ) {
        let stands_by = matches!(self.state, State::Standby | State::Candidate { .. });
        if self.succession.drains || self.window.is_cut_off(now) {
            port.decline(from);
        } else if stands_by
            && round >= self.round
            && let Some(epoch) = self.config.latest_like(round)
        {
            // By the quorums by which the other leads: it reaches them.
            self.begin_phase1(now, round, epoch, port);
        }
    }

    /// Whom this leader has asked drains too.
    pub fn on_declined(&mut self, now: Instant, from: LeaderId, port: &mut impl LeaderPort) {
        if self.is_leading() && self.succession.candidate == Some(from) && self.succession.drains {
            let all = self.config.leaders().without(Set::one(self.id));
            self.succession.candidate = None;
            match all.without(self.succession.asked).is_empty() {
                // Not again at once: they would go on declining.
                true => self.succession.hopeless = true,
                false => self.ask_successor(now, port),
            }
        }
    }
}
