//! Reads.
//!
//! A linearizable read asks a majority of acceptors which recorded instances it conflicts with, and
//! is answered when these are executed here. A write that was answered before had been recorded by
//! a majority; the two majorities meet, and an acceptor names the write, or a later one that
//! depends on it. Nothing is recorded for the read: it changes nothing, and one replica answers it.
//!
//! This is not enough for a read of several keys. What it conflicts with need not depend on each
//! other: of two writes the replica may have executed the one that was sent when the other was
//! answered already, and no order of the three explains what it would answer. Such a read becomes
//! an instance, which conflicts with the writes of all its keys, and the replica that is named for
//! the instance answers it when its turn has come. Of a read of one key this cannot happen, because
//! of two writes of a key one depends on the other.
//!
//! A sequential read must see what its lane has seen. As long as all of the lane's answers came
//! from this process, it is answered at once.

use super::Replica;
use crate::epaxos::executed::ExecutedSet;
use crate::epaxos::instance::{Deps, InstanceId};
use crate::epaxos::message::{Sees, Touched};
use crate::epaxos::{acceptor, branch};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::machine::Footprint;
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, BatchBuilder};
use ionian_replication::distance::Distances;
use ionian_replication::suspicion::Suspicion;

/// The most bytes of reads that wait. Reads beyond are dropped, and their clients send them again;
/// one that comes alone always has room.
const MAX_BYTES: usize = 64 << 20;

/// The most questions under way. Reads that come then wait for the next.
const MAX_INQUIRIES: usize = 1 << 12;

/// A question is given up after this many attempts; the client has repeated its reads by then.
const ATTEMPTS: u32 = 6;

/// A read that waits for instances longer than this is dropped: no lane waits so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question about more keys than this is about everything.
const MAX_KEYS: usize = 1 << 10;

/// See the top of this file.
pub(super) struct Reads {
    near: AcceptorSet,
    suspicion: Suspicion<AcceptorId>,
    distances: Distances<AcceptorId>,
    turn: u64,
    /// Linearizable reads that came since the last question.
    open: BatchBuilder,
    /// What they read.
    touched: Footprint,
    inquiries: BTreeMap<u64, Inquiry>,
    /// When each of them is asked again.
    timers: BTreeSet<(Instant, u64)>,
    next: u64,
    /// Reads that wait for an instance, and all that they must see.
    waiting: BTreeMap<InstanceId, Vec<Waiting>>,
    /// Reads that are to be answered when the answers before have left.
    rest: VecDeque<Batch>,
    /// The bytes of all of these.
    bytes: usize,
    pub(super) count: u64,
    /// How many of them became instances.
    pub(super) proposed: u64,
}

struct Inquiry {
    reads: Batch,
    touched: Touched,
    asked: AcceptorSet,
    answered: AcceptorSet,
    deps: Deps,
    at: Instant,
    attempts: u32,
}

struct Waiting {
    since: Instant,
    deps: Deps,
    /// How many of those named one by one are known to be executed: nothing takes that back.
    passed: usize,
    reads: Batch,
}

impl Waiting {
    fn byte_len(&self) -> usize {
        self.reads.byte_len() + self.deps.byte_len()
    }

    /// An instance that it must see and that is not executed.
    fn first_missing(&mut self, executed: &ExecutedSet) -> Option<InstanceId> {
        let left = &self.deps.exact()[self.passed..];
        let is_missing = |id: &InstanceId| !executed.contains(*id);
        let next = left.iter().position(is_missing);
        self.passed += next.unwrap_or(left.len());
        let below = |(space, below): &(_, u64)| {
            let number = executed.prefix(*space);
            (number < *below).then_some(InstanceId::new(*space, number))
        };
        let exact = self.deps.exact().get(self.passed).copied();
        exact.or_else(|| self.deps.below().iter().find_map(below))
    }
}

impl Reads {
    pub(super) fn new(near: AcceptorSet, random: &mut Random) -> Self {
        Reads {
            near,
            suspicion: Suspicion::default(),
            distances: Distances::default(),
            turn: random.any() >> 1,
            open: BatchBuilder::default(),
            touched: Footprint::default(),
            inquiries: BTreeMap::new(),
            timers: BTreeSet::new(),
            // Answers to an earlier process must not be taken for answers to this one.
            next: random.any() >> 1,
            waiting: BTreeMap::new(),
            rest: VecDeque::new(),
            bytes: 0,
            count: 0,
            proposed: 0,
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let first = self.timers.first().map(|(at, _)| *at);
        // Those that can be answered wait only for answers to leave: they are next.
        match self.rest.is_empty() {
            true => first,
            false => Some(Instant::ZERO),
        }
    }

    /// How many batches of reads wait for instances.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= MAX_BYTES
    }

