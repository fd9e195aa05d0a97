//! Keeps signals from ending the process that are no request to end.

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that end a process by default though no sender means that: the first two are for the
/// uses of programs, the others are of timers, terminals and devices.
const OTHERS: [Signal; 8] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
];

/// Has this process ignore the signals that ask it for nothing that it does.
pub(crate) fn ignore_others() {
    catch(&OTHERS);
}

/// Keeps signals from ending the process. What waits for one may be installed later.
pub(crate) fn catch(caught: &[Signal]) {
    let catch = || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let _entered = runtime.enter();
        // The handlers stay installed. Nothing waits for the signals.
        caught
            .iter()
            .try_for_each(|one| signal(SignalKind::from_raw(*one as i32)).map(drop))
    };
    if let Err(error) = catch() {
        tracing::warn!(
            id = "E0109",
            "not all of the signals {caught:?} can be caught: {error}"
        );
    }
}
