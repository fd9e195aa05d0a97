//! The rules of an acceptor of Mencius (Mencius, section 4.2; compartmentalization, section 6):
//! what it does stripe by stripe, and what it notes so that a skip needs no vote. All that it asks
//! of its driver is compared.

use crate::servers::{round, value, votes};
use crate::stage::{self, Stage};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::wire::encode_all;
use ionian_protocols::mencius::acceptor::{Acceptor, In, Record};
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{Envelope, Mencius, client, kind, leader, proxy_leader, replica};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::{ReaderId, Vote, Votes};
use std::collections::BTreeMap;

/// The acceptor under test, on node 1.
const ID: AcceptorId = AcceptorId(1);
const STRIPE: Stripe = Stripe(2);

fn after(settings: &[(&'static str, u64)], records: Vec<Record>) -> Stage<Acceptor> {
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
    let config = Mencius::configure(layout).expect("a deployment");
    let birth = stage::birth(kind::Acceptor, ID.0, NodeId(1));
    Stage::after(config, &birth, records, Acceptor::new)
}

fn acceptor() -> Stage<Acceptor> {
    after(&[], Vec::new())
}

fn in_stripe(stripe: Stripe, message: multipaxos::acceptor::In) -> In {
    In::InStripe { stripe, message }
}

fn phase1a(stripe: Stripe, round: Round) -> In {
    let message = multipaxos::acceptor::In::Phase1a {
        from: round.leader(),
        round,
        start: Slot(0),
        end: Slot::MAX,
    };
    in_stripe(stripe, message)
}

fn phase2a(stripe: Stripe, position: u64, round: Round, text: &'static str) -> In {
    let message = multipaxos::acceptor::In::Phase2a {
        from: ProxyLeaderId(0),
        slot: Slot(position),
        round,
        value: value(100, text),
    };
    in_stripe(stripe, message)
}

fn to_leader(leader: u8, stripe: Stripe, message: multipaxos::leader::In) -> Envelope {
    let message = leader::In::InStripe { stripe, message };
    Envelope::ToLeaders(Set::one(LeaderId(leader)), message)
}

/// A promise in a stripe, with these reservations of it.
fn promise(now: &Stage<Acceptor>, round: Round, votes: Votes, reserved: Vec<Reserved>) -> Envelope {
    let message = leader::In::Phase1b {
        from: ID,
        stripe: STRIPE,
        round,
        votes,
        reserved,
        clock: now.now.timestamp(),
    };
    Envelope::ToLeaders(Set::one(round.leader()), message)
}

fn phase2b(stripe: Stripe, position: u64, round: Round) -> Envelope {
    let message = multipaxos::proxy_leader::In::Phase2b {
        from: ID,
        slot: Slot(position),
        round,
    };
    let message = proxy_leader::In::InStripe { stripe, message };
    Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), message)
}

fn recorded(stripe: Stripe, record: multipaxos::acceptor::Record, vital: bool) -> (Vec<u8>, bool) {
    (encode_all(&Record::InStripe { stripe, record }), vital)
}

fn promised(stripe: Stripe, round: Round) -> (Vec<u8>, bool) {
    recorded(
        stripe,
        multipaxos::acceptor::Record::Promised { round },
        true,
    )
}

fn voted(stripe: Stripe, position: u64, round: Round, text: &'static str) -> (Vec<u8>, bool) {
    let vote = Vote {
        round,
        value: value(100, text),
    };
    let slot = Slot(position);
    recorded(
        stripe,
        multipaxos::acceptor::Record::Voted { slot, vote },
        false,
    )
}

fn reserved(round: Round, start: u64, end: u64) -> Reserved {
    Reserved {
        round,
        start: StripePosition(start),
        end: StripePosition(end),
    }
}

fn reserve(reserved: Reserved) -> In {
    In::Reserve {
        from: reserved.round.leader(),
        stripe: STRIPE,
        reserved,
    }
}

fn note(reserved: Reserved) -> (Vec<u8>, bool) {
    let stripe = STRIPE;
    (encode_all(&Record::Reserved { stripe, reserved }), true)
}

