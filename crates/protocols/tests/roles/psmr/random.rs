//! Random logs: whatever comes first, and whichever worker is done first, the answers are the same.

use super::*;
use ionian_kernel::work::Inline;

const GROUPS: usize = 3;

/// Chosen values of all groups, of which the last lets all be executed. Skips are of at most
/// `longest` messages.
fn random_logs(random: &mut Random, takes_turns: bool, longest: u64) -> Logs {
    let mut logs = Logs::new(GROUPS);
    let all = logs.all();
    let own = [
        ["a=u", "a=v", "a?"],
        ["b=u", "b=v", "b?"],
        ["c=u", "c=v", "c?"],
    ];
    let spanning = ["ab=1", "bc=2", "ac=3", "abc=4", "*=5", "ab?", "?"];
    for _ in 0..random.below(60) {
        let group = random.below(GROUPS as u64) as usize;
        match random.below(8) {
            0..=3 => logs.write(group, own[group][random.below(3) as usize]),
            4 | 5 => logs.write(all, spanning[random.below(7) as usize]),
            6 if takes_turns => {
                let group = random.below(GROUPS as u64 + 1) as usize;
                logs.logs[group].push(skip(1 + random.below(longest)));
            }
            6 => logs.mark(group, random.below(logs.logs[all].len() as u64 + 3)),
            _ => logs.logs[all].push(noop()),
        }
    }
    if takes_turns {
        let most = |log: &Vec<Value>| longest * log.len() as u64;
        let most = logs.logs.iter().map(most).max().expect("there are logs");
        // Counting begins anew behind each command that touches all.
        for _ in 0..logs.logs[all].len() + 1 {
            (0..GROUPS).for_each(|group| logs.logs[group].push(skip(most)));
        }
        logs.logs[all].push(skip(100 * most));
        return logs;
    }
    let markers = logs.logs[..GROUPS].iter().flatten();
    let commands = markers.filter_map(|value| value.batch.commands().next());
    let internal = commands.filter(|command| command.purpose == Purpose::Internal);
    let highest = internal.map(|command| command.number).max().unwrap_or(0);
    while (logs.logs[all].len() as u64) < highest {
        logs.logs[all].push(noop());
    }
    let until = logs.logs[all].len() as u64;
    (0..GROUPS).for_each(|group| logs.mark(group, until));
    logs
}

/// What a new replica answers when messages come in this order, with workers that take a random
/// time.
fn answers_in_order(layout: &Layout, messages: &[Message], seed: u64) -> Vec<(u8, u64, String)> {
    let hire = move |count| Inline::at_random(Random::new(seed), count, 1 + seed as usize % 3);
    let birth = Birth {
        machine: &texts,
        workers: Some(&hire),
        ..stage::birth(kind::Replica, 0, NodeId(90))
    };
    let mut replica = Stage::born(layout.clone(), birth);
    let (mut random, mut sent) = (Random::new(seed), Vec::new());
    for message in messages {
        let Stage {
            instance,
            outbox,
            now,
        } = &mut replica;
        instance.on_message(*now, message.clone(), outbox);
        if random.once_in(3) {
            sent.extend(replica.ended());
        }
    }
    sent.extend(replica.ended());
    let mut all = answers(&sent);
    all.sort();
    all
}

#[test]
fn random_logs_have_the_same_answers_in_any_order() {
    let turns = |slots| {
        with(
            &[("turn_slots", slots), ("skip_rate", 0)],
            Options::default(),
        )
    };
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (options, takes_turns) = match seed % 3 {
            0 => (turns(1), true),
            1 => (turns(3), true),
            _ => (Options::default(), false),
        };
        // From level 18 on none is too long.
        let (level, longest) = [(17, 5), (18, 5), (18, 500)][seed as usize / 3 % 3];
        let layout = Layout {
            founding_level: Level(level),
            ..layout(GROUPS as u64, options)
        };
        let logs = random_logs(&mut random, takes_turns, longest);
        let mut messages = logs.messages();
        let expected = answers_in_order(&layout, &messages, seed);
        let written: u64 = logs.numbers.iter().sum();
        assert_eq!(
            expected.len() as u64,
            written,
            "seed {seed}: some are not executed"
        );
        for order in 0..5 {
            for place in (1..messages.len()).rev() {
                messages.swap(place, random.below(place as u64 + 1) as usize);
            }
            let found = answers_in_order(&layout, &messages, 1000 * seed + order);
            assert!(
                found == expected,
                "seed {seed}: {found:?}, not {expected:?}"
            );
        }
    }
}
