//! ACL: users and their rules.
//!
//! What changes users goes through the log ([`change`]); the connection sends it. Everything else
//! is answered from the gateway's copy of the users, which the connection brings up to date before.

use super::{NOT_AN_INTEGER, Named, is, number};
use crate::reply::Context;
use crate::rights::{Asked, SINCE, hash};
use bytes::Bytes;
use ionian_machines::acl::{Category, CommandId, Denied, User};
use ionian_machines::kv::Compound;

/// The longest password in bytes.
const MAX_PASSWORD: usize = 4096;

/// The bits of a password that ACL GENPASS makes, if it is not said; and the most.
const PASSWORD_BITS: i64 = 256;
const MAX_PASSWORD_BITS: i64 = 4096;

/// How many entries ACL LOG answers, if it is not said.
const LOG_ENTRIES: i64 = 10;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
    to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you \
    have a Redis configuration file set) in order to store users in the Redis configuration.";

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Prints this help.",
];

/// Whether the answer depends on the users of the cluster, which must be those of now.
pub(crate) fn depends_on_users(words: &[Bytes]) -> bool {
    let subcommands = ["LIST", "USERS", "GETUSER", "DRYRUN"];
    let named = |word: &Bytes| subcommands.iter().any(|sub| is(word, sub));
    words.get(1).is_some_and(named)
}

/// Whether the command changes users.
pub(super) fn has_change(words: &[Bytes]) -> bool {
    let sets_or_deletes = is(&words[1], "SETUSER") || is(&words[1], "DELUSER");
    sets_or_deletes && words.len() > 2
}

/// The compound that changes users, if the command does that. Passwords are hashed here: they go no
/// further.
///
/// # Errors
/// The error reply.
pub(super) fn change(context: &Context<'_>, words: &[Bytes]) -> Result<Option<Compound>, String> {
    if !has_change(words) {
        return Ok(None);
    }
    context.host.rights.check_level(SINCE, "users need")?;
    if is(&words[1], "DELUSER") {
        return Ok(Some(Compound::DeleteUsers(words[2..].to_vec())));
    }
    let rules = words[3..].iter().map(for_log);
    Ok(Some(Compound::SetUser {
        name: words[2].clone(),
        rules: rules.collect::<Result<_, _>>()?,
    }))
}

/// How errors and the audit log call a change.
pub(super) fn request(words: &[Bytes]) -> String {
    format!("ACL {}", String::from_utf8_lossy(&words[1]).to_uppercase())
}

/// The users that a change is about, without the rules.
pub(super) fn object(words: &[Bytes]) -> String {
    let users: Vec<_> = match is(&words[1], "SETUSER") {
        true => words[2..3].iter(),
        false => words[2..].iter(),
    }
    .map(|name| String::from_utf8_lossy(name))
    .collect();
    users.join(" ")
}

/// The rule as it goes to the log: with the hash of its password instead of the password, without
/// units.
fn for_log(rule: &Bytes) -> Result<Bytes, String> {
    let (sign, password) = match &rule[..] {
        [b'>', password @ ..] => ('#', password),
        [b'<', password @ ..] => ('!', password),
        _ => return Ok(in_bytes(rule).unwrap_or_else(|| rule.clone())),
    };
    if password.is_empty() || password.len() > MAX_PASSWORD {
        return Err(format!("ERR a password has 1 to {MAX_PASSWORD} bytes"));
    }
    Ok(format!("{sign}{}", hash(password)).into())
}

/// The rule of a quota of bytes whose value has a unit.
fn in_bytes(rule: &Bytes) -> Option<Bytes> {
    let equals = rule.iter().position(|byte| *byte == b'=')?;
    let (name, value) = rule.split_at(equals);
    let name = ["quota:bytes", "quota:flight"]
        .into_iter()
        .find(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
    let bytes = crate::memory::bytes_of(&value[1..])?;
    Some(format!("{name}={bytes}").into())
}

pub(super) fn acl(context: &mut Context<'_>, words: &[Bytes]) {
    let Some(sub) = CommandId::of("acl")
        .with_subcommand(words)
        .name()
        .strip_prefix("acl|")
    else {
        return context.unknown_subcommand("ACL", &words[1]);
    };
    if !CommandId::of("acl")
        .with_subcommand(words)
        .takes(words.len())
    {
        return context.wrong_number(format_args!("acl|{sub}"));
    }
    match (sub, &words[2..]) {
        ("cat", []) => {
            context.array(Category::all().count());
            Category::all().for_each(|category| context.bulk(category.name()));
        }
        ("cat", [name]) => cat(context, name),
        ("genpass", []) => genpass(context, PASSWORD_BITS),
        ("genpass", [bits]) => match number(bits) {
            Some(bits) => genpass(context, bits),
            None => context.error(NOT_AN_INTEGER),
        },
        ("log", []) => log(context, LOG_ENTRIES),
        ("log", [word]) if is(word, "RESET") => {
            context.host.rights.log.borrow_mut().clear();
            context.ok();
        }
        ("log", [count]) => match number(count) {
            Some(count) => log(context, count),
            None => context.error(NOT_AN_INTEGER),
        },
        ("help", _) => context.help(HELP),
        ("save" | "load", _) => context.error(NO_FILE),
        ("whoami", _) => {
            let name = context.client.user.borrow();
            context.bulk(&*name);
        }
        ("list", _) => list(context),
        ("users", _) => users(context),
        ("getuser", [name]) => get_user(context, name),
        ("dryrun", [name, words @ ..]) => dryrun(context, name, words),
        _ => context.error(format_args!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try ACL HELP.",
            String::from_utf8_lossy(&words[1])
        )),
    }
}

