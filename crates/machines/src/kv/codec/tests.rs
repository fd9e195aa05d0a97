//! What is encoded is decoded, and nothing else is.

use super::super::stream::{Ask, Deed};
use super::super::users::judged_at;
use super::*;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

const LINES: &[&str] = &[
    "get k",
    "mget k l",
    "exists k",
    "touch k l",
    "strlen k",
    "getrange k -1 5",
    "ttl k",
    "pttl k",
    "expiretime k",
    "pexpiretime k",
    "type k",
    "memory usage k samples 0",
    "object encoding k",
    "object refcount k",
    "object idletime k",
    "object freq k",
    "dbsize",
    "keys *",
    "scan 7",
    "randomkey",
    "scan 1 match x count 3 type list",
    "set k v",
    "set k v nx get",
    "set k v xx keepttl",
    "set k v ex 5",
    "set k v px 5",
    "set k v exat 5",
    "set k v pxat 5",
    "setnx k v",
    "setex k 1 v",
    "psetex k 1 v",
    "getset k v",
    "mset k v l w",
    "msetnx k v",
    "getdel k",
    "getex k",
    "getex k persist",
    "getex k px -1",
    "del k l",
    "incr k",
    "decrby k 7",
    "incrbyfloat k -1.5",
    "incrbyfloat k 0",
    "append k v",
    "setrange k 3 v",
    "expire k 1",
    "pexpire k -1 nx",
    "expireat k 1 xx gt",
    "pexpireat k 1 lt",
    "persist k",
    "rename k l",
    "renamenx k l",
    "copy k l",
    "copy k l replace",
    "flushall",
    "set k v nonsense",
    "scan 1 type stream",
    "scan 1 type string",
    "xlen k",
    "xrange k - +",
    "xrevrange k (5-3 2 count 7",
    "xread streams k $",
    "xread count 3 block 0 streams k l 0 5-5",
    "xinfo stream k",
    "xadd k * f v",
    "xadd k nomkstream maxlen 5 0-* f v g w",
    "xadd k minid ~ 5-1 limit 7 5-5 f v",
    "xtrim k maxlen ~ 3",
    "xdel k 1-1 2",
    "xsetid k 5-5",
    "xsetid k 5-5 entriesadded 7 maxdeletedid 3-3",
];

/// All of them: as a client writes them, and those that only a gateway sends.
fn commands() -> Vec<Command> {
    let words = "xread block 5 streams k $".split(' ').map(Bytes::from);
    let block = Command::parse(&words.collect::<Vec<_>>()).expect("a command");
    let own = [
        Command::tails(vec![Bytes::from("k"), Bytes::new()]),
        command("xinfo stream k").with_maps(),
        block.clone().with_maps(),
        block,
    ];
    LINES.iter().map(|line| command(line)).chain(own).collect()
}

fn command(line: &str) -> Command {
    let argv: Vec<_> = line
        .split(' ')
        .map(|word| Bytes::from(word.to_owned()))
        .collect();
    Command::parse_queued(&argv).expect(line)
}

fn compound() -> impl Strategy<Value = Compound> {
    let all = commands();
    let commands = || vec(prop::sample::select(all.clone()), 0..20);
    let key = || vec(any::<u8>(), 0..5).prop_map(Bytes::from);
    prop_oneof![
        commands().prop_map(Compound::Pipeline),
        (vec((key(), any::<u64>()), 0..4), commands())
            .prop_map(|(watched, commands)| Compound::Transaction { watched, commands }),
        vec(key(), 0..4).prop_map(Compound::Versions),
        (key(), vec(key(), 0..4)).prop_map(|(name, rules)| Compound::SetUser { name, rules }),
        vec(key(), 0..4).prop_map(Compound::DeleteUsers),
        any::<u64>().prop_map(|known| Compound::Users { known }),
        any::<u64>().prop_map(Compound::SetLimit),
        Just(Compound::Measure),
        Just(Compound::Room),
    ]
}

