//! The rules: each takes a file and returns what it found there.

/// The longest source file that needs no allowance.
const LINES: usize = 600;
/// Allowed lengths are multiples of this, so that a longer file may change a little.
const STEP: usize = 50;
/// The longest line of a comment or of the prose of a document.
const COLUMNS: usize = 100;

/// Written from declarations in the sources, which are checked themselves.
const GENERATED: &str = "docs/reference.md";

/// Where each protocol has its folder.
const PROTOCOLS: &str = "crates/protocols/src/";

/// What the tree may consist of: in any folder, the files whose names end so.
const KINDS: &[&str] = &[".rs", ".toml", ".md", ".gitignore"];
/// And in these folders and files also these.
const KINDS_WITHIN: &[(&str, &[&str])] = &[
    ("Cargo.lock", &[""]),
    ("LICENSE", &[""]),
    (".ci/", &[""]),
    ("bench/peers/", &[".py", ".go", ".mod", ".sum"]),
    ("bench/peers/results/", &[".json"]),
    ("crates/bench/src/figure/published/", &[".csv"]),
    ("crates/canaries/patches/", &[".patch", "/inherits"]),
    ("crates/dashboard/src/page/", &[".html", ".css", ".js"]),
    ("crates/planner/src/", &["/demands.json"]),
    (
        "crates/program/src/completions/",
        &["/ionian.bash", "/ionian.zsh", "/ionian.fish"],
    ),
    ("crates/planner/tests/plans/pages/", &[".txt"]),
    ("crates/sim/tests/plays/", &[".play"]),
    ("crates/gateway/tests/", &[".txt"]),
    ("crates/machines/tests/", &[".txt"]),
    ("monitoring/", &[".yaml", "/ionian.dashboard.json"]),
    ("monitoring/browser/", &[".mjs", ".json"]),
    ("crates/protocols/tests/proptest-regressions/", &[".txt"]),
    ("crates/protocols/tests/wire/golden/", &[".txt"]),
    ("crates/cli/tests/ionian/snapshot/golden/", &[".txt"]),
    (
        "crates/runtime/tests/runtime/golden/",
        &[".txt", "/identity", "/skips"],
    ),
    ("docs/figures/", &[".svg", ".csv"]),
    ("docs/images/", &[".png"]),
    (
        "packaging/",
        &[
            ".yaml",
            "/Containerfile",
            "/copyright",
            "/postinst",
            "/postrm",
        ],
    ),
    ("packaging/systemd/", &[".service", ".timer", ".conf"]),
    ("docs/measurements/", &[".svg", ".csv"]),
];

/// Which allowance a finding counts against.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Check {
    /// A banned word; counted for each crate and word.
    Words,
    /// A file that is too long; the allowance is its length, rounded up.
    Lines,
    /// A protocol or one of its roles is named outside; counted for each file.
    Names,
    /// A line that is too long; counted for each file.
    Columns,
    /// A link of a document that leads nowhere; never allowed.
    Links,
    /// A file of a kind that does not belong where it is; never allowed.
    Stray,
    /// A defect that is built in on purpose where it could ship; never allowed.
    Canary,
}

/// One place where a rule applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    pub(super) check: Check,
    /// What its allowance is called.
    pub(super) key: String,
    pub(super) file: String,
    pub(super) line: usize,
    /// How much of the allowance it uses up.
    pub(super) weight: usize,
    /// What is wrong, and what is allowed.
    pub(super) text: String,
}

/// What the rules need to know.
pub(super) struct Rules {
    /// Words and phrases, in lower case, and what to write instead.
    pub(super) banned: Vec<(String, String)>,
    /// Protocols, in lower case without hyphens.
    pub(super) protocols: Vec<String>,
    /// Kinds of roles that only protocols of consensus have, in lower case.
    pub(super) roles: Vec<String>,
}

/// Reads the table of banned words: `| word, word | use instead |`.
pub(super) fn banned_words(style: &str) -> Result<Vec<(String, String)>, String> {
    let rows = style
        .lines()
        .skip_while(|line| *line != "### Banned words")
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|'))
        .skip(2);
    let mut banned = Vec::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (Some(words), Some(instead), None) = (cells.next(), cells.next(), cells.next()) else {
            return Err(format!(
                "STYLE.md: a row of banned words has two cells, not {row:?}"
            ));
        };
        for word in words.split(',') {
            banned.push((word.trim().to_lowercase(), instead.to_owned()));
        }
    }
    match banned.is_empty() {
        true => Err("STYLE.md has no table below \"### Banned words\"".to_owned()),
        false => Ok(banned),
    }
}

