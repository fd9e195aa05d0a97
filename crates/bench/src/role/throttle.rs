//! Keeps the process that is measured busy: it gets only a part of its time.
//!
//! A role that is cheaper than the load that the bench forges for it waits for the bench, is woken
//! for a few commands at a time, and seems more expensive than it is when it has all it can do. So
//! it is stopped (SIGSTOP) and continued in turns. While it is stopped its messages gather in its
//! sockets, as they do before a bottleneck; while it runs it works them off and is never idle. Its
//! processor time does not run while it is stopped.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One turn of running and being stopped, unless the process ran for less than `LEAST_RUN` then.
const TURN: Duration = Duration::from_millis(8);

/// Shorter than this a process does not run at a time: waking it would be most of what it does.
/// With the smallest share a turn is 64 ms, far below what a protocol of the bench takes for the
/// silence of a dead node.
const LEAST_RUN: Duration = Duration::from_millis(1);

/// See the top of this file. The process runs freely again when this is dropped.
pub(crate) struct Throttle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    process: Pid,
    began: Instant,
    ended: AtomicBool,
    /// How long the process was stopped until now, in nanoseconds.
    stopped: AtomicU64,
}

impl Throttle {
    /// Lets `process` run for this part of the time, from above 0 up to 1.
    ///
    /// # Errors
    /// When there is no such process, or the thread cannot be started.
    pub(crate) fn start(process: u32, share: f64) -> Result<Self> {
        let process = Pid::from_raw(i32::try_from(process)?);
        let (ended, stopped) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared {
            process,
            began: Instant::now(),
            ended,
            stopped,
        });
        let mut throttle = Throttle {
            shared: shared.clone(),
            thread: None,
        };
        if share < 1.0 {
            kill(process, None).context("the process that is to be measured does not run")?;
            let turn = TURN.max(LEAST_RUN.div_f64(share));
            let body = move || shared.take_turns(turn, turn.mul_f64(share));
            throttle.thread = Some(
                std::thread::Builder::new()
                    .name("throttle".to_owned())
                    .spawn(body)?,
            );
        }
        Ok(throttle)
    }

    /// How long the process was allowed to run until now.
    pub(crate) fn allowed(&self) -> Duration {
        self.shared
            .began
            .elapsed()
            .saturating_sub(Duration::from_nanos(self.shared.stopped.load(Relaxed)))
    }
}

impl Shared {
    fn take_turns(&self, turn: Duration, runs: Duration) {
        while !self.ended.load(Relaxed) {
            std::thread::sleep(runs);
            // The process may have ended: then its measurement fails, and says so.
            let _ = kill(self.process, Signal::SIGSTOP);
            // Only while it is stopped for certain does the clock run: this thread may lose its
            // processor at either signal, and the process would seem busier than it is.
            let stopped_at = Instant::now();
            std::thread::sleep(turn - runs);
            self.stopped
                .fetch_add(stopped_at.elapsed().as_nanos() as u64, Relaxed);
            let _ = kill(self.process, Signal::SIGCONT);
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_stopped_process_uses_no_processor_time() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let throttle = Throttle::start(child.id(), 0.25).unwrap();
        while throttle.shared.stopped.load(Relaxed) < 200_000_000 {
            std::thread::sleep(TURN);
        }
        let (used, allowed) = (
            ionian_harness::process::processor_time(child.id()).unwrap(),
            throttle.allowed(),
        );
        let whole = throttle.shared.began.elapsed();
        drop(throttle);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            allowed + Duration::from_millis(190) < whole,
            "{allowed:?} of {whole:?}"
        );
        // It ran before it was throttled, and may run until a signal reaches it.
        assert!(
            used < allowed + Duration::from_millis(100),
            "{used:?} of {allowed:?}"
        );
    }
}
