//! Tables: for people, and as CSV.

use anyhow::{Context, Result};
use ionian_program::output;
use std::fmt;
use std::path::Path;
use std::time::SystemTime;

/// Rows under a header.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub(crate) fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not as many cells as the header.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(
            cells.len(),
            self.header.len(),
            "a cell for each column: {cells:?}"
        );
        self.rows.push(cells);
    }

    /// As comma separated values, the header first.
    pub(crate) fn csv(&self) -> String {
        let line = |cells: &Vec<String>| {
            cells
                .iter()
                .map(|cell| quoted(cell))
                .collect::<Vec<_>>()
                .join(",")
                + "\n"
        };
        std::iter::once(&self.header)
            .chain(&self.rows)
            .map(line)
            .collect()
    }
}

/// As RFC 4180 wants it.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

/// In columns: the first to the left, where names stand, the others to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let width = |column: usize| {
            lines()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        for line in lines() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "{cell:width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The date, `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    let mut text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.truncate("2026-01-01".len());
    text
}

/// Prints on standard output; a closed pipe is not a failure.
///
/// # Errors
/// When standard output cannot be written for another reason.
pub(crate) fn print(text: &str) -> Result<()> {
    output::try_print(format_args!("{text}")).context("cannot write to standard output")
}

/// Writes a file; `-` is standard output.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    match path.as_os_str() == "-" {
        true => print(text),
        false => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_commas_are_quoted() {
        let mut table = Table::new(["name", "n"]);
        table.row(["a, \"b\"", "1"]);
        table.row(["c", "1,000"]);
        assert_eq!(
            table.to_string(),
            "name        n\na, \"b\"      1\nc       1,000\n"
        );
        assert_eq!(table.csv(), "name,n\n\"a, \"\"b\"\"\",1\nc,\"1,000\"\n");
    }
}
