//! The outcome for people, and as comma separated values.

use super::outcome::{Asked, Measured, Outcome, Ratios, Spread};
use super::round::Round;
use crate::report::Table;
use ionian_harness::numbers::{rounded, thousands};
use std::fmt::Write;

/// Percent of the time; none when nobody knows.
fn percent(fraction: Option<f64>) -> String {
    fraction.map_or("-".to_owned(), |fraction| format!("{:.0}", fraction * 100.0))
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), rounded)
}

/// A loopback round trip is some hundredths of a millisecond.
fn milliseconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { rounded(value) }
}

/// Everything, as it is printed.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    let Outcome { version, optimized, command, machine, asked, sides, ratios } = outcome;
    let build = if *optimized { "" } else { ", NOT OPTIMIZED: build with --release to measure" };
    // Into memory: cannot fail.
    let _ = writeln!(text, "{command}\nionian {version}{build}\n{machine}\n{}", question(asked));
    let is_busy = machine.load_average.is_some_and(|load| load >= machine.processors as f64);
    if is_busy {
        let _ =
            writeln!(text, "NOT A QUIET MACHINE: others use its processors. Believe processor times more than speeds.");
    }
    for side in sides {
        let _ = write!(text, "\n{}\n{}", side.name, rounds(side));
        if !side.processes.is_empty() {
            let _ = write!(text, "{}", processes(side));
        }
        for remark in remarks(side) {
            let _ = writeln!(text, "{remark}");
        }
    }
    if let (Some(ratios), [first, second]) = (ratios, sides.as_slice()) {
        let _ = write!(text, "\n{}", compared(ratios, &first.name, &second.name));
    }
    text
}

/// What was asked, in a line.
fn question(asked: &Asked) -> String {
    let Asked { mix, level, clients, pipeline, rate, in_flight, warm_up, seconds, .. } = asked;
    let mut words = Vec::new();
    words.extend(in_flight.map(|count| format!("{count} requests in flight through the client lane")));
    words.extend(clients.map(|count| format!("{} connections", thousands(count as u64))));
    words.extend((*pipeline > 1).then(|| format!("pipelines of {pipeline}")));
    words.extend(rate.map(|rate| format!("{} commands a second to be begun", rounded(rate))));
    let level = level.map_or(String::new(), |level| format!(" {}", level.name()));
    words.push(format!("{} %{level} reads", mix.reads));
    words.push(format!("values of {} bytes", mix.value_bytes));
    words.push(format!("{} keys, {}", thousands(mix.keys), mix.skew));
    words.push(format!("rounds of {seconds} s after {warm_up} s"));
    words.join(", ")
}

/// A line for each round, and of several the medians.
fn rounds(side: &Measured) -> Table {
    let mut table = Table::new([
        "round",
        "commands/s",
        "p50 ms",
        "p90",
        "p99",
        "p99.9",
        "max",
        "errors",
        "unfinished",
        "servers us/command",
        "bench us/command",
        "bench busy %",
        "starved %",
    ]);
    for round in &side.rounds {
        let name =
            if round.bench_limited { format!("{} LIMITED BY BENCH", round.round) } else { round.round.to_string() };
        let latency = round.latency_ms;
        let quantiles = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(milliseconds);
        let mut cells = vec![name, rounded(round.per_second)];
        cells.extend(quantiles);
        cells.extend([thousands(round.error_count()), thousands(round.unfinished)]);
        cells.extend([optional(round.servers_us), optional(round.bench_us)]);
        cells.extend([percent(round.bench_busy), percent(round.bench_starved)]);
        table.row(cells);
    }
    if side.rounds.len() > 1 {
        for (name, pick) in [
            ("min", (|spread| spread.min) as fn(Spread) -> f64),
            ("median", |spread| spread.median),
            ("max", |spread| spread.max),
        ] {
            let of = |field: fn(&Round) -> Option<f64>| Spread::of(side.rounds.iter().map(field)).map(pick);
            let ms = |field: fn(&Round) -> f64| {
                Spread::of(side.rounds.iter().map(|round| Some(field(round))))
                    .map_or(String::new(), |spread| milliseconds(pick(spread)))
            };
            table.row([
                name.to_owned(),
                optional(of(|round| Some(round.per_second))),
                ms(|round| round.latency_ms.p50),
                ms(|round| round.latency_ms.p90),
                ms(|round| round.latency_ms.p99),
                ms(|round| round.latency_ms.p999),
                ms(|round| round.latency_ms.max),
                String::new(),
                String::new(),
                optional(of(|round| round.servers_us)),
                optional(of(|round| round.bench_us)),
                percent(of(|round| round.bench_busy)),
                percent(of(|round| round.bench_starved)),
            ]);
        }
    }
    table
}

