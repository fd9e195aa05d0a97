//! Counts of executed commands and of errors, for INFO.

use crate::info::InfoWriter;
use crate::measured::micros;
use ionian_kernel::histogram::Times;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of error codes that are counted separately; others count as `OTHER`.
const CODES: usize = 128;

/// Counts of commands and of errors.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    commands: RefCell<BTreeMap<&'static str, Command>>,
    errors: RefCell<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Command {
    calls: u64,
    time: Duration,
    times: Times,
    rejected: u64,
    failed: u64,
}

impl Usage {
    /// A command was executed in this time.
    pub(crate) fn called(&self, name: &'static str, time: Duration) {
        let mut commands = self.commands.borrow_mut();
        let command = commands.entry(name).or_default();
        command.calls += 1;
        command.time += time;
        command.times.record(micros(time));
    }

    /// A malformed command was not executed.
    pub(crate) fn rejected(&self, name: &'static str, error: &[u8]) {
        self.commands.borrow_mut().entry(name).or_default().rejected += 1;
        self.error(error);
    }

    /// A command was executed and answered with an error.
    pub(crate) fn failed(&self, name: &'static str, error: &[u8]) {
        self.commands.borrow_mut().entry(name).or_default().failed += 1;
        self.error(error);
    }

    /// A client got an error, whose text starts with its code.
    pub(crate) fn error(&self, text: &[u8]) {
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_code =
            !code.is_empty() && code.len() <= 32 && code.iter().all(u8::is_ascii_uppercase);
        let code = if is_code {
            String::from_utf8_lossy(code)
        } else {
            "ERR".into()
        };
        let mut errors = self.errors.borrow_mut();
        let code = if errors.len() < CODES || errors.contains_key(&*code) {
            code
        } else {
            "OTHER".into()
        };
        *errors.entry(code.into_owned()).or_default() += 1;
    }

    /// How many errors with this code clients got.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        self.errors.borrow().get(code).copied().unwrap_or(0)
    }

    /// How long each command took that was called, by name.
    pub(crate) fn times(&self) -> Vec<(&'static str, Times)> {
        let commands = self.commands.borrow();
        let called = commands.iter().filter(|(_, command)| command.calls > 0);
        called
            .map(|(name, command)| (*name, command.times))
            .collect()
    }

    /// Writes the sections Commandstats, Errorstats and Latencystats.
    pub(crate) fn write(&self, info: &mut InfoWriter) {
        info.section("Commandstats");
        for (
            name,
            Command {
                calls,
                time,
                rejected,
                failed,
                ..
            },
        ) in &*self.commands.borrow()
        {
            let usec = time.as_micros();
            let each = usec as f64 / (*calls).max(1) as f64;
            let text = format_args!(
                "calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            )
            .to_string();
            info.field(&format!("cmdstat_{name}"), text);
        }
        info.section("Errorstats");
        for (code, count) in &*self.errors.borrow() {
            info.field(&format!("errorstat_{code}"), format!("count={count}"));
        }
        info.section("Latencystats");
        for (name, times) in self.times() {
            // Upper bounds: more is not known of a value than its bucket.
            let [p50, p99, p999] = [500, 990, 999].map(|share| times.quantile(share));
            let text = format!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000");
            info.field(&format!("latency_percentiles_usec_{name}"), text);
        }
    }
}
