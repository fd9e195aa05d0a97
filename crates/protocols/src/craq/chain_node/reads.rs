//! Reads at a chain node.
//!
//! # Why a read is linearizable
//!
//! A linearizable read waits for an *inquiry*, begun after the read has come in, which says what
//! the chain is (`lease.rs`). The node enters that chain if it is later than its own. Or it comes
//! during the lease that an earlier inquiry gave. Let e be the epoch that the node is in then, as a
//! member.
//!
//! Whatever was acknowledged to a client before the read began was committed in an epoch that was
//! decided before the inquiry, so in e or before it, or, under a lease, in a later epoch of which
//! this node is a member: so it was in the history of this node when the read had come in (see
//! `chain_node.rs`), applied, or received and not applied. If the read touches nothing that an
//! entry received and not applied may write, it is *clean*: what is applied from then on shows all
//! of that, and it is committed, so no later read will miss it.
//!
//! Otherwise it is *dirty*: the tail of e says what is committed. That is asked after the read has
//! come in, so it includes all that was committed in e before; and all that was committed before e,
//! for the tail is a member. The node has those entries too, because each passed it: it applies
//! them, and answers. An old tail, which is in e, while there is a later chain, must not answer.
//! Without leases the node's inquiry, which runs at the same time, finds the later chain, if
//! anything was acknowledged in it before the read began; then the tail of that one is asked anew,
//! whatever the old one has said. With leases the tail answers under its own, or after an inquiry
//! of its own, and the node that asks needs none: what the tail says was true after the read had
//! come in.
//!
//! The tail may not answer, if only the link to it is cut. When what the node had received by the
//! time of the question is applied, the read is clean: that included all that it must see. Where
//! the tail would have looked at the chain for it, it needs a lease or an inquiry of its own.
//!
//! The tail itself has applied all that is committed, once it has applied what it had received when
//! it became the tail: there no read is dirty after that.
//!
//! Time is an entry's stamp: an entry not applied may end the life of a key that it does not name.
//! So everything is dirty if one has a stamp at which that may happen.
//!
//! A sequential read waits until what its client has seen is applied here, an eventual one for
//! nothing; what is applied is a prefix of what is committed, also at a node that was removed.
//!
//! What waits is bounded, in bytes and in number. What comes beyond that is dropped, and its
//! clients ask again, as do those whose inquiry the master left unanswered.

use super::{ChainNode, In};
use crate::craq::branch;
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::message::Chain;
use crate::craq::settings::forwards_reads;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::{Set, Slot};
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, BatchBuilder};

/// The most that waits, in batches and in bytes.
const MAX_BATCHES: usize = 1 << 14;
const MAX_BYTES: usize = 16 << 20;

/// A batch that waits for the inquiry of this number, and others, to end.
type Awaiting = (u64, Batch);

/// The reads of a chain node.
pub(super) struct Reads {
    /// Those that came in in this burst, with whether another node handed them on.
    fresh: Vec<(Batch, bool)>,
    /// Clean ones that come under a lease.
    under_lease: Vec<Batch>,
    /// Those that what is applied answers.
    ready: Vec<Awaiting>,
    /// Dirty ones that the tail of this epoch has answered.
    answered: Vec<Awaiting>,
    /// Dirty ones that came since the question under way was asked.
    dirty_fresh: Vec<Awaiting>,
    /// Those that the question under way is for.
    dirty_asked: Vec<Awaiting>,
    /// The history ended here when the question under way was asked.
    asked_end: Slot,
    /// The number of the question under way, or of the last one.
    inquiry: u64,
    query_at: Option<Instant>,
    /// The questions of other members to this one, as the tail: the last of each, with the inquiry
    /// that answers it.
    queries_here: SmallMap<ChainNodeId, (ChainEpoch, u64, u64)>,
    /// Sequential reads, by what they must see.
    waiting: BTreeMap<Slot, Vec<Batch>>,
    /// How many batches wait, and what they take.
    batches: usize,
    bytes: usize,
    pub(super) clean: u64,
    pub(super) dirty: u64,
    pub(super) leased: u64,
    pub(super) queries: u64,
    pub(super) dropped: u64,
}

