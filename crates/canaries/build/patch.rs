//! Patches: what a file of them says, and how they change sources.
//!
//! The first paragraph is the defect in words. Declarations follow, one a line (`key: value`), and
//! then hunks: `@@` with a file, and lines of it that start with a blank (they stay), with `-`
//! (they go) or with `+` (they come). The lines that stay or go must be in the file exactly once.
//! In the lines that come, `CANARY` is true while this defect is active.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// What stands for "this defect is active" in a patch.
const ACTIVE: &str = "CANARY";

/// One defect.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Patch {
    /// The protocol's folder and the name: `multipaxos/repair`.
    pub(crate) id: String,
    pub(crate) defect: String,
    /// The declarations, each key with its values in the order of the file.
    pub(crate) declared: BTreeMap<String, Vec<String>>,
    pub(crate) hunks: Vec<Hunk>,
}

/// Lines of one file that are changed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hunk {
    /// Relative to the folder of the sources.
    pub(crate) file: String,
    /// The line of the patch at which it starts.
    pub(crate) line: usize,
    pub(crate) lines: Vec<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Stays,
    Goes,
    Comes,
}

/// What can be declared: the key, whether it may occur several times, and what it means.
const KEYS: &[(&str, bool, &str)] = &[
    (
        "origin",
        false,
        "who made the mistake: `published` (a published implementation) or `ours`",
    ),
    ("preset", false, "the deployment in which it shows"),
    ("set", true, "a setting with which it shows, key=value"),
    ("durability", false, "what a crash leaves when it shows"),
    ("changes", false, "`yes`: it shows when members change"),
    ("seeds", false, "among which seeds it shows, A..B"),
];

impl Patch {
    /// Reads a patch; `id` is its folder and name.
    ///
    /// # Errors
    /// Says in which line what is wrong, and what is allowed.
    pub(crate) fn parse(id: &str, text: &str) -> Result<Patch, String> {
        let mut patch = Patch {
            id: id.to_owned(),
            ..Patch::default()
        };
        let mut lines = (1..).zip(text.lines()).peekable();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
            if !patch.defect.is_empty() {
                patch.defect.push(' ');
            }
            patch.defect.push_str(line);
        }
        while let Some((number, line)) = lines.next_if(|(_, line)| !line.starts_with("@@")) {
            if !line.is_empty() {
                patch.declare(line).map_err(|error| at(number, &error))?;
            }
        }
        for (number, line) in lines {
            patch
                .take(number, line)
                .map_err(|error| at(number, &error))?;
        }
        patch.check()?;
        Ok(patch)
    }

    fn declare(&mut self, line: &str) -> Result<(), String> {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let known = KEYS.iter().find(|(known, ..)| *known == key);
        let Some((_, many, _)) = known.filter(|_| !value.is_empty()) else {
            let known = KEYS
                .iter()
                .map(|(key, _, meaning)| format!("\n  {key}: {meaning}"));
            let known: String = known.collect();
            return Err(format!("{line:?} declares nothing; known are:{known}"));
        };
        let values = self.declared.entry(key.to_owned()).or_default();
        if !many && !values.is_empty() {
            return Err(format!("{key:?} is declared twice"));
        }
        values.push(value.to_owned());
        Ok(())
    }

    fn take(&mut self, number: usize, line: &str) -> Result<(), String> {
        if let Some(file) = line.strip_prefix("@@ ") {
            let (file, line) = (file.trim().to_owned(), number);
            self.hunks.push(Hunk {
                file,
                line,
                lines: Vec::new(),
            });
            return Ok(());
        }
        let hunk = self.hunks.last_mut().expect("the first line starts one");
        let mut rest = line.chars();
        let kind = match rest.next() {
            // Editors take blanks at the end of a line away.
            None | Some(' ') => Kind::Stays,
            Some('-') => Kind::Goes,
            Some('+') => Kind::Comes,
            Some(_) => {
                return Err(format!(
                    "{line:?} starts neither with a blank, `-` or `+` nor with `@@ FILE`"
                ));
            }
        };
        hunk.lines.push((kind, rest.as_str().to_owned()));
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        if self.defect.is_empty() || self.hunks.is_empty() {
            return Err(
                "a patch is a paragraph with the defect, declarations, and hunks (`@@ FILE`)"
                    .to_owned(),
            );
        }
        for hunk in &mut self.hunks {
            let is_blank = |line: &&(Kind, String)| line.0 == Kind::Stays && line.1.is_empty();
            while hunk.lines.last().as_ref().is_some_and(is_blank) {
                hunk.lines.pop();
            }
            let comes = |line: &(Kind, String)| line.0 == Kind::Comes && line.1.contains(ACTIVE);
            if !hunk.lines.iter().any(comes) {
                return Err(at(
                    hunk.line,
                    &format!(
                        "no line that comes asks {ACTIVE}: without it the protocol would be \
                         changed when this defect is not active, too"
                    ),
                ));
            }
            if hunk.original().next().is_none() {
                return Err(at(
                    hunk.line,
                    "no line that stays or goes says where this is",
                ));
            }
        }
        Ok(())
    }

    /// The only value of a key.
    pub(crate) fn declared(&self, key: &str) -> Option<&str> {
        self.declared.get(key)?.first().map(String::as_str)
    }
}

