//! Revoking the stripe of a leader that has failed, and taking one's own back.

use super::*;

/// All acceptors are asked for promises in a stripe, behind the record of the round.
fn begins(stripe: Stripe, round: Round) -> Asked<Envelope> {
    let message = multipaxos::acceptor::In::Phase1a {
        from: ID,
        round,
        start: Slot(0),
        end: Slot::MAX,
    };
    let message = acceptor::In::InStripe { stripe, message };
    let ask = Envelope::ToAcceptors(Set::first(3), message);
    let record = Record {
        stripe,
        record: multipaxos::leader::Record { round },
    };
    let record = (encode_all(&record), true);
    stage::only(vec![record], vec![(ask, Some(1))])
}

/// Lets time pass until it asks the acceptors about the leader of this stripe, which it hears in
/// this round, if any.
fn asks_about(leader: &mut Stage<Leader>, stripe: Stripe, heard: Option<Round>) {
    for _ in 0..100 {
        if let Some(round) = heard {
            let message = multipaxos::leader::In::Heartbeat { round };
            leader.tell(in_stripe(stripe, message));
        }
        let asked = leader.waited(Duration::from_millis(50));
        let asks = |(envelope, _): &(Envelope, Option<usize>)| {
            let message = multipaxos::acceptor::In::PreVote { from: ID };
            let message = acceptor::In::InStripe { stripe, message };
            *envelope == Envelope::ToAcceptors(Set::first(3), message)
        };
        if asked.sends.iter().any(asks) {
            return;
        }
    }
    panic!("it does not ask the acceptors")
}

