//! What an acceptor does for replicas: tokens of reads, instances that they miss, and forgetting
//! what they keep.

use super::{Acceptor, Known};
use crate::epaxos::duty::Duty;
use crate::epaxos::instance::{InstanceId, Space};
use crate::epaxos::message::{Instance, Reach, Run, Touched};
use crate::epaxos::{Envelope, RUNS, branch, leader, replica};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, ReplicaId, Set};
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::page::Page;

/// A message with instances ends after this number of bytes, or of instances.
const FETCHED_BYTES: usize = 256 << 10;
const FETCHED: usize = 512;

/// How often an acceptor asks for decisions, and for how many at a time.
const ASK_EVERY: Duration = Duration::from_millis(250);
const ASKED: usize = 256;

/// Where the roles are not apart leaders are asked once in this number of times.
const SELDOM: u64 = 16;

/// Without disks an acceptor keeps decisions for replicas that are behind, until it has this number
/// of instances, or bytes.
const BACKLOG: usize = 1 << 14;
const BACKLOG_BYTES: usize = 32 << 20;

/// What an instance takes in a message beside its command, about.
const BYTES_OF_EACH: usize = 64;

impl Acceptor {
    /// A replica asks what a read conflicts with. Nothing is recorded: reads change nothing.
    pub(super) fn on_pre_read(
        &mut self,
        from: ReplicaId,
        inquiry: u64,
        touched: &Touched,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_copying() {
            return;
        }
        let deps = self.index.query(&touched.0);
        let message = replica::In::PreReadAck {
            from: self.id,
            inquiry,
            deps,
        };
        // It names instances. One whose record is lost is recovered, and the read waits for it; a
        // write that was answered before has durable records at a majority.
        out.send_unfenced(Envelope::ToReplicas(Set::one(from), message));
    }

    /// A replica misses instances.
    pub(super) fn on_fetch(&mut self, from: ReplicaId, runs: &[Run], out: &mut Out<'_, Self>) {
        // What it would say of how far spaces reach, replicas on new disks would count on.
        if self.is_copying() {
            self.stale += 1;
            return;
        }
        let (mut instances, mut forgotten) = (Vec::new(), Vec::new());
        let mut page = Page::new(FETCHED_BYTES);
        for Run { space, start, end } in runs.iter().take(RUNS) {
            let kept = self.kept.below(*space).min(*end);
            let held = self.store.range(*space, (*start, kept)).count() as u64;
            if kept.saturating_sub(*start) > held {
                let (space, start, end) = (*space, *start, kept);
                forgotten.push(Run { space, start, end });
            }
            for (id, known) in self.store.range(*space, (*start, *end)) {
                let Some(choice) = known.certain() else {
                    continue;
                };
                let bytes = choice.byte_len() + BYTES_OF_EACH;
                if instances.len() >= FETCHED || !page.takes(bytes) {
                    break;
                }
                let choice = choice.clone();
                instances.push(Instance { id, choice });
            }
        }
        let message = replica::In::Fetched {
            from: self.id,
            instances,
            forgotten,
            reaches: self.store.reaches(),
        };
        // As in `pass_on`.
        out.send_unfenced(Envelope::ToReplicas(Set::one(from), message));
    }

    /// A replica has these in a stored snapshot.
    pub(super) fn on_kept(&mut self, from: ReplicaId, reaches: &[Reach], out: &mut Out<'_, Self>) {
        if !self.config.replicas().contains(from) {
            self.stale += 1;
            return;
        }
        if !self.kept.tell(from, reaches).is_empty() {
            out.persist(self.kept_record());
        }
        self.release(out);
    }

    /// Asks another acceptor for what was undecided here the last time too: a Commit was lost, or
    /// some leader has still to recover it.
    pub(super) fn ask_for_decisions(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.ask_at > now {
            return;
        }
        self.ask_at = now + ASK_EVERY;
        self.go_on_returning(now, out);
        let before = core::mem::replace(&mut self.ask_before, self.store.next_place());
        let old = self.store.undecided_before(before, self.ask_first);
        let mut ids: Vec<InstanceId> = old.take(ASKED + 1).collect();
        // The others may know the decisions of later ones only.
        self.ask_first = ids.get(ASKED).copied().unwrap_or_default();
        ids.truncate(ASKED);
        self.turn += 1;
        if !ids.is_empty() {
            self.ask(ids, out);
        }
    }