    pub(super) fn invariants(&self) {
        let inquiries = self.inquiries.values();
        let asked = inquiries.map(|inquiry| inquiry.reads.byte_len());
        let waiting = self.waiting.values().flatten().map(Waiting::byte_len);
        let all = asked
            .chain(waiting)
            .chain(self.rest.iter().map(Batch::byte_len));
        assert_eq!(
            all.sum::<usize>() + self.open.byte_len(),
            self.bytes,
            "a replica lost count of its reads"
        );
        let timers = self.inquiries.iter().map(|(number, it)| (it.at, *number));
        assert!(
            timers.collect::<BTreeSet<_>>() == self.timers,
            "no timer for a question"
        );
    }

    /// A question is asked.
    fn put(&mut self, number: u64, inquiry: Inquiry) {
        self.timers.insert((inquiry.at, number));
        self.inquiries.insert(number, inquiry);
    }

    /// A question is answered, given up, or to be asked again.
    fn take(&mut self, number: u64) -> Option<Inquiry> {
        let inquiry = self.inquiries.remove(&number)?;
        self.timers.remove(&(inquiry.at, number));
        Some(inquiry)
    }
}

impl Replica {
    /// Reads of a client.
    pub(super) fn on_read(
        &mut self,
        now: Instant,
        sees: Sees,
        reads: Batch,
        out: &mut Out<'_, Self>,
    ) {
        if !self.snapshots.has_state() {
            self.stale += 1;
            return;
        }
        self.reads.count += reads.len() as u64;
        let seen_here = match sees {
            Sees::Anything {} => true,
            Sees::Process { life } => life == self.life,
            Sees::Everything {} => false,
        };
        if !seen_here && !self.touches_one_key_each(&reads) {
            return self.propose_reads(now, reads, out);
        }
        if !self.reads.has_room(reads.byte_len()) {
            self.stale += 1;
            return;
        }
        self.reads.bytes += reads.byte_len();
        match seen_here {
            true => self.answer_reads(now, reads),
            // What the lane has seen of another process is seen by a linearizable read.
            false => self.reads.open.append(&reads),
        }
    }

    /// Whether each of these reads touches one key at most. Then the next question is about these
    /// keys too.
    fn touches_one_key_each(&mut self, reads: &Batch) -> bool {
        let touched = &mut self.reads.touched;
        let (keys, everything) = (touched.reads.len(), touched.everything);
        self.executor.touches_unordered(reads, touched);
        let of_one = touched.everything == everything
            && touched.reads.len() <= keys + 1
            && touched.writes.is_empty();
        if of_one || self.executor.reads_single_keys(reads) {
            return true;
        }
        touched.reads.truncate(keys);
        touched.writes.clear();
        touched.everything = everything;
        false
    }

    /// Has a leader propose reads of several keys; the clients send them again if it does not.
    fn propose_reads(&mut self, now: Instant, batch: Batch, out: &mut Out<'_, Self>) {
        self.reads.proposed += batch.len() as u64;
        self.reads.turn += 1;
        out.reached(branch::READS_PROPOSED);
        self.propose(now, (self.leaders, self.reads.turn), batch, out);
    }

    /// Answers reads from the present state, as far as the answers leave at once.
    fn answer_reads(&mut self, now: Instant, reads: Batch) {
        self.reads.bytes -= reads.byte_len();
        let time = self.log_time(now);
        if let Some(rest) = self.executor.read(time, &reads, &mut self.answers) {
            self.reads.bytes += rest.byte_len();
            self.reads.rest.push_back(rest);
        }
    }

    /// Answers reads that waited for answers to leave.
    pub(super) fn answer_rest(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some(reads) = self.reads.rest.pop_front() {
            self.answer_reads(now, reads);
            self.flush_answers(out);
        }
    }

    /// Asks acceptors what the reads conflict with that have come.
    pub(super) fn begin_inquiry(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.reads.open.is_empty() || self.reads.inquiries.len() >= MAX_INQUIRIES {
            return;
        }
        let reads = self.reads.open.take();
        let mut footprint = core::mem::take(&mut self.reads.touched);
        if footprint.reads.len() + footprint.writes.len() > MAX_KEYS {
            footprint = Footprint {
                everything: true,
                ..Footprint::default()
            };
        }
        let asked = self.pick_majority(now);
        let inquiry = Inquiry {
            reads,
            touched: Touched(footprint),
            asked,
            answered: Set::EMPTY,
            deps: Deps::NONE,
            at: now + self.config.options().resend_after,
            attempts: 1,
        };
        let number = self.reads.next;
        self.reads.next += 1;
        out.inquires_for(number, &inquiry.reads);
        self.pre_read(number, &inquiry.touched, asked, out);
        self.reads.put(number, inquiry);
    }