/// The protocols, in lower case without underscores: folders of which the `mod.rs` holds a table
/// `protocol!`.
pub(super) fn protocols(texts: &[(String, String)]) -> Result<Vec<String>, String> {
    let protocols: Vec<String> = texts
        .iter()
        .filter(|(_, text)| text.contains("protocol! {"))
        .filter_map(|(path, _)| {
            let folder = path.strip_prefix(PROTOCOLS)?.strip_suffix("/mod.rs")?;
            Some(folder.replace('_', ""))
        })
        .collect();
    match protocols.is_empty() {
        true => Err(format!(
            "no mod.rs below {PROTOCOLS} holds a table `protocol! {{`"
        )),
        false => Ok(protocols),
    }
}

/// Whether it is read for the rules about text.
pub(super) fn is_text(path: &str) -> bool {
    let generated = path.starts_with("docs/figures/") || path == "Cargo.lock";
    let kinds = [".rs", ".toml", ".md", ".py", ".go", ".play"];
    !generated && kinds.iter().any(|kind| path.ends_with(kind))
}

/// A file that does not belong where it is.
pub(super) fn stray(path: &str) -> Option<Finding> {
    let within = KINDS_WITHIN
        .iter()
        .filter(|(place, _)| path.starts_with(place))
        .flat_map(|(_, kinds)| *kinds);
    let mut allowed = KINDS.iter().chain(within);
    let kinds = allowed.clone().copied().collect::<Vec<_>>().join(" ");
    (!allowed.any(|kind| path.ends_with(kind))).then(|| Finding {
        check: Check::Stray,
        key: path.to_owned(),
        file: path.to_owned(),
        line: 1,
        weight: 1,
        text: format!(
            "a file of this kind does not belong here; allowed here: {kinds} \
             (xtask/src/tidy/rules.rs)"
        ),
    })
}

impl Rules {
    /// What is to be said about a file.
    pub(super) fn check(&self, path: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.words(path, text, &mut findings);
        lines(path, text, &mut findings);
        self.names(path, text, &mut findings);
        columns(path, text, &mut findings);
        canaries(path, text, &mut findings);
        findings
    }

    fn words(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        // The list itself, and the counts of what is left.
        if matches!(path, "STYLE.md" | "xtask/tidy.toml" | GENERATED) {
            return;
        }
        let area = area(path);
        for (number, line) in numbered(text) {
            let line = line.to_lowercase();
            for (word, instead) in &self.banned {
                for _ in 0..occurrences(&line, word) {
                    findings.push(Finding {
                        check: Check::Words,
                        key: format!("{area}: {word}"),
                        file: path.to_owned(),
                        line: number,
                        weight: 1,
                        text: format!("banned word {word:?}; use: {instead}"),
                    });
                }
            }
        }
    }

    fn names(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        let may = [
            "crates/protocols/",
            "crates/bench/src/figure/",
            "xtask/src/tidy/",
        ];
        let is_test = ["/tests/", "/examples/"]
            .iter()
            .any(|part| path.contains(part));
        if !path.ends_with(".rs") || is_test || may.iter().any(|place| path.starts_with(place)) {
            return;
        }
        for (number, line) in numbered(without_tests(text)) {
            let code = without_comment(line).to_lowercase();
            // `ProxyLeader`, `proxy_leader` and "proxy-leader" are one name.
            let code: String = code.chars().filter(|c| !matches!(c, '_' | '-')).collect();
            let named = self.protocols.iter().chain(&self.roles);
            for name in named.filter(|name| code.contains(name.as_str())) {
                findings.push(Finding {
                    check: Check::Names,
                    key: path.to_owned(),
                    file: path.to_owned(),
                    line: number,
                    weight: 1,
                    text: format!(
                        "names {name:?} of a protocol; allowed: in crates/protocols, in tests and \
                         in the papers' figures"
                    ),
                });
            }
        }
    }
}

fn lines(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let count = text.lines().count();
    if path.ends_with(".rs") && count > LINES {
        findings.push(Finding {
            check: Check::Lines,
            key: path.to_owned(),
            file: path.to_owned(),
            line: count,
            weight: count.next_multiple_of(STEP),
            text: format!("{count} lines; allowed: {LINES}"),
        });
    }
}

fn columns(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let is_document = path.ends_with(".md") && path != GENERATED;
    let mut in_block = false;
    for (number, line) in numbered(text) {
        let width = line.chars().count();
        let start = line.trim_start();
        let limit = if is_document {
            in_block ^= start.starts_with("```");
            // A table has no other form, and a marked number is longer than what is shown.
            let unlimited = in_block || start.starts_with('|') || line.contains("<!--");
            if unlimited { usize::MAX } else { COLUMNS }
        } else if path.ends_with(".rs") && start.starts_with("//") {
            COLUMNS
        } else {
            continue;
        };
        if width > limit {
            findings.push(Finding {
                check: Check::Columns,
                key: path.to_owned(),
                file: path.to_owned(),
                line: number,
                weight: 1,
                text: format!("{width} columns; allowed: {limit}"),
            });
        }
    }
}

