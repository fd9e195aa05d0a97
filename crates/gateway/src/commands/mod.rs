//! The commands that the gateway executes itself: those about the connection, the server and
//! transactions. All others go to the state machine.

pub(crate) mod acl;
pub(crate) mod client;
mod cluster;
mod config;
pub(crate) mod connection;
mod ionian;
mod object;
pub(crate) mod server;
mod slow;
mod table;

use crate::audit::AUDIT;
use crate::host::Client;
use crate::reply::Context;
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_machines::acl::CommandId;
use ionian_machines::kv::{self, Compound};

/// One of the gateway's own commands, with its description for COMMAND.
pub(crate) struct Own {
    pub(crate) name: &'static str,
    /// As in Redis: the number of words including the name; if negative, the minimum number.
    pub(crate) arity: i32,
    pub(crate) flags: &'static [&'static str],
    pub(crate) keys: [i32; 3],
    /// What rules about users call it.
    pub(crate) id: CommandId,
    pub(crate) run: Run,
}

/// How a command is executed.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// A function that touches only the client's settings; MULTI queues it.
    Plain(fn(&mut Context<'_>, &[Bytes])),
    /// The connection executes it, because it affects other commands.
    Control(Control),
}

/// The commands that affect other commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Quit,
    Reset,
}

impl Own {
    /// Whether this command may have this number of words.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        words == arity || self.arity < 0 && words > arity
    }

    /// Whether the command has a password.
    pub(crate) fn logs_in(&self, words: &[Bytes]) -> bool {
        match self.name {
            "auth" => true,
            "hello" => connection::hello_logs_in(words),
            _ => false,
        }
    }

    /// Whether MULTI queues the command. What logs in may have to wait, and needs the users of now;
    /// a change of users or of the limit of memory is sent by itself.
    ///
    /// # Errors
    /// The error reply, if not.
    pub(crate) fn check_queued(&self, words: &[Bytes]) -> Result<(), String> {
        let what = match self.name {
            "auth" => "AUTH",
            "hello" if self.logs_in(words) => "HELLO with AUTH",
            "acl" if acl::has_change(words) => &acl::request(words),
            "config" if config::has_change(words) => "CONFIG SET maxmemory",
            _ => return Ok(()),
        };
        Err(format!("ERR {what} is not supported inside MULTI"))
    }
}

/// A client that a command looks at takes as long as this many bytes of its reply.
const LOOK: u64 = 4;