fn cat(context: &mut Context<'_>, name: &[u8]) {
    let Some(category) = Category::named(name) else {
        let name = String::from_utf8_lossy(name);
        return context.error(format_args!("ERR Unknown category '{name}'"));
    };
    let names: Vec<_> = CommandId::all()
        .filter(|command| category.contains(*command) && super::table::has(*command))
        .map(CommandId::name)
        .collect();
    context.array(names.len());
    names.iter().for_each(|name| context.bulk(name));
}

fn genpass(context: &mut Context<'_>, bits: i64) {
    if !(1..=MAX_PASSWORD_BITS).contains(&bits) {
        return context.error(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        );
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    if getrandom::fill(&mut random).is_err() {
        return context.error("ERR the system has no random numbers");
    }
    let mut text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    context.bulk(text);
}

fn log(context: &mut Context<'_>, count: i64) {
    let log = context.host.rights.log.borrow();
    let entries = log.newest(usize::try_from(count).unwrap_or(0));
    context.array(entries.len());
    for entry in entries {
        context.map(7);
        context.bulk("count");
        context.integer(entry.count as i64);
        let age = format!("{:.3}", entry.at.elapsed().as_secs_f64());
        let fields = [
            ("reason", entry.reason.name().as_bytes()),
            (
                "context",
                if entry.in_multi {
                    b"multi"
                } else {
                    b"toplevel"
                },
            ),
            ("object", &entry.object),
            ("username", &entry.user),
            ("age-seconds", age.as_bytes()),
            ("client-info", entry.client.trim_end().as_bytes()),
        ];
        for (name, value) in fields {
            context.bulk(name);
            context.bulk(value);
        }
    }
}

fn list(context: &mut Context<'_>) {
    let users = context.host.rights.users().unwrap_or_default();
    context.array(users.iter().len());
    for (name, user) in users.iter() {
        context.bulk([b"user ", name, b" ", &user.describe()].concat());
    }
}

fn users(context: &mut Context<'_>) {
    let users = context.host.rights.users().unwrap_or_default();
    context.array(users.iter().len());
    users.iter().for_each(|(name, _)| context.bulk(name));
}

fn get_user(context: &mut Context<'_>, name: &[u8]) {
    let users = context.host.rights.users().unwrap_or_default();
    let Some(user) = users.get(name) else {
        return context.null();
    };
    let flags = user.flags();
    let quotas: Vec<_> = user.quotas().rules().collect();
    context.map(if quotas.is_empty() { 6 } else { 7 });
    context.bulk("flags");
    context.set(flags.len());
    flags.iter().for_each(|flag| context.bulk(flag));
    context.bulk("passwords");
    context.array(user.hashes().len());
    user.hashes().iter().for_each(|hash| context.bulk(hash));
    let selectors = user.selectors();
    selector(context, &selectors[0]);
    context.bulk("selectors");
    context.array(selectors.len() - 1);
    for other in &selectors[1..] {
        context.map(3);
        selector(context, other);
    }
    if !quotas.is_empty() {
        context.bulk("quotas");
        context.bulk(quotas.join(&b' '));
    }
}

fn selector(context: &mut Context<'_>, rules: &[Vec<u8>; 3]) {
    for (name, rules) in ["commands", "keys", "channels"].iter().zip(rules) {
        context.bulk(name);
        context.bulk(rules);
    }
}

fn dryrun(context: &mut Context<'_>, name: &[u8], words: &[Bytes]) {
    let users = context.host.rights.users().unwrap_or_default();
    let Some(user) = users.get(name) else {
        let name = String::from_utf8_lossy(name);
        return context.error(format_args!("ERR User '{name}' not found"));
    };
    let known = super::table::id(&words[0]).map(|id| id.with_subcommand(words));
    let Some(command) = known.filter(|id| !id.is_container() || words.len() == 1) else {
        let name = String::from_utf8_lossy(&words[0]);
        return context.error(format_args!("ERR Command '{name}' not found"));
    };
    match Asked::of(Named::of(words), words).filter(|_| command.takes(words.len())) {
        None => context.wrong_number(command.name()),
        Some(asked) => match denial(user, &asked, words) {
            None => context.ok(),
            Some(text) => context.bulk(text),
        },
    }
}

/// What the user lacks for a command.
fn denial(user: &User, asked: &Asked, words: &[Bytes]) -> Option<Vec<u8>> {
    let denied = user
        .check(asked.command, words, || asked.keys(words))
        .err()?;
    Some(match denied {
        Denied::Command => format!(
            "This user has no permissions to run the '{}' command",
            asked.command.name()
        )
        .into(),
        Denied::Key(place) => {
            let text = &b"This user has no permissions to access the '"[..];
            [text, &words[place], b"' key"].concat()
        }
    })
}
