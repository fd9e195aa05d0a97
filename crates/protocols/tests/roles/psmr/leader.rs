//! What leaders put into the logs of groups.

use super::*;
use ionian_protocols::multipaxos::message::Votes;
use ionian_protocols::multipaxos::{acceptor, leader, proxy_leader};

/// The group of commands on several parts, where there are two others.
const ALL: u8 = 2;

/// Leader 0, which leads group 0 and g_all, but not group 1.
fn leading() -> Stage {
    leading_with(Options::default())
}

fn leading_with(options: Options) -> Stage {
    let mut leader = Stage::new((2, options), (kind::Leader, 0), true);
    elect(&mut leader, 2);
    leader
}

/// Time passes until it leads this many more of group 0 and g_all. No acceptor has voted for
/// anything.
fn elect(leader: &mut Stage, groups: usize) {
    let (mut sent, mut led) = (Vec::new(), 0);
    while led < groups {
        sent.extend(leader.timer());
        while let Some(envelope) = sent.pop() {
            let Routed::Roles { message, .. } = envelope else {
                continue;
            };
            let Message::InGroup { group, message } = message else {
                continue;
            };
            if let (true, multipaxos::Message::Acceptor(message)) = (group != 1, message) {
                for from in [0, 1].map(AcceptorId) {
                    let answer = answer(from, &message);
                    led += usize::from(from.0 == 1)
                        * usize::from(matches!(answer, Some(leader::In::Phase1b { .. })));
                    let answers =
                        answer.map(|it| within(group.into(), multipaxos::Message::Leader(it)));
                    sent.extend(answers.into_iter().flat_map(|it| leader.tell(it)));
                }
            }
        }
    }
}

/// What an acceptor that has voted for nothing answers a leader.
fn answer(from: AcceptorId, message: &acceptor::In) -> Option<leader::In> {
    Some(match message {
        acceptor::In::PreVote { .. } => leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        },
        acceptor::In::Phase1a { round, .. } => leader::In::Phase1b {
            from,
            round: *round,
            votes: Votes {
                start: Slot(0),
                end: Slot::MAX,
                next: Slot::MAX,
                votes: Vec::new(),
                forgotten: Slot(0),
                watermark: Slot(0),
            },
            clock: Timestamp(0),
        },
        _ => return None,
    })
}

/// What is proposed: the group, the slot, and what a marker says; none for a noop.
fn proposed(sent: &Sent) -> Vec<(u8, u64, Option<u64>)> {
    let mut found = Vec::new();
    for (group, message) in in_groups(sent) {
        if let multipaxos::Message::ProxyLeader(proxy_leader::In::Phase2a { slot, value, .. }) =
            message
        {
            let first = value.batch.commands().next();
            found.push((group, slot.0, first.map(|command| command.number)));
        }
    }
    found
}

/// What it announces that g_all has proposed.
fn announced(sent: &Sent) -> Vec<u64> {
    let slots = sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::Announce { until },
            ..
        } => Some(until.0),
        _ => None,
    });
    slots.collect()
}

fn want(group: u8, until: u64) -> Message {
    let until = Slot(until);
    Message::WantMarker { group, until }
}

/// m4: its own clients ask for nothing. m2: a number that is no higher says nothing new.
#[test]
fn an_idle_group_gets_a_marker_for_what_g_all_has_proposed_and_none_that_says_nothing_new() {
    let mut leader = leading();
    let announce = |until| Message::Announce { until: Slot(until) };
    assert_eq!(proposed(&leader.tell(announce(3))), [(0, 0, Some(3))]);
    assert_eq!(proposed(&leader.tell(announce(3))), []);
    assert_eq!(proposed(&leader.tell(announce(2))), []);
    assert_eq!(proposed(&leader.tell(want(0, 2))), []);
    assert_eq!(proposed(&leader.tell(announce(5))), [(0, 1, Some(5))]);
}

#[test]
fn a_marker_that_a_replica_lacks_is_proposed_again_after_a_while() {
    let mut leader = leading();
    assert_eq!(proposed(&leader.tell(want(0, 3))), [(0, 0, Some(3))]);
    assert_eq!(proposed(&leader.tell(want(0, 3))), []);
    leader.now = leader.now + Duration::from_secs(1);
    assert_eq!(proposed(&leader.tell(want(0, 3))), [(0, 1, Some(3))]);
    for group in [1, ALL, 9] {
        let sent = leader.tell(want(group, 3));
        assert_eq!(proposed(&sent), [], "it does not lead group {group}");
    }
}

/// One that a faulty node makes up would stop a group for good.
#[test]
fn no_marker_says_more_than_g_all_can_have_proposed() {
    let mut leader = leading();
    let most = 2 * Options::default().window_slots as u64;
    assert_eq!(
        proposed(&leader.tell(want(0, u64::MAX))),
        [(0, 0, Some(most))]
    );
    let announce = Message::Announce { until: Slot::MAX };
    assert_eq!(proposed(&leader.tell(announce)), []);
}

#[test]
fn what_is_proposed_in_g_all_is_announced_and_barriers_are_few() {
    let mut leader = leading();
    let barrier = |number| Message::WantBarrier { number };
    let sent = leader.tell(barrier(0));
    assert_eq!(
        (proposed(&sent), announced(&sent)),
        (vec![(ALL, 0, None)], vec![1])
    );
    let sent = leader.tell(barrier(0));
    assert_eq!((proposed(&sent), announced(&sent)), (vec![], vec![]));
    // One that is to be known again, by its number.
    let sent = leader.tell(barrier(7));
    assert_eq!(
        (proposed(&sent), announced(&sent)),
        (vec![(ALL, 1, Some(7))], vec![2])
    );
    // What is under way need not stop all workers.
    leader.now = leader.now + Duration::from_secs(1);
    let sent = leader.tell(barrier(0));
    assert_eq!(
        (proposed(&sent), announced(&sent)),
        (vec![(ALL, 2, None)], vec![3])
    );
}