/// Defects are built into a copy of the sources, or into the simulator.
fn canaries(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let may = ["crates/canaries/", "crates/sim/", "crates/tools/"];
    let ships = path.starts_with("crates/") && !may.iter().any(|place| path.starts_with(place));
    if !path.ends_with(".rs") || !ships {
        return;
    }
    for (number, line) in numbered(text) {
        if line.to_lowercase().contains("canar") {
            findings.push(Finding {
                check: Check::Canary,
                key: path.to_owned(),
                file: path.to_owned(),
                line: number,
                weight: 1,
                text:
                    "a canary in code that could ship; allowed: a patch in crates/canaries/patches"
                        .to_owned(),
            });
        }
    }
}

/// The crate or folder that an allowance of words is counted for.
fn area(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("crates"), Some(name), Some(_)) => format!("crates/{name}"),
        (Some(folder), Some(_), _) => folder.to_owned(),
        _ => ".".to_owned(),
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// How often a phrase stands in a line with no letter before or after it. In a name of several
/// words (`nobody_leads`) each counts as a word.
fn occurrences(line: &str, phrase: &str) -> usize {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    line.match_indices(phrase)
        .filter(|(at, _)| {
            let before = line[..*at].chars().next_back();
            let after = line[at + phrase.len()..].chars().next();
            !is_letter(before) && !is_letter(after)
        })
        .count()
}

/// A source file without the module of unit tests at its end.
fn without_tests(text: &str) -> &str {
    text.match_indices("#[cfg(test)]\nmod ")
        .find(|(at, _)| {
            let declaration = text[*at..].lines().nth(1).unwrap_or_default();
            declaration.ends_with('{')
        })
        .map_or(text, |(at, _)| &text[..at])
}

