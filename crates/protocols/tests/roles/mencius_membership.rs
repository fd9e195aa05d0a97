//! Changes of the members of Mencius, rule by rule (`docs/protocols/mencius.md`, "Membership"):
//! three servers, of which server 1 is replaced by server 4.

use crate::servers::{pre_vote_reply, votes};
use crate::stage::{Stage, batch, birth, only};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Places};
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::{Protocol, Transition};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::decode_all;
use ionian_protocols::mencius::acceptor::{self, Acceptor};
use ionian_protocols::mencius::leader::{self, In, Leader};
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::mencius::replica::{self, Replica};
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{Envelope, Mencius, client, kind, proxy_leader};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::{Proposer, ReaderId, Times, Votes};
use ionian_replication::batch::{Purpose, Value};

type Config = <Mencius as Protocol>::Config;

/// The servers of the configuration before, and of the one after.
const C: &[u8] = &[0, 1, 2];
const D: &[u8] = &[0, 2, 4];

/// The positions that a leader reserves first.
const AHEAD: u64 = 256;

/// Every role on each of these servers, under the server's number.
fn servers(numbers: &[u8]) -> Layout {
    let places: Places = numbers
        .iter()
        .map(|number| (*number, node(*number)))
        .collect();
    Layout {
        f: 1,
        instances: vec![places; 8],
        ..Layout::default()
    }
}

fn node(number: u8) -> NodeId {
    NodeId(number.into())
}

fn configured(layout: Layout) -> Config {
    Mencius::configure(layout).expect("a deployment")
}

fn before() -> Config {
    configured(servers(C))
}

/// The epoch of both configurations.
fn joint() -> Config {
    configured(Layout {
        epoch: Epoch(1),
        next: Some(Box::new(servers(D))),
        ..servers(C)
    })
}

fn after(frontier: u64) -> Config {
    configured(Layout {
        epoch: Epoch(2),
        since: Epoch(2),
        frontier: Slot(frontier),
        ..servers(D)
    })
}

fn round(epoch: u32, count: u64, leader: u8) -> Round {
    Round::new(Epoch(epoch), count, LeaderId(leader))
}

fn in_stripe(stripe: u8, message: multipaxos::leader::In) -> In {
    let stripe = Stripe(stripe);
    In::InStripe { stripe, message }
}

fn phase1b(stripe: u8, from: u8, (round, votes): (Round, Votes), reserved: Vec<Reserved>) -> In {
    In::Phase1b {
        from: AcceptorId(from),
        stripe: Stripe(stripe),
        round,
        votes,
        reserved,
        clock: Timestamp(0),
    }
}

fn range(round: Round, start: u64, end: u64) -> Reserved {
    Reserved {
        round,
        start: StripePosition(start),
        end: StripePosition(end),
    }
}

/// An acceptor has noted a reservation of stripe 0.
fn noted(from: u8, reserved: Reserved) -> In {
    In::Reserved {
        from: AcceptorId(from),
        stripe: Stripe(0),
        reserved,
    }
}

/// Leader 0 of C, which leads stripe 0 and may use its first positions.
fn leads_before() -> Stage<Leader> {
    let mut leader = Stage::new(before(), &birth(kind::Leader, 0, node(0)), Leader::new);
    leader.timer();
    let first = round(0, 1, 0);
    for from in [0, 1] {
        leader.tell(in_stripe(0, pre_vote_reply(from, true, Round(0))));
    }
    for from in [0, 1] {
        leader.tell(phase1b(0, from, (first, votes(&[])), Vec::new()));
    }
    for from in [0, 1] {
        leader.tell(noted(from, range(first, 0, AHEAD)));
    }
    leader
}

