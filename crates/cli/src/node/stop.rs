//! When a node stops: at SIGTERM, at SIGINT, or when its parent process ends. A second signal stops
//! it immediately.

use super::service;
use std::io::IsTerminal;
use std::process;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Completes when the parent process has ended. `None` if the parent is not watched.
pub(super) type Starter = Option<oneshot::Receiver<()>>;

/// Completes when the node must stop. A later signal ends the process immediately.
pub(super) async fn stop_requested(mut starter: Starter) {
    let mut signals = Signals::listen();
    let why = signals.stop_requested(&mut starter).await;
    tracing::info!("stopping: {why}");
    service::stops(why);
    tokio::task::spawn_local(async move {
        // The parent process ends once at most.
        let why = signals.stop_requested(&mut None).await;
        tracing::warn!(
            id = "E0603",
            "stopping at once: {why}; pending commands are not answered"
        );
        process::exit(1);
    });
}

/// The signals that a node handles. While this exists none of them ends the process directly. A
/// process receives them even if it was started with them ignored, as shells do for background
/// jobs.
pub(super) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Self {
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
    pub(super) async fn stop_requested(&mut self, starter: &mut Starter) -> &'static str {
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
