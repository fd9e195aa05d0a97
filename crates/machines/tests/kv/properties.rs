//! What holds for any commands.

use super::in_parts::replies_in_parts;
use super::{NOW, argv, snapshot};
use bytes::Bytes;
use ionian_kernel::machine::{Footprint, Parts, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Few keys, so that commands meet.
fn key() -> impl Strategy<Value = String> {
    (0..5).prop_map(|i| format!("k{i}"))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        (-20i64..20).prop_map(|i| i.to_string()),
        "[a-z]{0,6}",
        Just("1.5".to_owned())
    ]
}

/// Commands over keys, values and numbers.
const FORMS: &[&str] = &[
    "get K",
    "mget K K",
    "exists K K",
    "strlen K",
    "getrange K N N",
    "ttl K",
    "pttl K",
    "expiretime K",
    "type K",
    "object encoding K",
    "memory usage K",
    "dbsize",
    "keys k[0-2]",
    "scan 0",
    "scan N count 1 match k*",
    "randomkey",
    "set K V",
    "set K V nx get",
    "set K V xx keepttl",
    "set K V px N",
    "setnx K V",
    "psetex K N V",
    "getset K V",
    "getdel K",
    "getex K px N",
    "getex K persist",
    "getex K ex V",
    "mset K V K V",
    "msetnx K V K V",
    "del K K",
    "incr K",
    "decrby K N",
    "incrbyfloat K V",
    "append K V",
    "setrange K N V",
    "pexpire K N",
    "pexpire K N gt",
    "pexpire K N lt",
    "persist K",
    "rename K K",
    "renamenx K K",
    "copy K K replace",
    "copy K K",
    "flushall",
    "xadd K 0-* V V",
    "xadd K * V V",
    "xadd K N V V",
    "xadd K maxlen N 0-* V V",
    "xadd K nomkstream minid N * V V",
    "xtrim K maxlen N",
    "xdel K N N",
    "xsetid K N",
    "xlen K",
    "xrange K - +",
    "xrevrange K + - count N",
    "xread streams K K N N",
    "xread streams K $",
    "xinfo stream K",
    "scan 0 type stream",
    "nonsense V",
];

/// The words of a command, most of them well formed.
fn words() -> impl Strategy<Value = Vec<String>> {
    (
        0..FORMS.len(),
        vec(key(), 2),
        vec(value(), 2),
        vec(-5i64..100, 2),
    )
        .prop_map(|(form, keys, values, numbers)| {
            let (mut keys, mut values) = (keys.into_iter(), values.into_iter());
            let mut numbers = numbers.into_iter().map(|number| number.to_string());
            let fill = |word: &str| match word {
                "K" => keys.next(),
                "V" => values.next(),
                "N" => numbers.next(),
                _ => Some(word.to_owned()),
            };
            FORMS[form].split(' ').filter_map(fill).collect()
        })
}

fn parsed(words: &[String]) -> Option<Command> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    Command::parse_queued(&argv(&words)).ok()
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    vec(words(), 0..4).prop_map(|lines| lines.iter().filter_map(|words| parsed(words)).collect())
}

fn bytes() -> impl Strategy<Value = Bytes> {
    key().prop_map(Bytes::from)
}

fn compound() -> impl Strategy<Value = Compound> {
    prop_oneof![
        6 => commands().prop_map(Compound::Pipeline),
        1 => (vec((bytes(), 0..2u64), 0..2), commands())
            .prop_map(|(watched, commands)| Compound::Transaction { watched, commands }),
        1 => vec(bytes(), 0..3).prop_map(Compound::Versions),
        1 => (0..2000u64).prop_map(Compound::SetLimit),
        1 => Just(Compound::Measure),
        1 => Just(Compound::Room),
    ]
}

/// Compounds, each with the time that passes before it.
fn history() -> impl Strategy<Value = Vec<(u64, Compound)>> {
    vec((0..40u64, compound()), 0..60)
}

fn replies(kv: &mut Kv, now: &mut u64, history: &[(u64, Compound)]) -> Vec<Vec<u8>> {
    let reply = |(passed, compound): &(u64, Compound)| {
        *now += passed;
        let (mut applied, mut read) = (Vec::new(), Vec::new());
        if compound.is_read() {
            kv.read(Timestamp(*now), &compound.encode(), &mut read)
                .expect("a read");
        }
        kv.apply(Timestamp(*now), &compound.encode(), &mut applied);
        assert!(
            !compound.is_read() || read == applied,
            "a read answers what the log would"
        );
        applied
    };
    history.iter().map(reply).collect()
}

/// The commands of a history and their times.
fn timed(history: &[(u64, Compound)]) -> Vec<(u64, Vec<u8>)> {
    let mut now = NOW;
    let timed = history.iter().map(|(passed, compound)| {
        now += passed;
        (now, compound.encode())
    });
    timed.collect()
}

