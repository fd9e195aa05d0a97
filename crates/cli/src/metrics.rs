//! `ionian metrics`: what nodes report over HTTP.

use crate::output::say;
use anyhow::Result;
use clap::{Args, Subcommand};
use ionian_metrics::Line;
use std::fmt::Write;
use std::process::ExitCode;

/// List the metrics that nodes report over HTTP (`ionian node --http`)
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: MetricsCommand,
}

#[derive(Debug, Subcommand)]
enum MetricsCommand {
    /// Print the name, type, labels and meaning of each metric
    ///
    /// Every sample also has the labels `cluster` and `node`. The metrics of roles exist on nodes
    /// with such a role.
    List,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let MetricsCommand::List = arguments.command;
    let mut text = String::new();
    for of_subject in ionian_metrics::all() {
        let _ = writeln!(text, "{}", of_subject.subject);
        for line in of_subject.lines {
            text += &in_words(&line);
        }
        text.push('\n');
    }
    say!("{}", text.trim_end());
    Ok(ExitCode::SUCCESS)
}

fn in_words(line: &Line) -> String {
    let labels = match line.labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", line.labels.join(",")),
    };
    let name = format!("{}{labels}", line.name);
    format!("  {name:<52} {:<9} {}\n", line.kind.name(), line.help)
}
