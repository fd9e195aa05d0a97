//! `ionian advise`: what limits a running cluster, and what to do about it.

use crate::cluster_args::ClusterArgs;
use crate::output::{self, say, say_on_stderr};
use crate::source::{self, ANSWER_LIMIT};
use crate::status::{ask_all, not_served};
use crate::{member, waiting};
use anyhow::{Result, bail};
use clap::Args;
use ionian_planner::live::advice::Advice;
use ionian_planner::live::rates::Rates;
use ionian_planner::prices::Prices;
use std::process::ExitCode;
use std::time::Duration;

/// Say what limits a running cluster, and which change would relieve it
///
/// Asks every node twice and compares. Names the busiest event loop and the role that works most
/// there. Where a node is short of processors it says that too, and first; where one waits for its
/// disk it says only that. For each change of one node it says how many times as much the cluster
/// could do, and prints the command. Says nothing about a cluster whose busiest event loop works
/// less than 30 % of the time.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian advise\n  ionian advise --at 10.0.0.2:17400 --seconds 30"
)]
pub(crate) struct Arguments {
    /// Time between the two questions
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster_args: ClusterArgs,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (known, earlier, later) = waiting::block_on(async {
        let given = source::running(&arguments.cluster_args).await?;
        let known = member::newest_since(given).await;
        let earlier = ask_all(&known, ANSWER_LIMIT).await;
        tokio::time::sleep(Duration::from_secs(arguments.seconds.into())).await;
        let later = ask_all(&known, ANSWER_LIMIT).await;
        anyhow::Ok((known, earlier, later))
    })?;
    let lost = not_served(&known, &later);
    if !lost.is_empty() {
        let lost = lost.join("; ");
        bail!("the cluster does not serve all that it should, see `ionian status`: {lost}");
    }
    let both = earlier.nodes.iter().zip(&later.nodes);
    let rates: Vec<(&str, Rates)> = both
        .filter_map(|(earlier, later)| {
            let (then, now) = (earlier.status.as_ref()?, later.status.as_ref()?);
            Some((later.name.as_str(), Rates::between(then, now)?))
        })
        .collect();
    if rates.is_empty() {
        bail!("no node has answered twice");
    }
    let rates: Vec<(&str, &Rates)> = rates.iter().map(|(name, rates)| (*name, rates)).collect();
    let advice = Advice::of(&known.deployment, &rates, &Prices::shipped()?);
    match arguments.json {
        true => say!("{}", serde_json::to_string_pretty(&advice)?),
        false => output::print(format_args!("{}", advice.text())),
    }
    let silent = later.nodes.len() - rates.len();
    if silent > 0 {
        say_on_stderr!(
            "{silent} of {} nodes did not answer twice",
            later.nodes.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}
