//! What a role is, and how it asks its driver for what it wants done.

use crate::machine::{Frozen, RestoreError};
use crate::membership::Membership;
use crate::status::{Metrics, Status};
use crate::time::Instant;
use crate::trace::{CommandId, Commands, LogSlot};
use crate::wire::{Wire, WireError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// A deterministic state machine with a mailbox: the unit that a deployment places on nodes.
///
/// A role only changes its own state and calls its driver through [`Out`]. It reads no clock (time
/// is the argument `now`), and draws random numbers from a seeded generator that it owns. It may be
/// called at any moment; a call of [`on_timer`](Role::on_timer) before its time does nothing.
pub trait Role {
    /// The messages that it receives: one variant for each arrow into this role in the protocol's
    /// chart.
    type In;
    /// The protocol's envelope: typed destinations, each with the messages it accepts.
    type Send;
    /// The protocol's form of a checked layout.
    type Config;
    /// What the role needs again after a crash; [`Never`](crate::wire::Never) if it has no state
    /// that matters.
    type Record: Wire;

    /// Receives one record that it wrote before a crash; the oldest comes first. It sends nothing.
    /// Records that the role has released or replaced may still be among them.
    fn recover(&mut self, record: Self::Record);

    /// Checks that no record is missing before this one, which is recovered next. A role that can
    /// do without some of its records accepts all.
    ///
    /// # Errors
    /// Names the records that are missing: the node must not start.
    fn check_record(&self, record: &Self::Record) -> Result<(), WireError> {
        let _ = record;
        Ok(())
    }

    /// How long a record is kept: until the role [releases](Out::release_below) keys above this
    /// one, or (`None`) until its next [`checkpoint`](Role::checkpoint).
    fn key(record: &Self::Record) -> Option<u64> {
        let _ = record;
        None
    }

    /// Receives the last snapshot that it stored before a crash, before any record.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; the role is then in the state of one without a snapshot.
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

    /// The membership or the options have changed: from now on `config` applies. In a protocol that
    /// allows no [transition](crate::protocol::Protocol::transition) only options differ.
    fn on_reconfigure(&mut self, now: Instant, config: Self::Config, out: &mut Out<'_, Self>) {
        let _ = (now, config, out);
    }

    /// Receives one message.
    fn on_message(&mut self, now: Instant, message: Self::In, out: &mut Out<'_, Self>);

    /// Called at or after [`next_timer`](Role::next_timer).
    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// When the role next needs a call of [`on_timer`](Role::on_timer), if it needs one.
    fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// The driver has no more input at hand. A role does here, once, what many inputs asked for.
    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// Every record of this role up to `lsn` is on disk.
    fn on_durable(&mut self, lsn: Lsn, out: &mut Out<'_, Self>) {
        let _ = (lsn, out);
    }

    /// The snapshot that this role stored with this stamp is on disk. Or (not `stored`) the role is
    /// to store another one as soon as it has executed anything since the last: the disk had no
    /// room for this one, and the driver has waited; or, if none is under way, the disk has no room
    /// for more of the log, which the next snapshot makes shorter.
    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        let _ = (stamp, stored, out);
    }

    /// A picture of its state that contains what `cover` says, for a backup. The driver asks again
    /// until there is one, and lets the role's timers run between.
    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        let _ = (now, cover);
        Picture::Never
    }

    /// Persists again what it needs of the records that it persisted without a key: the driver may
    /// drop those next.
    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        let _ = out;
    }

    /// Drain starts (`drains`) or ends. While it drains, the role gives up duties that only one
    /// instance may have, such as leading, and takes no new ones.
    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        let _ = (now, drains, out);
    }

    /// The instance leaves this node, by a change of the membership: nothing else is called after
    /// this. It answers the requests that it has from the application. Other messages need not
    /// arrive.
    fn on_retire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let _ = (now, out);
    }

    /// Whether the cluster no longer needs this instance: it has handed over what it had, or no
    /// other instance takes it.
    fn is_drained(&self) -> bool {
        true
    }

    /// Asserts what must hold between two calls. The simulator calls it after every input.
    fn invariants(&self) {}

    /// The numbers that it reports in addition to those of every protocol.
    const METRICS: Metrics = &[];

    /// Reports its state: its fields of the status, and a number for each of its
    /// [`METRICS`](Role::METRICS).
    fn status(&self, status: &mut Status) {
        let _ = status;
    }
}