impl Reads {
    pub(super) fn new(seed: u64) -> Self {
        Reads {
            fresh: Vec::new(),
            under_lease: Vec::new(),
            ready: Vec::new(),
            answered: Vec::new(),
            dirty_fresh: Vec::new(),
            dirty_asked: Vec::new(),
            asked_end: Slot::ZERO,
            // Answers to an earlier process of this node answer nothing.
            inquiry: Random::new(seed ^ 2).any() >> 1,
            query_at: None,
            queries_here: SmallMap::new(),
            waiting: BTreeMap::new(),
            batches: 0,
            bytes: 0,
            clean: 0,
            dirty: 0,
            leased: 0,
            queries: 0,
            dropped: 0,
        }
    }

    /// How many batches wait.
    pub(super) fn under_way(&self) -> usize {
        self.batches
    }

    /// When the tail is asked again.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.query_at
    }

    /// The reads that wait for the inquiry with this number.
    pub(super) fn awaiting(&self, inquiry: u64) -> impl Iterator<Item = &Batch> {
        let dirty = [&self.answered, &self.dirty_fresh, &self.dirty_asked];
        let all = self.ready.iter().chain(dirty.into_iter().flatten());
        all.filter(move |(needed, _)| *needed == inquiry)
            .map(|(_, reads)| reads)
    }

    /// Whether there is room for a batch, which is then counted.
    fn admit(&mut self, batch: &Batch) -> bool {
        let fits = self.batches < MAX_BATCHES && self.bytes + batch.byte_len() <= MAX_BYTES;
        let admitted = fits || self.batches == 0;
        match admitted {
            true => {
                self.batches += 1;
                self.bytes += batch.byte_len();
            }
            false => self.dropped += 1,
        }
        admitted
    }

    /// A batch waits no longer.
    fn leave(&mut self, batch: &Batch) {
        self.batches -= 1;
        self.bytes -= batch.byte_len();
    }

    /// Drops those that wait for an inquiry up to this one.
    fn drop_awaiting(&mut self, failed: u64) {
        let mut dropped = Vec::new();
        for list in [
            &mut self.ready,
            &mut self.answered,
            &mut self.dirty_fresh,
            &mut self.dirty_asked,
        ] {
            dropped.extend(list.extract_if(.., |(needed, _)| (1..=failed).contains(needed)));
        }
        for (_, reads) in dropped {
            self.leave(&reads);
            self.dropped += 1;
        }
    }
}

impl ChainNode {
    /// Linearizable reads come in.
    pub(super) fn on_read(&mut self, reads: Batch, handed: bool, out: &mut Out<'_, Self>) {
        if !self.is_member() {
            return self.hand_on_read(reads, handed, out);
        }
        if self.reads.admit(&reads) {
            self.reads.fresh.push((reads, handed));
        }
    }

    /// A member of the chain gets reads that came here; once.
    fn hand_on_read(&mut self, reads: Batch, handed: bool, out: &mut Out<'_, Self>) {
        let members = self.chain.nodes().without(Set::one(self.id));
        match members.pick(self.reads.inquiry).filter(|_| !handed) {
            Some(member) => {
                out.reached(branch::READ_HANDED_ON);
                self.reads.inquiry += 1;
                let handed = true;
                self.send_at_once(member, In::Read { reads, handed }, out);
            }
            None => self.reads.dropped += 1,
        }
    }

    /// Sequential or eventual reads come in.
    pub(super) fn on_read_at(
        &mut self,
        now: Instant,
        reads: Batch,
        executed: Slot,
        out: &mut Out<'_, Self>,
    ) {
        if executed <= self.history.applied() {
            return self.read_batch(now, &reads, None, out);
        }
        if self.reads.admit(&reads) {
            out.reached(branch::WAITS);
            self.reads.waiting.entry(executed).or_default().push(reads);
        }
    }

