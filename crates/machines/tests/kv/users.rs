//! Users in the state of the machine: what was judged by earlier ones is refused, on every replica,
//! whatever it was restored from.

use crate::{NOW, argv, pipeline, shown};
use bytes::Bytes;
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::acl::{CommandId, Quota, Users};
use ionian_machines::kv::{self, Compound, Kv};
use proptest::prelude::*;

const OUTDATED: &[u8] = &[1];

fn set_user(line: &str) -> Compound {
    let mut words = argv(&line.split(' ').collect::<Vec<_>>());
    Compound::SetUser {
        name: words.remove(0),
        rules: words,
    }
}

fn apply_at(kv: &mut Kv, epoch: u64, compound: &Compound) -> Vec<u8> {
    let mut reply = Vec::new();
    let command = kv::judged_at(epoch, &compound.encode());
    kv.apply(Timestamp(NOW), &command, &mut reply);
    reply
}

fn read_at(kv: &Kv, epoch: u64, compound: &Compound) -> Vec<u8> {
    let mut reply = Vec::new();
    let query = kv::judged_at(epoch, &compound.encode());
    kv.read(Timestamp(NOW), &query, &mut reply).expect("a read");
    reply
}

fn users(kv: &Kv) -> Users {
    let reply = read_at(kv, 0, &Compound::Users { known: u64::MAX });
    kv::known_users(&reply.into())
        .expect("users")
        .expect("others than known")
}

fn snapshot(kv: &Kv) -> Vec<u8> {
    let mut out = Vec::new();
    kv.snapshot(&mut out);
    out
}

fn restored(snapshot: &[u8]) -> Kv {
    let mut kv = Kv::default();
    kv.restore(snapshot).expect("a snapshot");
    kv
}

#[test]
fn what_was_judged_by_earlier_users_is_not_executed() {
    let mut kv = Kv::default();
    let (set, get) = (pipeline(&["set k v"]), pipeline(&["get k"]));
    assert_eq!(apply_at(&mut kv, 0, &set), b"+OK\r\n");
    let plain = snapshot(&kv);
    assert_eq!(apply_at(&mut kv, 0, &set_user("u on ~a* +get")), b"+OK\r\n");
    for compound in [
        &set,
        &get,
        &set_user("u reset"),
        &Compound::Versions(vec![]),
    ] {
        assert_eq!(apply_at(&mut kv, 0, compound), OUTDATED);
    }
    assert_eq!(read_at(&kv, 0, &get), OUTDATED);
    assert!(kv::is_outdated(OUTDATED) && !kv::is_outdated(b"+OK\r\n"));
    assert_eq!(read_at(&kv, 1, &get), b"$1\r\nv\r\n");
    assert_eq!(apply_at(&mut kv, 1, &pipeline(&["set k w"])), b"+OK\r\n");
    let known = users(&kv);
    assert_eq!((known.epoch(), known.iter().len()), (1, 2));
    assert_eq!(read_at(&kv, 0, &Compound::Users { known: 1 }), b"");
    // What is refused changes nothing.
    let wrong = apply_at(&mut kv, 1, &set_user("u +set +nothing"));
    let text = "-ERR Error in ACL SETUSER modifier '+nothing': Unknown command or category name \
                in ACL\r\n";
    assert_eq!(shown(&wrong), shown(text.as_bytes()));
    assert_eq!(users(&kv), known);
    let delete = Compound::DeleteUsers(argv(&["u", "u", "none"]));
    assert_eq!(apply_at(&mut kv, 1, &delete), b":1\r\n");
    assert_eq!(apply_at(&mut kv, 2, &delete), b":0\r\n");
    assert_eq!(users(&kv).epoch(), 2);
    // Snapshots of clusters without users are as they always were.
    assert_eq!(plain[0], 3);
    assert_eq!(users(&restored(&plain)), Users::default());
}

#[test]
fn a_change_of_users_conflicts_with_everything() {
    let footprint = |compound: &Compound| {
        let mut footprint = Footprint::default();
        Kv::default().footprint(&compound.encode(), &mut footprint);
        footprint
    };
    let (set, get) = (
        footprint(&set_user("u on")),
        footprint(&pipeline(&["get k"])),
    );
    assert!(set.conflicts(&get) && get.conflicts(&set));
}

