//! Expiry, transactions, iteration, limits: what a record of single replies does not show.

use super::{NOW, apply, argv, command, pipeline, run, shown, snapshot};
use bytes::Bytes;
use ionian_kernel::machine::{Footprint, NotARead, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv, MAX_VALUE_LEN, command_table, knows};
use std::collections::BTreeSet;

fn footprint(lines: &[&str]) -> Footprint {
    let mut footprint = Footprint::default();
    Kv::default().footprint(&pipeline(lines).encode(), &mut footprint);
    footprint
}

fn version(kv: &Kv, now: u64, key: &str) -> u64 {
    let query = Compound::Versions(vec![Bytes::copy_from_slice(key.as_bytes())]).encode();
    let mut reply = Vec::new();
    kv.read(Timestamp(now), &query, &mut reply)
        .expect("versions are a read");
    let text = shown(&reply);
    text.trim_start_matches("*1|:")
        .trim_end_matches('|')
        .parse()
        .expect("an integer")
}

fn transaction(watched: &[(&str, u64)], lines: &[&str]) -> Compound {
    let key = |(key, version): &(&str, u64)| (Bytes::copy_from_slice(key.as_bytes()), *version);
    Compound::Transaction {
        watched: watched.iter().map(key).collect(),
        commands: lines.iter().map(|line| command(line)).collect(),
    }
}

#[test]
fn a_key_is_gone_when_its_time_has_come() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "set k v px 100");
    assert_eq!(run(&mut kv, NOW + 99, "get k"), "$1|v|");
    assert_eq!(run(&mut kv, NOW + 99, "pttl k"), ":1|");
    assert_eq!(kv.next_deadline(Timestamp(NOW)), Some(Timestamp(NOW + 100)));
    assert_eq!(kv.next_deadline(Timestamp(NOW + 100)), None);
    // As a read, nothing having been removed.
    let mut reply = Vec::new();
    let lines = [
        "get k",
        "exists k",
        "dbsize",
        "keys *",
        "scan 0",
        "randomkey",
        "ttl k",
        "type k",
    ];
    kv.read(Timestamp(NOW + 100), &pipeline(&lines).encode(), &mut reply)
        .unwrap();
    assert_eq!(shown(&reply), "$-1|:0|:0|*0|*2|$1|0|*0|$-1|:-2|+none|");
    assert_eq!(
        version(&kv, NOW + 100, "k"),
        1,
        "a key came, and is missing"
    );
    // What is written then starts anew.
    assert_eq!(run(&mut kv, NOW + 100, "append k x"), ":1|");
    assert_eq!(run(&mut kv, NOW + 100, "ttl k"), ":-1|");
}

/// More keys expire at once than one command removes: the rest must not be seen either.
#[test]
fn what_has_expired_is_not_seen_before_it_is_removed() {
    let mut kv = Kv::default();
    for i in 0..1000 {
        run(&mut kv, NOW, &format!("set k{i} v px 100"));
    }
    run(&mut kv, NOW, "set stays v");
    let later = NOW + 100;
    assert_eq!(run(&mut kv, later, "dbsize"), ":1|");
    assert_eq!(run(&mut kv, later, "keys *"), "*1|$5|stays|");
    for i in 0..1000 {
        assert_eq!(
            run(&mut kv, later, &format!("set k{i} new nx get")),
            "$-1|",
            "k{i}"
        );
        assert_eq!(run(&mut kv, later, &format!("get k{i}")), "$3|new|", "k{i}");
    }
    assert_eq!(run(&mut kv, later, "dbsize"), ":1001|");
}

/// Two replicas of which one has removed more of what expired are in the same state.
#[test]
fn a_snapshot_does_not_show_what_has_expired() {
    let mut kv = Kv::default();
    for i in 0..100 {
        run(&mut kv, NOW, &format!("set k{i} v px 100"));
    }
    run(&mut kv, NOW + 100, "get k");
    let early = snapshot(&kv);
    for _ in 0..10 {
        run(&mut kv, NOW + 100, "get k");
    }
    assert_eq!(early, snapshot(&kv));
}

#[test]
fn a_transaction_is_executed_if_nothing_watched_has_changed() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "set a 1");
    let (a, b) = (version(&kv, NOW, "a"), version(&kv, NOW, "b"));
    assert!(a != 0 && b == 0);
    let both = transaction(
        &[("a", a), ("b", b)],
        &["incr a", "append a x", "incr a", "get a"],
    );
    let not_an_integer = "-ERR value is not an integer or out of range|";
    assert_eq!(
        apply(&mut kv, NOW, &both),
        format!("*4|:2|:2|{not_an_integer}$2|2x|")
    );
    assert_eq!(apply(&mut kv, NOW, &both), "*-1|");
    assert_eq!(apply(&mut kv, NOW, &transaction(&[], &[])), "*0|");
    run(&mut kv, NOW, "set b 1");
    assert_eq!(
        apply(&mut kv, NOW, &transaction(&[("b", 0)], &["set b 2"])),
        "*-1|"
    );
    assert_eq!(run(&mut kv, NOW, "get b"), "$1|1|");
}