/// Runs a command of the gateway. Returns its work in bytes: those of its reply beyond those of its
/// words, and what stands for the clients that it looked at.
pub(crate) fn run(
    command: fn(&mut Context<'_>, &[Bytes]),
    words: &[Bytes],
    context: &mut Context<'_>,
) -> usize {
    let (before, looks) = (context.out.len(), context.host.looks.get());
    command(context, words);
    let sent: usize = words.iter().map(Bytes::len).sum();
    let looks = LOOK * (context.host.looks.get() - looks);
    (context.out.len() - before).saturating_sub(sent) + looks as usize
}

const fn own(name: &'static str, arity: i32, run: Run) -> Own {
    Own {
        name,
        arity,
        flags: &["loading", "stale", "fast"],
        keys: [0; 3],
        id: CommandId::of(name),
        run,
    }
}

/// Sorted by name, for the binary search.
pub(crate) const OWN: &[Own] = &[
    own("acl", -2, Run::Plain(acl::acl)),
    own("asking", 1, Run::Plain(cluster::any_node)),
    own("auth", -2, Run::Plain(connection::auth)),
    own("client", -2, Run::Plain(client::client)),
    own("cluster", -2, Run::Plain(cluster::cluster)),
    own("command", -1, Run::Plain(table::command)),
    own("config", -2, Run::Plain(config::config)),
    own("discard", 1, Run::Control(Control::Discard)),
    own("echo", 2, Run::Plain(connection::echo)),
    own("exec", 1, Run::Control(Control::Exec)),
    own("hello", -1, Run::Plain(connection::hello)),
    own("info", -1, Run::Plain(server::info)),
    own("ionian", -2, Run::Plain(ionian::ionian)),
    own("latency", -2, Run::Plain(slow::latency)),
    own("memory", -2, Run::Plain(server::memory)),
    own("module", -2, Run::Plain(server::module)),
    own("multi", 1, Run::Control(Control::Multi)),
    own("object", -2, Run::Plain(object::object)),
    own("ping", -1, Run::Plain(connection::ping)),
    own("quit", -1, Run::Control(Control::Quit)),
    own("readonly", 1, Run::Plain(cluster::any_node)),
    own("readwrite", 1, Run::Plain(cluster::any_node)),
    own("reset", 1, Run::Control(Control::Reset)),
    own("role", 1, Run::Plain(cluster::role)),
    own("select", 2, Run::Plain(connection::select)),
    own("slowlog", -2, Run::Plain(slow::slowlog)),
    own("time", 1, Run::Plain(server::time)),
    own("unwatch", 1, Run::Control(Control::Unwatch)),
    own("wait", 3, Run::Plain(server::wait)),
    Own {
        keys: [1, -1, 1],
        ..own("watch", -2, Run::Control(Control::Watch))
    },
];

/// What the first words of a command name.
#[derive(Clone, Copy)]
pub(crate) enum Named {
    Own(&'static Own),
    Machine(&'static kv::CommandInfo),
    Unknown,
}

impl Named {
    /// Some of the gateway's own commands have subcommands that are commands of the machine.
    #[inline]
    pub(crate) fn of(words: &[Bytes]) -> Named {
        match kv::command_info(words) {
            Some(info) => Named::Machine(info),
            None => named(&words[0]).map_or(Named::Unknown, Named::Own),
        }
    }

    /// Whether the command may need more memory.
    pub(crate) fn grows(self) -> bool {
        matches!(self, Named::Machine(info) if info.flags.contains(&"denyoom"))
    }

    /// Whether the command is short and certain to free memory.
    pub(crate) fn frees_all(self) -> bool {
        matches!(self, Named::Machine(info) if ["flushall", "flushdb"].contains(&info.name))
    }

    /// Whether the command only reads, or is the gateway's own and writes nothing to the log.
    pub(crate) fn is_read(self) -> bool {
        match self {
            Named::Machine(info) => info.flags.contains(&"readonly"),
            Named::Own(own) => !matches!(own.name, "acl" | "config" | "exec"),
            Named::Unknown => true,
        }
    }

    /// The gateway's own command, if it is one.
    #[inline]
    pub(crate) fn own(self) -> Option<&'static Own> {
        match self {
            Named::Own(own) => Some(own),
            Named::Machine(_) | Named::Unknown => None,
        }
    }
}

/// The gateway's own command that these words ask for.
pub(crate) fn find(words: &[Bytes]) -> Option<&'static Own> {
    Named::of(words).own()
}

/// The gateway's own command with this name, ignoring case.
fn named(name: &[u8]) -> Option<&'static Own> {
    let mut lower = [0; 9];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let at = OWN
        .binary_search_by(|own| own.name.as_bytes().cmp(lower))
        .ok()?;
    Some(&OWN[at])
}

impl Own {
    /// Whether some forms of the command change the state of the cluster ([`change`]).
    pub(crate) fn has_changes(&self) -> bool {
        matches!(self.name, "acl" | "config")
    }
}

/// What the command changes in the state of the cluster, if it does that. It has its line in the
/// audit log then, before anything is sent: its client may be gone when the answer comes.
///
/// # Errors
/// The error reply.
pub(crate) fn change(context: &Context<'_>, words: &[Bytes]) -> Result<Option<Compound>, String> {
    let change = match is(&words[0], "config") {
        true => config::change(context, words)?,
        false => acl::change(context, words)?,
    };
    if change.is_some() {
        let checked = context.host.check_audit();
        let outcome = match checked {
            Ok(()) => "permitted",
            Err(_) => REFUSED,
        };
        audit_change(context.client, words, outcome);
        checked?;
    }
    Ok(change)
}