/// The replies of a machine that keeps a sorted map and removes what has expired at once.
#[derive(Default)]
struct Model(BTreeMap<String, (String, Option<u64>)>);

impl Model {
    fn execute(&mut self, now: u64, words: &[String]) -> Option<String> {
        self.0
            .retain(|_, (_, deadline)| deadline.is_none_or(|deadline| now < deadline));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let bulk = |value: Option<&(String, Option<u64>)>| match value {
            Some((value, _)) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".to_owned(),
        };
        let deadline = |amount: &str| now.checked_add(amount.parse().ok()?).filter(|at| *at > now);
        Some(match words[..] {
            ["get", key] => bulk(self.0.get(key)),
            ["strlen", key] => format!(":{}\r\n", self.0.get(key).map_or(0, |(v, _)| v.len())),
            ["dbsize"] => format!(":{}\r\n", self.0.len()),
            ["pttl", key] => match self.0.get(key) {
                None => ":-2\r\n".to_owned(),
                Some((_, None)) => ":-1\r\n".to_owned(),
                Some((_, Some(deadline))) => format!(":{}\r\n", deadline - now),
            },
            ["set", key, value] => {
                self.0.insert(key.to_owned(), (value.to_owned(), None));
                "+OK\r\n".to_owned()
            }
            ["set", key, value, "px", amount] => match deadline(amount) {
                Some(at) => {
                    self.0.insert(key.to_owned(), (value.to_owned(), Some(at)));
                    "+OK\r\n".to_owned()
                }
                None => "-ERR invalid expire time in 'set' command\r\n".to_owned(),
            },
            ["append", key, more] => {
                let (value, _) = self.0.entry(key.to_owned()).or_default();
                value.push_str(more);
                format!(":{}\r\n", value.len())
            }
            ["pexpire", key, amount] => {
                let found = self.0.contains_key(key);
                match (deadline(amount), self.0.get_mut(key)) {
                    (Some(at), Some(entry)) => entry.1 = Some(at),
                    _ => drop(self.0.remove(key)),
                }
                format!(":{}\r\n", u8::from(found))
            }
            ["persist", key] => {
                let had = self.0.get_mut(key).and_then(|entry| entry.1.take());
                format!(":{}\r\n", u8::from(had.is_some()))
            }
            ["del", a, b] => {
                let count = [a, b]
                    .iter()
                    .filter(|key| self.0.remove(**key).is_some())
                    .count();
                format!(":{count}\r\n")
            }
            ["getdel", key] => bulk(self.0.remove(key).as_ref()),
            ["rename", from, to] => match self.0.remove(from) {
                Some(entry) => {
                    self.0.insert(to.to_owned(), entry);
                    "+OK\r\n".to_owned()
                }
                None => "-ERR no such key\r\n".to_owned(),
            },
            ["flushall"] => {
                self.0.clear();
                "+OK\r\n".to_owned()
            }
            _ => return None,
        })
    }
}

/// Commands that do not conflict have the same effect in either order: replies, values, versions.
/// Every two commands are tried, with keys in common and without.
#[test]
fn what_does_not_conflict_commutes() {
    let footprint = |compound: &Compound| {
        let mut footprint = Footprint::default();
        Kv::default().footprint(&compound.encode(), &mut footprint);
        footprint
    };
    let mut before = Kv::default();
    let setup = "mset k0 0 k1 1 k2 2";
    before.apply(
        Timestamp(NOW),
        &filled(setup, &[]).encode(),
        &mut Vec::new(),
    );
    let before = snapshot(&before);
    let mut tried = 0;
    let lists = [["k0", "k1"], ["k1", "k0"], ["k2", "k3"], ["k3", "k0"]];
    for (x, y) in FORMS.iter().flat_map(|x| FORMS.iter().map(move |y| (x, y))) {
        // Those of the other two are these with other names.
        let of_x = [&lists[0], &lists[3]].into_iter();
        for (of_x, of_y) in of_x.flat_map(|x| lists.iter().map(move |y| (x, y))) {
            let (x, y) = (filled(x, of_x), filled(y, of_y));
            if footprint(&x).conflicts(&footprint(&y)) {
                continue;
            }
            let run = |first: &Compound, second: &Compound| {
                let mut kv = Kv::default();
                kv.restore(&before).expect("a snapshot");
                let both = [(0, first.clone()), (0, second.clone())];
                (replies(&mut kv, &mut NOW.clone(), &both), snapshot(&kv))
            };
            let ((in_order, state), (mut reversed, same_state)) = (run(&x, &y), run(&y, &x));
            reversed.reverse();
            assert_eq!((in_order, state), (reversed, same_state), "{x:?} and {y:?}");
            tried += 1;
        }
    }
    assert!(tried > 1000);
}

/// The command of a form, over the given keys.
fn filled(form: &str, keys: &[&str]) -> Compound {
    let mut keys = keys.iter().copied();
    let words = form.split(' ').filter_map(|word| match word {
        "K" => keys.next(),
        "V" => Some("5"),
        "N" => Some("20"),
        _ => Some(word),
    });
    let words: Vec<_> = words.map(str::to_owned).collect();
    Compound::Pipeline(parsed(&words).into_iter().collect())
}