const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    "allkeys",
    "resetkeys",
    "~a*",
    "%R~b*",
    "%W~c",
    "%RW~*",
    "%R~*",
    "&x",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "+@read",
    "-@write",
    "+@string",
    "-@fast",
    "+get",
    "-set",
    "+client|list",
    "-client",
    "+select|0",
    "+nothing",
    "(~x +get)",
    "(%R~y* +@read -ttl)",
    "clearselectors",
    "sanitize-payload",
    "quota:commands=5",
    "QUOTA:connections=2",
    "quota:bytes=16384",
    "quota:flight=0",
    "quota:flight=77",
    "resetquota",
    "~(a)",
    "(~a)",
    "#aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

fn compound() -> impl Strategy<Value = Compound> {
    let name = || prop::sample::select(&["default", "a", "b", ""][..]);
    let rules = prop::collection::vec(prop::sample::select(RULES), 0..8);
    prop_oneof![
        6 => (name(), rules).prop_map(|(name, rules)| Compound::SetUser {
            name: name.into(),
            rules: rules.into_iter().map(Bytes::from).collect(),
        }),
        1 => name().prop_map(|name| Compound::DeleteUsers(vec![name.into()])),
        2 => Just(pipeline(&["incr n"])),
        1 => Just(pipeline(&["get n"])),
    ]
}

/// The encoding of all users: what is in snapshots, and what gateways fetch.
fn encoded(kv: &Kv) -> Vec<u8> {
    read_at(kv, 0, &Compound::Users { known: u64::MAX })
}

/// The encoding of these users and rules.
fn encoding(epoch: u64, users: &[(&str, &[&str])]) -> Vec<u8> {
    let put = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    };
    let mut out = epoch.to_le_bytes().to_vec();
    out.extend((users.len() as u32).to_le_bytes());
    for (name, rules) in users {
        put(&mut out, name);
        out.extend((rules.len() as u32).to_le_bytes());
        rules.iter().for_each(|rule| put(&mut out, rule));
    }
    out
}

#[test]
fn quotas_are_rules_that_are_encoded_only_if_they_are_set() {
    let mut kv = Kv::default();
    let default: (&str, &[&str]) = ("default", &["on", "nopass", "~*", "&*", "+@all"]);
    let rules = ["off", "~a", "resetchannels", "-@all", "+get"];
    apply_at(&mut kv, 0, &set_user("u ~a +get"));
    let begun = ["begun:1"];
    let without = |epoch| encoding(epoch, &[default, ("u", &[&rules[..], &begun].concat())]);
    assert_eq!(encoded(&kv), without(1));
    let line = "u quota:flight=7 (+set) Quota:Commands=5 quota:bytes=0";
    assert_eq!(apply_at(&mut kv, 1, &set_user(line)), b"+OK\r\n");
    let last = [
        "(resetchannels -@all +set)",
        "quota:commands=5",
        "quota:flight=7",
        "begun:1",
    ];
    let with = encoding(2, &[default, ("u", &[&rules[..], &last].concat())]);
    assert_eq!(encoded(&kv), with);
    let kept = restored(&snapshot(&kv));
    assert_eq!(encoded(&kept), with);
    let known = users(&kept);
    let quotas = known.get(b"u").expect("it was made").quotas();
    assert_eq!(
        [
            Quota::Connections,
            Quota::Commands,
            Quota::Bytes,
            Quota::Flight
        ]
        .map(|it| quotas.get(it)),
        [None, Some(5), None, Some(7)]
    );
    // They go as they came, one by one or together.
    apply_at(&mut kv, 2, &set_user("u quota:commands=0 clearselectors"));
    apply_at(&mut kv, 3, &set_user("u quota:flight=0"));
    assert_eq!(encoded(&kv), without(4));
    apply_at(&mut kv, 4, &set_user("u quota:connections=3"));
    apply_at(&mut kv, 5, &set_user("u resetquota"));
    assert_eq!(encoded(&kv), without(6));
    apply_at(&mut kv, 6, &set_user("u quota:connections=3 reset"));
    let reset = [
        "off",
        "sanitize-payload",
        "resetchannels",
        "-@all",
        "begun:1",
    ];
    assert_eq!(encoded(&kv), encoding(7, &[default, ("u", &reset)]));
    // A rule that is refused is named, with what is allowed, and nothing is changed.
    for (rule, allowed) in [
        (
            "quota:memory=5",
            "The quotas are quota:connections=N, quota:commands=N",
        ),
        (
            "quota:commands=5/s",
            "A quota is a number from 1 to 1099511627776, or 0",
        ),
    ] {
        let refused = apply_at(&mut kv, 7, &set_user(&format!("u quota:flight=5 {rule}")));
        let text = format!("-ERR Error in ACL SETUSER modifier '{rule}': {allowed}");
        assert!(shown(&refused).starts_with(&text), "{}", shown(&refused));
    }
    // No selector has quotas of its own.
    let refused = apply_at(&mut kv, 7, &set_user("u (quota:flight=5)"));
    assert!(
        shown(&refused).contains("Syntax error"),
        "{}",
        shown(&refused)
    );
    assert_eq!(users(&kv).epoch(), 7);
}

