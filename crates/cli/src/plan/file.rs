//! The file of `ionian plan --file`: what is asked, with the flags as keys. It is read as flags
//! are, so both have the same limits, defaults and messages.

use super::arguments::Asked;
use super::read as text_of;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Command, FromArgMatches};
use ionian_program::BadUsage;
use std::path::Path;
use toml::{Table, Value};

/// What `ionian plan --example` prints.
pub(super) const EXAMPLE: &str = include_str!("example.toml");

/// The largest file in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Reads what is asked. A relative path in it starts at its directory.
pub(super) fn read(file: &Path) -> Result<Asked> {
    let named = || format!("--file {}", file.display());
    let text = text_of(file, MAX_TEXT).with_context(named)?;
    let asked = asked(&text).map_err(|error| BadUsage(format!("{}: {error:#}", named())));
    let mut asked = asked?;
    let directory = file.parent().unwrap_or(Path::new(""));
    asked.demands = asked.demands.map(|demands| directory.join(demands));
    Ok(asked)
}

fn asked(text: &str) -> Result<Asked> {
    let table: Table = text.parse()?;
    let command = Asked::augment_args(Command::new("plan")).no_binary_name(true);
    let keys: Vec<String> = command
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .collect();
    let mut flags = Vec::new();
    for (key, value) in table {
        ensure!(
            keys.contains(&key),
            "unknown key {key}; available: {}",
            keys.join(", ")
        );
        let value = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            other => bail!("{key} = {other}: must be a number or a text"),
        };
        flags.push(format!("--{}={value}", key.replace('_', "-")));
    }
    let matches = command.try_get_matches_from(flags).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        anyhow::anyhow!("{}", line.trim_start_matches("error: "))
    })?;
    Ok(Asked::from_arg_matches(&matches)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of every key but `demands`, which is a comment there: there is no such file.
    #[test]
    fn the_example_has_every_key_with_its_default() {
        let table: Table = EXAMPLE.parse().unwrap();
        let command = Asked::augment_args(Command::new("plan"));
        for argument in command.get_arguments() {
            let key = argument.get_id().as_str();
            let Some(value) = table.get(key) else {
                assert!(
                    key == "demands" && EXAMPLE.contains("# demands = "),
                    "{key}"
                );
                continue;
            };
            if key == "writes" || key == "reads" {
                continue;
            }
            let default = argument.get_default_values()[0].to_str().unwrap();
            let value = value.to_string().replace('"', "");
            let is_same = match (value.parse::<f64>(), default.parse::<f64>()) {
                (Ok(value), Ok(default)) => value == default,
                _ => value == default,
            };
            assert!(is_same, "{key}: {value}, not {default}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        let refused = |text: &str| format!("{:#}", asked(text).unwrap_err());
        for (text, says) in [
            (
                "cores = 8",
                "unknown key cores; available: writes, reads, level,",
            ),
            (
                "f = 0",
                "invalid value '0' for '--f <N>': 0 is not in 1..=31",
            ),
            (
                "level = 'best'",
                "invalid value 'best' for '--level <LEVEL>'",
            ),
            ("writes = true", "writes = true: must be a number or a text"),
            ("[machine]", "unknown key machine;"),
            ("writes = ", "TOML parse error"),
        ] {
            let found = refused(text);
            assert!(found.starts_with(says), "{text}: {found}");
        }
    }

    #[test]
    fn a_file_without_a_key_has_the_default_of_the_flag() {
        let asked = asked("writes = 2e4\nvalue_bytes = 100\ndemands = 'mine.json'").unwrap();
        assert_eq!((asked.writes, asked.reads), (20_000.0, 0.0));
        assert_eq!((asked.value_bytes, asked.connections), (100, 64));
        assert_eq!(asked.demands.as_deref(), Some(Path::new("mine.json")));
    }
}
