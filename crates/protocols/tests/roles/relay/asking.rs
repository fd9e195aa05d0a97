//! A proxy leader that asks through relays, and which deployments can have them.

use super::*;

fn propose(slot: Slot, count: u64) -> proxy_leader::In {
    proxy_leader::In::Phase2a {
        slot,
        round: round(count),
        value: value(),
        proposer: Proposer::Leader {},
        replier: ReplicaId(2),
    }
}

/// What a proxy leader has sent to relays: to which, for whom, with what slack and commits.
fn relayed(asked: &Asked<Envelope>) -> Vec<(RelayId, AcceptorSet, u8, Vec<Run>)> {
    let relayed = asked
        .sends
        .iter()
        .filter_map(|(envelope, _)| match envelope {
            Envelope::ToRelays(to, relay::In::Phase2a { terms, .. }) => {
                let relay = to.iter().next().expect("to one");
                let Terms {
                    members,
                    slack,
                    chosen,
                    ..
                } = &**terms;
                Some((relay, *members, *slack, chosen.to_vec()))
            }
            _ => None,
        });
    relayed.collect()
}

/// The acceptors that it asked itself.
fn directly(asked: &Asked<Envelope>) -> AcceptorSet {
    let direct = asked
        .sends
        .iter()
        .filter_map(|(envelope, _)| match envelope {
            Envelope::ToAcceptors(to, acceptor::In::Phase2a { .. }) => Some(*to),
            _ => None,
        });
    direct.fold(AcceptorSet::EMPTY, AcceptorSet::or)
}

fn answer(from: RelayId, voted: AcceptorSet, slot: Slot) -> proxy_leader::In {
    proxy_leader::In::Votes {
        from,
        slot,
        round: round(1),
        voted,
        missing: AcceptorSet::EMPTY,
    }
}

