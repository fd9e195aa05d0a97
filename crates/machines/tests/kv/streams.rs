//! Streams: IDs from the time of the log, waiting, limits, snapshots.

use super::{NOW, apply, argv, command, pipeline, run, shown, snapshot};
use bytes::Bytes;
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};

fn query(kv: &Kv, command: Command) -> String {
    let mut reply = Vec::new();
    kv.read(
        Timestamp(NOW),
        &Compound::Pipeline(vec![command]).encode(),
        &mut reply,
    )
    .expect("a read");
    shown(&reply)
}

#[test]
fn the_time_of_the_log_gives_ids_that_ascend() {
    let mut kv = Kv::default();
    for (now, id) in [
        (NOW, format!("{NOW}-0")),
        (NOW, format!("{NOW}-1")),
        (NOW + 5, format!("{}-0", NOW + 5)),
        // The time of the log does not go back, but an ID may be ahead of it.
        (NOW, format!("{}-1", NOW + 5)),
    ] {
        let expected = format!("${}|{id}|", id.len());
        assert_eq!(run(&mut kv, now, "xadd s * f v"), expected);
    }
    run(&mut kv, NOW, "xadd s 18446744073709551615-7 f v");
    let reply = run(&mut kv, NOW, "xadd s * f v");
    assert_eq!(reply, "$22|18446744073709551615-8|");
}

#[test]
fn positions_have_no_gaps_and_are_never_given_twice() {
    let mut kv = Kv::default();
    let mut expected = 0;
    for round in 0..40 {
        for _ in 0..20 {
            expected += 1;
            let id = format!("0-{expected}");
            let reply = run(&mut kv, NOW + round, "xadd log 0-* e v");
            assert_eq!(reply, format!("${}|{id}|", id.len()));
        }
        // Whatever is trimmed.
        run(&mut kv, NOW, &format!("xtrim log maxlen {}", round % 7));
    }
    let reply = run(&mut kv, NOW, "xrange log (0-798 +");
    assert_eq!(
        reply,
        "*2|*2|$5|0-799|*2|$1|e|$1|v|*2|$5|0-800|*2|$1|e|$1|v|"
    );
}

/// As in Redis 7, XSETID goes back as far as the last entry that is there.
#[test]
fn xsetid_alone_has_a_position_given_twice() {
    let mut kv = Kv::default();
    let script = [
        ("xadd log 0-* e v", "$3|0-1|"),
        ("xadd log 0-* e v", "$3|0-2|"),
        ("xdel log 0-2", ":1|"),
        ("xadd log 0-* e v", "$3|0-3|"),
        ("xdel log 0-3", ":1|"),
        (
            "xsetid log 0-0",
            "-ERR The ID specified in XSETID is smaller than the target stream top item|",
        ),
        ("xsetid log 0-1", "+OK|"),
        ("xadd log 0-* e v", "$3|0-2|"),
        ("xtrim log maxlen 0", ":2|"),
        ("xadd log 0-* e v", "$3|0-3|"),
    ];
    for (line, reply) in script {
        assert_eq!(run(&mut kv, NOW, line), reply, "{line}");
    }
}

