//! Letting acceptors that lost their votes take part again.
//!
//! With `memory` durability a restarted acceptor knows what it promised, which is written down whatever
//! the durability, but not what it voted for. It stays silent until a leader has won a round above its
//! promise without its help, and f+1 replicas have said, in that round, that they keep every slot below
//! the frontier, the first slot in which that leader was free to propose anything. From then on it may
//! act as if it had voted for nothing from the frontier on. See `docs/protocols/multipaxos.md`,
//! "Admission", for why that is safe.

use super::super::acceptor;
use alloc::collections::BTreeMap;
use ionian_kernel::id::*;

/// Acceptors that ask to be let in.
#[derive(Default)]
pub(super) struct Admission {
    waiting: BTreeMap<AcceptorId, Waiting>,
}

struct Waiting {
    nonce: u64,
    /// Known once a round was won without it.
    frontier: Option<Slot>,
}

impl Admission {
    /// An acceptor asks; true when a new round must be won for it.
    pub(super) fn ask(&mut self, from: AcceptorId, nonce: u64, round_is_above: bool) -> bool {
        let known = self.waiting.get(&from).is_some_and(|waiting| waiting.nonce == nonce);
        if known && round_is_above {
            return false;
        }
        self.waiting.insert(from, Waiting { nonce, frontier: None });
        true
    }

    /// A round was won, without any acceptor that is waiting: they do not answer in phase 1.
    pub(super) fn won(&mut self, frontier: Slot) {
        for waiting in self.waiting.values_mut() {
            waiting.frontier = Some(frontier);
        }
    }

    /// This leader was deposed: its successor will be asked.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whom to let in, now that f+1 replicas keep every slot below `kept`. The leader goes on saying so
    /// while it is asked, for the message may be lost; the acceptor heeds the first.
    pub(super) fn admitted(&self, round: Round, kept: Slot) -> impl Iterator<Item = (AcceptorId, acceptor::In)> {
        self.waiting.iter().filter_map(move |(acceptor, waiting)| {
            let frontier = waiting.frontier.filter(|frontier| *frontier <= kept)?;
            Some((*acceptor, acceptor::In::Admit { nonce: waiting.nonce, round, frontier }))
        })
    }
}
