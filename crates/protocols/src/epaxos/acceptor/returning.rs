//! How an acceptor that has lost its memory, or its disk, takes part again.
//!
//! Let A be the acceptor, and C the others. It has to keep two promises of a process of which it
//! knows nothing.
//!
//! *Agreement.* A is silent about each instance that the former process may have known: it records
//! no command for it, votes, promises and testifies no more, and counts as one of the f that may
//! fail. Which these are, the leaders say: a leader that A asks proposes the instances from a
//! [`Boundary`](super::In::Boundary) on later than that, and all its later lives begin after that.
//! Of a leader without a boundary A knows nothing. A decision that A learns is an answer all the
//! same. When all leaders have answered, and all instances before the boundaries, and all that the
//! others know of earlier spaces, are decided here, A is *whole*: it fails in none, and another
//! acceptor may fail.
//!
//! An earlier space of a leader that has answered is over: that process is gone, and those that A
//! copies from record no more commands of it. About an instance of such a space that none of them
//! knows A answers like a new acceptor. That is safe: A's former process may have promised, voted
//! or recorded a command, but the quorums for it have a member besides A among those that A copies
//! from (n - floor(n/2) others meet floor(n/2) + f - 1 others of a fast quorum, floor(n/2) of a
//! majority, and n - f - 1 of a recovery's promises, without which nothing is voted for). Had that
//! member answered before A's request, it would know the instance; after it, it says that A lives
//! again, and the answers of A's former process are dropped.
//!
//! *Conflicts.* Of two conflicting commands some acceptor has recorded both. A therefore copies
//! what n - floor(n/2) of C have recorded before it answers anything. Let x be a command that a
//! majority M with A's former process in it has recorded. M without A has floor(n/2) members at
//! least, so one of them, B, is among those that A copies from. Then
//!
//! - either B had recorded x before it answered A's first request. It still has it, or a command
//!   in its place that depends on it, and A copies that;
//! - or B has recorded x later. B knows of A's new life since that request, and says so with each
//!   command that it records. Who counts M drops the answer of A's former process
//!   (`Leader::learn_lives`), so M was not counted. Should B lose its memory too, it learns of A's
//!   life from those that it copies from.
//!
//! In a recovery (case 6 of `recovery.rs`) the leader's own acceptor is a member of M without an
//! answer to the recovery. If A is that acceptor, B ignores commands of the former lives of A's
//! leader from the first request on, so only the first case is left: A asks for nothing before its
//! leader has told it the boundary of its present life.
//!
//! All that is said here of a copy holds of one in pages: what B records after the first is marked.
//! An instance that replicas keep in snapshots is copied too: B has it only because its index names
//! it, so a command or a read to come must wait for it.

use super::{Acceptor, Known, Record};
use crate::epaxos::instance::{InstanceId, Space};
use crate::epaxos::message::{Choice, Copy, Life, Lives, Page, Payload, Reach};
use crate::epaxos::{Envelope, branch, leader};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use ionian_kernel::id::{AcceptorId, AcceptorSet, LeaderId, Set};
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::page;

/// A page ends after this number of bytes, or of instances.
const PAGE_BYTES: usize = 256 << 10;
const PAGE: usize = 512;

/// What an instance takes in a page beside its command, about.
const BYTES_OF_EACH: usize = 64;

/// An unanswered request is sent again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Return {
    /// Whether it has copied what enough others have recorded.
    copied: bool,
    /// For each leader that has answered, its space then, and the number from which on all
    /// instances are new. All its later spaces are new.
    boundaries: SmallMap<LeaderId, (Space, u64)>,
    /// Those whose earlier spaces were over for all from which it has copied.
    over: Set<LeaderId>,
    /// Where the next page of each other acceptor begins, and when it was asked for.
    pages: SmallMap<AcceptorId, (InstanceId, Option<Instant>)>,
    finished: AcceptorSet,
    /// Whether it expects the decision of each instance before a boundary.
    expects: bool,
    /// Whether all that it is silent about is decided here.
    whole: bool,
}

impl Return {
    /// What was kept on disk of one.
    pub(super) fn kept(copied: bool, boundaries: &[Reach], over: Set<LeaderId>) -> Self {
        let boundary = |reach: &Reach| (reach.space.leader, (reach.space, reach.below));
        Return {
            copied,
            boundaries: boundaries.iter().map(boundary).collect(),
            over,
            ..Return::default()
        }
    }