/// The processor time of each process.
fn processes(side: &Measured) -> Table {
    let mut table = Table::new(["process", "us/command, median", "min", "max"]);
    for (place, name) in side.processes.iter().enumerate() {
        let spread = Spread::of(side.rounds.iter().map(|round| Some(round.processor_us[place])));
        if let Some(Spread { min, median, max }) = spread {
            table.row([name.clone(), rounded(median), rounded(min), rounded(max)]);
        }
    }
    table
}

/// What has to be known to read the table.
fn remarks(side: &Measured) -> Vec<String> {
    let mut remarks = Vec::new();
    let all = |count: fn(&Round) -> u64| side.rounds.iter().map(count).sum::<u64>();
    let mut errors = std::collections::BTreeMap::<&str, u64>::new();
    for (word, count) in side.rounds.iter().flat_map(|round| &round.errors) {
        *errors.entry(word).or_default() += count;
    }
    if !errors.is_empty() {
        let words: Vec<String> = errors.iter().map(|(word, count)| format!("{word} {}", thousands(*count))).collect();
        remarks.push(format!("error replies, which count for nothing: {}", words.join(", ")));
    }
    if all(|round| round.unfinished) > 0 {
        remarks.push("unfinished commands count as if they had been answered two seconds after the end".to_owned());
    }
    if all(|round| round.nothing) > 0 {
        remarks.push(format!("{} reads found nothing", thousands(all(|round| round.nothing))));
    }
    if side.rounds.iter().any(|round| round.bench_limited) {
        remarks.push(
            "LIMITED BY BENCH: the load generator was on a processor more than 90 % of the time, and the servers could \
             have done more: give it --threads, or longer pipelines"
                .to_owned(),
        );
    }
    remarks
}

fn compared(ratios: &Ratios, first: &str, second: &str) -> String {
    let line = |what: &str, Spread { min, median, max }: Spread| {
        format!("  {what}: {} times (from {} to {})\n", rounded(median), rounded(min), rounded(max))
    };
    let mut text = format!("{first} in terms of {second}, round by round\n");
    text += &line("commands/s", ratios.per_second);
    text += &line("p50", ratios.p50);
    text += &ratios.servers_us.map_or(String::new(), |spread| line("servers' processor time a command", spread));
    text
}

/// A line for each round of each side, in plain numbers.
pub(crate) fn csv(outcome: &Outcome) -> String {
    let mut table = Table::new([
        "target",
        "round",
        "per_second",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "answered",
        "errors",
        "unfinished",
        "servers_us",
        "bench_us",
        "bench_busy",
        "bench_starved",
        "bench_limited",
        "processor_us",
    ]);
    let plain = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
    for (side, round) in outcome.sides.iter().flat_map(|side| side.rounds.iter().map(move |round| (side, round))) {
        let latency = round.latency_ms;
        let processes = side.processes.iter().zip(&round.processor_us);
        let mut cells = vec![side.name.clone(), round.round.to_string()];
        let times = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        cells.extend([round.per_second].into_iter().chain(times).map(|value| plain(Some(value))));
        cells.extend([round.answered, round.error_count(), round.unfinished].map(|count| count.to_string()));
        cells.extend([round.servers_us, round.bench_us, round.bench_busy, round.bench_starved].map(plain));
        cells.push(round.bench_limited.to_string());
        cells.push(processes.map(|(name, us)| format!("{name}={us:.4}")).collect::<Vec<_>>().join(" "));
        table.row(cells);
    }
    table.csv()
}
