//! `ionian options`: lists the options of a running cluster and changes them through its log.

use crate::cluster_args::{ChangeArgs, ClusterArgs};
use crate::member::{Found, possible, wait_if_asked};
use crate::output::{self, say};
use crate::protocols::protocol;
use crate::waiting;
use anyhow::Result;
use clap::{Args, Subcommand};
use ionian_deployment::{Configuration, at_start};
use ionian_runtime::admin::change;
use std::process::ExitCode;

/// Show and change the options of a running cluster
///
/// A change goes through the cluster's log. Every node applies it while running and stores it;
/// after a restart it overrides the deployment file.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  ionian options list\n  ionian options set heartbeat_ms=50 election_timeout_ms=200"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: OptionsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OptionsCommand {
    /// Show every option with its value, its default and where to change it
    List {
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
    /// Change options on all nodes; either all of the given changes take effect or none
    Set {
        /// The changes, such as window_slots=1024
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        #[command(flatten)]
        change_args: ChangeArgs,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    waiting::block_on(async {
        match &arguments.command {
            OptionsCommand::List { cluster_args } => {
                let found = Found::find(cluster_args).await?;
                output::print(format_args!("{}", list(&found.known)));
                Ok(())
            }
            OptionsCommand::Set {
                settings,
                change_args,
            } => set(settings, change_args).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One line for each option.
fn list(known: &Configuration) -> String {
    let options = &known.deployment.options;
    let width = known
        .deployment
        .settings()
        .map(|setting| setting.key.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "cluster {}: epoch {}\n",
        known.deployment.cluster,
        known.epoch().0
    );
    for setting in known.deployment.settings() {
        let tuned = options.tuned().any(|key| key == setting.key);
        let origin = match (at_start(setting), tuned) {
            (Some(reason), _) => format!("cannot change while the cluster runs: {reason}"),
            (None, true) => "set for all nodes by `ionian options`".to_owned(),
            (None, false) if setting.shared => "from the founding deployment".to_owned(),
            (None, false) => "per node, from its start".to_owned(),
        };
        let (key, value, default) = (setting.key, options.value(setting), setting.default());
        text += &format!("{key:<width$}  {value:>10}  default {default:>10}  {origin}\n");
    }
    text
}

/// Changes options, and waits until every node has applied them.
async fn set(settings: &[String], change_args: &ChangeArgs) -> Result<()> {
    let found = Found::find(&change_args.cluster_args).await?;
    let from = &found.known.deployment;
    let to = from.tuned(settings)?;
    if from.options == to.options {
        say!(
            "no change: the options have these values already (epoch {})",
            found.known.epoch().0
        );
        return Ok(());
    }
    let change = change::tune(protocol(&from.protocol)?, &found.known, &to);
    let change = possible(change)?;
    let since = found.request(&change).await?;
    say!("epoch {} begins", since.0);
    for setting in to.settings() {
        let (before, after) = (from.options.value(setting), to.options.value(setting));
        if before != after {
            say!("options.{} = {after} (was {before})", setting.key);
        }
    }
    wait_if_asked(&found, since, &to, change_args).await
}