#[test]
fn xread_with_block_answers_what_its_caller_waits_for() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, "xadd a 0-* f v");
    run(&mut kv, NOW, "xadd a 0-* f v");
    let read = command("xread block 70 count 1 streams a b c $ 5 $");
    assert_eq!(read.block_ms(), Some(70));
    assert_eq!(query(&kv, read.clone()), "+0-2 5-0 0-0|");
    let read = read.read_after(b"0-2 5-0 0-0").expect("three IDs");
    for wrong in [&b""[..], b"0-2 5-0", b"0-2 5-0 0-0 1-1", b"0-2 5-0 $"] {
        assert_eq!(read.read_after(wrong), None);
    }
    let keys: Vec<Bytes> = ["a", "b", "c"].map(Bytes::from).into();
    assert_eq!(read.read_keys(), keys);
    let tails = Command::tails(keys);
    assert_eq!(query(&kv, tails.clone()), "*3|$3|0-2|$3|0-0|$3|0-0|");
    let is_at = |key: &str, id: &str| {
        read.reads_up_to(|name| {
            Some(Bytes::from(
                if name == key.as_bytes() { id } else { "0-0" }.to_owned(),
            ))
        })
    };
    assert!(!is_at("a", "0-2") && !is_at("b", "5-0") && !is_at("c", "0-0"));
    assert!(is_at("a", "0-3") && is_at("b", "5-1") && is_at("c", "0-1"));
    run(&mut kv, NOW, "xadd a 0-* f v");
    run(&mut kv, NOW, "set c string");
    assert_eq!(query(&kv, tails), "*3|$3|0-3|$3|0-0|$3|0-0|");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    assert_eq!(query(&kv, read.clone()), wrong);
    run(&mut kv, NOW, "del c");
    let found = "*2|$1|a|*1|*2|$3|0-3|*2|$1|f|$1|v|";
    assert_eq!(query(&kv, read.clone()), format!("*1|{found}"));
    let maps = read.clone().with_maps();
    assert_eq!(query(&kv, maps), format!("%1|{}", &found[3..]));
    assert_eq!(read.without_block().block_ms(), None);
}

#[test]
fn a_queued_xread_does_not_wait() {
    let words = argv(&["xread", "block", "0", "streams", "s", "$"]);
    let read = Command::parse_queued(&words).expect("a command");
    assert_eq!(query(&Kv::default(), read), "*-1|");
}

#[test]
fn footprints_name_the_streams() {
    let of = |line: &str| {
        let mut footprint = Footprint::default();
        Kv::default().footprint(&pipeline(&[line]).encode(), &mut footprint);
        footprint
    };
    let (a, b) = (of("get a").reads[0], of("get b").reads[0]);
    for (line, timed) in [
        ("xadd a * f v", true),
        ("xadd a 0-* f v", false),
        ("xtrim a maxlen 1", false),
        ("xdel a 1", false),
        ("xsetid a 1", false),
    ] {
        let footprint = of(line);
        assert_eq!((&footprint.writes[..], footprint.timed), (&[a][..], timed));
        assert!(
            footprint.reads.is_empty() && !footprint.everything,
            "{line}"
        );
    }
    for line in ["xlen a", "xrange a - +", "xinfo stream a"] {
        assert_eq!((of(line).reads, of(line).writes), (vec![a], vec![]));
    }
    assert_eq!(of("xread streams b a $ 0").reads, [b, a]);
}

#[test]
fn every_change_of_a_stream_makes_another_version() {
    let mut kv = Kv::default();
    let version = |kv: &Kv| {
        let mut reply = Vec::new();
        let versions = Compound::Versions(vec![Bytes::from("s")]).encode();
        kv.read(Timestamp(NOW), &versions, &mut reply)
            .expect("a read");
        shown(&reply)
    };
    let mut versions = vec![version(&kv)];
    for line in [
        "xadd s 0-* f v",
        "xadd s 0-* f v",
        "xdel s 0-1",
        "xtrim s maxlen 0",
        "xsetid s 7",
        "pexpire s 1000",
        "set s v",
        "del s",
        "xadd s 0-* f v",
    ] {
        run(&mut kv, NOW, line);
        versions.push(version(&kv));
    }
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 10, "no two are equal");
    let last = version(&kv);
    for line in [
        "xadd s 0-1 f v",
        "xdel s 9",
        "xtrim s maxlen 5",
        "append s x",
    ] {
        run(&mut kv, NOW, line);
        assert_eq!(version(&kv), last, "{line} changes nothing");
    }
}

