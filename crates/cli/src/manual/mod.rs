//! `ionian man`: manual pages, written from what the program knows of itself.
//!
//! | file | job |
//! |---|---|
//! | `page` | the page of a command, from its arguments |
//! | `file_format` | `ionian.toml(5)`, from the settings that protocols declare |

mod file_format;
mod page;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use ionian_program::output::say;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name and the version in the last line of each page.
const SOURCE: &str = concat!("ionian ", env!("CARGO_PKG_VERSION"));
/// The title in the first line of each page.
const MANUAL: &str = "Ionian";
/// In place of a date, which would differ from build to build; an empty argument would be left out.
const NO_DATE: &str = " ";

/// Write the manual pages of `ionian` and of its deployment file
///
/// One page for each command, such as ionian-node.1, and ionian.toml.5. Existing pages are
/// overwritten. The text depends on the program alone: the same version writes the same bytes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian man /usr/local/share/man
  man -l /usr/local/share/man/man1/ionian-node.1")]
pub(crate) struct Arguments {
    /// The directory; pages are written to DIR/man1 and DIR/man5, which are created
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut pages = page::of_all(crate::Arguments::command())?;
    pages.push(("man5/ionian.toml.5".to_owned(), file_format::page()?));
    let count = pages.len();
    for (name, text) in pages {
        write(&arguments.directory.join(name), &text)?;
    }
    say!(
        "wrote {count} pages below {}",
        arguments.directory.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all);
    written
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}