fn without_comment(line: &str) -> &str {
    match line.trim_start().starts_with("//") {
        true => "",
        false => line.find(" // ").map_or(line, |at| &line[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules {
            banned: vec![
                ("zounds".into(), "nothing".into()),
                ("as it were".into(), "nothing".into()),
            ],
            protocols: vec!["multipaxos".into()],
            roles: vec!["proxyleader".into()],
        }
    }

    /// What a check finds: keys, lines and weights.
    fn found(check: Check, path: &str, text: &str) -> Vec<(String, usize, usize)> {
        rules()
            .check(path, text)
            .into_iter()
            .filter(|finding| finding.check == check)
            .map(|finding| (finding.key, finding.line, finding.weight))
            .collect()
    }

    #[test]
    fn banned_words_are_found_in_prose_and_in_names() {
        let text = "// Zounds.\nfn zounds_of_a_node() {}\n\"this, as it were, zounds\"\n";
        let of = |word: &str, line| (format!("crates/sim: {word}"), line, 1);
        assert_eq!(
            found(Check::Words, "crates/sim/src/a.rs", text),
            [
                of("zounds", 1),
                of("zounds", 2),
                of("zounds", 3),
                of("as it were", 3)
            ]
        );
        assert_eq!(found(Check::Words, "README.md", "zounds")[0].0, ".: zounds");
        assert_eq!(
            found(Check::Words, "docs/a/b.md", "zounds")[0].0,
            "docs: zounds"
        );
    }

    #[test]
    fn a_banned_word_within_another_word_is_not_found() {
        let text = "Azounds and zoundsy, as it weren't.";
        assert_eq!(found(Check::Words, "README.md", text), []);
        assert_eq!(found(Check::Words, "STYLE.md", "zounds"), []);
    }

    #[test]
    fn banned_words_are_read_from_the_table_of_the_style_page() {
        let style = "## A\n| x | y |\n### Banned words\n\ntext\n\n| banned | use |\n|---|---|\n\
                     | One, two words | three |\n\n## B\n| z | z |\n";
        assert_eq!(
            banned_words(style),
            Ok(vec![
                ("one".into(), "three".into()),
                ("two words".into(), "three".into())
            ])
        );
        assert!(banned_words("## A\n").is_err());
        assert!(banned_words("### Banned words\n| a | b |\n|---|---|\n| a |\n").is_err());
    }

    #[test]
    fn files_over_600_lines_are_found_with_their_length_rounded_up() {
        let path = "crates/sim/src/a.rs";
        assert_eq!(found(Check::Lines, path, &"\n".repeat(600)), []);
        assert_eq!(
            found(Check::Lines, path, &"\n".repeat(601)),
            [(path.into(), 601, 650)]
        );
        assert_eq!(found(Check::Lines, "docs/a.md", &"\n".repeat(601)), []);
    }

    #[test]
    fn names_of_protocols_and_roles_are_found_in_code() {
        let path = "crates/cli/src/a.rs";
        let text = "use MultiPaxos;\nlet x = proxy_leader(\"proxy-leader\");\n";
        assert_eq!(
            found(Check::Names, path, text),
            [(path.into(), 1, 1), (path.into(), 2, 1)]
        );
    }

    #[test]
    fn protocols_are_the_folders_with_a_table_of_roles() {
        let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let table = "ionian_kernel::protocol! {\n";
        assert_eq!(
            protocols(&[
                text("crates/protocols/src/p_smr/mod.rs", table),
                text("crates/protocols/src/parts/mod.rs", "mod votes;"),
                text("crates/sim/tests/simulator/toy.rs", table),
            ]),
            Ok(vec!["psmr".to_owned()])
        );
        assert!(protocols(&[]).is_err());
    }

    #[test]
    fn names_in_comments_tests_and_protocols_are_not_found() {
        let code = "fn a() {} // of MultiPaxos\n// MultiPaxos\n\n";
        let tests = "#[cfg(test)]\nmod tests {\n    use MultiPaxos;\n}\n";
        let none: [(String, usize, usize); 0] = [];
        let found = |path: &str, text: &str| found(Check::Names, path, text);
        assert_eq!(
            found("crates/cli/src/a.rs", &format!("{code}{tests}")),
            none
        );
        assert_eq!(found("crates/cli/tests/a.rs", "MultiPaxos"), none);
        assert_eq!(found("crates/protocols/src/a.rs", "MultiPaxos"), none);
        assert_eq!(found("docs/a.md", "MultiPaxos"), none);
    }

    #[test]
    fn code_after_a_test_module_in_a_file_of_its_own_is_checked() {
        let text = "#[cfg(test)]\nmod tests;\n\nuse MultiPaxos;\n";
        assert_eq!(found(Check::Names, "crates/cli/src/a.rs", text).len(), 1);
    }

    #[test]
    fn wide_comments_and_wide_prose_are_found() {
        let path = "crates/sim/src/a.rs";
        let comment = |width: usize| format!("    //{}\n", "a".repeat(width - 6));
        assert_eq!(found(Check::Columns, path, &comment(100)), []);
        assert_eq!(
            found(Check::Columns, path, &comment(101)),
            [(path.into(), 1, 1)]
        );
        let page = "docs/a.md";
        let wide = "a".repeat(101);
        assert_eq!(found(Check::Columns, page, &"a".repeat(100)), []);
        assert_eq!(found(Check::Columns, page, &wide), [(page.into(), 1, 1)]);
    }

    #[test]
    fn wide_code_tables_blocks_and_marked_numbers_are_not_found() {
        let wide = "a".repeat(101);
        let none: [(String, usize, usize); 0] = [];
        assert_eq!(found(Check::Columns, "crates/sim/src/a.rs", &wide), none);
        for text in [
            format!("| {wide} |"),
            format!("```sh\n{wide}\n```"),
            format!("<!-- from a: {wide} -->7"),
        ] {
            assert_eq!(found(Check::Columns, "docs/a.md", &text), none);
        }
    }

    #[test]
    fn canaries_are_found_where_they_could_ship() {
        let text = "fn f() {\n    if config.has(Canary::Repair) {}\n}";
        let path = "crates/protocols/src/a.rs";
        assert_eq!(found(Check::Canary, path, text), [(path.into(), 2, 1)]);
        let none: [(String, usize, usize); 0] = [];
        for path in [
            "crates/canaries/src/a.rs",
            "crates/sim/src/a.rs",
            "docs/a.md",
        ] {
            assert_eq!(found(Check::Canary, path, text), none);
        }
    }

    #[test]
    fn files_of_kinds_that_do_not_belong_are_found() {
        for path in [
            "docs/figures/4.txt",
            "docs/figures/4.png",
            "notes.txt",
            "crates/a/x.py",
        ] {
            let finding = stray(path).expect(path);
            assert_eq!((finding.check, finding.file.as_str()), (Check::Stray, path));
        }
        for path in [
            "docs/figures/4.svg",
            "README.md",
            "LICENSE",
            "bench/peers/run.py",
        ] {
            assert_eq!(stray(path), None);
        }
    }
}
