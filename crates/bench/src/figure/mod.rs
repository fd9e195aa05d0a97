//! `ionian bench figure`: the figures of the compartmentalization paper (section 8), of the Mencius
//! paper (section 7), of the PigPaxos paper (sections 5 and 6) and of the P-SMR paper (section
//! VII), our points beside the papers'.
//!
//! | file | job |
//! |---|---|
//! | `latency` | 28a, 28b, 29, 36: latency against throughput |
//! | `protocols` | 30a, 30b, spaxos-a, spaxos-b: Mencius and S-Paxos |
//! | `ablation` | 31a, 31b: one compartmentalization after the other |
//! | `reads` | 32a, 32b, 34a, 34b: throughput against the number of replicas |
//! | `skew` | 35: a key that is written and read more than others, with CRAQ |
//! | `law` | 33: what the number of replicas can do at all |
//! | `execution` | what compartmentalization gains, by what it costs to execute a command |
//! | `live` | the model compared with processes among real ones |
//! | `wan` | those of the Mencius paper: sites that are far apart |
//! | `pig` | those of the PigPaxos paper: relays |
//! | `psmr` | those of the P-SMR paper: parallel execution |
//! | `deployments` | what is measured |
//! | `simulate` | how it is measured |
//! | `traffic` | bytes at leaders, counted |
//! | `published` | what the paper's authors measured |
//! | `verdict` | whether that is reproduced, and why not |
//! | `point`, `sheet` | numbers, and the files they are written to |
//! | `drawing` | pictures |

mod ablation;
pub mod arguments;
pub(crate) mod deployments;
mod drawing;
mod execution;
#[cfg(test)]
mod invented;
mod latency;
mod law;
mod live;
mod pig;
mod point;
mod protocols;
mod psmr;
mod published;
mod reads;
mod sheet;
mod simulate;
mod skew;
mod traffic;
mod verdict;
mod wan;

use anyhow::{Context, Result};
use arguments::Figure;
use sheet::Sheet;
use simulate::Bench;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

type Make = fn(&Bench) -> Result<Sheet>;

/// Every figure with what makes it.
const FIGURES: &[(&str, Make)] = &[
    ("28a", latency::unbatched),
    ("28b", latency::batched),
    ("29", latency::larger_values),
    ("30a", protocols::mencius),
    ("30b", protocols::mencius_batched),
    ("spaxos-a", protocols::spaxos),
    ("spaxos-b", protocols::spaxos_batched),
    ("31a", ablation::unbatched),
    ("31b", ablation::batched),
    ("32a", reads::linearizable),
    ("32b", reads::batched),
    ("33", law::replicas),
    ("34a", reads::eventual),
    ("34b", reads::sequential),
    ("35", skew::hot_key),
    ("36", latency::sharded),
    ("execution", execution::gains),
    ("live", live::check),
    ("mencius-4", wan::throughput::symmetric),
    ("mencius-5", wan::throughput::asymmetric),
    ("mencius-6", wan::throughput::changing),
    ("mencius-7", wan::failure::failure),
    ("mencius-8", wan::scale::sites),
    ("mencius-9", wan::latency::shifting),
    ("mencius-10", wan::latency::distribution),
    ("mencius-11a", wan::latency::network_bound),
    ("mencius-11b", wan::latency::processor_bound),
    ("mencius-11c", wan::latency::with_variance),
    ("pig-tables", pig::messages::tables),
    ("pig-8", pig::groups::number),
    ("pig-9", pig::latency::twenty_five),
    ("pig-10", pig::wide::regions),
    ("pig-11", pig::latency::five),
    ("pig-12", pig::latency::nine),
    ("pig-13", pig::payload::sizes),
    ("pig-14", pig::steady::partial),
    ("pig-15", pig::failure::node),
    ("pig-16", pig::failure::group),
    ("pig-17", pig::messages::pairs),
    ("psmr-3", psmr::independent::independent),
    ("psmr-4", psmr::independent::dependent),
    ("psmr-5", psmr::scale::threads),
    ("psmr-6", psmr::mixed::parts),
    ("psmr-7", psmr::skew::distributions),
    ("psmr-8", psmr::files::netfs),
    ("psmr-gain", psmr::gain::gain),
];

/// Names of several figures: every figure whose name begins with the part before `all`.
const SEVERAL: &[&str] = &["all", "pig-all", "psmr-all"];

