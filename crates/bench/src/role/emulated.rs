//! The rest of the world: every role but the one that is measured.
//!
//! An emulated instance is the real one with a [`Part`] in front of it. The part plays what
//! commands ask of the role, and as cheaply as can be; all else (elections, heartbeats, signs of
//! life) is left to the real one. So the process that is measured finds the protocol around it as
//! it always is.

use bytes::Bytes;
use ionian_kernel::id::{Epoch, Slot};
use ionian_kernel::layout::{Layout, LayoutError};
use ionian_kernel::machine::RestoreError;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Instance, NoInvariants, Protocol, Transition};
use ionian_kernel::role::{Lsn, Out, Outbox, Picture, Role};
use ionian_kernel::service::Service;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::{Never, Reader, WireError};
use ionian_protocols::multipaxos::{self, MultiPaxos};
use std::marker::PhantomData;
use std::sync::Arc;

/// How often a part that begins commands by itself does so. The runtime rounds timers up to a
/// millisecond.
const TICK: Duration = Duration::from_micros(500);

/// A protocol all of whose instances are emulated.
pub(crate) struct Emulated<P>(PhantomData<P>);

/// A part, made for an instance.
type Casting<P> = dyn Fn(ionian_kernel::layout::Address) -> Option<Part<P>> + Send + Sync;

/// Who plays what.
pub(crate) struct Script<P: Protocol> {
    pub(crate) config: P::Config,
    pub(crate) cast: Box<Casting<P>>,
}

/// What a part sees when it is called.
pub(crate) struct Stage<'a, P: Protocol> {
    pub(crate) now: Instant,
    out: Out<'a, Stagehand<P>>,
}

impl<P: Protocol> Stage<'_, P> {
    pub(crate) fn send(&mut self, envelope: P::Envelope) {
        // An emulated role keeps nothing that a crash could undo.
        self.out.send_unfenced(envelope);
    }
}

