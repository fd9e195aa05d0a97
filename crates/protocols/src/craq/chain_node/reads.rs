//! Reads at a chain node.
//!
//! # Why a read is linearizable
//!
//! A linearizable read waits for an *inquiry*: a linearizable read of the master's log, begun after
//! the read has come in, which says what the chain is. One inquiry serves all reads that came in
//! before it. The node enters that chain if it is later than its own. Then the read is answered, as
//! follows, if the node is a whole member of the chain that it is in, whose epoch is e.
//!
//! Whatever was acknowledged to a client before the read began was committed in an epoch that was
//! decided before the inquiry, so in e or before it, and is in the history of this node (see
//! `chain_node.rs`): applied, or received and not applied. If the read touches nothing that an
//! entry received and not applied may write, it is *clean*: what is applied shows all of that, and
//! it is committed, so no later read will miss it. Otherwise it is *dirty*: the tail of e says what
//! is committed. That is asked after the read has come in, so it includes all that was committed in
//! e before; and all that was committed before e, for the tail is whole. The node has those entries
//! too, because each passed it: it applies them, and answers. (An old tail, which is in e, while
//! there is a later chain, may answer: then that chain was decided after the inquiry, so nothing
//! was acknowledged in it before the read began.)
//!
//! Without the inquiry a node that was removed would not know it, and would answer from a state to
//! which the chain adds nothing more. A lease would do as well, and cost no round trip; it needs
//! clocks that drift little.
//!
//! Time is an entry's stamp: an entry not applied may end the life of a key that it does not name.
//! So everything is dirty if one has a stamp at which that may happen.
//!
//! A sequential read waits until what its client has seen is applied here, an eventual one for
//! nothing; what is applied is a prefix of what is committed, also at a node that was removed.
//!
//! What waits is bounded, in bytes and in number. What comes beyond that is dropped, and its
//! clients ask again, as do those whose inquiry the master left unanswered.

use super::link::Ask;
use super::{ChainNode, In};
use crate::craq::branch;
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::settings::forwards_reads;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::id::{Set, Slot};
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, BatchBuilder};

/// The most that waits, in batches and in bytes.
const MAX_BATCHES: usize = 1 << 14;
const MAX_BYTES: usize = 16 << 20;

/// The reads of a chain node.
pub(super) struct Reads {
    /// Those that came in since the inquiry under way began.
    fresh: Vec<Batch>,
    /// Those that the inquiry under way is for.
    asked: Vec<Batch>,
    /// Dirty ones that came since the question under way was asked.
    dirty_fresh: Vec<Batch>,
    /// Those that the question under way is for.
    dirty_asked: Vec<Batch>,
    /// The number of the question under way, or of the last one.
    inquiry: u64,
    query_at: Option<Instant>,
    /// The questions of other members to this one, as the tail: the last of each.
    queries_here: BTreeMap<ChainNodeId, (ChainEpoch, u64)>,
    /// Sequential reads, with what they must see.
    waiting: VecDeque<(Slot, Batch)>,
    /// How many batches wait, and what they take.
    batches: usize,
    bytes: usize,
    pub(super) clean: u64,
    pub(super) dirty: u64,
    pub(super) queries: u64,
    pub(super) dropped: u64,
}

