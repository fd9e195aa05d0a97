//! The outcome for people, and as comma separated values.

use super::outcome::{Asked, Measured, Outcome, Ratios, Spread};
use super::round::Round;
use crate::report::Table;
use ionian_harness::numbers::{rounded, thousands};
use ionian_program::version::MEASURED;
use std::fmt::Write;

/// A column of the table of rounds: what it is called, what stands in it, and how.
struct Column {
    name: &'static str,
    figure: fn(&Round) -> Option<f64>,
    written: fn(f64) -> String,
}

const COLUMNS: [Column; 12] = [
    Column {
        name: "commands/s",
        figure: |round| Some(round.per_second),
        written: rounded,
    },
    Column {
        name: "p50 ms",
        figure: |round| Some(round.latency_ms.p50),
        written: milliseconds,
    },
    Column {
        name: "p90",
        figure: |round| Some(round.latency_ms.p90),
        written: milliseconds,
    },
    Column {
        name: "p99",
        figure: |round| Some(round.latency_ms.p99),
        written: milliseconds,
    },
    Column {
        name: "p99.9",
        figure: |round| Some(round.latency_ms.p999),
        written: milliseconds,
    },
    Column {
        name: "max",
        figure: |round| Some(round.latency_ms.max),
        written: milliseconds,
    },
    Column {
        name: "errors",
        figure: |round| Some(round.error_count() as f64),
        written: whole,
    },
    Column {
        name: "unfinished",
        figure: |round| Some(round.unfinished as f64),
        written: whole,
    },
    Column {
        name: "servers us/command",
        figure: |round| round.servers_us,
        written: rounded,
    },
    Column {
        name: "bench us/command",
        figure: |round| round.bench_us,
        written: rounded,
    },
    Column {
        name: "bench busy %",
        figure: |round| round.bench_busy,
        written: percent,
    },
    Column {
        name: "starved %",
        figure: |round| round.bench_starved,
        written: percent,
    },
];

/// Of a fraction.
fn percent(fraction: f64) -> String {
    format!("{:.0}", fraction * 100.0)
}

fn whole(number: f64) -> String {
    thousands(number.round() as u64)
}

/// A loopback round trip is some hundredths of a millisecond.
fn milliseconds(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.3}")
    } else {
        rounded(value)
    }
}

/// Everything, as it is printed.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    let Outcome {
        version,
        optimized,
        profile,
        command,
        machine,
        asked,
        sides,
        ratios,
    } = outcome;
    let build = match (*optimized, *profile == MEASURED) {
        (false, _) => ", NOT OPTIMIZED: build with --profile dist to measure",
        (true, false) => ", NOT BUILT AS PACKAGES ARE: build with --profile dist to measure",
        (true, true) => "",
    };
    // Into memory: cannot fail.
    let _ = writeln!(
        text,
        "{command}\nionian {version}{build}\n{machine}\n{}",
        question(asked)
    );
    if machine.busy_load().is_some() {
        let _ = writeln!(
            text,
            "NOT A QUIET MACHINE: others use its processors. Believe processor times more than speeds."
        );
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
    let Asked {
        mix,
        level,
        clients,
        pipeline,
        rate,
        in_flight,
        warm_up,
        seconds,
        ..
    } = asked;
    let mut words = Vec::new();
    words.extend(
        in_flight.map(|count| format!("{count} requests in flight through the client lane")),
    );
    words.extend(clients.map(|count| format!("{} connections", thousands(count as u64))));
    words.extend((*pipeline > 1).then(|| format!("pipelines of {pipeline}")));
    words.extend(rate.map(|rate| format!("{} commands a second to be begun", rounded(rate))));
    let level = level.map_or(String::new(), |level| format!(" {level}"));
    words.push(format!("{} %{level} reads", mix.reads));
    words.push(format!("values of {} bytes", mix.value_bytes));
    if mix.append {
        words.push("appended to streams".to_owned());
    }
    words.push(format!("{} keys, {}", thousands(mix.keys), mix.skew));
    words.push(format!("rounds of {seconds} s after {warm_up} s"));
    words.join(", ")
}

/// A line for each round, and of several the spread of each column. What is known of no round has
/// no column.
fn rounds(side: &Measured) -> Table {
    let is_known = |column: &&Column| {
        side.rounds
            .iter()
            .any(|round| (column.figure)(round).is_some())
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_known).collect();
    let mut table =
        Table::new(std::iter::once("round").chain(columns.iter().map(|column| column.name)));
    let mut row = |name: String, cell: &dyn Fn(&Column) -> Option<f64>| {
        let cells = columns
            .iter()
            .map(|column| cell(column).map_or("-".to_owned(), column.written));
        table.row(std::iter::once(name).chain(cells));
    };
    for round in &side.rounds {
        let name = if round.bench_limited {
            format!("{} LIMITED BY BENCH", round.round)
        } else {
            round.round.to_string()
        };
        row(name, &|column| (column.figure)(round));
    }
    if side.rounds.len() > 1 {
        let spread = |column: &Column| Spread::of(side.rounds.iter().map(column.figure));
        row("min".to_owned(), &|column| {
            spread(column).map(|spread| spread.min)
        });
        row("median".to_owned(), &|column| {
            spread(column).map(|spread| spread.median)
        });
        row("max".to_owned(), &|column| {
            spread(column).map(|spread| spread.max)
        });
    }
    table
}

