//! Roles of one protocol at work in another.
//!
//! S-Paxos orders ids as MultiPaxos orders commands: its roles hold roles of MultiPaxos and change
//! what must be changed on the way in and out. Such a role calls its [`Inner`] role and pours what
//! that asked for into its own [`Out`], fences kept.
//!
//! A role that is taken over as it is needs no file of its own: [`Adapted`] is enough.

use crate::machine::{Frozen, RestoreError};
use crate::membership::Membership;
use crate::role::{Lsn, Out, Outbox, Outgoing, Picture, RecordEnd, Role};
use crate::status::{Metrics, Status};
use crate::time::Instant;
use crate::wire::WireError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::{Deref, DerefMut};

/// A role inside another, with what it asks for until that is poured out.
pub struct Inner<R: Role> {
    role: R,
    outbox: Outbox<R::Send>,
}

impl<R: Role> Deref for Inner<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.role
    }
}

impl<R: Role> DerefMut for Inner<R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.role
    }
}

/// What an inner role asked for beside records and messages.
#[must_use = "releases, snapshots and memberships are to be passed on, or not, by the outer role"]
pub struct Left {
    /// It needs no records with keys below this one.
    pub release: Option<u64>,
    /// A snapshot to store, with its stamp.
    pub snapshot: Option<(u64, Box<dyn Frozen>)>,
    /// What the log says of the membership.
    pub membership: Option<Membership>,
}

impl Left {
    /// Asks for the same in the outer role's name.
    #[inline]
    pub fn pass_on<O: Role>(self, out: &mut Out<'_, O>) {
        if let Some(key) = self.release {
            out.release_below(key);
        }
        if let Some((stamp, frozen)) = self.snapshot {
            out.store_snapshot(stamp, frozen);
        }
        if let Some(membership) = self.membership {
            out.announce(membership);
        }
    }
}

/// How the records of an inner role look in the log of the outer one. They keep their
/// [keys](Role::key).
pub trait Tag {
    /// Writes what stands before the inner record, so that both together are a record of the outer
    /// role.
    fn write(&self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Records as they are.
pub struct Untagged;

impl Tag for Untagged {}

/// The way out for envelopes that take the place of one of an inner role: they wait for what that
/// waited for.
pub struct SameFence<'a, 'b, O: Role> {
    out: &'a mut Out<'b, O>,
    fence: Option<usize>,
}

impl<O: Role> SameFence<'_, '_, O> {
    /// Sends as soon as the inner role's envelope could leave.
    pub fn send(&mut self, envelope: O::Send) {
        self.out.outbox.sends.push(Outgoing {
            envelope,
            fence: self.fence,
        });
    }
}

impl<R: Role> Inner<R> {
    /// A role of a node that keeps every record, or (`keeps_records` false) only vital ones.
    pub fn new(role: R, keeps_records: bool) -> Self {
        Inner {
            role,
            outbox: Outbox::new(keeps_records),
        }
    }

    /// Calls the role. What it asks for waits until it is [poured](Inner::pour).
    #[inline]
    pub fn call<T>(&mut self, act: impl FnOnce(&mut R, &mut Out<'_, R>) -> T) -> T {
        act(&mut self.role, &mut Out::new(&mut self.outbox))
    }

    /// Appends the role's records to those of the outer role, and hands each of its envelopes to
    /// `send`, which sends what takes its place.
    #[inline]
    pub fn pour<O: Role>(
        &mut self,
        out: &mut Out<'_, O>,
        tag: &impl Tag,
        mut send: impl FnMut(R::Send, &mut SameFence<'_, '_, O>),
    ) -> Left {
        let before = out.outbox.record_ends.len();
        append(&mut self.outbox, out.outbox, tag);
        if !self.outbox.reached.is_empty() {
            out.outbox.reached.append(&mut self.outbox.reached);
        }
        if !self.outbox.sends.is_empty() {
            for Outgoing { envelope, fence } in self.outbox.sends.drain(..) {
                let fence = fence.map(|records| before + records);
                send(envelope, &mut SameFence { out, fence });
            }
        }
        let Outbox {
            release,
            snapshot,
            membership,
            ..
        } = &mut self.outbox;
        if release.is_none() && snapshot.is_none() && membership.is_none() {
            return Left {
                release: None,
                snapshot: None,
                membership: None,
            };
        }
        Left {
            release: release.take(),
            snapshot: snapshot.take(),
            membership: membership.take(),
        }
    }

    /// Has the role persist again what it needs, in the name of the outer role.
    pub fn checkpoint<O: Role>(&self, out: &mut Out<'_, O>, tag: &impl Tag) {
        let mut outbox = Outbox::new(out.outbox.keeps_records);
        self.role.checkpoint(&mut Out::new(&mut outbox));
        append(&mut outbox, out.outbox, tag);
    }
}

/// Moves the records of one outbox to another.
#[inline]
fn append<F, E>(from: &mut Outbox<F>, to: &mut Outbox<E>, tag: &impl Tag) {
    // As most often.
    if from.record_ends.is_empty() {
        return;
    }
    let mut start = 0;
    for RecordEnd { end, vital, key } in from.record_ends.drain(..) {
        tag.write(&mut to.records);
        to.records.extend_from_slice(&from.records[start..end]);
        to.record_ends.push(RecordEnd {
            end: to.records.len(),
            vital,
            key,
        });
        start = end;
    }
    from.records.clear();
}

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
    inner: Inner<R>,
    translate: T,
}

impl<R: Role, T> Deref for Adapted<R, T> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.inner
    }
}

