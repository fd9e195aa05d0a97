//! Where writes enter the chain: at its head, as far as the sender knows; at another chain node
//! while writes that go to the head stay without an answer.
//!
//! A chain node that is not the head hands on what it receives, and tells the sender the chain. So
//! the sender learns of a chain that it has missed. But the head itself tells it nothing: the
//! sender stays with the node that has its writes answered, until it learns that another node is
//! the head.
//!
//! If it learns that the head is right after all, it tries the head again. The head was slow, or
//! the link to it is cut: then each try delays one write, and the next try comes after twice the
//! time.

use super::config::Config;
use super::id::ChainNodeId;
use super::message::Chain;
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;

/// After this time the sender tries the head again.
const TRY_AFTER: Duration = Duration::from_secs(1);

/// How often that time doubles.
const DOUBLINGS: u32 = 8;

/// See the top of this file.
pub(super) struct Entrance {
    chain: Chain,
    /// Turns to other nodes than the head.
    turn: u64,
    turned_at: Instant,
    /// When the head is tried again, if it is right.
    try_at: Option<Instant>,
    /// Whether a try is under way.
    tries: bool,
    /// How many tries have failed in a row.
    failed: u32,
}

impl Entrance {
    pub(super) fn new(chain: Chain) -> Self {
        Entrance {
            chain,
            turn: 0,
            turned_at: Instant::ZERO,
            try_at: None,
            tries: false,
            failed: 0,
        }
    }

    /// Whether the head is this node.
    pub(super) fn is_head(&self, node: ChainNodeId) -> bool {
        self.chain.head() == Some(node)
    }

    /// Where the next write goes. If the chain has no head, any node hands it on in time.
    pub(super) fn next(&mut self, now: Instant, config: &Config) -> Option<ChainNodeId> {
        let head = self.chain.head();
        let others = head.map_or(config.nodes(), |head| {
            config.nodes().without(Set::one(head))
        });
        // Each other node in turn, and then the head.
        let turns = others.len() as u64 + u64::from(head.is_some());
        let other = match self.turn % turns.max(1) {
            0 => None,
            turn => others.pick(turn - 1),
        };
        let is_due = self.try_at.is_some_and(|at| at <= now);
        if is_due && other.is_some() && head.is_some() {
            (self.try_at, self.tries) = (None, true);
            return head;
        }
        other.or(head).or_else(|| others.pick(0))
    }

    /// What was sent at this time was not answered.
    pub(super) fn unanswered(&mut self, now: Instant, sent_at: Instant) {
        if core::mem::take(&mut self.tries) {
            self.failed = (self.failed + 1).min(DOUBLINGS);
        } else if sent_at >= self.turned_at {
            self.turn += 1;
            self.turned_at = now;
        }
    }

    /// What was sent to the head was answered.
    pub(super) fn head_answered(&mut self) {
        (self.turn, self.try_at, self.tries, self.failed) = (0, None, false, 0);
    }

    /// A chain node tells this chain. Says whether the head is another now.
    pub(super) fn follow(&mut self, now: Instant, chain: Chain) -> bool {
        if self.chain.is_later_than(&chain) {
            return false;
        }
        if chain.head() != self.chain.head() {
            *self = Entrance::new(chain);
            return true;
        }
        self.chain = chain;
        if self.turn > 0 && !self.tries {
            let wait = doubled(TRY_AFTER, self.failed, DOUBLINGS);
            self.try_at.get_or_insert(now + wait);
        }
        false
    }
}
