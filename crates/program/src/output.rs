//! Standard output that may be closed early, as in `ionian sim | head` (a closed pipe is neither a
//! failure nor a reason to panic), and errors in one line.

use crate::line_queue::LineQueue;
use anyhow::Error;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The lines that wait for standard error, in a program that must not wait for who reads it.
static LINES: OnceLock<LineQueue> = OnceLock::new();

/// From now on a thread writes what [`print_on_stderr`] gets, so that the program goes on where a
/// pipe is full or a terminal is stopped. What does not fit into the queue is dropped and counted.
pub fn write_errors_by_thread() {
    LINES.get_or_init(|| {
        LineQueue::begin(io::stderr(), |dropped| {
            let why = "standard error did not take them";
            let _ = writeln!(io::stderr(), "{dropped} lines were dropped: {why}");
        })
    });
}

/// Waits a second at most until the thread has written what it got.
pub fn settle() {
    LINES.get().inspect(|lines| lines.settle());
}

/// Prints `text`. Ignores a closed pipe.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn try_print(text: Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Like [`try_print`]. If standard output cannot be written the command ends with exit code 1,
/// because it cannot show its result.
pub fn print(text: Arguments<'_>) {
    if let Err(error) = try_print(text) {
        say_on_stderr!("ionian: cannot write to standard output: {error}");
        settle();
        std::process::exit(1);
    }
}

/// Like [`print()`], with a line end.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

pub use crate::say;

/// Prints a line on standard error. Where that cannot be written no place is left for the reason,
/// and what the program does does not depend on it.
pub fn print_on_stderr(line: Arguments<'_>) {
    let _ = match LINES.get() {
        Some(lines) => lines.clone().write_all(format!("{line}\n").as_bytes()),
        None => {
            let mut out = io::stderr().lock();
            out.write_fmt(line).and_then(|()| out.write_all(b"\n"))
        }
    };
}

/// Like [`print_on_stderr`], from a format. `eprintln!` ends the program if no process reads the
/// pipe any more.
#[macro_export]
macro_rules! say_on_stderr {
    ($($text:tt)*) => { $crate::output::print_on_stderr(format_args!($($text)*)) };
}

pub use crate::say_on_stderr;

/// An error with its causes in one line. A cause that the error repeats itself is printed once.
pub fn explain(error: &Error) -> String {
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
    fn explain_names_each_cause_once() {
        let error = anyhow!("no such port")
            .context("cannot connect: no such port")
            .context("node n2 is down");
        assert_eq!(
            explain(&error),
            "node n2 is down: cannot connect: no such port"
        );
    }
}
