//! The rules of a leader of Mencius (Mencius, sections 4.2 to 4.4; compartmentalization, section
//! 6): suggest, skip, revoke, and return, one test for each rule, optimization and accelerator. All
//! that it asks of its driver is compared.

#[path = "mencius_leader/limits.rs"]
pub(crate) mod limits;
#[path = "mencius_leader/repairing.rs"]
pub(crate) mod repairing;
#[path = "mencius_leader/revoking.rs"]
pub(crate) mod revoking;

use crate::servers::{pre_vote_reply, round, value, vote, votes};
use crate::stage::{self, Stage, batch};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::mencius::leader::{In, Leader, Record};
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{Envelope, Mencius, acceptor, kind, proxy_leader, replica};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_replication::batch::Value;
use std::collections::BTreeMap;

/// The leader under test. It coordinates the slots 0, 3, 6 and so on, which are the positions 0, 1,
/// 2 of its stripe; and it stands in for leader 2.
const ID: LeaderId = LeaderId(0);
const HOME: Stripe = Stripe(0);
const OTHERS: Stripe = Stripe(2);

/// The number of positions that are reserved ahead of need at first.
const AHEAD: u64 = 256;

fn first() -> Round {
    round(1, ID.0)
}

/// Three servers with every role on each, and these settings of Mencius.
fn configured(settings: &[(&'static str, u64)]) -> <Mencius as Protocol>::Config {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let options = Options {
        own: BTreeMap::from_iter(settings.iter().copied()),
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        options,
        ..Layout::default()
    };
    Mencius::configure(layout).expect("a deployment")
}

fn leader(settings: &[(&'static str, u64)]) -> Stage<Leader> {
    let birth = stage::birth(kind::Leader, ID.0, NodeId(0));
    Stage::new(configured(settings), &birth, Leader::new)
}

fn in_stripe(stripe: Stripe, message: multipaxos::leader::In) -> In {
    In::InStripe { stripe, message }
}

/// An acceptor has promised, and has noted no reservation.
fn phase1b(stripe: Stripe, from: u8, round: Round, votes: Votes) -> In {
    phase1b_with(stripe, from, (round, votes), Vec::new())
}

/// An acceptor has promised, and has noted these reservations.
fn phase1b_with(
    stripe: Stripe,
    from: u8,
    (round, votes): (Round, Votes),
    reserved: Vec<Reserved>,
) -> In {
    let from = AcceptorId(from);
    In::Phase1b {
        from,
        stripe,
        round,
        votes,
        reserved,
        clock: Timestamp(0),
    }
}

/// It has begun phase 1 in its own stripe.
fn in_phase1(settings: &[(&'static str, u64)]) -> Stage<Leader> {
    let mut leader = leader(settings);
    leader.timer();
    for from in [0, 1] {
        let reply = pre_vote_reply(from, true, Round(0));
        leader.tell(in_stripe(HOME, reply));
    }
    leader
}

/// It leads in its own stripe, of which acceptors have told it nothing; nothing is reserved yet.
fn unreserved(settings: &[(&'static str, u64)]) -> Stage<Leader> {
    let mut leader = in_phase1(settings);
    for from in [0, 1] {
        leader.tell(phase1b(HOME, from, first(), votes(&[])));
    }
    leader
}

/// The same when two acceptors have noted its first reservation.
fn leads_with(settings: &[(&'static str, u64)]) -> Stage<Leader> {
    let mut leader = unreserved(settings);
    for from in [0, 1] {
        leader.tell(noted(HOME, from, first(), 0, AHEAD));
    }
    leader
}

fn leads() -> Stage<Leader> {
    leads_with(&[])
}

fn reserved(round: Round, start: u64, end: u64) -> Reserved {
    Reserved {
        round,
        start: StripePosition(start),
        end: StripePosition(end),
    }
}

/// An acceptor has noted a reservation.
fn noted(stripe: Stripe, from: u8, round: Round, start: u64, end: u64) -> In {
    In::Reserved {
        from: AcceptorId(from),
        stripe,
        reserved: reserved(round, start, end),
    }
}

/// Acceptors are to note a reservation.
fn reserve(stripe: Stripe, of: AcceptorSet, reserved: Reserved) -> (Envelope, Option<usize>) {
    let message = acceptor::In::Reserve {
        from: ID,
        stripe,
        reserved,
    };
    (Envelope::ToAcceptors(of, message), Some(0))
}

fn proposal(text: &'static str, again: bool) -> In {
    let message = multipaxos::leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(0) },
        near: Set::one(ReplicaId(0)),
        batch: batch(text),
        again,
    };
    in_stripe(HOME, message)
}

fn propose(text: &'static str) -> In {
    proposal(text, false)
}

/// A value goes to the proxy leader of its node, for a position of a stripe.
fn suggested(
    stripe: Stripe,
    round: Round,
    position: u64,
    value: Value,
    proposer: Proposer,
) -> (Envelope, Option<usize>) {
    let of_client = matches!(proposer, Proposer::Client { .. });
    let message = multipaxos::proxy_leader::In::Phase2a {
        slot: Slot(position),
        round,
        value,
        proposer,
        replier: ReplicaId(if of_client { 0 } else { (position % 3) as u8 }),
    };
    let message = proxy_leader::In::InStripe { stripe, message };
    let proxy = Set::one(ProxyLeaderId(0));
    (Envelope::ToProxyLeaders(proxy, message), Some(0))
}

/// The command of the client.
fn suggests(round: Round, position: u64, text: &'static str) -> (Envelope, Option<usize>) {
    let by = Proposer::Client { id: ClientId(0) };
    suggested(HOME, round, position, value(1000, text), by)
}

/// The other leaders hear how far it is.
fn index(slot: u64) -> (Envelope, Option<usize>) {
    let message = In::Index {
        from: ID,
        slot: Slot(slot),
    };
    (Envelope::ToLeaders(Set::from_bits(0b110), message), None)
}

/// Another leader is as far.
fn index_of(from: u8, slot: u64) -> In {
    In::Index {
        from: LeaderId(from),
        slot: Slot(slot),
    }
}

/// Replicas hear that positions are skipped.
fn skip(to: Set<ReplicaId>, stripe: Stripe, start: u64, end: u64) -> (Envelope, Option<usize>) {
    let message = replica::In::Skip {
        stripe,
        start: StripePosition(start),
        end: StripePosition(end),
    };
    (Envelope::ToReplicas(to, message), None)
}

/// These messages and nothing else.
fn only(sends: Vec<(Envelope, Option<usize>)>) -> Asked<Envelope> {
    stage::only(Vec::new(), sends)
}

fn replicas(bits: u64) -> Set<ReplicaId> {
    Set::from_bits(bits)
}

// Suggesting.

/// Rule 1: "Upon receiving a request from a client, a server p suggests the request to instance Ip
/// and updates Ip to the next instance it will coordinate."
#[test]
fn a_leader_suggests_each_command_in_its_own_next_slot_and_tells_the_others_its_index() {
    let mut leader = leads();
    for (position, text) in [(0, "a"), (1, "b"), (2, "c")] {
        let expected = vec![
            suggests(first(), position, text),
            // The slot after the one that it has just used.
            index(3 * position + 1),
        ];
        assert_eq!(leader.asked(propose(text)), only(expected));
    }
}

/// The right to a slot passes from leader to leader, so a write quorum must know of it first.
#[test]
fn a_leader_suggests_nothing_before_a_write_quorum_has_noted_its_reservation() {
    let mut leader = unreserved(&[]);
    assert_eq!(leader.asked(propose("a")), only(vec![]));
    assert_eq!(
        leader.asked(noted(HOME, 1, first(), 0, AHEAD)),
        only(vec![])
    );
    let again = leader.asked(noted(HOME, 1, first(), 0, AHEAD));
    assert_eq!(again, only(vec![]), "the same acceptor");
    let asked = leader.asked(noted(HOME, 2, first(), 0, AHEAD));
    assert_eq!(asked, only(vec![suggests(first(), 0, "a"), index(1)]));
}

#[test]
fn a_new_leader_asks_all_acceptors_to_note_its_reservation() {
    let mut leader = in_phase1(&[]);
    leader.tell(phase1b(HOME, 0, first(), votes(&[])));
    let asked = leader.asked(phase1b(HOME, 1, first(), votes(&[])));
    let reserves = reserve(HOME, Set::first(3), reserved(first(), 0, AHEAD));
    assert_eq!(asked.sends.last(), Some(&reserves));
    assert_eq!(asked.records, []);
}

#[test]
fn a_reservation_is_asked_for_again_of_the_acceptors_that_have_not_noted_it() {
    let mut leader = unreserved(&[]);
    let asked_at = leader.now;
    leader.tell(noted(HOME, 1, first(), 0, AHEAD));
    // Its first report of its index, which is not what this is about.
    assert_eq!(leader.woken(), only(vec![index(0)]));
    let rest = Set::from_bits(0b101);
    let again = reserve(HOME, rest, reserved(first(), 0, AHEAD));
    assert_eq!(leader.woken(), only(vec![again]));
    assert_eq!(leader.now, asked_at + Options::default().resend_after);
}

#[test]
fn notes_of_a_reservation_of_another_round_do_not_count() {
    let mut leader = unreserved(&[]);
    leader.tell(propose("a"));
    for other in [Round(0), round(1, 1), round(2, 0)] {
        for from in 0..3 {
            assert_eq!(
                leader.asked(noted(HOME, from, other, 0, AHEAD)),
                only(vec![])
            );
        }
    }
}

#[test]
fn more_is_reserved_before_what_is_reserved_is_used_up() {
    let mut leader = leads();
    let mut asked = Vec::new();
    for position in 0..AHEAD {
        let sends = leader.asked(propose("a")).sends;
        let mut more = sends.into_iter().filter(|(envelope, _)| {
            matches!(
                envelope,
                Envelope::ToAcceptors(_, acceptor::In::Reserve { .. })
            )
        });
        if let Some(one) = more.next() {
            asked.push((position, one));
        }
    }
    let [(position, more), ..] = &asked[..] else {
        panic!("nothing was reserved")
    };
    assert!(*position <= AHEAD / 2, "{position}");
    let Envelope::ToAcceptors(all, acceptor::In::Reserve { reserved, .. }) = &more.0 else {
        unreachable!()
    };
    assert_eq!((*all, reserved.start), (Set::first(3), StripePosition(0)));
    assert!(reserved.end > StripePosition(AHEAD), "{reserved:?}");
}

/// Where nothing is suggested the others hear of the index all the same: a message may be lost.
#[test]
fn the_index_is_told_again_with_every_heartbeat() {
    let mut leader = leads();
    leader.tell(propose("a"));
    let mut told = 0;
    let until = leader.now + Duration::from_millis(300);
    while leader.now < until {
        told += leader
            .woken()
            .sends
            .iter()
            .filter(|one| **one == index(1))
            .count();
    }
    assert!((3..=4).contains(&told), "{told} times in 300 ms");
}

// Skipping.

/// Rule 2: "p updates Ip such that its new index Ip' = min{k : p coordinates instance k, k > i}. p
/// also executes skip actions for each of the instances in range [Ip, Ip') that p coordinates."
#[test]
fn a_leader_that_is_behind_skips_its_unused_slots_and_goes_on_above_the_index() {
    let mut leader = leads();
    // Leader 1 has suggested slot 7: slots 0, 3 and 6 are skipped.
    let told = skip(replicas(0b010), HOME, 0, 3);
    assert_eq!(leader.asked(index_of(1, 8)), only(vec![told]));
    let asked = leader.asked(propose("a"));
    assert_eq!(asked.sends[0], suggests(first(), 3, "a"));
}

#[test]
fn a_leader_that_is_not_behind_skips_nothing() {
    let mut leader = leads();
    leader.tell(propose("a"));
    leader.tell(propose("b"));
    // Slots 0 and 3 are used, and slot 4 is another's.
    for slot in [0, 1, 2, 5, 6] {
        assert_eq!(leader.asked(index_of(1, slot)), only(vec![]), "{slot}");
    }
    let told = skip(replicas(0b010), HOME, 2, 3);
    assert_eq!(leader.asked(index_of(1, 7)), only(vec![told]));
}

/// A later leader of the stripe must know what may have been skipped. The replica that waits for
/// the skip learns of it as soon as it is reserved.
#[test]
pub(crate) fn nothing_is_skipped_before_a_write_quorum_has_noted_its_reservation() {
    let mut leader = unreserved(&[]);
    assert_eq!(leader.asked(index_of(1, 8)), only(vec![]));
    assert_eq!(
        leader.asked(noted(HOME, 0, first(), 0, AHEAD)),
        only(vec![])
    );
    let told = skip(replicas(0b010), HOME, 0, 3);
    assert_eq!(
        leader.asked(noted(HOME, 2, first(), 0, AHEAD)),
        only(vec![told])
    );
    let expected = vec![
        suggests(first(), 3, "a"),
        skip(replicas(0b101), HOME, 0, 3),
        index(10),
    ];
    assert_eq!(leader.asked(propose("a")), only(expected));
}

/// Optimization 1: "p does not send a separate skip message to q" that suggested: it learns of the
/// skip at once, and the others not yet. Optimization 2: "p waits for a future suggest message".
#[test]
fn replicas_of_the_suggesting_leader_learn_of_a_skip_at_once_and_others_with_the_next_suggestion() {
    let mut leader = leads();
    let told = skip(replicas(0b010), HOME, 0, 3);
    assert_eq!(leader.asked(index_of(1, 8)), only(vec![told]));
    let expected = vec![
        suggests(first(), 3, "a"),
        skip(replicas(0b101), HOME, 0, 3),
        index(10),
    ];
    assert_eq!(leader.asked(propose("a")), only(expected));
}

#[test]
fn each_replica_learns_of_the_skipped_slots_that_it_does_not_know_of() {
    let mut leader = leads();
    leader.tell(index_of(1, 8));
    leader.tell(index_of(1, 14));
    // Replica 1 knows the one already; to the others both are new.
    let asked = leader.asked(propose("a"));
    let told: Vec<_> = asked
        .sends
        .iter()
        .filter(|(envelope, _)| matches!(envelope, Envelope::ToReplicas(..)))
        .collect();
    let expected = [
        skip(replicas(0b101), HOME, 0, 3),
        skip(replicas(0b101), HOME, 3, 5),
    ];
    assert_eq!(told, expected.iter().collect::<Vec<_>>());
}

/// Accelerator 1: "if the total number of outstanding skip messages to r is larger than some
/// constant alpha".
#[test]
fn more_than_alpha_skipped_slots_are_told_to_all_replicas_at_once() {
    let mut leader = leads_with(&[("skip_slots", 4)]);
    // Slots 0, 3, 6 and 9 are four.
    let told = skip(replicas(0b010), HOME, 0, 4);
    assert_eq!(leader.asked(index_of(1, 11)), only(vec![told]));
    let all = vec![
        skip(replicas(0b101), HOME, 0, 4),
        skip(replicas(0b111), HOME, 4, 5),
    ];
    assert_eq!(leader.asked(index_of(1, 14)), only(all));
}

/// Accelerator 1: "or the messages have been deferred for more than some time tau".
#[test]
fn skipped_slots_are_told_to_all_replicas_after_tau() {
    let mut leader = leads_with(&[("skip_delay_ms", 7)]);
    leader.timer();
    leader.tell(index_of(1, 8));
    let skipped_at = leader.now;
    assert_eq!(
        leader.woken(),
        only(vec![skip(replicas(0b101), HOME, 0, 3)])
    );
    assert_eq!(leader.now, skipped_at + Duration::from_millis(7));
}

/// A message from far ahead of anything would make the log lose all its slots.
#[test]
fn an_index_that_is_absurdly_far_ahead_is_ignored() {
    let mut leader = leads();
    assert_eq!(leader.asked(index_of(1, 1 << 50)), only(vec![]));
    let asked = leader.asked(propose("a"));
    assert_eq!(asked.sends[0], suggests(first(), 0, "a"));
}

// What replicas miss.

fn recover(slot: u64) -> In {
    In::Recover {
        from: ReplicaId(2),
        slots: vec![Slot(slot)],
    }
}

/// A replica has executed everything below this slot, and keeps nothing.
fn executed(from: u8, executed: u64) -> In {
    In::Executed {
        from: ReplicaId(from),
        executed: Slot(executed),
        kept: Slot(0),
        rounds: vec![first(); 3],
        times: Times {
            clock: Timestamp(0),
            log: Timestamp(0),
        },
    }
}

#[test]
fn a_replica_that_missed_a_skip_hears_of_it_again() {
    let mut leader = leads();
    leader.tell(index_of(1, 8));
    // From the slot that it asks for, which is position 1.
    let told = skip(replicas(0b100), HOME, 1, 3);
    assert_eq!(leader.asked(recover(3)), only(vec![told]));
}

/// Some replica has executed the run, and is lost or has restarted from an older snapshot: the
/// leader no longer knows where its suggestions were, but the long runs that it has skipped.
#[test]
fn a_replica_that_missed_a_long_skip_hears_of_it_again_though_another_has_executed_it() {
    let mut leader = leads();
    leader.tell(index_of(1, 300));
    leader.tell(propose("a"));
    leader.tell(executed(0, 301));
    let told = skip(replicas(0b100), HOME, 1, 100);
    assert_eq!(leader.asked(recover(3)), only(vec![told]));
}

#[test]
fn a_slot_that_a_replica_waits_for_and_that_is_not_used_is_skipped_for_it() {
    let mut leader = leads();
    leader.tell(propose("a"));
    let told = skip(replicas(0b100), HOME, 1, 3);
    assert_eq!(leader.asked(recover(6)), only(vec![told]));
    let asked = leader.asked(propose("b"));
    assert_eq!(asked.sends[0], suggests(first(), 3, "b"));
}

#[test]
fn a_slot_of_another_leader_is_its_own_affair() {
    let mut leader = leads();
    for slot in [1, 2] {
        assert_eq!(leader.asked(recover(slot)), only(vec![]));
    }
}

#[test]
fn a_suggestion_that_a_replica_misses_is_handed_to_a_proxy_leader_again() {
    let mut leader = leads();
    leader.tell(propose("a"));
    leader.now = leader.now + Options::default().resend_after;
    let asked = leader.asked(recover(0));
    let expected = suggests(first(), 0, "a");
    assert_eq!(asked, only(vec![expected]));
}

// Broken links.

/// Lets time pass until it sends something to leaders beside its index and heartbeats.
fn next_to_leaders(leader: &mut Stage<Leader>, heard: &[u8]) -> Envelope {
    for _ in 0..100 {
        for from in heard {
            leader.tell(index_of(*from, 0));
        }
        let asked = leader.woken();
        let found = asked.sends.into_iter().find(|(envelope, _)| {
            matches!(
                envelope,
                Envelope::ToLeaders(_, In::Misses { .. } | In::PassedOn { .. })
            )
        });
        if let Some((envelope, fence)) = found {
            assert_eq!(fence, None);
            return envelope;
        }
    }
    panic!("it sends no such message")
}

#[test]
fn a_leader_that_does_not_hear_another_asks_the_rest_to_pass_on_what_they_hear() {
    let mut leader = leads();
    let missed = In::Misses {
        from: ID,
        leaders: Set::one(LeaderId(2)),
    };
    let expected = Envelope::ToLeaders(Set::one(LeaderId(1)), missed);
    assert_eq!(next_to_leaders(&mut leader, &[1]), expected);
}

#[test]
fn what_is_heard_of_a_leader_is_passed_on_to_one_that_misses_it() {
    let mut leader = leads();
    let misses = In::Misses {
        from: LeaderId(2),
        leaders: Set::one(LeaderId(1)),
    };
    assert_eq!(leader.asked(misses), only(vec![]));
    let passed = In::PassedOn {
        from: LeaderId(1),
        slot: Slot(8),
    };
    let expected = vec![
        (Envelope::ToLeaders(Set::one(LeaderId(2)), passed), None),
        // All replicas, for those of leader 1 may hear of it only through others.
        skip(replicas(0b111), HOME, 0, 3),
    ];
    assert_eq!(leader.asked(index_of(1, 8)), only(expected));
}

#[test]
fn an_index_that_was_passed_on_counts_like_one_that_was_heard() {
    let mut leader = leads();
    let passed = In::PassedOn {
        from: LeaderId(1),
        slot: Slot(8),
    };
    let told = skip(replicas(0b111), HOME, 0, 3);
    assert_eq!(leader.asked(passed), only(vec![told]));
}
