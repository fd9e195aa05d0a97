//! When a node stops: SIGTERM, SIGINT, or the end of whoever started it. The second time it stops
//! at once.

use std::io::IsTerminal;
use std::process;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Completes when the starter is gone, if there is one that is watched.
pub(super) type Starter = Option<oneshot::Receiver<()>>;

/// Completes when the node is to stop. A signal that comes later ends the process.
pub(super) async fn told(mut starter: Starter) {
    let mut signals = Signals::listen();
    let why = signals.told(&mut starter).await;
    tracing::info!("stopping: {why}");
    tokio::task::spawn_local(async move {
        // The end of the starter came once, or never will.
        let why = signals.told(&mut None).await;
        tracing::warn!("stopping at once: {why}; commands that were taken in are not answered");
        process::exit(1);
    });
}

/// The signals that a node answers. As long as this lives none of them ends the process by itself;
/// and they are heard even by a process that was started with them ignored, as a shell does in the
/// background.
pub(super) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Self {
        let listen = |kind| {
            signal(kind)
                .inspect_err(|error| tracing::warn!("signals cannot be waited for: {error}"))
                .ok()
        };
        Signals {
            terminate: listen(SignalKind::terminate()),
            interrupt: listen(SignalKind::interrupt()),
            hangup: listen(SignalKind::hangup()),
        }
    }

    /// Completes when the node is to stop, and says why.
    pub(super) async fn told(&mut self, starter: &mut Starter) -> &'static str {
        loop {
            tokio::select! {
                () = comes(&mut self.terminate) => return "SIGTERM",
                () = comes(&mut self.interrupt) => return "SIGINT",
                () = comes(&mut self.hangup) => {
                    if std::io::stdin().is_terminal() {
                        return "SIGHUP, the end of the terminal";
                    }
                    tracing::info!("SIGHUP: there is nothing to be read again, the node goes on; SIGTERM stops it");
                }
                () = gone(starter) => return "whoever started this node is gone",
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
