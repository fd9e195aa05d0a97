//! What a role is, and how it says what it wants done.

use crate::machine::{Frozen, RestoreError};
use crate::membership::Membership;
use crate::status::{Metrics, Status};
use crate::time::Instant;
use crate::wire::Wire;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// A deterministic state machine with a mailbox: the unit that a deployment places on nodes.
///
/// A role does nothing but change its own state and speak to its driver through [`Out`]. It reads
/// no clock (time is the argument `now`), draws random numbers from a seeded generator it holds,
/// and may be called at any moment; a call of [`on_timer`](Role::on_timer) without need does
/// nothing.
pub trait Role {
    /// What can arrive: one variant for each arrow into this role in the protocol's chart.
    type In;
    /// The protocol's envelope: typed destinations, each with the messages it accepts.
    type Send;
    /// What the protocol makes of a layout.
    type Config;
    /// What the role must find again after a crash; [`Never`](crate::wire::Never) for a stateless
    /// one.
    type Record: Wire;

    /// Takes in one record written before a crash, oldest first. Sends nothing. Records that the
    /// role has released or superseded may still be among them.
    fn recover(&mut self, record: Self::Record);

    /// Until when a record is kept: until the role [releases](Out::release_below) keys above this
    /// one, or (`None`) until its next [`checkpoint`](Role::checkpoint).
    fn key(record: &Self::Record) -> Option<u64> {
        let _ = record;
        None
    }

    /// Takes in the snapshot that it stored last before a crash, before any record.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; the role is then as if it had stored none.
    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        let _ = (stamp, snapshot);
        Err(RestoreError(
            "a role of this kind stores no snapshots".into(),
        ))
    }

    /// Called once, after every record has been recovered.
    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// The membership has changed, or its options: from now on `config` holds. In a protocol that
    /// allows no [transition](crate::protocol::Protocol::transition) only options differ.
    fn on_reconfigure(&mut self, now: Instant, config: Self::Config, out: &mut Out<'_, Self>) {
        let _ = (now, config, out);
    }

    /// Takes in one message.
    fn on_message(&mut self, now: Instant, message: Self::In, out: &mut Out<'_, Self>);

    /// Called at or after [`next_timer`](Role::next_timer).
    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// When the role next wants to be called though nothing arrives.
    fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// The driver has no further input at hand: the place to do once what many inputs asked for.
    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// Everything that this role has persisted up to `lsn` is on disk.
    fn on_durable(&mut self, lsn: Lsn, out: &mut Out<'_, Self>) {
        let _ = (lsn, out);
    }

    /// The snapshot that this role stored with this stamp would be found again after a crash.
    fn on_snapshot(&mut self, stamp: u64, out: &mut Out<'_, Self>) {
        let _ = (stamp, out);
    }

    /// A picture of its state that holds everything below the stamp `at`, for whoever wants a copy.
    /// Asked again until there is one.
    fn freeze(&mut self, now: Instant, at: u64) -> Picture {
        let _ = (now, at);
        Picture::Never
    }

    /// Persists again whatever it needs of the records that it persisted without a key: all of
    /// those are forgotten next.
    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        let _ = out;
    }

    /// The node is about to stop, or is told to do nothing that another could do in its place
    /// (`drains`); or it is told that it may again. What only one instance does at a time, such as
    /// leading, is to be handed over and not taken.
    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        let _ = (now, drains, out);
    }

    /// Whether nobody would miss this instance: what it was to hand over has gone, or nobody takes
    /// it.
    fn is_drained(&self) -> bool {
        true
    }

    /// Asserts what must hold between two calls; run after every input by the simulator.
    fn invariants(&self) {}

    /// The numbers that it reports of itself beside what every protocol has.
    const METRICS: Metrics = &[];

    /// Reports what it is doing: its fields of the status, and a number for each of its
    /// [`METRICS`](Role::METRICS).
    fn status(&self, status: &mut Status) {
        let _ = status;
    }
}

/// What a role says when it is asked for a picture of its state.
pub enum Picture {
    /// Roles of this kind have no state that could be taken elsewhere.
    Never,
    /// It does not hold that much yet, only everything below this stamp.
    NotYet(u64),
    /// The picture, which holds everything below the stamp and nothing above.
    Taken(u64, Box<dyn Frozen>),
}

/// A position in a node's log of records: how many records come up to and with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// What roles have asked of their driver since it last looked. Owned and reused by the driver, so
/// that the steady state allocates nothing for it.
pub struct Outbox<E> {
    pub(crate) sends: Vec<Outgoing<E>>,
    pub(crate) records: Vec<u8>,
    pub(crate) record_ends: Vec<RecordEnd>,
    /// Records with keys below this one are not needed any more.
    pub(crate) release: Option<u64>,
    /// A snapshot to store, with its stamp.
    pub(crate) snapshot: Option<(u64, Box<dyn Frozen>)>,
    /// What the log says of the membership.
    pub(crate) membership: Option<Membership>,
    /// Whether the driver stores ordinary records; if not they are counted and not encoded.
    pub(crate) keeps_records: bool,
    /// The rare branches taken.
    pub(crate) reached: Vec<&'static str>,
}

/// A record in an outbox.
pub(crate) struct RecordEnd {
    /// Where it ends.
    pub(crate) end: usize,
    /// Whether it is stored even in memory-only nodes.
    pub(crate) vital: bool,
    /// By what its role will release it.
    pub(crate) key: Option<u64>,
}

