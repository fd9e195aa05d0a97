//! One run from beginning to end.

use crate::arguments::{Arguments, Sabotage};
use crate::client::{Client, Load};
use crate::cluster::{Cluster, try_file_limit, try_tls};
use crate::faults::Faults;
use crate::judge::{Expected, Judge, Violation};
use crate::keys::Keys;
use crate::lives::Lives;
use crate::network::try_callers;
use crate::odd::{self, Odd};
use crate::report::{Counts, Progress, Report};
use crate::rotation::{self, Rotation};
use crate::schedule::{Kind, Schedule};
use crate::settle;
use anyhow::{Result, bail};
use ionian_harness::cluster::program;
use ionian_kernel::random::Random;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

/// The most requests that a client sends at once.
const DEPTH: usize = 16;

/// How often the line of progress is drawn and everything is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many violations are printed; a broken cluster may have one for every key.
const TOLD: usize = 10;

/// Runs, reports, and cleans up; whether all was well.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let seed = arguments
        .seed
        .unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
    let ionian = program(arguments.ionian.as_deref())?;
    let root = std::path::absolute(
        arguments
            .data
            .join(format!("seed-{seed}-{}", std::process::id())),
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut run = Run::new(arguments, seed, &ionian, &root)?;
    let rotation = run.rotation();
    let whole = async {
        tokio::select! {
            done = run.whole() => done,
            error = rotation => error,
        }
    };
    let result = runtime.block_on(LocalSet::new().run_until(whole));
    if let Err(error) = result {
        run.report.failures.push(format!("{error:#}"));
    }
    run.end(&arguments.data)
}

struct Run {
    arguments: Arguments,
    seed: u64,
    root: PathBuf,
    faults: Faults,
    schedule: Schedule,
    progress: Progress,
    report: Report,
    violations: Vec<Violation>,
}

impl Run {
    fn new(arguments: &Arguments, seed: u64, ionian: &Path, root: &Path) -> Result<Self> {
        let mut kinds = arguments.kinds();
        let cuts = kinds.contains(&Kind::Cut);
        let mut cluster =
            Cluster::new(ionian, root, &arguments.preset, &arguments.settings(), cuts)?;
        if let Some(former) = &arguments.former {
            let former = program(Some(former))?;
            if arguments.tls {
                try_tls(&former)?;
            }
            match arguments.rolls {
                None => cluster.mix_with(Some(former)),
                Some(_) => (0..cluster.len())
                    .for_each(|node| cluster.set_program(node, Some(former.clone()))),
            }
        }
        if arguments.tls {
            cluster.secure(Duration::from_secs(arguments.certificate_seconds), seed)?;
        }
        let mut skipped = Vec::new();
        if cuts && let Err(error) = try_callers() {
            skipped.push(format!("cuts: {error:#}"));
            kinds.retain(|kind| *kind != Kind::Cut);
        }
        if kinds.contains(&Kind::FullDisk)
            && let Err(error) = try_file_limit(root)
        {
            skipped.push(format!("full disks: {error:#}"));
            kinds.retain(|kind| *kind != Kind::FullDisk);
        }
        skipped
            .iter()
            .for_each(|fault| eprintln!("skipped: {fault}"));
        let gap = Duration::from_millis(arguments.gap_ms);
        let schedule = Schedule::new(seed, cluster.len(), &kinds, gap);
        let mut counts = Counts::default();
        counts.failed = arguments.no_faults.then_some(0);
        let report = Report {
            seed,
            preset: arguments.preset.clone(),
            seconds: 0.0,
            seconds_to_serve: None,
            passed: false,
            failures: Vec::new(),
            skipped,
            counts: counts.clone(),
            keys: 0,
            open_keys: 0,
            replicas_compared: 0,
            repeat: arguments.repeat(seed),
        };
        let gateways = Rc::new(RefCell::new(cluster.gateways()?));
        let faults = Faults {
            cluster: Rc::new(RefCell::new(cluster)),
            counts: Rc::new(RefCell::new(counts)),
            gateways,
        };
        let progress = Progress::new(arguments.duration());
        let (arguments, root) = (arguments.clone(), root.to_owned());
        Ok(Run {
            arguments,
            seed,
            root,
            faults,
            schedule,
            progress,
            report,
            violations: Vec::new(),
        })
    }

