//! Snapshots: those that a replica stores on its own disk, those that it hands to peers, and the
//! one that it takes over from a peer when acceptors have forgotten what it misses.
//!
//! A snapshot is the state machine with its sessions, and the set of instances that are executed in
//! it. Any replica can take one at any moment: what it has executed is closed under dependencies.
//!
//! # A replica on an empty disk in place of a lost one
//!
//! Others count on the lost disk: acceptors have forgotten what f + 1 replicas had in stored
//! snapshots, and one of these is gone. And the cluster may have been founded with a state that no
//! instance leads to. So the replica takes over a snapshot of a peer before it executes or answers
//! anything, and counts as failed ([`Status::remembers`]) until a snapshot is on its disk that it
//! has begun when it had caught up: that has all that acceptors had forgotten when the disk was
//! lost, and all that its predecessor had told them that it keeps.
//!
//! [`Status::remembers`]: ionian_kernel::status::Status::remembers

use super::Replica;
use crate::epaxos::executed::ExecutedSet;
use crate::epaxos::instance::{Deps, Space};
use crate::epaxos::message::{Reach, Run};
use crate::epaxos::{Envelope, acceptor, branch};
use crate::parts::due::SinceSnapshot;
use crate::parts::replica::offer::{Offer, Piece, time_for};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::machine::{Frozen, RestoreError};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::wire::{Reader, Wire, WireError};

/// Stands at the beginning of a snapshot with executed instances. One without begins with the time
/// of the state machine, which is not so late: a cluster is founded from such a snapshot.
const WITH_INSTANCES: u64 = u64::MAX;

/// Stands there instead in one that a replica has stored after its disk was lost, if others may
/// count on it again.
const WITH_ALL: u64 = u64::MAX - 1;

/// A piece of a snapshot is larger than other messages: it is waited for this many times longer.
const PIECE_PATIENCE: u32 = 8;

/// A peer that leaves this number of requests unanswered is given up.
const ATTEMPTS: u32 = 3;

/// See the top of this file.
pub(super) struct Snapshots {
    /// Whether this node keeps nothing through a crash. What f + 1 replicas have executed then
    /// counts as kept, because at most f of them fail.
    loses_state: bool,
    /// Whether its disk took the place of a lost one.
    readmitted: bool,
    regained: Regained,
    /// How many instances were executed in the last one stored, and how far it has each space.
    stored: (u64, Vec<Reach>),
    storing: Option<Storing>,
    /// What the barriers that were executed depend on.
    passed: SmallMap<Space, u64>,
    since: SinceSnapshot,
    /// The one that peers are given, with its name.
    offer: Option<(u64, Offer)>,
    next_name: u64,
    install: Option<Install>,
    /// The one that it had last of each peer.
    last: SmallMap<ReplicaId, u64>,
    turn: u64,
    pub(super) installed: u64,
}

/// What a replica has of what others count on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Regained {
    /// Its disk is empty in place of a lost one.
    Nothing,
    /// It has taken over the state of a peer, and has not stored all yet.
    State,
    All,
}

/// A snapshot on its way to the disk.
struct Storing {
    stamp: u64,
    reaches: Vec<Reach>,
    /// Whether others may count on it when it is there.
    has_all: bool,
}

/// A snapshot on its way here.
struct Install {
    /// What acceptors have forgotten that it misses. If it has no state yet, all.
    lacks: Vec<Run>,
    from: ReplicaId,
    /// Its name; none before its first piece.
    name: Option<u64>,
    received: Vec<u8>,
    attempts: u32,
    at: Instant,
}

impl Snapshots {
    pub(super) fn new(birth: &Birth<'_>, name: u64) -> Self {
        let readmitted = birth.keeps_records && birth.predecessors > 0;
        Snapshots {
            loses_state: !birth.keeps_records,
            readmitted,
            regained: match readmitted {
                true => Regained::Nothing,
                false => Regained::All,
            },
            stored: (0, Vec::new()),
            storing: None,
            passed: SmallMap::new(),
            since: SinceSnapshot::default(),
            offer: None,
            next_name: name >> 1,
            install: None,
            last: SmallMap::new(),
            turn: name >> 1,
            installed: 0,
        }
    }

    /// Commands of this many bytes were executed.
    pub(super) fn executed(&mut self, bytes: usize) {
        self.since.executed(bytes);
    }

    /// A barrier with these dependencies was executed.
    pub(super) fn passed(&mut self, deps: &Deps) {
        for (space, below) in deps.below() {
            let known = self.passed.entry(*space).or_default();
            *known = (*known).max(*below);
        }
    }

