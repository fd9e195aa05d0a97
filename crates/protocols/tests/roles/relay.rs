//! The rules of a relay, of a proxy leader that asks through relays, and of an acceptor that is
//! asked by one (PigPaxos, sections 3 and 4), one test each. All that a role asks of its driver is
//! compared.

#[path = "relay/asking.rs"]
pub(crate) mod asking;
#[path = "relay/leading.rs"]
pub(crate) mod leading;
#[path = "relay/questions.rs"]
pub(crate) mod questions;
#[path = "relay/reading.rs"]
pub(crate) mod reading;
#[path = "relay/relayed.rs"]
pub(crate) mod relayed;
#[path = "relay/replicas.rs"]
mod replicas;

use crate::stage::{self, Stage, batch, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::acceptor::{Acceptor, Record};
use ionian_protocols::multipaxos::message::{Proposer, Vote};
use ionian_protocols::multipaxos::proxy_leader::ProxyLeader;
use ionian_protocols::multipaxos::{
    Envelope, MultiPaxos, acceptor, kind, leader, proxy_leader, relay, replica,
};
use ionian_protocols::pigpaxos::message::{RelayId, Requester, Run, Terms};
use ionian_protocols::pigpaxos::relay::Relay;
use ionian_replication::batch::Value;

const SLOT: Slot = Slot(5);
const PROXY: Requester = Requester::ProxyLeader {
    id: ProxyLeaderId(0),
};
const PATIENCE: u64 = 40_000;

/// Clients, leaders, proxy leaders, acceptors, replicas and relays on each of these nodes.
fn layout(nodes: usize, options: &[(&'static str, u64)]) -> Layout {
    let all: Vec<NodeId> = (0..nodes as u16).map(NodeId).collect();
    let mut instances = vec![all; MultiPaxos::KINDS.len()];
    for kind in [kind::Batcher, kind::ReadBatcher, kind::Unbatcher] {
        instances[usize::from(kind)].clear();
    }
    let mut layout = Layout {
        f: nodes.saturating_sub(1) / 2,
        instances: numbered(instances),
        ..Layout::default()
    };
    layout.options.own.extend(options.iter().copied());
    layout
}

fn refusal(layout: Layout) -> String {
    let Err(error) = MultiPaxos::configure(layout) else {
        panic!("a layout was taken for a deployment")
    };
    error.0
}

/// Relay 1, on node 1.
fn relay_with(nodes: usize, options: &[(&'static str, u64)]) -> Stage<Relay> {
    let config = MultiPaxos::configure(layout(nodes, options)).expect("a deployment");
    Stage::new(config, &birth(kind::Relay, 1, NodeId(1)), Relay::new)
}

/// Proxy leader 0, on node 0.
fn proxy_with(nodes: usize, options: &[(&'static str, u64)]) -> Stage<ProxyLeader> {
    proxy_on(0, nodes, options)
}

/// The proxy leader of a node.
fn proxy_on(node: u8, nodes: usize, options: &[(&'static str, u64)]) -> Stage<ProxyLeader> {
    let config = MultiPaxos::configure(layout(nodes, options)).expect("a deployment");
    let birth = birth(kind::ProxyLeader, node, NodeId(node.into()));
    let mut proxy = Stage::new(config, &birth, ProxyLeader::new);
    // Its first report to the leaders.
    proxy.timer();
    proxy
}

fn round(count: u64) -> Round {
    Round::new(Epoch::default(), count, LeaderId(0))
}

fn value() -> Value {
    Value {
        stamp: Timestamp(7),
        batch: batch("a"),
    }
}

fn set(numbers: &[u8]) -> AcceptorSet {
    numbers.iter().copied().map(AcceptorId).collect()
}

fn run(start: u64, count: u64) -> Run {
    Run {
        start: Slot(start),
        count,
        replier: ReplicaId(2),
    }
}

/// These messages, none behind a record, and nothing else.
fn only(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0)));
    stage::only(Vec::new(), sends.collect())
}

// The relay.

fn request(members: &[u8], slack: u8, count: u64) -> relay::In {
    relay::In::Phase2a {
        from: PROXY,
        slot: SLOT,
        round: round(count),
        value: value(),
        terms: Box::new(Terms {
            members: set(members),
            slack,
            patience: PATIENCE,
            chosen: Box::new([run(3, 1)]),
        }),
    }
}

fn asks(members: &[u8], count: u64) -> Envelope {
    let message = acceptor::In::RelayedPhase2a {
        from: Requester::Relay { id: RelayId(1) },
        slot: SLOT,
        round: round(count),
        value: value(),
        chosen: Box::new([run(3, 1)]),
    };
    Envelope::ToAcceptors(set(members), message)
}

fn vote(from: u8, count: u64) -> relay::In {
    relay::In::Phase2b {
        from: AcceptorId(from),
        slot: SLOT,
        round: round(count),
    }
}

fn votes(voted: &[u8], missing: &[u8], count: u64) -> Envelope {
    let message = proxy_leader::In::Votes {
        from: RelayId(1),
        slot: SLOT,
        round: round(count),
        voted: set(voted),
        missing: set(missing),
    };
    Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), message)
}

#[test]
fn a_relay_asks_its_group_and_answers_once_with_the_names_of_all() {
    let mut relay = relay_with(5, &[]);
    let asked = relay.asked(request(&[1, 2, 3], 0, 1));
    assert_eq!(asked, only(vec![asks(&[1, 2, 3], 1)]));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(3, 1)), only(vec![]));
    assert_eq!(
        relay.asked(vote(2, 1)),
        only(vec![votes(&[1, 2, 3], &[], 1)])
    );
    assert_eq!(relay.asked(vote(2, 1)), only(vec![]), "it is answered");
}

/// Defect s9: a follower that answers twice is one follower.
#[test]
pub(crate) fn s9_two_votes_of_one_acceptor_are_one() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2], 0, 1));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(4, 1)), only(vec![]), "of no member");
    assert_eq!(relay.asked(vote(2, 1)), only(vec![votes(&[1, 2], &[], 1)]));
}