type Hear<P> = Box<
    dyn FnMut(&mut Stage<'_, P>, <P as Protocol>::Message) -> Option<<P as Protocol>::Message>
        + Send,
>;
type Tick<P> = Box<dyn FnMut(&mut Stage<'_, P>) + Send>;

/// How a protocol that has roles of MultiPaxos's at work in it says what those say.
pub(crate) trait Dialect: Send + Sync + 'static {
    /// The protocol.
    type Protocol: Protocol;
    /// What MultiPaxos says in place of this; `None` where parts have nothing to do with it.
    fn heard(&self, message: &<Self::Protocol as Protocol>::Message)
    -> Option<multipaxos::Message>;
    /// Sends what stands for this envelope.
    fn say(&self, envelope: multipaxos::Envelope, stage: &mut Stage<'_, Self::Protocol>);
}

/// What is played in place of a role.
pub(crate) struct Part<P: Protocol> {
    hear: Option<Hear<P>>,
    tick: Option<Tick<P>>,
    burst_end: Option<Tick<P>>,
    tick_at: Instant,
    /// The real role does nothing at all.
    alone: bool,
}

impl<P: Protocol> Default for Part<P> {
    fn default() -> Self {
        Part {
            hear: None,
            tick: None,
            burst_end: None,
            tick_at: Instant::ZERO,
            alone: false,
        }
    }
}

impl<P: Protocol> Part<P> {
    /// Without the real role behind it.
    pub(crate) fn alone() -> Self {
        Part {
            alone: true,
            ..Part::default()
        }
    }

    /// Takes messages in; those that it returns go to the real role.
    pub(crate) fn hear(
        mut self,
        hear: impl FnMut(&mut Stage<'_, P>, P::Message) -> Option<P::Message> + Send + 'static,
    ) -> Self {
        self.hear = Some(Box::new(hear));
        self
    }

    /// Is called every millisecond or so.
    pub(crate) fn tick(mut self, tick: impl FnMut(&mut Stage<'_, P>) + Send + 'static) -> Self {
        self.tick = Some(Box::new(tick));
        self
    }

    /// Is called when all that came together was heard.
    pub(crate) fn burst_end(mut self, end: impl FnMut(&mut Stage<'_, P>) + Send + 'static) -> Self {
        self.burst_end = Some(Box::new(end));
        self
    }
}

impl Part<MultiPaxos> {
    /// The same part in another protocol.
    pub(crate) fn in_dialect<D: Dialect>(self, dialect: &Arc<D>) -> Part<D::Protocol> {
        let ears = dialect.clone();
        let hear = self.hear.map(|mut hear| -> Hear<D::Protocol> {
            let mut outbox = Outbox::new(false);
            Box::new(move |stage, message| {
                let Some(theirs) = ears.heard(&message) else {
                    return Some(message);
                };
                let left = hear(
                    &mut Stage {
                        now: stage.now,
                        out: Out::new(&mut outbox),
                    },
                    theirs,
                );
                outbox
                    .take_sends()
                    .into_iter()
                    .for_each(|envelope| ears.say(envelope, stage));
                left.map(|_| message)
            })
        });
        let turned = |tick: Tick<MultiPaxos>| turned(tick, dialect.clone());
        let (tick, burst_end) = (self.tick.map(turned), self.burst_end.map(turned));
        Part {
            hear,
            tick,
            burst_end,
            tick_at: self.tick_at,
            alone: self.alone,
        }
    }
}

fn turned<D: Dialect>(mut tick: Tick<MultiPaxos>, dialect: Arc<D>) -> Tick<D::Protocol> {
    let mut outbox = Outbox::new(false);
    Box::new(move |stage| {
        tick(&mut Stage {
            now: stage.now,
            out: Out::new(&mut outbox),
        });
        outbox
            .take_sends()
            .into_iter()
            .for_each(|envelope| dialect.say(envelope, stage));
    })
}

/// A role, only so that a part can speak to its driver.
struct Stagehand<P>(PhantomData<P>);

impl<P: Protocol> Role for Stagehand<P> {
    type In = Never;
    type Send = P::Envelope;
    type Config = ();
    type Record = Never;
    fn recover(&mut self, record: Never) {
        match record {}
    }
    fn on_message(&mut self, _: Instant, message: Never, _: &mut Out<'_, Self>) {
        match message {}
    }
}

/// One emulated instance.
pub(crate) struct Actor<P: Protocol> {
    real: P::Instance,
    part: Part<P>,
}

impl<P: Protocol> Protocol for Emulated<P> {
    const NAME: &'static str = P::NAME;
    const KINDS: &'static [&'static str] = P::KINDS;
    const METRICS: &'static [Metrics] = P::METRICS;
    const PRESETS: &'static [Preset] = P::PRESETS;
    const EXECUTORS: &'static [u8] = P::EXECUTORS;
    type Message = P::Message;
    type Envelope = P::Envelope;
    type Instance = Actor<P>;
    type Config = Arc<Script<P>>;
    type Invariants = NoInvariants;

    fn configure(_: Layout) -> Result<Self::Config, LayoutError> {
        Err(LayoutError(
            "an emulated world has its configuration from the bench".into(),
        ))
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Err(LayoutError(
            "the membership of an emulated world does not change".into(),
        ))
    }

    fn latest_epoch(script: &Self::Config) -> Epoch {
        P::latest_epoch(&script.config)
    }

    fn service(script: &Self::Config, epoch: Epoch) -> Service {
        P::service(&script.config, epoch)
    }

    fn founding_records(script: &Self::Config, kind: u8, slot: Slot) -> Vec<Vec<u8>> {
        P::founding_records(&script.config, kind, slot)
    }

    fn instantiate(script: &Self::Config, birth: Birth<'_>) -> Actor<P> {
        let part = (script.cast)(birth.address).unwrap_or_default();
        Actor {
            part,
            real: P::instantiate(&script.config, birth),
        }
    }
}

impl<P: Protocol> Instance for Actor<P> {
    type Message = P::Message;
    type Envelope = P::Envelope;
    type Config = Arc<Script<P>>;

    fn on_message(&mut self, now: Instant, message: P::Message, outbox: &mut Outbox<P::Envelope>) {
        let left = match &mut self.part.hear {
            None => Some(message),
            Some(hear) => hear(
                &mut Stage {
                    now,
                    out: Out::new(outbox),
                },
                message,
            ),
        };
        if let Some(message) = left
            && !self.part.alone
        {
            self.real.on_message(now, message, outbox);
        }
    }
    fn on_timer(&mut self, now: Instant, outbox: &mut Outbox<P::Envelope>) {
        if let Some(tick) = &mut self.part.tick
            && self.part.tick_at <= now
        {
            self.part.tick_at = now + TICK;
            tick(&mut Stage {
                now,
                out: Out::new(outbox),
            });
        }
        if !self.part.alone && self.real.next_timer().is_some_and(|at| at <= now) {
            self.real.on_timer(now, outbox);
        }
    }
    fn next_timer(&self) -> Option<Instant> {
        let real = self.real.next_timer().filter(|_| !self.part.alone);
        earliest(real, self.part.tick.is_some().then_some(self.part.tick_at))
    }
    fn recover(&mut self, record: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
        self.real.recover(record)
    }
    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.real.restore(stamp, snapshot)
    }
    fn on_reconfigure(&mut self, _: Instant, _: Arc<Script<P>>, _: &mut Outbox<P::Envelope>) {}
    fn on_start(&mut self, now: Instant, outbox: &mut Outbox<P::Envelope>) {
        if !self.part.alone {
            self.real.on_start(now, outbox);
        }
    }
    fn on_burst_end(&mut self, now: Instant, outbox: &mut Outbox<P::Envelope>) {
        if let Some(end) = &mut self.part.burst_end {
            end(&mut Stage {
                now,
                out: Out::new(outbox),
            });
        }
        self.real.on_burst_end(now, outbox);
    }
    fn on_durable(&mut self, lsn: Lsn, outbox: &mut Outbox<P::Envelope>) {
        self.real.on_durable(lsn, outbox);
    }
    fn on_snapshot(&mut self, stamp: u64, outbox: &mut Outbox<P::Envelope>) {
        self.real.on_snapshot(stamp, outbox);
    }
    fn freeze(&mut self, now: Instant, at: u64) -> Picture {
        self.real.freeze(now, at)
    }
    fn checkpoint(&self, outbox: &mut Outbox<P::Envelope>) {
        self.real.checkpoint(outbox);
    }
    fn on_drain(&mut self, now: Instant, drains: bool, outbox: &mut Outbox<P::Envelope>) {
        self.real.on_drain(now, drains, outbox);
    }
    fn is_drained(&self) -> bool {
        self.real.is_drained()
    }
    fn invariants(&self) {
        self.real.invariants();
    }
    fn status(&self) -> Status {
        self.real.status()
    }
}