    /// The snapshot with this stamp is on disk.
    pub(super) fn stored(&mut self, stamp: u64, work: u64) {
        if let Some(stored) = self.storing.take_if(|storing| storing.stamp == stamp) {
            self.stored = (stamp, stored.reaches);
            self.since.stored(work);
            if stored.has_all {
                self.regained = Regained::All;
            }
        }
    }

    /// The one with this stamp has found no room, or none is under way: another one is due.
    pub(super) fn refused(&mut self, stamp: u64) {
        self.storing.take_if(|storing| storing.stamp == stamp);
        if self.storing.is_none() {
            self.since.refused();
        }
    }

    /// A process before this one had stored this.
    fn restored(&mut self, bytes: &Bytes) {
        if !self.has_state() {
            let has_all = u64::decode(&mut Reader::new(bytes)) == Ok(WITH_ALL);
            self.regained = if has_all {
                Regained::All
            } else {
                Regained::State
            };
        }
    }

    /// How many instances were executed in the last one stored.
    pub(super) fn stored_count(&self) -> u64 {
        self.stored.0
    }

    pub(super) fn is_installing(&self) -> bool {
        self.install.is_some() || !self.has_state()
    }

    /// Whether it has a state: what it has executed leads to one, or its disk is another.
    pub(super) fn has_state(&self) -> bool {
        self.regained != Regained::Nothing
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let install = self.install.as_ref().map(|install| install.at);
        earliest(install, None)
    }

    pub(super) fn drop_abandoned(&mut self, now: Instant) {
        self.offer.take_if(|(_, offer)| offer.is_abandoned(now));
    }
}

impl Replica {
    /// What it keeps, as far as acceptors are to count on it: all that barriers depend on that it
    /// has executed.
    ///
    /// Not all that it has executed. Of two replicas each may have executed what the other has not;
    /// if acceptors had forgotten both, neither could take over the state of the other. Barriers
    /// are executed in the same order everywhere, so a replica that has executed the last one that
    /// counts has all that is forgotten, and gets the rest from acceptors.
    fn reaches(&self) -> Vec<Reach> {
        let reach = |(space, below): (&Space, &u64)| Reach {
            space: *space,
            below: *below,
        };
        self.snapshots.passed.iter().map(reach).collect()
    }

    /// Stores a snapshot if enough was executed since the last.
    pub(super) fn store_if_due(&mut self, out: &mut Out<'_, Self>) {
        let (count, snapshots) = (self.count(), &self.snapshots);
        let since = count - snapshots.stored.0.min(count);
        let (slots, work) = (self.config.options().snapshot_slots, self.executor.work());
        let enough = snapshots.since.is_enough(since, slots, work);
        if snapshots.storing.is_some() || snapshots.loses_state || !snapshots.has_state() {
            return;
        }
        let has_state = snapshots.regained == Regained::State;
        let has_caught_up = has_state && self.missing.has_caught_up();
        if has_caught_up && since == 0 {
            self.snapshots.regained = Regained::All;
        } else if enough || has_caught_up {
            let has_all = self.snapshots.readmitted && (has_caught_up || !has_state);
            let marker = if has_all { WITH_ALL } else { WITH_INSTANCES };
            self.snapshots.storing = Some(Storing {
                stamp: count,
                reaches: self.reaches(),
                has_all,
            });
            self.snapshots.since.begin(work);
            let frozen = self.frozen(marker);
            out.store_snapshot(count, frozen);
        }
    }

    /// Whether others may count on what this replica has stored. None if they always could.
    pub(super) fn remembers(&self) -> Option<bool> {
        let all = self.snapshots.regained == Regained::All;
        self.snapshots.readmitted.then_some(all)
    }

    /// A picture with the set of executed instances.
    fn frozen(&mut self, marker: u64) -> Box<dyn Frozen> {
        let mut head = Vec::new();
        marker.encode(&mut head);
        self.founded.encode(&mut head);
        self.executed().encode(&mut head);
        self.reaches().encode(&mut head);
        Box::new(WithHead {
            head: Some(head),
            rest: self.executor.freeze(),
        })
    }

    /// Takes in the snapshot that it stored last, or the one that the cluster was founded with.
    pub(super) fn restore_stored(&mut self, stamp: u64, bytes: &Bytes) -> Result<(), RestoreError> {
        let (founded, executed) = self.restore_bytes(bytes)?;
        self.graph.restore(Instant::ZERO, executed);
        self.founded = founded.unwrap_or(stamp);
        self.snapshots.restored(bytes);
        self.note_executed();
        self.snapshots.stored = (stamp, self.reaches());
        Ok(())
    }