fn noted(reserved: Reserved) -> Envelope {
    let message = leader::In::Reserved {
        from: ID,
        stripe: STRIPE,
        reserved,
    };
    Envelope::ToLeaders(Set::one(reserved.round.leader()), message)
}

fn only(records: Vec<(Vec<u8>, bool)>, sends: Vec<(Envelope, Option<usize>)>) -> Asked<Envelope> {
    stage::only(records, sends)
}

/// Every stripe has rounds of its own: "the coordinator had run Phase 1 for some initial round r"
/// of its own instances (4.2).
#[test]
fn a_promise_in_one_stripe_binds_in_no_other() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(STRIPE, round(5, 0)));
    let low = round(1, 1);
    let asked = acceptor.asked(phase2a(Stripe(1), 3, low, "a"));
    let records = vec![promised(Stripe(1), low), voted(Stripe(1), 3, low, "a")];
    let vote = phase2b(Stripe(1), 3, low);
    assert_eq!(asked, only(records, vec![(vote, Some(2))]));
    // In the stripe itself it does.
    let asked = acceptor.asked(phase2a(STRIPE, 3, low, "a"));
    assert_eq!(asked.records, []);
}

/// "Any server learns that no-op has been chosen as soon as it receives a skip message" (4.2): what
/// makes that safe must survive a crash.
#[test]
fn a_reservation_is_recorded_as_vital_and_answered_behind_its_record() {
    let mut acceptor = acceptor();
    let one = reserved(round(1, 2), 0, 256);
    let asked = acceptor.asked(reserve(one));
    assert_eq!(asked, only(vec![note(one)], vec![(noted(one), Some(1))]));
}

#[test]
fn a_reservation_that_is_asked_for_again_needs_no_record() {
    let mut acceptor = acceptor();
    let one = reserved(round(1, 2), 0, 256);
    acceptor.asked(reserve(one));
    let asked = acceptor.asked(reserve(one));
    assert_eq!(asked, only(vec![], vec![(noted(one), Some(0))]));
}

/// s12: a later leader that has this acceptor's promise may use the slots.
#[test]
pub(crate) fn a_reservation_in_a_round_below_the_promise_is_refused() {
    let mut acceptor = acceptor();
    let higher = round(2, 0);
    acceptor.asked(phase1a(STRIPE, higher));
    let refused = multipaxos::leader::In::Nack { round: higher };
    let refused = to_leader(2, STRIPE, refused);
    let asked = acceptor.asked(reserve(reserved(round(1, 2), 0, 256)));
    assert_eq!(asked, only(vec![], vec![(refused, Some(0))]));
}

/// A later leader must put nothing but noops where an earlier one may have skipped.
#[test]
fn a_promise_names_what_was_reserved_in_the_stripe_and_in_no_other() {
    let mut acceptor = acceptor();
    let one = reserved(round(1, 2), 0, 256);
    acceptor.asked(reserve(one));
    let elsewhere = In::Reserve {
        from: LeaderId(1),
        stripe: Stripe(1),
        reserved: reserved(round(1, 1), 0, 900),
    };
    acceptor.asked(elsewhere);
    let higher = round(2, 0);
    let answer = promise(&acceptor, higher, votes(&[]), vec![one]);
    let asked = acceptor.asked(phase1a(STRIPE, higher));
    let records = vec![promised(STRIPE, higher)];
    assert_eq!(asked, only(records, vec![(answer, Some(1))]));
}

/// Otherwise a leader that reserves more and more would make each promise longer.
#[test]
fn a_reservation_stands_for_the_earlier_ones_that_it_covers() {
    let mut acceptor = acceptor();
    let [old, longer] = [256, 512].map(|end| reserved(round(1, 2), 0, end));
    let later = reserved(round(2, 0), 600, 700);
    for one in [old, longer, later] {
        acceptor.asked(reserve(one));
    }
    let higher = round(3, 0);
    let answer = promise(&acceptor, higher, votes(&[]), vec![longer, later]);
    let asked = acceptor.asked(phase1a(STRIPE, higher));
    assert_eq!(asked.sends, [(answer, Some(1))]);
}

