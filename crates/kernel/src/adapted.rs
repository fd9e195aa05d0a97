//! Roles of one protocol that another takes over as they are.
//!
//! Such a role needs no file of its own: it works as in its own protocol, and what it sends is
//! translated. A role that is to do something else has the protocols' common parts instead.

use crate::machine::RestoreError;
use crate::role::{Cover, Lsn, Out, Outbox, Outgoing, Picture, RecordEnd, Role};
use crate::status::{Metrics, Status};
use crate::time::Instant;
use crate::wire::WireError;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::{Deref, DerefMut};

/// What stands in this protocol for the envelopes of a role of another.
pub trait Translate {
    /// The other protocol's envelope.
    type From;
    /// This protocol's envelope.
    type To;
    /// This protocol's configuration.
    type Config;
    /// The other protocol's configuration.
    type Within;

    /// What takes the envelope's place.
    fn translate(&self, envelope: Self::From) -> Self::To;
    /// What the role is to know of a configuration, which is in force from now on.
    fn within(&mut self, config: &Self::Config) -> Self::Within;
}

/// A role of another protocol that works in this one as it works in its own, but that what it says
/// is translated. Where it is placed does not change.
pub struct Adapted<R: Role, T> {
    role: R,
    translate: T,
    /// What the role asks for, until it is translated.
    outbox: Outbox<R::Send>,
}

impl<R: Role, T> Deref for Adapted<R, T> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.role
    }
}

/// For a role that is made of the adapted one and others.
impl<R: Role, T> DerefMut for Adapted<R, T> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.role
    }
}

impl<R: Role, T: Translate<From = R::Send, Within = R::Config>> Adapted<R, T> {
    /// Adapts a role of a node that keeps every record, or (`keeps_records` false) only vital ones.
    pub fn new(role: R, keeps_records: bool, translate: T) -> Self {
        Adapted {
            role,
            translate,
            outbox: Outbox::new(keeps_records),
        }
    }

    fn call(&mut self, out: &mut Out<'_, Self>, act: impl FnOnce(&mut R, &mut Out<'_, R>)) {
        act(&mut self.role, &mut Out::new(&mut self.outbox));
        pour(&mut self.outbox, out.outbox, |envelope| {
            self.translate.translate(envelope)
        });
    }
}

impl<R: Role, T: Translate<From = R::Send, Within = R::Config>> Role for Adapted<R, T> {
    type In = R::In;
    type Send = T::To;
    type Config = T::Config;
    type Record = R::Record;

    fn recover(&mut self, record: R::Record) {
        self.role.recover(record);
    }

    fn check_record(&self, record: &R::Record) -> Result<(), WireError> {
        self.role.check_record(record)
    }

    fn key(record: &R::Record) -> Option<u64> {
        R::key(record)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.role.restore(stamp, snapshot)
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_start(now, out));
    }

    fn on_reconfigure(&mut self, now: Instant, config: T::Config, out: &mut Out<'_, Self>) {
        let within = self.translate.within(&config);
        self.call(out, |role, out| role.on_reconfigure(now, within, out));
    }

    fn on_message(&mut self, now: Instant, message: R::In, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_message(now, message, out));
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_timer(now, out));
    }

    fn next_timer(&self) -> Option<Instant> {
        self.role.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_burst_end(now, out));
    }

    fn on_durable(&mut self, lsn: Lsn, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_durable(lsn, out));
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_snapshot(stamp, stored, out));
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.role.freeze(now, cover)
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        let mut outbox = Outbox::new(out.outbox.keeps_records);
        self.role.checkpoint(&mut Out::new(&mut outbox));
        append(&mut outbox, out.outbox);
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_drain(now, drains, out));
    }

    fn on_retire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_retire(now, out));
    }

    fn is_drained(&self) -> bool {
        self.role.is_drained()
    }

    fn invariants(&self) {
        self.role.invariants();
    }

    const METRICS: Metrics = R::METRICS;

    fn status(&self, status: &mut Status) {
        self.role.status(status);
    }
}

/// Moves everything that a role has asked for to the outbox of the role that it is translated into:
/// each envelope as `translate` says, behind the records behind which it stood.
#[inline]
fn pour<F, E>(from: &mut Outbox<F>, to: &mut Outbox<E>, translate: impl Fn(F) -> E) {
    let (before, sent) = (to.record_ends.len(), to.sends.len());
    append(from, to);
    pour_sends(before, from, to, translate);
    if from.asks_nothing_rare() {
        return;
    }
    to.release = to.release.max(from.release.take());
    pour_rare(sent, from, to);
}

