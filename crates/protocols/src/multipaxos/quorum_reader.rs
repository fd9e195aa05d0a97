//! The first half of a linearizable read (3.4), for read batchers and for clients without one: asks
//! a read quorum of acceptors for their vote watermarks. One inquiry serves all reads that were
//! waiting when it began, since each of them began before it.
//!
//! Why the largest watermark of a read quorum is enough: a write that was acknowledged before the
//! inquiry began was executed, so it and every slot below it was chosen, by votes of a write
//! quorum, each made before the acceptor answered. The read quorum meets that write quorum, so some
//! answer lies above the write's slot. Across a change of the members that holds of answers that
//! are given while the reader's configuration is in force (`docs/protocols/multipaxos.md`,
//! "Membership"): see `reconfigure`.

use super::config::{Config, Highest};
use super::message::ReaderId;
use super::{Envelope, acceptor, kind};
use crate::parts::proxy_leader;
use crate::pigpaxos::fanout::Leg;
use crate::pigpaxos::message::Watermarks;
use crate::pigpaxos::relay;
use crate::pigpaxos::routes::Routes;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::time::{Instant, earliest};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, Command, OpenBatch};
use ionian_replication::suspicion::Suspicion;

/// Reads waiting for a watermark.
pub(super) struct QuorumReader {
    config: Arc<Config>,
    id: ReaderId,
    node: NodeId,
    near: AcceptorSet,
    /// Set where it asks acceptors through relays (PigPaxos 8.2).
    routes: Option<Box<Routes>>,
    seed: u64,
    suspicion: Suspicion<AcceptorId>,
    open: OpenBatch,
    inquiries: BTreeMap<u64, Inquiry>,
    /// The bytes of the reads of all inquiries.
    bytes: usize,
    next_inquiry: u64,
    turn: u64,
    /// The number of reads dropped for want of room.
    dropped: u64,
}

struct Inquiry {
    reads: Batch,
    asked: AcceptorSet,
    answered: AcceptorSet,
    watermark: Slot,
    /// How far replicas beside acceptors have executed, as far as that is known.
    executed: Vec<(Slot, AcceptorId)>,
    /// The highest epochs that acceptors have promised rounds of.
    epochs: Highest<Epoch>,
    ask_at: Instant,
    attempts: u32,
}

/// A PreRead to send: to whom, the number of the inquiry, and whether acceptors were asked for it
/// before.
pub(super) type Ask = (AcceptorSet, u64, bool);

/// An inquiry that has ended.
pub(super) struct Found {
    pub(super) reads: Batch,
    /// The slot before which a replica must have executed everything to answer them.
    pub(super) watermark: Slot,
    /// Replicas that have done so (PigPaxos 8.2): none where that is not known.
    pub(super) ready: Set<ReplicaId>,
}

/// The reader drops an inquiry after this many attempts; the client has repeated its reads by then.
const ATTEMPTS: u32 = 6;

/// The most inquiries under way. At the limit, reads wait for one to end.
const MAX_INQUIRIES: usize = 1 << 12;

/// The most bytes of reads that wait, in inquiries and for the next one. Reads beyond the limit are
/// dropped, and their clients send them again. Reads that come alone always have room.
const MAX_BYTES: usize = 64 << 20;

impl QuorumReader {
    pub(super) fn new(
        config: Arc<Config>,
        id: ReaderId,
        node: NodeId,
        random: &mut Random,
    ) -> Self {
        let mut reader = QuorumReader {
            id,
            routes: None,
            seed: 0,
            near: config.near(kind::Acceptor, node),
            node,
            suspicion: Suspicion::default(),
            open: OpenBatch::default(),
            inquiries: BTreeMap::new(),
            bytes: 0,
            // Answers to an earlier process must not be taken for answers to this one.
            next_inquiry: random.any() >> 1,
            turn: random.any() >> 1,
            dropped: 0,
            config,
        };
        reader.seed = reader.turn;
        reader.follow_relays();
        reader
    }

    fn follow_relays(&mut self) {
        let relaying = self.config.relaying();
        match relaying.is_some_and(|relaying| relaying.settings.reads) {
            true => Routes::follow(&mut self.routes, &self.config, (self.node, self.seed)),
            false => self.routes = None,
        }
    }

