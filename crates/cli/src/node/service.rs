//! What a node reports to the service manager that has started it: systemd, or another one that
//! implements `sd_notify(3)`. Without the variable `NOTIFY_SOCKET` nothing is sent.
//!
//! A node is *ready* when it has recovered and listens, not when there is a quorum: the first
//! machine of a cluster has none while it starts.

use ionian_runtime::{Startup, StartupWatch};
use sd_notify::NotifyState::{
    self, ExtendTimeoutUsec, Ready, Reloading, Status, Stopping, Watchdog,
};
use std::convert::Infallible;
use std::env;
use std::fmt::Display;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How long the manager waits for the next report, in microseconds: while a node opens its log or
/// reads a snapshot, which is one step, however large; and while it reads the records of its log.
const OPENING_US: u32 = 600_000_000;
const RECOVERING_US: u32 = 60_000_000;
/// And while the node waits to be added to the cluster.
const JOINING_US: u32 = 60_000_000;
/// The interval between two reports of the same step.
const REPORT_EVERY: Duration = Duration::from_secs(1);
const JOINING_EVERY: Duration = Duration::from_secs(10);

fn is_managed() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        failed(&error);
    }
}

fn failed(error: &impl Display) {
    tracing::warn!(
        id = "E0908",
        "the service manager cannot be notified: {error}"
    );
}

/// Reports the steps of the start of a node; `others` are the names of the other nodes.
pub(super) fn startup_watch(others: String) -> StartupWatch {
    if !is_managed() {
        return StartupWatch::default();
    }
    let progress = Mutex::new(Progress::default());
    StartupWatch::new(move |step| {
        let mut progress = progress.lock().unwrap_or_else(|held| held.into_inner());
        match step {
            Startup::Opening => report(&[
                ExtendTimeoutUsec(OPENING_US),
                Status("reads its log and its snapshots"),
            ]),
            Startup::Recovering => {
                if let Some(records) = progress.count(Instant::now()) {
                    let text = format!("has read {records} records of its log");
                    report(&[ExtendTimeoutUsec(RECOVERING_US), Status(&text)]);
                }
            }
            Startup::Listening { takes_part: false } => {
                let text =
                    format!("waits until a majority of the other nodes has accepted it: {others}");
                report(&[Ready, Status(&text)]);
            }
            Startup::Listening { takes_part: true } => report(&[Ready, Status("takes part")]),
            Startup::TakesPart => report(&[Status("takes part")]),
        }
    })
}

/// How many records have been read, and when that was reported last.
#[derive(Default)]
struct Progress {
    records: u64,
    reported: Option<Instant>,
}

impl Progress {
    /// Counts a record; returns the number of all if it is time to report it.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.records += 1;
        let is_due = |reported| now.duration_since(reported) >= REPORT_EVERY;
        if !self.reported.is_none_or(is_due) {
            return None;
        }
        self.reported = Some(now);
        Some(self.records)
    }
}

/// Proves to the manager that the event loop runs, if it asks for that. Call it on the loop: a task
/// of the loop's thread sends the proof, so a loop that is stuck sends none.
pub(super) fn start_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|_| is_managed()) else {
        return;
    };
    // A third, so that a busy machine delays one proof without harm.
    let mut ticks = interval((limit / 3).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::task::spawn_local(async move {
        loop {
            ticks.tick().await;
            report(&[Watchdog]);
        }
    });
}

/// Keeps the manager waiting while the node is not a member yet.
pub(super) async fn joins() -> Infallible {
    loop {
        report(&[
            ExtendTimeoutUsec(JOINING_US),
            Status("waits to be added to the cluster"),
        ]);
        sleep(JOINING_EVERY).await;
    }
}

/// Reports that the node reads its certificates again. Time tells this report from one before the
/// manager's request.
pub(super) fn reloads() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => report(&[Reloading, now]),
        Err(error) => failed(&error),
    }
}

/// Reports that the node has read them: new ones are in force or refused.
pub(super) fn has_reloaded() {
    report(&[Ready]);
}

/// Reports that the node stops, and why.
pub(super) fn stops(why: &str) {
    report(&[Stopping, Status(&format!("drains, then stops: {why}"))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each report is a system call: one for each record would slow the start.
    #[test]
    fn records_are_reported_once_a_second_with_their_number() {
        let mut progress = Progress::default();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let reports: Vec<_> = [0, 1, 999, 1000, 1001, 5000]
            .map(|ms| progress.count(at(ms)))
            .into();
        assert_eq!(reports, [Some(1), None, None, Some(4), None, Some(6)]);
    }
}