/// A stream `s` of nine entries, each of 8 MiB.
fn large() -> Kv {
    let mut kv = Kv::default();
    let large = "x".repeat(8 << 20);
    for _ in 0..9 {
        let words = argv(&["xadd", "s", "0-*", "f", &large]);
        let add = Command::parse(&words).expect("a command");
        apply(&mut kv, NOW, &Compound::Pipeline(vec![add]));
    }
    kv
}

/// The first and the last bytes of a reply, which has at most 64 MiB.
fn ends(kv: &Kv, line: &str) -> (String, String) {
    let mut reply = Vec::new();
    let query = pipeline(&[line]).encode();
    kv.read(Timestamp(NOW), &query, &mut reply).expect("a read");
    assert!(reply.len() <= 64 << 20, "{} bytes", reply.len());
    let len = reply.len().min(80);
    (shown(&reply[..len]), shown(&reply[reply.len() - len..]))
}

/// So a subscriber goes on whatever has piled up.
#[test]
fn xread_gives_the_entries_for_which_there_is_room() {
    let mut kv = large();
    run(&mut kv, NOW, "xadd t 0-* f v");
    let (first, last) = ends(&kv, "xread streams s t 0 0");
    assert!(first.starts_with("*2|*2|$1|s|*7|*2|$3|0-1|"), "{first}");
    let small = "|*2|$1|t|*1|*2|$3|0-1|*2|$1|f|$1|v|";
    assert!(last.ends_with(small), "{last}");
    let (first, _) = ends(&kv, "xread block 0 streams t s 0 0-3");
    assert!(first.contains("|*2|$1|s|*6|*2|$3|0-4|"), "{first}");
    // Of what has no room nothing is read.
    let (first, _) = ends(&kv, "xread streams s s 0-2 0-2");
    assert!(first.starts_with("*1|*2|$1|s|*7|*2|$3|0-3|"), "{first}");
}

/// Its memory is shared only until the next restart.
#[test]
fn copy_of_a_stream_larger_than_a_value_is_refused() {
    let mut kv = large();
    let refusal = "-ERR the stream is larger than 64 MiB, the most that COPY copies|";
    assert_eq!(run(&mut kv, NOW, "copy s t"), refusal);
    assert_eq!(run(&mut kv, NOW, "exists t"), ":0|");
    assert_eq!(run(&mut kv, NOW, "rename s r"), "+OK|");
    let mut restored = Kv::default();
    restored.restore(&snapshot(&kv)).expect("its own snapshot");
    assert_eq!(run(&mut restored, NOW, "copy r t"), refusal);
    for line in ["xtrim r maxlen 8", "xdel r 0-5"] {
        assert_eq!(run(&mut kv, NOW, line), ":1|");
    }
    assert_eq!(run(&mut kv, NOW, "copy r t"), ":1|");
    assert_eq!(run(&mut kv, NOW, "xlen t"), ":7|");
}

#[test]
fn an_entry_that_no_reply_has_room_for_is_refused() {
    let mut kv = Kv::default();
    let mut add = |len: usize| {
        let words = argv(&["xadd", "s", "0-*", "f", &"x".repeat(len)]);
        let add = Command::parse(&words).expect("a command");
        apply(&mut kv, NOW, &Compound::Pipeline(vec![add]))
    };
    let refusal = "-ERR Elements are too large to be stored|";
    let most = (64 << 20) - (128 << 10);
    assert_eq!(add(most - 100), refusal);
    assert_eq!(add(most - 200), "$3|0-1|");
    let (first, _) = ends(&kv, "xread streams s 0");
    assert!(first.starts_with("*1|*2|$1|s|*1|*2|$3|0-1|"), "{first}");
    let (first, _) = ends(&kv, "xrange s - +");
    assert!(first.starts_with("*1|*2|$3|0-1|"), "{first}");
}

#[test]
fn a_reply_is_refused_if_it_would_be_too_large() {
    let mut kv = large();
    let refusal = "-ERR the reply would be larger than 64 MB, ask for less at once|";
    for line in ["xrange s - +", "xrevrange s + -"] {
        assert_eq!(run(&mut kv, NOW, line), refusal, "{line}");
    }
    let few = run(&mut kv, NOW, "xrange s - + count 7");
    assert!(few.starts_with("*7|") && few.len() < 64 << 20);
}

