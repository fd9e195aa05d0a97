//! What shells complete: a small script of the shell calls `ionian completions SHELL -- WORDS` for
//! each completion, so that it also knows the cluster, and the tools, which are another program.

use crate::output;
use clap::builder::StyledStr;
use clap::{Arg, Args, Command, ValueEnum};
use ionian_deployment::{all_settings, at_start, keys, presets};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Print the completions of a shell for `ionian`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian completions bash > /etc/bash_completion.d/ionian
  ionian completions zsh > /usr/local/share/zsh/site-functions/_ionian
  ionian completions fish > ~/.config/fish/completions/ionian.fish")]
pub struct Arguments {
    /// The shell that reads them
    shell: Shell,
    /// The words of a command line up to the cursor, the last of which is to be completed
    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The values of flags that precede the word, by the ids of the flags.
pub type Given = BTreeMap<String, String>;

impl Arguments {
    /// The words up to the cursor; none if the script is asked for.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Prints the script, or what may stand in place of the last word, where the cluster that flags
    /// name has these nodes.
    pub fn print(&self, command: Command, nodes: impl Fn(&Given) -> Vec<String>) -> ExitCode {
        if self.words.is_empty() {
            output::print(format_args!("{}", self.shell.script()));
            return ExitCode::SUCCESS;
        }
        let (words, cut) = self.shell.whole(&self.words);
        for (word, meaning) in offered(command, &words, nodes) {
            output::print(format_args!(
                "{}\n",
                self.shell.line(&word[cut..], &meaning)
            ));
        }
        ExitCode::SUCCESS
    }
}

impl Shell {
    fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("completions/ionian.bash"),
            Shell::Zsh => include_str!("completions/ionian.zsh"),
            Shell::Fish => include_str!("completions/ionian.fish"),
        }
    }

    /// The words as they were typed, and how much of the last one the shell does not replace: bash
    /// divides them at `=` and `:`.
    fn whole(self, words: &[String]) -> (Vec<String>, usize) {
        if self != Shell::Bash {
            return (words.to_vec(), 0);
        }
        let is_break = |it: char| it == '=' || it == ':';
        let mut whole: Vec<String> = Vec::new();
        for word in words {
            match whole.last_mut() {
                Some(last) if last.ends_with(is_break) || word.starts_with(is_break) => {
                    last.push_str(word);
                }
                _ => whole.push(word.clone()),
            }
        }
        let cut = whole.last().and_then(|last| last.rfind(is_break));
        (whole, cut.map_or(0, |place| place + 1))
    }

    fn line(self, word: &str, meaning: &str) -> String {
        match self {
            Shell::Bash => word.to_owned(),
            Shell::Zsh | Shell::Fish if meaning.is_empty() => word.to_owned(),
            // No word has a colon.
            Shell::Zsh => format!("{word}:{meaning}"),
            Shell::Fish => format!("{word}\t{meaning}"),
        }
    }
}

/// What may stand in place of the last word, each with its meaning.
fn offered(
    mut command: Command,
    words: &[String],
    nodes: impl Fn(&Given) -> Vec<String>,
) -> Vec<(String, String)> {
    command.build();
    let (last, before) = words.split_last().expect("there are words");
    let mut at = &command;
    let (mut given, mut waits, mut places) = (Given::new(), None, 0);
    for word in before.iter().skip(1) {
        let is_flag = word.starts_with("--");
        if let Some(flag) = waits.take().filter(|_| !is_flag) {
            given.insert(id(flag), word.clone());
        } else if is_flag {
            let (name, value) = word.split_once('=').unzip();
            let flag = flag(at, name.unwrap_or(word));
            match value.zip(flag) {
                Some((value, flag)) => drop(given.insert(id(flag), value.to_owned())),
                None => waits = flag,
            }
        } else if let Some(found) = at.find_subcommand(word).filter(|_| places == 0) {
            at = found;
        } else {
            let place = place(at, places).map(id);
            place.map(|id| given.insert(id, word.clone()));
            places += 1;
        }
    }
    let values = |arg: &Arg, before: &str| -> Vec<(String, String)> {
        let possible = arg.get_possible_values();
        let mut all: Vec<(String, String)> = possible
            .iter()
            .filter(|it| !it.is_hide_set())
            .map(|it| (it.get_name().to_owned(), text(it.get_help())))
            .collect();
        if all.is_empty() {
            let known = known(arg, || nodes(&given)).into_iter();
            all.extend(known.map(|it| (it, String::new())));
        }
        all.iter_mut()
            .for_each(|(value, _)| value.insert_str(0, before));
        all
    };
    let flags = || {
        let all = at.get_arguments().filter(|it| !it.is_hide_set());
        all.filter_map(|it| Some((format!("--{}", it.get_long()?), text(it.get_help()))))
    };
    let of_flag = last.split_once('=').map(|(name, _)| name);
    let is_flag = last.starts_with("--");
    let all: Vec<(String, String)> = if let Some(arg) = waits.filter(|_| !is_flag) {
        values(arg, "")
    } else if let Some((name, arg)) = of_flag.and_then(|name| Some((name, flag(at, name)?))) {
        values(arg, &format!("{name}="))
    } else if is_flag || last == "-" {
        flags().collect()
    } else if places == 0 && at.has_subcommands() {
        let all = at.get_subcommands().filter(|it| !it.is_hide_set());
        all.map(|it| (it.get_name().to_owned(), text(it.get_about())))
            .collect()
    } else {
        place(at, places).map_or_else(|| flags().collect(), |arg| values(arg, ""))
    };
    // Of a key that is typed with its `=`, only the value is missing, which is not known.
    let fits = |word: &str| word.starts_with(last) && (word != last || !word.ends_with('='));
    let fits = all.into_iter().filter(|(word, _)| fits(word));
    fits.collect()
}