/// The processor time of each process.
fn processes(side: &Measured) -> Table {
    let mut table = Table::new(["process", "us/command, median", "min", "max"]);
    for (place, name) in side.processes.iter().enumerate() {
        let spread = Spread::of(
            side.rounds
                .iter()
                .map(|round| Some(round.processor_us[place])),
        );
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
        let words: Vec<String> = errors
            .iter()
            .map(|(word, count)| format!("{word} {}", thousands(*count)))
            .collect();
        remarks.push(format!(
            "error replies, which count for nothing: {}",
            words.join(", ")
        ));
    }
    if all(|round| round.unfinished) > 0 {
        remarks.push(
            "unfinished commands count as if they had been answered two seconds after the end"
                .to_owned(),
        );
    }
    if all(|round| round.nothing) > 0 {
        remarks.push(format!(
            "{} reads found nothing",
            thousands(all(|round| round.nothing))
        ));
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
        format!(
            "  {what}: {} times (from {} to {})\n",
            rounded(median),
            rounded(min),
            rounded(max)
        )
    };
    let mut text = format!("{first} in terms of {second}, round by round\n");
    text += &line("commands/s", ratios.per_second);
    text += &line("p50", ratios.p50);
    text += &ratios.servers_us.map_or(String::new(), |spread| {
        line("servers' processor time a command", spread)
    });
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
    for (side, round) in outcome
        .sides
        .iter()
        .flat_map(|side| side.rounds.iter().map(move |round| (side, round)))
    {
        let latency = round.latency_ms;
        let processes = side.processes.iter().zip(&round.processor_us);
        let mut cells = vec![side.name.clone(), round.round.to_string()];
        let times = [
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.max,
        ];
        cells.extend(
            [round.per_second]
                .into_iter()
                .chain(times)
                .map(|value| plain(Some(value))),
        );
        cells.extend(
            [round.answered, round.error_count(), round.unfinished].map(|count| count.to_string()),
        );
        cells.extend(
            [
                round.servers_us,
                round.bench_us,
                round.bench_busy,
                round.bench_starved,
            ]
            .map(plain),
        );
        cells.push(round.bench_limited.to_string());
        cells.push(
            processes
                .map(|(name, us)| format!("{name}={us:.4}"))
                .collect::<Vec<_>>()
                .join(" "),
        );
        table.row(cells);
    }
    table.csv()
}

#[cfg(test)]
mod tests {
    use super::super::round::Latency;
    use super::*;
    use std::collections::BTreeMap;

    fn round(number: u16, per_second: f64, bench_busy: Option<f64>) -> Round {
        Round {
            round: number,
            per_second,
            latency_ms: Latency {
                p50: 0.25,
                p90: 0.5,
                p99: 1.0,
                p999: 12.0,
                max: 1_234.0,
            },
            answered: 1_000,
            nothing: 0,
            errors: BTreeMap::from([("BUSY".to_owned(), 2)]),
            unfinished: 0,
            processor_us: vec![2.0, 1.5],
            servers_us: Some(3.5),
            bench_us: None,
            bench_busy,
            bench_starved: None,
            bench_limited: bench_busy.is_some_and(|busy| busy > 0.9),
        }
    }

    #[test]
    fn a_table_has_the_columns_of_which_something_is_known() {
        let rounds = vec![
            round(1, 50_000.0, Some(0.95)),
            round(2, 30_000.0, Some(0.5)),
        ];
        let side = Measured {
            name: "x".to_owned(),
            processes: vec!["a".to_owned(), "b".to_owned()],
            rounds,
        };
        let text = super::rounds(&side).to_string();
        let words = |line: usize| {
            text.lines()
                .nth(line)
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            words(0),
            "round commands/s p50 ms p90 p99 p99.9 max errors unfinished servers us/command bench busy %"
        );
        assert_eq!(
            words(1),
            "1 LIMITED BY BENCH 50,000 0.250 0.500 1.000 12.0 1,234 2 0 3.50 95"
        );
        assert_eq!(
            words(4),
            "median 40,000 0.250 0.500 1.000 12.0 1,234 2 0 3.50 72"
        );
        assert_eq!(text.lines().count(), 6);
        let remarks = remarks(&side).join("\n");
        assert!(
            remarks.contains("BUSY 4")
                && remarks.contains("--threads")
                && !remarks.contains("unfinished"),
            "{remarks}"
        );
        let processes = processes(&side).to_string();
        let last: Vec<&str> = processes
            .lines()
            .last()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(last, ["b", "1.50", "1.50", "1.50"]);
    }
}