impl Hunk {
    /// The lines of the source of which it speaks.
    fn original(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().filter(|(kind, _)| *kind != Kind::Comes);
        lines.map(|(_, line)| line.as_str())
    }

    /// Where it is in these lines: every place.
    fn places(&self, source: &[&str]) -> Vec<usize> {
        let original: Vec<&str> = self.original().collect();
        let windows = source.windows(original.len()).enumerate();
        let found = windows.filter(|(_, window)| *window == original);
        found.map(|(place, _)| place).collect()
    }
}

fn at(line: usize, error: &str) -> String {
    format!("line {line}: {error}")
}

/// Lines of a source that a patch replaces.
struct Edit<'a> {
    patch: &'a str,
    line: usize,
    replaced: Range<usize>,
    by: Vec<String>,
}

/// Changes sources, given by file, as all patches say. All patches speak of the sources as they
/// were: their order makes no difference, and no two may change the same lines.
///
/// # Errors
/// Says which patches do not apply and why, all of them.
pub(crate) fn apply(
    sources: &mut BTreeMap<String, String>,
    patches: &[Patch],
) -> Result<(), Vec<String>> {
    let (mut edits, mut errors) = (BTreeMap::<&str, Vec<Edit<'_>>>::new(), Vec::new());
    for (patch, hunk) in patches
        .iter()
        .flat_map(|patch| patch.hunks.iter().map(move |hunk| (patch, hunk)))
    {
        match place(sources, hunk) {
            Ok(place) => edits
                .entry(&hunk.file)
                .or_default()
                .extend(edits_of(patch, hunk, place)),
            Err(error) => errors.push(format!("{}.patch: line {}: {error}", patch.id, hunk.line)),
        }
    }
    for (file, edits) in &mut edits {
        edits.sort_by_key(|edit| (edit.replaced.start, edit.replaced.end));
        for pair in edits.windows(2) {
            let [one, next] = pair else { continue };
            if next.replaced.start < one.replaced.end || next.replaced.start == one.replaced.start {
                errors.push(format!(
                    "{}.patch: line {}: {}.patch changes line {} of {file} as well",
                    next.patch,
                    next.line,
                    one.patch,
                    next.replaced.start + 1
                ));
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for (file, edits) in edits {
        let source = sources.get_mut(file).expect("was found above");
        let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
        for edit in edits.into_iter().rev() {
            lines.splice(edit.replaced, edit.by);
        }
        *source = lines.join("\n") + "\n";
    }
    Ok(())
}

/// The one place of a hunk.
fn place(sources: &BTreeMap<String, String>, hunk: &Hunk) -> Result<usize, String> {
    let Some(source) = sources.get(&hunk.file) else {
        return Err(format!("there is no file {}", hunk.file));
    };
    let lines: Vec<&str> = source.lines().collect();
    let places = hunk.places(&lines);
    if let [place] = places[..] {
        return Ok(place);
    }
    let mut error = match places.len() {
        0 => format!("these lines are not in {}:", hunk.file),
        count => format!(
            "these lines are in {} {count} times; add lines around them that stay:",
            hunk.file
        ),
    };
    for line in hunk.original() {
        let _ = write!(error, "\n    {line}");
    }
    for (file, source) in sources {
        let lines: Vec<&str> = source.lines().collect();
        if places.is_empty() && !hunk.places(&lines).is_empty() {
            let _ = write!(error, "\n  they are in {file}");
        }
    }
    Err(error)
}

/// One edit for each run of lines that go or come.
fn edits_of<'a>(patch: &'a Patch, hunk: &Hunk, place: usize) -> Vec<Edit<'a>> {
    let active = format!("crate::canary::is({:?})", patch.id);
    let (mut edits, mut at, mut open) = (Vec::<Edit<'_>>::new(), place, false);
    for (kind, line) in &hunk.lines {
        if *kind == Kind::Stays {
            (at, open) = (at + 1, false);
            continue;
        }
        if !open {
            edits.push(Edit {
                patch: &patch.id,
                line: hunk.line,
                replaced: at..at,
                by: Vec::new(),
            });
            open = true;
        }
        let edit = edits.last_mut().expect("just pushed");
        match kind {
            Kind::Goes => {
                at += 1;
                edit.replaced.end = at;
            }
            _ => edit.by.push(line.replace(ACTIVE, &active)),
        }
    }
    edits
}