#[test]
fn every_change_makes_another_version() {
    let mut kv = Kv::default();
    let mut seen = BTreeSet::from([0]);
    for line in [
        "set k v",
        "set k v",
        "set k w",
        "append k x",
        "append k ",
        "setrange k 0 y",
        "expire k 10",
        "expire k 20",
        "persist k",
        "getex k ex 10",
        "getex k persist",
        "set k 1",
        "incr k",
        "decr k",
        "incrbyfloat k 1",
        "getset k 1",
        "mset k 2",
        "copy j k replace",
        "rename j k",
    ] {
        run(&mut kv, NOW, "set j j");
        run(&mut kv, NOW, line);
        assert!(seen.insert(version(&kv, NOW, "k")), "{line}");
    }
    let before = version(&kv, NOW, "k");
    for line in [
        "get k",
        "getex k",
        "persist k",
        "setnx k 5",
        "set k 5 nx",
        "setrange k 0 ",
        "renamenx k k",
        "expire k 5 xx",
        "msetnx k 1 j 2",
        "incr k",
        "del other",
    ] {
        run(&mut kv, NOW, line);
        assert_eq!(version(&kv, NOW, "k"), before, "{line}");
    }
    for line in [
        "del k",
        "set k v",
        "flushall",
        "set k v",
        "getdel k",
        "set k v exat 1",
    ] {
        run(&mut kv, NOW, line);
        assert!(
            seen.insert(version(&kv, NOW, "k")),
            "{line}: as it was before, but it came and went"
        );
    }
    let before = version(&kv, NOW, "k");
    for line in ["del k", "flushall", "get k", "expire k 5", "set k v xx"] {
        run(&mut kv, NOW, line);
        assert_eq!(version(&kv, NOW, "k"), before, "{line}");
    }
}

#[test]
fn a_mistake_in_a_queued_command_is_answered_in_its_place() {
    let queued = Command::parse_queued(&argv(&["set", "k", "v", "ex", "0"])).unwrap();
    assert!(queued.is_read());
    let commands = vec![command("set k v"), queued, command("get k")];
    let compound = Compound::Transaction {
        watched: Vec::new(),
        commands,
    };
    let expected = "*3|+OK|-ERR invalid expire time in 'set' command|$1|v|";
    assert_eq!(apply(&mut Kv::default(), NOW, &compound), expected);
    assert!(Command::parse_queued(&argv(&["get"])).is_err());
    assert!(Command::parse_queued(&argv(&["no-such-command"])).is_err());
}

#[test]
fn a_write_is_not_executed_as_a_read() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "set k v");
    let before = snapshot(&kv);
    for compound in [
        pipeline(&["get k", "set k w"]),
        pipeline(&["getex k"]),
        transaction(&[("k", 1)], &["del k"]),
    ] {
        assert!(!compound.is_read());
        let mut reply = Vec::new();
        assert_eq!(
            kv.read(Timestamp(NOW), &compound.encode(), &mut reply),
            Err(NotARead)
        );
        assert!(reply.is_empty());
    }
    assert_eq!(snapshot(&kv), before);
    // A transaction of reads may be one.
    let reads = transaction(&[("k", version(&kv, NOW, "k"))], &["get k", "strlen k"]);
    let mut reply = Vec::new();
    assert!(reads.is_read());
    assert_eq!(kv.read(Timestamp(NOW), &reads.encode(), &mut reply), Ok(()));
    assert_eq!(shown(&reply), "*2|$1|v|:1|");
}

/// All keys that SCAN meets, `between` being executed after every page.
fn scan(kv: &mut Kv, options: &str, mut between: impl FnMut(&mut Kv)) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = run(kv, NOW, &format!("scan {cursor}{options}"));
        let mut parts = reply.split('|').skip(2).map(str::to_owned);
        cursor = parts.next().expect("a cursor");
        keys.extend(
            parts
                .skip(1)
                .filter(|part| !part.is_empty() && !part.starts_with('$')),
        );
        if cursor == "0" {
            return keys;
        }
        between(kv);
    }
}

#[test]
fn scan_meets_every_key_that_stays_and_each_once() {
    let mut kv = Kv::default();
    for i in 0..3000 {
        run(&mut kv, NOW, &format!("set stays{i} v"));
        run(&mut kv, NOW, &format!("set goes{i} v"));
    }
    for options in ["", " count 1", " count 700", " count 100000"] {
        let keys = scan(&mut kv, options, |_| {});
        assert_eq!(keys.len(), 6000, "{options}");
        assert_eq!(
            keys.into_iter().collect::<BTreeSet<_>>().len(),
            6000,
            "{options}"
        );
    }
    let mut i = 0;
    let keys = scan(&mut kv, " match stays* count 20", |kv| {
        for _ in 0..20 {
            run(kv, NOW, &format!("del goes{i}"));
            run(kv, NOW, &format!("set comes{i} v"));
            i += 1;
        }
    });
    assert_eq!(keys.len(), 3000);
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), 3000);
}

