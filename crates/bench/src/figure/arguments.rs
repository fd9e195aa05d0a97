//! What can be typed.

use super::{FIGURES, SEVERAL};
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

/// Draw a figure of the compartmentalization, the Mencius, the PigPaxos or the P-SMR paper with our
/// points beside the paper's
///
/// Ours are simulated (the real roles, each message at the cost that was measured while the
/// deployment ran in one process, a processor for each node; for the figures of the Mencius paper
/// each message at one cost, on sites that are far apart, and so, at the cost of the paper's own
/// messages, for many of the PigPaxos paper) or projected (the utilization law); the papers' are
/// those that their authors published. Writes N.svg, N.csv and N.md; `all` writes what they say to
/// findings.md, too.
#[derive(Debug, clap::Args)]
pub struct Figure {
    /// The figure, or all, or pig-all or psmr-all (those of the PigPaxos and of the P-SMR paper)
    #[arg(value_name = "N", value_parser = figure_names())]
    pub figure: String,

    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "figures")]
    pub out: PathBuf,

    /// From one node to another, in microseconds; figures of the Mencius paper have a network of
    /// their own
    #[arg(long, value_name = "US", default_value_t = 50.0, value_parser = microseconds)]
    pub network_delay_us: f64,

    /// What it costs a node to be woken when it has nothing to do, in microseconds of its processor
    #[arg(long, value_name = "US", default_value_t = 5.0, value_parser = microseconds)]
    pub wake_us: f64,

    /// Few points and short runs: to see that it works
    #[arg(long)]
    pub quick: bool,
}

fn figure_names() -> PossibleValuesParser {
    PossibleValuesParser::new(
        FIGURES
            .iter()
            .map(|(name, _)| *name)
            .chain(SEVERAL.iter().copied()),
    )
}

fn microseconds(text: &str) -> Result<f64, String> {
    let us: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1e6).contains(&us) {
        Ok(us)
    } else {
        Err("must be 0 to 1000000".to_owned())
    }
}