impl Reads {
    pub(super) fn new(seed: u64) -> Self {
        Reads {
            fresh: Vec::new(),
            asked: Vec::new(),
            dirty_fresh: Vec::new(),
            dirty_asked: Vec::new(),
            // Answers to an earlier process of this node answer nothing.
            inquiry: Random::new(seed ^ 2).any() >> 1,
            query_at: None,
            queries_here: BTreeMap::new(),
            waiting: VecDeque::new(),
            batches: 0,
            bytes: 0,
            clean: 0,
            dirty: 0,
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
}

impl ChainNode {
    /// Linearizable reads come in.
    pub(super) fn on_read(&mut self, reads: Batch, handed: bool, out: &mut Out<'_, Self>) {
        if !self.whole {
            return self.hand_on_read(reads, handed, out);
        }
        if self.reads.admit(&reads) {
            self.reads.fresh.push(reads);
        }
    }

    /// A whole member of the chain gets reads that came here; once.
    fn hand_on_read(&mut self, reads: Batch, handed: bool, out: &mut Out<'_, Self>) {
        let full = self.chain.full().without(Set::one(self.id));
        match full.pick(self.reads.inquiry).filter(|_| !handed) {
            Some(member) => {
                out.reached(branch::READ_HANDED_ON);
                self.reads.inquiry += 1;
                let handed = true;
                self.send(member, In::Read { reads, handed }, out);
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
            return self.read_batch(now, &reads, out);
        }
        if self.reads.admit(&reads) {
            out.reached(branch::WAITS);
            self.reads.waiting.push_back((executed, reads));
        }
    }

    /// Answers the sequential reads that have waited for what is applied now. Those that have
    /// waited for long are answered elsewhere by then: they make room for others.
    pub(super) fn answer_waiting(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let applied = self.history.applied();
        for _ in 0..self.reads.waiting.len() {
            let (executed, reads) = self.reads.waiting.pop_front().expect("just counted");
            if executed <= applied {
                self.reads.leave(&reads);
                self.read_batch(now, &reads, out);
            } else if self.reads.batches > MAX_BATCHES / 2 || self.reads.bytes > MAX_BYTES / 2 {
                self.reads.leave(&reads);
                self.reads.dropped += 1;
            } else {
                self.reads.waiting.push_back((executed, reads));
            }
        }
    }

    /// Begins an inquiry, and a question to the tail, if none is under way.
    pub(super) fn begin_reads(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.reads.asked.is_empty() && !self.reads.fresh.is_empty() {
            self.reads.asked = core::mem::take(&mut self.reads.fresh);
            self.link.look(now, Ask::Inquiry, out);
        }
        if self.reads.dirty_asked.is_empty() && !self.reads.dirty_fresh.is_empty() {
            self.reads.dirty_asked = core::mem::take(&mut self.reads.dirty_fresh);
            self.query(now, out);
        }
    }

    /// The inquiry has ended, and this node has entered the chain that it found.
    pub(super) fn confirmed(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for reads in core::mem::take(&mut self.reads.asked) {
            self.reads.leave(&reads);
            match self.whole {
                true => self.read_confirmed(now, reads, out),
                false => self.hand_on_read(reads, false, out),
            }
        }
    }

    /// The master leaves the inquiry unanswered.
    pub(super) fn not_confirmed(&mut self) {
        for reads in core::mem::take(&mut self.reads.asked) {
            self.reads.leave(&reads);
            self.reads.dropped += 1;
        }
    }

    /// Answers what is clean; the rest waits for the tail, or goes there.
    fn read_confirmed(&mut self, now: Instant, reads: Batch, out: &mut Out<'_, Self>) {
        let (clean, dirty) = self.divide(reads);
        if !clean.is_empty() {
            self.reads.clean += clean.len() as u64;
            self.read_batch(now, &clean, out);
        }
        if dirty.is_empty() {
            return;
        }
        self.reads.dirty += dirty.len() as u64;
        out.reached(branch::DIRTY);
        if self.is_tail() {
            return self.wait_for_disk(dirty);
        }
        let tail = self.chain.tail();
        match tail.filter(|_| forwards_reads(self.config.options())) {
            Some(tail) => {
                out.reached(branch::READ_AT_TAIL);
                let (epoch, reads) = (self.chain.epoch, dirty);
                self.send(tail, In::ReadAtTail { epoch, reads }, out);
            }
            None if self.reads.admit(&dirty) => self.reads.dirty_fresh.push(dirty),
            None => {}
        }
    }

    /// At the tail what is dirty is committed when the disk has it.
    fn wait_for_disk(&mut self, reads: Batch) {
        if self.reads.admit(&reads) {
            self.reads.waiting.push_back((self.history.end(), reads));
        }
    }

    /// The clean reads of a batch, and the dirty ones.
    fn divide(&self, reads: Batch) -> (Batch, Batch) {
        if self.history.pending() == 0 {
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

    /// Another member has dirty reads for the tail. If this is not the tail of that member's chain,
    /// they are reads like others.
    pub(super) fn on_read_at_tail(
        &mut self,
        now: Instant,
        epoch: ChainEpoch,
        reads: Batch,
        out: &mut Out<'_, Self>,
    ) {
        if epoch != self.chain.epoch || !self.is_tail() {
            return self.on_read(reads, true, out);
        }
        match self.history.applied() >= self.tail_from {
            true => self.read_batch(now, &reads, out),
            false => self.wait_for_disk(reads),
        }
    }

    /// Asks the tail what is committed.
    fn query(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.is_tail() {
            self.reads.query_at = None;
            for reads in core::mem::take(&mut self.reads.dirty_asked) {
                self.reads.leave(&reads);
                self.wait_for_disk(reads);
            }
            return;
        }
        self.reads.inquiry += 1;
        self.reads.queries += 1;
        self.ask_tail(now, out);
    }

    /// Asks the tail, or asks it the same again: any answer to this number will do.
    fn ask_tail(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.reads.query_at = Some(now + self.config.options().resend_after);
        let message = In::Query {
            from: self.id,
            epoch: self.chain.epoch,
            inquiry: self.reads.inquiry,
        };
        if let Some(tail) = self.chain.tail() {
            self.send(tail, message, out);
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
        self.reads.queries_here.insert(from, (epoch, inquiry));
    }

    /// Answers those who have asked what is committed: when all is that earlier tails may have
    /// committed.
    pub(super) fn answer_queries(&mut self, out: &mut Out<'_, Self>) {
        let committed = self.history.applied();
        if self.reads.queries_here.is_empty() || !self.is_tail() || committed < self.tail_from {
            return;
        }
        for (from, (epoch, inquiry)) in core::mem::take(&mut self.reads.queries_here) {
            if epoch == self.chain.epoch {
                let message = In::Committed {
                    epoch,
                    inquiry,
                    committed,
                };
                self.send(from, message, out);
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
        if epoch != self.chain.epoch || !self.whole || !is_asked {
            self.stale += 1;
            return;
        }
        self.commit(now, committed, out);
        self.answer_dirty(now, out);
    }

    /// What is committed is applied.
    fn answer_dirty(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.reads.query_at = None;
        for reads in core::mem::take(&mut self.reads.dirty_asked) {
            self.reads.leave(&reads);
            self.read_batch(now, &reads, out);
        }
    }

    /// The chain is another: dirty reads are for its tail, or for another node if this one is no
    /// member. What an inquiry has found holds on: no chain later than this was decided before it.
    pub(super) fn reads_in_new_chain(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.whole {
            self.reads.query_at = None;
            let mut all = core::mem::take(&mut self.reads.fresh);
            all.append(&mut self.reads.dirty_fresh);
            all.append(&mut self.reads.dirty_asked);
            for reads in all {
                self.reads.leave(&reads);
                self.hand_on_read(reads, false, out);
            }
        } else if !self.reads.dirty_asked.is_empty() {
            self.query(now, out);
        }
    }
}
