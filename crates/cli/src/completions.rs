//! `ionian completions`: what a shell needs in order to complete commands of `ionian`.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use ionian_program::output;
use std::process::ExitCode;

/// Print the completions of a shell for `ionian`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian completions bash > /etc/bash_completion.d/ionian
  ionian completions zsh > /usr/local/share/zsh/site-functions/_ionian
  ionian completions fish > ~/.config/fish/completions/ionian.fish")]
pub(crate) struct Arguments {
    /// The shell that reads them
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut text = Vec::new();
    let mut command = crate::Arguments::command();
    // Into memory, because the generator panics if standard output is closed.
    clap_complete::generate(arguments.shell, &mut command, "ionian", &mut text);
    output::print(format_args!("{}", String::from_utf8(text)?));
    Ok(ExitCode::SUCCESS)
}