/// The change was made, or refused with this reply.
pub(crate) fn on_changed(context: &Context<'_>, words: &[Bytes], reply: &[u8]) {
    let refused = reply.starts_with(b"-");
    match is(&words[0], "config") {
        true if !refused => config::on_changed(context.host, words),
        true => {}
        false => context.host.rights.suspect(),
    }
    let outcome = if refused { REFUSED } else { "done" };
    audit_change(context.client, words, outcome);
}

/// The change was not answered by the machine.
pub(crate) fn on_change_refused(client: &Client, words: &[Bytes], refusal: Refusal) {
    let outcome = match refusal {
        Refusal::Unknown => "unknown",
        _ => REFUSED,
    };
    audit_change(client, words, outcome);
}

/// The outcome of a change that was not made.
const REFUSED: &str = "refused";

/// A line of the audit log about a change, without values and rules but for the limit.
fn audit_change(client: &Client, words: &[Bytes], outcome: &str) {
    let (request, object) = match is(&words[0], "config") {
        true => ("CONFIG SET".to_owned(), config::object(words)),
        false => (acl::request(words), acl::object(words)),
    };
    let from = &client.address;
    let user = String::from_utf8_lossy(&client.user.borrow()).into_owned();
    tracing::info!(target: AUDIT, user, from, request, object, outcome);
}

/// Whether the word equals the name, ignoring case.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// A whole number in Redis's notation.
fn number(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    let value: i64 = text.parse().ok()?;
    // Redis rejects a plus sign and leading zeros.
    (value.to_string() == text).then_some(value)
}

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// Whether the whole of `text` matches a pattern of `*` and `?`, ignoring case. It backtracks to
/// the last `*` only, so the time for any pattern is bounded by the product of the lengths.
fn matches(mut pattern: &[u8], text: &str) -> bool {
    let mut text = text.as_bytes();
    let mut retry = None;
    loop {
        match (pattern, text) {
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, text));
                pattern = rest;
            }
            ([], []) => return true,
            ([wanted, rest @ ..], [byte, after @ ..])
                if *wanted == b'?' || wanted.eq_ignore_ascii_case(byte) =>
            {
                (pattern, text) = (rest, after);
            }
            _ => match retry {
                Some((rest, [_, after @ ..])) => {
                    retry = Some((rest, after));
                    (pattern, text) = (rest, after);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_fit() {
        assert!(OWN.is_sorted_by(|a, b| a.name < b.name));
        for own in OWN {
            assert!(
                named(own.name.to_uppercase().as_bytes())
                    .is_some_and(|found| found.name == own.name)
            );
            assert!(
                !kv::knows(own.name.as_bytes()),
                "{} is answered twice",
                own.name
            );
        }
        let unknown = ["", "get", "a long name"];
        assert!(unknown.iter().all(|name| named(name.as_bytes()).is_none()));
    }

    #[test]
    fn some_subcommands_are_those_of_the_machine() {
        for info in kv::command_table() {
            let Some((name, sub)) = info.name.split_once('|') else {
                continue;
            };
            let words = [name, sub, "k"].map(|word| Bytes::from_static(word.as_bytes()));
            assert!(find(&words).is_none(), "{}", info.name);
            let words = [name, "help"].map(|word| Bytes::from_static(word.as_bytes()));
            assert!(find(&words).is_some_and(|own| own.name == name), "{name}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("SAVE", "save", true),
            ("*", "", true),
            ("max*y", "maxmemory", true),
            ("max*y", "maxmemory-policy", true),
            ("max*mory", "maxmemory-policy", false),
            ("?ave", "save", true),
            ("sav", "save", false),
            ("save?", "save", false),
            ("", "save", false),
            ("a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"-17"), Some(-17));
        for wrong in ["", "+1", "01", "1 ", "x", "9223372036854775808"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