/// m3: the leader that announced it died before it proposed.
#[test]
fn slots_of_g_all_that_were_announced_and_never_proposed_are_filled() {
    let mut leader = leading();
    let slots = vec![Slot(0), Slot(1)];
    let recover = leader::In::Recover { slots };
    let sent = leader.tell(within(ALL.into(), multipaxos::Message::Leader(recover)));
    assert_eq!(proposed(&sent), [(ALL, 0, None), (ALL, 1, None)]);
    assert_eq!(announced(&sent), [2]);
}

/// The skips among what is proposed: the group, and how many messages each stands for.
fn skips(sent: &Sent) -> Vec<(u8, u64)> {
    let mut found = Vec::new();
    for (group, message) in in_groups(sent) {
        if let multipaxos::Message::ProxyLeader(proxy_leader::In::Phase2a { value, .. }) = message
            && let Some(first) = value.batch.commands().next()
            && first.purpose == Purpose::Internal
        {
            found.push((group, first.floor));
        }
    }
    found
}

fn with_turns(rate: u64) -> Stage {
    let settings = [
        ("turn_slots", 1),
        ("skip_rate", rate),
        ("skip_every_ms", 100),
    ];
    leading_with(with(&settings, Options::default()))
}

#[test]
fn with_turns_each_log_is_kept_at_its_rate_by_skips_and_none_is_announced() {
    let mut leader = with_turns(100);
    leader.waited(Duration::from_millis(150));
    let of = |leader: &mut Stage| skips(&leader.waited(Duration::from_millis(100)));
    assert_eq!(of(&mut leader), [(0, 10), (ALL, 10)]);
    for _ in 0..3 {
        let proposer = multipaxos::message::Proposer::Client { id: ClientId(0) };
        let propose = leader::In::Propose {
            proposer,
            near: Set::EMPTY,
            batch: value(Purpose::Open, 1, "").batch,
            again: false,
        };
        let sent = leader.tell(within(ALL.into(), multipaxos::Message::Leader(propose)));
        assert_eq!((proposed(&sent).len(), announced(&sent)), (1, vec![]));
        leader.now = leader.now + Duration::from_millis(1);
    }
    assert_eq!(of(&mut leader), [(0, 10), (ALL, 7)]);
}

#[test]
fn with_turns_a_log_that_has_fallen_behind_skips_what_replicas_lack() {
    let mut leader = with_turns(0);
    let lack = |group, end, count| Message::WantSkip {
        group,
        end: Slot(end),
        count,
    };
    for group in [0, ALL] {
        assert_eq!(skips(&leader.tell(lack(group, 0, 5))), [(group, 5)]);
        assert_eq!(
            skips(&leader.tell(lack(group, 0, 5))),
            [],
            "another has not seen it"
        );
    }
    let most = 1 << 20;
    assert_eq!(skips(&leader.tell(lack(ALL, 1, u64::MAX))), [(ALL, most)]);
    assert_eq!(
        skips(&leader.tell(lack(1, 0, 5))),
        [],
        "it does not lead that group"
    );
    let known = [(0, 5), (ALL, 5), (ALL, most)];
    let later = skips(&leader.waited(Duration::from_secs(1)));
    assert!(
        later.iter().all(|it| known.contains(it)),
        "no others: {later:?}"
    );
}

/// What it proposed before was lost with its round.
#[test]
fn a_leader_of_g_all_that_leads_again_announces_slots_anew() {
    let mut leader = leading();
    for until in [1, 2, 3] {
        let sent = leader.tell(Message::WantBarrier { number: until });
        assert_eq!(announced(&sent), [until]);
    }
    let round = Round::new(Epoch(0), 99, LeaderId(1));
    let heartbeat = leader::In::Heartbeat { round };
    leader.tell(within(ALL.into(), multipaxos::Message::Leader(heartbeat)));
    elect(&mut leader, 1);
    let sent = leader.tell(Message::WantBarrier { number: 4 });
    assert_eq!(proposed(&sent), [(ALL, 0, Some(4))]);
    assert_eq!(announced(&sent), [1]);
}

/// They would be before everything that clients propose when there is room again.
#[test]
fn with_turns_no_skip_waits_for_room() {
    let settings = [
        ("turn_slots", 1),
        ("skip_rate", 100),
        ("skip_every_ms", 100),
    ];
    let options = Options {
        window_slots: 1,
        ..Options::default()
    };
    let mut leader = leading_with(with(&settings, options));
    leader.waited(Duration::from_millis(1000));
    let proposer = multipaxos::message::Proposer::Client { id: ClientId(0) };
    let propose = leader::In::Propose {
        proposer,
        near: Set::EMPTY,
        batch: value(Purpose::Open, 1, "").batch,
        again: false,
    };
    let within_all = |message| within(ALL.into(), multipaxos::Message::Leader(message));
    let sent = leader.tell(within_all(propose));
    assert_eq!(proposed(&sent), [], "a skip is under way");
    let executed = |slot| leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(slot),
        kept: Slot(0),
        round: Round(0),
        times: Default::default(),
    };
    let sent = leader.tell(within_all(executed(1)));
    assert_eq!(proposed(&sent), [(ALL, 1, Some(1))]);
    // And what was not proposed meanwhile is made up for.
    leader.tell(within_all(executed(2)));
    let most = skips(&leader.waited(Duration::from_millis(100)));
    let most = most
        .into_iter()
        .filter(|(group, _)| *group == ALL)
        .map(|it| it.1);
    assert!(most.max() >= Some(80), "of most of a second");
}
