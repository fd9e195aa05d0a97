//! Letting acceptors that lost their votes take part again.
//!
//! With `memory` durability a restarted acceptor knows what it promised, which is written down
//! whatever the durability, but not what it voted for. It stays silent until a leader has won a
//! round above its promise without its help, and f+1 replicas have said, in that round, that they
//! keep every slot below the frontier, the first slot in which that leader was free to propose
//! anything. From then on it may act as if it had voted for nothing from the frontier on. See
//! `docs/protocols/multipaxos.md`, "Admission", for why that is safe.

use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;

/// Acceptors that ask to be let in.
#[derive(Default)]
pub(super) struct Admission {
    waiting: SmallMap<AcceptorId, Waiting>,
}

struct Waiting {
    nonce: u64,
    /// Known once a round was won without it.
    frontier: Option<Slot>,
    /// Whether it was told that it may take part.
    told: bool,
}

impl Admission {
    /// An acceptor asks; true when a new round must be won for it.
    pub(super) fn ask(&mut self, from: AcceptorId, nonce: u64, round_is_above: bool) -> bool {
        let known = self
            .waiting
            .get(&from)
            .is_some_and(|waiting| waiting.nonce == nonce);
        if known && round_is_above {
            return false;
        }
        self.waiting.insert(
            from,
            Waiting {
                nonce,
                frontier: None,
                told: false,
            },
        );
        true
    }

    /// A round was won, without any acceptor that is waiting: they do not answer in phase 1.
    pub(super) fn won(&mut self, frontier: Slot) {
        for waiting in self.waiting.values_mut() {
            (waiting.frontier, waiting.told) = (Some(frontier), false);
        }
    }

    /// This leader was deposed: its successor will be asked.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whom to let in, now that f+1 replicas keep every slot below `kept`: those that were not told
    /// yet, and `again`, which asks once more, for the message may be lost. The acceptor heeds the
    /// first. Each comes with the nonce of its request, and the frontier.
    pub(super) fn admitted(
        &mut self,
        kept: Slot,
        again: Option<AcceptorId>,
    ) -> impl Iterator<Item = (AcceptorId, u64, Slot)> {
        self.waiting
            .iter_mut()
            .filter_map(move |(acceptor, waiting)| {
                let frontier = waiting.frontier.filter(|frontier| *frontier <= kept)?;
                if core::mem::replace(&mut waiting.told, true) && again != Some(*acceptor) {
                    return None;
                }
                Some((*acceptor, waiting.nonce, frontier))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn an_acceptor_is_let_in_once_and_again_when_it_asks_again() {
        let (mut admission, acceptor) = (Admission::default(), AcceptorId(2));
        let admitted = |admission: &mut Admission, kept, again| -> Vec<AcceptorId> {
            admission
                .admitted(Slot(kept), again)
                .map(|(acceptor, ..)| acceptor)
                .collect()
        };
        assert!(
            admission.ask(acceptor, 7, false),
            "a round must be won for it"
        );
        assert_eq!(admitted(&mut admission, 9, None), []);
        admission.won(Slot(5));
        assert_eq!(
            admitted(&mut admission, 4, None),
            [],
            "not all of it is kept"
        );
        assert_eq!(admitted(&mut admission, 5, None), [acceptor]);
        assert_eq!(
            admitted(&mut admission, 6, None),
            [],
            "not with each report of a replica"
        );
        assert!(!admission.ask(acceptor, 7, true));
        assert_eq!(
            admitted(&mut admission, 6, Some(acceptor)),
            [acceptor],
            "the word to it was lost"
        );
        assert!(admission.ask(acceptor, 8, true), "it has restarted");
        admission.won(Slot(6));
        assert_eq!(admitted(&mut admission, 6, Some(AcceptorId(1))), [acceptor]);
    }
}
