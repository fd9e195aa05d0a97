//! One of those that are measured: where it is asked, whose processor time it is.

use super::access::{Access, Place};
use super::arguments::{Account, Load};
use super::connection::Opened;
use super::encode::Encoder;
use super::event_loop::{Job, Shared, run};
use super::lanes::{self, Lanes, Order, RunNode};
use super::ledger::{Tally, Window};
use super::own::{self, Own};
use super::schedule::Schedule;
use super::target::{Target, connect, keys};
use super::workload::Workload;
use anyhow::{Context, Result, bail, ensure};
use ionian_deployment::Configuration;
use ionian_harness::process::processor_time;
use ionian_kernel::client::ReadLevel;
use ionian_program::{BadUsage, Level};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Connections, and commands that each sends at once, while all keys are written.
const FILL: (usize, u64) = (16, 64);

/// How long that may take.
const FILL_PATIENCE: Duration = Duration::from_secs(600);

/// See the top of this file.
pub(crate) struct Side {
    /// What it is called in tables.
    pub(crate) name: String,
    way: Way,
    level: Option<Level>,
    pub(crate) accounts: Vec<Account>,
    /// The cluster, if it was started for the run.
    own: Option<Own>,
}

/// How it is asked.
enum Way {
    /// By connections to these.
    Connections(Vec<Place>, Access),
    /// Through a client lane of this process.
    Lanes(Lanes),
}

/// A round that is under way.
pub(crate) struct Running {
    /// One for each thread.
    pub(crate) tallies: Receiver<Result<Tally>>,
    pub(crate) threads: usize,
    pub(crate) origin: Instant,
    pub(crate) shared: Arc<Shared>,
}

