//! COMMAND: lists the commands of the gateway and of the state machine.

use super::{OWN, SYNTAX, is, matches};
use crate::reply::Context;
use bytes::Bytes;
use ionian_machines::acl::{Category, CommandId};
use ionian_machines::kv;

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand) -- Return details about all commands.",
    "COUNT -- Return the total number of commands.",
    "GETKEYS <full-command> -- Return the keys from a full command.",
    "INFO [<command-name> ...] -- Return details about commands.",
    "LIST [FILTERBY (PATTERN <pattern>|MODULE <name>|ACLCAT <category>)] -- Return command names.",
];

/// The description of a command, equal at every gateway.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: [i32; 3],
    id: CommandId,
}

pub(super) fn command(context: &mut Context<'_>, words: &[Bytes]) {
    let Some(sub) = words.get(1) else {
        context.array(commands().count());
        return commands().for_each(|entry| describe(context, entry));
    };
    let rest = &words[2..];
    match &*sub.to_ascii_lowercase() {
        b"count" if rest.is_empty() => context.integer(commands().count() as i64),
        b"count" => context.wrong_number("command|count"),
        // Without this subcommand, as before Redis 7, clients use their own copy of Redis's
        // documentation.
        b"getkeys" if rest.len() < 2 => context.wrong_number("command|getkeys"),
        b"getkeys" => get_keys(context, rest),
        b"help" => context.help(HELP),
        b"info" if rest.is_empty() => command(context, &words[..1]),
        b"info" => {
            context.array(rest.len());
            for name in rest {
                match find(name) {
                    Some(entry) => describe(context, entry),
                    None => context.null(),
                }
            }
        }
        b"list" => list(context, rest),
        _ => context.unknown_subcommand("COMMAND", sub),
    }
}

/// All but the subcommands: as in Redis, these are listed and described, but are not commands.
fn commands() -> impl Iterator<Item = Entry> {
    entries().filter(|entry| !entry.id.is_subcommand())
}

fn entries() -> impl Iterator<Item = Entry> {
    let own = OWN.iter().map(|own| Entry {
        name: own.name,
        arity: own.arity,
        flags: own.flags,
        keys: own.keys,
        id: own.id,
    });
    own.chain(kv::command_table().iter().map(of_machine))
}

fn of_machine(info: &kv::CommandInfo) -> Entry {
    Entry {
        name: info.name,
        arity: info.arity,
        flags: info.flags,
        keys: [info.first_key, info.last_key, info.step],
        id: info.id,
    }
}

/// What rules about users call a command, if the gateway or the machine has it.
pub(super) fn id(name: &[u8]) -> Option<CommandId> {
    find(name)
        .map(|entry| entry.id)
        .filter(|id| !id.is_subcommand())
}

/// Whether the gateway or the machine has a command, or the command of a subcommand.
pub(super) fn has(command: CommandId) -> bool {
    let name = command.name().split('|').next();
    name.is_some_and(|name| find(name.as_bytes()).is_some())
}

fn find(name: &[u8]) -> Option<Entry> {
    entries().find(|entry| is(name, entry.name))
}

/// The ten elements of Redis 7; the last three (tips, key specifications, subcommands) are empty.
fn describe(context: &mut Context<'_>, entry: Entry) {
    context.array(10);
    context.bulk(entry.name);
    context.integer(i64::from(entry.arity));
    context.set(entry.flags.len());
    entry.flags.iter().for_each(|flag| context.simple(flag));
    entry
        .keys
        .iter()
        .for_each(|&key| context.integer(i64::from(key)));
    let categories: Vec<_> = entry.id.categories().map(Category::name).collect();
    context.set(categories.len());
    categories
        .iter()
        .for_each(|name| context.simple(&format!("@{name}")));
    (0..3).for_each(|_| context.array(0));
}

fn list(context: &mut Context<'_>, words: &[Bytes]) {
    let (pattern, category) = match words {
        [] => (&b"*"[..], None),
        [filter, kind, pattern] if is(filter, "FILTERBY") && is(kind, "PATTERN") => {
            (&pattern[..], None)
        }
        [filter, kind, name] if is(filter, "FILTERBY") && is(kind, "ACLCAT") => {
            match Category::named(name) {
                Some(category) => (&b"*"[..], Some(category)),
                None => (&b""[..], None),
            }
        }
        // Modules do not exist here, so this filter matches nothing.
        [filter, kind, _] if is(filter, "FILTERBY") && is(kind, "MODULE") => (&b""[..], None),
        _ => return context.error(SYNTAX),
    };
    let found: Vec<_> = entries()
        .filter(|entry| matches(pattern, entry.name))
        .filter(|entry| category.is_none_or(|category| category.contains(entry.id)))
        .collect();
    context.array(found.len());
    found.iter().for_each(|entry| context.bulk(entry.name));
}

fn get_keys(context: &mut Context<'_>, words: &[Bytes]) {
    let own = || commands().find(|entry| is(&words[0], entry.name));
    let Some(entry) = kv::command_info(words).map(of_machine).or_else(own) else {
        return context.error("ERR Invalid command specified");
    };
    let [first, last, step] = entry.keys;
    let arity = entry.arity.unsigned_abs() as usize;
    if entry.flags.contains(&"movablekeys") {
        return match kv::Command::parse(words) {
            Ok(command) => {
                let keys = command.read_keys();
                context.array(keys.len());
                keys.iter().for_each(|key| context.bulk(key));
            }
            Err(_) => context.error("ERR Invalid arguments specified for command"),
        };
    }
    if first == 0 {
        return context.error("ERR The command has no key arguments");
    }
    if words.len() < arity || entry.arity > 0 && words.len() > arity {
        return context.error("ERR Invalid number of arguments specified for command");
    }
    let end = if last < 0 {
        (words.len() as i64 + i64::from(last)) as usize
    } else {
        last as usize
    };
    let keys: Vec<_> = (first as usize..=end)
        .step_by(step.max(1) as usize)
        .filter_map(|at| words.get(at))
        .collect();
    context.array(keys.len());
    keys.iter().for_each(|key| context.bulk(key));
}
