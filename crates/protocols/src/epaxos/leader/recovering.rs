//! Recoveries: what other leaders left unfinished, or this one could not finish in ballot 0.
//!
//! A recovery is asked for by replicas that wait, again and again, so nothing is lost when one is
//! given up. In each attempt it uses a ballot of its own: acceptors answer a Prepare once.

use super::Leader;
use crate::epaxos::instance::{Ballot, InstanceId};
use crate::epaxos::message::{Choice, EPOCH, Evidence};
use crate::epaxos::recovery::{Case, Verdict, judge};
use crate::epaxos::{Envelope, MAX_RECOVERIES, acceptor, branch};
use alloc::collections::BTreeMap;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;

/// A recovery is given up after this number of attempts.
const ATTEMPTS: u32 = 6;

/// A leader that sends heartbeats finishes its own instances. So long, in election timeouts, is it
/// left alone with one.
const ALONE: u32 = 8;

/// A request that is not repeated for this long is forgotten.
const FORGETS: Duration = Duration::from_secs(10);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Recoveries {
    running: BTreeMap<InstanceId, Recovery>,
    /// Since when each instance is asked for, and when it was last.
    asked: BTreeMap<InstanceId, (Instant, Instant)>,
    /// The highest count of a ballot that this process has used, for any instance: no ballot is
    /// used twice, though a recovery is given up and begun again.
    count: u64,
    pub(super) begun: u64,
}

struct Recovery {
    ballot: Ballot,
    /// The highest ballot that an acceptor has promised.
    promised: Ballot,
    evidence: SmallMap<AcceptorId, Evidence>,
    /// What it proposes, and who voted for it.
    proposed: Option<(Choice, AcceptorSet)>,
    attempts: u32,
    at: Instant,
}

impl Recoveries {
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        self.running.remove(&id);
        self.asked.remove(&id);
    }

    /// An acceptor has lost its memory: what it had said counts no more, where nothing is proposed
    /// on account of it yet.
    pub(super) fn forget_answers(&mut self, of: AcceptorId) {
        for recovery in self.running.values_mut() {
            recovery.evidence.remove(&of);
        }
    }

    /// An acceptor has promised a higher ballot.
    pub(super) fn refused(&mut self, id: InstanceId, promised: Ballot) {
        if let Some(recovery) = self.running.get_mut(&id) {
            recovery.promised = recovery.promised.max(promised);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.running.values().map(|recovery| recovery.at).min()
    }

    /// Notes that an instance is asked for; since when.
    fn note(&mut self, now: Instant, id: InstanceId) -> Instant {
        if self.asked.len() >= MAX_RECOVERIES {
            self.asked.retain(|_, (_, last)| now.since(*last) < FORGETS);
        }
        if self.asked.len() >= MAX_RECOVERIES && !self.asked.contains_key(&id) {
            return now;
        }
        let (since, last) = self.asked.entry(id).or_insert((now, now));
        if now.since(*last) >= FORGETS {
            *since = now;
        }
        *last = now;
        *since
    }
}

impl Leader {
    /// A replica waits for these. The leader of the instance comes first if it is there, the others
    /// in the order of the ring, each after a while in which those before it may have finished.
    pub(super) fn on_recover(&mut self, now: Instant, ids: &[InstanceId], out: &mut Out<'_, Self>) {
        for id in ids {
            if self.flights.contains(*id) || self.recoveries.running.contains_key(id) {
                continue;
            }
            let waited = now.since(self.recoveries.note(now, *id));
            if waited >= self.patience(now, *id) {
                self.begin_recovery(now, *id, out);
            }
        }
    }

    /// How long an instance is left to others.
    fn patience(&self, now: Instant, id: InstanceId) -> Duration {
        let options = self.config.options();
        let owner = id.space.leader;
        if owner == self.id {
            return Duration::ZERO;
        }
        let (present, life) = (self.peers.is_present(now, owner), self.peers.life_of(owner));
        let turn = self.config.turns_after(owner, self.id) as u32;
        let turns = options.resend_after * 2 * (turn + u32::from(present));
        match present && life <= id.space.life {
            true => options.election_timeout * ALONE + turns,
            false => turns,
        }
    }

    /// Begins a recovery, unless it runs.
    pub(super) fn begin_recovery(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let running = &self.recoveries.running;
        if running.contains_key(&id) || running.len() >= MAX_RECOVERIES {
            return;
        }
        self.recoveries.begun += 1;
        out.reached(branch::RECOVERS);
        let recovery = Recovery {
            ballot: Ballot::default(),
            promised: Ballot::default(),
            evidence: SmallMap::new(),
            proposed: None,
            attempts: 0,
            at: now,
        };
        self.recoveries.running.insert(id, recovery);
        self.prepare(now, id, out);
    }

    /// Asks all acceptors to promise a ballot higher than any that it knows of.
    fn prepare(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let (me, life) = (self.id, self.life);
        let at = self.retry_at(now, id);
        let Some(recovery) = self.recoveries.running.get_mut(&id) else {
            return;
        };
        let highest = recovery.ballot.max(recovery.promised).count();
        let count = highest.max(self.recoveries.count) + 1;
        self.recoveries.count = count;
        recovery.ballot = Ballot::new(EPOCH, count, me);
        recovery.evidence.clear();
        recovery.proposed = None;
        recovery.at = at;
        let message = acceptor::In::Prepare {
            from: me,
            id,
            ballot: recovery.ballot,
            life,
        };
        out.send(Envelope::ToAcceptors(self.config.voters(id), message));
    }