    /// Answers the sequential reads that have waited for what is applied now. Those that wait for
    /// what is furthest make room for others: they are answered elsewhere sooner.
    pub(super) fn answer_waiting(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let applied = self.history.applied();
        while let Some(first) = self.reads.waiting.first_entry()
            && *first.key() <= applied
        {
            for reads in first.remove() {
                self.reads.leave(&reads);
                self.read_batch(now, &reads, None, out);
            }
        }
        while (self.reads.batches > MAX_BATCHES / 2 || self.reads.bytes > MAX_BYTES / 2)
            && let Some((_, last)) = self.reads.waiting.pop_last()
        {
            for reads in last {
                self.reads.leave(&reads);
                self.reads.dropped += 1;
            }
        }
    }

    /// Sorts what has come in: what is clean is answered under the lease, or waits for an inquiry;
    /// the rest waits for the tail, or goes there.
    pub(super) fn begin_reads(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.is_tail() && self.history.applied() < self.tail_from {
            // It does not know yet what is committed.
            return;
        }
        for (reads, handed) in core::mem::take(&mut self.reads.fresh) {
            self.reads.leave(&reads);
            let (clean, dirty) = self.divide(reads);
            if !clean.is_empty() {
                self.reads.clean += clean.len() as u64;
                self.begin_clean(now, clean);
            }
            if !dirty.is_empty() {
                self.begin_dirty(dirty, handed, out);
            }
        }
        self.release_dirty(now, out);
        if self.reads.dirty_asked.is_empty() && !self.reads.dirty_fresh.is_empty() {
            self.reads.dirty_asked = core::mem::take(&mut self.reads.dirty_fresh);
            self.query(now, out);
        }
    }

    fn begin_clean(&mut self, now: Instant, reads: Batch) {
        if !self.reads.admit(&reads) {
            return;
        }
        match self.lease(now) {
            Some(_) => self.reads.under_lease.push(reads),
            None => self.reads.ready.push((self.inquiries.next(), reads)),
        }
    }

    fn begin_dirty(&mut self, reads: Batch, handed: bool, out: &mut Out<'_, Self>) {
        self.reads.dirty += reads.len() as u64;
        out.reached(branch::DIRTY);
        // Those that another node has handed on go no further: two nodes that take each other for
        // the tail would hand them on without end.
        let forwards = forwards_reads(self.config.options()) && !handed;
        if let Some(tail) = self.chain.tail().filter(|_| forwards) {
            out.reached(branch::READ_AT_TAIL);
            let handed = true;
            return self.send_at_once(tail, In::Read { reads, handed }, out);
        }
        if self.reads.admit(&reads) {
            let needed = match self.config.has_leases() {
                true => 0,
                false => self.inquiries.next(),
            };
            self.reads.dirty_fresh.push((needed, reads));
        }
    }

    /// What dirty reads had to see is applied, though the tail has not answered: they are clean.
    fn release_dirty(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let is_waiting = !self.reads.dirty_asked.is_empty();
        if !is_waiting || self.history.applied() < self.reads.asked_end {
            return;
        }
        out.reached(branch::TAIL_SILENT);
        self.reads.query_at = None;
        let mut clean = core::mem::take(&mut self.reads.dirty_asked);
        // The tail would have looked at the chain for these.
        for (_, reads) in clean.extract_if(.., |(needed, _)| *needed == 0) {
            self.reads.leave(&reads);
            self.begin_clean(now, reads);
        }
        let later = self.answer_ended(now, clean, out);
        self.reads.ready.extend(later);
    }