/// Moves envelopes, each behind the records behind which it stood: there were `before` records.
#[inline]
fn pour_sends<F, E>(
    before: usize,
    from: &mut Outbox<F>,
    to: &mut Outbox<E>,
    translate: impl Fn(F) -> E,
) {
    to.sends
        .extend(from.sends.drain(..).map(|outgoing| Outgoing {
            envelope: translate(outgoing.envelope),
            fence: outgoing.fence.map(|records| before + records),
        }));
}

/// Moves what is neither a record nor an envelope: there were `sent` envelopes.
fn pour_rare<F, E>(sent: usize, from: &mut Outbox<F>, to: &mut Outbox<E>) {
    let deadlines = from.deadlines.drain(..);
    to.deadlines
        .extend(deadlines.map(|(place, until)| (sent + place, until)));
    to.reached.append(&mut from.reached);
    to.snapshot = from.snapshot.take().or(to.snapshot.take());
    to.membership = from.membership.take().or(to.membership.take());
}

/// Where the records of an instance of another protocol stand in the log of the instance that it is
/// a part of, together with the records of other parts.
pub trait PartRecords {
    /// A record with this key and this many bytes comes next: writes what is to stand before it,
    /// and gives the key that it has in the log.
    fn head(&mut self, key: Option<u64>, bytes: usize, out: &mut Vec<u8>) -> Option<u64>;

    /// The part needs no record with a key below this one: gives the key in the log below which no
    /// part needs a record, if that is known.
    fn released(&mut self, below: u64) -> Option<u64>;
}

/// Moves everything that a part of an instance has asked for to the outbox of the instance: each
/// envelope as `translate` says, behind the records behind which it stood.
pub fn pour_part<F, E>(
    from: &mut Outbox<F>,
    to: &mut Outbox<E>,
    records: &mut impl PartRecords,
    translate: impl Fn(F) -> E,
) {
    let (before, sent) = (to.record_ends.len(), to.sends.len());
    let mut start = 0;
    for RecordEnd { end, vital, key } in from.record_ends.drain(..) {
        let key = records.head(key, end - start, &mut to.records);
        to.records.extend_from_slice(&from.records[start..end]);
        start = end;
        to.record_ends.push(RecordEnd {
            end: to.records.len(),
            vital,
            key,
        });
    }
    from.records.clear();
    if let Some(below) = from.release.take() {
        to.release = to.release.max(records.released(below));
    }
    pour_sends(before, from, to, translate);
    pour_rare(sent, from, to);
}

/// Moves the records of one outbox to another.
#[inline]
fn append<F, E>(from: &mut Outbox<F>, to: &mut Outbox<E>) {
    // As most often.
    if from.record_ends.is_empty() {
        return;
    }
    let offset = to.records.len();
    to.records.append(&mut from.records);
    let ends = from.record_ends.drain(..);
    to.record_ends.extend(ends.map(|record| RecordEnd {
        end: offset + record.end,
        ..record
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Persists every number that it receives, and sends it: before, after, and at once.
    struct Echo;

    impl Role for Echo {
        type In = u8;
        type Send = u8;
        type Config = ();
        type Record = u8;
        fn recover(&mut self, _: u8) {}
        fn key(record: &u8) -> Option<u64> {
            Some(u64::from(*record))
        }
        fn on_message(&mut self, _: Instant, number: u8, out: &mut Out<'_, Self>) {
            out.send(number);
            out.persist(number);
            out.send(number);
            out.send_until(number, Instant(u64::from(number)));
            out.release_below(u64::from(number));
        }
    }

    struct AddHundred;

    impl Translate for AddHundred {
        type From = u8;
        type To = u16;
        type Config = ();
        type Within = ();
        fn translate(&self, number: u8) -> u16 {
            u16::from(number) + 100
        }
        fn within(&mut self, _: &()) {}
    }

    #[test]
    fn a_translated_envelope_waits_for_the_records_that_it_waited_for() {
        let mut adapted = Adapted::new(Echo, true, AddHundred);
        let mut outbox = Outbox::new(true);
        for number in [4, 5] {
            adapted.on_message(Instant(0), number, &mut Out::new(&mut outbox));
        }
        let keys: Vec<_> = outbox.record_ends.iter().map(|record| record.key).collect();
        assert_eq!(keys, [Some(4), Some(5)]);
        let asked = outbox.take();
        assert_eq!(asked.records, [([4].into(), false), ([5].into(), false)]);
        let fences = |number, before| [Some(before), Some(before + 1), None].map(|it| (number, it));
        assert_eq!(asked.sends, [fences(104, 0), fences(105, 1)].concat());
        assert_eq!(asked.release_below, Some(5));
        assert_eq!(asked.deadlines, [(2, Instant(4)), (5, Instant(5))]);
    }
}
