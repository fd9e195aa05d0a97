//! The blocks of commands in a page.
//!
//! A block whose info string begins with `sh` is one script. One that begins with `console` is
//! lines `$ COMMAND`, each followed by what the command prints. The words after that say how a
//! block is run; they are not shown to readers:
//!
//! | word | meaning |
//! |---|---|
//! | `no-run` | it is not; an HTML comment on the line before says why |
//! | `until=WORD` | it goes on until the end of the page; what follows is run when it has printed a line that begins so |

/// A block of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its fence, from 1.
    pub(super) line: usize,
    pub(super) what: What,
}

/// What is to be done with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Nothing.
    Skip,
    /// A script that ends.
    Script(String),
    /// A script that goes on, and how the line begins that says that it is ready.
    Server { script: String, ready: String },
    /// Commands, each with what it is expected to print.
    Session(Vec<(String, Vec<String>)>),
}

/// All blocks of commands of a page.
///
/// # Errors
/// Says on which line what is wrong.
pub(super) fn of_page(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let mut before = "";
    while let Some((line, text)) = lines.next() {
        // A block within a list is indented.
        let Some(info) = text.trim_start().strip_prefix("```") else {
            before = text;
            continue;
        };
        let indent = text.len() - text.trim_start().len();
        let mut body: Vec<&str> = Vec::new();
        loop {
            match lines.next() {
                Some((_, text)) if text.trim_start().starts_with("```") => break,
                Some((_, text)) => body.push(text.get(indent..).unwrap_or_default()),
                None => return Err(format!("line {line}: this block has no end")),
            }
        }
        let what = read(info, &body, before).map_err(|error| format!("line {line}: {error}"))?;
        blocks.extend(what.map(|what| Block { line, what }));
        before = "";
    }
    Ok(blocks)
}

fn read(info: &str, body: &[&str], before: &str) -> Result<Option<What>, String> {
    let mut words = info.split_whitespace();
    let language = words.next().unwrap_or_default();
    if !["sh", "console", "bash", "shell"].contains(&language) {
        return Ok(None);
    }
    let script = || body.join("\n");
    match (language, words.collect::<Vec<_>>().as_slice()) {
        ("bash" | "shell", _) => Err("call it sh, or console where output is shown".into()),
        (_, ["no-run"]) if before.trim_start().starts_with("<!--") => Ok(Some(What::Skip)),
        (_, ["no-run"]) => Err("no-run needs a comment on the line before it, <!-- why -->".into()),
        ("sh", []) => Ok(Some(What::Script(script()))),
        ("console", []) => session(body).map(|session| Some(What::Session(session))),
        ("sh", [word]) if word.starts_with("until=") => Ok(Some(What::Server {
            script: script(),
            ready: word["until=".len()..].to_owned(),
        })),
        (_, words) => Err(format!(
            "{:?}: known are no-run and, of sh, until=WORD",
            words.join(" ")
        )),
    }
}

fn session(body: &[&str]) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in body {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push((*line).to_owned()),
            (None, None) => {
                return Err("the first line of a console is a command: $ COMMAND".into());
            }
        }
    }
    Ok(commands)
}

/// Whether `said` is what was expected: `...` stands for anything within a line, and alone in a
/// line for any lines.
pub(super) fn fits(expected: &[&str], said: &[&str]) -> bool {
    match (expected.split_first(), said.split_first()) {
        (None, None) => true,
        (Some((&"...", rest)), _) => (0..=said.len()).any(|skipped| fits(rest, &said[skipped..])),
        (Some((line, rest)), Some((first, others))) => line_fits(line, first) && fits(rest, others),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn line_fits(expected: &str, said: &str) -> bool {
    let (expected, said) = (expected.trim_end(), said.trim_end());
    let Some((head, tail)) = expected.split_once("...") else {
        return expected == said;
    };
    let Some(mut rest) = said.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = tail.split("...").collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_what_is_to_be_done() {
        let page = "# A page\n  ```sh\n  a \\\n    b\n  ```\ntext\n```toml\nx = 1\n```\n<!-- it takes hours -->\n```sh no-run\nc\n\
                    ```\n```sh until=ready\nd\n```\n```console\n$ e\none\ntwo\n$ f\n```\n";
        let blocks = of_page(page).unwrap();
        let session = vec![
            ("e".to_owned(), vec!["one".to_owned(), "two".to_owned()]),
            ("f".to_owned(), vec![]),
        ];
        assert_eq!(
            blocks,
            [
                Block {
                    line: 2,
                    what: What::Script("a \\\n  b".into())
                },
                Block {
                    line: 11,
                    what: What::Skip
                },
                Block {
                    line: 14,
                    what: What::Server {
                        script: "d".into(),
                        ready: "ready".into()
                    }
                },
                Block {
                    line: 17,
                    what: What::Session(session)
                },
            ]
        );
    }

    #[test]
    fn what_is_not_run_says_why_and_words_are_known() {
        let error = |page: &str| of_page(page).unwrap_err();
        assert!(error("text\n```sh no-run\nx\n```\n").contains("line 2: no-run needs a comment"));
        assert!(error("```sh fast\nx\n```\n").contains("known are"));
        assert!(error("```bash\nx\n```\n").contains("call it sh"));
        assert!(error("```console\nx\n```\n").contains("$ COMMAND"));
        assert!(error("```sh\nx\n").contains("has no end"));
    }

    #[test]
    fn dots_stand_for_what_varies() {
        assert!(fits(&["OK"], &["OK"]));
        assert!(!fits(&["OK"], &["KO"]));
        assert!(!fits(&["OK"], &[]));
        assert!(!fits(&[], &["OK"]));
        assert!(fits(
            &["ready ... on 127.0.0.1:..."],
            &["ready in 0.1 s on 127.0.0.1:7379"]
        ));
        assert!(!fits(
            &["ready ... on 127.0.0.1:..."],
            &["ready in 0.1 s at 127.0.0.1:7379"]
        ));
        assert!(!fits(&["... s"], &["5 ms after"]));
        assert!(fits(&["a", "...", "z"], &["a", "b", "c", "z"]));
        assert!(!fits(&["a", "...", "z"], &["a", "b", "c"]));
    }
}