/// Leader 0, which has suspected leader 2 and begun phase 1 in its stripe.
fn suspicious(settings: &[(&'static str, u64)]) -> Stage<Leader> {
    let mut leader = leader(settings);
    asks_about(&mut leader, OTHERS, None);
    let reply = |from| in_stripe(OTHERS, pre_vote_reply(from, true, Round(0)));
    assert_eq!(leader.asked(reply(0)), only(vec![]));
    assert_eq!(leader.asked(reply(1)), begins(OTHERS, first()));
    leader
}

/// What it asks for when phase 1 in the stripe of leader 2 has found these votes, beside heartbeats
/// and news of the leader.
fn revokes(leader: &mut Stage<Leader>, votes: Votes) -> Vec<(Envelope, Option<usize>)> {
    leader.tell(phase1b(OTHERS, 0, first(), votes.clone()));
    let mut asked = leader.asked(phase1b(OTHERS, 1, first(), votes));
    asked.sends.retain(|(envelope, _)| match envelope {
        Envelope::ToProxyLeaders(..) => true,
        Envelope::ToReplicas(_, message) => matches!(message, replica::In::Skip { .. }),
        Envelope::ToAcceptors(_, message) => matches!(message, acceptor::In::Reserve { .. }),
        _ => false,
    });
    asked.sends
}

/// Rule 3: "Let q be a server that another server p suspects has failed ... p revokes q for all
/// instances in the range [Cq, Ip] that q coordinates"; "it starts Phase 1 for some round r' > r"
/// (4.2).
#[test]
fn a_leader_that_stands_in_begins_phase_1_in_the_stripe_of_one_that_the_acceptors_do_not_hear() {
    suspicious(&[]);
}

/// 4.2: "If Phase 1 indicates no value may have been chosen, then the new leader proposes no-op in
/// Phase 2. Otherwise, it proposes the possible consensus outcome indicated by Phase 1."
#[test]
fn what_the_failed_leader_may_have_got_chosen_is_proposed_again_and_noops_between() {
    let mut leader = suspicious(&[]);
    let found = votes(&[(1, vote(Round(2), 100, "a")), (2, vote(Round(2), 100, "b"))]);
    let again = |position, value| suggested(OTHERS, first(), position, value, Proposer::Leader {});
    let expected = [
        again(0, Value::default()),
        again(1, value(100, "a")),
        again(2, value(100, "b")),
    ];
    assert_eq!(revokes(&mut leader, found)[..3], expected);
}

/// Optimization 3: "p revokes q for all instances in the range [Cq, Ip + 2 beta] that q coordinates
/// if Cq < Ip + beta".
#[test]
fn the_stripe_of_a_failed_leader_is_skipped_two_beta_ahead_when_less_than_beta_is_left() {
    let mut leader = suspicious(&[("revoke_slots", 10)]);
    let asked = revokes(&mut leader, votes(&[]));
    let [
        (
            Envelope::ToAcceptors(
                _,
                acceptor::In::Reserve {
                    reserved: ahead, ..
                },
            ),
            _,
        ),
    ] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    let StripePosition(end) = ahead.end;
    assert_eq!(
        *asked,
        [reserve(OTHERS, Set::first(3), reserved(first(), 0, end))]
    );
    leader.tell(noted(OTHERS, 0, first(), 0, end));
    // Of the slots below 20 those of leader 2 are 2, 5, 8, 11, 14 and 17.
    let asked = leader.asked(noted(OTHERS, 1, first(), 0, end));
    assert_eq!(asked, only(vec![skip(replicas(0b111), OTHERS, 0, 6)]));
    // With index 10 its next slot, 20, is beta ahead.
    assert_eq!(leader.asked(index_of(1, 10)), only(vec![]));
    // With index 11 it is not: all below 31 are skipped, which are 20, 23, 26 and 29.
    let told = skip(replicas(0b111), OTHERS, 6, 10);
    assert_eq!(leader.asked(index_of(1, 11)), only(vec![told]));
}

/// Without Optimization 3 each slot is revoked when another goes beyond it.
#[test]
fn with_beta_0_the_stripe_of_a_failed_leader_is_skipped_up_to_the_index() {
    let mut leader = suspicious(&[("revoke_slots", 0)]);
    revokes(&mut leader, votes(&[]));
    leader.tell(noted(OTHERS, 0, first(), 0, AHEAD));
    assert_eq!(
        leader.asked(noted(OTHERS, 1, first(), 0, AHEAD)),
        only(vec![])
    );
    let told = skip(replicas(0b111), OTHERS, 0, 2);
    assert_eq!(leader.asked(index_of(1, 8)), only(vec![told]));
}

/// Commands go into its own stripe: in one that it revokes they would come far too late.
#[test]
fn a_leader_that_stands_in_suggests_nothing_in_the_stripe_of_the_other() {
    let mut leader = leads_with(&[("revoke_slots", 10)]);
    asks_about(&mut leader, OTHERS, None);
    for from in [0, 1] {
        leader.tell(in_stripe(OTHERS, pre_vote_reply(from, true, Round(0))));
    }
    revokes(&mut leader, votes(&[]));
    let message = multipaxos::leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(2) },
        near: Set::EMPTY,
        batch: batch("a"),
        again: false,
    };
    let asked = leader.asked(in_stripe(OTHERS, message));
    let suggestions: Vec<_> = asked
        .sends
        .iter()
        .filter_map(|(envelope, _)| match envelope {
            Envelope::ToProxyLeaders(_, proxy_leader::In::InStripe { stripe, .. }) => Some(*stripe),
            _ => None,
        })
        .collect();
    assert_eq!(suggestions, [HOME]);
}

// Coming back.

/// Leader 0, whose stripe leader 1 has taken over in this round and leads.
fn deposed() -> (Stage<Leader>, Round) {
    let mut leader = leads();
    leader.tell(propose("a"));
    let higher = round(2, 1);
    let message = multipaxos::leader::In::Heartbeat { round: higher };
    assert_eq!(leader.asked(in_stripe(HOME, message)), only(vec![]));
    (leader, higher)
}

/// The same when it has begun a round of its own again.
fn returns() -> (Stage<Leader>, Round) {
    let (mut leader, higher) = deposed();
    let deposed_at = leader.now;
    asks_about(&mut leader, HOME, Some(higher));
    assert!(leader.now >= deposed_at + Options::default().election_timeout);
    // The acceptors hear leader 1, and answer.
    let reply = |from| in_stripe(HOME, pre_vote_reply(from, false, higher));
    assert_eq!(leader.asked(reply(0)), only(vec![]));
    let next = round(3, 0);
    assert_eq!(leader.asked(reply(1)), begins(HOME, next));
    (leader, next)
}