/// The same leader in the joint epoch, which server 4 has answered. Acceptors 0 and 2 are quorums
/// of both configurations; they have noted what it reserved before.
fn leads_jointly() -> (Stage<Leader>, Vec<Envelope>) {
    let mut leader = leads_before();
    let first = round(0, 1, 0);
    leader.reconfigure(joint());
    leader.tell(keeps(4, 0));
    leader.tell(in_stripe(0, pre_vote_reply(4, false, Round(0))));
    for from in [0, 2] {
        leader.tell(in_stripe(0, pre_vote_reply(from, false, first)));
    }
    let second = leader.role.stripes().next().expect("its own").1.round();
    assert_eq!(second.epoch(), Epoch(1));
    let mut sent = Vec::new();
    for from in [0, 2] {
        let known = vec![range(first, 0, AHEAD)];
        sent = leader.tell(phase1b(0, from, (second, votes(&[])), known));
    }
    let mut noted_by = |from| leader.tell(noted(from, range(second, 0, 2 * AHEAD)));
    noted_by(0);
    noted_by(2);
    (leader, sent)
}

/// What other leaders say of the stripes that they lead in the joint epoch.
fn frontiers(frontiers: &[(u8, u64)]) -> In {
    let frontiers = frontiers
        .iter()
        .map(|(stripe, slot)| (Stripe(*stripe), Slot(*slot)))
        .collect();
    In::Frontiers {
        epoch: Epoch(1),
        frontiers,
    }
}

/// A replica has heard of the joint round and keeps everything below this slot.
fn keeps(from: u8, kept: u64) -> In {
    In::Executed {
        from: ReplicaId(from),
        executed: Slot(kept),
        kept: Slot(kept),
        rounds: vec![round(1, 2, 0); 3],
        times: Times {
            clock: Timestamp(0),
            log: Timestamp(0),
        },
    }
}

/// The changes of members that were proposed.
fn changes(sent: &[Envelope]) -> Vec<Change> {
    let proposed = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToProxyLeaders(
            _,
            proxy_leader::In::InStripe {
                message: multipaxos::proxy_leader::In::Phase2a { value, .. },
                ..
            },
        ) => value.batch.commands().next(),
        _ => None,
    });
    let changes = proposed.filter(|command| command.purpose == Purpose::Change);
    changes
        .map(|command| decode_all(&Bytes::copy_from_slice(command.payload)).expect("a change"))
        .collect()
}

fn finish(frontier: u64) -> Change {
    Change::Finish {
        epoch: Epoch(1),
        frontier: Slot(frontier),
    }
}

// Layouts.

#[test]
fn a_leader_is_replaced_and_the_other_stripes_keep_theirs() {
    assert_eq!(
        Mencius::transition(&servers(C), &servers(D)),
        Ok(Transition::Joint)
    );
    for (config, homes) in [
        (before(), [Some(0), Some(1), Some(2), None]),
        // Until the change is finished the new leader has no stripe.
        (joint(), [Some(0), Some(1), Some(2), None]),
        (after(0), [Some(0), None, Some(2), Some(1)]),
    ] {
        let home = |leader| config.home_of(LeaderId(leader)).map(|stripe| stripe.0);
        assert_eq!([0, 1, 2, 4].map(home), homes);
    }
}

#[test]
fn the_number_of_leaders_is_fixed() {
    for leaders in [&[0, 1, 2, 3][..], &[0, 1]] {
        let mut other = servers(&[0, 1, 2, 3]);
        let places = leaders.iter().map(|leader| (*leader, node(*leader)));
        other.instances[usize::from(kind::Leader)] = places.collect();
        let refused = Mencius::transition(&servers(C), &other).unwrap_err();
        let expected = format!("there are 3, and there would be {}", leaders.len());
        assert!(refused.0.contains(&expected), "{refused:?}");
    }
}

/// Slots below it are executed by enough replicas; a position is as far as the stripe is long
/// there.
#[test]
pub(crate) fn the_frontier_is_a_position_in_each_stripe() {
    let config = after(8);
    let positions = config
        .stripes
        .iter()
        .map(|stripe| config.of(stripe).frontier());
    // Slots 0, 3 and 6; 1, 4 and 7; 2 and 5.
    assert_eq!(positions.collect::<Vec<_>>(), [3, 3, 2].map(Slot));
}

// Acceptors.

