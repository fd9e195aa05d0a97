//! The linearizability checker, on histories of a register (first 0) with the answer known: those
//! of the paper (compartmentalization 3.5), and random ones compared with trying every order.

use ionian_kernel::time::Timestamp;
use ionian_sim::linearizability::{Interval, Verdict, check};
use ionian_sim::model::Specification;
use proptest::prelude::*;
use std::fmt;

struct Register;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Write(u8),
    Read,
}
use Action::{Read, Write};

/// What a read returned; writes return nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answer(Option<u8>);

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Write(value) => write!(f, "w({value})"),
            Read => f.write_str("r()"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("OK"),
        }
    }
}

impl Specification for Register {
    type Action = Action;
    type Answer = Answer;
    type State = u8;

    fn is_read(action: &Action) -> bool {
        *action == Read
    }
    fn apply(state: &mut u8, action: &Action, _: Timestamp) -> Answer {
        match action {
            Write(value) => {
                *state = *value;
                Answer(None)
            }
            Read => Answer(Some(*state)),
        }
    }
}

type Raw = (u8, Action, u64, Option<(u64, Option<u8>)>);

fn intervals(raw: &[Raw]) -> Vec<Interval<Register>> {
    let interval = |(client, action, invoked, result): &Raw| Interval {
        client: format!("c{client}"),
        action: *action,
        at: Timestamp(0),
        invoked: *invoked,
        result: result.map(|(completed, answer)| (completed, Answer(answer))),
    };
    raw.iter().map(interval).collect()
}

fn verdict(raw: &[Raw]) -> Verdict {
    check(&intervals(raw), 1_000_000)
}

const OK: Option<u8> = None;

#[test]
fn figure_8_has_a_linearization() {
    let history = [
        (1, Write(0), 1, Some((3, OK))),
        (2, Write(1), 2, Some((4, OK))),
        (1, Read, 5, Some((6, Some(0)))),
    ];
    assert_eq!(verdict(&history), Verdict::Linearizable);
    // But not if w(0) had ended before w(1) began.
    let history = [
        (1, Write(0), 1, Some((2, OK))),
        (2, Write(1), 3, Some((4, OK))),
        (1, Read, 5, Some((6, Some(0)))),
    ];
    assert!(matches!(verdict(&history), Verdict::Violation(_)));
}

/// Both w(0) and w(1) of c1 and c2 come first, then c3's w(0), and then both read 1. (The text of
/// the paper that we have gives the operations of the figure and not their lengths.)
#[test]
fn figure_9_has_none() {
    let history = [
        (1, Write(0), 1, Some((3, OK))),
        (2, Write(1), 2, Some((4, OK))),
        (3, Write(0), 5, Some((6, OK))),
        (1, Read, 7, Some((9, Some(1)))),
        (2, Read, 8, Some((10, Some(1)))),
    ];
    let Verdict::Violation(table) = verdict(&history) else {
        panic!("accepted")
    };
    // The shortest prefix ends with the first read's answer; the other read is still open there.
    assert!(
        table.contains("c1             7-9  r()                    -> 1"),
        "{table}"
    );
    assert!(
        table.contains("c2           8-...  r()                    -> ?"),
        "{table}"
    );
}

#[test]
fn figures_10_and_14_need_a_pending_write_to_count_or_not() {
    for (answer, right) in [(0, true), (1, true), (2, false)] {
        let history = [
            (1, Write(1), 1, None),
            (2, Read, 2, Some((3, Some(answer)))),
        ];
        assert_eq!(verdict(&history) == Verdict::Linearizable, right);
    }
    // Once seen, it stays; and it may take effect between two reads.
    for (answers, right) in [([0, 1], true), ([1, 0], false), ([1, 1], true)] {
        let reads = answers.map(Some);
        let history = [
            (1, Write(1), 1, None),
            (2, Read, 2, Some((3, reads[0]))),
            (3, Read, 4, Some((5, reads[1]))),
        ];
        assert_eq!(
            verdict(&history) == Verdict::Linearizable,
            right,
            "{answers:?}"
        );
    }
}

#[test]
fn a_search_that_takes_too_long_is_given_up() {
    let writes = (0..20).map(|value| (1, Write(value), 1, Some((100, OK))));
    let history: Vec<Raw> = writes
        .chain([(2, Read, 101, Some((102, Some(77))))])
        .collect();
    assert_eq!(check(&intervals(&history), 1000), Verdict::Unknown(1000));
}

#[test]
fn long_histories_are_quick() {
    // 4000 operations, always eight at a time, more than one word of the set of those placed.
    let history: Vec<Raw> = (0..4000u64)
        .map(|turn| {
            let action = if turn % 2 == 0 {
                Write((turn % 250) as u8)
            } else {
                Read
            };
            let answer = if turn % 2 == 0 {
                OK
            } else {
                Some(((turn - 1) % 250) as u8)
            };
            (
                (turn % 8) as u8,
                action,
                turn * 10,
                Some((turn * 10 + 75, answer)),
            )
        })
        .collect();
    assert_eq!(verdict(&history), Verdict::Linearizable);
}

/// A list to which clients append: each order of the same appends is another state.
struct List;

