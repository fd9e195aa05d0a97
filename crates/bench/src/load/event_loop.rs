//! A thread of the generator: all its connections on one event queue. Each time round it takes what
//! has come on each connection in one read, and sends what is due there in one write.

use super::alarm::Alarm;
use super::connection::{Came, Connection, Opened};
use super::encode::Encoder;
use super::ledger::{Effort, Ledger, Loop, Tally, Window};
use super::schedule::Schedule;
use super::workload::Workload;
use anyhow::{Context, Result, ensure};
use ionian_harness::process::thread_times;
use mio::{Events, Interest, Poll, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// As much as is read at once: no connection has more on its way, unless values are large.
const READ_BYTES: usize = 64 << 10;

/// Connections that are looked at in one go.
const EVENTS: usize = 1024;

/// How long to wait for what is on its way when the window is over.
const DRAIN: u64 = 2_000_000_000;

/// The longest sleep: after it the loop sees a request to stop.
const LONGEST_SLEEP: u64 = 100_000_000;

/// The token of the alarm.
const ALARM: Token = Token(usize::MAX);

/// What all threads of a round share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Replies that are no errors, warm-up included.
    pub(crate) answered: AtomicU64,
    /// Error replies, warm-up included.
    pub(crate) errors: AtomicU64,
    /// All are to stop.
    pub(crate) stop: AtomicBool,
}

impl Shared {
    /// Fails when it is to stop.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }
}

/// What a thread has to do.
pub(crate) struct Job {
    pub(crate) connections: Vec<Opened>,
    pub(crate) encoder: Encoder,
    pub(crate) workload: Workload,
    /// Commands that are sent at once.
    pub(crate) pipeline: u64,
    /// When what is to be begun; without it, a connection goes on when it has all its replies.
    pub(crate) schedule: Option<Schedule>,
    /// What counts, in nanoseconds since `origin`.
    pub(crate) window: Window,
    pub(crate) origin: Instant,
    pub(crate) shared: Arc<Shared>,
}

/// Does it, until the window is over and what was begun is answered, or the workload has an end.
///
/// # Errors
/// When a connection breaks, or what comes is no reply.
pub(crate) fn run(job: Job) -> Result<Tally> {
    let shared = job.shared.clone();
    let tally = EventLoop::new(job).and_then(EventLoop::run);
    if tally.is_err() {
        // Without it the run is none, and the others need not go on.
        shared.stop.store(true, Ordering::Relaxed);
    }
    tally
}

struct EventLoop {
    poll: Poll,
    alarm: Alarm,
    /// When the alarm goes off.
    alarm_at: u64,
    connections: Vec<Connection>,
    /// Those that wait for something to be due, or for the end.
    idle: Vec<usize>,
    encoder: Encoder,
    workload: Workload,
    pipeline: u64,
    schedule: Option<Schedule>,
    window: Window,
    origin: Instant,
    shared: Arc<Shared>,
    ledger: Ledger,
    meter: Meter,
}

impl EventLoop {
    fn new(job: Job) -> Result<Self> {
        let Job {
            connections,
            encoder,
            workload,
            pipeline,
            schedule,
            window,
            origin,
            shared,
        } = job;
        let poll = Poll::new().context("the system gives no event queue")?;
        let mut connections = connections
            .into_iter()
            .map(Connection::new)
            .collect::<Result<Vec<_>>>()?;
        for (place, connection) in connections.iter_mut().enumerate() {
            let interests = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(connection.stream.socket(), Token(place), interests)?;
        }
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let kind = if schedule.is_some() {
            Loop::Open
        } else {
            Loop::Closed
        };
        let idle = (0..connections.len()).rev().collect();
        let (ledger, meter) = (Ledger::new(window, kind), Meter::default());
        let loops = EventLoop {
            poll,
            alarm,
            alarm_at: 0,
            connections,
            idle,
            encoder,
            workload,
            pipeline,
            schedule,
            window,
            origin,
            shared,
            ledger,
            meter,
        };
        Ok(loops)
    }