impl<R: Role, T: Translate<From = R::Send, Within = R::Config>> Adapted<R, T> {
    /// Adapts a role of a node that keeps every record, or (`keeps_records` false) only vital ones.
    pub fn new(role: R, keeps_records: bool, translate: T) -> Self {
        Adapted {
            inner: Inner::new(role, keeps_records),
            translate,
        }
    }

    fn call(&mut self, out: &mut Out<'_, Self>, act: impl FnOnce(&mut R, &mut Out<'_, R>)) {
        let Adapted { inner, translate } = self;
        inner.call(act);
        inner
            .pour(out, &Untagged, |envelope, same_fence| {
                same_fence.send(translate.translate(envelope))
            })
            .pass_on(out);
    }
}

impl<R: Role, T: Translate<From = R::Send, Within = R::Config>> Role for Adapted<R, T> {
    type In = R::In;
    type Send = T::To;
    type Config = T::Config;
    type Record = R::Record;

    fn recover(&mut self, record: R::Record) {
        self.inner.recover(record);
    }

    fn check_record(&self, record: &R::Record) -> Result<(), WireError> {
        self.inner.check_record(record)
    }

    fn key(record: &R::Record) -> Option<u64> {
        R::key(record)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.inner.restore(stamp, snapshot)
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
        self.inner.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_burst_end(now, out));
    }

    fn on_durable(&mut self, lsn: Lsn, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_durable(lsn, out));
    }

    fn on_snapshot(&mut self, stamp: u64, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_snapshot(stamp, out));
    }

    fn freeze(&mut self, now: Instant, at: u64) -> Picture {
        self.inner.freeze(now, at)
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        self.inner.checkpoint(out, &Untagged);
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_drain(now, drains, out));
    }

    fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    fn invariants(&self) {
        self.inner.invariants();
    }

    const METRICS: Metrics = R::METRICS;

    fn status(&self, status: &mut Status) {
        self.inner.status(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Persists every number that it receives, and sends it on: at once, and when it is on disk.
    struct Echo;

    impl Role for Echo {
        type In = u8;
        type Send = (u8, bool);
        type Config = ();
        type Record = u8;
        fn recover(&mut self, _: u8) {}
        fn key(record: &u8) -> Option<u64> {
            Some(u64::from(*record))
        }
        fn on_message(&mut self, _: Instant, number: u8, out: &mut Out<'_, Self>) {
            out.send((number, false));
            out.persist(number);
            out.send((number, true));
            out.send_unfenced((number, false));
            out.release_below(u64::from(number));
        }
    }

    struct Outer(Inner<Echo>);

    impl Role for Outer {
        type In = u8;
        type Send = u16;
        type Config = ();
        type Record = (u8, u8);
        fn recover(&mut self, _: (u8, u8)) {}
        fn on_message(&mut self, now: Instant, number: u8, out: &mut Out<'_, Self>) {
            out.persist((0, number));
            self.0.call(|echo, out| echo.on_message(now, number, out));
            let left = self.0.pour(out, &Seven, |(number, _), same_fence| {
                same_fence.send(u16::from(number));
                same_fence.send(u16::from(number) + 100);
            });
            left.pass_on(out);
        }
    }

    struct Seven;

    impl Tag for Seven {
        fn write(&self, out: &mut Vec<u8>) {
            out.push(7);
        }
    }

    #[test]
    fn what_is_poured_waits_for_what_it_waited_for() {
        let mut outer = Outer(Inner::new(Echo, true));
        let mut outbox = Outbox::new(true);
        for number in [4, 5] {
            outer.on_message(Instant(0), number, &mut Out::new(&mut outbox));
        }
        assert_eq!(outbox.records, [0, 4, 7, 4, 0, 5, 7, 5]);
        let keys: Vec<_> = outbox.record_ends.iter().map(|record| record.key).collect();
        assert_eq!(keys, [None, Some(4), None, Some(5)]);
        let sends: Vec<_> = outbox
            .sends
            .iter()
            .map(|outgoing| (outgoing.envelope, outgoing.fence))
            .collect();
        let each = |number: u16, before| {
            let fences = [Some(before), Some(before + 1), None];
            fences
                .into_iter()
                .flat_map(move |fence| [(number, fence), (number + 100, fence)])
        };
        assert_eq!(
            sends,
            vec![each(4, 1), each(5, 3)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        );
        assert_eq!(outbox.release, Some(5));
    }
}
