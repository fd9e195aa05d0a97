//! Standard output of commands whose output people cut short, as in `ionian sim | head`: that nobody reads
//! on is no failure of the command, and not a reason to panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints `text`. A reader that has gone away is ignored.
///
/// # Panics
/// When standard output cannot be written for another reason, as `print!` does.
pub(crate) fn print(text: Arguments<'_>) {
    match std::io::stdout().write_fmt(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("cannot write to standard output: {error}"),
        _ => {}
    }
}

/// As [`print`], with a line end.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use say;