impl Specification for List {
    type Action = u8;
    type Answer = String;
    type State = Vec<u8>;

    /// 0 reads.
    fn is_read(action: &u8) -> bool {
        *action == 0
    }
    fn apply(state: &mut Vec<u8>, action: &u8, _: Timestamp) -> String {
        match action {
            0 => format!("{state:?}"),
            _ => {
                state.push(*action);
                state.len().to_string()
            }
        }
    }
}

/// While a cluster does not answer, each client appends, and gives up. Then it answers again: of
/// nine appends one has taken effect, which is in a read at once, or after thirty more appends.
#[test]
fn appends_without_an_answer_cost_few_steps() {
    for executed in 1..10 {
        for read_at in [0, 30] {
            let interval = |action, invoked, result| Interval::<List> {
                client: "c".into(),
                action,
                at: Timestamp(0),
                invoked,
                result,
            };
            let mut history: Vec<Interval<List>> = (1..10)
                .map(|append| interval(append, u64::from(append), None))
                .collect();
            let mut state = Vec::new();
            List::apply(&mut state, &executed, Timestamp(0));
            for turn in 0..40 {
                let action = if turn == read_at { 0 } else { 100 + turn };
                let answer = List::apply(&mut state, &action, Timestamp(0));
                let begin = u64::from(turn) * 10 + 100;
                history.push(interval(action, begin, Some((begin + 5, answer))));
            }
            assert_eq!(
                check(&history, 10_000),
                Verdict::Linearizable,
                "append {executed}, read after {read_at}"
            );
        }
    }
}

/// Whether some order of the answered operations, with some of the open ones, respects time and
/// explains every answer: found by trying all of them.
fn some_order(history: &[Interval<Register>], order: &mut Vec<usize>) -> bool {
    let answered = (0..history.len()).filter(|operation| history[*operation].result.is_some());
    if answered.clone().all(|operation| order.contains(&operation)) && explains(history, order) {
        return true;
    }
    for operation in 0..history.len() {
        if !order.contains(&operation) {
            order.push(operation);
            if some_order(history, order) {
                return true;
            }
            order.pop();
        }
    }
    false
}

fn explains(history: &[Interval<Register>], order: &[usize]) -> bool {
    let mut state = 0;
    for (place, operation) in order.iter().enumerate() {
        let this = &history[*operation];
        let answer = Register::apply(&mut state, &this.action, Timestamp(0));
        if this
            .result
            .as_ref()
            .is_some_and(|(_, told)| *told != answer)
        {
            return false;
        }
        let late = order[place..].iter().any(|later| {
            history[*later]
                .result
                .as_ref()
                .is_some_and(|(completed, _)| *completed < this.invoked)
        });
        if late {
            return false;
        }
    }
    true
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![(0..3u8).prop_map(Write), Just(Read)]
}

/// Operations executed one after the other, each seen by its client around the moment of its
/// execution.
fn executed(most: usize) -> impl Strategy<Value = Vec<Raw>> {
    let operation = (0..4u8, action(), 0..40u64, 0..40u64, 0..8u8);
    prop::collection::vec(operation, 1..most).prop_map(|operations| {
        let mut state = 0;
        let mut history = Vec::new();
        for (turn, (client, action, before, after, fate)) in (10..).zip(operations) {
            let (invoked, completed) = (turn * 10 - before, turn * 10 + after);
            // Of eight, one never takes effect and one takes effect unheard of.
            let result = match fate {
                0 => None,
                _ => {
                    let Answer(answer) = Register::apply(&mut state, &action, Timestamp(0));
                    (fate > 1).then_some((completed, answer))
                }
            };
            history.push((client, action, invoked, result));
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_executed_in_some_order_is_accepted(history in executed(120)) {
        // Many operations without an answer at one time may take more steps than it has. That a
        // verdict is reached is the test of all orders, below.
        let verdict = verdict(&history);
        prop_assert!(matches!(verdict, Verdict::Linearizable | Verdict::Unknown(_)), "{verdict:?}");
    }

    #[test]
    fn a_read_of_what_was_never_written_is_rejected(mut history in executed(14), at in any::<prop::sample::Index>()) {
        let at = at.index(history.len());
        let end = history[at].2 + 5;
        history[at] = (0, Read, history[at].2, Some((end, Some(9))));
        let Verdict::Violation(table) = verdict(&history) else { panic!("accepted") };
        // It is in the shortest prefix, which ends with it.
        prop_assert!(table.contains("-> 9"));
        let ends = table.lines().filter_map(|line| line.split_whitespace().nth(1)?.split_once('-')?.1.parse::<u64>().ok());
        prop_assert_eq!(ends.max(), Some(end));
    }

    #[test]
    fn every_verdict_is_that_of_trying_all_orders(
        mut history in executed(6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8), 0..3),
    ) {
        for (at, value) in changes {
            let at = at.index(history.len());
            if let (_, Read, _, Some((_, answer))) = &mut history[at] {
                *answer = Some(value);
            }
        }
        let intervals = intervals(&history);
        let right = some_order(&intervals, &mut Vec::new());
        prop_assert_eq!(check(&intervals, 1_000_000) == Verdict::Linearizable, right);
    }
}
