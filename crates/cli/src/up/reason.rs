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

/// The most reasons that are remembered as reported: failures may take turns.
const REPORTED: usize = 4;

/// What was reported of the ends of a node. The reason of a failure that repeats is reported once,
/// and at the maximum delay nothing more.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// The last reasons, the latest at the end.
    reasons: Vec<String>,
    /// Whether the delay was the maximum.
    was_last: bool,
}

impl Reported {
    /// What to report of an end, if anything. `is_last`: whether the delay is the maximum.
    pub(crate) fn shortened(&mut self, how: String, is_last: bool) -> Option<String> {
        let was_last = std::mem::replace(&mut self.was_last, is_last);
        let known = self.reasons.iter().position(|reason| *reason == how);
        let said = match known {
            None => Some(how.clone()),
            Some(_) if was_last && is_last => None,
            Some(place) if place + 1 == self.reasons.len() => {
                Some("has ended for the same reason".to_owned())
            }
            Some(_) => Some("has ended for an earlier reason".to_owned()),
        };
        match known {
            Some(place) => drop(self.reasons.remove(place)),
            None if self.reasons.len() == REPORTED => drop(self.reasons.remove(0)),
            None => {}
        }
        self.reasons.push(how);
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_take_turns_are_reported_once() {
        let mut reported = Reported::default();
        let mut said = |how: &str, is_last| {
            let said = reported.shortened(how.to_owned(), is_last);
            said.unwrap_or_default()
        };
        assert_eq!(said("a", false), "a");
        assert_eq!(said("a", false), "has ended for the same reason");
        assert_eq!(said("b", false), "b");
        assert_eq!(said("a", false), "has ended for an earlier reason");
        assert_eq!(said("b", true), "has ended for an earlier reason");
        // At the maximum delay only what is new is said.
        assert_eq!(["a", "b", "b", "a"].map(|how| said(how, true)), [""; 4]);
        assert_eq!(said("c", true), "c");
        // After a good run the delays begin anew.
        assert_eq!(said("c", false), "has ended for the same reason");
        // The number is bounded.
        for how in ["d", "e", "f", "g"] {
            assert_eq!(said(how, true), how);
        }
        assert_eq!(said("a", true), "a");
    }

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
