//! Links of documents to files and headings of the repository lead somewhere.

use super::rules::{Check, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// The files of the repository, and the headings of the documents among them.
pub(super) struct Targets {
    /// Files and their folders.
    paths: BTreeSet<String>,
    /// For each document, its headings as links name them.
    headings: BTreeMap<String, BTreeSet<String>>,
}

impl Targets {
    /// Takes the paths of all files, and the texts of those that have one.
    pub(super) fn new(files: &[String], texts: &[(String, String)]) -> Self {
        let mut paths = BTreeSet::new();
        for file in files {
            paths.insert(file.clone());
            for (at, _) in file.match_indices('/') {
                paths.insert(file[..at].to_owned());
            }
        }
        let documents = texts.iter().filter(|(path, _)| path.ends_with(".md"));
        let headings = documents.map(|(path, text)| (path.clone(), headings(text)));
        Targets {
            paths,
            headings: headings.collect(),
        }
    }

    /// The links of a document that lead nowhere.
    pub(super) fn check(&self, path: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (line, target) in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => Some(path.to_owned()),
                _ => resolved(path, file),
            };
            let exists = file.as_ref().is_some_and(|file| self.paths.contains(file));
            let is_heading = || {
                let headings = file.as_ref().and_then(|file| self.headings.get(file));
                heading.is_empty() || headings.is_some_and(|known| known.contains(heading))
            };
            if !exists || !is_heading() {
                findings.push(Finding {
                    check: Check::Links,
                    key: path.to_owned(),
                    file: path.to_owned(),
                    line,
                    weight: 1,
                    text: format!(
                        "{target:?} leads to no {} of the repository",
                        if exists { "heading" } else { "file" }
                    ),
                });
            }
        }
        findings
    }
}

/// The targets of a document's links within the repository, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_block = false;
    for (at, line) in text.lines().enumerate() {
        in_block ^= line.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        let inline = line.split("](").skip(1).filter_map(|rest| {
            let (target, _) = rest.split_once(')')?;
            Some(target)
        });
        let is_definition = line.starts_with('[');
        let definition = line.split_once("]: ").filter(|_| is_definition);
        let targets = inline.chain(definition.map(|(_, target)| target.trim()));
        links.extend(
            targets
                .filter(|target| !target.contains("://"))
                .map(|target| (at + 1, target)),
        );
    }
    links
}

/// A path relative to a file, from the root of the repository; `None` when it leads out of it.
fn resolved(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The headings of a document as links name them: in lower case, without punctuation, with hyphens
/// for spaces.
fn headings(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut headings = BTreeSet::new();
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if !in_block && title.len() < line.len() && title.starts_with(' ') {
            let kept = title.trim().to_lowercase();
            let kept = kept
                .chars()
                .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            headings.insert(kept.collect::<String>().replace(' ', "-"));
        }
    }
    headings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = ["README.md", "docs/a.md", "docs/b.md", "crates/x/src/lib.rs"];
        let files = files.map(str::to_owned);
        let page = ("docs/b.md".to_owned(), "# The `b`, whole\n".to_owned());
        let this = (path.to_owned(), text.to_owned());
        Targets::new(&files, &[page, this])
            .check(path, text)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.text))
            .collect()
    }

    #[test]
    fn links_to_files_folders_headings_and_the_web_are_fine() {
        let text = "[a](b.md) [b](../crates/x/src/lib.rs) [c](b.md#the-b-whole)\n\
                    # Here\n[d](#here) [e](https://example.org/x)\n\n[f]: ../crates/x\n\
                    ```\n[g](nowhere.md)\n```\n";
        assert_eq!(found("docs/a.md", text), [""; 0]);
    }

    #[test]
    fn links_to_what_is_missing_are_found() {
        assert_eq!(
            found(
                "docs/a.md",
                "\n[a](c.md) and [b](b.md#part)\n[c]: ../../x.md\n[d](#gone)"
            ),
            [
                "2: \"c.md\" leads to no file of the repository",
                "2: \"b.md#part\" leads to no heading of the repository",
                "3: \"../../x.md\" leads to no file of the repository",
                "4: \"#gone\" leads to no heading of the repository",
            ]
        );
    }
}
