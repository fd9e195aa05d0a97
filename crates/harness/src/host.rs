//! The machine of a measurement.

use crate::numbers::rounded;
use serde::Serialize;
use std::fmt;
use std::fs::read_to_string;

/// The machine, and how busy it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub processors: usize,
    /// Their model.
    pub model: String,
    /// The operating system.
    pub system: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Total memory in bytes; 0 if the system does not report it.
    pub memory_bytes: u64,
    /// Average number of running or ready threads in the last minute; none if the system does not
    /// report it.
    pub load_average: Option<f64>,
}

impl Machine {
    /// Describes this machine.
    pub fn look() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        Machine {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            model: field(&read("/proc/cpuinfo"), "model name", ':')
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=')
                .unwrap_or_else(|| std::env::consts::OS.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal", ':')
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib << 10),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok()),
        }
    }

    /// The load average, if what is measured may have to wait for a processor.
    pub fn busy_load(&self) -> Option<f64> {
        self.load_average
            .filter(|load| *load >= self.processors as f64)
    }
}

/// The text after `name` and the separator in its line.
fn field(text: &str, name: &str, sign: char) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(sign));
    let (_, value) = lines.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            processors,
            model,
            system,
            kernel,
            memory_bytes,
            load_average,
        } = self;
        let gib = rounded(*memory_bytes as f64 / f64::from(1 << 30));
        write!(
            f,
            "{processors} processors, {model}, {gib} GiB, {system}, kernel {kernel}"
        )?;
        load_average.map_or(Ok(()), |load| {
            write!(f, ", load average {load} at the beginning")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 167\nmodel name\t: A: Processor\nMemTotal:       24576 kB\nPRETTY_NAME=\"Some 1\"\n";
        assert_eq!(
            field(text, "model name", ':').as_deref(),
            Some("A: Processor")
        );
        assert_eq!(field(text, "MemTotal", ':').as_deref(), Some("24576 kB"));
        assert_eq!(field(text, "PRETTY_NAME", '=').as_deref(), Some("Some 1"));
        assert_eq!(field(text, "name", ':'), None);
    }

    #[test]
    fn every_machine_has_a_processor() {
        let machine = Machine::look();
        assert!(
            machine.processors >= 1 && !machine.model.is_empty(),
            "{machine}"
        );
    }
}