    /// Replaces certificates, if connections are secured, until an error.
    fn rotation(&self) -> impl Future<Output = Result<()>> + use<> {
        let replaces = self.arguments.tls && self.arguments.sabotage != Some(Sabotage::Expire);
        let (faults, undisturbed) = (self.faults.clone(), self.arguments.no_faults);
        let rotation = Rotation::new(faults, undisturbed, self.seed);
        async move {
            match replaces {
                true => rotation.run().await.map(|never| match never {}),
                false => std::future::pending().await,
            }
        }
    }

    /// Faults under load, and then the check of everything.
    async fn whole(&mut self) -> Result<()> {
        eprintln!("seed {}, in {}", self.seed, self.root.display());
        self.faults.heal()?;
        self.serving().await?;
        let gateway = self.faults.gateways.borrow()[0].clone();
        let lives = Lives::begin(&gateway, self.arguments.duration()).await?;
        let load = self.load();
        let clients = self.clients(&load);
        let odd = self.odd_clients(&load);
        let begun = Instant::now();
        self.faults.counts.borrow_mut().begin();
        let torture = self.torture(&load).await;
        self.report.seconds = begun.elapsed().as_secs_f64();
        self.faults.counts.borrow_mut().note_time_without_write();
        load.stop.set(true);
        let limit = self.arguments.write_limit();
        let beyond = limit.and_then(|limit| self.faults.counts.borrow().beyond(limit));
        self.report.failures.extend(beyond);
        let settled = match torture {
            Ok(()) => self.settle(&load, clients, odd, &lives).await,
            Err(error) => Err(error),
        };
        self.report.failures.extend(load.complaint.take());
        let first = load.first_failure.take();
        self.report.failures.extend(first.map(|first| {
            let failed = self.faults.counts.borrow().failed.unwrap_or_default();
            format!("without faults {failed} commands and connections failed, the first: {first}")
        }));
        // Whatever went wrong, what the histories tell is worth knowing.
        let judgement = load.judge.take().expect("it is taken once").finish();
        self.report.keys = (judgement.expected.len() + judgement.violations.len()) as u64;
        let open = |expected: &&Expected| matches!(expected, Expected::Open(_));
        self.report.open_keys = judgement.expected.iter().filter(open).count() as u64;
        let moment = load.keys.borrow().end();
        let (expected, violations) = (judgement.expected, judgement.violations);
        self.violations = violations;
        settled?;
        self.compare(expected, moment).await
    }

    /// Compares what is there at the end with what must be.
    async fn compare(&mut self, expected: Vec<Expected>, moment: u64) -> Result<()> {
        self.progress.say("reading everything back from everywhere");
        let nodes = self.faults.cluster.borrow().contacts()?;
        let gateways = self.faults.gateways.borrow().clone();
        let (violations, replicas) = settle::compare(expected, moment, &gateways, &nodes).await?;
        self.violations.extend(violations);
        self.report.replicas_compared = replicas;
        rotation::settled(&self.faults).await?;
        self.faults.cluster.borrow_mut().check()
    }

    fn load(&self) -> Rc<Load> {
        let clients = usize::from(self.arguments.clients);
        Rc::new(Load {
            keys: RefCell::new(Keys::new(clients.div_ceil(2) * DEPTH + clients / 2)),
            judge: RefCell::new(Some(Judge::start())),
            counts: self.faults.counts.clone(),
            gateways: self.faults.gateways.clone(),
            stop: Cell::new(false),
            complaint: RefCell::new(None),
            first_failure: RefCell::new(None),
        })
    }