/// The number of reservations of a stripe that an acceptor keeps.
const MAX_RESERVATIONS: u64 = 4096;

/// Each page of votes in phase 1 comes with all of them.
#[test]
fn reservations_beyond_the_limit_are_refused_until_replicas_keep_what_was_reserved() {
    let mut acceptor = acceptor();
    let single = |position| reserved(round(1, 2), 2 * position, 2 * position + 1);
    for position in 0..MAX_RESERVATIONS {
        acceptor.asked(reserve(single(position)));
    }
    let one_more = single(MAX_RESERVATIONS);
    assert_eq!(acceptor.asked(reserve(one_more)), only(vec![], vec![]));
    // One that stands for another needs no room.
    let longer = reserved(round(1, 2), 8, 10);
    let asked = acceptor.asked(reserve(longer));
    assert_eq!(
        asked,
        only(vec![note(longer)], vec![(noted(longer), Some(1))])
    );
    assert_eq!(acceptor.asked(reserve(one_more)), only(vec![], vec![]));
    let message = multipaxos::acceptor::In::Heartbeat {
        round: round(1, 2),
        kept: Slot(1),
    };
    acceptor.asked(in_stripe(STRIPE, message));
    let asked = acceptor.asked(reserve(one_more));
    let answer = vec![(noted(one_more), Some(1))];
    assert_eq!(asked, only(vec![note(one_more)], answer));
}

/// What was recorded counts after a restart, however much it is: the votes that replicas keep are
/// known only when all records are read.
#[test]
fn all_recorded_reservations_are_known_after_a_restart() {
    let records = (0..MAX_RESERVATIONS + 5).map(|position| Record::Reserved {
        stripe: STRIPE,
        reserved: reserved(round(1, 2), 2 * position, 2 * position + 1),
    });
    let mut acceptor = after(&[], records.collect());
    let higher = round(2, 0);
    let asked = acceptor.asked(phase1a(STRIPE, higher));
    let [(Envelope::ToLeaders(_, leader::In::Phase1b { reserved, .. }), _)] = &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!(reserved.len() as u64, MAX_RESERVATIONS + 5);
}

#[test]
fn a_reservation_of_no_position_or_by_another_than_the_leader_of_its_round_is_ignored() {
    let mut acceptor = acceptor();
    for malformed in [
        reserve(reserved(round(1, 2), 256, 256)),
        reserve(reserved(round(1, 2), 256, 0)),
        In::Reserve {
            from: LeaderId(0),
            stripe: STRIPE,
            reserved: reserved(round(1, 2), 0, 256),
        },
    ] {
        assert_eq!(acceptor.asked(malformed), only(vec![], vec![]));
    }
}

#[test]
pub(crate) fn reservations_are_known_after_a_restart_and_after_a_checkpoint() {
    let one = reserved(round(1, 2), 0, 256);
    let record = Record::Reserved {
        stripe: STRIPE,
        reserved: one,
    };
    let mut acceptor = after(&[], vec![record]);
    let asked = acceptor.asked(reserve(one));
    assert_eq!(asked, only(vec![], vec![(noted(one), Some(0))]));
    let kept = acceptor.checkpoint();
    assert!(kept.records.contains(&note(one)), "{kept:?}");
}

/// The highest slot of the log decides: what is below it in other stripes is voted for, skipped or
/// revoked before a replica executes that slot.
#[test]
fn a_reader_learns_the_highest_slot_of_the_log_with_a_vote() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(Stripe(0), 4, round(1, 0), "a"));
    acceptor.asked(phase2a(Stripe(2), 3, round(1, 2), "b"));
    acceptor.asked(phase2a(Stripe(1), 2, round(1, 1), "c"));
    let from = ReaderId::Client { id: ClientId(0) };
    // Positions 4, 3 and 2 are slots 12, 11 and 7.
    let answer = client::In::PreReadAck {
        from: ID,
        inquiry: 3,
        watermark: Slot(13),
        epoch: Epoch::default(),
    };
    let answer = Envelope::ToClients(Set::one(ClientId(0)), answer);
    let asked = acceptor.asked(In::PreRead { from, inquiry: 3 });
    assert_eq!(asked, only(vec![], vec![(answer, Some(0))]));
}

