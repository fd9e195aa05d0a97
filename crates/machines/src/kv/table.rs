//! The table of commands: what a client asks COMMAND for, and how the arguments are parsed.

use super::Command;
use super::command::Op;
use super::object::{self, Fact};
use super::parse::{self, Parse};
use super::stream;
use super::stream::parse as streams;
use crate::acl::{Access, CommandId};
use bytes::Bytes;

/// What COMMAND tells a client about one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandInfo {
    /// The name, in lower case; that of a subcommand has the command before it: `object|freq`.
    pub name: &'static str,
    /// The number of arguments with the name; if negative, at least as many as it says.
    pub arity: i32,
    /// Redis's flags.
    pub flags: &'static [&'static str],
    /// The index of the first argument that is a key; zero if none is.
    pub first_key: i32,
    /// The index of the last argument that is a key; if negative, counted from the end.
    pub last_key: i32,
    /// The distance from one key to the next.
    pub step: i32,
    /// What rules about users call it: its categories, those of its subcommands.
    pub id: CommandId,
    /// What it does with its first key, and with the others.
    access: [Access; 2],
    pub(super) parse: Parse,
}

impl CommandInfo {
    /// The places of the keys among the words of a command, and what it does with each. The number
    /// of words must be [right](CommandId::takes).
    pub fn keys(&self, words: &[Bytes]) -> Vec<(usize, Access)> {
        if self.flags.contains(&MOVABLE) {
            let keys = Command::parse(words).map_or(0, |command| command.read_keys().len());
            // They are the first half behind the word that names their kind.
            let first = words.len() - 2 * keys;
            return (first..first + keys)
                .map(|place| (place, self.access[0]))
                .collect();
        }
        let last = match self.last_key {
            last if last < 0 => words.len() as i32 + last,
            last => last,
        };
        let places = (self.first_key..=last).step_by(self.step.max(1) as usize);
        let access = |at: usize| match at {
            // Only with GET it shows the value.
            0 if self.name == "set" && !words[3..].iter().any(|word| parse::is(word, "get")) => {
                Access::WRITE
            }
            at => self.access[at.min(1)],
        };
        places
            .filter(|place| *place > 0 && (*place as usize) < words.len())
            .enumerate()
            .map(|(at, place)| (place as usize, access(at)))
            .collect()
    }
}

/// All commands of the machine, by name.
pub fn command_table() -> &'static [CommandInfo] {
    COMMANDS
}

/// What is known of the command with these words, in any case, if the machine has it.
pub fn command_info(words: &[Bytes]) -> Option<&'static CommandInfo> {
    match words {
        [] => None,
        [name] => named(name),
        [name, sub, ..] => named(name).or_else(|| find(&[name, sub])),
    }
}

/// Whether `name`, in any case, is a command of the machine.
pub fn knows(name: &[u8]) -> bool {
    named(name).is_some()
}

/// The command that is no subcommand: clients write these without the bar.
fn named(name: &[u8]) -> Option<&'static CommandInfo> {
    find(&[name]).filter(|info| !info.name.contains('|'))
}

/// The command with this name, or with those of a command and its subcommand.
fn find(names: &[&[u8]]) -> Option<&'static CommandInfo> {
    let mut lower = [0; 16];
    let mut len = 0;
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            *lower.get_mut(len)? = b'|';
            len += 1;
        }
        lower.get_mut(len..len + name.len())?.copy_from_slice(name);
        len += name.len();
    }
    let lower = &mut lower[..len];
    lower.make_ascii_lowercase();
    let at = COMMANDS
        .binary_search_by(|info| info.name.as_bytes().cmp(lower))
        .ok()?;
    Some(&COMMANDS[at])
}

const fn info(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: Keys,
    parse: Parse,
) -> CommandInfo {
    CommandInfo {
        name,
        arity,
        flags,
        first_key: keys.places[0],
        last_key: keys.places[1],
        step: keys.places[2],
        id: CommandId::of(name),
        access: keys.access,
        parse,
    }
}

/// Where the keys of a command are, and what it does with the first one and with the others.
struct Keys {
    places: [i32; 3],
    access: [Access; 2],
}

impl Keys {
    const fn at(places: [i32; 3], access: Access) -> Keys {
        Keys {
            places,
            access: [access; 2],
        }
    }
}

const fn one(access: Access) -> Keys {
    Keys::at([1, 1, 1], access)
}

const fn second(access: Access) -> Keys {
    Keys::at([2, 2, 1], access)
}

/// A source and a destination.
const fn two(from: Access, to: Access) -> Keys {
    Keys {
        places: [1, 2, 1],
        access: [from, to],
    }
}

const fn all(access: Access) -> Keys {
    Keys::at([1, -1, 1], access)
}

