//! When a node stops: at SIGTERM, at SIGINT, or when its parent process ends. A second signal stops
//! it immediately.
//!
//! A thread waits for all of them, so that the process ends whatever its event loop waits for.

use super::logging::Log;
use super::service;
use std::convert::Infallible;
use std::future::pending;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often the event loop shows that it runs.
const BEAT: Duration = Duration::from_millis(100);

/// After this many times without a beat a node that was asked to stop is ended. Counted, not timed,
/// because on a busy machine both threads are late.
const SILENT: u32 = 25;

/// Completes when the parent process has ended. `None` if the parent is not watched.
pub(super) type Starter = Option<oneshot::Receiver<()>>;

/// The request to stop, when it comes.
pub(super) struct Stop {
    reason: watch::Receiver<Option<&'static str>>,
    seen: Arc<Seen>,
}

/// The thread looks this often at what a node that starts waits for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After this many looks at the same file or directory the log names it.
const LOOKS: u32 = 3;

/// What the thread sees of the node.
#[derive(Default)]
struct Seen {
    /// Whether the event loop has begun. Until then a node has nothing to finish.
    runs: AtomicBool,
    /// The exit code of a node that ends because it has failed, or 0. A signal in its last moments
    /// is not the reason.
    failed_with: AtomicU8,
    /// The file or directory that it needs before; empty if it needs none.
    needs: Mutex<PathBuf>,
    beats: AtomicU64,
}

impl Seen {
    fn needs(&self) -> MutexGuard<'_, PathBuf> {
        self.needs.lock().expect("no thread panics with it")
    }

    /// Names what a node waits for that has not begun, once.
    async fn watch_start(&self) -> Infallible {
        let (mut last, mut looks) = (PathBuf::new(), 0);
        while !self.runs.load(Ordering::Relaxed) {
            sleep(LOOK_EVERY).await;
            let now = self.needs().clone();
            let waits = now == last && !now.as_os_str().is_empty();
            looks = if waits { looks + 1 } else { 0 };
            if looks == LOOKS {
                tracing::warn!(
                    id = "E0114",
                    "the node does not start yet: it waits for {}",
                    now.display()
                );
            }
            last = now;
        }
        pending().await
    }
}

impl Stop {
    /// Begins to wait for signals and the end of the parent. Where the process ends at once, `end`
    /// is called before, and the lines of the log are written.
    ///
    /// # Errors
    /// If the system gives the thread no resources.
    pub(super) fn begin(
        starter: Starter,
        end: impl FnOnce() + Send + 'static,
        log: Log,
    ) -> std::io::Result<Stop> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let signals = {
            let _entered = runtime.enter();
            Signals::listen()
        };
        let (asked, reason) = watch::channel(None);
        let seen = Arc::<Seen>::default();
        let of_thread = seen.clone();
        let run = move || {
            let ends = runtime.block_on(watch_node(signals, starter, &asked, &of_thread));
            end();
            let code = match of_thread.failed_with.load(Ordering::Relaxed) {
                0 => u8::from(ends.is_some()),
                failed => failed,
            };
            // The last line is that which says why.
            ends.into_iter().for_each(AtOnce::log);
            drop(log);
            process::exit(code.into())
        };
        thread::Builder::new().name("stop".into()).spawn(run)?;
        Ok(Stop { reason, seen })
    }

    /// To call with the exit code when the node has failed, so that the process ends with it
    /// whatever ends it.
    pub(super) fn on_failure(&self) -> impl FnOnce(u8) + use<> {
        let seen = self.seen.clone();
        move |code| seen.failed_with.store(code, Ordering::Relaxed)
    }

    /// The node begins to read this, and may hang at it. If it does the log names it.
    pub(super) fn waits_for(&self, path: &Path) {
        *self.seen.needs() = path.to_owned();
    }

    /// The node waits for something else than a file.
    pub(super) fn waits_for_no_file(&self) {
        self.seen.needs().clear();
    }

    /// Completes when the node must stop. Must be called on the event loop, which shows from then
    /// on that it runs.
    pub(super) async fn requested(mut self) {
        self.seen.runs.store(true, Ordering::Relaxed);
        let seen = self.seen.clone();
        tokio::task::spawn_local(async move {
            loop {
                seen.beats.fetch_add(1, Ordering::Relaxed);
                sleep(BEAT).await;
            }
        });
        // It ends with the process only.
        let _ = self.reason.wait_for(Option::is_some).await;
    }
}

/// Why a node ends that has begun to stop and has not finished.
enum AtOnce {
    Asked(&'static str),
    Silent,
}

impl AtOnce {
    fn log(self) {
        match self {
            AtOnce::Asked(why) => tracing::warn!(
                id = "E0603",
                "stopping at once: {why}; pending commands are not answered"
            ),
            AtOnce::Silent => tracing::error!(
                id = "E0604",
                "stopping at once: the event loop of the node does nothing, as when its disk hangs; \
                 pending commands are not answered"
            ),
        }
    }
}

/// Passes the first request to stop to the node. Completes when the process must end at once, with
/// the reason if it had begun.
async fn watch_node(
    mut signals: Signals,
    mut starter: Starter,
    asked: &watch::Sender<Option<&'static str>>,
    seen: &Seen,
) -> Option<AtOnce> {
    let why = tokio::select! {
        why = signals.stop_requested(&mut starter) => why,
        never = seen.watch_start() => match never {},
    };
    tracing::info!("stopping: {why}");
    if !seen.runs.load(Ordering::Relaxed) {
        return None;
    }
    service::stops(why);
    asked.send_replace(Some(why));
    // The parent process ends once at most.
    let mut starter = None;
    tokio::select! {
        why = signals.stop_requested(&mut starter) => Some(AtOnce::Asked(why)),
        () = silence(&seen.beats) => Some(AtOnce::Silent),
    }
}

/// Completes when the event loop does nothing any more.
async fn silence(beats: &AtomicU64) {
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut known, mut silent) = (0, 0);
    while silent < SILENT {
        ticks.tick().await;
        let now = beats.load(Ordering::Relaxed);
        silent = if now == known { silent + 1 } else { 0 };
        known = now;
    }
}

/// The signals that a node handles. While this exists none of them ends the process directly. A
/// process receives them even if it was started with them ignored, as shells do for background
/// jobs.
struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> Self {
        let listen = |kind| {
            signal(kind)
                .inspect_err(|error| {
                    tracing::warn!(id = "E0106", "signals cannot be waited for: {error}")
                })
                .ok()
        };
        Signals {
            terminate: listen(SignalKind::terminate()),
            interrupt: listen(SignalKind::interrupt()),
            hangup: listen(SignalKind::hangup()),
        }
    }

    /// Completes when the node must stop; returns the reason.
    async fn stop_requested(&mut self, starter: &mut Starter) -> &'static str {
        loop {
            tokio::select! {
                () = comes(&mut self.terminate) => return "SIGTERM",
                () = comes(&mut self.interrupt) => return "SIGINT",
                () = comes(&mut self.hangup) => {
                    if std::io::stdin().is_terminal() {
                        return "SIGHUP, the end of the terminal";
                    }
                    tracing::info!("SIGHUP reloads certificates only; SIGTERM stops the node");
                }
                () = gone(starter) => return "the parent process has ended",
            }
        }
    }
}

async fn comes(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

async fn gone(starter: &mut Starter) {
    match starter {
        Some(gone) => drop(gone.await),
        None => std::future::pending().await,
    }
}