proptest! {
    /// The decoder is seen from the outside only: what is encoded must be executed as what it was.
    #[test]
    fn agrees_with_a_simple_model(lines in vec((0..40u64, words()), 0..200)) {
        let (mut kv, mut model, mut now) = (Kv::default(), Model::default(), NOW);
        for (passed, words) in lines {
            now += passed;
            let Some(expected) = model.execute(now, &words) else { continue };
            let mut reply = Vec::new();
            let reply_now = match parsed(&words) {
                Some(command) => {
                    kv.apply(Timestamp(now), &Compound::Pipeline(vec![command]).encode(), &mut reply);
                    String::from_utf8_lossy(&reply).into_owned()
                }
                None => String::new(),
            };
            prop_assert_eq!(reply_now, expected, "{:?}", words);
        }
    }

    /// Neither the hash seeds of a process nor anything else of it shows.
    #[test]
    fn two_replicas_agree(history in history()) {
        let (mut a, mut b) = (Kv::default(), Kv::default());
        let (of_a, of_b) = (replies(&mut a, &mut NOW.clone(), &history), replies(&mut b, &mut NOW.clone(), &history));
        prop_assert_eq!(of_a, of_b);
        prop_assert_eq!(snapshot(&a), snapshot(&b));
        prop_assert_eq!(a.next_deadline(Timestamp(NOW)), b.next_deadline(Timestamp(NOW)));
    }

    #[test]
    fn a_machine_in_parts_answers_as_a_whole_one(history in history(), count in 1..70usize) {
        let (mut whole, mut parts) = (Kv::default(), Kv::default());
        prop_assert_eq!(
            replies(&mut whole, &mut NOW.clone(), &history),
            replies_in_parts(&mut parts, count, &timed(&history))
        );
        prop_assert_eq!(snapshot(&whole), snapshot(&parts));
        parts.divide(1);
        prop_assert_eq!(snapshot(&whole), snapshot(&parts));
    }

    #[test]
    fn a_restored_replica_goes_on_as_the_other(before in history(), after in history()) {
        let (mut a, mut b) = (Kv::default(), Kv::default());
        let mut now = NOW;
        replies(&mut a, &mut now, &before);
        let picture = snapshot(&a);
        prop_assert_eq!(b.restore(&picture), Ok(()));
        prop_assert_eq!(snapshot(&b), picture);
        prop_assert_eq!(a.next_deadline(Timestamp(now)), b.next_deadline(Timestamp(now)));
        prop_assert_eq!(replies(&mut a, &mut now.clone(), &after), replies(&mut b, &mut now, &after));
        prop_assert_eq!(snapshot(&a), snapshot(&b));
    }

    #[test]
    fn the_length_of_an_encoding_is_known(commands in commands()) {
        let sum: usize = commands.iter().map(Command::encoded_len).sum();
        let count = if commands.len() < 128 { 1 } else { 2 };
        prop_assert_eq!(Compound::Pipeline(commands).encode().len(), sum + 2 + count);
    }

    #[test]
    fn garbage_is_answered(mut garbage in vec(any::<u8>(), 0..200), kind in 0..4u8) {
        if let [format, tag, ..] = &mut garbage[..] && kind < 3 {
            (*format, *tag) = (2, kind);
        }
        let (mut kv, mut reply) = (Kv::default(), Vec::new());
        kv.footprint(&garbage, &mut Footprint::default());
        let _ = kv.read(Timestamp(NOW), &garbage, &mut reply);
        kv.apply(Timestamp(NOW), &garbage, &mut reply);
        let _ = kv.restore(&garbage);
    }

    /// Garbage that is almost a command gets further.
    #[test]
    fn damaged_commands_are_answered(
        compound in compound(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
    ) {
        let mut damaged = compound.encode();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        if cut {
            damaged.truncate(at);
        }
        let (mut kv, mut reply) = (Kv::default(), Vec::new());
        kv.footprint(&damaged, &mut Footprint::default());
        let _ = kv.read(Timestamp(NOW), &damaged, &mut reply);
        kv.apply(Timestamp(NOW), &damaged, &mut reply);
        prop_assert!(!cut || reply.starts_with(b"-ERR malformed"));
    }

    /// A damaged snapshot is refused or restored, and what was restored writes itself again.
    #[test]
    fn damaged_snapshots_do_no_harm(
        history in history(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let (mut kv, mut now) = (Kv::default(), NOW);
        replies(&mut kv, &mut now, &history);
        let mut damaged = snapshot(&kv);
        let before = damaged.clone();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        if kv.restore(&damaged).is_ok() {
            prop_assert!(snapshot(&kv) == damaged);
        } else {
            prop_assert!(snapshot(&kv) == before);
        }
    }
}