/// Keys, each with its value behind it.
const fn pairs(access: Access) -> Keys {
    Keys::at([1, -1, 2], access)
}

const NONE: Keys = Keys::at([0; 3], Access::NONE);
/// Those that are not in one place.
const READ_MOVABLE: Keys = Keys::at([0; 3], Access::READ);

type Flags = &'static [&'static str];
const READ: Flags = &["readonly"];
const READ_FAST: Flags = &["readonly", "fast"];
/// Its keys are not in one place.
const BLOCKING: Flags = &["readonly", "blocking", MOVABLE];
const MOVABLE: &str = "movablekeys";
const WRITE: Flags = &["write"];
const WRITE_FAST: Flags = &["write", "fast"];
/// May take memory: Redis refuses these when it has none left.
const GROW: Flags = &["write", "denyoom"];
const GROW_FAST: Flags = &["write", "denyoom", "fast"];

/// Sorted by name, for the search.
const COMMANDS: &[CommandInfo] = &[
    info("append", 3, GROW_FAST, one(Access::WRITE), parse::append),
    info(
        "copy",
        -3,
        GROW,
        two(Access::READ, Access::WRITE),
        parse::copy,
    ),
    info("dbsize", 1, READ_FAST, NONE, |_| Ok(Op::DbSize)),
    info("decr", 2, GROW_FAST, one(Access::BOTH), |argv| {
        parse::incr(argv, -1)
    }),
    info("decrby", 3, GROW_FAST, one(Access::BOTH), parse::decr_by),
    info("del", -2, WRITE, all(Access::WRITE), |argv| {
        Ok(Op::Del(argv[1..].to_vec()))
    }),
    info("exists", -2, READ_FAST, all(Access::NONE), |argv| {
        Ok(Op::Exists(argv[1..].to_vec()))
    }),
    info("expire", -3, WRITE_FAST, one(Access::WRITE), |argv| {
        parse::expire(argv, true, true)
    }),
    info("expireat", -3, WRITE_FAST, one(Access::WRITE), |argv| {
        parse::expire(argv, true, false)
    }),
    info("expiretime", 2, READ_FAST, one(Access::READ), |argv| {
        parse::ttl(argv, true, false)
    }),
    info("flushall", -1, WRITE, NONE, parse::flush),
    info("flushdb", -1, WRITE, NONE, parse::flush),
    info("get", 2, READ_FAST, one(Access::READ), |argv| {
        Ok(Op::Get(key(argv)))
    }),
    info("getdel", 2, WRITE_FAST, one(Access::BOTH), |argv| {
        Ok(Op::GetDel(key(argv)))
    }),
    info("getex", -2, WRITE_FAST, one(Access::BOTH), parse::get_ex),
    info("getrange", 4, READ, one(Access::READ), parse::get_range),
    info("getset", 3, GROW_FAST, one(Access::BOTH), parse::get_set),
    info("incr", 2, GROW_FAST, one(Access::BOTH), |argv| {
        parse::incr(argv, 1)
    }),
    info("incrby", 3, GROW_FAST, one(Access::BOTH), parse::incr_by),
    info(
        "incrbyfloat",
        3,
        GROW_FAST,
        one(Access::BOTH),
        parse::incr_by_float,
    ),
    info("keys", 2, READ, NONE, |argv| Ok(Op::Keys(key(argv)))),
    info(
        "memory|usage",
        -3,
        READ,
        second(Access::NONE),
        object::usage,
    ),
    info("mget", -2, READ_FAST, all(Access::READ), |argv| {
        Ok(Op::MGet(argv[1..].to_vec()))
    }),
    info("mset", -3, GROW, pairs(Access::WRITE), |argv| {
        Ok(Op::MSet(parse::pairs(argv, "mset")?))
    }),
    info("msetnx", -3, GROW, pairs(Access::WRITE), |argv| {
        Ok(Op::MSetNx(parse::pairs(argv, "msetnx")?))
    }),
    info("object|encoding", 3, READ, second(Access::NONE), |argv| {
        object::object(argv, Fact::Encoding)
    }),
    info("object|freq", 3, READ, second(Access::NONE), |argv| {
        object::object(argv, Fact::Freq)
    }),
    info("object|idletime", 3, READ, second(Access::NONE), |argv| {
        object::object(argv, Fact::IdleTime)
    }),
    info("object|refcount", 3, READ, second(Access::NONE), |argv| {
        object::object(argv, Fact::RefCount)
    }),
    info("persist", 2, WRITE_FAST, one(Access::WRITE), |argv| {
        Ok(Op::Persist(key(argv)))
    }),
    info("pexpire", -3, WRITE_FAST, one(Access::WRITE), |argv| {
        parse::expire(argv, false, true)
    }),
    info("pexpireat", -3, WRITE_FAST, one(Access::WRITE), |argv| {
        parse::expire(argv, false, false)
    }),
    info("pexpiretime", 2, READ_FAST, one(Access::READ), |argv| {
        parse::ttl(argv, false, false)
    }),
    info("psetex", 4, GROW, one(Access::WRITE), |argv| {
        parse::set_ex(argv, false)
    }),
    info("pttl", 2, READ_FAST, one(Access::READ), |argv| {
        parse::ttl(argv, false, true)
    }),
    info("randomkey", 1, READ, NONE, |_| Ok(Op::RandomKey)),
    info(
        "rename",
        3,
        WRITE,
        two(Access::BOTH, Access::WRITE),
        |argv| parse::rename(argv, false),
    ),
    info(
        "renamenx",
        3,
        WRITE_FAST,
        two(Access::BOTH, Access::WRITE),
        |argv| parse::rename(argv, true),
    ),
    info("scan", -2, READ, NONE, parse::scan),
    info("set", -3, GROW, one(Access::BOTH), parse::set),
    info("setex", 4, GROW, one(Access::WRITE), |argv| {
        parse::set_ex(argv, true)
    }),
    info("setnx", 3, GROW_FAST, one(Access::WRITE), parse::set_nx),
    info("setrange", 4, GROW, one(Access::WRITE), parse::set_range),
    info("strlen", 2, READ_FAST, one(Access::NONE), |argv| {
        Ok(Op::StrLen(key(argv)))
    }),
    info("substr", 4, READ, one(Access::READ), parse::get_range),
    info("touch", -2, READ_FAST, all(Access::NONE), |argv| {
        Ok(Op::Exists(argv[1..].to_vec()))
    }),
    info("ttl", 2, READ_FAST, one(Access::READ), |argv| {
        parse::ttl(argv, true, true)
    }),
    info("type", 2, READ_FAST, one(Access::NONE), |argv| {
        Ok(Op::Type(key(argv)))
    }),
    info("unlink", -2, WRITE_FAST, all(Access::WRITE), |argv| {
        Ok(Op::Del(argv[1..].to_vec()))
    }),
    info("xadd", -5, GROW_FAST, one(Access::WRITE), streams::add),
    info("xdel", -3, WRITE_FAST, one(Access::WRITE), streams::delete),
    info("xinfo", -2, READ, second(Access::READ), streams::info),
    info("xlen", 2, READ_FAST, one(Access::NONE), |argv| {
        Ok(Op::StreamRead(stream::Ask::Len(key(argv))))
    }),
    info("xrange", -4, READ, one(Access::READ), |argv| {
        streams::range(argv, false)
    }),
    info("xread", -4, BLOCKING, READ_MOVABLE, streams::read),
    info("xrevrange", -4, READ, one(Access::READ), |argv| {
        streams::range(argv, true)
    }),
    info("xsetid", -3, GROW_FAST, one(Access::WRITE), streams::set_id),
    info("xtrim", -4, WRITE, one(Access::WRITE), streams::trim),
];

