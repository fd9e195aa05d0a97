//! `ionian completions`: what a shell needs in order to complete commands of `ionian`.

use anyhow::Result;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, CommandFactory, Error};
use clap_complete::Shell;
use ionian_deployment::presets;
use ionian_program::output;
use std::ffi::OsStr;
use std::process::ExitCode;

/// The names of presets, for completions. What is wrong with another name is said where it is
/// looked up.
#[derive(Clone, Copy)]
pub(crate) struct PresetNames;

impl TypedValueParser for PresetNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            presets().map(|(_, preset)| PossibleValue::new(preset.name)),
        ))
    }
}

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