    /// What is to be kept on disk.
    pub(super) fn record(&self) -> Record {
        let reach = |(space, below): &(Space, u64)| Reach {
            space: *space,
            below: *below,
        };
        Record::Returning {
            copied: self.copied,
            boundaries: self.boundaries.values().map(reach).collect(),
            over: self.over,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether it is silent about an instance; `is_copied` where another acceptor knows it.
    fn is_silent(&self, id: InstanceId, is_copied: bool) -> bool {
        let Some((space, below)) = self.boundaries.get(&id.space.leader) else {
            return true;
        };
        let is_old = match id.space.life.cmp(&space.life) {
            Ordering::Less => is_copied || !self.over.contains(space.leader),
            Ordering::Equal => id.number < *below,
            Ordering::Greater => false,
        };
        is_old || !self.copied
    }

    /// Whether it copies: the first time, or again because another leader has answered since then,
    /// whose earlier spaces were not over for those from which it has copied.
    fn copies(&self) -> bool {
        !self.copied || self.over != self.boundaries.keys().copied().collect()
    }

    /// The space in which a leader has answered.
    fn space_of(&self, leader: LeaderId) -> Option<Space> {
        self.boundaries.get(&leader).map(|(space, _)| *space)
    }
}

impl Acceptor {
    /// Whether it has no index yet, because the former one is lost.
    pub(super) fn is_copying(&self) -> bool {
        self.returning
            .as_ref()
            .is_some_and(|returning| !returning.copied)
    }

    /// Whether an earlier process may have known an instance, and this one does not.
    pub(super) fn is_silent(&self, id: InstanceId) -> bool {
        let is_copied = |known: &Known| known.copied.is_some();
        let returning = self.returning.as_ref();
        returning.is_some_and(|it| it.is_silent(id, self.store.get(id).is_some_and(is_copied)))
    }

    /// Whether there is something left to do for its return.
    pub(super) fn is_returning(&self) -> bool {
        self.returning
            .as_ref()
            .is_some_and(|returning| !returning.whole)
    }

    /// A leader asks about an instance that it is silent about. If that leader was not there to
    /// tell the boundary, it is asked now.
    pub(super) fn turn_away(&mut self, id: InstanceId, out: &mut Out<'_, Self>) {
        let returning = self.returning.as_ref().filter(|it| it.copied);
        if returning.is_some_and(|it| it.space_of(id.space.leader).is_none()) {
            out.reached(branch::LEADER_WITHOUT_BOUNDARY);
            self.ask_for_boundary(Set::one(id.space.leader), out);
        }
    }

    /// A process before this one had begun to copy. The leader of this node is another process too,
    /// and waits for the acceptor from its answer on.
    pub(super) fn resume_return(&mut self, out: &mut Out<'_, Self>) {
        if let Some(own) = self.leader().filter(|_| self.is_copying()) {
            self.ask_for_boundary(Set::one(own), out);
        }
    }

    fn ask_for_boundary(&self, of: Set<LeaderId>, out: &mut Out<'_, Self>) {
        let (from, duty, life) = (self.id, self.duty, self.life);
        let message = leader::In::Begin { from, duty, life };
        out.send(Envelope::ToLeaders(of, message));
    }

    /// Asks leaders for boundaries and other acceptors for what they have recorded.
    pub(super) fn go_on_returning(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (own, others) = (self.leader(), self.others());
        let Some(returning) = self.returning.as_mut().filter(|it| !it.whole) else {
            return;
        };
        let leaders = self.config.leaders().iter();
        let silent: Set<LeaderId> = leaders
            .filter(|id| returning.space_of(*id).is_none())
            .collect();
        if !returning.copies() && silent.is_empty() {
            if !returning.expects {
                return self.expect_all(out);
            }
            let mut open = self.store.all_undecided();
            let is_copied = |id| self.store.get(id).is_some_and(|it| it.copied.is_some());
            returning.whole = !open.any(|id| returning.is_silent(id, is_copied(id)));
            return;
        }
        let left = others.without(returning.finished);
        let is_bound = match own {
            Some(own) => returning.space_of(own).is_some(),
            None => !returning.boundaries.is_empty(),
        };
        let asks = returning.copies() && is_bound;
        if !silent.is_empty() {
            self.ask_for_boundary(silent, out);
        }
        if asks {
            left.iter().for_each(|id| self.ask_for_page(now, id, out));
        }
    }

    /// Asks another acceptor for the next page, unless the last request is on its way.
    fn ask_for_page(&mut self, now: Instant, from: AcceptorId, out: &mut Out<'_, Self>) {
        let (me, life) = (self.id, self.life);
        let Some(returning) = &mut self.returning else {
            return;
        };
        let leaders = self.config.leaders().iter();
        let spaces = leaders.filter_map(|id| returning.space_of(id)).collect();
        let (first, asked) = returning.pages.entry(from).or_default();
        if asked.is_some_and(|at| now.since(at) < ASK_AGAIN) {
            return;
        }
        *asked = Some(now);
        let message = super::In::Copy {
            from: me,
            life,
            spaces,
            first: *first,
        };
        out.send(self.duty.envelope(Set::one(from), message));
    }

    /// A leader says from which instance on all are new.
    pub(super) fn on_boundary(
        &mut self,
        now: Instant,
        life: u32,
        (space, below): (Space, u64),
        out: &mut Out<'_, Self>,
    ) {
        let is_own = life == self.life && self.config.leaders().contains(space.leader);
        let Some(returning) = self.returning.as_mut().filter(|_| is_own) else {
            return;
        };
        // The first stands: later ones only leave out instances that are known here.
        if returning.space_of(space.leader).is_some() {
            return;
        }
        returning.boundaries.insert(space.leader, (space, below));
        (returning.whole, returning.expects) = (false, false);
        // What it copies must be what others know after the leader's earlier spaces are over.
        returning.pages.clear();
        returning.finished = Set::EMPTY;
        out.persist(returning.record());
        self.expect_all(out);
        self.go_on_returning(now, out);
    }

    /// Learns the decision of all instances before boundaries: those that it has not copied are in
    /// flight. With a full store it goes on when replicas have stored snapshots.
    fn expect_all(&mut self, out: &mut Out<'_, Self>) {
        let Some(returning) = self.returning.as_ref().filter(|it| it.copied) else {
            return;
        };
        let boundaries: Vec<_> = returning.boundaries.values().copied().collect();
        for (space, below) in boundaries {
            for number in self.kept.below(space)..below {
                if self.store.is_full() {
                    return;
                }
                self.take_over(InstanceId::new(space, number), None, out);
            }
        }
        if let Some(returning) = &mut self.returning {
            returning.expects = true;
        }
    }

    /// An acceptor that has lost its memory asks for what this one has recorded. Leaders have begun
    /// these spaces, as it has heard from them.
    pub(super) fn on_copy(
        &mut self,
        (from, life): (AcceptorId, u32),
        spaces: &[Space],
        first: InstanceId,
        out: &mut Out<'_, Self>,
    ) {
        if self.is_copying() || !self.others().contains(from) {
            return;
        }
        if life < self.lives.of(from) {
            self.stale += 1;
            return;
        }
        let acceptor = from;
        let is_new = self.lives.learn(Life { acceptor, life });
        if self.close(spaces) || is_new {
            out.persist(self.peers());
        }
        let (mut instances, mut next) = (Vec::new(), None);
        let mut room = page::Page::new(PAGE_BYTES);
        for (id, known) in self.store.starting_at(first) {
            if instances.len() >= PAGE || !room.takes(known.copy_len() + BYTES_OF_EACH) {
                next = Some(id);
                break;
            }
            instances.push(copy(id, known));
        }
        let page = Page {
            instances,
            next,
            reaches: self.kept.reaches(),
            lives: self.lives.clone(),
            closed: self.closed(),
        };
        let message = super::In::Copied {
            from: self.id,
            life,
            first,
            spaces: spaces.len() as u32,
            page: Box::new(page),
        };
        out.send(self.duty.envelope(Set::one(from), message));
    }

    /// The earlier spaces of these leaders are over; says whether that is new.
    fn close(&mut self, spaces: &[Space]) -> bool {
        let mut is_new = false;
        for space in spaces {
            let first = self.closed.entry(space.leader).or_default();
            is_new |= *first < space.life;
            *first = (*first).max(space.life);
        }
        is_new
    }

    /// What is to be kept on disk of the lives of others.
    pub(super) fn peers(&self) -> Record {
        Record::Peers {
            lives: self.lives.clone(),
            closed: self.closed(),
        }
    }

    fn closed(&self) -> Vec<Space> {
        let space = |(leader, life): (&LeaderId, &u32)| Space {
            leader: *leader,
            life: *life,
        };
        self.closed.iter().map(space).collect()
    }

    /// Another acceptor knows of lives. This one may have known of them before it lost its memory,
    /// and told it with each answer.
    pub(super) fn learn_peers(&mut self, lives: &Lives, closed: &[Space], out: &mut Out<'_, Self>) {
        let peers = self.config.peers(self.duty, self.id);
        let known = lives.iter().filter(|life| peers.contains(life.acceptor));
        let mut is_new = self.close(closed);
        for life in known {
            is_new |= self.lives.learn(life);
        }
        if is_new {
            out.persist(self.peers());
        }
    }

    /// Whether a command comes from a life of its leader that is over, as far as this acceptor
    /// has told another one.
    pub(super) fn is_over(&self, id: InstanceId) -> bool {
        let first = self.closed.get(&id.space.leader);
        first.is_some_and(|first| id.space.life < *first)
    }

    /// A page of what another acceptor has recorded.
    pub(super) fn on_copied(
        &mut self,
        now: Instant,
        (from, life, spaces): (AcceptorId, u32, u32),
        first: InstanceId,
        page: Page,
        out: &mut Out<'_, Self>,
    ) {
        // An answer to a request that named fewer spaces says nothing of the others.
        let returning = self.returning.as_ref();
        let returning = returning.filter(|it| it.boundaries.len() == spaces as usize);
        let expected = returning.and_then(|it| it.pages.get(&from));
        let is_expected = expected.is_some_and(|(at, _)| *at == first);
        // Without room it comes again, when replicas have stored snapshots.
        if life != self.life || !is_expected || self.store.is_full() {
            return;
        }
        self.kept.learn(&page.reaches);
        out.persist(self.kept_record());
        for copy in page.instances {
            match copy {
                Copy::Decided { id, choice } => self.learn(id, choice, None, out),
                Copy::Open { id, payload } => self.take_over(id, payload, out),
            }
        }
        let Some(returning) = &mut self.returning else {
            return;
        };
        match page.next {
            Some(next) => {
                returning.pages.insert(from, (next, None));
                self.ask_for_page(now, from, out);
            }
            None => {
                returning.pages.remove(&from);
                returning.finished.insert(from);
                self.finish_copying(now, out);
            }
        }
    }

    /// Takes over what another acceptor has recorded, to name it as a dependency: it has not
    /// recorded it itself, and does not say so.
    fn take_over(&mut self, id: InstanceId, payload: Option<Payload>, out: &mut Out<'_, Self>) {
        let known = self.store.get(id);
        let has_payload = known.is_some_and(|known| known.payload().is_some());
        let is_known = known.is_some() && (has_payload || payload.is_none());
        let is_settled = known.is_some_and(|known| known.decided.is_some());
        if is_known || is_settled || self.is_new(id) {
            return;
        }
        let at = self.store.place(id);
        out.persist(Record::Copied {
            at,
            id,
            payload: payload.clone(),
        });
        self.recover_copied(id, payload);
    }

    pub(super) fn recover_copied(&mut self, id: InstanceId, payload: Option<Payload>) {
        if let Some(payload) = &payload {
            self.note(id, payload);
        }
        self.store.copied(id, payload);
    }

    /// Whether no earlier process can have known an instance.
    fn is_new(&self, id: InstanceId) -> bool {
        let returning = self.returning.as_ref();
        let boundary = returning.and_then(|it| it.boundaries.get(&id.space.leader));
        boundary.is_some_and(|(space, below)| id >= InstanceId::new(*space, *below))
    }

    /// It has its index again when enough others have given theirs.
    fn finish_copying(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let peers = self.config.peers(self.duty, self.id);
        let enough = self.config.copy_quorum(peers);
        let own = self.leader();
        let Some(returning) = &mut self.returning else {
            return;
        };
        if returning.finished.len() < enough || !returning.copies() {
            return;
        }
        out.reached(branch::RETURNS);
        returning.copied = true;
        returning.pages.clear();
        returning.over = returning.boundaries.keys().copied().collect();
        out.persist(returning.record());
        let boundaries = returning.boundaries.values();
        let spaces: Vec<Space> = boundaries.map(|(space, _)| *space).collect();
        self.close(&spaces);
        out.persist(self.peers());
        if let Some(own) = own {
            self.tell(own, leader::In::Returned {}, out);
        }
        self.release(out);
        self.expect_all(out);
        self.go_on_returning(now, out);
    }
}

fn copy(id: InstanceId, known: &Known) -> Copy {
    match known.certain() {
        Some(choice) => {
            let choice: Choice = choice.clone();
            Copy::Decided { id, choice }
        }
        None => {
            let payload = known.payload().cloned();
            Copy::Open { id, payload }
        }
    }
}
