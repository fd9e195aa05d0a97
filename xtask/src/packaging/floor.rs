//! The oldest glibc that runs the program is the one that `docs/install.md` names.

use super::{Done, printed};
use crate::{absent, repository};
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/install.md";
const SENTENCE: &str = "The oldest glibc that runs it is ";

/// A version, such as 2.34.
type Version = (u32, u32);

/// Compares the program with the page.
pub(super) fn check(program: &Path) -> Done {
    if !absent::has("objdump") {
        eprintln!("==> NOT TRIED: the oldest glibc. objdump is not installed (binutils)");
        return Ok(());
    }
    let needed = needed(&printed(Command::new("objdump").arg("-T").arg(program))?)?;
    let page = fs::read_to_string(repository().join(PAGE))?;
    let stated = stated(&page)?;
    let text = |(major, minor): Version| format!("{major}.{minor}");
    eprintln!("==> the oldest glibc is {}", text(needed));
    match needed == stated {
        true => Ok(()),
        false => Err(format!("{PAGE} says that it is {}", text(stated)).into()),
    }
}

/// The latest version in a table of symbols.
fn needed(symbols: &str) -> Done<Version> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(version);
    versions
        .max()
        .ok_or_else(|| "the program has no symbol of glibc".into())
}

/// The version on the page.
fn stated(page: &str) -> Done<Version> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let rest = page.split_once(SENTENCE).and_then(|(_, it)| version(it));
    rest.ok_or_else(|| format!("{PAGE}: no version follows: {SENTENCE}").into())
}

/// The version that a text begins with.
fn version(text: &str) -> Option<Version> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.');
    let mut numbers = text[..end.unwrap_or(text.len())].split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let symbols = "UND (GLIBC_2.9) a\nUND (GLIBC_2.34) b\nUND (GLIBC_2.2.5) c\n\
                       (GLIBC_PRIVATE) d\n";
        assert_eq!(needed(symbols).unwrap(), (2, 34));
        assert!(needed("no table").is_err());
    }

    #[test]
    fn the_page_states_a_version() {
        assert_eq!(
            stated("The oldest glibc\nthat runs it is 2.34.\n").unwrap(),
            (2, 34)
        );
        assert!(stated("The oldest glibc that runs it is old.").is_err());
        let page = fs::read_to_string(repository().join(PAGE)).unwrap();
        stated(&page).unwrap();
    }
}
