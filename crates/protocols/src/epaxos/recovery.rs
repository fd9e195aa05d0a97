//! What a recovery proposes: a function of what n - f acceptors say of the instance, and of nothing
//! else (Atlas, EuroSys 2020, algorithm 2; here with a noop where the paper proposes the union of
//! all answers).

use super::message::{Choice, Evidence, PreAccepted};
use alloc::vec::Vec;
use ionian_kernel::id::AcceptorId;
use ionian_kernel::small_map::SmallMap;

/// What follows from the evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is decided: no vote is needed.
    Decided(Choice),
    /// This is to be proposed in the recovery's ballot, for this reason.
    Propose(Choice, Case),
}

/// Why a recovery proposes what it proposes, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Some acceptor has voted for it.
    Voted,
    /// The leader's own acceptor has not decided, and cannot in ballot 0 any more.
    LeaderAnswers,
    /// No acceptor that answers has pre-accepted it.
    Unknown,
    /// A member of the fast quorum has not pre-accepted it, and refuses to from now on.
    FastQuorumBroken,
    /// All members of the fast quorum that answer have pre-accepted it.
    MayBeDecided,
}

/// What follows from the answers of acceptors, each of which has promised the recovery's ballot;
/// none while there are too few. `leader` is the acceptor on the node of the instance's leader, and
/// `enough` is n - f. Where the roles are apart no acceptor is on its node, and none has
/// pre-accepted anything: only the first two cases and the fourth are left, which are Paxos.
///
/// Why the verdict is right. Let b be the recovery's ballot. All that answer have promised b, so
/// none of them votes or decides in a lower ballot any more.
///
/// 1. A decision stands.
/// 2. A value that f + 1 acceptors accepted in a ballot below b has a vote among any n - f, and
///    the highest ballot's is the last that can have been accepted: Paxos.
///
/// Without votes among n - f nothing was or will be accepted by votes below b. What is left is a
/// fast decision, which the leader's acceptor makes in ballot 0 after all members of the fast
/// quorum F have pre-accepted.
///
/// 3. The leader's acceptor answers: it has not decided, and has promised b. Its decisions are
///    durable, so it did not decide before a restart either. An acceptor that has lost its memory
///    answers nothing about the instances that it may have known before
///    (`acceptor/returning.rs`).
/// 4. No acceptor in Q has pre-accepted. The leader's acceptor is not in Q, so at most f - 1 of the
///    other |F| - 1 = floor(n/2) + f - 1 members are outside Q: some member is in Q, has not
///    pre-accepted, and never will.
/// 5. The same, where others have pre-accepted.
/// 6. All members of F in Q have. A fast decision takes as dependencies the union D over F, and
///    each d in D was named by at least f members. If the leader's acceptor named d, all members
///    did, because its answer travels in the PreAccept. If it did not, of the f or more others that
///    named d at most f - 1 are outside Q, because the leader's acceptor is outside too. So the
///    union over the members in Q is D.
///
/// In case 6 nothing need have been decided. Then any value is safe for agreement; that conflicting
/// commands see each other holds because |Q and F| >= |F| - f = floor(n/2) acceptors and the
/// leader's have recorded the command before it was proposed, a majority. A noop is seen by none
/// and need not be.
pub fn judge(
    evidence: &SmallMap<AcceptorId, Evidence>,
    leader: Option<AcceptorId>,
    enough: usize,
) -> Option<Verdict> {
    if let Some(choice) = evidence.values().find_map(|known| known.decided.as_ref()) {
        return Some(Verdict::Decided(choice.clone()));
    }
    if evidence.len() < enough {
        return None;
    }
    let (choice, case) = propose(evidence, leader);
    Some(Verdict::Propose(choice, case))
}

/// Cases 2 to 6.
fn propose(
    evidence: &SmallMap<AcceptorId, Evidence>,
    leader: Option<AcceptorId>,
) -> (Choice, Case) {
    let votes = evidence.values().filter_map(|known| known.vote.as_ref());
    if let Some(vote) = votes.max_by_key(|vote| vote.ballot) {
        return (vote.choice.clone(), Case::Voted);
    }
    if leader.is_some_and(|leader| evidence.contains_key(&leader)) {
        return (Choice::Noop {}, Case::LeaderAnswers);
    }
    let mut known = evidence
        .values()
        .filter_map(|known| known.pre_accepted.as_ref());
    let Some(first) = known.next() else {
        return (Choice::Noop {}, Case::Unknown);
    };
    let members = evidence.iter().filter(|(id, _)| first.fast.contains(**id));
    let answers: Vec<_> = members
        .map(|(_, known)| known.pre_accepted.as_ref())
        .collect();
    if answers.iter().any(Option::is_none) {
        return (Choice::Noop {}, Case::FastQuorumBroken);
    }
    let answers = answers.into_iter().flatten();
    (union(first, answers), Case::MayBeDecided)
}

/// The payload, after the union of what these had recorded.
fn union<'a>(first: &PreAccepted, answers: impl Iterator<Item = &'a PreAccepted>) -> Choice {
    let mut deps = super::instance::Deps::default();
    answers.for_each(|answer| deps.union(&answer.deps));
    Choice::Command {
        payload: first.payload.clone(),
        deps,
    }
}

#[cfg(test)]
mod tests;