fn key(argv: &[Bytes]) -> Bytes {
    argv[1].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_fit() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for info in COMMANDS {
            let name = info.name.to_uppercase();
            let words: Vec<_> = name
                .split('|')
                .map(|it| Bytes::from(it.to_owned()))
                .collect();
            let found = command_info(&words);
            assert!(found.is_some_and(|found| found.name == info.name), "{name}");
            assert_eq!(knows(name.as_bytes()), words.len() == 1, "{name}");
        }
        assert!(!knows(b"") && !knows(b"gett") && !knows(b"a name longer than any command"));
    }

    /// A command that Redis calls a write but that is sent as a read would be lost.
    #[test]
    fn flags_and_commands_agree() {
        for info in COMMANDS {
            let words = match info.name {
                "xread" => ["streams", "2", "3", "4"],
                "xinfo" => ["stream", "2", "3", "4"],
                "xtrim" => ["1", "maxlen", "3", "4"],
                _ => ["1", "2", "3", "4"],
            };
            let words = words.map(|word| Bytes::from_static(word.as_bytes()));
            let names = info.name.split('|');
            let names = names.map(|name| Bytes::from_static(name.as_bytes()));
            let argv: Vec<Bytes> = names.chain(words).collect();
            // XINFO has a word less than its subcommands.
            let len = info.arity.unsigned_abs() as usize + usize::from(info.name == "xinfo");
            let argv = &argv[..len];
            let op = parse::parse(argv).unwrap_or_else(|_| panic!("{argv:?}"));
            assert_eq!(
                op.is_read(),
                info.flags.contains(&"readonly"),
                "{}",
                info.name
            );
        }
    }
}