    /// The membership has changed. What acceptors told before does not count: quorums of the new
    /// configuration meet those of the writes before only in what their members say once it is in
    /// force. All inquiries begin anew, under numbers of their own, so that late answers are not
    /// taken for new ones.
    pub(super) fn reconfigure(&mut self, now: Instant, config: Arc<Config>) {
        self.near = config.near(kind::Acceptor, self.node);
        self.config = config;
        self.follow_relays();
        self.bytes = 0;
        for (_, inquiry) in core::mem::take(&mut self.inquiries) {
            let attempts = inquiry.attempts;
            self.inquire(inquiry.reads, AcceptorSet::EMPTY, now, attempts);
        }
    }

    /// Begins an inquiry of `asked`, who are given until `ask_at` to answer.
    fn inquire(&mut self, reads: Batch, asked: AcceptorSet, ask_at: Instant, attempts: u32) -> Ask {
        let number = self.next_inquiry;
        self.next_inquiry += 1;
        self.bytes += reads.byte_len();
        let (answered, watermark, epochs) = (AcceptorSet::EMPTY, Slot::ZERO, Highest::default());
        self.inquiries.insert(
            number,
            Inquiry {
                reads,
                asked,
                answered,
                watermark,
                executed: Vec::new(),
                epochs,
                ask_at,
                attempts,
            },
        );
        (asked, number, false)
    }

    /// Adds reads to the inquiry that begins next, if there is room.
    pub(super) fn add(&mut self, now: Instant, reads: &Batch) {
        match self.has_room(reads.byte_len()) {
            true => self.open.append(now, reads),
            false => self.dropped += reads.len() as u64,
        }
    }

    /// As [`add`](Self::add), of one read.
    pub(super) fn add_one(&mut self, now: Instant, read: &Command) {
        match self.has_room(read.payload.len()) {
            true => self.open.push(now, read),
            false => self.dropped += 1,
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held = self.bytes + self.open.byte_len();
        held == 0 || held + bytes <= MAX_BYTES
    }

    /// Begins an inquiry for the reads that wait, if it is time to.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Ask> {
        let options = self.config.options();
        let under_way = self.inquiries.len();
        if under_way >= MAX_INQUIRIES || !self.open.is_due(now, under_way, options) {
            return None;
        }
        let ask_at = now + options.resend_after;
        self.turn += 1;
        let asked = self.pick_quorum().or(self.suspicion.probe(now));
        let reads = self.open.take();
        Some(self.inquire(reads, asked, ask_at, 1))
    }

    fn pick_quorum(&self) -> AcceptorSet {
        let quorums = &self.config.quorums;
        let all = quorums.members();
        quorums
            .read_quorum(self.suspicion.trusted(all), self.near, self.turn)
            .unwrap_or(all)
    }

    /// Sends an inquiry: through relays, unless it was sent so before and not answered.
    pub(super) fn ask<R: Role<Send = Envelope>>(
        &mut self,
        now: Instant,
        (to, inquiry, again): Ask,
        out: &mut Out<'_, R>,
    ) {
        let (from, mut direct) = (self.id, to);
        if let Some(routes) = self.routes.as_mut().filter(|_| !again) {
            direct = AcceptorSet::EMPTY;
            let patience = self.config.options().resend_after.as_micros() as u64;
            let legs = routes.divide(now, proxy_leader::Ask::first(to), |branch| {
                out.reached(branch)
            });
            for leg in &legs {
                match *leg {
                    Leg::Direct(acceptors) => direct = direct.or(acceptors),
                    Leg::Relayed { relay, members, .. } => {
                        routes.asked(relay, now);
                        let message = relay::In::PreRead {
                            from,
                            members,
                            patience,
                            inquiry,
                        };
                        out.send(Envelope::ToRelays(Set::one(relay), message));
                    }
                }
            }
            routes.put_back(legs);
        }
        if !direct.is_empty() {
            let message = acceptor::In::PreRead { from, inquiry };
            out.send(Envelope::ToAcceptors(direct, message));
        }
    }

