//! The B+-tree service from the outside: as the log sees it.

#[path = "../common/in_parts.rs"]
mod in_parts;

use in_parts::replies_in_parts;
use ionian_kernel::machine::{Footprint, NotARead, Parts, StateMachine};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_machines::tree::{
    Command, MAX_SCAN, Partitioned, Published, Reply, Table, Tree, TreeStore, kind,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp(1);

/// Keys near each other, which meet, and two at the ends.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..400_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => key().prop_map(|key| Command::Read { key }),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Command::Update { key, value }),
        3 => (key(), any::<u64>()).prop_map(|(key, value)| Command::Insert { key, value }),
        5 => key().prop_map(|key| Command::Delete { key }),
        1 => (key(), key(), 0..500_u32)
            .prop_map(|(from, to, limit)| Command::Scan { from, to, limit }),
        1 => Just(Command::Count),
    ]
}

/// A history: many keys, so that leaves are split, then all kinds of commands.
fn history() -> impl Strategy<Value = Vec<Command>> {
    let filled = (0..400_u64, any::<bool>()).prop_map(|(count, is_ascending)| {
        let key = move |i| if is_ascending { i } else { count - i };
        (0..count)
            .map(move |i| Command::Insert {
                key: key(i),
                value: i,
            })
            .collect()
    });
    (filled, vec(command(), 0..300)).prop_map(|(mut filled, commands): (Vec<_>, _)| {
        filled.extend(commands);
        filled
    })
}

fn encoded(history: &[Command]) -> Vec<(u64, Vec<u8>)> {
    history
        .iter()
        .map(|command| (NOW.0, command.encode()))
        .collect()
}

fn apply<T: Table>(store: &mut TreeStore<T>, command: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    store.apply(NOW, command, &mut reply);
    reply
}

fn reply<T: Table>(store: &mut TreeStore<T>, command: &Command) -> Reply {
    Reply::decode(&apply(store, &command.encode())).expect("a reply")
}

fn snapshot<T: Table>(store: &TreeStore<T>) -> Vec<u8> {
    let mut out = Vec::new();
    store.snapshot(&mut out);
    out
}

/// A store with these keys, and values that are ten times as large.
fn filled(keys: std::ops::Range<u64>) -> TreeStore<Published> {
    let mut store = TreeStore::default();
    keys.for_each(|key| {
        reply(
            &mut store,
            &Command::Insert {
                key,
                value: 10 * key,
            },
        );
    });
    store
}

/// The reply of a sorted map.
fn expected(model: &mut BTreeMap<u64, u64>, command: &Command) -> Reply {
    match *command {
        Command::Read { key } => model
            .get(&key)
            .map_or(Reply::NotFound, |v| Reply::Value(*v)),
        Command::Update { key, value } => match model.get_mut(&key) {
            Some(old) => {
                *old = value;
                Reply::Done
            }
            None => Reply::NotFound,
        },
        Command::Insert { key, .. } if model.contains_key(&key) => Reply::Exists,
        Command::Insert { key, value } => {
            model.insert(key, value);
            Reply::Done
        }
        Command::Delete { key } => match model.remove(&key) {
            Some(_) => Reply::Done,
            None => Reply::NotFound,
        },
        Command::Scan { from, to, limit } => {
            let all = model.iter().map(|(key, value)| (*key, *value));
            let all = all.filter(|(key, _)| (from..=to).contains(key));
            let entries: Vec<_> = all.clone().take(limit as usize).collect();
            let more = all.count() > entries.len();
            Reply::Entries { entries, more }
        }
        Command::Count => Reply::Value(model.len() as u64),
    }
}

fn in_parts_as_whole<T: Table>(count: usize, history: &[Command]) {
    let (mut whole, mut parts) = (TreeStore::<T>::default(), TreeStore::<T>::default());
    let replies = history
        .iter()
        .map(|command| apply(&mut whole, &command.encode()));
    let replies: Vec<_> = replies.collect();
    assert_eq!(
        replies,
        replies_in_parts(&mut parts, count, &encoded(history))
    );
    assert_eq!(snapshot(&whole), snapshot(&parts));
    // Parts of parts, and a restored machine in parts.
    let mut restored = TreeStore::<T>::default();
    let last = restored.divide(count) - 1;
    assert_eq!(restored.restore(&snapshot(&whole)), Ok(()));
    let lent = restored.lend(last);
    restored.take_back(last, lent);
    for other in [1, 64, 3] {
        parts.divide(other);
        assert_eq!(snapshot(&whole), snapshot(&parts));
        let commands = encoded(&history[..history.len().min(20)]);
        assert_eq!(
            replies_in_parts(&mut parts, other, &commands),
            replies_in_parts(&mut restored, other + 1, &commands),
        );
        let replies = commands
            .iter()
            .map(|(_, command)| apply(&mut whole, command));
        replies.for_each(drop);
    }
}