    /// A majority of the acceptors that answer, that of this node first, then the nearest.
    fn pick_majority(&mut self, now: Instant) -> AcceptorSet {
        let reads = &mut self.reads;
        let all = self.config.recorders();
        if reads.distances.asks(now, reads.next) {
            return all;
        }
        let trusted = reads.suspicion.trusted(all);
        reads.turn += 1;
        let sets = [trusted.and(reads.near), trusted, all];
        let asked = reads
            .distances
            .choose(&sets, self.config.majority(), reads.turn);
        asked.or(reads.suspicion.probe(now))
    }

    fn pre_read(&self, inquiry: u64, touched: &Touched, to: AcceptorSet, out: &mut Out<'_, Self>) {
        let message = acceptor::In::PreRead {
            from: self.id,
            inquiry,
            touched: touched.clone(),
        };
        out.send(self.config.to_recorders(to, message));
    }

    /// What an acceptor has recorded that reads conflict with.
    pub(super) fn on_pre_read_ack(
        &mut self,
        now: Instant,
        from: AcceptorId,
        number: u64,
        deps: &Deps,
    ) {
        self.reads.suspicion.heard(from);
        self.reads.distances.answered(now, from, number);
        let Some(inquiry) = self.reads.inquiries.get_mut(&number) else {
            return;
        };
        inquiry.answered.insert(from);
        inquiry.deps.union(deps);
        if inquiry.answered.len() < self.config.majority() {
            return;
        }
        let Inquiry { reads, deps, .. } = self.reads.take(number).expect("just seen");
        self.missing.note_deps(&deps);
        self.answer_or_wait(
            now,
            Waiting {
                since: now,
                deps,
                passed: 0,
                reads,
            },
        );
    }

    /// Answers reads if all that they must see is executed. Without room for what they wait for
    /// they are dropped.
    fn answer_or_wait(&mut self, now: Instant, mut reads: Waiting) {
        let Some(first) = reads.first_missing(self.graph.executed()) else {
            return self.answer_reads(now, reads.reads);
        };
        let bytes = reads.deps.byte_len();
        if !self.reads.has_room(bytes) && !self.reads.waiting.is_empty() {
            self.reads.bytes -= reads.reads.byte_len();
            self.stale += 1;
            return;
        }
        self.reads.bytes += bytes;
        self.reads.waiting.entry(first).or_default().push(reads);
    }

    /// Looks again at reads that waited.
    fn look_again(&mut self, now: Instant, reads: Waiting) {
        self.reads.bytes -= reads.deps.byte_len();
        self.answer_or_wait(now, reads);
    }

    /// An instance is executed: reads that waited for it go on.
    pub(super) fn answer_waiting(&mut self, now: Instant, id: InstanceId) {
        if self.reads.waiting.is_empty() {
            return;
        }
        for reads in self.reads.waiting.remove(&id).unwrap_or_default() {
            self.look_again(now, reads);
        }
    }

    /// The state is a peer's: all reads look again.
    pub(super) fn answer_all_waiting(&mut self, now: Instant) {
        let all = core::mem::take(&mut self.reads.waiting);
        for reads in all.into_values().flatten() {
            self.look_again(now, reads);
        }
    }

    /// Asks all acceptors, for want of answers from those asked first.
    pub(super) fn ask_again_for_reads(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let all = self.config.recorders();
        while let Some((_, number)) = self.reads.timers.first().copied().filter(|it| it.0 <= now) {
            let mut inquiry = self.reads.take(number).expect("a timer is of a question");
            let silent = all.without(inquiry.answered);
            self.reads.suspicion.silent(inquiry.asked.and(silent), now);
            if inquiry.attempts >= ATTEMPTS {
                self.reads.bytes -= inquiry.reads.byte_len();
                continue;
            }
            let wait = doubled(
                self.config.options().resend_after,
                inquiry.attempts,
                ATTEMPTS,
            );
            (inquiry.asked, inquiry.at) = (all, now + wait);
            inquiry.attempts += 1;
            out.reached(branch::READ_ASKED_AGAIN);
            out.inquires_for(number, &inquiry.reads);
            self.pre_read(number, &inquiry.touched, silent, out);
            self.reads.put(number, inquiry);
        }
        self.drop_hopeless(now);
    }

    /// Drops reads whose lanes have given up.
    fn drop_hopeless(&mut self, now: Instant) {
        let bytes = &mut self.reads.bytes;
        self.reads.waiting.retain(|_, all| {
            all.retain(|waiting| {
                let stays = now.since(waiting.since) < PATIENCE;
                *bytes -= if stays { 0 } else { waiting.byte_len() };
                stays
            });
            !all.is_empty()
        });
    }
}
