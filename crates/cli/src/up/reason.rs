//! The reason of a process for its end, from its log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How many bytes at the end of a log are searched for the reason.
const MOST: u64 = 64 << 10;

/// Why the process has ended whose lines begin at byte `from` of the log: its error, which is one
/// line, or else its last line. `None` if it has written none.
pub(crate) fn reason(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    let first = from.max(length.saturating_sub(MOST));
    file.seek(SeekFrom::Start(first)).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_error = |line: &&str| {
        ["ionian: ", "error: "]
            .iter()
            .any(|it| line.starts_with(it))
    };
    if let Some(error) = lines.iter().rfind(|line| is_error(line)) {
        return Some((*error).to_owned());
    }
    // The line after it says why.
    let panicked = lines
        .windows(2)
        .rfind(|two| two[0].contains(" panicked at "));
    if let Some(two) = panicked {
        return Some(two.join(" "));
    }
    // The first line may be the rest of one.
    let whole = &lines[usize::from(first > from).min(lines.len())..];
    let last = whole.iter().rfind(|line| !line.is_empty())?;
    Some((*last).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_line_of_the_last_process() {
        let log = std::env::temp_dir().join(format!("ionian-reason-{}", std::process::id()));
        let long = "x".repeat(1 << 17);
        let usage = "error: unexpected argument '--new'\n\nUsage: ionian\n\nFor more information, try '--help'.";
        let panic = "thread 'main' (7) panicked at src/a.rs:1:2:\nno such thing\n";
        let note = "note: run with `RUST_BACKTRACE=1`\n";
        for (text, expected) in [
            ("INFO starts\nionian: e\n", Some("ionian: e")),
            ("ionian: e\nINFO stops\n  more\n", Some("ionian: e")),
            (&format!("ionian: {long}\n"), None),
            (&format!("{long}\nINFO stops\n\n"), Some("INFO stops")),
            (&long, None),
            (usage, Some("error: unexpected argument '--new'")),
            (
                &format!("{panic}stack backtrace:\n  0: main\n{note}"),
                Some("thread 'main' (7) panicked at src/a.rs:1:2: no such thing"),
            ),
            ("", None),
        ] {
            let before = "ionian: of an earlier process\n";
            std::fs::write(&log, format!("{before}{text}")).unwrap();
            let found = reason(&log, before.len() as u64);
            assert_eq!(found.as_deref(), expected, "{text:.50}");
        }
        std::fs::remove_file(log).unwrap();
    }
}