/// All stripes' records are released by one number.
#[test]
fn records_are_released_when_replicas_keep_their_slots_in_all_stripes() {
    let mut acceptor = acceptor();
    for stripe in 0..3 {
        acceptor.asked(phase2a(Stripe(stripe), 0, round(1, stripe), "a"));
    }
    let kept = |stripe: u8| {
        let message = multipaxos::acceptor::In::Heartbeat {
            round: round(1, stripe),
            kept: Slot(1),
        };
        in_stripe(Stripe(stripe), message)
    };
    let released: Vec<_> = [2, 0, 1]
        .map(|stripe| acceptor.asked(kept(stripe)).release_below)
        .into();
    assert_eq!(released, [Some(0), Some(0), Some(1)]);
}

/// Out-of-order commit (Mencius, section 5) needs to know what is suggested in earlier slots.
#[test]
fn replicas_of_its_node_hear_of_suggestions_where_commands_may_be_executed_out_of_order() {
    let mut acceptor = after(&[("out_of_order", 1)], Vec::new());
    let told = replica::In::Suggested {
        slot: Slot(11),
        value: value(100, "a"),
    };
    let told = Envelope::ToReplicas(Set::one(ReplicaId(1)), told);
    let asked = acceptor.asked(phase2a(STRIPE, 3, round(1, 2), "a"));
    let vote = phase2b(STRIPE, 3, round(1, 2));
    assert_eq!(asked.sends, [(told, None), (vote, Some(2))]);
    let mut silent = self::acceptor();
    let asked = silent.asked(phase2a(STRIPE, 3, round(1, 2), "a"));
    let vote = phase2b(STRIPE, 3, round(1, 2));
    assert_eq!(asked.sends, [(vote, Some(2))]);
}

#[test]
fn messages_of_stripes_that_do_not_exist_are_ignored() {
    let mut acceptor = acceptor();
    let far = In::Reserve {
        from: LeaderId(0),
        stripe: Stripe(3),
        reserved: reserved(round(1, 0), 0, 256),
    };
    assert_eq!(acceptor.asked(far), only(vec![], vec![]));
    let asked = acceptor.asked(phase2a(Stripe(3), 0, round(1, 0), "a"));
    assert_eq!(asked, only(vec![], vec![]));
}

/// The leader of stripe 0 does not reach this acceptor, which goes on voting there: what replicas
/// keep is a fact of the whole log, and another leader says it.
#[test]
fn votes_of_a_leader_that_does_not_reach_the_acceptor_are_forgotten_by_the_word_of_another() {
    let mut acceptor = acceptor();
    let few = 4095;
    for position in 0..few {
        acceptor.asked(phase2a(Stripe(0), position, round(1, 0), "a"));
    }
    let kept = |position| {
        let message = multipaxos::acceptor::In::Heartbeat {
            round: round(1, 1),
            kept: Slot(position),
        };
        in_stripe(Stripe(1), message)
    };
    let forgot = |stripe, position| {
        let record = Record::InStripe {
            stripe: Stripe(stripe),
            record: multipaxos::acceptor::Record::Forgot {
                below: Slot(position),
            },
        };
        (encode_all(&record), false)
    };
    let asked = acceptor.asked(kept(10));
    assert_eq!(
        asked.records,
        [forgot(1, 10)],
        "few enough to wait for its leader"
    );
    acceptor.asked(phase2a(Stripe(0), few, round(1, 0), "a"));
    let asked = acceptor.asked(kept(2000));
    // Position 1999 of stripe 1 is slot 5998; 2000 positions of stripe 0 are at or below it.
    assert_eq!(asked.records, [forgot(1, 2000), forgot(0, 2000)]);
    assert_eq!(
        acceptor
            .asked(phase2a(Stripe(0), 1999, round(1, 0), "b"))
            .records,
        []
    );
}