fn new_acceptor() -> Stage<Acceptor> {
    Stage::new(joint(), &birth(kind::Acceptor, 4, node(4)), Acceptor::new)
}

fn reserve(reserved: Reserved) -> acceptor::In {
    acceptor::In::Reserve {
        from: reserved.round.leader(),
        stripe: Stripe(0),
        reserved,
    }
}

/// It may have promised the joint epoch, of which the other new ones know nothing yet: were it to
/// refuse, it would depose a leader that no other could follow.
#[test]
pub(crate) fn a_new_acceptor_neither_notes_nor_refuses_what_is_reserved_in_the_configuration_before()
 {
    let mut acceptor = new_acceptor();
    let message = multipaxos::acceptor::In::Phase1a {
        from: LeaderId(2),
        round: round(1, 1, 2),
        start: Slot(0),
        end: Slot::MAX,
    };
    let stripe = Stripe(0);
    acceptor.tell(acceptor::In::InStripe { stripe, message });
    let before = range(round(0, 9, 0), 0, 10);
    assert_eq!(acceptor.asked(reserve(before)), only(vec![], vec![]));
    let jointly = range(round(1, 2, 0), 0, 10);
    let to = Envelope::ToLeaders(
        Set::one(LeaderId(0)),
        leader::In::Reserved {
            from: AcceptorId(4),
            stripe,
            reserved: jointly,
        },
    );
    let asked = acceptor.asked(reserve(jointly));
    assert_eq!((asked.records.len(), asked.sends), (1, vec![(to, Some(1))]));
}

/// Below it are writes for which only acceptors of the configuration before have voted.
#[test]
pub(crate) fn an_acceptor_tells_readers_at_least_the_frontier() {
    let mut acceptor = new_acceptor();
    acceptor.reconfigure(after(900));
    let from = ReaderId::Client { id: ClientId(0) };
    let message = client::In::PreReadAck {
        from: AcceptorId(4),
        inquiry: 7,
        watermark: Slot(900),
        epoch: Epoch(2),
    };
    assert_eq!(
        acceptor.tell(acceptor::In::PreRead { from, inquiry: 7 }),
        [Envelope::ToClients(Set::one(ClientId(0)), message)]
    );
}

// Replicas.

#[test]
fn a_replica_stores_a_snapshot_as_soon_as_it_has_executed_what_it_is_to_keep() {
    let mut replica = Stage::new(before(), &birth(kind::Replica, 0, node(0)), Replica::new);
    let heartbeat = replica::In::Heartbeat {
        stripe: Stripe(1),
        round: round(0, 1, 1),
        executed: Slot(1),
        keep: Slot(1),
        time: Timestamp(1000),
    };
    assert_eq!(replica.asked(heartbeat).snapshot, None);
    let message = multipaxos::replica::In::Chosen {
        slot: Slot(0),
        value: Value::default(),
        replier: ReplicaId(1),
    };
    let asked = replica.asked(replica::In::OfLog { message });
    assert!(asked.snapshot.is_some(), "{asked:?}");
}

// Leaders.

/// Acceptor 4 is not up. As long as no round of both configurations has begun, it is not needed.
#[test]
pub(crate) fn a_leader_that_waits_for_new_acceptors_reserves_with_those_that_it_leads_by() {
    let mut leader = leads_before();
    leader.reconfigure(joint());
    let first = round(0, 1, 0);
    let sent = leader.tell(In::Index {
        from: LeaderId(1),
        slot: Slot(3 * 200),
    });
    let asked = sent.iter().find_map(|envelope| match envelope {
        Envelope::ToAcceptors(of, acceptor::In::Reserve { reserved, .. }) => {
            Some((*of, reserved.end))
        }
        _ => None,
    });
    let (of, end) = asked.expect("less than half is left");
    assert_eq!(of, AcceptorSet::first(3));
    leader.tell(noted(0, range(first, 0, end.0)));
    leader.tell(noted(1, range(first, 0, end.0)));
    let far = Slot(3 * (AHEAD + 10));
    leader.tell(In::Index {
        from: LeaderId(1),
        slot: far,
    });
    assert_eq!(leader.figure("next_slot"), far.0);
}