/// Streams that are long, empty, trimmed and deleted from, and one that expires.
fn filled() -> Kv {
    let mut kv = Kv::default();
    for i in 0..3000 {
        run(&mut kv, NOW, &format!("xadd long 0-* field value-{i}"));
    }
    for line in [
        "xtrim long minid 0-200",
        "xdel long 0-1000 0-3000 0-77",
        "xadd empty maxlen 0 5-5 f v",
        "xadd soon 1-1 f v g w",
        "pexpire soon 1000",
        "set string value",
    ] {
        run(&mut kv, NOW, line);
    }
    kv
}

#[test]
fn a_restored_stream_goes_on_as_the_one_that_was_saved() {
    let mut kv = filled();
    let saved = snapshot(&kv);
    let mut restored = Kv::default();
    restored.restore(&saved).expect("its own snapshot");
    let mut parts = Vec::new();
    let mut frozen = kv.freeze();
    while frozen.write_some(&mut parts) {}
    assert!(parts == saved && snapshot(&restored) == saved);
    for line in [
        "xinfo stream long",
        "xinfo stream empty",
        "xrange soon - +",
        "pttl soon",
        "xadd long 0-* f v",
        "xadd empty 5-* f v",
        "xrevrange long + - count 3",
        "xtrim long maxlen ~ 1000",
        "xlen long",
        "get string",
    ] {
        assert_eq!(run(&mut restored, NOW, line), run(&mut kv, NOW, line));
    }
    assert!(snapshot(&restored) == snapshot(&kv));
}

/// Snapshots of format 2, which had no streams.
#[test]
fn a_snapshot_of_the_format_before_is_read() {
    // What the version before wrote after `set k value`.
    let saved = b"\x02\x01\0\0\0\0\0\0\0\x01\x17\x18\x01\0\0\0\0\0\0\0\
        \0\x01\0\0\0k\x05\0\0\0value\xe5\xf4\x47\x91\xcc\x5f\x40\x19\0\0\0\0\0\0\0\0";
    let mut restored = Kv::default();
    restored.restore(saved).expect("the format before");
    assert_eq!(run(&mut restored, NOW, "get k"), "$5|value|");
    let again = snapshot(&restored);
    assert!(again[0] == 3 && again[1..] == saved[1..]);
    // It cannot have a stream.
    let mut saved = snapshot(&filled());
    saved[0] = 2;
    let error = Kv::default().restore(&saved).expect_err("a stream");
    assert!(error.0.contains("unknown part"), "{error:?}");
    saved[0] = 6;
    let error = Kv::default().restore(&saved).expect_err("a later format");
    assert!(error.0.contains("format"), "{error:?}");
}

#[test]
fn a_damaged_snapshot_of_streams_is_refused_or_is_another_state() {
    let mut kv = Kv::default();
    for line in ["xadd s 0-* f v", "xadd s 5-5 f v g w", "xdel s 0-1"] {
        run(&mut kv, NOW, line);
    }
    let saved = snapshot(&kv);
    for len in 0..saved.len() {
        // The first bytes are the whole of an empty store.
        let cut = Kv::default().restore(&saved[..len]);
        assert!(cut.is_err() || len == 9 || len == 20, "{len} bytes");
    }
    for at in 0..saved.len() {
        for bit in 0..8 {
            let mut damaged = saved.clone();
            damaged[at] ^= 1 << bit;
            let mut kv = Kv::default();
            if kv.restore(&damaged).is_ok() {
                let again = snapshot(&kv);
                run(&mut kv, NOW, "xrange s - +");
                run(&mut kv, NOW, "xadd s * f v");
                assert_eq!(again, damaged, "byte {at}, bit {bit}");
            }
        }
    }
}