proptest! {
    /// One replica executes everything, the other is restored from a snapshot of itself after each
    /// command. Both answer the same, and have the same users, at each point. The epochs are those
    /// that gateways could have.
    #[test]
    fn users_are_the_same_on_a_replica_that_is_restored_at_every_point(
        compounds in prop::collection::vec((compound(), 0..2u64), 1..30),
    ) {
        let (mut one, mut other) = (Kv::default(), Kv::default());
        for (compound, late) in compounds {
            let present = users(&one).epoch();
            let epoch = present.saturating_sub(late);
            let reply = apply_at(&mut one, epoch, &compound);
            prop_assert_eq!(reply == OUTDATED, epoch < present);
            prop_assert_eq!(&reply, &apply_at(&mut other, epoch, &compound));
            prop_assert_eq!(snapshot(&one), snapshot(&other));
            other = restored(&snapshot(&other));
            prop_assert_eq!(&users(&one), &users(&other));
            for (name, user) in users(&other).iter() {
                let same = users(&one).get(name).map(|user| user.describe());
                prop_assert_eq!(same, Some(user.describe()));
            }
        }
    }
}

/// Random bytes, and bytes that are close to rules.
fn rule() -> impl Strategy<Value = Vec<u8>> {
    let close = &b"()()+-@~%&#!<>|:=*RWrwgetallON \t\r\n\0\xff019"[..];
    let known = (
        prop::sample::select(RULES),
        any::<prop::sample::Index>(),
        any::<u8>(),
    );
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..20),
        2 => prop::collection::vec(prop::sample::select(close), 0..12),
        2 => known.prop_map(|(rule, place, byte)| {
            let mut rule = rule.as_bytes().to_vec();
            let place = place.index(rule.len());
            rule[place] = byte;
            rule
        }),
        1 => prop::sample::select(RULES).prop_map(|rule| rule.as_bytes().to_vec()),
    ]
}

/// As an error shows it, which is one line.
fn in_an_error(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}