/// Where it goes on: above everything that rounds of the configuration before have reserved, and so
/// may skip. Nothing is proposed there for that.
#[test]
pub(crate) fn a_leader_of_the_joint_epoch_tells_the_others_where_earlier_epochs_end() {
    let (_, sent) = leads_jointly();
    let message = frontiers(&[(0, 3 * (AHEAD - 1) + 1)]);
    let told = Envelope::ToLeaders(Set::from_bits(0b10110), message);
    assert!(sent.contains(&told), "{sent:?}");
    let proposes = |envelope: &Envelope| matches!(envelope, Envelope::ToProxyLeaders(..));
    assert!(!sent.iter().any(proposes), "{sent:?}");
}

/// The log is handed over when all stripes are: F is the highest frontier, 900.
#[test]
pub(crate) fn a_change_is_finished_when_the_new_replicas_keep_everything_below_the_highest_frontier()
 {
    let (mut leader, _) = leads_jointly();
    leader.tell(frontiers(&[(1, 500), (2, 900)]));
    for (from, kept) in [(0, 900), (1, 900), (4, 898), (4, 899)] {
        let sent = leader.tell(keeps(from, kept));
        assert_eq!(changes(&sent), [], "replica {from} keeps {kept}");
    }
    let sent = leader.tell(keeps(4, 900));
    assert_eq!(changes(&sent), [finish(900)]);
    // Not again at once.
    assert_eq!(changes(&leader.tell(keeps(4, 901))), []);
}

/// In that stripe a leader of the configuration before may still get anything chosen anywhere.
#[test]
pub(crate) fn a_change_is_not_finished_before_the_frontier_of_every_stripe_is_known() {
    let (mut leader, _) = leads_jointly();
    leader.tell(frontiers(&[(1, 500)]));
    let mut sent = Vec::new();
    for from in [0, 1, 2, 4] {
        sent.extend(leader.tell(keeps(from, 5000)));
    }
    assert_eq!(changes(&sent), []);
    // Of another change, say one that was abandoned.
    let epoch = Epoch(0);
    let frontiers_before = vec![(Stripe(2), Slot(900))];
    sent.extend(leader.tell(In::Frontiers {
        epoch,
        frontiers: frontiers_before,
    }));
    assert_eq!(changes(&sent), []);
    let sent = leader.tell(frontiers(&[(2, 900)]));
    assert_eq!(changes(&sent), [finish(900)]);
}

/// What a replica said before it had heard of the leader's round may be lost with its process.
#[test]
fn what_replicas_kept_before_the_joint_round_does_not_count() {
    let (mut leader, _) = leads_jointly();
    leader.tell(frontiers(&[(1, 500), (2, 900)]));
    for from in [0, 1, 2, 4] {
        let In::Executed {
            from,
            executed,
            kept,
            times,
            ..
        } = keeps(from, 900)
        else {
            unreachable!()
        };
        let rounds = vec![round(0, 1, 0); 3];
        let sent = leader.tell(In::Executed {
            from,
            executed,
            kept,
            rounds,
            times,
        });
        assert_eq!(changes(&sent), []);
    }
}

/// A home leader comes back while the nodes of the configuration to come are not up.
#[test]
fn a_leader_takes_its_stripe_back_by_the_configuration_before_while_new_acceptors_are_missing() {
    let mut leader = Stage::new(joint(), &birth(kind::Leader, 0, node(0)), Leader::new);
    let stand_in = round(0, 5, 2);
    leader.tell(in_stripe(
        0,
        multipaxos::leader::In::Heartbeat { round: stand_in },
    ));
    let mut asked = Vec::new();
    for _ in 0..20 {
        let heartbeat = multipaxos::leader::In::Heartbeat { round: stand_in };
        leader.tell(in_stripe(0, heartbeat));
        leader.timer();
        for from in [0, 1] {
            let sent = leader.tell(in_stripe(0, pre_vote_reply(from, false, stand_in)));
            asked.extend(sent.into_iter().filter_map(|envelope| match envelope {
                Envelope::ToAcceptors(
                    _,
                    acceptor::In::InStripe {
                        message: multipaxos::acceptor::In::Phase1a { round, .. },
                        ..
                    },
                ) => Some(round),
                _ => None,
            }));
        }
    }
    assert_eq!(asked.first(), Some(&round(0, 6, 0)));
}

