//! `xtask/tidy.toml`: what is counted there is allowed, and nothing else.

use super::rules::{Check, Finding};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

const HEADER: &str = "\
# What `cargo xtask tidy` still allows. Counts may only go down: `cargo xtask tidy --write` lowers
# those that can be lowered. If you move a file, move its lines here by hand. The rules are in
# STYLE.md.
";

/// As many places are reported of those that share an allowance.
const SHOWN: usize = 10;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allowances {
    /// Kinds of roles, in lower case without hyphens and underscores.
    pub(super) roles: Vec<String>,
    /// For each crate and word, the number of uses.
    words: BTreeMap<String, usize>,
    /// For each file, its length.
    lines: BTreeMap<String, usize>,
    /// For each file, the number of places where it names a protocol or one of its roles.
    names: BTreeMap<String, usize>,
    /// For each file, the number of lines that are too long.
    columns: BTreeMap<String, usize>,
}

/// The findings of one check and key.
#[derive(Default)]
struct Group<'a> {
    findings: Vec<&'a Finding>,
    weight: usize,
}

fn grouped(findings: &[Finding]) -> BTreeMap<(Check, &str), Group<'_>> {
    let mut groups: BTreeMap<(Check, &str), Group<'_>> = BTreeMap::new();
    for finding in findings {
        let group = groups.entry((finding.check, &finding.key)).or_default();
        group.findings.push(finding);
        group.weight += finding.weight;
    }
    groups
}

impl Allowances {
    fn tables(&self) -> [(Check, &'static str, &BTreeMap<String, usize>); 4] {
        [
            (Check::Words, "words", &self.words),
            (Check::Lines, "lines", &self.lines),
            (Check::Names, "names", &self.names),
            (Check::Columns, "columns", &self.columns),
        ]
    }

    /// All violations: what exceeds its allowance, and allowances that are too high.
    pub(super) fn compare(&self, findings: &[Finding]) -> Vec<String> {
        let groups = grouped(findings);
        let allowed = |check: Check, key: &str| {
            let of_check = |(other, ..): &(Check, _, _)| *other == check;
            let (_, _, table) = self.tables().into_iter().find(of_check)?;
            table.get(key).copied()
        };
        let mut violations = Vec::new();
        for ((check, key), group) in &groups {
            let allowed = allowed(*check, key).unwrap_or(0);
            if group.weight <= allowed {
                continue;
            }
            for Finding {
                file, line, text, ..
            } in group.findings.iter().take(SHOWN)
            {
                violations.push(match allowed {
                    0 => format!("{file}:{line}: {text}"),
                    _ => format!(
                        "{file}:{line}: {text} ({key:?} has {}, xtask/tidy.toml allows {allowed})",
                        group.weight
                    ),
                });
            }
            if let Some(more) = group.findings.len().checked_sub(SHOWN + 1) {
                violations.push(format!("{key}: and {} more", more + 1));
            }
        }
        for (check, name, table) in self.tables() {
            for (key, allowed) in table {
                let present = groups.get(&(check, key)).map_or(0, |group| group.weight);
                if present < *allowed {
                    violations.push(format!(
                        "xtask/tidy.toml: [{name}] {key:?} allows {allowed}, there are {present}: \
                         run `cargo xtask tidy --write`"
                    ));
                }
            }
        }
        violations
    }

    /// Lowers each count to what there is; removes those of which nothing is left.
    pub(super) fn lower(&mut self, findings: &[Finding]) {
        let groups = grouped(findings);
        let tables = [
            (Check::Words, &mut self.words),
            (Check::Lines, &mut self.lines),
            (Check::Names, &mut self.names),
            (Check::Columns, &mut self.columns),
        ];
        for (check, table) in tables {
            table.retain(|key, allowed| {
                let present = groups.get(&(check, key)).map_or(0, |group| group.weight);
                *allowed = present.min(*allowed);
                *allowed > 0
            });
        }
    }
}

impl Display for Allowances {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{HEADER}")?;
        writeln!(f, "# What names a kind of role and nothing else.")?;
        writeln!(f, "roles = {:?}", self.roles)?;
        for (check, name, table) in self.tables() {
            let comment = match check {
                Check::Words => "Uses of banned words, by crate.",
                Check::Lines => "Files over 600 lines, rounded up to 50.",
                Check::Names => {
                    "Places outside crates/protocols that name a protocol or its roles."
                }
                Check::Columns => "Lines that are too long.",
                Check::Links | Check::Stray | Check::Canary => unreachable!("has no allowance"),
            };
            writeln!(f, "\n# {comment}\n[{name}]")?;
            for (key, count) in table {
                writeln!(f, "{key:?} = {count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(key: &str, line: usize, weight: usize) -> Finding {
        Finding {
            check: Check::Names,
            key: key.to_owned(),
            file: key.to_owned(),
            line,
            weight,
            text: "is wrong".to_owned(),
        }
    }

    fn allowing(key: &str, count: usize) -> Allowances {
        Allowances {
            names: BTreeMap::from([(key.to_owned(), count)]),
            ..Allowances::default()
        }
    }

    #[test]
    fn what_is_allowed_exactly_is_no_violation() {
        let findings = [finding("a", 1, 1), finding("a", 7, 1)];
        assert!(allowing("a", 2).compare(&findings).is_empty());
    }

    #[test]
    fn more_than_is_allowed_is_reported_with_each_place() {
        let findings = [finding("a", 1, 1), finding("a", 7, 1)];
        assert_eq!(
            allowing("a", 1).compare(&findings),
            [
                "a:1: is wrong (\"a\" has 2, xtask/tidy.toml allows 1)",
                "a:7: is wrong (\"a\" has 2, xtask/tidy.toml allows 1)",
            ]
        );
        assert_eq!(
            Allowances::default().compare(&[finding("b", 3, 1)]),
            ["b:3: is wrong"]
        );
    }

    #[test]
    fn of_many_places_that_share_an_allowance_ten_are_reported() {
        let findings: Vec<Finding> = (1..=12).map(|line| finding("a", line, 1)).collect();
        let violations = Allowances::default().compare(&findings);
        assert_eq!(violations.len(), 11);
        assert_eq!(violations[10], "a: and 2 more");
        assert_eq!(Allowances::default().compare(&findings[..10]).len(), 10);
    }

    #[test]
    fn an_allowance_that_is_too_high_is_reported_and_lowered() {
        let findings = [finding("a", 1, 1)];
        let mut allowances = allowing("a", 2);
        assert_eq!(allowances.compare(&findings).len(), 1);
        allowances.lower(&findings);
        assert!(allowances.compare(&findings).is_empty());
        allowances.lower(&[]);
        assert!(allowances.compare(&[]).is_empty());
    }

    #[test]
    fn lowering_never_raises_an_allowance() {
        let findings = [finding("a", 1, 1), finding("a", 2, 1), finding("b", 1, 1)];
        let mut allowances = allowing("a", 1);
        allowances.lower(&findings);
        assert_eq!(allowances.names, BTreeMap::from([("a".to_owned(), 1)]));
    }

    #[test]
    fn the_file_is_written_as_it_is_read() {
        let mut allowances = allowing("crates/a", 3);
        allowances.roles = vec!["\"leader\"".into()];
        allowances.words = BTreeMap::from([("crates/a: zounds".to_owned(), 2)]);
        let again: Allowances = toml::from_str(&allowances.to_string()).expect("it is TOML");
        assert_eq!(again.to_string(), allowances.to_string());
        assert_eq!(
            (again.names, again.roles),
            (allowances.names, allowances.roles)
        );
    }
}