proptest! {
    /// Rules of any bytes change the user, which is the same elsewhere, or they change nothing and
    /// the error has the rule.
    #[test]
    fn any_bytes_are_rules_or_are_refused_by_name(
        name in prop_oneof![Just(b"u".to_vec()), prop::collection::vec(any::<u8>(), 0..4)],
        rules in prop::collection::vec(rule(), 0..6),
    ) {
        let mut kv = Kv::default();
        apply_at(&mut kv, 0, &set_user("u on ~a* (+get ~b)"));
        let before = encoded(&kv);
        let change = Compound::SetUser {
            name: name.clone().into(),
            rules: rules.iter().cloned().map(Bytes::from).collect(),
        };
        let reply = apply_at(&mut kv, 1, &change);
        if reply == b"+OK\r\n" {
            prop_assert_eq!(users(&kv).epoch(), 2);
            prop_assert_eq!(encoded(&restored(&snapshot(&kv))), encoded(&kv));
            return Ok(());
        }
        prop_assert_eq!(encoded(&kv), before);
        let error = String::from_utf8_lossy(&reply);
        prop_assert_eq!(error.find(['\r', '\n']), Some(error.len() - 2), "one line: {}", error);
        let begin = |text: &str| error.starts_with(&format!("-ERR {text}"));
        let named = rules.iter().filter(|rule| !rule.is_empty()).any(|rule| {
            let first = in_an_error(rule.split(|byte| *byte == b' ').next().unwrap_or(rule));
            let rule = in_an_error(rule);
            begin(&format!("Error in ACL SETUSER modifier '{rule}"))
                || error.contains(&format!("{rule}': "))
                || begin(&format!(
                    "Unmatched parenthesis in acl selector starting at '{first}'."
                ))
        });
        prop_assert!(named || begin("Usernames can't contain"), "{error}");
    }

    /// Neither random bytes nor damaged encodings panic, or make more than what is there.
    #[test]
    fn any_bytes_are_users_or_are_none(
        random in prop::collection::vec(any::<u8>(), 0..200),
        compounds in prop::collection::vec(compound(), 0..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut kv = Kv::default();
        for compound in compounds {
            let epoch = users(&kv).epoch();
            apply_at(&mut kv, epoch, &compound);
        }
        let (mut users, mut whole) = (encoded(&kv), snapshot(&kv));
        for (place, byte) in damage {
            let (of_users, of_whole) = (place.index(users.len()), place.index(whole.len()));
            (users[of_users], whole[of_whole]) = (byte, byte);
        }
        for bytes in [&random[..], &users, &[&users[..12], &random].concat()] {
            let mut rest = bytes;
            let Some(users) = Users::decode(&mut rest) else {
                continue;
            };
            prop_assert!(users.iter().len() * 8 <= bytes.len() - rest.len());
            users.iter().for_each(|(_, user)| drop((user.describe(), user.selectors())));
        }
        let mut other = Kv::default();
        if other.restore(&whole).is_err() {
            prop_assert_eq!(snapshot(&other), snapshot(&Kv::default()));
        }
    }
}

/// Numbers that promise more than follows: nothing is set aside for it.
#[test]
fn encodings_that_promise_more_than_they_have_are_none() {
    let (epoch, most) = (0u64.to_le_bytes(), u32::MAX.to_le_bytes());
    let one = 1u32.to_le_bytes();
    for rest in [
        &[most][..],
        &[one, most],
        &[one, [0; 4], most],
        &[one, [0; 4], one, most],
    ] {
        let bytes = [&epoch[..], &rest.concat()].concat();
        assert_eq!(Users::decode(&mut &bytes[..]), None, "{rest:?}");
    }
}

#[test]
fn users_and_rules_are_bounded() {
    let mut kv = Kv::default();
    let mut set = |name: &str, rules: &[&str]| {
        let epoch = users(&kv).epoch();
        let name = Bytes::from(name.to_owned());
        let rules = argv(rules);
        shown(&apply_at(
            &mut kv,
            epoch,
            &Compound::SetUser { name, rules },
        ))
    };
    assert_eq!(set("u", &["on"; 10_000]), "+OK|");
    assert_eq!(
        set("u", &["on"; 10_001]),
        "-ERR ACL SETUSER takes at most 10000 rules at once|"
    );
    let long = |len: usize| format!("~{}", "x".repeat(len - 1));
    assert_eq!(
        set("u", &[&long((64 << 10) + 1)]),
        "-ERR a rule has at most 65536 bytes|"
    );
    let too_many = "-ERR the rules of a user have at most 65536 bytes|";
    assert_eq!(set("u", &[&long(33_000), &long(33_001)]), too_many);
    // Each takes little room here, and more where it is described.
    assert_eq!(set("u", &["()"; 10_000]), too_many);
    let patterns: Vec<_> = (0..10_000).map(|number| format!("~{number}")).collect();
    let patterns: Vec<_> = patterns.iter().map(String::as_str).collect();
    assert_eq!(set("u", &patterns), too_many);
    // All users together.
    let most = long((64 << 10) - 100);
    let refused = (0..65).map(|number| set(&format!("large{number}"), &[&most]));
    let refused: Vec<_> = refused.filter(|reply| reply != "+OK|").collect();
    assert_eq!(
        refused,
        ["-ERR the rules of all users have at most 4194304 bytes|"]
    );
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let mut kv = Kv::default();
    let line = "u on +@all ~rw:* %R~r:* %W~w:* (+get ~extra) (-@all +set ~only) resetchannels";
    apply_at(&mut kv, 0, &set_user(line));
    let users = users(&kv);
    let user = users.get(b"u").expect("it was made");
    let may = |line: &str| {
        let words = argv(&line.split(' ').collect::<Vec<_>>());
        let info = kv::command_info(&words).expect("a command");
        let id: CommandId = info.id.with_subcommand(&words);
        user.check(id, &words, || info.keys(&words)).is_ok()
    };
    for (line, expected) in [
        ("get rw:1", true),
        ("get w:1", false),
        ("get extra", true),
        ("set extra 1", false),
        ("set only 1", true),
        ("set w:1 1", true),
        ("set w:1 1 get", false),
        ("set r:1 1", false),
        ("copy r:1 w:1", true),
        ("copy w:1 r:1", false),
        ("rename r:1 w:1", false),
        ("rename rw:1 w:1", true),
        ("mset w:1 1 w:2 1 r:1 1", false),
        ("mset w:1 1 w:2 1 rw:1 1", true),
        ("exists w:1 r:1", true),
        ("exists w:1 x", false),
        ("xread streams r:1 rw:1 0 0", true),
        ("xread streams r:1 w:1 0 0", false),
        ("xread count 1 block 5 streams w:1 0", false),
        ("xinfo stream w:1", false),
        ("xinfo help", true),
        ("keys *", true),
        ("flushall", true),
    ] {
        assert_eq!(may(line), expected, "{line}");
    }
}