#[test]
fn a_relay_with_slack_does_not_wait_for_the_slowest() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2, 3], 1, 1));
    assert_eq!(relay.asked(vote(3, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![votes(&[1, 3], &[], 1)]));
}

#[test]
pub(crate) fn votes_of_another_round_do_not_count() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1], 0, 2));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(1, 2)), only(vec![votes(&[1], &[], 2)]));
}

/// Defect l11.
#[test]
pub(crate) fn l11_a_relay_gives_up_long_before_its_requester_and_says_who_is_missing() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2, 3], 0, 1));
    relay.asked(vote(2, 1));
    let before = relay.now;
    assert_eq!(relay.woken(), only(vec![votes(&[2], &[1, 3], 1)]));
    assert_eq!(relay.now.since(before), Duration::from_micros(PATIENCE / 4));
    assert_eq!(relay.figure("gave_up"), 1);
}

#[test]
fn votes_that_come_when_a_relay_has_given_up_are_passed_on_while_the_requester_waits() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2, 3], 0, 1));
    relay.asked(vote(2, 1));
    relay.woken();
    assert_eq!(relay.asked(vote(1, 1)), only(vec![votes(&[1], &[], 1)]));
    let before = relay.now;
    assert_eq!(relay.woken(), only(vec![]));
    assert_eq!(relay.now.since(before), Duration::from_micros(PATIENCE));
    assert_eq!(relay.asked(vote(3, 1)), only(vec![]), "it is forgotten");
    assert_eq!(relay.role.next_timer(), None);
}

/// One that is down costs one request its time, and the others nothing.
#[test]
fn a_relay_does_not_wait_again_for_one_that_did_not_vote_until_it_votes() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2, 3], 0, 1));
    relay.asked(vote(1, 1));
    relay.asked(vote(2, 1));
    relay.woken();
    relay.asked(request(&[1, 2, 3], 0, 1));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    let without = only(vec![votes(&[1, 2], &[3], 1)]);
    assert_eq!(relay.asked(vote(2, 1)), without);
    assert_eq!(relay.asked(vote(3, 1)), only(vec![votes(&[3], &[], 1)]));
    relay.asked(request(&[1, 2, 3], 0, 1));
    relay.asked(vote(1, 1));
    assert_eq!(relay.asked(vote(2, 1)), only(vec![]), "it is back");
}

#[test]
fn the_time_that_a_relay_waits_follows_the_time_that_votes_take() {
    let mut relay = relay_with(5, &[]);
    for _ in 0..30 {
        relay.asked(request(&[1], 0, 1));
        relay.now = relay.now + Duration::from_micros(500);
        relay.asked(vote(1, 1));
    }
    relay.asked(request(&[1], 0, 1));
    let before = relay.now;
    relay.woken();
    let waited = relay.now.since(before);
    assert_eq!(waited, Duration::from_micros(4 * 500 + 1000));
}

#[test]
fn the_time_can_be_stated() {
    let mut relay = relay_with(5, &[("relay_timeout_ms", 7)]);
    relay.asked(request(&[1], 0, 1));
    let before = relay.now;
    relay.woken();
    assert_eq!(relay.now.since(before), Duration::from_millis(7));
}