pub(crate) struct Outgoing<E> {
    pub(crate) envelope: E,
    /// How many of the outbox's records must be on disk first; `None` when it waits for nothing.
    pub(crate) fence: Option<usize>,
}

impl<E> Outbox<E> {
    /// An empty outbox for a driver that stores every record, or (`keeps_records` false) only the
    /// vital ones.
    pub fn new(keeps_records: bool) -> Self {
        let (sends, records, record_ends) = (Vec::new(), Vec::new(), Vec::new());
        let reached = Vec::new();
        Outbox {
            sends,
            records,
            record_ends,
            release: None,
            snapshot: None,
            membership: None,
            keeps_records,
            reached,
        }
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        let nothing_stored =
            self.record_ends.is_empty() && self.release.is_none() && self.snapshot.is_none();
        self.sends.is_empty()
            && nothing_stored
            && self.membership.is_none()
            && self.reached.is_empty()
    }

    /// Takes out all that was asked: for tests of a single role, which compare all of it.
    pub fn take(&mut self) -> Asked<E> {
        let mut start = 0;
        let mut record = |RecordEnd { end, vital, .. }| {
            let record = self.records[start..end].to_vec();
            start = end;
            (record, vital)
        };
        let records = self.record_ends.drain(..).map(&mut record).collect();
        let sends = self.sends.drain(..);
        let asked = Asked {
            records,
            sends: sends.map(|one| (one.envelope, one.fence)).collect(),
            release_below: self.release.take(),
            snapshot: self.snapshot.take().map(|(stamp, _)| stamp),
            membership: self.membership.take(),
        };
        self.records.clear();
        self.reached.clear();
        asked
    }

    /// Takes out what was sent, in order: for tests of a single role.
    pub fn take_sends(&mut self) -> Vec<E> {
        self.records.clear();
        self.record_ends.clear();
        self.reached.clear();
        (self.release, self.snapshot, self.membership) = (None, None, None);
        self.sends
            .drain(..)
            .map(|outgoing| outgoing.envelope)
            .collect()
    }
}

/// All that a role has asked of its driver in one call, or a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<E> {
    /// The records to persist, in order, each with whether it is vital.
    pub records: Vec<(Vec<u8>, bool)>,
    /// What is to be sent, in order, each with how many of the records must be on disk first, and
    /// with them all that the role persisted earlier; none where it waits for nothing.
    pub sends: Vec<(E, Option<usize>)>,
    /// Records with keys below this one are not needed any more.
    pub release_below: Option<u64>,
    /// The stamp of a snapshot to store.
    pub snapshot: Option<u64>,
    /// The membership that the log has led to.
    pub membership: Option<Membership>,
}

/// A role's way to its driver: typed by the role, so that it can only send what its protocol knows
/// and only persist its own records.
pub struct Out<'a, R: Role + ?Sized> {
    pub(crate) outbox: &'a mut Outbox<R::Send>,
}

impl<'a, R: Role + ?Sized> Out<'a, R> {
    /// The role's view of its driver's outbox.
    pub fn new(outbox: &'a mut Outbox<R::Send>) -> Self {
        Out { outbox }
    }

    /// Appends `record` to this role's log.
    pub fn persist(&mut self, record: R::Record) {
        self.append(record, false);
    }

    /// As [`persist`](Out::persist), for a record so small, rare and vital that a node writes it to
    /// disk even when its durability is `memory`.
    pub fn persist_vital(&mut self, record: R::Record) {
        self.append(record, true);
    }

    fn append(&mut self, record: R::Record, vital: bool) {
        if self.outbox.keeps_records || vital {
            let key = R::key(&record);
            record.encode(&mut self.outbox.records);
            self.outbox.record_ends.push(RecordEnd {
                end: self.outbox.records.len(),
                vital,
                key,
            });
        }
    }

    /// Records with keys below `key` are not needed any more.
    pub fn release_below(&mut self, key: u64) {
        if self.outbox.keeps_records {
            self.outbox.release = self.outbox.release.max(Some(key));
        }
    }

    /// Stores a picture of this role's state in place of the one before. It takes its time; when it
    /// is done [`on_snapshot`](Role::on_snapshot) is called with the stamp. One at a time.
    pub fn store_snapshot(&mut self, stamp: u64, frozen: Box<dyn Frozen>) {
        if self.outbox.keeps_records {
            self.outbox.snapshot = Some((stamp, frozen));
        }
    }

    /// The log has led to this membership: the driver reconfigures its roles if it does not know of
    /// it yet, and tells the other nodes.
    pub fn announce(&mut self, membership: Membership) {
        self.outbox.membership = Some(membership);
    }

    /// Says that a rare branch was taken, one of the protocol's
    /// [`branches`](crate::protocol::Protocol::branches): testers ask which of them no test has
    /// reached. It has no other effect, and costs as much as a message: not for what every command
    /// goes through.
    pub fn reached(&mut self, branch: &'static str) {
        self.outbox.reached.push(branch);
    }

    /// Sends when everything that this role has persisted so far is on disk, and not before.
    pub fn send(&mut self, envelope: R::Send) {
        let fence = Some(self.outbox.record_ends.len());
        self.outbox.sends.push(Outgoing { envelope, fence });
    }

    /// Sends at once. The caller says in a comment why the message reveals nothing that a crash
    /// could undo.
    pub fn send_unfenced(&mut self, envelope: R::Send) {
        self.outbox.sends.push(Outgoing {
            envelope,
            fence: None,
        });
    }
}
