//! A protocol of which one role instance takes longer on purpose. Everything else is that of the
//! protocol which it wraps, so that no program has a setting for it.

use bytes::Bytes;
use ionian_kernel::id::{Epoch, Index, MAX_INSTANCES, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Instance, NoInvariants, Protocol, Transition};
use ionian_kernel::role::{Cover, Lsn, Outbox, Picture};
use ionian_kernel::service::Service;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{Reader, WireError};
use nix::time::{ClockId, clock_gettime};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most kinds of roles.
const KINDS: usize = 16;

/// Of each instance: how many messages it has handled, and how many nanoseconds of processor time
/// more than it needs it takes for one. Of all clusters in this process.
struct Load {
    handled: AtomicU64,
    extra_ns: AtomicU64,
}

static LOADS: [[Load; MAX_INSTANCES]; KINDS] = [const {
    [const {
        Load {
            handled: AtomicU64::new(0),
            extra_ns: AtomicU64::new(0),
        }
    }; MAX_INSTANCES]
}; KINDS];

fn load(at: Address) -> &'static Load {
    &LOADS[usize::from(at.kind)][usize::from(at.index)]
}

/// From now on the instance takes so much longer for each message.
pub(crate) fn slow_down(at: Address, extra: Duration) {
    load(at)
        .extra_ns
        .store(extra.as_nanos() as u64, Ordering::Relaxed);
}

/// How many messages each instance of a kind has handled.
pub(crate) fn handled(kind: u8) -> Vec<(Index, u64)> {
    let all = (0..).zip(&LOADS[usize::from(kind)]);
    all.map(|(index, load)| (index, load.handled.load(Ordering::Relaxed)))
        .collect()
}

/// Takes processor time of this thread.
fn spin(ns: u64) {
    let used = || {
        let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
        Duration::from(used).as_nanos() as u64
    };
    let end = used() + ns;
    while used() < end {}
}

/// `P` with instances that can be slowed down.
pub(crate) struct Slowed<P>(PhantomData<P>);

/// One of its instances.
pub(crate) struct Slow<I> {
    at: Address,
    own: I,
}

impl<P: Protocol> Protocol for Slowed<P> {
    const NAME: &'static str = P::NAME;
    const KINDS: &'static [&'static str] = P::KINDS;
    const METRICS: &'static [Metrics] = P::METRICS;
    const PRESETS: &'static [Preset] = P::PRESETS;
    const EXECUTORS: &'static [u8] = P::EXECUTORS;
    const EXECUTES_BEFORE_STABLE: bool = P::EXECUTES_BEFORE_STABLE;
    type Message = P::Message;
    type Envelope = P::Envelope;
    type Instance = Slow<P::Instance>;
    type Config = P::Config;
    type Invariants = NoInvariants;

    fn configure(layout: Layout) -> Result<Self::Config, LayoutError> {
        P::configure(layout)
    }

    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        P::transition(from, to)
    }

    fn latest_epoch(config: &Self::Config) -> Epoch {
        P::latest_epoch(config)
    }

    fn service(config: &Self::Config, epoch: Epoch) -> Service {
        P::service(config, epoch)
    }

    fn founding_records(config: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>> {
        P::founding_records(config, at, slot)
    }

    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Self::Instance {
        Slow {
            at: birth.address,
            own: P::instantiate(config, birth),
        }
    }
}

impl<I: Instance> Instance for Slow<I> {
    type Message = I::Message;
    type Envelope = I::Envelope;
    type Config = I::Config;

    fn on_message(
        &mut self,
        now: Instant,
        message: Self::Message,
        outbox: &mut Outbox<Self::Envelope>,
    ) {
        let load = load(self.at);
        load.handled.fetch_add(1, Ordering::Relaxed);
        self.own.on_message(now, message, outbox);
        match load.extra_ns.load(Ordering::Relaxed) {
            0 => {}
            extra => spin(extra),
        }
    }

    fn recover(&mut self, record: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
        self.own.recover(record)
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.own.restore(stamp, snapshot)
    }

    fn on_reconfigure(
        &mut self,
        now: Instant,
        config: Self::Config,
        outbox: &mut Outbox<Self::Envelope>,
    ) {
        self.own.on_reconfigure(now, config, outbox);
    }

    fn on_start(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_start(now, outbox);
    }

    fn on_timer(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_timer(now, outbox);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.own.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_burst_end(now, outbox);
    }

    fn on_durable(&mut self, lsn: Lsn, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_durable(lsn, outbox);
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_snapshot(stamp, stored, outbox);
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.own.freeze(now, cover)
    }

    fn checkpoint(&self, outbox: &mut Outbox<Self::Envelope>) {
        self.own.checkpoint(outbox);
    }

    fn on_drain(&mut self, now: Instant, drains: bool, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_drain(now, drains, outbox);
    }

    fn on_retire(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>) {
        self.own.on_retire(now, outbox);
    }

    fn is_drained(&self) -> bool {
        self.own.is_drained()
    }

    fn invariants(&self) {
        self.own.invariants();
    }

    fn status(&self) -> Status {
        self.own.status()
    }
}