proptest! {
    #[test]
    fn the_store_answers_as_a_sorted_map(history in history()) {
        let (mut store, mut model) = (TreeStore::<Published>::default(), BTreeMap::new());
        for command in &history {
            let expected = expected(&mut model, command);
            let (mut read, mut bytes) = (Vec::new(), Vec::new());
            expected.encode(&mut bytes);
            let is_read = store.read(NOW, &command.encode(), &mut read);
            prop_assert_eq!(is_read, if command.is_read() { Ok(()) } else { Err(NotARead) });
            prop_assert!(is_read.is_err() || read == bytes);
            prop_assert_eq!(reply(&mut store, command), expected, "{:?}", command);
        }
    }

    #[test]
    fn a_machine_in_parts_answers_as_a_whole_one(history in history(), count in 1..70_usize) {
        in_parts_as_whole::<Published>(count, &history);
        in_parts_as_whole::<Partitioned>(count, &history);
    }

    #[test]
    fn a_picture_shows_the_state_in_which_it_was_taken(
        before in history(),
        after in vec(command(), 0..100),
        parts in 1..9_usize,
    ) {
        let mut store = TreeStore::<Partitioned>::default();
        store.divide(parts);
        before.iter().for_each(|command| drop(reply(&mut store, command)));
        let (expected, mut picture, mut written) = (snapshot(&store), store.freeze(), Vec::new());
        after.iter().for_each(|command| drop(reply(&mut store, command)));
        while picture.write_some(&mut written) {}
        prop_assert_eq!(&written, &expected);
        let mut restored = TreeStore::<Published>::default();
        prop_assert_eq!(restored.restore(&written), Ok(()));
        prop_assert_eq!(snapshot(&restored), expected);
        after.iter().for_each(|command| drop(reply(&mut restored, command)));
        prop_assert_eq!(snapshot(&restored), snapshot(&store));
    }

    #[test]
    fn bytes_that_are_no_command_change_nothing(
        bytes in vec(prop_oneof![3 => 0..7_u8, 1 => any::<u8>()], 0..30),
    ) {
        prop_assume!(Command::decode(&bytes).is_none());
        let mut store = filled(0..100);
        let (before, mut read) = (snapshot(&store), Vec::new());
        prop_assert_eq!(apply(&mut store, &bytes), [4]);
        prop_assert_eq!((store.read(NOW, &bytes, &mut read), &read[..]), (Ok(()), &[4][..]));
        let mut footprint = Footprint::default();
        store.footprint(&bytes, &mut footprint);
        prop_assert_eq!(footprint, Footprint::default());
        prop_assert_eq!(snapshot(&store), before);
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_is_another_state(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut store = filled(0..20);
        let whole = snapshot(&store);
        prop_assert!(store.restore(&whole[..cut.index(whole.len())]).is_err());
        prop_assert_eq!(snapshot(&store), &whole[..], "and it is as it was");
        let mut damaged = whole.clone();
        damaged[at.index(whole.len())] = byte;
        let now = match store.restore(&damaged) {
            Ok(()) => damaged,
            Err(_) => whole,
        };
        prop_assert_eq!(snapshot(&store), now);
    }

    #[test]
    fn a_reply_is_decoded_as_it_was_encoded_or_not_at_all(
        first in 0..8_u8,
        rest in vec(any::<u8>(), 0..40),
    ) {
        let bytes = [&[first][..], &rest].concat();
        if let Some(reply) = Reply::decode(&bytes) {
            let mut again = Vec::new();
            reply.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn commands_are_decoded_as_they_were_encoded(command in command(), more in vec(0..2_u8, 1..9)) {
        let bytes = command.encode();
        prop_assert_eq!(Command::decode(&bytes), Some(command));
        prop_assert_eq!(usize::from(bytes[0]), command.kind());
        prop_assert_eq!(Command::decode(&bytes[..bytes.len() - 1]), None);
        prop_assert_eq!(Command::decode(&[bytes, more].concat()), None);
    }
}

/// Enough keys for a tree of three levels.
#[test]
fn a_large_tree_is_a_sorted_map() {
    let (mut tree, mut model, mut random) = (Tree::default(), BTreeMap::new(), Random::new(1));
    for share_of_inserts in [9, 5, 1, 8, 0] {
        for _ in 0..40_000 {
            let (key, value) = (random.below(30_000), random.any());
            if random.below(10) < share_of_inserts {
                let is_new = !model.contains_key(&key);
                model.entry(key).or_insert(value);
                assert_eq!(tree.insert(key, value), is_new);
            } else {
                assert_eq!(tree.delete(key), model.remove(&key).is_some());
            }
        }
        let expected = model.range(1000..).map(|(key, value)| (*key, *value));
        assert!(tree.range(1000).eq(expected) && tree.len() == model.len());
    }
    for key in 0..30_000 {
        assert_eq!(tree.get(key), model.get(&key).copied());
        assert_eq!(tree.delete(key), model.contains_key(&key));
    }
    assert!(tree.is_empty() && tree.range(0).next().is_none());
}

#[test]
fn the_bytes_of_commands_and_replies_are_those_of_the_page() {
    let mut store = TreeStore::<Published>::default();
    let insert = [
        &[2][..],
        &[7, 0, 0, 0, 0, 0, 0, 1],
        &[9, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(insert.len(), 17);
    assert_eq!(
        (apply(&mut store, &insert), apply(&mut store, &insert)),
        (vec![0], vec![3])
    );
    let key = [7, 0, 0, 0, 0, 0, 0, 1];
    let read = [&[0][..], &key].concat();
    assert_eq!(apply(&mut store, &read), [1, 9, 0, 0, 0, 0, 0, 0, 0]);
    let scan = [&[4][..], &[0; 8], &[255; 8], &[1, 0, 0, 0]].concat();
    assert_eq!(
        apply(&mut store, &scan),
        [&[5][..], &key, &[9], &[0; 7]].concat()
    );
    assert_eq!(apply(&mut store, &[5]), [1, 1, 0, 0, 0, 0, 0, 0, 0]);
    let delete = [&[3][..], &key].concat();
    assert_eq!(
        (apply(&mut store, &delete), apply(&mut store, &delete)),
        (vec![0], vec![2])
    );
}

#[test]
fn a_scan_is_bounded_and_the_next_one_goes_on() {
    let mut store = filled(0..3000);
    store.divide(7);
    let (mut from, mut seen) = (5, Vec::new());
    loop {
        let scan = Command::Scan {
            from,
            to: 2998,
            limit: u32::MAX,
        };
        let Reply::Entries { entries, more } = reply(&mut store, &scan) else {
            panic!("entries were expected")
        };
        assert!(entries.len() <= MAX_SCAN as usize);
        from = entries.last().expect("there are some").0 + 1;
        seen.extend(entries);
        if !more {
            break;
        }
    }
    assert!(seen.into_iter().eq((5..2999).map(|key| (key, 10 * key))));
}

#[test]
fn wrong_snapshots_are_refused_with_a_reason() {
    let mut store = TreeStore::<Published>::default();
    let good = snapshot(&filled(3..5));
    let mut refusal = |bytes: &[u8]| store.restore(bytes).expect_err("it is wrong").0;
    assert_eq!(refusal(&[]), "its format is None, which must be 1");
    assert_eq!(refusal(&[7; 30]), "its format is Some(7), which must be 1");
    assert_eq!(refusal(&[1; 8]), "it ends too early");
    assert_eq!(
        refusal(&[&good[..], b"more"].concat()),
        "it has 2 entries and 4 bytes, and says that it has 2 entries"
    );
    assert_eq!(
        refusal(&[&[1], &u64::MAX.to_le_bytes()[..]].concat()),
        format!(
            "it has 0 entries and 0 bytes, and says that it has {} entries",
            u64::MAX
        )
    );
    let twice = [&good[..25], &good[9..25]].concat();
    assert_eq!(
        refusal(&twice),
        "its keys are not in order: Some(3), then 3"
    );
}

/// A part that is lent has its keys alone, and everything is there again when it is back.
#[test]
fn a_count_needs_no_part_where_inserts_touch_everything() {
    let mut store = filled(0..100);
    store.divide(4);
    let lent: Vec<_> = (0..4).map(|part| store.lend(part)).collect();
    assert_eq!(reply(&mut store, &Command::Count), Reply::Value(100));
    assert_eq!(Published::classes().all()[kind::COUNT].0, "count");
    for (part, lent) in lent.into_iter().enumerate() {
        store.take_back(part, lent);
    }
    assert_eq!(
        reply(&mut store, &Command::Read { key: 99 }),
        Reply::Value(990)
    );
}

#[test]
#[should_panic(expected = "a command touches a part that its footprint does not name")]
fn a_key_of_a_part_that_is_lent_is_out_of_reach() {
    let mut store = filled(0..100);
    store.divide(2);
    let part = store.part_of(5);
    let _lent = store.lend(part);
    reply(&mut store, &Command::Read { key: 5 });
}