/// Above the findings of all figures.
const SUMMARY: &str = "# What the figures say\n\nRatios are held against the paper's, and latencies of the Mencius paper: *reproduced* is \
    within 20 %, either way. Heights are not: they are of other hardware and of another runtime \
    ([figures.md](../figures.md)).\n";

/// Draws one figure, or all of them.
///
/// # Errors
/// When a deployment cannot be measured, or a file cannot be written.
pub fn run(arguments: &Figure) -> Result<ExitCode> {
    make(arguments, &Bench::new(arguments)?, &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &Figure, bench: &Bench, tell: &mut impl Write) -> Result<()> {
    let directory = &arguments.out;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let several = SEVERAL.contains(&arguments.figure.as_str());
    let beginning = arguments.figure.strip_suffix("all").filter(|_| several);
    let wanted = |name: &str| match beginning {
        Some(beginning) => name.starts_with(beginning),
        None => arguments.figure == name,
    };
    let mut summaries = Vec::new();
    for figure in FIGURES.iter().filter(|(name, _)| wanted(name)) {
        let (name, summary) = (figure.0, draw(bench, directory, figure)?);
        // A reader that closes the pipe still gets the files.
        let file = directory.join(name);
        let _ = writeln!(
            tell,
            "{summary}{}.svg, .csv and .md are written",
            file.display()
        );
        summaries.push(summary);
    }
    match arguments.figure.as_str() {
        "all" => write_findings(directory, &summaries),
        _ => Ok(()),
    }
}

/// Draws a figure into a directory, and says what it says.
fn draw(bench: &Bench, directory: &Path, (name, make): &(&str, Make)) -> Result<String> {
    let sheet = make(bench).with_context(|| format!("figure {name}"))?;
    sheet.write(directory, name, bench)?;
    Ok(sheet.summary(name, bench))
}

/// What all figures say.
fn write_findings(directory: &Path, summaries: &[String]) -> Result<()> {
    let file = directory.join("findings.md");
    std::fs::write(&file, SUMMARY.to_owned() + &summaries.concat())
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::invented::UNBATCHED;
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The text of the paper says nothing in numbers of what these show.
    const WITHOUT_NUMBERS: [&str; 4] = ["pig-14", "pig-15", "pig-17", "psmr-7"];

    #[test]
    #[ignore = "takes minutes: `cargo xtask deep`"]
    fn every_figure_is_made() {
        let out = std::env::temp_dir().join(format!("ionian-figures-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let summaries = draw_all(&out);
        write_findings(&out, &summaries).unwrap();
        let findings = std::fs::read_to_string(out.join("findings.md")).unwrap();
        for (name, _) in FIGURES {
            assert!(findings.contains(&format!("Figure {name}: ")), "{name}");
            assert_is_drawn(&out, name);
        }
        std::fs::remove_dir_all(&out).unwrap();
    }

    /// Draws all figures, as many at a time as there are processors.
    fn draw_all(out: &Path) -> Vec<String> {
        let threads = std::thread::available_parallelism().unwrap().get();
        let (next, drawn) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let bench = simulate::tests::invented(UNBATCHED, true);
            while let Some(figure) = FIGURES.get(next.fetch_add(1, Ordering::Relaxed)) {
                let summary = draw(&bench, out, figure).unwrap();
                drawn.lock().unwrap().push(summary);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        drawn.into_inner().unwrap()
    }

    fn assert_is_drawn(out: &Path, name: &str) {
        let quick = "a quick run: its numbers are no findings";
        for (extension, says) in [("svg", quick.to_uppercase()), ("md", quick.to_owned())] {
            let file = out.join(format!("{name}.{extension}"));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(&says), "{}", file.display());
        }
        for extension in ["svg", "csv", "md"] {
            let file = out.join(format!("{name}.{extension}"));
            assert!(file.metadata().unwrap().len() > 200, "{}", file.display());
        }
        let csv = std::fs::read_to_string(out.join(format!("{name}.csv"))).unwrap();
        let is_ours = |point: &&str| {
            [",projected,", ",simulated,", ",priced,"]
                .iter()
                .any(|measure| point.contains(measure))
        };
        let (points, ours) = (
            csv.lines().skip(1).count(),
            csv.lines().filter(is_ours).count(),
        );
        assert!(
            ours > 0 && (ours < points || WITHOUT_NUMBERS.contains(&name)),
            "{ours} of {points} points of {name} are ours"
        );
    }
}
