//! The manual page of a command.

use super::{MANUAL, NO_DATE, SOURCE};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::io;

/// What a command's exit code says.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "The job is done."),
    (
        "1",
        "The job failed. Standard error has the reason, in one line.",
    ),
    ("2", "Bad usage: an argument is wrong."),
];
/// And of the health check also this.
const DEGRADED: (&str, &str) = ("3", "The cluster serves clients, but is degraded.");

const FILES: &[(&str, &str)] = &[
    (
        "ionian.toml",
        "A deployment file: the nodes of a cluster, and the roles on each. See ionian.toml(5).",
    ),
    (
        "DIR/nodes/NODE",
        "The state of one node, below the data directory. Do not edit or copy it while the cluster \
         exists: `ionian snapshot` exports and imports the state.",
    ),
    (
        "DIR/logs/NODE.log",
        "The log of a node that `ionian up` has started. Other nodes log to standard error.",
    ),
];

const RUST_LOG: (&str, &str) = (
    "RUST_LOG",
    "The lines of the log of a node: error, warn, info (the default), debug, trace, or a list of \
     parts of the program with a level each, such as warn,ionian_runtime=info.",
);

/// The pages of a command and of its subcommands: each with its path and its text.
pub(super) fn of_all(command: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    // `help` has no arguments of its own, so it has no page.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &[], &mut pages)?;
    Ok(pages)
}

/// `inherited` are the examples of the command above.
fn add(
    command: &Command,
    inherited: &[String],
    pages: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    let own = examples(command);
    let examples = if own.is_empty() { inherited } else { &own };
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((format!("man1/{name}.1"), page(command, examples)?));
    let subcommands = command.get_subcommands();
    for subcommand in subcommands.filter(|subcommand| !subcommand.is_hide_set()) {
        add(subcommand, examples, pages)?;
    }
    Ok(())
}

fn page(command: &Command, examples: &[String]) -> io::Result<Vec<u8>> {
    let name = command.get_name();
    let is_root = name == "ionian";
    let man = Man::new(command.clone())
        .date(NO_DATE)
        .source(SOURCE)
        .manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::default();
    let degraded = (is_root || name == "status").then_some(DEGRADED);
    items(
        &mut roff,
        "EXIT STATUS",
        EXIT_STATUS.iter().chain(&degraded),
    );
    if is_root || matches!(name, "node" | "up") {
        items(&mut roff, "ENVIRONMENT", [&RUST_LOG]);
    }
    items(&mut roff, "FILES", FILES);
    verbatim(&mut roff, "EXAMPLES", examples);
    roff.control("SH", ["SEE ALSO"]);
    let root = (!is_root).then_some("ionian(1), ");
    roff.text([roman(format!("{}ionian.toml(5)", root.unwrap_or_default()))]);
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// The lines of the examples in a command's help: those below its first heading.
fn examples(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string);
    help.unwrap_or_default()
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .map(|line| line[2..].to_owned())
        .collect()
}

/// A section of names, each with what it means.
pub(super) fn items<'a>(
    roff: &mut Roff,
    heading: &str,
    items: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
) {
    roff.control("SH", [heading]);
    for (name, meaning) in items {
        item(roff, name, meaning);
    }
}

pub(super) fn item(roff: &mut Roff, name: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(meaning)]);
}

/// A section of lines that are shown as they are.
pub(super) fn verbatim(roff: &mut Roff, heading: &str, lines: &[String]) {
    roff.control("SH", [heading]);
    roff.control("nf", []);
    for line in lines {
        let line: Vec<Inline> = vec![roman(line.as_str())];
        roff.text(line);
    }
    roff.control("fi", []);
}