    /// Takes over the state machine of a snapshot; gives how many instances the founding snapshot
    /// stands for, and what is executed.
    fn restore_bytes(&mut self, bytes: &Bytes) -> Result<(Option<u64>, ExecutedSet), RestoreError> {
        let (founded, executed, passed, rest) = parse(bytes)?;
        self.executor.restore(&rest)?;
        let passed = passed.iter().map(|reach| (reach.space, reach.below));
        self.snapshots.passed(&Deps::new([], passed));
        Ok((founded, executed))
    }

    /// Tells acceptors what it would find again after a crash.
    pub(super) fn tell_kept(&self, out: &mut Out<'_, Self>) {
        let reaches = match self.snapshots.loses_state {
            true => self.reaches(),
            false => self.snapshots.stored.1.clone(),
        };
        if !reaches.is_empty() {
            let from = self.id;
            let message = acceptor::In::Kept { from, reaches };
            if self.config.is_apart() {
                let all = self.config.acceptors();
                out.send(Envelope::ToAcceptors(all, message.clone()));
            }
            out.send(self.config.to_recorders(self.config.recorders(), message));
        }
    }

    /// A peer wants a piece of a snapshot, or the beginning of a new one.
    pub(super) fn on_fetch_snapshot(
        &mut self,
        now: Instant,
        to: ReplicaId,
        (name, unlike): (Option<u64>, Option<u64>),
        offset: u64,
        out: &mut Out<'_, Self>,
    ) {
        if !self.snapshots.has_state() {
            self.stale += 1;
            return;
        }
        let known = self.snapshots.offer.as_ref().map(|(name, _)| *name);
        let continues = name.is_some() && name == known;
        if name.is_some() && !continues {
            out.reached(branch::OFFER_GONE);
        }
        // Peers share one: each would take the other's away, if each had a new one.
        if !continues && (known.is_none() || known == unlike) {
            self.snapshots.next_name += 1;
            let rate = self.config.options().snapshot_bytes_per_second;
            let frozen = self.frozen(WITH_INSTANCES);
            let offer = Offer::new(rate, now, Slot(self.count()), frozen);
            self.snapshots.offer = Some((self.snapshots.next_name, offer));
        }
        let offset = if continues { offset } else { 0 };
        let (snapshot, offer) = self.snapshots.offer.as_mut().expect("there is one at hand");
        let Some(Piece { bytes, last }) = offer.piece(now, offset) else {
            self.stale += 1;
            return;
        };
        let message = super::In::SnapshotChunk {
            from: self.id,
            snapshot: *snapshot,
            offset,
            last,
            bytes,
        };
        out.send(Envelope::ToReplicas(Set::one(to), message));
    }

    /// Acceptors have forgotten what it misses: it takes over the state of a peer. Until it has it
    /// executes nothing, so that no snapshot lacks what it has executed.
    pub(super) fn begin_install(&mut self, now: Instant, lacks: Vec<Run>, out: &mut Out<'_, Self>) {
        if self.snapshots.install.is_none() {
            self.ask_next_peer(now, lacks, out);
        }
    }

    /// What it lacked may have been on its way: then it needs no snapshot.
    pub(super) fn give_up_install(&mut self, out: &mut Out<'_, Self>) {
        let Some(install) = &self.snapshots.install else {
            return;
        };
        let has_state = self.snapshots.has_state();
        if has_state && !install.lacks.iter().any(|run| self.misses(run)) {
            out.reached(branch::INSTALL_GIVEN_UP);
            self.snapshots.install = None;
        }
    }

    fn ask_next_peer(&mut self, now: Instant, lacks: Vec<Run>, out: &mut Out<'_, Self>) {
        self.snapshots.turn += 1;
        let peers = self.config.replicas().without(Set::one(self.id));
        let Some(from) = peers.pick(self.snapshots.turn) else {
            return;
        };
        self.snapshots.install = Some(Install {
            lacks,
            from,
            name: None,
            received: Vec::new(),
            attempts: 0,
            at: now,
        });
        self.fetch_snapshot(now, out);
    }

    /// Asks for the next piece.
    fn fetch_snapshot(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let wait = self.config.options().resend_after * PIECE_PATIENCE;
        let Some(install) = &mut self.snapshots.install else {
            return;
        };
        install.at = now + wait;
        let message = super::In::FetchSnapshot {
            from: self.id,
            snapshot: install.name,
            unlike: self.snapshots.last.get(&install.from).copied(),
            offset: install.received.len() as u64,
        };
        out.reached(branch::FETCHES_SNAPSHOT);
        out.send(Envelope::ToReplicas(Set::one(install.from), message));
    }

