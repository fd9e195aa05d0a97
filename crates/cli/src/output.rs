//! What people read: standard output that may be cut short, as in `ionian sim | head` (that nobody
//! reads on is no failure of the command, and no reason to panic), and errors in one line.

use anyhow::Error;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints `text`. A reader that has gone away is ignored. When standard output cannot be written
/// for another reason the command ends with exit code 1: what it was to tell is not told.
pub(crate) fn print(text: Arguments<'_>) {
    match std::io::stdout().write_fmt(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("ionian: cannot write to standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

/// As [`print`], with a line end.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use say;

/// An error with its causes in one line. Some errors name their cause themselves: it is not said
/// twice.
pub(crate) fn explain(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no such port")
            .context("cannot connect: no such port")
            .context("node n2 is down");
        assert_eq!(
            explain(&error),
            "node n2 is down: cannot connect: no such port"
        );
    }
}