/// "q may need to suggest values in the future, either because q was falsely suspected or because
/// it recovers" (4.4).
#[test]
fn a_leader_that_reaches_a_write_quorum_takes_its_stripe_back_though_another_leads_it() {
    returns();
}

#[test]
fn a_leader_that_has_lost_its_stripe_turns_commands_away() {
    let (mut leader, higher) = deposed();
    let message = multipaxos::client::In::NotLeader { round: higher };
    let away = Envelope::ToClients(Set::one(ClientId(0)), message);
    assert_eq!(leader.asked(propose("b")), only(vec![(away, Some(0))]));
}

/// It serves the stripes of two leaders: each client follows the rounds of its own stripe.
#[test]
fn a_leader_that_has_lost_its_stripe_names_to_each_client_the_round_of_the_clients_stripe() {
    let (mut leader, _) = deposed();
    let higher = round(7, 2);
    let message = multipaxos::leader::In::Heartbeat { round: higher };
    leader.tell(in_stripe(OTHERS, message));
    let message = multipaxos::leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(2) },
        near: Set::EMPTY,
        batch: batch("a"),
        again: false,
    };
    let away = multipaxos::client::In::NotLeader { round: higher };
    let away = Envelope::ToClients(Set::one(ClientId(2)), away);
    let asked = leader.asked(in_stripe(OTHERS, message));
    assert_eq!(asked, only(vec![(away, Some(0))]));
}

/// Lets time pass until it asks the acceptors whether it can take its stripe back from the leader
/// of this round, and returns how long that took.
fn waits_before_it_returns(leader: &mut Stage<Leader>, higher: Round) -> Duration {
    let deposed_at = leader.now;
    asks_about(leader, HOME, Some(higher));
    leader.now.since(deposed_at)
}

/// The leader that suspects it may have a reason, and each change costs a revocation.
#[test]
pub(crate) fn a_leader_that_loses_its_stripe_soon_waits_twice_as_long_before_it_takes_it_back() {
    let (mut leader, higher) = deposed();
    let timeout = Options::default().election_timeout;
    let waited = waits_before_it_returns(&mut leader, higher);
    assert!(
        (2 * timeout..3 * timeout).contains(&waited),
        "{waited:?} after it was deposed"
    );
}

/// A round that it begins itself, here to admit an acceptor, is no sign of suspicion.
#[test]
fn a_leader_that_begins_another_round_itself_waits_no_longer_for_that() {
    let mut leader = leads();
    let rejoin = multipaxos::leader::In::Rejoin {
        from: AcceptorId(2),
        nonce: 77,
        promise: Round(0),
    };
    leader.tell(in_stripe(HOME, rejoin));
    let next = round(2, 0);
    for from in [0, 1] {
        leader.tell(phase1b(HOME, from, next, votes(&[])));
    }
    assert_eq!(leader.figure("leading"), 1);
    let higher = round(3, 1);
    let message = multipaxos::leader::In::Heartbeat { round: higher };
    leader.tell(in_stripe(HOME, message));
    let timeout = Options::default().election_timeout;
    let waited = waits_before_it_returns(&mut leader, higher);
    assert!(
        (2 * timeout..3 * timeout).contains(&waited),
        "{waited:?} after it was deposed once"
    );
}

