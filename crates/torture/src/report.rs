//! What is counted, the line that shows it while it grows, and the file that keeps it.

use crate::exchange::Exchange;
use crate::keys::Ended;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often there is a line where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Everything that is counted.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Requests that ended, in whatever way.
    pub(crate) operations: u64,
    /// Of these, those that were answered.
    pub(crate) acknowledged: u64,
    /// Of those, writes.
    pub(crate) acknowledged_writes: u64,
    /// Requests that were refused and have no effect.
    pub(crate) refused: u64,
    /// Requests of unknown outcome.
    pub(crate) unknown: u64,
    /// Processes that were killed with SIGKILL.
    pub(crate) kills: u64,
    /// How often all processes were killed at once.
    pub(crate) kills_of_all: u64,
    /// Processes that were stopped with SIGTERM.
    pub(crate) terminations: u64,
    /// Processes that were stopped with SIGSTOP.
    pub(crate) pauses: u64,
    /// Processes that were started with a limit to their files.
    pub(crate) full_disk_starts: u64,
    /// Of these, those that ended with exit code 1 by themselves.
    pub(crate) full_disks: u64,
    /// Nodes that were replaced by `ionian member replace`.
    pub(crate) replacements: u64,
    /// Logs that lost a part, and whose nodes refused to start.
    pub(crate) losses: u64,
    /// Of these nodes, those that were replaced; the others were given back what they had lost.
    pub(crate) losses_replaced: u64,
    /// How often ways between nodes were cut in one direction.
    pub(crate) cuts: u64,
    /// How often something that a node had sent was held back by these.
    pub(crate) held_back: u64,
    /// How often the clock of a node jumped: away from the right time, or back.
    pub(crate) jumps: u64,
    /// How often all nodes were stopped in order, one after the other.
    pub(crate) rolls: u64,
    /// Commands that clients sent meanwhile and that were answered once each.
    pub(crate) roll_replies: u64,
    /// Connections of these clients that were closed because they were idle.
    pub(crate) roll_idle: u64,
    /// Commands of these clients of which they were told that the outcome is unknown.
    pub(crate) roll_open: u64,
    /// Every exchange of a node's program, in order.
    pub(crate) exchanges: Vec<Exchange>,
    /// Processes that were started.
    pub(crate) starts: u64,
    /// The longest time in which no write was acknowledged, in milliseconds.
    pub(crate) longest_without_write_ms: u64,
    /// The longest time from a request, or a pipeline, to its last reply, in milliseconds.
    pub(crate) longest_reply_ms: u64,
    /// Connections that were made to gateways.
    pub(crate) connections: u64,
    /// In a run without faults: commands of clients that are not odd with an error or no reply, and
    /// connections of all clients that were not made.
    pub(crate) failed: Option<u64>,
    /// Certificates that were replaced.
    pub(crate) certificates: u64,
    /// How often the authority was exchanged, in three steps.
    pub(crate) authorities: u64,
    /// Sets of certificates that nodes read and refused since their last start, because a file was
    /// replaced at that moment.
    pub(crate) refused_sets: u64,
    /// Large values whose write was acknowledged.
    pub(crate) large_writes: u64,
    /// Their bytes.
    pub(crate) large_bytes: u64,
    /// Pipelines whose replies were not read for a while.
    pub(crate) deaf_pipelines: u64,
    /// Replies to these that were read in the end.
    pub(crate) deaf_replies: u64,
    /// Commands of which a part was sent.
    pub(crate) half_commands: u64,
    #[serde(skip)]
    last_write: Option<Instant>,
}

impl Counts {
    /// The time in which writes are expected begins.
    pub(crate) fn begin(&mut self) {
        self.last_write = Some(Instant::now());
    }

    /// Counts a request that has ended.
    pub(crate) fn operation(&mut self, writes: bool, ended: Ended) {
        self.operations += 1;
        match ended {
            Ended::Unknown => self.unknown += 1,
            Ended::Refused => self.refused += 1,
            Ended::Answered(_) => self.acknowledged += 1,
        }
        if writes && matches!(ended, Ended::Answered(_)) {
            self.acknowledged_writes += 1;
            self.note_time_without_write();
            self.last_write = Some(Instant::now());
        }
    }

    /// A request, or a pipeline, has ended after so long.
    pub(crate) fn answered_after(&mut self, time: Duration) {
        self.longest_reply_ms = self.longest_reply_ms.max(time.as_millis() as u64);
    }