fn key(bytes: &&[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The decoded commands with bytes of their own, to be compared with what was encoded.
fn owned(ops: &[Op<&[u8]>]) -> Vec<Command> {
    let pair = |(a, b): &(&[u8], &[u8])| (key(a), key(b));
    let all = |keys: &[&[u8]]| keys.iter().map(key).collect();
    let own = |op: &Op<&[u8]>| match op {
        Op::Fail(text) => Op::Fail(key(text)),
        Op::Get(k) => Op::Get(key(k)),
        Op::MGet(keys) => Op::MGet(all(keys)),
        Op::Exists(keys) => Op::Exists(all(keys)),
        Op::StrLen(k) => Op::StrLen(key(k)),
        Op::GetRange { key: k, start, end } => Op::GetRange {
            key: key(k),
            start: *start,
            end: *end,
        },
        Op::Ttl {
            key: k,
            seconds,
            relative,
        } => Op::Ttl {
            key: key(k),
            seconds: *seconds,
            relative: *relative,
        },
        Op::Type(k) => Op::Type(key(k)),
        Op::Object { key: k, fact } => Op::Object {
            key: key(k),
            fact: *fact,
        },
        Op::DbSize => Op::DbSize,
        Op::Expiring => Op::Expiring,
        Op::Keys(pattern) => Op::Keys(key(pattern)),
        Op::Scan {
            cursor,
            count,
            kind,
            pattern,
        } => Op::Scan {
            cursor: *cursor,
            count: *count,
            kind: *kind,
            pattern: pattern.as_ref().map(key),
        },
        Op::RandomKey => Op::RandomKey,
        Op::Set {
            key: k,
            value,
            form,
            condition,
            expiry,
        } => Op::Set {
            key: key(k),
            value: key(value),
            form: *form,
            condition: *condition,
            expiry: *expiry,
        },
        Op::MSet(pairs) => Op::MSet(pairs.iter().map(pair).collect()),
        Op::MSetNx(pairs) => Op::MSetNx(pairs.iter().map(pair).collect()),
        Op::GetDel(k) => Op::GetDel(key(k)),
        Op::GetEx { key: k, expiry } => Op::GetEx {
            key: key(k),
            expiry: *expiry,
        },
        Op::Del(keys) => Op::Del(all(keys)),
        Op::IncrBy { key: k, by } => Op::IncrBy {
            key: key(k),
            by: *by,
        },
        Op::IncrByFloat { key: k, by } => Op::IncrByFloat {
            key: key(k),
            by: *by,
        },
        Op::Append { key: k, value } => Op::Append {
            key: key(k),
            value: key(value),
        },
        Op::SetRange {
            key: k,
            offset,
            value,
        } => Op::SetRange {
            key: key(k),
            offset: *offset,
            value: key(value),
        },
        Op::Expire { key: k, when, only } => Op::Expire {
            key: key(k),
            when: *when,
            only: *only,
        },
        Op::Persist(k) => Op::Persist(key(k)),
        Op::Rename { from, to, only_new } => Op::Rename {
            from: key(from),
            to: key(to),
            only_new: *only_new,
        },
        Op::Copy { from, to, replace } => Op::Copy {
            from: key(from),
            to: key(to),
            replace: *replace,
        },
        Op::FlushAll => Op::FlushAll,
        Op::StreamRead(ask) => Op::StreamRead(owned_ask(ask)),
        Op::StreamWrite(deed) => Op::StreamWrite(owned_deed(deed)),
    };
    ops.iter().map(|op| Command(own(op))).collect()
}

fn owned_ask(ask: &Ask<&[u8]>) -> Ask<Bytes> {
    match ask {
        Ask::Len(k) => Ask::Len(key(k)),
        Ask::Range {
            key: k,
            from,
            to,
            count,
            reverse,
        } => Ask::Range {
            key: key(k),
            from: *from,
            to: *to,
            count: *count,
            reverse: *reverse,
        },
        Ask::Read {
            streams,
            count,
            block,
            maps,
        } => Ask::Read {
            streams: streams.iter().map(|(k, after)| (key(k), *after)).collect(),
            count: *count,
            block: *block,
            maps: *maps,
        },
        Ask::Info { key: k, maps } => Ask::Info {
            key: key(k),
            maps: *maps,
        },
        Ask::Tails(keys) => Ask::Tails(keys.iter().map(key).collect()),
    }
}

fn owned_deed(deed: &Deed<&[u8]>) -> Deed<Bytes> {
    match deed {
        Deed::Add {
            key: k,
            create,
            id,
            trim,
            words,
        } => Deed::Add {
            key: key(k),
            create: *create,
            id: *id,
            trim: *trim,
            words: words.iter().map(key).collect(),
        },
        Deed::Trim { key: k, trim } => Deed::Trim {
            key: key(k),
            trim: *trim,
        },
        Deed::Delete { key: k, ids } => Deed::Delete {
            key: key(k),
            ids: ids.clone(),
        },
        Deed::SetId {
            key: k,
            id,
            added,
            max_deleted,
        } => Deed::SetId {
            key: key(k),
            id: *id,
            added: *added,
            max_deleted: *max_deleted,
        },
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(compound in compound()) {
        let encoded = compound.encode();
        let (judged, decoded) = decode(&encoded).expect("it was encoded");
        prop_assert_eq!(judged, 0);
        let is_read = decoded.is_read();
        let decoded = match decoded {
            Decoded::Pipeline(ops) => Compound::Pipeline(owned(ops.as_slice())),
            Decoded::Transaction { watched, commands } => Compound::Transaction {
                watched: watched.iter().map(|(name, version)| (key(name), *version)).collect(),
                commands: owned(&commands),
            },
            Decoded::Versions(keys) => Compound::Versions(keys.iter().map(key).collect()),
            Decoded::SetUser { name, rules } => Compound::SetUser {
                name: key(&name),
                rules: rules.iter().map(key).collect(),
            },
            Decoded::DeleteUsers(names) => {
                Compound::DeleteUsers(names.iter().map(key).collect())
            }
            Decoded::Users { known } => Compound::Users { known },
            Decoded::SetLimit(limit) => Compound::SetLimit(limit),
            Decoded::Measure => Compound::Measure,
            Decoded::Room => Compound::Room,
        };
        prop_assert_eq!(&decoded, &compound);
        prop_assert_eq!(decoded.is_read(), is_read);
        for epoch in [7, 0, u64::MAX] {
            let again = judged_at(epoch, &judged_at(3, &encoded));
            let (judged, same) = decode(&again).expect("it was encoded");
            prop_assert_eq!(judged, epoch);
            prop_assert_eq!(&same, &decode(&encoded).unwrap().1);
            prop_assert_eq!(again.len() - encoded.len(), if epoch == 0 { 0 } else { 9 });
        }
        let more = [&encoded[..], &[0]].concat();
        prop_assert_eq!(decode(&more), None);
        for len in 0..encoded.len() {
            prop_assert_eq!(decode(&encoded[..len]), None);
        }
    }
}

#[test]
fn every_kind_of_command_is_tried() {
    let tags: std::collections::BTreeSet<u8> =
        commands().iter().map(|command| tag(&command.0)).collect();
    assert!(tags.into_iter().eq((0..=17).chain(32..=50)));
}

#[test]
fn a_count_is_not_believed() {
    assert_eq!(decode(&[FORMAT, PIPELINE, 255, 255, 255, 255, 8, 8]), None);
    assert_eq!(decode(&[FORMAT, VERSIONS, 2, 0, 0, 0, 0, 0, 0, 0]), None);
}