    fn clients(&self, load: &Rc<Load>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for id in 0..self.arguments.clients {
            let random = Random::new(
                self.seed
                    .wrapping_mul(1 << 16)
                    .wrapping_add(u64::from(id) + 1),
            );
            let depth = if id % 2 == 0 { DEPTH } else { 1 };
            // Below, and above, how long a gateway takes to give up.
            let patience = match id % 4 {
                _ if self.arguments.no_faults => settle::ANSWER_LIMIT,
                0 | 1 => Duration::from_millis(1500),
                _ => Duration::from_millis(8000),
            };
            clients.spawn_local(
                Client {
                    load: load.clone(),
                    id,
                    depth,
                    patience,
                    random,
                }
                .run(),
            );
        }
        clients
    }

    fn odd_clients(&self, load: &Rc<Load>) -> JoinSet<Odd> {
        let mut clients = JoinSet::new();
        for odd in odd::clients(load, self.arguments.odd_clients, self.seed) {
            clients.spawn_local(odd.run());
        }
        clients
    }

    /// Faults for as long as was asked for, or until all programs are exchanged.
    async fn torture(&mut self, load: &Load) -> Result<()> {
        let whole = self.arguments.duration();
        let seed = self.seed;
        let begun = Instant::now();
        let Run {
            arguments,
            root,
            faults,
            schedule,
            progress,
            ..
        } = self;
        let work = async {
            if let (Some(times), Some(former)) = (arguments.rolls, &arguments.former) {
                let former = program(Some(former))?;
                return faults.exchange(&former, seed, times.into()).await;
            }
            if arguments.former.is_some() {
                faults.run(schedule, begun + whole / 2).await?;
                faults.upgrade().await?;
            }
            let how = match arguments.sabotage {
                None | Some(Sabotage::Expire) => return faults.run(schedule, begun + whole).await,
                Some(how) => how,
            };
            faults.run(schedule, begun + whole / 4).await?;
            faults.while_all_are_down(|cluster| copy(&cluster.stores(), &root.join("earlier")))?;
            faults.run(schedule, begun + whole / 2).await?;
            faults.while_all_are_down(|cluster| {
                sabotage(how, &cluster.stores(), &root.join("earlier"))
            })?;
            faults.run(schedule, begun + whole).await
        };
        let watch = async {
            loop {
                sleep(LOOK_EVERY).await;
                let mut counts = load.counts.borrow_mut();
                counts.note_time_without_write();
                progress.show(&counts);
                // There is no need to go on: violations are reported at the end.
                if load.violations() > 0 || load.stop.get() {
                    return;
                }
            }
        };
        tokio::select! {
            done = work => done?,
            () = watch => {}
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
        faults.heal()
    }

    /// Waits until the cluster serves, and closes all histories.
    async fn settle(
        &mut self,
        load: &Load,
        clients: JoinSet<()>,
        odd: JoinSet<Odd>,
        lives: &Lives,
    ) -> Result<()> {
        self.progress
            .say("no more faults: waiting until every gateway takes writes");
        self.report.seconds_to_serve = Some(self.serving().await?.as_secs_f64());
        settle::clients_end(clients).await?;
        let gateways = self.faults.gateways.borrow().clone();
        for odd in settle::clients_end(odd).await? {
            odd.check(&gateways[0]).await?;
        }
        lives.check(&gateways[0]).await?;
        settle::close_keys(load, &gateways).await
    }

    /// Waits until every gateway takes writes; says how long that took.
    async fn serving(&self) -> Result<Duration> {
        let gateways = self.faults.gateways.borrow().clone();
        let serving = settle::serving(&gateways).await;
        // A node that has ended says better what is wrong.
        self.faults.cluster.borrow_mut().check()?;
        serving
    }

    /// Tells what came of it and keeps what is worth keeping.
    fn end(mut self, data: &Path) -> Result<bool> {
        self.progress.finish();
        self.report.counts = self.faults.counts.borrow().clone();
        self.report
            .failures
            .extend(self.faults.cluster.borrow().panics()?);
        let first_line = |text: &str| {
            text.lines()
                .next()
                .unwrap_or_default()
                .trim_end_matches(':')
                .to_owned()
        };
        let told = self.violations.iter().take(TOLD);
        self.report.failures.extend(
            told.map(|Violation { key, what, .. }| format!("key {key}: {}", first_line(what))),
        );
        if self.violations.len() > TOLD {
            self.report
                .failures
                .push(format!("and {} keys more", self.violations.len() - TOLD));
        }
        self.report.passed = self.report.failures.is_empty();
        drop(self.faults);
        let path = data.join(format!("seed-{}.json", self.seed));
        fs::write(&path, serde_json::to_string_pretty(&self.report)? + "\n")?;
        let histories = self
            .violations
            .iter()
            .map(|Violation { key, what, history }| format!("key {key}: {what}\n{history}\n"));
        if self.report.passed {
            fs::remove_dir_all(&self.root)?;
        } else {
            fs::write(
                self.root.join("histories.txt"),
                histories.collect::<String>(),
            )?;
        }
        tell(&self.report, &path, &self.root);
        Ok(self.report.passed)
    }
}

/// The closing lines.
fn tell(report: &Report, path: &Path, root: &Path) {
    let Report { counts, .. } = report;
    for failure in &report.failures {
        println!("failed: {failure}");
    }
    if !report.passed {
        println!(
            "kept: {} (deployment, logs, nodes, histories.txt)",
            root.display()
        );
        println!("repeat the schedule: {}", report.repeat);
    }
    println!(
        "{}: seed {}, {:.0} s, {} operations ({} acknowledged, {} of them writes; {} refused; {} left open{}), {} kills \
         ({} times all nodes), {} pauses, {} orderly stops, {} full disks, {} replacements, longest without a write \
         {:.1} s; {} keys, {} replicas; \
         {} large values of {} MiB, {} pipelines not read at first, {} halves of commands; {} rolls \
         with {} replies, {} exchanged programs, {} damaged logs, {} jumps of clocks, {} cuts \
         that held back {} pieces; {} connections, longest reply after {:.1} s; {} certificates and \
         {} authorities replaced, {} sets refused; {}",
        if report.passed { "passed" } else { "FAILED" },
        report.seed,
        report.seconds,
        counts.operations,
        counts.acknowledged,
        counts.acknowledged_writes,
        counts.refused,
        counts.unknown,
        counts
            .failed
            .map_or(String::new(), |failed| format!("; {failed} failed")),
        counts.kills,
        counts.kills_of_all,
        counts.pauses,
        counts.terminations,
        counts.full_disks,
        counts.replacements,
        counts.longest_without_write_ms as f64 / 1e3,
        report.keys,
        report.replicas_compared,
        counts.large_writes,
        counts.large_bytes >> 20,
        counts.deaf_pipelines,
        counts.half_commands,
        counts.rolls,
        counts.roll_replies,
        counts.exchanges.len(),
        counts.losses,
        counts.jumps,
        counts.cuts,
        counts.held_back,
        counts.connections,
        counts.longest_reply_ms as f64 / 1e3,
        counts.certificates,
        counts.authorities,
        counts.refused_sets,
        path.display()
    );
}

/// Breaks a promise while no node runs.
fn sabotage(how: Sabotage, stores: &Path, earlier: &Path) -> Result<()> {
    fs::remove_dir_all(stores)?;
    match how {
        Sabotage::Rollback => copy(earlier, stores),
        Sabotage::Forget | Sabotage::Expire => Ok(()),
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), &to)?),
        }
    }
    Ok(())
}
