//! WATCH beside a model that does what Redis does: it marks a watched key when a client touches it.

use super::{NOW, apply, argv, command, run, snapshot};
use bytes::Bytes;
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Keys of different buckets, which the first test checks: what happens to one does not show in
/// another.
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

/// A and B are keys.
const FORMS: &[&str] = &[
    "set A v",
    "set A v nx",
    "set A v xx",
    "set A v px 3",
    "set A v exat 1",
    "append A x",
    "setrange A 0 ",
    "incr A",
    "getset A 1",
    "getdel A",
    "getex A",
    "getex A px 3",
    "getex A persist",
    "expire A 100",
    "pexpire A -1",
    "persist A",
    "del A B",
    "mset A 1 B 2",
    "msetnx A 1 B 2",
    "rename A B",
    "renamenx A B",
    "copy A B",
    "copy A B replace",
    "flushall",
    "get A",
];

/// What Redis knows of a key: its value and deadline, and how often it was touched.
#[derive(Default)]
struct Model {
    keys: BTreeMap<&'static str, (String, Option<u64>)>,
    touched: BTreeMap<&'static str, u32>,
}

impl Model {
    fn live(&self, now: u64, key: &str) -> bool {
        self.keys
            .get(key)
            .is_some_and(|(_, deadline)| deadline.is_none_or(|at| now < at))
    }

    fn put(&mut self, key: &'static str, value: &str, deadline: Option<u64>) {
        self.keys.insert(key, (value.to_owned(), deadline));
        *self.touched.entry(key).or_default() += 1;
    }

    fn remove(&mut self, now: u64, key: &'static str) {
        if self.live(now, key) {
            *self.touched.entry(key).or_default() += 1;
        }
        self.keys.remove(key);
    }

    fn execute(&mut self, now: u64, form: &str, a: &'static str, b: &'static str) {
        let (has_a, has_b) = (self.live(now, a), self.live(now, b));
        let (value, deadline) = if has_a {
            self.keys[a].clone()
        } else {
            (String::new(), None)
        };
        match form {
            "set A v" => self.put(a, "v", None),
            "set A v nx" if !has_a => self.put(a, "v", None),
            "set A v xx" if has_a => self.put(a, "v", None),
            "set A v px 3" => self.put(a, "v", Some(now + 3)),
            "set A v exat 1" => {
                self.put(a, "v", Some(1));
                self.keys.remove(a);
            }
            "append A x" => self.put(a, &(value + "x"), deadline),
            "incr A" if !has_a => self.put(a, "1", None),
            "incr A" => {
                if let Ok(number) = value.parse::<i64>() {
                    self.put(a, &(number + 1).to_string(), deadline);
                }
            }
            "getset A 1" => self.put(a, "1", None),
            "getdel A" => self.remove(now, a),
            "getex A px 3" if has_a => self.put(a, &value, Some(now + 3)),
            "getex A persist" | "persist A" if deadline.is_some() => self.put(a, &value, None),
            "expire A 100" if has_a => self.put(a, &value, Some(now + 100_000)),
            "pexpire A -1" => self.remove(now, a),
            "del A B" => {
                self.remove(now, a);
                self.remove(now, b);
            }
            "mset A 1 B 2" | "msetnx A 1 B 2" if form.starts_with("mset ") || !has_a && !has_b => {
                self.put(a, "1", None);
                self.put(b, "2", None);
            }
            "rename A B" | "renamenx A B"
                if has_a && a != b && (form.starts_with("rename ") || !has_b) =>
            {
                self.remove(now, a);
                self.put(b, &value, deadline);
            }
            "copy A B" if has_a && !has_b => self.put(b, &value, deadline),
            "copy A B replace" if has_a && a != b => self.put(b, &value, deadline),
            "flushall" => KEYS.into_iter().for_each(|key| self.remove(now, key)),
            _ => {}
        }
    }

    /// What WATCH remembers of a key: EXEC must find the same.
    fn seen(&self, now: u64, key: &str) -> (bool, u32) {
        (
            self.live(now, key),
            self.touched.get(key).copied().unwrap_or(0),
        )
    }
}

fn versions(kv: &Kv, now: u64, keys: &[&str]) -> Vec<u64> {
    let keys = keys
        .iter()
        .map(|key| Bytes::copy_from_slice(key.as_bytes()))
        .collect();
    let mut reply = Vec::new();
    kv.read(
        Timestamp(now),
        &Compound::Versions(keys).encode(),
        &mut reply,
    )
    .expect("versions are a read");
    let text = String::from_utf8(reply).expect("digits");
    text.split("\r\n")
        .filter_map(|line| line.strip_prefix(':')?.parse().ok())
        .collect()
}

/// Whether an EXEC that finds nothing to do is executed.
fn executes(kv: &mut Kv, now: u64, key: &str, version: u64) -> bool {
    let watched = vec![(Bytes::copy_from_slice(key.as_bytes()), version)];
    match &*apply(
        kv,
        now,
        &Compound::Transaction {
            watched,
            commands: vec![command("get x")],
        },
    ) {
        "*1|$-1|" => true,
        "*-1|" => false,
        other => panic!("EXEC answered {other}"),
    }
}