    pub(super) fn fetch_snapshot_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some(install) = self
            .snapshots
            .install
            .as_mut()
            .filter(|install| install.at <= now)
        else {
            return;
        };
        install.attempts += 1;
        match install.attempts > ATTEMPTS {
            true => {
                let lacks = core::mem::take(&mut install.lacks);
                self.ask_next_peer(now, lacks, out);
            }
            false => self.fetch_snapshot(now, out),
        }
    }

    /// A piece of a peer's snapshot.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        (from, name): (ReplicaId, u64),
        offset: u64,
        (last, bytes): (bool, Bytes),
        out: &mut Out<'_, Self>,
    ) {
        let rate = self.config.options().snapshot_bytes_per_second;
        let Some(install) = self.snapshots.install.as_mut().filter(|it| it.from == from) else {
            return;
        };
        if install.name != Some(name) && offset == 0 {
            (install.name, install.received) = (Some(name), Vec::new());
        }
        if install.name != Some(name) || offset != install.received.len() as u64 {
            return;
        }
        install.received.extend_from_slice(&bytes);
        install.attempts = 0;
        if last {
            let whole = Bytes::from(core::mem::take(&mut install.received));
            self.snapshots.last.insert(from, name);
            return self.install(now, &whole, out);
        }
        // The limit of bytes a second does not let it ask for the next piece before this.
        install.at = now + time_for(bytes.len(), rate);
        if install.at <= now {
            self.fetch_snapshot(now, out);
        }
    }

    fn install(&mut self, now: Instant, whole: &Bytes, out: &mut Out<'_, Self>) {
        // A snapshot that does not restore, or lacks what is executed here, is of no use; another
        // is asked for, by then the peer has executed more.
        let fits = |(_, set, _, _): &Parts| set.includes(self.executed());
        let of_use = parse(whole).is_ok_and(|parts| fits(&parts));
        let restored = match of_use {
            true => self.restore_bytes(whole).ok(),
            false => None,
        };
        let Some((founded, executed)) = restored else {
            self.stale += 1;
            let install = self.snapshots.install.take();
            let lacks = install.map_or_else(Vec::new, |install| install.lacks);
            let wait = self.config.options().resend_after;
            self.ask_next_peer(now, lacks, out);
            if let Some(install) = &mut self.snapshots.install {
                install.at = now + wait * PIECE_PATIENCE;
            }
            return;
        };
        out.reached(branch::INSTALLS);
        if !self.snapshots.has_state() {
            self.snapshots.regained = Regained::State;
        }
        self.founded = founded.unwrap_or(0);
        self.graph.restore(now, executed);
        self.snapshots.install = None;
        self.snapshots.installed += 1;
        self.since_barrier = 1;
        self.note_executed();
        self.report_all_progress(out);
        self.answer_all_waiting(now);
        self.execute_ready(now, out);
    }

    /// What is executed is not pending, and exists.
    fn note_executed(&mut self) {
        let executed = self.graph.executed();
        self.pending.retain(|id, _| !executed.contains(*id));
        self.pending_bytes = self.pending.values().map(super::Pending::byte_len).sum();
        for (space, end) in executed.ends() {
            self.missing.note(space, end);
        }
    }
}

/// The state machine with its sessions, in a snapshot that a replica stored.
pub(crate) fn state_in(stored: &Bytes) -> Result<Bytes, RestoreError> {
    let (.., state) = parse(stored)?;
    Ok(state)
}

/// The count that a cluster was founded with, what is executed, what barriers depend on, and the
/// rest.
type Parts = (Option<u64>, ExecutedSet, Vec<Reach>, Bytes);

fn parse(bytes: &Bytes) -> Result<Parts, RestoreError> {
    let malformed = |error: WireError| RestoreError(error.to_string());
    let mut reader = Reader::new(bytes);
    let marker = u64::decode(&mut reader).map_err(malformed)?;
    if ![WITH_INSTANCES, WITH_ALL].contains(&marker) {
        return Ok((None, ExecutedSet::default(), Vec::new(), bytes.clone()));
    }
    let founded = u64::decode(&mut reader).map_err(malformed)?;
    let executed = ExecutedSet::decode(&mut reader).map_err(malformed)?;
    let passed = Vec::decode(&mut reader).map_err(malformed)?;
    let rest = bytes.slice(bytes.len() - reader.remaining()..);
    Ok((Some(founded), executed, passed, rest))
}

/// A picture behind some bytes.
struct WithHead {
    head: Option<Vec<u8>>,
    rest: Box<dyn Frozen>,
}

impl Frozen for WithHead {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        match self.head.take() {
            Some(mut head) => {
                out.append(&mut head);
                true
            }
            None => self.rest.write_some(out),
        }
    }
}