impl Side {
    /// Servers that run.
    pub(crate) fn of_targets(
        targets: &[Target],
        accounts: &[Account],
        (access, level): (Access, Option<Level>),
    ) -> Result<Self> {
        let name = targets
            .iter()
            .map(Target::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        let places = targets
            .iter()
            .map(Target::resolve)
            .collect::<Result<Vec<_>>>()?;
        Ok(Side {
            name,
            way: Way::Connections(places, access),
            level,
            accounts: accounts.to_vec(),
            own: None,
        })
    }

    /// A cluster that was started for the run; returns when it serves.
    pub(crate) fn of_own(
        name: String,
        mut own: Own,
        load: &Load,
        shared: &Arc<Shared>,
        run: RunNode,
    ) -> Result<Self> {
        let way = match own.this {
            None => Way::Connections(own.gateways()?, Access::default()),
            Some(node) => {
                let (name, store) = (own.cluster.name(node).to_owned(), own.cluster.store(node));
                let configuration = Configuration::founded(own.cluster.deployment().clone());
                let mut lanes = Lanes::start(configuration, &name, store, run)?;
                let encoder = Encoder::of_lane(&load.asks.mix());
                let check = || own.check();
                lanes::wait_until_served(&mut lanes, own::PATIENCE, &encoder, shared, check)?;
                Way::Lanes(lanes)
            }
        };
        own.wait_until_served(shared)?;
        Ok(Side {
            name,
            way,
            level: load.asks.level,
            accounts: own.accounts()?,
            own: Some(own),
        })
    }

    /// The processor time of each process until now, in the order of the accounts.
    pub(crate) fn processor_times(&self) -> Result<Vec<Duration>> {
        let time = |account: &Account| {
            let Account { name, process } = account;
            processor_time(*process)
                .with_context(|| format!("{name} (process {process}) does not run"))
        };
        self.accounts.iter().map(time).collect()
    }

    /// Makes sure that the nodes run that were started for the run.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Way::Lanes(lanes) = &mut self.way {
            lanes.check()?;
        }
        self.own.as_mut().map_or(Ok(()), |own| own.check())
    }

    /// Makes sure that nothing is overwritten in servers that were not started for the run.
    ///
    /// # Errors
    /// When one holds keys, or does not say how many.
    pub(crate) fn leave_keys_alone(&self) -> Result<()> {
        let (Way::Connections(places, access), None) = (&self.way, &self.own) else {
            return Ok(());
        };
        for place in places {
            match keys(place, access)? {
                Some(0) => {}
                Some(keys) => bail!(BadUsage(format!(
                    "{place} holds {keys} keys, and the load writes and overwrites some: say --yes if that may be"
                ))),
                None => bail!(BadUsage(format!(
                    "{place} does not say how many keys it holds (DBSIZE), and the load writes some: say --yes if \
                     that may be"
                ))),
            }
        }
        Ok(())
    }

    /// Writes every key.
    pub(crate) fn fill(&self, load: &Load, shared: &Arc<Shared>) -> Result<()> {
        let (mix, origin) = (load.asks.mix(), Instant::now());
        let (workload, window) = (
            Workload::Each(0..mix.keys),
            Window {
                begin: 0,
                end: FILL_PATIENCE.as_nanos() as u64,
            },
        );
        let tally = match &self.way {
            Way::Lanes(lanes) => lanes
                .ask(self.order(load, workload, window, shared))
                .recv()??,
            Way::Connections(places, access) => {
                let (connections, pipeline) = FILL;
                let encoder = Encoder::of_redis(&mix);
                let (connections, shared) =
                    (self.open(places, access, connections)?, shared.clone());
                run(Job {
                    connections,
                    encoder,
                    workload,
                    pipeline,
                    schedule: None,
                    window,
                    origin,
                    shared,
                })?
            }
        };
        if let Some((word, count)) = tally.errors.first_key_value() {
            bail!(
                "{}: {count} of {} keys could not be written: {word}",
                self.name,
                mix.keys
            );
        }
        let stopped = shared.stop.load(Ordering::Relaxed);
        ensure!(
            stopped || tally.answered == mix.keys,
            "{}: the keys could not be written in time",
            self.name
        );
        Ok(())
    }

    fn order(
        &self,
        load: &Load,
        workload: Workload,
        window: Window,
        shared: &Arc<Shared>,
    ) -> Order {
        Order {
            workload,
            encoder: Encoder::of_lane(&load.asks.mix()),
            level: self.level.map_or(ReadLevel::default(), Level::read_level),
            in_flight: load.asks.in_flight(),
            window,
            origin: Instant::now(),
            shared: shared.clone(),
        }
    }

    /// Begins.
    pub(crate) fn begin(
        &self,
        load: &Load,
        window: Window,
        seed: u64,
        shared: &Arc<Shared>,
    ) -> Result<Running> {
        match &self.way {
            Way::Connections(places, access) => {
                self.begin_threads((places, access), load, window, seed, shared)
            }
            Way::Lanes(lanes) => {
                let order =
                    self.order(load, Workload::drawn(load.asks.mix(), seed), window, shared);
                let (origin, shared) = (order.origin, shared.clone());
                Ok(Running {
                    tallies: lanes.ask(order),
                    threads: 1,
                    origin,
                    shared,
                })
            }
        }
    }

    /// Opens all connections, and begins.
    fn begin_threads(
        &self,
        (places, access): (&[Place], &Access),
        load: &Load,
        window: Window,
        seed: u64,
        shared: &Arc<Shared>,
    ) -> Result<Running> {
        let Load { asks, course, .. } = load;
        let threads = course.threads();
        let mut connections: Vec<Vec<Opened>> = (0..threads).map(|_| Vec::new()).collect();
        for (place, connection) in self
            .open(places, access, asks.clients())?
            .into_iter()
            .enumerate()
        {
            connections[place % threads].push(connection);
        }
        let (tell, tallies) = channel();
        let origin = Instant::now();
        for (place, connections) in connections.into_iter().enumerate() {
            let schedule = asks.rate.map(|rate| {
                let units = rate / asks.pipeline() as f64;
                // The threads take turns.
                let first = 1e9 / units * place as f64;
                Schedule::new(first as u64, units / threads as f64, window.end)
            });
            let mix = asks.mix();
            let job = Job {
                connections,
                encoder: Encoder::of_redis(&mix),
                workload: Workload::drawn(mix, seed.wrapping_add(place as u64)),
                pipeline: asks.pipeline(),
                schedule,
                window,
                origin,
                shared: shared.clone(),
            };
            let tell = tell.clone();
            let body = move || {
                // There is no receiver any more when another thread has failed.
                let _ = tell.send(run(job));
            };
            std::thread::Builder::new()
                .name(format!("load-{place}"))
                .spawn(body)?;
        }
        Ok(Running {
            tallies,
            threads,
            origin,
            shared: shared.clone(),
        })
    }

    fn open(&self, places: &[Place], access: &Access, count: usize) -> Result<Vec<Opened>> {
        places
            .iter()
            .cycle()
            .take(count)
            .map(|place| connect(place, access, self.level))
            .collect()
    }
}