    /// Takes into account that no write was acknowledged until now.
    pub(crate) fn note_time_without_write(&mut self) {
        let without = self
            .last_write
            .map_or(0, |last| last.elapsed().as_millis() as u64);
        self.longest_without_write_ms = self.longest_without_write_ms.max(without);
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.longest_without_write_ms = exchange.longest_without_write_ms.max(without);
        }
    }

    /// A node gets another program.
    pub(crate) fn begin_exchange(&mut self, exchange: Exchange) {
        self.note_time_without_write();
        self.exchanges.push(exchange);
    }

    /// It has it since so long ago, and the cluster is healthy.
    pub(crate) fn end_exchange(&mut self, time: Duration) {
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.healthy_after_ms = Some(time.as_millis() as u64);
        }
    }

    /// What is wrong if no write was acknowledged for longer than this.
    pub(crate) fn beyond(&self, limit: Duration) -> Option<String> {
        let over = |ms: u64| Duration::from_millis(ms) > limit;
        let steps = self.exchanges.iter().zip(1..).map(|(exchange, step)| {
            let ms = exchange.longest_without_write_ms;
            (
                ms,
                format!("; step {step} (node {}): {ms} ms", exchange.node),
            )
        });
        let steps = steps.filter(|(ms, _)| over(*ms)).map(|(_, text)| text);
        let longest = self.longest_without_write_ms;
        over(longest).then(|| {
            format!(
                "no write was acknowledged for {longest} ms, the limit is {} ms{}",
                limit.as_millis(),
                steps.collect::<String>()
            )
        })
    }

    fn line(&self) -> String {
        format!(
            "{} operations, {} acknowledged, {} kills, {} pauses, {} full disks, {} replacements, \
             {} exchanged programs, longest without a write {:.1} s",
            self.operations,
            self.acknowledged,
            self.kills,
            self.pauses,
            self.full_disks,
            self.replacements,
            self.exchanges.len(),
            self.longest_without_write_ms as f64 / 1e3
        )
    }
}

/// What is left of a run: one JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) preset: String,
    /// The time under faults.
    pub(crate) seconds: f64,
    /// The time from the last fault until every gateway took writes again.
    pub(crate) seconds_to_serve: Option<f64>,
    pub(crate) passed: bool,
    /// What went wrong, one line each.
    pub(crate) failures: Vec<String>,
    /// Faults that this machine does not allow.
    pub(crate) skipped: Vec<String>,
    pub(crate) counts: Counts,
    /// Keys whose histories were judged.
    pub(crate) keys: u64,
    /// Of these, keys with a write whose outcome was open to the end.
    pub(crate) open_keys: u64,
    /// Replicas that were found to hold the same, if the run came so far.
    pub(crate) replicas_compared: usize,
    /// The command that repeats the schedule.
    pub(crate) repeat: String,
}

/// The line of progress.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    last_line: Instant,
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new(whole: Duration) -> Self {
        let bar = ProgressBar::new(whole.as_millis() as u64);
        let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:20} {msg}");
        bar.set_style(style.expect("the template is well formed"));
        let now = Instant::now();
        Progress {
            bar,
            begun: now,
            last_line: now,
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    pub(crate) fn show(&mut self, counts: &Counts) {
        if self.on_terminal {
            self.bar
                .set_position(self.begun.elapsed().as_millis() as u64);
            self.bar.set_message(counts.line());
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!(
                "{:.0} s: {}",
                self.begun.elapsed().as_secs_f64(),
                counts.line()
            );
        }
    }

    /// Says what is being done, after the faults.
    pub(crate) fn say(&self, text: &str) {
        self.bar
            .suspend(|| eprintln!("{:.0} s: {text}", self.begun.elapsed().as_secs_f64()));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{End, Release};

    fn exchange(node: &str, longest: u64) -> Exchange {
        Exchange {
            roll: 1,
            node: node.to_owned(),
            to: Release::Present,
            led: false,
            end: End::SigKill,
            killed_while_starting: 0,
            healthy_after_ms: None,
            longest_without_write_ms: longest,
        }
    }

    #[test]
    fn a_time_without_a_write_counts_for_the_step_in_which_it_is_noticed() {
        let mut counts = Counts::default();
        counts.begin_exchange(exchange("a", 0));
        counts.last_write = Instant::now().checked_sub(Duration::from_millis(50));
        counts.begin_exchange(exchange("b", 0));
        let longest =
            |counts: &Counts, step: usize| counts.exchanges[step].longest_without_write_ms;
        assert!(longest(&counts, 0) >= 50);
        assert_eq!(longest(&counts, 1), 0);
        counts.operation(true, Ended::Answered(crate::model::Answer::Done));
        assert!(longest(&counts, 1) >= 50);
    }

    #[test]
    fn the_steps_with_too_long_a_time_without_a_write_are_named() {
        let limit = Duration::from_millis(2000);
        let mut counts = Counts {
            exchanges: vec![exchange("a", 2000), exchange("b", 2001), exchange("c", 9)],
            longest_without_write_ms: 2000,
            ..Counts::default()
        };
        assert_eq!(counts.beyond(limit), None);
        counts.longest_without_write_ms = 2001;
        assert_eq!(
            counts.beyond(limit).unwrap(),
            "no write was acknowledged for 2001 ms, the limit is 2000 ms; step 2 (node b): 2001 ms"
        );
        counts.exchanges.clear();
        assert_eq!(
            counts.beyond(limit).unwrap(),
            "no write was acknowledged for 2001 ms, the limit is 2000 ms"
        );
    }
}