    /// Asks another one for decisions, and after all others leaders to recover what has none.
    /// Replicas may have learned a decision that no acceptor has. Where the roles are apart no
    /// dependency node may. Where they are not, the acceptor that had it has lost its memory, or
    /// its disk: that is rare, and a leader that is there needs no help, so leaders are seldom
    /// asked.
    /// Where the roles are apart an acceptor may be the only one that heard that replicas keep an
    /// instance, for those may be down for good: it is asked too.
    fn ask(&self, ids: Vec<InstanceId>, out: &mut Out<'_, Self>) {
        let (from, duty) = (self.id, self.duty);
        let others = match duty.records() {
            true => self.others(),
            false => self.config.recorders(),
        };
        let cycle = others.len() as u64 + 1;
        let asks_leaders = match self.config.is_apart() {
            true => self.turn.is_multiple_of(cycle),
            false => self.turn.is_multiple_of(cycle * SELDOM),
        };
        if asks_leaders {
            let acceptor = self.config.acceptors().pick(self.turn / cycle);
            let asks_voter = self.config.is_apart() && duty.records();
            if let Some(acceptor) = acceptor.filter(|_| asks_voter) {
                let ids = ids.clone();
                let message = super::In::Ask { from, duty, ids };
                out.send(Envelope::ToAcceptors(Set::one(acceptor), message));
            }
            let message = leader::In::Recover { ids };
            return out.send(Envelope::ToLeaders(self.config.leaders(), message));
        }
        if let Some(other) = others.pick(self.turn) {
            let message = super::In::Ask { from, duty, ids };
            out.send(self.config.to_recorders(Set::one(other), message));
        }
    }

    /// Another acceptor does not know what these are decided to be.
    pub(super) fn on_ask(
        &mut self,
        (from, duty): (AcceptorId, Duty),
        ids: &[InstanceId],
        out: &mut Out<'_, Self>,
    ) {
        let (mut bytes, mut forgotten) = (0, BTreeSet::new());
        for id in ids.iter().take(ASKED) {
            let known = self.store.get(*id).and_then(Known::certain);
            if known.is_none() && self.kept.covers(*id) {
                forgotten.insert(id.space);
            }
            if let Some(choice) = known.filter(|_| bytes < FETCHED_BYTES) {
                bytes += choice.byte_len() + BYTES_OF_EACH;
                let message = super::In::Commit {
                    id: *id,
                    learned: choice.clone().into(),
                    replier: None,
                };
                // As in `pass_on`.
                out.send_unfenced(duty.envelope(Set::one(from), message));
            }
        }
        if !forgotten.is_empty() {
            let mut reaches = self.kept.reaches();
            reaches.retain(|reach| forgotten.contains(&reach.space));
            let message = super::In::Forgotten { reaches };
            out.send(duty.envelope(Set::one(from), message));
        }
    }

    /// Another acceptor has forgotten what this one asked it for. The replicas that keep it may not
    /// tell this one any more: f of them may be down for good.
    pub(super) fn on_forgotten(&mut self, reaches: &[Reach], out: &mut Out<'_, Self>) {
        let is_new = |reach: &Reach| self.kept.below(reach.space) < reach.below;
        if reaches.iter().any(is_new) {
            self.kept.learn(reaches);
            out.persist(self.kept_record());
            self.release(out);
        }
    }

    /// Forgets instances that f + 1 replicas keep, as far as the index does not name them: a
    /// command that is recorded after a crash must still depend on them. A barrier clears the
    /// index. Without disks what f + 1 replicas have executed counts as kept: a replica that was
    /// stopped for a second would need a whole snapshot if nothing were kept for it.
    pub(super) fn release(&mut self, out: &mut Out<'_, Self>) {
        let spaces: Vec<Space> = self
            .kept
            .reaches()
            .iter()
            .map(|reach| reach.space)
            .collect();
        for space in spaces {
            let below = self.kept.below(space);
            let held = self.store.range(space, (0, below));
            let is_small = self.store.len() <= BACKLOG && self.store.bytes() <= BACKLOG_BYTES;
            let lacked = match is_small && self.loses_state {
                true => self.kept.all_have(self.config.replicas(), space),
                false => below,
            };
            let goes = |(id, known): (InstanceId, &Known)| {
                let is_lacked = id.number >= lacked && known.certain().is_some();
                (!is_lacked && !self.index.contains(id)).then_some(id)
            };
            let gone: Vec<InstanceId> = held.filter_map(goes).collect();
            gone.into_iter().for_each(|id| self.store.remove(id));
        }
        let Acceptor { store, kept, .. } = self;
        store.settle(|id| kept.covers(id));
        while let Some(record) = self.store.straggler() {
            out.reached(branch::RECORDED_ANEW);
            out.persist(record);
        }
        out.release_below(self.store.first_place());
    }
}
