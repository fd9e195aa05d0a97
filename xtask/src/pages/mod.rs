//! What pages say is tried: `cargo xtask pages` runs every command of the README, of the pages in
//! `docs`, and of those in `docs/protocols` that start servers, literally, in a copy of the
//! repository, and compares what they print with what the pages show (`blocks` says how they are
//! marked). `cargo xtask numbers` compares the numbers that are marked in pages with the files that
//! they come from (`numbers`).

mod blocks;
mod numbers;
mod session;

use crate::repository;
use session::{Clone, Session};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The pages at the root of the repository, in the order in which a newcomer reads them; those in
/// `docs` follow.
const FIRST: [&str; 3] = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];

/// Tries the commands of all pages, of those that are named, or after `--without` of all others.
pub(crate) fn run_commands(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let named: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    finish(try_commands(&named))
}

/// Checks the marked numbers; with `--write`, writes those that are wrong anew.
pub(crate) fn run_numbers(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match &arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect::<Vec<_>>()[..]
    {
        [] => finish(check_numbers(false)),
        [word] if word == "--write" => finish(check_numbers(true)),
        _ => {
            eprintln!("usage: cargo xtask numbers [--write]");
            ExitCode::from(2)
        }
    }
}

fn finish(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

/// All pages, by their paths in the repository.
fn pages() -> Result<Vec<String>, Box<dyn Error>> {
    let mut pages: Vec<String> = Vec::new();
    for folder in ["docs", "docs/protocols"] {
        for entry in fs::read_dir(repository().join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            pages.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    // Of the pages about protocols, those that start servers.
    pages.retain(|page| {
        let text = || fs::read_to_string(repository().join(page)).unwrap_or_default();
        !page.starts_with("docs/protocols") || text().contains("until=")
    });
    pages.sort_unstable();
    Ok(FIRST.into_iter().map(str::to_owned).chain(pages).collect())
}

fn try_commands(named: &[String]) -> Result<(), Box<dyn Error>> {
    let (but, named) = match named {
        [first, rest @ ..] if first == "--without" => (true, rest),
        named => (named.is_empty(), named),
    };
    let known = pages()?;
    if let Some(other) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!("there is no page {other}: pages are {}", known.join(", ")).into());
    }
    let chosen: Vec<&String> = known
        .iter()
        .filter(|page| named.contains(page) != but)
        .collect();
    // All are read before any is tried: what is marked wrongly shows in a second.
    let mut read = Vec::new();
    for page in chosen {
        let text = fs::read_to_string(repository().join(page))?;
        let blocks = blocks::of_page(&text).map_err(|error| format!("{page}: {error}"))?;
        if !blocks.is_empty() {
            read.push((page, blocks));
        }
    }
    let clone = Clone::make(&repository())?;
    let mut tried = 0;
    for (page, blocks) in read {
        let mut session = Session::begin(&clone, page)?;
        for block in &blocks {
            session.run(block)?;
            tried += usize::from(block.what != blocks::What::Skip);
        }
    }
    eprintln!("==> {tried} blocks of commands do what their pages say");
    Ok(())
}

fn check_numbers(write: bool) -> Result<(), Box<dyn Error>> {
    let mut faults = Vec::new();
    let mut checked = 0;
    for page in pages()? {
        let path = repository().join(&page);
        let text = fs::read_to_string(&path)?;
        let checked_page =
            numbers::check(&text, &repository()).map_err(|error| format!("{page}: {error}"))?;
        checked += checked_page.count;
        if checked_page.faults.is_empty() {
            continue;
        }
        if write {
            fs::write(&path, checked_page.text)?;
            eprintln!(
                "==> {page}: {} numbers are written anew",
                checked_page.faults.len()
            );
        } else {
            faults.extend(
                checked_page
                    .faults
                    .iter()
                    .map(|fault| format!("{page}: {fault}")),
            );
        }
    }
    let findings = findings_that_differ()?;
    if !findings.is_empty() {
        return Err(format!(
            "{}\n==> `ionian bench figure` writes figures with their pages",
            findings.join("\n==> ")
        )
        .into());
    }
    if !faults.is_empty() {
        return Err(format!(
            "{}\n==> cargo xtask numbers --write writes them anew",
            faults.join("\n==> ")
        )
        .into());
    }
    eprintln!("==> {checked} numbers are those of the files that they come from");
    Ok(())
}

/// What the data of a figure says was found must stand on its page, and on the page of all
/// findings: all three are written together, and one that was written alone would contradict the
/// others.
fn findings_that_differ() -> Result<Vec<String>, Box<dyn Error>> {
    let folder = repository().join("docs/figures");
    let all = fs::read_to_string(folder.join("findings.md"))?;
    let mut differ = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let data: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let Some(findings) = data
            .get("findings")
            .and_then(|findings| findings.as_array())
        else {
            continue;
        };
        let page = path.with_extension("md");
        let own = fs::read_to_string(&page)?;
        for finding in findings.iter().filter_map(|finding| finding.as_str()) {
            for (name, text) in [(page.as_path(), &own), (Path::new("findings.md"), &all)] {
                if !text
                    .lines()
                    .any(|line| line.strip_prefix("- ") == Some(finding))
                {
                    differ.push(format!(
                        "{} does not say what {} does: {finding}",
                        name.display(),
                        path.display()
                    ));
                }
            }
        }
    }
    Ok(differ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_all_pages_are_marked_right() {
        let pages = pages().expect("the pages are listed");
        for page in &pages {
            let text = fs::read_to_string(repository().join(page)).expect(page);
            if let Err(error) = blocks::of_page(&text) {
                panic!("{page}: {error}");
            }
        }
        assert!(pages.len() > 10);
    }
}