    fn run(mut self) -> Result<Tally> {
        let mut events = Events::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let now = self.begin_due()?;
            self.meter.look(now, self.window)?;
            if self.is_over(now) || self.shared.stop.load(Ordering::Relaxed) {
                return self.close(now);
            }
            self.sleep(&mut events, now)?;
            let mut came = Came::default();
            for event in &events {
                let Token(place) = event.token();
                if event.token() == ALARM {
                    continue;
                }
                if event.is_writable() {
                    self.connections[place].write()?;
                }
                let some = self.attend(place, &mut buffer)?;
                came = Came {
                    answered: came.answered + some.answered,
                    errors: came.errors + some.errors,
                };
            }
            self.shared
                .answered
                .fetch_add(came.answered, Ordering::Relaxed);
            self.shared.errors.fetch_add(came.errors, Ordering::Relaxed);
        }
    }

    /// Takes what has come on the connection, and goes on there when its unit is answered.
    fn attend(&mut self, place: usize, buffer: &mut [u8]) -> Result<Came> {
        let connection = &mut self.connections[place];
        // Nothing is asked, so nothing comes but the end, which is seen when something is.
        if connection.is_idle() {
            return Ok(Came::default());
        }
        let origin = self.origin;
        let came = connection.read(buffer, || nanoseconds(origin), &mut self.ledger)?;
        if connection.is_idle() {
            let now = nanoseconds(origin);
            if !self.begin_on(place, now)? {
                self.idle.push(place);
            }
        }
        Ok(came)
    }

    /// Begins what is due on connections that are idle; returns the time.
    fn begin_due(&mut self) -> Result<u64> {
        let now = nanoseconds(self.origin);
        while let Some(place) = self.idle.pop() {
            if !self.begin_on(place, now)? {
                self.idle.push(place);
                break;
            }
        }
        Ok(now)
    }

    /// Begins the next unit on this connection, if one is due.
    fn begin_on(&mut self, place: usize, now: u64) -> Result<bool> {
        let begun = match &mut self.schedule {
            Some(schedule) => schedule.take(now),
            None => (now < self.window.end).then_some(now),
        };
        let Some(begun) = begun else { return Ok(false) };
        let (encoder, workload, pipeline) = (&self.encoder, &mut self.workload, self.pipeline);
        let fill = |output: &mut Vec<u8>| {
            let asks = (0..pipeline).map_while(|_| workload.next());
            asks.map(|ask| encoder.push(ask, output)).count() as u64
        };
        self.connections[place].begin(begun, fill)?;
        Ok(!self.connections[place].is_idle())
    }

    /// Whether nothing is to be begun or answered any more, or it takes too long.
    fn is_over(&self, now: u64) -> bool {
        let has_begun_all = match &self.workload {
            Workload::Each(keys) => keys.is_empty(),
            // Of a schedule, nothing is due after the window; but what was before may still be
            // waiting.
            Workload::Drawn(_) => {
                now >= self.window.end
                    && self
                        .schedule
                        .as_ref()
                        .is_none_or(|schedule| schedule.due().is_none())
            }
        };
        has_begun_all && self.idle.len() == self.connections.len()
            || now >= self.window.end.saturating_add(DRAIN)
    }

    /// Waits for replies, and for the time at which something is to be done.
    fn sleep(&mut self, events: &mut Events, now: u64) -> Result<()> {
        let mut until = now + LONGEST_SLEEP;
        until = [self.window.begin, self.window.end]
            .iter()
            .filter(|time| **time > now)
            .fold(until, |a, b| a.min(*b));
        let due = self
            .schedule
            .as_ref()
            .filter(|_| !self.idle.is_empty())
            .and_then(Schedule::due);
        if let Some(due) = due.filter(|due| *due < until && *due != self.alarm_at) {
            match self.alarm.set(due.saturating_sub(now))? {
                true => self.alarm_at = due,
                false => until = due,
            }
        }
        match self
            .poll
            .poll(events, Some(Duration::from_nanos(until - now)))
        {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Counts what is not answered.
    fn close(mut self, now: u64) -> Result<Tally> {
        if !self.shared.stop.load(Ordering::Relaxed) {
            for connection in &self.connections {
                let (outstanding, begun) = connection.open();
                if outstanding > 0 {
                    self.ledger.unfinished(begun, now, outstanding);
                }
            }
            while let Some(begun) = self
                .schedule
                .as_mut()
                .and_then(|schedule| schedule.take(now))
            {
                self.ledger.unfinished(begun, now, self.pipeline);
            }
        }
        Ok(self.ledger.close(self.meter.effort()))
    }
}

/// Nanoseconds since the origin.
pub(crate) fn nanoseconds(origin: Instant) -> u64 {
    origin.elapsed().as_nanos() as u64
}

/// The thread's times at the edges of the window.
#[derive(Default)]
struct Meter {
    begin: Option<Reading>,
    end: Option<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    at: u64,
    busy: Duration,
    starved: Duration,
}

impl Meter {
    fn look(&mut self, now: u64, window: Window) -> Result<()> {
        let reading = || -> Result<Reading> {
            let (busy, starved) = thread_times()?;
            Ok(Reading {
                at: now,
                busy,
                starved,
            })
        };
        if self.begin.is_none() && now >= window.begin {
            self.begin = Some(reading()?);
        }
        if self.end.is_none() && now >= window.end {
            self.end = Some(reading()?);
        }
        Ok(())
    }

    fn effort(&self) -> Effort {
        let (Some(begin), Some(end)) = (self.begin, self.end) else {
            return Effort::default();
        };
        Effort {
            busy: end.busy.saturating_sub(begin.busy),
            starved: end.starved.saturating_sub(begin.starved),
            elapsed: Duration::from_nanos(end.at - begin.at),
        }
    }
}