    /// Answers those of these reads, which see what they have to, whose inquiry has ended. Returns
    /// the others.
    fn answer_ended(
        &mut self,
        now: Instant,
        mut all: Vec<Awaiting>,
        out: &mut Out<'_, Self>,
    ) -> Vec<Awaiting> {
        let ended = self.inquiries.ended;
        for (_, reads) in all.extract_if(.., |(needed, _)| *needed <= ended) {
            self.reads.leave(&reads);
            self.read_batch(now, &reads, None, out);
        }
        all
    }

    /// Answers what is clean under the lease. Everything else that was to be answered has left.
    pub(super) fn answer_leased(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.reads.under_lease.is_empty() {
            return;
        }
        let until = self.lease(now);
        assert!(until.is_some(), "this burst has found the lease");
        for reads in core::mem::take(&mut self.reads.under_lease) {
            self.reads.leased += reads.len() as u64;
            self.reads.leave(&reads);
            self.read_batch(now, &reads, until, out);
        }
        out.reached(branch::LEASED);
        self.flush_answers(now, true, until, out);
    }

    /// The inquiry has ended with this chain, which this node has entered.
    pub(super) fn confirmed(&mut self, now: Instant, chain: &Chain, out: &mut Out<'_, Self>) {
        self.inquired(chain);
        let ready = core::mem::take(&mut self.reads.ready);
        self.reads.ready = self.answer_ended(now, ready, out);
        let answered = core::mem::take(&mut self.reads.answered);
        self.reads.answered = self.answer_ended(now, answered, out);
    }

    /// The master leaves the inquiry unanswered.
    pub(super) fn not_confirmed(&mut self) {
        let failed = self.inquiries.fail();
        self.reads.drop_awaiting(failed);
        // They ask again.
        self.reads
            .queries_here
            .retain(|_, (.., needed)| *needed > failed);
    }

    /// The clean reads of a batch, and the dirty ones.
    fn divide(&self, reads: Batch) -> (Batch, Batch) {
        if self.history.pending() == 0 || self.is_tail() {
            return (reads, Batch::default());
        }
        let stamp = self.history.last_stamp();
        let deadline = self.executor.next_deadline();
        if deadline.is_some() && deadline <= stamp {
            return (Batch::default(), reads);
        }
        if !self.history.is_dirty(&self.executor.footprint(&reads)) {
            return (reads, Batch::default());
        }
        let (mut clean, mut dirty) = (BatchBuilder::default(), BatchBuilder::default());
        for read in reads.commands() {
            let footprint = self.executor.footprint(&Batch::one(&read.to_owned()));
            match self.history.is_dirty(&footprint) {
                true => dirty.push(&read),
                false => clean.push(&read),
            }
        }
        (clean.take(), dirty.take())
    }

    /// Asks the tail what is committed.
    fn query(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.is_tail() {
            self.reads.query_at = None;
            let asked = core::mem::take(&mut self.reads.dirty_asked);
            let fresh = asked.into_iter().map(|(_, reads)| (reads, false));
            return self.reads.fresh.extend(fresh);
        }
        self.reads.inquiry += 1;
        self.reads.queries += 1;
        self.reads.asked_end = self.history.end();
        self.ask_tail(now, out);
    }

    /// Asks the tail, or asks it the same again: any answer to this number will do.
    fn ask_tail(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.reads.query_at = Some(now + self.config.options().resend_after);
        for (_, reads) in &self.reads.dirty_asked {
            out.inquires_for(self.reads.inquiry, reads);
        }
        let message = In::Query {
            from: self.id,
            epoch: self.chain.epoch,
            inquiry: self.reads.inquiry,
        };
        if let Some(tail) = self.chain.tail() {
            self.send_at_once(tail, message, out);
        }
    }