/// 4.3: with one group its relay answers as soon as there is a majority with the own vote.
#[test]
fn one_relay_asks_all_others_and_may_answer_with_a_majority() {
    let mut proxy = proxy_with(5, &[]);
    let asked = proxy.asked(propose(SLOT, 1));
    let [(relay, members, slack, _)] = relayed(&asked)[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(members, set(&[1, 2, 3, 4]));
    assert_eq!((slack, directly(&asked)), (2, set(&[0])));
    assert!((1..5).contains(&relay.0) && asked.sends.len() == 2);
}

#[test]
fn relays_rotate_unless_they_are_static() {
    for (rotate, expected) in [(1, 4), (0, 1)] {
        let mut proxy = proxy_with(5, &[("relay_rotate", rotate)]);
        let relays: std::collections::BTreeSet<_> = (0..40)
            .map(|slot| {
                let asked = proxy.asked(propose(Slot(slot), 1));
                relayed(&asked)[0].0
            })
            .collect();
        assert_eq!(relays.len(), expected);
    }
}

#[test]
fn groups_divide_the_others_and_can_overlap() {
    let of = |options: &[_]| {
        let mut proxy = proxy_with(7, options);
        let asked = proxy.asked(propose(SLOT, 1));
        let groups: Vec<_> = relayed(&asked).iter().map(|it| it.1).collect();
        (groups, directly(&asked))
    };
    let two = ("relay_groups", 2);
    assert_eq!(
        of(&[two]),
        (vec![set(&[1, 2]), set(&[3, 4, 5, 6])], set(&[0]))
    );
    let overlapping = vec![set(&[1, 2, 3, 4]), set(&[3, 4, 5, 6, 1])];
    assert_eq!(of(&[two, ("relay_overlap", 2)]), (overlapping, set(&[0])));
    let alone = (Vec::new(), set(&[0, 1, 2, 3, 4, 5, 6]));
    assert_eq!(of(&[("relay_groups", 64)]), alone, "one each: no detour");
    let (shuffled, _) = of(&[two, ("relay_shuffle", 1)]);
    let all = shuffled
        .iter()
        .fold(AcceptorSet::EMPTY, |all, one| all.or(*one));
    assert_eq!(all, set(&[1, 2, 3, 4, 5, 6]));
}

#[test]
fn groups_are_drawn_once_for_requests_that_come_in_together() {
    let mut proxy = proxy_with(25, &[("relay_groups", 3), ("relay_shuffle", 1)]);
    let mut groups = |slot, wait| {
        proxy.now = proxy.now + Duration::from_micros(wait);
        let asked = relayed(&proxy.asked(propose(Slot(slot), 1)));
        asked.iter().map(|it| it.1).collect::<Vec<_>>()
    };
    let first = groups(1, 0);
    assert_eq!(groups(2, 0), first);
    let later = groups(3, 1);
    assert!(later != first, "{later:?}");
    let all = later
        .iter()
        .fold(AcceptorSet::EMPTY, |all, one| all.or(*one));
    assert_eq!((later.len(), all.len()), (3, 24));
}

/// The preset `pigpaxos-wan`: five acceptors in each of three regions.
#[test]
fn a_group_is_a_region_whichever_region_the_leader_is_in() {
    let regions: [AcceptorSet; 3] =
        [0..5, 5..10, 10..15].map(|region| region.map(AcceptorId).collect());
    for node in 0..15 {
        let mut proxy = proxy_on(node, 15, &[("relay_groups", 3), ("relay_slack", 1)]);
        let asked = proxy.asked(propose(SLOT, 1));
        let own = set(&[node]);
        let groups: Vec<AcceptorSet> = relayed(&asked).iter().map(|it| it.1).collect();
        assert_eq!(groups, regions.map(|region| region.without(own)));
        assert_eq!(directly(&asked), own);
    }
}

#[test]
fn a_value_is_chosen_by_names_however_often_they_are_told() {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    let two = set(&[3, 4]);
    for _ in 0..3 {
        assert_eq!(proxy.asked(answer(RelayId(3), two, SLOT)), only(vec![]));
    }
    let of_round = |round| proxy_leader::In::Votes {
        from: RelayId(1),
        slot: SLOT,
        round,
        voted: set(&[1, 2]),
        missing: AcceptorSet::EMPTY,
    };
    let stale = of_round(Round::new(Epoch::default(), 0, LeaderId(0)));
    assert_eq!(proxy.asked(stale), only(vec![]), "of another round");
    let chosen = proxy.asked(answer(RelayId(1), set(&[1]), SLOT));
    assert_eq!(proxy.figure("chosen"), 1, "{chosen:?}");
}

/// Has slot 5 chosen while slot 6 waits for votes.
fn chosen_and_busy() -> (Stage<ProxyLeader>, Asked<Envelope>) {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    proxy.asked(propose(Slot(6), 1));
    let asked = proxy.asked(answer(RelayId(3), set(&[1, 3, 4]), SLOT));
    (proxy, asked)
}

/// What the replica that answers, and those of this node, learn at once.
fn told_at_once() -> Vec<Envelope> {
    let (slot, round, replier) = (SLOT, round(1), ReplicaId(2));
    let learn = acceptor::In::Learn {
        slot,
        round,
        replier,
    };
    let here = replica::In::Chosen {
        slot,
        value: value(),
        replier,
    };
    vec![
        Envelope::ToAcceptors(set(&[2]), learn),
        Envelope::ToReplicas(Set::one(ReplicaId(0)), here),
    ]
}

fn commit(asked: &Asked<Envelope>) -> Option<relay::In> {
    let last = asked.sends.last().map(|(envelope, _)| envelope.clone());
    match last {
        Some(Envelope::ToRelays(_, message @ relay::In::Learn { .. })) => Some(message),
        _ => None,
    }
}

fn commit_of_slot() -> relay::In {
    relay::In::Learn {
        members: set(&[1, 2, 3, 4]),
        round: round(1),
        chosen: Box::new([run(SLOT.0, 1)]),
    }
}

#[test]
fn commits_ride_on_the_next_request() {
    let (mut proxy, chosen) = chosen_and_busy();
    assert_eq!(chosen, only(told_at_once()));
    let next = proxy.asked(propose(Slot(7), 1));
    assert_eq!(relayed(&next)[0].3, [run(SLOT.0, 1)]);
    let after = proxy.asked(propose(Slot(8), 1));
    assert_eq!(relayed(&after)[0].3, []);
}

/// Without a request to ride on, they do not wait for one.
#[test]
pub(crate) fn commits_are_sent_alone_when_no_request_comes() {
    let (mut proxy, _) = chosen_and_busy();
    let before = proxy.now;
    assert_eq!(commit(&proxy.woken()), Some(commit_of_slot()));
    assert_eq!(proxy.now.since(before), Duration::from_millis(1));
}

#[test]
fn commits_are_sent_at_once_when_nothing_is_under_way() {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    let chosen = proxy.asked(answer(RelayId(3), set(&[1, 3, 4]), SLOT));
    assert_eq!(chosen.sends.len(), 3);
    assert_eq!(commit(&chosen), Some(commit_of_slot()));
}

/// 4.2: retries go through other relays, then without any.
#[test]
fn a_relay_that_does_not_answer_is_passed_over_and_tried_again_later() {
    let mut proxy = proxy_with(5, &[]);
    let first = relayed(&proxy.asked(propose(SLOT, 1)))[0].0;
    proxy.asked(proxy_leader::In::Phase2b {
        from: AcceptorId(0),
        slot: SLOT,
        round: round(1),
    });
    let again = proxy.waited(Duration::from_millis(60));
    let [(second, members, ..)] = relayed(&again)[..] else {
        panic!("{again:?}")
    };
    assert_eq!(members, set(&[1, 2, 3, 4]), "those whose votes are missing");
    assert!(second != first, "{again:?}");
    assert_eq!(proxy.figure("suspected_relays"), 1);
    let third = proxy.waited(Duration::from_millis(150));
    assert_eq!(
        (relayed(&third), directly(&third)),
        (vec![], set(&[1, 2, 3, 4]))
    );
    for slot in 10..30 {
        let asked = proxy.asked(propose(Slot(slot), 1));
        let suspects = [first, second];
        assert!(relayed(&asked).iter().all(|it| !suspects.contains(&it.0)));
        proxy.asked(answer(relayed(&asked)[0].0, set(&[1, 2, 3, 4]), Slot(slot)));
    }
    // A probe is for the acceptors of its own node alone: nothing waits for it.
    proxy.now = proxy.now + Duration::from_millis(500);
    let probed = proxy.asked(propose(Slot(40), 1));
    let probe = relayed(&probed).into_iter().find(|it| it.0 == first);
    let own = Set::one(AcceptorId(first.0));
    assert_eq!(probe.map(|it| (it.1, it.2)), Some((own, 0)));
    proxy.asked(answer(first, own, Slot(40)));
    let left = proxy.figure("suspected_relays");
    assert_eq!(left, 1, "the second did not answer either");
}

/// Defect l12: all others are on the gray list.
#[test]
fn l12_without_a_relay_that_answers_acceptors_are_asked_directly() {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    proxy.asked(proxy_leader::In::Votes {
        from: RelayId(0),
        slot: SLOT,
        round: round(1),
        voted: AcceptorSet::EMPTY,
        missing: set(&[1, 2, 3, 4]),
    });
    let asked = proxy.asked(propose(Slot(6), 1));
    assert_eq!((relayed(&asked), directly(&asked)), (vec![], Set::first(5)));
}

/// What a proxy leader learns of acceptors that a relay misses.
fn misses(proxy: &mut Stage<ProxyLeader>, from: u8, missing: AcceptorSet) {
    proxy.asked(proxy_leader::In::Votes {
        from: RelayId(from),
        slot: SLOT,
        round: round(1),
        voted: AcceptorSet::EMPTY,
        missing,
    });
}

/// A busy relay that gives up on one and then another must not be the last that is trusted.
#[test]
pub(crate) fn an_acceptor_that_answers_in_time_again_does_not_keep_its_relay_from_work() {
    let mut proxy = proxy_with(9, &[]);
    misses(&mut proxy, 2, set(&[1, 5]));
    let mut votes = |voted: &[u8], suspects: u64| {
        proxy.asked(answer(RelayId(2), set(voted), SLOT));
        assert_eq!(proxy.figure("suspected_relays"), suspects, "{voted:?}");
    };
    votes(&[1], 2);
    votes(&[1, 2, 3], 1);
    votes(&[2, 5], 0);
}

/// The acceptor of its node answers the relays of others: it may be the relay that does not.
#[test]
pub(crate) fn votes_of_its_acceptor_do_not_clear_a_relay_that_did_not_answer() {
    let mut proxy = proxy_with(9, &[]);
    let asked = proxy.asked(propose(SLOT, 1));
    let silent = relayed(&asked)[0].0;
    let asked = proxy.waited(Duration::from_millis(50));
    let next = relayed(&asked)[0].0;
    assert_eq!(proxy.figure("suspected_relays"), 1);
    let voted = Set::first(9).without(Set::one(AcceptorId(0)));
    assert!(voted.contains(AcceptorId(silent.0)));
    proxy.asked(answer(next, voted, SLOT));
    assert_eq!(proxy.figure("suspected_relays"), 1);
}

#[test]
fn without_work_no_relay_is_reported_as_suspected_for_long() {
    let mut proxy = proxy_with(9, &[]);
    proxy.asked(propose(SLOT, 1));
    let next = relayed(&proxy.waited(Duration::from_millis(50)))[0].0;
    let voted = Set::first(9).without(Set::one(AcceptorId(0)));
    proxy.asked(answer(next, voted, SLOT));
    assert_eq!(proxy.figure("suspected_relays"), 1);
    proxy.waited(Duration::from_secs(10));
    assert_eq!(proxy.figure("suspected_relays"), 0);
}

/// 5.7, figure 16: a proxy leader sends no more messages when a group is silent than when all
/// answer, and its acceptors are asked all the same.
#[test]
pub(crate) fn a_silent_group_is_asked_by_the_relays_of_others() {
    for (shuffle, silent) in [(0, 1..8), (1, 1..9), (0, 8..16), (0, 16..25)] {
        let options = [("relay_groups", 3), ("relay_shuffle", shuffle)];
        let mut proxy = proxy_with(25, &options);
        let silent: AcceptorSet = silent.map(AcceptorId).collect();
        let other = if silent.contains(AcceptorId(9)) { 2 } else { 9 };
        misses(&mut proxy, other, silent);
        for slot in 10..30 {
            let asked = proxy.asked(propose(Slot(slot), 1));
            let relayed = relayed(&asked);
            assert_eq!((relayed.len(), directly(&asked)), (2, set(&[0])));
            assert_eq!(asked.sends.len(), 3, "{asked:?}");
            let all = relayed.iter().fold(set(&[0]), |all, it| all.or(it.1));
            assert_eq!(all, AcceptorSet::first(25));
            assert!(
                relayed
                    .iter()
                    .all(|it| !silent.contains(AcceptorId(it.0.0)))
            );
        }
    }
}

/// 4.1: with the slack of the groups that are left, each request would have to be made twice.
#[test]
fn relays_wait_for_all_when_a_silent_group_leaves_no_more_than_a_quorum() {
    let options = [("relay_groups", 3), ("relay_slack", 1)];
    let mut proxy = proxy_with(7, &options);
    let groups = |asked: &Asked<Envelope>| {
        let groups = relayed(asked).into_iter();
        groups.map(|it| (it.1, it.2)).collect::<Vec<_>>()
    };
    let asked = proxy.asked(propose(SLOT, 1));
    assert_eq!(groups(&asked), [(set(&[2, 3]), 1), (set(&[4, 5, 6]), 1)]);
    misses(&mut proxy, 2, set(&[4, 5, 6]));
    let asked = proxy.asked(propose(Slot(6), 1));
    assert_eq!(groups(&asked), [(set(&[2, 3, 4, 5, 6]), 0)]);
    assert_eq!(directly(&asked), set(&[0, 1]));
}

/// A suspected relay that is tried may be down: the relays of the others must not leave out votes
/// in the hope of its own.
#[test]
pub(crate) fn relays_gather_a_quorum_without_a_relay_that_is_tried() {
    let two_groups: &[_] = &[("relay_groups", 2), ("relay_slack", 2)];
    for (nodes, options) in [(5, &[][..]), (9, &[]), (9, two_groups)] {
        let mut proxy = proxy_with(nodes, options);
        misses(&mut proxy, 2, set(&[1]));
        proxy.now = proxy.now + Duration::from_millis(500);
        let asked = proxy.asked(propose(Slot(6), 1));
        let (tried, others): (Vec<_>, Vec<_>) = relayed(&asked)
            .into_iter()
            .partition(|it| it.0 == RelayId(1));
        assert_eq!(tried, [(RelayId(1), set(&[1]), 0, Vec::new())]);
        let relays = others.iter();
        let sure: usize = relays.map(|it| it.1.len() - usize::from(it.2)).sum();
        let sure = directly(&asked).len() + sure;
        assert!(sure > nodes / 2, "{sure} votes of {nodes}: {asked:?}");
    }
}

/// Where no relay carries what is chosen, it takes no message of its own.
#[test]
fn what_is_chosen_rides_on_requests_without_relays_too() {
    let mut proxy = proxy_with(5, &[("relay_groups", 64)]);
    proxy.asked(propose(SLOT, 1));
    proxy.asked(propose(Slot(6), 1));
    for from in [0, 1, 3] {
        proxy.asked(proxy_leader::In::Phase2b {
            from: AcceptorId(from),
            slot: SLOT,
            round: round(1),
        });
    }
    let (slot, round, from) = (Slot(7), round(1), ProxyLeaderId(0));
    let near = acceptor::In::Phase2a {
        from,
        slot,
        round,
        value: value(),
    };
    let far = acceptor::In::RelayedPhase2a {
        from: PROXY,
        slot,
        round,
        value: value(),
        chosen: Box::new([run(SLOT.0, 1)]),
    };
    let expected = vec![
        Envelope::ToAcceptors(set(&[0]), near),
        Envelope::ToAcceptors(set(&[1, 2, 3, 4]), far),
    ];
    assert_eq!(proxy.asked(propose(slot, 1)), only(expected));
}

/// Tables 1 and 2: what the nodes of the leader and of the followers handle for a command of a
/// client at another node, while other commands are under way.
#[test]
fn the_leader_handles_2r_plus_2_messages() {
    for (nodes, groups) in [(5, 1), (7, 2), (9, 1), (9, 3), (25, 1), (25, 2), (25, 3)] {
        let options = &[("relay_groups", groups as u64)];
        let mut proxy = proxy_with(nodes, options);
        proxy.asked(propose(Slot(0), 1));
        let asked = proxy.asked(propose(SLOT, 1));
        let requests = relayed(&asked);
        let far = |to: AcceptorSet| to.without(set(&[0])).len();
        assert_eq!((requests.len(), far(directly(&asked))), (groups, 0));
        let mut of_leader = 1 + requests.len();
        let mut of_followers = 0;
        for (relay, members, ..) in requests {
            let answered = proxy.asked(answer(relay, members, SLOT));
            let sent = answered.sends.iter().filter(|(envelope, _)| {
                matches!(envelope, Envelope::ToAcceptors(..) | Envelope::ToRelays(..))
            });
            of_leader += 1 + sent.count();
            // The relay has a request and an answer with the leader, and two with each of the rest.
            of_followers += 2 + 4 * (members.len() - 1);
        }
        assert_eq!(of_leader, 2 * groups + 2, "{nodes} nodes, {groups} groups");
        let others = nodes - 1;
        assert_eq!(of_followers, 2 * (others - groups) + 2 * others);
    }
}

#[test]
fn members_that_a_relay_misses_are_no_relays() {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    proxy.asked(proxy_leader::In::Votes {
        from: RelayId(1),
        slot: SLOT,
        round: round(1),
        voted: set(&[1, 2]),
        missing: set(&[3, 4]),
    });
    for slot in 10..30 {
        let asked = proxy.asked(propose(Slot(slot), 1));
        assert!(relayed(&asked)[0].0.0 < 3, "{asked:?}");
    }
}

// Which deployments can have relays.

#[test]
fn slack_that_could_cost_the_majority_is_refused() {
    let slack =
        |nodes, groups, slack| layout(nodes, &[("relay_groups", groups), ("relay_slack", slack)]);
    MultiPaxos::configure(slack(25, 3, 1)).unwrap();
    MultiPaxos::configure(slack(25, 3, 4)).unwrap();
    assert_eq!(
        refusal(slack(25, 3, 5)),
        "relay_slack is 5: 3 relays that each do without 5 of their acceptors are sure to have 10 votes of 25, and \
         13 are needed; at most 4 is possible"
    );
    MultiPaxos::configure(slack(25, 1, 60)).expect("one relay waits for a majority");
}

/// 8.2: a large write quorum, which relays gather, for a small read quorum.
#[test]
fn a_relay_gathers_a_write_quorum_of_any_size() {
    let counts = |options: &[_]| {
        let mut layout = layout(25, options);
        layout.f = 5;
        layout.quorums = QuorumSpec::Counts { read: 6, write: 20 };
        layout
    };
    let config = MultiPaxos::configure(counts(&[])).expect("a deployment");
    let birth = birth(kind::ProxyLeader, 0, NodeId(0));
    let mut proxy = Stage::new(config, &birth, ProxyLeader::new);
    proxy.timer();
    let asked = proxy.asked(propose(SLOT, 1));
    let [(relay, members, slack, _)] = relayed(&asked)[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(slack, 5, "with the own vote 20 are left");
    let most: AcceptorSet = members.iter().take(19).collect();
    proxy.asked(answer(relay, most, SLOT));
    assert_eq!(proxy.figure("chosen"), 0);
    proxy.asked(proxy_leader::In::Phase2b {
        from: AcceptorId(0),
        slot: SLOT,
        round: round(1),
    });
    assert_eq!(proxy.figure("chosen"), 1);
    let slack = counts(&[("relay_groups", 3), ("relay_slack", 2)]);
    assert_eq!(
        refusal(slack),
        "relay_slack is 2: 3 relays that each do without 2 of their acceptors are sure to have 19 votes of 25, and \
         20 are needed; at most 1 is possible"
    );
}

/// A column without one acceptor is no quorum.
#[test]
pub(crate) fn in_a_grid_relays_wait_for_all() {
    let mut grid = layout(4, &[("relay_slack", 1)]);
    grid.quorums = QuorumSpec::Grid {
        rows: 2,
        columns: 2,
    };
    assert_eq!(
        refusal(grid.clone()),
        "relay_slack is 1: where acceptors are in a grid or in groups, relays must wait for all (0)"
    );
    grid.options.own.clear();
    MultiPaxos::configure(grid).unwrap();
}

/// The acceptor of the leader's own node does not vote, as one that has lost its votes.
#[test]
fn a_relay_gathers_a_quorum_without_a_silent_acceptor_beside_the_leader() {
    let mut proxy = proxy_with(5, &[]);
    proxy.asked(propose(SLOT, 1));
    proxy.asked(answer(RelayId(3), set(&[3, 4]), SLOT));
    proxy.waited(Duration::from_millis(60));
    proxy.asked(answer(RelayId(1), set(&[1, 2]), SLOT));
    assert_eq!(proxy.figure("chosen"), 1);
    let asked = proxy.asked(propose(Slot(6), 1));
    let [(_, members, slack, _)] = relayed(&asked)[..] else {
        panic!("{asked:?}")
    };
    assert!(members.len() - usize::from(slack) >= 3, "{asked:?}");
}