#[test]
fn a_key_that_came_and_went_stops_exec() {
    for gone in [
        "del k",
        "getdel k",
        "rename k other",
        "pexpire k 0",
        "flushall",
        "set k v exat 1",
    ] {
        let mut kv = Kv::default();
        let before = versions(&kv, NOW, &["k"])[0];
        run(&mut kv, NOW, "set k 10");
        run(&mut kv, NOW, gone);
        assert!(!executes(&mut kv, NOW, "k", before), "{gone}");
        let after = versions(&kv, NOW, &["k"])[0];
        assert!(executes(&mut kv, NOW, "k", after), "{gone}");
    }
    // By its time alone, whether it was removed yet or not.
    let mut kv = Kv::default();
    let before = versions(&kv, NOW, &["k"])[0];
    run(&mut kv, NOW, "set k 10 px 1");
    assert_ne!(
        versions(&kv, NOW + 1, &["k"])[0],
        before,
        "it lies there still"
    );
    assert!(!executes(&mut kv, NOW + 1, "k", before));
}

/// A snapshot knows what came and went, or a replica that took it would decide otherwise than the
/// others.
#[test]
fn what_came_and_went_is_in_the_snapshot() {
    let (mut kv, mut restored) = (Kv::default(), Kv::default());
    let before = versions(&kv, NOW, &["k"])[0];
    run(&mut kv, NOW, "set k 10");
    run(&mut kv, NOW, "del k");
    restored.restore(&snapshot(&kv)).expect("a snapshot");
    assert_eq!(versions(&restored, NOW, &["k"]), versions(&kv, NOW, &["k"]));
    assert!(!executes(&mut restored, NOW, "k", before));
}

/// A missing key shares its version with the keys of its bucket, so a client that watches one must
/// conflict with one that creates another. The memory for it does not grow with the keys that came
/// and went.
#[test]
fn keys_of_one_bucket_conflict_and_nothing_grows() {
    let bucket = |key: &str| {
        let mut footprint = Footprint::default();
        Kv::default().footprint(
            &Compound::Pipeline(vec![command(&format!("get {key}"))]).encode(),
            &mut footprint,
        );
        footprint.reads[0]
    };
    let buckets: Vec<_> = KEYS.iter().map(|key| bucket(key)).collect();
    assert!(
        (1..KEYS.len()).all(|i| !buckets[..i].contains(&buckets[i])),
        "the model's keys are independent"
    );
    let twin = (0..)
        .map(|i| format!("twin{i}"))
        .find(|key| bucket(key) == buckets[0])
        .expect("65,536 buckets");
    let mut kv = Kv::default();
    let before = versions(&kv, NOW, &["k0", "k1"]);
    run(&mut kv, NOW, &format!("set {twin} v"));
    let after = versions(&kv, NOW, &["k0", "k1"]);
    assert!(before[0] != after[0] && before[1] == after[1]);

    let mut len = 0;
    for round in 0..2000 {
        run(&mut kv, NOW, "mset k0 v k1 v k2 v k3 v");
        run(&mut kv, NOW, "del k0 k1 k2 k3");
        let now = snapshot(&kv).len();
        assert!(
            round == 0 || now == len,
            "the picture grew from {len} to {now}"
        );
        len = now;
    }
}

proptest! {
    /// EXEC is executed exactly when Redis executes it, whatever happened since WATCH, a restart
    /// from a snapshot included.
    #[test]
    fn exec_agrees_with_redis(
        lines in vec((0..3u64, proptest::sample::select(FORMS), 0..KEYS.len(), 0..KEYS.len()), 1..60),
        watch_at in 0..30usize,
        restore_at in 0..60usize,
    ) {
        let (mut kv, mut model, mut now) = (Kv::default(), Model::default(), NOW);
        let mut watched = None;
        for (i, (passed, form, a, b)) in lines.iter().enumerate() {
            if i == watch_at {
                watched = Some((versions(&kv, now, &KEYS), KEYS.map(|key| model.seen(now, key))));
            }
            if i == restore_at {
                let picture = snapshot(&kv);
                kv.restore(&picture).expect("a snapshot");
            }
            now += passed;
            let words: Vec<_> = form.split(' ').map(|word| match word {
                "A" => KEYS[*a],
                "B" => KEYS[*b],
                _ => word,
            }).collect();
            if let Ok(command) = Command::parse_queued(&argv(&words)) {
                apply(&mut kv, now, &Compound::Pipeline(vec![command]));
            }
            model.execute(now, form, KEYS[*a], KEYS[*b]);
            let Some((versions, seen)) = &watched else { continue };
            for ((key, version), seen) in KEYS.into_iter().zip(versions).zip(seen) {
                let executed = executes(&mut kv, now, key, *version);
                prop_assert_eq!(executed, model.seen(now, key) == *seen, "{} after {}", key, form);
            }
        }
    }
}