/// What a picture for a backup must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Everything below this stamp.
    Below(u64),
    /// Everything that was acknowledged before the driver first asked with this number. For
    /// protocols without a log, where no stamp says that.
    Acknowledged(u64),
}

impl Cover {
    /// The stamp, if it is one: where there is a log, nothing else is asked for.
    pub fn stamp(self) -> Option<u64> {
        match self {
            Cover::Below(at) => Some(at),
            Cover::Acknowledged(_) => None,
        }
    }
}

/// A role's answer to a request for a picture of its state.
pub enum Picture {
    /// Roles of this kind have no state to copy.
    Never,
    /// It has executed only what is below this stamp.
    NotYet(u64),
    /// The picture, which contains everything below the stamp and nothing above.
    Taken(u64, Box<dyn Frozen>),
}

impl Picture {
    /// This answer, or that of an `other` role if this is no picture and the other is further.
    pub fn or_else(self, other: impl FnOnce() -> Picture) -> Picture {
        if let Picture::Taken(..) = self {
            return self;
        }
        match (self, other()) {
            (own, Picture::Never) => own,
            (Picture::NotYet(own), Picture::NotYet(other)) => Picture::NotYet(own.max(other)),
            (_, other) => other,
        }
    }
}

/// A position in a node's log of records: how many records come up to and with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// What roles have asked of their driver since it last looked. The driver owns and reuses it, so
/// that the steady state allocates nothing for it.
pub struct Outbox<E> {
    pub(crate) sends: Vec<Outgoing<E>>,
    pub(crate) records: Vec<u8>,
    pub(crate) record_ends: Vec<RecordEnd>,
    /// Records with keys below this one are no longer needed.
    pub(crate) release: Option<u64>,
    /// A snapshot to store, with its stamp.
    pub(crate) snapshot: Option<(u64, Box<dyn Frozen>)>,
    /// The membership that the log has led to.
    pub(crate) membership: Option<Membership>,
    /// Whether the driver stores ordinary records. If not, only vital ones are stored.
    pub(crate) keeps_records: bool,
    /// The rare branches taken.
    pub(crate) reached: Vec<&'static str>,
    /// Places in `sends` of what must leave before a time, with that time.
    pub(crate) deadlines: Vec<(usize, Instant)>,
    /// Whether the driver notes messages for traces.
    pub(crate) is_traced: bool,
    /// For traces: which commands inquiries are made for. Only a driver that notes messages has
    /// any here, and takes them out.
    pub(crate) inquiries: Vec<(LogSlot, CommandId)>,
}

/// A record in an outbox.
pub(crate) struct RecordEnd {
    /// The offset of its end.
    pub(crate) end: usize,
    /// Whether nodes that keep nothing else on disk store it.
    pub(crate) vital: bool,
    /// The key by which its role will release it.
    pub(crate) key: Option<u64>,
}

pub(crate) struct Outgoing<E> {
    pub(crate) envelope: E,
    /// The number of the outbox's records that must be on disk first; `None` if it waits for
    /// nothing.
    pub(crate) fence: Option<usize>,
}

impl<E> Outbox<E> {
    /// An empty outbox for a driver that stores every record, or (`keeps_records` false) only the
    /// vital ones.
    pub fn new(keeps_records: bool) -> Self {
        let (sends, records, record_ends) = (Vec::new(), Vec::new(), Vec::new());
        let (reached, deadlines) = (Vec::new(), Vec::new());
        Outbox {
            sends,
            records,
            record_ends,
            release: None,
            snapshot: None,
            membership: None,
            keeps_records,
            reached,
            deadlines,
            is_traced: false,
            inquiries: Vec::new(),
        }
    }