#[test]
fn asked_again_a_relay_begins_anew() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2], 0, 1));
    relay.asked(vote(1, 1));
    let again = relay.asked(request(&[1, 2], 0, 1));
    assert_eq!(again, only(vec![asks(&[1, 2], 1)]));
    assert_eq!(relay.asked(vote(2, 1)), only(vec![]));
    assert_eq!(relay.asked(vote(1, 1)), only(vec![votes(&[1, 2], &[], 1)]));
}

/// 3.2: a newer round ends the request, and no votes follow.
#[test]
pub(crate) fn a_refusal_is_passed_on_at_once_and_ends_what_it_is_about() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2], 0, 1));
    relay.asked(vote(1, 1));
    let nack = proxy_leader::In::Nack { round: round(3) };
    let told = vec![
        Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), nack),
        Envelope::ToRelays(Set::EMPTY, relay::In::Nack { round: round(3) }),
    ];
    let refused = relay::In::Nack { round: round(3) };
    assert_eq!(relay.asked(refused.clone()), only(told));
    assert_eq!(relay.asked(vote(2, 1)), only(vec![]));
    assert_eq!(relay.asked(refused), only(vec![]));
    assert_eq!(relay.role.next_timer(), None, "nothing is left to wait for");
}

#[test]
fn slots_that_acceptors_have_forgotten_are_told_to_those_who_ask_for_them() {
    let mut relay = relay_with(5, &[]);
    relay.asked(request(&[1, 2], 0, 1));
    let below = Slot(6);
    let told = vec![
        Envelope::ToProxyLeaders(
            Set::one(ProxyLeaderId(0)),
            proxy_leader::In::Forgotten { below },
        ),
        Envelope::ToRelays(Set::EMPTY, relay::In::Forgotten { below }),
    ];
    assert_eq!(relay.asked(relay::In::Forgotten { below }), only(told));
    assert_eq!(relay.role.next_timer(), None, "the request is over");
}

#[test]
fn what_is_chosen_is_passed_on() {
    let mut relay = relay_with(5, &[]);
    let told = relay.asked(relay::In::Learn {
        members: set(&[1, 4]),
        round: round(1),
        chosen: Box::new([run(3, 2)]),
    });
    let message = acceptor::In::LearnSlots {
        round: round(1),
        chosen: Box::new([run(3, 2)]),
    };
    assert_eq!(
        told,
        only(vec![Envelope::ToAcceptors(set(&[1, 4]), message)])
    );
}

#[test]
fn a_relay_with_many_acceptors_has_relays_below_it_that_wait_half_as_long() {
    let mut relay = relay_with(7, &[("relay_fan_out", 2)]);
    let asked = relay.asked(request(&[1, 2, 3, 4, 5, 6], 2, 1));
    let mut below = AcceptorSet::EMPTY;
    let mut direct = AcceptorSet::EMPTY;
    for (envelope, _) in &asked.sends {
        match envelope {
            Envelope::ToRelays(_, relay::In::Phase2a { from, terms, .. }) => {
                let Terms {
                    members,
                    slack,
                    patience,
                    ..
                } = &**terms;
                assert_eq!(*from, Requester::Relay { id: RelayId(1) });
                assert_eq!((*slack, *patience), (1, PATIENCE / 2));
                assert!(!below.meets(*members));
                below = below.or(*members);
            }
            Envelope::ToAcceptors(to, _) => direct = direct.or(*to),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked.sends.len(), 3);
    assert_eq!((direct, below), (set(&[1]), set(&[2, 3, 4, 5, 6])));
    // Their answers are names too.
    assert_eq!(relay.asked(vote(1, 1)), only(vec![]));
    let of_relay = relay::In::Votes {
        slot: SLOT,
        round: round(1),
        voted: set(&[2, 3, 4]),
    };
    assert_eq!(
        relay.asked(of_relay),
        only(vec![votes(&[1, 2, 3, 4], &[], 1)])
    );
}

#[test]
fn no_message_makes_a_relay_ask_acceptors_that_do_not_exist_or_wait_without_end() {
    let mut relay = relay_with(5, &[]);
    let request = relay::In::Phase2a {
        from: PROXY,
        slot: SLOT,
        round: round(1),
        value: value(),
        terms: Box::new(Terms {
            members: Set::from_bits(u64::MAX),
            slack: u8::MAX,
            patience: u64::MAX,
            chosen: Box::default(),
        }),
    };
    let asked = relay.asked(request);
    assert!(
        matches!(&asked.sends[..], [(Envelope::ToAcceptors(to, _), _)] if *to == Set::first(5)),
        "{asked:?}"
    );
    let before = relay.now;
    relay.woken();
    assert!(relay.now.since(before) <= Duration::from_secs(15));
}