/// The values of an argument that are known, though it does not list them.
fn known(arg: &Arg, nodes: impl Fn() -> Vec<String>) -> Vec<String> {
    let names = arg.get_value_names().unwrap_or_default();
    match (arg.get_id().as_str(), names.first().map_or("", |it| it)) {
        ("preset" | "presets" | "gateways", _) => presets()
            .map(|(_, preset)| preset.name.to_owned())
            .collect(),
        ("overrides", _) => keys(&nodes()).into_iter().map(|key| key + "=").collect(),
        ("settings", _) => {
            let can_change = all_settings().filter(|it| at_start(it).is_none());
            can_change.map(|it| format!("{}=", it.key)).collect()
        }
        (_, "NODE" | "OLD") => nodes(),
        _ => Vec::new(),
    }
}

fn id(arg: &Arg) -> String {
    arg.get_id().to_string()
}

/// The first line of a help text.
fn text(help: Option<&StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    help.lines().next().unwrap_or_default().to_owned()
}

/// The flag with this name, if it has a value.
fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let name = name.strip_prefix("--")?;
    let mut all = command.get_arguments();
    all.find(|it| it.get_long() == Some(name) && it.get_action().takes_values())
}

/// The argument without a flag in this place; the last one may have several values.
fn place(command: &Command, place: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().collect();
    let many = all
        .last()
        .filter(|it| it.get_num_args().is_some_and(|n| n.max_values() > 1));
    all.get(place).or(many).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_gets_what_follows_the_place_where_it_divides_words() {
        let whole = |shell: Shell, line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let (words, cut) = shell.whole(&words);
            (words.join(" "), cut)
        };
        let whole_of = |line: &str| whole(Shell::Bash, line);
        assert_eq!(
            whole_of("a --set = options.w"),
            ("a --set=options.w".into(), 6)
        );
        assert_eq!(whole_of("a --set ="), ("a --set=".into(), 6));
        assert_eq!(whole_of("a --at h : 1 b"), ("a --at h:1 b".into(), 0));
        assert_eq!(whole(Shell::Fish, "a --set=o"), ("a --set=o".into(), 0));
    }

    #[test]
    fn a_word_is_completed_by_what_precedes_it() {
        let command = || {
            let node = Arg::new("node").value_name("NODE");
            let data = Arg::new("data").long("data");
            let set = Arg::new("overrides").long("set").value_name("KEY=VALUE");
            let http = Arg::new("http").long("http").num_args(0..=1);
            let drain = Command::new("drain").args([node, data, set, http]);
            let hidden = Command::new("hidden").hide(true);
            Command::new("ionian").subcommand(drain).subcommand(hidden)
        };
        let offered = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let nodes = |given: &Given| {
                let data = given.get("data").map_or("none", |it| it);
                vec![format!("n-{data}")]
            };
            let all = offered(command(), &words, nodes);
            let all: Vec<String> = all.into_iter().map(|(word, _)| word).collect();
            all.join(" ")
        };
        assert_eq!(offered("ionian "), "drain help");
        assert_eq!(offered("ionian drain "), "n-none");
        assert_eq!(offered("ionian drain x"), "");
        assert_eq!(offered("ionian drain --data b "), "n-b");
        assert_eq!(offered("ionian drain --data=c n"), "n-c");
        assert_eq!(offered("ionian drain --d"), "--data");
        assert_eq!(offered("ionian drain --http --data d n"), "n-d");
        assert_eq!(offered("ionian drain --http --se"), "--set");
        assert_eq!(offered("ionian drain n1 --data "), "");
        assert_eq!(offered("ionian drain n1 "), "--data --set --http --help");
        assert_eq!(offered("ionian drain --set f"), "f=");
        assert_eq!(offered("ionian drain --set f="), "");
        assert_eq!(
            offered("ionian drain --set=node.n-none.ga"),
            "--set=node.n-none.gateway= --set=node.n-none.gateway_listen="
        );
        assert_eq!(offered("ionian help dr"), "drain");
    }
}