    /// Whether the role has asked for nothing.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.record_ends.is_empty() && self.asks_nothing_rare()
    }

    /// Whether it has asked for nothing but records and sends, as nearly always.
    pub(crate) fn asks_nothing_rare(&self) -> bool {
        let no_storage = self.release.is_none() && self.snapshot.is_none();
        let no_news = self.membership.is_none() && self.reached.is_empty();
        no_storage && no_news && self.deadlines.is_empty()
    }

    /// Sends as [`Out::send`] does: for an instance that is made of others.
    pub fn send(&mut self, envelope: E) {
        let fence = Some(self.record_ends.len());
        self.sends.push(Outgoing { envelope, fence });
    }

    /// Reports a rare branch as [`Out::reached`] does: for an instance that is made of others.
    pub fn reached(&mut self, branch: &'static str) {
        self.reached.push(branch);
    }

    /// Takes out everything that the role has asked for: for tests of one role, which compare all
    /// of it.
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
            deadlines: core::mem::take(&mut self.deadlines),
        };
        self.records.clear();
        self.reached.clear();
        asked
    }

    /// Takes out what the role has sent, in order: for tests of one role, and for one that is a
    /// part of another, persists nothing, and sends nothing with a deadline.
    pub fn take_sends(&mut self) -> Vec<E> {
        debug_assert!(self.deadlines.is_empty(), "a deadline would be lost");
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

/// Everything that a role has asked of its driver in one call, or a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<E> {
    /// The records to persist, in order, each with whether it is vital.
    pub records: Vec<(Vec<u8>, bool)>,
    /// What to send, in order, each with the number of these records that must be on disk first,
    /// and with them all that the role persisted earlier; none if it waits for nothing.
    pub sends: Vec<(E, Option<usize>)>,
    /// Records with keys below this one are no longer needed.
    pub release_below: Option<u64>,
    /// The stamp of a snapshot to store.
    pub snapshot: Option<u64>,
    /// The membership that the log has led to.
    pub membership: Option<Membership>,
    /// Places in `sends` of what is sent with [`Out::send_until`], with the times.
    pub deadlines: Vec<(usize, Instant)>,
}

/// A role's access to its driver. Its type is the role's, so that a role can send only messages of
/// its protocol and persist only its own records.
pub struct Out<'a, R: Role + ?Sized> {
    pub(crate) outbox: &'a mut Outbox<R::Send>,
}

impl<'a, R: Role + ?Sized> Out<'a, R> {
    /// The role's view of its driver's outbox.
    pub fn new(outbox: &'a mut Outbox<R::Send>) -> Self {
        Out { outbox }
    }

    /// The same access for a role that this one is made of, which sends the same envelopes and has
    /// the same records.
    pub fn of_part<P>(&mut self) -> Out<'_, P>
    where
        P: Role<Send = R::Send, Record = R::Record>,
    {
        Out::new(self.outbox)
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

    /// Records with keys below `key` are no longer needed.
    pub fn release_below(&mut self, key: u64) {
        if self.outbox.keeps_records {
            self.outbox.release = self.outbox.release.max(Some(key));
        }
    }

    /// Stores a picture of this role's state in place of the one before, in the background. When it
    /// is on disk, or has found no room, the driver calls [`on_snapshot`](Role::on_snapshot). A
    /// role stores one at a time. Does nothing on a node that stores only vital records.
    pub fn store_snapshot(&mut self, stamp: u64, frozen: Box<dyn Frozen>) {
        if self.outbox.keeps_records {
            self.outbox.snapshot = Some((stamp, frozen));
        }
    }

    /// The log has led to this membership: a driver that does not know it yet reconfigures its
    /// roles and sends it to the other nodes.
    pub fn announce(&mut self, membership: Membership) {
        self.outbox.membership = Some(membership);
    }

    /// Reports that the role took a rare branch, one of the protocol's
    /// [`branches`](crate::protocol::Protocol::branches): the simulator lists those that no run has
    /// reached. It has no other effect, and costs as much as a message: it is not for code that
    /// every command runs through.
    pub fn reached(&mut self, branch: &'static str) {
        self.outbox.reached.push(branch);
    }

    /// Tells traces which commands an inquiry with this number is made for, in the call that sends
    /// the inquiry. Roles need it that do not send these commands on when the answer comes
    /// ([`trace`](crate::trace)). It has no other effect, and none while nothing is traced.
    pub fn inquires_for(&mut self, number: u64, commands: &impl Commands) {
        if self.outbox.is_traced {
            let inquiry = LogSlot::of_inquiry(number);
            commands.each_id(&mut |id| self.outbox.inquiries.push((inquiry, id)));
        }
    }

    /// Sends as soon as everything that this role has persisted so far is on disk, and not before.
    /// On a node that stores only vital records: as soon as those are on disk.
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

    /// Sends at once, as [`send_unfenced`](Out::send_unfenced), if the node's clock does not show
    /// `until` yet. The driver reads the clock for that after this call, and drops the message if
    /// it is too late. The time that the role received may be much older, if the process was
    /// stopped. So what is sent was true before `until`, whenever it arrives.
    pub fn send_until(&mut self, envelope: R::Send, until: Instant) {
        self.outbox.deadlines.push((self.outbox.sends.len(), until));
        self.send_unfenced(envelope);
    }
}