    /// Asks the tail again.
    pub(super) fn query_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.reads.query_at.is_some_and(|at| at <= now) {
            out.reached(branch::QUERY_AGAIN);
            match self.is_tail() {
                true => self.query(now, out),
                false => self.ask_tail(now, out),
            }
        }
    }

    /// A member asks what is committed: at the tail, what it has applied.
    pub(super) fn on_query(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        inquiry: u64,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_foreign(now, (from, epoch), out) {
            return;
        }
        let known = self.reads.queries_here.get(&from);
        if known.is_some_and(|(of, known, _)| (*of, *known) == (epoch, inquiry)) {
            return;
        }
        // An inquiry that is not wanted is not begun.
        let needed = match self.config.has_leases() && self.lease(now).is_none() {
            true => self.inquiries.next(),
            false => 0,
        };
        self.reads
            .queries_here
            .insert(from, (epoch, inquiry, needed));
    }

    /// Answers those who have asked what is committed: when all is that earlier tails may have
    /// committed, and this node is still the tail.
    pub(super) fn answer_queries(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let committed = self.history.applied();
        if self.reads.queries_here.is_empty() || !self.is_tail() || committed < self.tail_from {
            return;
        }
        let (has_leases, lease) = (self.config.has_leases(), self.lease(now));
        for (from, (of, inquiry, needed)) in core::mem::take(&mut self.reads.queries_here) {
            let epoch = self.chain.epoch;
            let message = In::Committed {
                epoch,
                inquiry,
                committed,
            };
            let is_over = !has_leases || (needed > 0 && needed <= self.inquiries.ended);
            match lease {
                _ if of != epoch => {}
                _ if is_over => self.send_at_once(from, message, out),
                Some(until) => {
                    out.reached(branch::LEASED_QUERY);
                    out.send_until(self.to(Set::one(from), message), until);
                }
                None => {
                    let needed = if needed > 0 {
                        needed
                    } else {
                        self.inquiries.next()
                    };
                    self.reads.queries_here.insert(from, (of, inquiry, needed));
                }
            }
        }
    }

    /// The tail has said what is committed: an acknowledgement that comes early, for all reads that
    /// waited when it was asked for.
    pub(super) fn on_committed(
        &mut self,
        now: Instant,
        epoch: ChainEpoch,
        (inquiry, committed): (u64, Slot),
        out: &mut Out<'_, Self>,
    ) {
        let is_asked = self.reads.query_at.is_some() && inquiry == self.reads.inquiry;
        if epoch != self.chain.epoch || !self.is_member() || !is_asked {
            self.stale += 1;
            return;
        }
        self.commit(now, committed, out);
        self.answer_dirty(now, out);
    }

    /// What is committed is applied.
    fn answer_dirty(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.reads.query_at = None;
        let asked = core::mem::take(&mut self.reads.dirty_asked);
        let later = self.answer_ended(now, asked, out);
        self.reads.answered.extend(later);
    }

    /// The chain is another: dirty reads are for its tail, also if that of the last chain has
    /// answered, or all for other nodes if this one is no member. What an inquiry has found holds
    /// on: no chain later than this was decided before it.
    pub(super) fn reads_in_new_chain(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.inquiries.drop_lease();
        let is_member = self.is_member();
        let reads = &mut self.reads;
        let leased = core::mem::take(&mut reads.under_lease);
        reads
            .fresh
            .extend(leased.into_iter().map(|one| (one, false)));
        if is_member {
            if !reads.answered.is_empty() {
                out.reached(branch::ASKED_ANEW);
            }
            reads.dirty_asked.append(&mut reads.answered);
            if !self.reads.dirty_asked.is_empty() {
                self.query(now, out);
            }
            return;
        }
        reads.query_at = None;
        reads.queries_here.clear();
        let mut all = core::mem::take(&mut reads.fresh);
        for list in [
            &mut reads.ready,
            &mut reads.answered,
            &mut reads.dirty_fresh,
            &mut reads.dirty_asked,
        ] {
            all.extend(list.drain(..).map(|(_, one)| (one, false)));
        }
        for (one, handed) in all {
            self.reads.leave(&one);
            self.hand_on_read(one, handed, out);
        }
    }
}
