//! Where commands of g_all meet each group if workers take turns.

use super::*;

fn turns(slots: u64) -> Options {
    let settings = [("turn_slots", slots), ("skip_rate", 100)];
    with(&settings, Options::default())
}

/// Two of a group, then two of g_all. Counting begins anew at each command that touches all parts.
#[test]
fn a_worker_takes_messages_of_its_group_and_then_as_many_of_all() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    for payload in ["a=u", "a=v", "a=w"] {
        logs.write(0, payload);
    }
    for group in 0..2 {
        logs.logs[group].push(skip(9));
    }
    logs.write(all, "ab=1");
    logs.write(all, "ab=2");
    let answers = [
        (0, 0, "u"),
        (0, 1, "uv"),
        (0, 2, "uv1w"),
        (2, 0, "uv1,1"),
        (2, 1, "uv1w2,12"),
    ];
    in_any_order((2, turns(2)), &logs, &answers);
}

/// A skip stands for as many messages as it says, in g_all too, and stops no worker there.
#[test]
fn a_skip_takes_the_turns_of_the_messages_that_it_stands_for() {
    let mut logs = Logs::new(3);
    let all = logs.all();
    logs.write(all, "ab=1");
    logs.logs[all].push(skip(3));
    logs.write(all, "bc=2");
    for payload in ["a=u", "a=v"] {
        logs.write(0, payload);
    }
    for payload in ["b=u", "b=v", "b=w", "b=x", "b=y"] {
        logs.write(1, payload);
    }
    logs.write(2, "c=u");
    logs.logs[2].push(skip(9));
    let answers = [
        (0, 0, "1u"),
        (0, 1, "1uv"),
        (1, 0, "1u"),
        (1, 1, "1uv"),
        (1, 2, "1uvw"),
        (1, 3, "1uvwx"),
        (1, 4, "1uvwx2y"),
        (2, 0, "u"),
        (3, 0, "1,1"),
        (3, 1, "1uvwx2,u2"),
    ];
    in_any_order((3, turns(1)), &logs, &answers);
}

/// A skip of more messages than all has between two commands that touch all parts.
#[test]
fn a_skip_that_a_worker_has_stopped_before_ends_where_counting_begins_anew() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    // One for the opening of the session of all, and one for the command.
    for _ in 0..2 {
        logs.logs[0].push(skip(12_000));
        logs.logs[1].push(skip(9));
    }
    logs.write(0, "a=u");
    logs.write(all, "ab=1");
    let of_all = (2, 0, "1,1");
    for (level, answers) in [(17, &[of_all][..]), (18, &[(0, 0, "1u"), of_all])] {
        let layout = Layout {
            founding_level: Level(level),
            ..layout(2, turns(2))
        };
        let mut replica = Stage::of(layout, (kind::Replica, 0), true);
        let messages = logs.messages().into_iter();
        let sent: Sent = messages.flat_map(|message| replica.tell(message)).collect();
        let mut found = super::answers(&sent);
        found.sort();
        assert_eq!(found, expected(answers), "level {level}");
    }
}

/// What a replica asks of leaders when messages do not come: groups, and how many.
fn wanted(sent: &Sent) -> Vec<(u8, u64)> {
    let wants = sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::WantSkip { group, count, .. },
            ..
        } => Some((*group, *count)),
        _ => None,
    });
    wants.collect()
}

/// What a replica asks first within a second.
fn first(replica: &mut Stage) -> Option<(u8, u64)> {
    let sent = replica.waited(Duration::from_secs(1));
    wanted(&sent).first().copied()
}

#[test]
fn a_replica_asks_for_what_a_worker_lacks_for_its_turn() {
    let mut logs = Logs::new(2);
    let all = logs.all();
    logs.write(0, "a=u");
    let no_skips = with(&[("turn_slots", 2), ("skip_rate", 0)], Options::default());
    let mut replica = Stage::new((2, no_skips), (kind::Replica, 0), true);
    for message in logs.messages() {
        replica.tell(message);
    }
    // Worker 0 stops before its third message, worker 1 has taken two and waits for one.
    assert_eq!(first(&mut replica), Some((1, 1)));
    logs.logs[1].push(skip(4));
    let slot = logs.logs[1].len() - 1;
    let sent = replica.tell(logs.chosen(1, slot));
    assert_eq!(answers(&sent), expected(&[(0, 0, "u")]));
    // The first slot of all is executed, and counting began anew: worker 1 stops before its skip.
    // As much is asked for of g_all.
    assert_eq!(first(&mut replica), Some((all as u8, 4)));
}

/// At 100 a second and 10 at a time, 20 come soon.
#[test]
fn a_replica_asks_for_more_than_two_skips_bring() {
    for (count, asked) in [(19, None), (30, Some((2, 31)))] {
        let mut logs = Logs::new(2);
        let mut replica = Stage::new((2, turns(1)), (kind::Replica, 0), true);
        for message in logs.messages() {
            replica.tell(message);
        }
        logs.logs[0].push(skip(count));
        replica.tell(logs.chosen(0, 2));
        assert_eq!(first(&mut replica), asked, "{count}");
    }
}
