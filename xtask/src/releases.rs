//! What the changelog says of a release in a form that programs read: a block of TOML at the
//! beginning of its section. It must agree with the sources.

use serde::Deserialize;
use std::fs;
use std::path::Path;

const CHANGELOG: &str = "CHANGELOG.md";
const LEVELS: &str = "crates/kernel/src/level.rs";
const UPGRADE: &str = "docs/upgrade.md";

/// The block.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    version: String,
    /// The levels that the program supports.
    levels: Vec<u16>,
    level_of_new_clusters: u16,
    /// The oldest release whose running cluster it can take over.
    upgrade_from: String,
    /// The oldest release to which a cluster can go back.
    downgrade_to: String,
    /// What a client must speak at least.
    oldest_client: String,
    /// The oldest `ionian` that manages its clusters.
    oldest_operator: String,
}

/// Compares the block of the topmost release with the sources; prints what differs.
pub(crate) fn agree(root: &Path) -> bool {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let faults = || {
        let (changelog, manifest) = (read(CHANGELOG)?, read("Cargo.toml")?);
        let (levels, upgrade) = (read(LEVELS)?, read(UPGRADE)?);
        faults(&changelog, &manifest, &levels, &upgrade)
    };
    match faults() {
        Ok(faults) => {
            faults.iter().for_each(|fault| eprintln!("{fault}"));
            faults.is_empty()
        }
        Err(error) => {
            eprintln!("==> {error}");
            false
        }
    }
}

/// The block of the topmost section.
fn block(changelog: &str) -> Result<Release, String> {
    let (_, section) = changelog
        .split_once("\n## ")
        .ok_or_else(|| format!("{CHANGELOG} has no release"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let text = section
        .split_once("```toml\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .ok_or_else(|| format!("{CHANGELOG}: the topmost release has no block of toml"))?
        .0;
    toml::from_str(text).map_err(|error| format!("{CHANGELOG}: {error}"))
}

/// The number of a constant of [`LEVELS`].
fn level(text: &str, name: &str) -> Result<u16, String> {
    let start = format!("pub const {name}: Level = ");
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&start));
    let value = value.ok_or_else(|| format!("{LEVELS} has no line {start:?}"))?;
    let value = value.trim_end_matches(';');
    match value.strip_prefix("Level::") {
        Some(other) => level(text, other),
        None => value
            .strip_prefix("Level(")
            .and_then(|value| value.strip_suffix(')'))
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| format!("{LEVELS}: {name} is {value}, not `Level(NUMBER)`")),
    }
}

fn faults(
    changelog: &str,
    manifest: &str,
    levels: &str,
    upgrade: &str,
) -> Result<Vec<String>, String> {
    let release = block(changelog)?;
    let (oldest, latest) = (level(levels, "OLDEST")?, level(levels, "LATEST")?);
    let supported: Vec<u16> = (oldest..=latest).collect();
    let mut faults = Vec::new();
    let mut differ = |name: &str, says: String, is: String| {
        if says != is {
            faults.push(format!("{CHANGELOG}: {name} = {says}, but it is {is}"));
        }
    };
    let manifest: toml::Table = manifest
        .parse()
        .map_err(|error| format!("Cargo.toml: {error}"))?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    let version = version.unwrap_or_default().to_owned();
    differ("version", release.version, version);
    let numbers = |levels: &[u16]| format!("{levels:?}");
    differ("levels", numbers(&release.levels), numbers(&supported));
    let of_new = release.level_of_new_clusters.to_string();
    differ("level_of_new_clusters", of_new, latest.to_string());
    for (name, says) in [
        ("upgrade_from", release.upgrade_from),
        ("downgrade_to", release.downgrade_to),
        ("oldest_client", release.oldest_client),
        ("oldest_operator", release.oldest_operator),
    ] {
        if says.trim().is_empty() {
            faults.push(format!("{CHANGELOG}: {name} says nothing"));
        }
    }
    for level in supported {
        if !upgrade.contains(&format!("\n| {level} | ")) {
            faults.push(format!("{UPGRADE}: the table of levels has no row {level}"));
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nversion = \"0.2.0\"\n";
    const LEVEL: &str = "    pub const FIRST: Level = Level(17);\n    pub const OLDEST: Level = \
                         Level::FIRST;\n    pub const LATEST: Level = Level(18);\n";
    const ROWS: &str = "\n| 17 | a |\n| 18 | b |\n";

    fn changelog(block: &str) -> String {
        format!("# Changelog\n\n## 0.2.0\n\n{block}\n\n## 0.1.0\n\n```toml\nx = 1\n```\n")
    }

    fn whole() -> String {
        let block = "```toml\nversion = \"0.2.0\"\nlevels = [17, 18]\nlevel_of_new_clusters = 18\n\
                     upgrade_from = \"a\"\ndowngrade_to = \"a\"\noldest_client = \"RESP2\"\n\
                     oldest_operator = \"a\"\n```";
        changelog(block)
    }

    #[test]
    fn a_block_that_agrees_has_no_faults() {
        let found = faults(&whole(), MANIFEST, LEVEL, ROWS);
        assert_eq!(found, Ok(Vec::new()));
    }

    #[test]
    fn what_differs_or_is_missing_is_named() {
        for (from, to, says) in [
            ("[17, 18]", "[17]", "levels = [17], but it is [17, 18]"),
            (
                "clusters = 18",
                "clusters = 17",
                "level_of_new_clusters = 17, but it is 18",
            ),
            ("\"0.2.0\"", "\"0.3.0\"", "version = 0.3.0, but it is 0.2.0"),
            ("\"RESP2\"", "\"\"", "oldest_client says nothing"),
        ] {
            let found = faults(&whole().replacen(from, to, 1), MANIFEST, LEVEL, ROWS);
            assert_eq!(found, Ok(vec![format!("{CHANGELOG}: {says}")]));
        }
        let found = faults(&whole(), MANIFEST, LEVEL, "\n| 17 | a |\n");
        let row = format!("{UPGRADE}: the table of levels has no row 18");
        assert_eq!(found, Ok(vec![row]));
        let none = faults(&changelog("prose"), MANIFEST, LEVEL, ROWS).unwrap_err();
        assert!(none.contains("no block of toml"), "{none}");
        let less = whole().replacen("downgrade_to = \"a\"\n", "", 1);
        let less = faults(&less, MANIFEST, LEVEL, ROWS).unwrap_err();
        assert!(less.contains("missing field `downgrade_to`"), "{less}");
    }
}