/// It is to lead stripe 1 when the change is finished; until then leader 1 does.
#[test]
fn a_new_leader_serves_as_a_stand_in_and_takes_its_stripe_when_the_change_is_finished() {
    let mut leader = Stage::new(joint(), &birth(kind::Leader, 4, node(4)), Leader::new);
    assert_eq!(leader.role.home(), None);
    let message = multipaxos::leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(4) },
        near: Set::EMPTY,
        batch: batch("a"),
        again: false,
    };
    let turned_away = client::In::NotLeader { round: Round(0) };
    assert_eq!(
        leader.tell(in_stripe(1, message)),
        [Envelope::ToClients(Set::one(ClientId(4)), turned_away)]
    );
    leader.tell(keeps(0, 900));
    leader.reconfigure(after(900));
    assert_eq!(leader.role.home(), Some(Stripe(1)));
    let now = leader.now;
    let asks = leader.timer();
    assert_eq!(leader.now, now, "it waits");
    let message = multipaxos::acceptor::In::PreVote { from: LeaderId(4) };
    let asked = Envelope::ToAcceptors(
        [0, 2, 4].map(AcceptorId).into_iter().collect(),
        acceptor::In::InStripe {
            stripe: Stripe(1),
            message,
        },
    );
    assert!(asks.contains(&asked), "{asks:?}");
}

/// All leaders that have a stripe might drain: then those that a change adds would lead for all of
/// them, and none could propose what finishes the change.
#[test]
fn a_new_leader_does_not_take_over_from_one_that_drains() {
    let mut leader = Stage::new(joint(), &birth(kind::Leader, 4, node(4)), Leader::new);
    let from = LeaderId(0);
    let take_over = |round| multipaxos::leader::In::TakeOver { from, round };
    let declined = multipaxos::leader::In::Declined { from: LeaderId(4) };
    assert_eq!(
        leader.tell(in_stripe(0, take_over(round(1, 2, 0)))),
        [Envelope::ToLeaders(Set::one(from), in_stripe(0, declined))]
    );
    leader.reconfigure(after(0));
    let sent = leader.tell(in_stripe(0, take_over(round(2, 1, 0))));
    let asks = |sent: &Envelope| matches!(sent, Envelope::ToAcceptors(..));
    assert!(sent.iter().any(asks), "{sent:?}");
}

/// Stripe 0 has gone over to the joint epoch, stripe 1 has not. Its leader counts the replicas of
/// the configuration before: some of them leave, and those that come may miss what they keep.
#[test]
pub(crate) fn votes_of_the_joint_epoch_are_not_forgotten_by_the_word_of_a_leader_of_the_one_before()
{
    let mut acceptor = Stage::new(joint(), &birth(kind::Acceptor, 2, node(2)), Acceptor::new);
    for slot in (0..5000).map(Slot) {
        let message = multipaxos::acceptor::In::Phase2a {
            from: ProxyLeaderId(0),
            slot,
            round: round(1, 1, 0),
            value: Value::default(),
        };
        acceptor.tell(acceptor::In::InStripe {
            stripe: Stripe(0),
            message,
        });
    }
    let mut kept = |epoch| {
        let message = multipaxos::acceptor::In::Heartbeat {
            round: round(epoch, 1, 1),
            kept: Slot(2000 + u64::from(epoch)),
        };
        let asked = acceptor.asked(acceptor::In::InStripe {
            stripe: Stripe(1),
            message,
        });
        asked.records.len()
    };
    assert_eq!(kept(0), 1, "in its own stripe");
    assert_eq!(kept(1), 2);
}