    /// When it tries again: after a random time that grows, so that two do not disturb each other
    /// for long.
    fn retry_at(&mut self, now: Instant, id: InstanceId) -> Instant {
        let attempts = self.recoveries.running.get(&id).map_or(0, |it| it.attempts);
        let wait = doubled(self.config.options().resend_after * 2, attempts, 4);
        now + self.random.duration(wait, 2 * wait)
    }

    /// An acceptor promises, and says what it knows.
    pub(super) fn on_prepared(
        &mut self,
        now: Instant,
        from: AcceptorId,
        (id, ballot): (InstanceId, Ballot),
        evidence: Evidence,
        out: &mut Out<'_, Self>,
    ) {
        let (leader, enough) = (
            self.config.acceptor_of(id.space.leader),
            self.config.recovery_quorum(id),
        );
        let Some(recovery) = self.recoveries.running.get_mut(&id) else {
            return;
        };
        if recovery.ballot != ballot || recovery.proposed.is_some() {
            return;
        }
        recovery.evidence.insert(from, evidence);
        match judge(&recovery.evidence, leader, enough) {
            None => {}
            Some(Verdict::Decided(choice)) => {
                out.reached(branch::RECOVERY_DECIDED);
                self.finish_recovery(now, id, &choice, out);
            }
            Some(Verdict::Propose(choice, case)) => {
                out.reached(branch_of(case));
                recovery.proposed = Some((choice, Set::EMPTY));
                self.propose_recovered(id, self.config.voters(id), out);
            }
        }
    }

    fn propose_recovered(&self, id: InstanceId, to: AcceptorSet, out: &mut Out<'_, Self>) {
        let Some(recovery) = self.recoveries.running.get(&id) else {
            return;
        };
        if let Some((choice, _)) = &recovery.proposed {
            let message = acceptor::In::Accept {
                from: self.id,
                proxy: None,
                id,
                ballot: recovery.ballot,
                choice: choice.clone(),
            };
            out.send(Envelope::ToAcceptors(to, message));
        }
    }

    /// An acceptor has voted, in ballot 0 or in that of a recovery.
    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        from: AcceptorId,
        id: InstanceId,
        ballot: Ballot,
        out: &mut Out<'_, Self>,
    ) {
        if ballot == Ballot::default() {
            return self.on_vote(now, from, id, out);
        }
        let enough = self.config.slow_quorum(id);
        let Some(recovery) = self.recoveries.running.get_mut(&id) else {
            return;
        };
        let Some((choice, votes)) = &mut recovery.proposed else {
            return;
        };
        if recovery.ballot == ballot {
            votes.insert(from);
            if votes.len() >= enough {
                let choice = choice.clone();
                self.finish_recovery(now, id, &choice, out);
            }
        }
    }

    fn finish_recovery(
        &mut self,
        now: Instant,
        id: InstanceId,
        choice: &Choice,
        out: &mut Out<'_, Self>,
    ) {
        self.recoveries.remove(id);
        self.commit(id, choice, Set::EMPTY, None, out);
        let noop = matches!(choice, Choice::Noop {});
        // Of a pair the acceptor learns it, and tells its leader.
        let owner = id.space.leader;
        if self.config.is_apart() && owner != self.id && self.config.leaders().contains(owner) {
            let message = super::In::Learned { id, noop };
            out.send(Envelope::ToLeaders(Set::one(owner), message));
        }
        self.on_learned(now, id, noop, out);
    }

    /// Goes on with the recoveries whose time has come.
    pub(super) fn recover_overdue(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let overdue =
            |(id, recovery): (&InstanceId, &Recovery)| (recovery.at <= now).then_some(*id);
        let due: alloc::vec::Vec<_> = self.recoveries.running.iter().filter_map(overdue).collect();
        for id in due {
            let at = self.retry_at(now, id);
            let recovery = self.recoveries.running.get_mut(&id).expect("just seen");
            recovery.attempts += 1;
            let stays = recovery.promised <= recovery.ballot;
            if recovery.attempts >= ATTEMPTS {
                self.recoveries.running.remove(&id);
            } else if let Some((_, votes)) = recovery.proposed.as_ref().filter(|_| stays) {
                let silent = self.config.voters(id).without(*votes);
                recovery.at = at;
                self.propose_recovered(id, silent, out);
            } else {
                self.prepare(now, id, out);
            }
        }
    }
}

fn branch_of(case: Case) -> &'static str {
    match case {
        Case::Voted => branch::RECOVERY_VOTED,
        Case::LeaderAnswers => branch::RECOVERY_LEADER_ANSWERS,
        Case::Unknown => branch::RECOVERY_UNKNOWN,
        Case::FastQuorumBroken => branch::RECOVERY_BROKEN,
        Case::MayBeDecided => branch::RECOVERY_MAY_BE_DECIDED,
    }
}
