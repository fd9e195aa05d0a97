//! What the commands of one compound may do together.

use crate::{NOW, apply, command, run, snapshot};
use ionian_kernel::guard::LogCommand;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Compound, Kv, answered};

const LARGE: u64 = 64 << 20;

fn transaction(lines: impl IntoIterator<Item = String>) -> Compound {
    Compound::Transaction {
        watched: Vec::new(),
        commands: lines.into_iter().map(|line| command(&line)).collect(),
    }
}

fn grow(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|at| format!("setrange k{at} {} x", LARGE - 1))
}

fn bytes(kv: &mut Kv, key: &str) -> u64 {
    let reply = run(kv, NOW, &format!("strlen {key}"));
    let digits = reply.trim_start_matches(':').trim_end_matches('|');
    digits.parse().expect("a number")
}

#[test]
fn a_transaction_grows_the_state_by_a_limited_amount() {
    let mut kv = Kv::default();
    let reply = apply(&mut kv, NOW, &transaction(grow(24)));
    // What makes the state grow is work, too, of which two of them leave none.
    assert_eq!(reply.matches("-ERR too much ").count(), 22, "{reply}");
    let total: u64 = (0..24).map(|at| bytes(&mut kv, &format!("k{at}"))).sum();
    assert_eq!(total, 2 * LARGE);
}

#[test]
fn growth_within_a_transaction_counts_against_the_limit_of_memory() {
    let mut kv = Kv::default();
    apply(&mut kv, NOW, &Compound::SetLimit(LARGE + LARGE / 2));
    let reply = apply(&mut kv, NOW, &transaction(grow(3)));
    assert_eq!(reply.matches("-OOM").count(), 2, "{reply}");
}

#[test]
fn values_are_moved_and_answered_a_limited_number_of_times() {
    let mut kv = Kv::default();
    run(&mut kv, NOW, &format!("setrange a {} x", LARGE - 1));
    let moves = (0..50).flat_map(|_| ["rename a b".to_owned(), "rename b a".to_owned()]);
    let reply = apply(&mut kv, NOW, &transaction(moves));
    assert_eq!(reply.matches("+OK").count(), 1, "{reply}");
    run(&mut kv, NOW, "rename b a");
    let gets = (0..50).map(|_| "getex a persist".to_owned());
    let mut reply = Vec::new();
    kv.apply(Timestamp(NOW), &transaction(gets).encode(), &mut reply);
    assert!((reply.len() as u64) < LARGE + (1 << 20));
}

#[test]
fn a_pipeline_stops_where_its_budget_ends_and_goes_on() {
    let mut kv = Kv::default();
    let mut lines: Vec<_> = grow(5).collect();
    let mut rounds = 0;
    while !lines.is_empty() {
        let commands = lines.iter().map(|line| command(line)).collect();
        let mut reply = Vec::new();
        let compound = Compound::Pipeline(commands).encode();
        kv.apply(Timestamp(NOW), &compound, &mut reply);
        let (done, replies) = answered(&reply.into());
        assert!(!replies.contains(&b'-'));
        lines.drain(..done.unwrap_or(lines.len()));
        rounds += 1;
    }
    assert_eq!(rounds, 3);
    assert!((0..5).all(|at| bytes(&mut kv, &format!("k{at}")) == LARGE));
}

#[test]
fn scan_ends_its_page_and_keys_is_refused() {
    let mut kv = Kv::default();
    for at in 0..1100 {
        run(&mut kv, NOW, &format!("set k{at} v"));
    }
    let reply = run(&mut kv, NOW, "scan 0 count 1000000");
    assert_eq!(reply.matches("|k").count(), 1000);
    // The search for a part behind a `*` takes several steps for each byte: few keys fit.
    for at in 0..20 {
        run(&mut kv, NOW, &format!("set {at}{} v", "a".repeat(9000)));
    }
    let hostile = format!("*{}b*", "a".repeat(15));
    let (mut cursor, mut pages, mut found) = ("0".to_owned(), 0, 0);
    loop {
        let reply = run(
            &mut kv,
            NOW,
            &format!("scan {cursor} match {hostile} count 1000"),
        );
        let mut lines = reply.split('|').skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        found += reply.matches("aaaaa").count();
        pages += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(pages > 2 && found == 0, "{pages} pages");
    let long = "a".repeat(1025);
    for line in [format!("keys {long}"), format!("scan 0 match {long}")] {
        assert!(run(&mut kv, NOW, &line).starts_with("-ERR the pattern is longer"));
    }
}

/// Programs of level 17 execute the same log.
#[test]
fn a_lower_level_knows_no_budget() {
    let compound = transaction(grow(3)).encode();
    let lengths = [Level(17), Level(18)].map(|level| {
        let (mut kv, mut reply) = (Kv::default(), Vec::new());
        let logged = LogCommand {
            slot: Slot(1),
            session: SessionId(1),
            number: 1,
            payload: &compound,
            level,
        };
        kv.apply_logged(Timestamp(NOW), &logged, &mut reply);
        snapshot(&kv).len() as u64 / LARGE
    });
    assert_eq!(lengths, [3, 2]);
}

#[test]
fn a_key_of_more_than_64_kib_matches_no_pattern_but_all() {
    let mut kv = Kv::default();
    for len in [1 << 16, (1 << 16) + 1] {
        run(&mut kv, NOW, &format!("set {} v", "a".repeat(len)));
    }
    let mut found = |line: &str| run(&mut kv, NOW, line).matches("|aaaa").count();
    for (pattern, expected) in [("*", 2), ("a*", 1), ("*a", 1)] {
        assert_eq!(found(&format!("keys {pattern}")), expected, "{pattern}");
        assert_eq!(
            found(&format!("scan 0 match {pattern}")),
            expected,
            "{pattern}"
        );
    }
}
