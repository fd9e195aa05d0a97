//! `ionian bench figure`: the figures of the compartmentalization paper (section 8), our points beside the paper's.
//!
//! | file | job |
//! |---|---|
//! | `latency` | 28a, 28b, 29: latency against throughput |
//! | `ablation` | 31a, 31b: one compartmentalization after the other |
//! | `reads` | 32a, 32b, 34a, 34b: throughput against the number of replicas |
//! | `law` | 33: what the number of replicas can do at all |
//! | `deployments` | what is measured |
//! | `simulate` | how it is measured |
//! | `published` | what the paper's authors measured |
//! | `point`, `sheet` | numbers, and the files they are written to |
//! | `drawing` | pictures |

mod ablation;
pub mod arguments;
mod deployments;
mod drawing;
mod latency;
mod law;
mod point;
mod published;
mod reads;
mod sheet;
mod simulate;

use anyhow::{Context, Result};
use arguments::Figure;
use sheet::Sheet;
use simulate::Bench;
use std::process::ExitCode;

type Make = fn(&Bench) -> Result<Sheet>;

/// Every figure with what makes it.
const FIGURES: &[(&str, Make)] = &[
    ("28a", latency::unbatched),
    ("28b", latency::batched),
    ("29", latency::larger_values),
    ("31a", ablation::unbatched),
    ("31b", ablation::batched),
    ("32a", reads::linearizable),
    ("32b", reads::batched),
    ("33", law::replicas),
    ("34a", reads::eventual),
    ("34b", reads::sequential),
];

/// Draws one figure, or all of them.
///
/// # Errors
/// When the demands cannot be read or lack something, or a file cannot be written.
pub fn run(arguments: &Figure) -> Result<ExitCode> {
    let bench = Bench::new(arguments)?;
    let directory = &arguments.out;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let wanted = |name: &str| arguments.figure == "all" || arguments.figure == name;
    for (name, make) in FIGURES.iter().filter(|(name, _)| wanted(name)) {
        let sheet = make(&bench).with_context(|| format!("figure {name}"))?;
        sheet.write(directory, name, &bench)?;
        println!("{}", sheet.text(name, &bench));
    }
    Ok(ExitCode::SUCCESS)
}