/// However the keys came in, and whatever the seeds of the process are.
#[test]
fn the_order_of_keys_depends_on_the_keys_alone() {
    let (mut a, mut b) = (Kv::default(), Kv::default());
    for i in 0..3000 {
        run(&mut a, NOW, &format!("set k{i} v"));
        run(&mut b, NOW, &format!("set k{} v", 2999 - i));
    }
    assert!(run(&mut a, NOW, "keys *") == run(&mut b, NOW, "keys *"));
    assert!(scan(&mut a, "", |_| {}) == scan(&mut b, "", |_| {}));
    assert_eq!(run(&mut a, NOW, "randomkey"), run(&mut b, NOW, "randomkey"));
}

#[test]
fn randomkey_does_not_always_answer_the_same_key() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "mset a 1 b 2 c 3 d 4");
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        seen.insert(run(&mut kv, NOW, "randomkey"));
        run(&mut kv, NOW, "incr a");
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn values_are_limited() {
    let mut kv = Kv::default();
    let error = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    let last = MAX_VALUE_LEN - 1;
    assert_eq!(
        run(&mut kv, NOW, &format!("setrange k {last} x")),
        format!(":{MAX_VALUE_LEN}|")
    );
    assert_eq!(run(&mut kv, NOW, &format!("setrange k {last} xy")), error);
    assert_eq!(
        run(&mut kv, NOW, &format!("setrange k {} x", i64::MAX)),
        error
    );
    assert_eq!(run(&mut kv, NOW, "append k x"), error);
    let long = Bytes::from(vec![0; MAX_VALUE_LEN + 1]);
    let argv = [Bytes::from_static(b"set"), Bytes::from_static(b"k"), long];
    assert!(Command::parse(&argv).is_err());
}

#[test]
fn footprints_name_what_is_touched() {
    assert!(footprint(&["set a 1"]).conflicts(&footprint(&["get a"])));
    assert!(footprint(&["mset a 1 b 2"]).conflicts(&footprint(&["incr b"])));
    assert!(footprint(&["rename a b"]).conflicts(&footprint(&["get a"])));
    assert!(footprint(&["copy a b"]).conflicts(&footprint(&["get b"])));
    assert!(!footprint(&["copy a b"]).conflicts(&footprint(&["get a"])));
    assert!(!footprint(&["set a 1"]).conflicts(&footprint(&["get b", "set c 1"])));
    assert!(!footprint(&["get a", "ttl a"]).conflicts(&footprint(&["mget a b"])));
    for line in ["flushall", "dbsize", "keys *", "scan 0", "randomkey"] {
        assert!(footprint(&[line]).everything, "{line}");
    }
    let mut watching = Footprint::default();
    let compound = transaction(&[("w", 1)], &["set a 1"]);
    Kv::default().footprint(&compound.encode(), &mut watching);
    assert!(
        watching.conflicts(&footprint(&["set w 1"])) && watching.conflicts(&footprint(&["get a"]))
    );
}

#[test]
fn the_table_names_the_commands() {
    assert!(knows(b"GeT") && !knows(b"multi"));
    let set = command_table()
        .iter()
        .find(|info| info.name == "mset")
        .expect("mset");
    assert_eq!(
        (set.arity, set.first_key, set.last_key, set.step),
        (-3, 1, -1, 2)
    );
}

#[test]
fn a_picture_comes_in_pieces_and_may_be_written_elsewhere() {
    let mut kv = Kv::default();
    for i in 0..4000 {
        run(&mut kv, NOW, &format!("setrange k{i} {} x", i % 500));
    }
    // Longer than a piece.
    run(&mut kv, NOW, "setrange long 3000000 x");
    run(&mut kv, NOW, "set gone x px 1");
    run(&mut kv, NOW + 1, "get gone");
    let (expected, mut picture) = (snapshot(&kv), kv.freeze());
    let writer = std::thread::spawn(move || {
        let mut pieces = vec![Vec::new()];
        while picture.write_some(pieces.last_mut().expect("a piece")) {
            pieces.push(Vec::new());
        }
        pieces
    });
    for i in 0..4000 {
        run(&mut kv, NOW + 1, &format!("append k{i} y"));
    }
    run(&mut kv, NOW + 1, "setrange long 5 yyy");
    let mut pieces = writer.join().expect("it does not panic");
    assert_eq!(
        pieces.pop(),
        Some(Vec::new()),
        "after the end nothing is written"
    );
    let (last, full) = pieces.split_last().expect("some pieces");
    assert!(
        full.len() > 10
            && full
                .iter()
                .all(|piece| (64 << 10..1 << 20).contains(&piece.len()))
    );
    assert!((1..1 << 20).contains(&last.len()));
    assert!(pieces.concat() == expected);
    assert_eq!(run(&mut kv, NOW + 1, "strlen k3999"), ":501|");
    assert_eq!(
        run(&mut kv, NOW + 1, "getrange long 4 8"),
        "$5|\\x00yyy\\x00|"
    );
}