/// What was skipped in its absence was reserved: it may be a noop already.
#[test]
fn a_leader_that_comes_back_goes_on_above_everything_that_was_skipped_meanwhile() {
    let (mut leader, next) = returns();
    let meanwhile = || vec![reserved(round(2, 1), 0, 1000)];
    leader.tell(phase1b_with(HOME, 0, (next, votes(&[])), meanwhile()));
    let asked = leader.asked(phase1b_with(HOME, 1, (next, votes(&[])), meanwhile()));
    let ahead = reserve(HOME, Set::first(3), reserved(next, 0, 1000 + AHEAD));
    assert!(asked.sends.contains(&ahead), "{asked:?}");
    let proposals = |asked: &Asked<Envelope>| {
        let of_proxy =
            |(envelope, _): &&(Envelope, _)| matches!(envelope, Envelope::ToProxyLeaders(..));
        asked
            .sends
            .iter()
            .filter(of_proxy)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(proposals(&asked), []);
    // The others must follow it there, and replicas learn that all below is skipped.
    assert!(asked.sends.contains(&index(2998)), "{asked:?}");
    leader.tell(noted(HOME, 0, next, 0, 1000 + AHEAD));
    let asked = leader.asked(noted(HOME, 1, next, 0, 1000 + AHEAD));
    let told = skip(replicas(0b111), HOME, 0, 1000);
    assert!(asked.sends.contains(&told), "{asked:?}");
    let asked = leader.asked(propose("b"));
    let position = proposals(&asked);
    let [(Envelope::ToProxyLeaders(_, proxy_leader::In::InStripe { message, .. }), _)] =
        &position[..]
    else {
        panic!("{position:?}")
    };
    let multipaxos::proxy_leader::In::Phase2a { slot, .. } = message else {
        panic!("{message:?}")
    };
    assert_eq!(*slot, Slot(1000));
}

/// A range is one message, whatever its length.
#[test]
fn what_a_predecessor_left_and_what_is_skipped_after_it_is_told_as_one_range() {
    let (mut leader, next) = returns();
    leader.tell(index_of(1, 3 * 1200));
    let meanwhile = || vec![reserved(round(2, 1), 0, 1000)];
    leader.tell(phase1b_with(HOME, 0, (next, votes(&[])), meanwhile()));
    leader.tell(phase1b_with(HOME, 1, (next, votes(&[])), meanwhile()));
    let end = 1200 + AHEAD;
    leader.tell(noted(HOME, 0, next, 0, end));
    let asked = leader.asked(noted(HOME, 1, next, 0, end));
    let skips = asked.sends.into_iter().filter(|(envelope, _)| {
        matches!(envelope, Envelope::ToReplicas(_, replica::In::Skip { .. }))
    });
    let told = skip(replicas(0b111), HOME, 0, 1200);
    assert_eq!(skips.collect::<Vec<_>>(), [told]);
}

/// Rule 4: "If server p suggests a value v to instance i, and p learns that no-op is chosen, then p
/// suggests v again."
#[test]
fn a_command_whose_slot_became_a_noop_is_suggested_again_in_another() {
    let (mut leader, next) = returns();
    let meanwhile = || vec![reserved(round(2, 1), 0, 5)];
    leader.tell(phase1b_with(HOME, 0, (next, votes(&[])), meanwhile()));
    leader.tell(phase1b_with(HOME, 1, (next, votes(&[])), meanwhile()));
    leader.tell(noted(HOME, 0, next, 0, 5 + AHEAD));
    leader.tell(noted(HOME, 1, next, 0, 5 + AHEAD));
    let asked = leader.asked(proposal("a", true));
    let [
        (Envelope::ToProxyLeaders(_, proxy_leader::In::InStripe { message, .. }), _),
        _,
    ] = &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    let multipaxos::proxy_leader::In::Phase2a { slot, value, .. } = message else {
        panic!("{message:?}")
    };
    assert_eq!((*slot, &value.batch), (Slot(5), &batch("a")));
}

#[test]
fn a_leader_goes_on_above_the_rounds_of_each_stripe_after_a_restart() {
    let birth = stage::birth(kind::Leader, ID.0, NodeId(0));
    let record = |stripe, round| Record {
        stripe,
        record: multipaxos::leader::Record { round },
    };
    let records = vec![record(HOME, round(7, 0)), record(OTHERS, round(4, 0))];
    let mut leader = Stage::after(configured(&[]), &birth, records, Leader::new);
    asks_about(&mut leader, OTHERS, None);
    leader.tell(in_stripe(OTHERS, pre_vote_reply(0, true, Round(0))));
    let asked = leader.asked(in_stripe(OTHERS, pre_vote_reply(1, true, Round(0))));
    assert_eq!(asked, begins(OTHERS, round(5, 0)));
    assert!(leader.role.next_timer().is_some());
    let records = [(HOME, round(7, 0)), (OTHERS, round(5, 0))];
    let records = records.map(|(stripe, round)| (encode_all(&record(stripe, round)), true));
    assert_eq!(leader.checkpoint(), stage::only(records.to_vec(), vec![]));
}
