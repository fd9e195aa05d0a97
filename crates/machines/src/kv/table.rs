//! The table of commands: what a client asks COMMAND for, and how the arguments are parsed.

use super::command::Op;
use super::parse::{self, Parse};
use super::stream;
use super::stream::parse as streams;
use bytes::Bytes;

/// What COMMAND tells a client about one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandInfo {
    /// The name, in lower case.
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
    pub(super) parse: Parse,
}

/// All commands of the machine, by name.
pub fn command_table() -> &'static [CommandInfo] {
    COMMANDS
}

/// What is known of the command `name`, in any case, if the machine has it.
pub fn command_info(name: &[u8]) -> Option<&'static CommandInfo> {
    find(name)
}

/// Whether `name`, in any case, is a command of the machine.
pub fn knows(name: &[u8]) -> bool {
    find(name).is_some()
}

pub(super) fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
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
    keys: [i32; 3],
    parse: Parse,
) -> CommandInfo {
    CommandInfo {
        name,
        arity,
        flags,
        first_key: keys[0],
        last_key: keys[1],
        step: keys[2],
        parse,
    }
}

type Flags = &'static [&'static str];
const READ: Flags = &["readonly"];
const READ_FAST: Flags = &["readonly", "fast"];
/// Its keys are not in one place.
const BLOCKING: Flags = &["readonly", "blocking", "movablekeys"];
const WRITE: Flags = &["write"];
const WRITE_FAST: Flags = &["write", "fast"];
/// May take memory: Redis refuses these when it has none left.
const GROW: Flags = &["write", "denyoom"];
const GROW_FAST: Flags = &["write", "denyoom", "fast"];

const NONE: [i32; 3] = [0, 0, 0];
const ONE: [i32; 3] = [1, 1, 1];
const SECOND: [i32; 3] = [2, 2, 1];
const TWO: [i32; 3] = [1, 2, 1];
const ALL: [i32; 3] = [1, -1, 1];
const PAIRS: [i32; 3] = [1, -1, 2];

/// Sorted by name, for the search.
const COMMANDS: &[CommandInfo] = &[
    info("append", 3, GROW_FAST, ONE, parse::append),
    info("copy", -3, GROW, TWO, parse::copy),
    info("dbsize", 1, READ_FAST, NONE, |_| Ok(Op::DbSize)),
    info("decr", 2, GROW_FAST, ONE, |argv| parse::incr(argv, -1)),
    info("decrby", 3, GROW_FAST, ONE, parse::decr_by),
    info("del", -2, WRITE, ALL, |argv| {
        Ok(Op::Del(argv[1..].to_vec()))
    }),
    info("exists", -2, READ_FAST, ALL, |argv| {
        Ok(Op::Exists(argv[1..].to_vec()))
    }),
    info("expire", -3, WRITE_FAST, ONE, |argv| {
        parse::expire(argv, true, true)
    }),
    info("expireat", -3, WRITE_FAST, ONE, |argv| {
        parse::expire(argv, true, false)
    }),
    info("expiretime", 2, READ_FAST, ONE, |argv| {
        parse::ttl(argv, true, false)
    }),
    info("flushall", -1, WRITE, NONE, parse::flush),
    info("flushdb", -1, WRITE, NONE, parse::flush),
    info("get", 2, READ_FAST, ONE, |argv| Ok(Op::Get(key(argv)))),
    info("getdel", 2, WRITE_FAST, ONE, |argv| {
        Ok(Op::GetDel(key(argv)))
    }),
    info("getex", -2, WRITE_FAST, ONE, parse::get_ex),
    info("getrange", 4, READ, ONE, parse::get_range),
    info("getset", 3, GROW_FAST, ONE, parse::get_set),
    info("incr", 2, GROW_FAST, ONE, |argv| parse::incr(argv, 1)),
    info("incrby", 3, GROW_FAST, ONE, parse::incr_by),
    info("incrbyfloat", 3, GROW_FAST, ONE, parse::incr_by_float),
    info("keys", 2, READ, NONE, |argv| Ok(Op::Keys(key(argv)))),
    info("mget", -2, READ_FAST, ALL, |argv| {
        Ok(Op::MGet(argv[1..].to_vec()))
    }),
    info("mset", -3, GROW, PAIRS, |argv| {
        Ok(Op::MSet(parse::pairs(argv, "mset")?))
    }),
    info("msetnx", -3, GROW, PAIRS, |argv| {
        Ok(Op::MSetNx(parse::pairs(argv, "msetnx")?))
    }),
    info("persist", 2, WRITE_FAST, ONE, |argv| {
        Ok(Op::Persist(key(argv)))
    }),
    info("pexpire", -3, WRITE_FAST, ONE, |argv| {
        parse::expire(argv, false, true)
    }),
    info("pexpireat", -3, WRITE_FAST, ONE, |argv| {
        parse::expire(argv, false, false)
    }),
    info("pexpiretime", 2, READ_FAST, ONE, |argv| {
        parse::ttl(argv, false, false)
    }),
    info("psetex", 4, GROW, ONE, |argv| parse::set_ex(argv, false)),
    info("pttl", 2, READ_FAST, ONE, |argv| {
        parse::ttl(argv, false, true)
    }),
    info("randomkey", 1, READ, NONE, |_| Ok(Op::RandomKey)),
    info("rename", 3, WRITE, TWO, |argv| parse::rename(argv, false)),
    info("renamenx", 3, WRITE_FAST, TWO, |argv| {
        parse::rename(argv, true)
    }),
    info("scan", -2, READ, NONE, parse::scan),
    info("set", -3, GROW, ONE, parse::set),
    info("setex", 4, GROW, ONE, |argv| parse::set_ex(argv, true)),
    info("setnx", 3, GROW_FAST, ONE, parse::set_nx),
    info("setrange", 4, GROW, ONE, parse::set_range),
    info("strlen", 2, READ_FAST, ONE, |argv| {
        Ok(Op::StrLen(key(argv)))
    }),
    info("substr", 4, READ, ONE, parse::get_range),
    info("touch", -2, READ_FAST, ALL, |argv| {
        Ok(Op::Exists(argv[1..].to_vec()))
    }),
    info("ttl", 2, READ_FAST, ONE, |argv| {
        parse::ttl(argv, true, true)
    }),
    info("type", 2, READ_FAST, ONE, |argv| Ok(Op::Type(key(argv)))),
    info("unlink", -2, WRITE_FAST, ALL, |argv| {
        Ok(Op::Del(argv[1..].to_vec()))
    }),
    info("xadd", -5, GROW_FAST, ONE, streams::add),
    info("xdel", -3, WRITE_FAST, ONE, streams::delete),
    info("xinfo", -2, READ, SECOND, streams::info),
    info("xlen", 2, READ_FAST, ONE, |argv| {
        Ok(Op::StreamRead(stream::Ask::Len(key(argv))))
    }),
    info("xrange", -4, READ, ONE, |argv| streams::range(argv, false)),
    info("xread", -4, BLOCKING, NONE, streams::read),
    info("xrevrange", -4, READ, ONE, |argv| {
        streams::range(argv, true)
    }),
    info("xsetid", -3, GROW_FAST, ONE, streams::set_id),
    info("xtrim", -4, WRITE, ONE, streams::trim),
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
            assert!(
                knows(info.name.to_ascii_uppercase().as_bytes()),
                "{}",
                info.name
            );
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
            let name = Bytes::from_static(info.name.as_bytes());
            let argv: Vec<Bytes> = std::iter::once(name).chain(words).collect();
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