    /// Takes the watermarks of several acceptors in.
    pub(super) fn on_watermarks(&mut self, now: Instant, told: &Watermarks) -> Option<Found> {
        if let (Some(relay), Some(routes)) = (told.relay, &mut self.routes) {
            routes.heard(now, relay, (told.answered, told.missing));
        }
        if told.executed > Slot::ZERO
            && let Some(inquiry) = self.inquiries.get_mut(&told.inquiry)
            && inquiry.executed.len() < MAX_INSTANCES
        {
            inquiry.executed.push((told.executed, told.ahead));
        }
        self.take_in(told.answered, told.inquiry, (told.watermark, told.epoch))
    }

    /// Takes a watermark in. When it completes a read quorum: what was found.
    pub(super) fn on_ack(
        &mut self,
        from: AcceptorId,
        number: u64,
        told: (Slot, Epoch),
    ) -> Option<Found> {
        self.take_in(Set::one(from), number, told)
    }

    /// Acceptors have no watermark above this one, and the highest rounds that they have promised
    /// are of this epoch.
    fn take_in(
        &mut self,
        from: AcceptorSet,
        number: u64,
        (watermark, epoch): (Slot, Epoch),
    ) -> Option<Found> {
        from.iter().for_each(|from| self.suspicion.heard(from));
        let inquiry = self.inquiries.get_mut(&number)?;
        inquiry.answered = inquiry.answered.or(from);
        inquiry.watermark = inquiry.watermark.max(watermark);
        from.iter()
            .for_each(|from| inquiry.epochs.raise(&self.config, from, epoch));
        if !self.config.can_read(inquiry.answered, inquiry.epochs) {
            return None;
        }
        let inquiry = self.inquiries.remove(&number).expect("just found");
        self.bytes -= inquiry.reads.byte_len();
        let ready = self.ready(&inquiry);
        Some(Found {
            reads: inquiry.reads,
            watermark: inquiry.watermark,
            ready,
        })
    }

    /// The replicas beside acceptors that are known to have executed what the reads of an inquiry
    /// must see. They are enough for an answer at once, whatever others have: those that have not
    /// executed so much are not asked at what was only voted for.
    fn ready(&self, inquiry: &Inquiry) -> Set<ReplicaId> {
        let far = inquiry.executed.iter();
        let far = far.filter(|(executed, _)| *executed >= inquiry.watermark);
        let layout = self.config.layout();
        let nodes = far.filter_map(|(_, it)| {
            let (kind, index) = (kind::Acceptor, it.0);
            layout.node_of(Address { kind, index })
        });
        let ready = nodes.fold(Set::EMPTY, |all: Set<ReplicaId>, node| {
            all.or(self.config.near(kind::Replica, node))
        });
        ready.and(self.config.serving())
    }

    /// The inquiries to send to all acceptors, for want of answers from those asked first.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Ask> {
        let all = self.config.quorums.members();
        let resend_after = self.config.options().resend_after;
        let (mut asks, suspicion, bytes) = (Vec::new(), &mut self.suspicion, &mut self.bytes);
        self.inquiries.retain(|number, inquiry| {
            if inquiry.ask_at > now {
                return true;
            }
            suspicion.silent(inquiry.asked.without(inquiry.answered), now);
            if inquiry.attempts == ATTEMPTS {
                *bytes -= inquiry.reads.byte_len();
                return false;
            }
            inquiry.asked = all;
            inquiry.ask_at = now + doubled(resend_after, inquiry.attempts, ATTEMPTS);
            inquiry.attempts += 1;
            asks.push((all.without(inquiry.answered), *number, true));
            true
        });
        asks
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        // At the limit the next inquiry waits for another to end, and not for a time.
        let is_open = self.inquiries.len() < MAX_INQUIRIES;
        let late = self.open.closes_at(self.config.options());
        let late = late.filter(|_| is_open);
        self.inquiries
            .values()
            .fold(late, |next, inquiry| earliest(next, Some(inquiry.ask_at)))
    }

    /// The number of reads that it has dropped for want of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Asserts what must hold between two calls.
    pub(super) fn invariants(&self) {
        let reads = self.inquiries.values().map(|inquiry| &inquiry.reads);
        assert_eq!(
            reads.map(Batch::byte_len).sum::<usize>(),
            self.bytes,
            "a reader lost count of the reads that wait"
        );
        assert!(
            self.inquiries.len() <= MAX_INQUIRIES,
            "a reader has too many inquiries under way"
        );
    }

    /// How many inquiries are under way.
    pub(super) fn under_way(&self) -> usize {
        self.inquiries.len()
    }
}
