//! One message with a round of an unknown epoch could end a cluster: an acceptor promised it and
//! wrote it down, and every leader that received the promise took it for the news of a change and
//! waited without end. Here each role receives each message that names an epoch with a forged one.
//!
//! Why no test found it before: the simulator's peers send nothing false. And tests with faulty
//! peers asked only that no role panics, not that the cluster serves clients afterwards.

use super::drawn;
use super::hostile::{Cluster, SERVERS, together};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::protocol::{Instance, Message, Protocol};
use ionian_kernel::time::Duration;
use ionian_kernel::wire::{Wire, encode_all};
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::spaxos::SPaxos;
use std::collections::BTreeSet;

/// After so long a cluster that serves no client does not serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// All that an observer outside can see of a node: figures, timers, records, messages.
fn figures<P: Protocol>(cluster: &Cluster<P>, node: usize) -> String {
    let mut text = format!(
        "{:?} {} {:?}",
        cluster.nodes[node].next_timer(),
        cluster.port.lsn,
        cluster.port.sent
    );
    for (address, instance) in cluster.nodes[node].instances() {
        text += &format!("\n{address:?}");
        text += &format!(" {:?}", instance.status());
    }
    text
}

/// Lets messages and time pass until every lane's request is carried out: whether all were.
fn serves<P: Protocol>(cluster: &mut Cluster<P>) -> bool {
    let until = cluster.now + PATIENCE;
    cluster.port.done.clear();
    let mut ask_at = [cluster.now; SERVERS];
    while cluster.now < until {
        for (lane, ask_at) in ask_at.iter_mut().enumerate() {
            let token = lane as u64;
            if *ask_at <= cluster.now && !cluster.port.done.contains(&token) {
                *ask_at = cluster.now + Duration::from_secs(5);
                let request = Request {
                    token,
                    operation: Operation::Write,
                    payload: Bytes::from_static(b"x"),
                };
                cluster.nodes[lane].submit(ClientId(lane as u8), request);
                cluster.settle(lane);
            }
        }
        if (0..SERVERS).all(|lane| cluster.port.done.contains(&(lane as u64))) {
            return true;
        }
        advance(cluster);
    }
    false
}

/// The next message arrives; if there is none, the next timer fires.
fn advance<P: Protocol>(cluster: &mut Cluster<P>) {
    if let Some((to, members, bytes)) = cluster.under_way.pop_front() {
        return cluster.deliver(to, members, &bytes);
    }
    let next = (0..SERVERS)
        .filter_map(|node| Some((cluster.nodes[node].next_timer()?, node)))
        .min();
    let (at, node) = next.expect("leaders have timers");
    cluster.now = cluster.now.max(at);
    cluster.nodes[node].fire_timers(cluster.now, &mut cluster.port);
    cluster.settle(node);
}

/// Tells each role each message: the first after which a node is not as it was, and how many were
/// ignored by then.
fn first_believed<P: Protocol>(
    layout: Layout,
    messages: &[P::Message],
) -> (Option<&'static str>, u64) {
    let mut ignored = 0;
    let mut cluster = Cluster::<P>::recovered(1, layout, &[]);
    assert!(serves(&mut cluster), "no node has done anything yet");
    for node in 0..SERVERS {
        while cluster.nodes[node].queued() > 0 {
            cluster.settle(node);
        }
        for message in messages {
            let (before, ignored_before) = (figures(&cluster, node), cluster.nodes[node].ignored());
            let (now, port) = (cluster.now, &mut cluster.port);
            cluster.nodes[node].deliver(Members::one(node as u8), message.clone());
            cluster.nodes[node].run(now, 1, port);
            cluster.nodes[node].end_burst(now, port);
            if figures(&cluster, node) != before {
                return (Some(message.name()), ignored);
            }
            ignored += cluster.nodes[node].ignored() - ignored_before;
        }
    }
    assert!(
        serves(&mut cluster),
        "a cluster that believes nothing goes on"
    );
    (None, ignored)
}

/// `kinds` of the messages name epochs.
fn nothing_is_believed<P: Protocol>(kinds: usize) {
    let names_epoch = |message: &P::Message| message.latest_epoch() > Epoch(0);
    let messages = drawn::messages::<P>(1, 20, names_epoch);
    let tried: BTreeSet<_> = messages.iter().map(Message::name).collect();
    assert_eq!(tried.len(), kinds, "{tried:?}");
    let layout = together(P::KINDS.len());
    assert_eq!(
        first_believed::<P>(layout, &messages),
        (None, (messages.len() * SERVERS) as u64)
    );
}

#[test]
pub(crate) fn forged_epochs_change_nothing_in_multipaxos() {
    nothing_is_believed::<MultiPaxos>(39);
}

#[test]
pub(crate) fn forged_epochs_change_nothing_in_mencius() {
    nothing_is_believed::<Mencius>(33);
}

#[test]
pub(crate) fn forged_epochs_change_nothing_in_spaxos() {
    nothing_is_believed::<SPaxos>(49);
}

/// A round of the epoch after that of a cluster that was never changed.
fn forged_round() -> Round {
    Round::new(Epoch(1), 1, LeaderId(0))
}

/// What an acceptor that believed such a round has promised. Its node is started again with that.
fn survives_a_promise<P: Protocol>(layout: &Layout, records: &[Vec<u8>]) {
    let kind = P::KINDS
        .iter()
        .position(|kind| *kind == "acceptor")
        .expect("a kind") as u8;
    // Of the first node, which leads first and asks its own acceptor first; of the last.
    for index in [0, SERVERS as u8 - 1] {
        let from = Address { kind, index };
        let records: Vec<_> = records
            .iter()
            .map(|record| (from, record.clone()))
            .collect();
        let mut cluster = Cluster::<P>::recovered(1, layout.clone(), &records);
        assert!(
            serves(&mut cluster),
            "acceptor {index} keeps the others from electing a leader"
        );
        let ignored: u64 = cluster.nodes.iter().map(|node| node.ignored()).sum();
        assert!(ignored > 0, "no node has heard of the promise");
    }
}

#[test]
pub(crate) fn a_promise_of_an_unknown_epoch_on_disk_stops_one_acceptor_only() {
    let round = forged_round();
    let promised = multipaxos::acceptor::Record::Promised { round };
    let in_stripe = |stripe| mencius::acceptor::Record::InStripe {
        stripe: Stripe(stripe),
        record: promised.clone(),
    };
    let in_stripes: Vec<_> = (0..SERVERS as u8)
        .map(|stripe| encode_all(&in_stripe(stripe)))
        .collect();
    survives_a_promise::<MultiPaxos>(&together(8), &[encode_all(&promised)]);
    survives_a_promise::<Mencius>(&together(8), &in_stripes);
    survives_a_promise::<SPaxos>(&together(10), &[encode_all(&promised)]);
}

#[test]
pub(crate) fn one_forged_message_does_not_end_a_cluster() {
    let phase1a = multipaxos::acceptor::In::Phase1a {
        from: LeaderId(1),
        round: forged_round(),
        start: Slot::ZERO,
        end: Slot::MAX,
    };
    let message = multipaxos::Message::Acceptor(phase1a);
    let goes_on = |layout: Layout| {
        let mut cluster = Cluster::<MultiPaxos>::recovered(1, layout, &[]);
        assert!(serves(&mut cluster), "it has not begun");
        cluster.deliver(2, Members::first(64), &encode_all(&message).into());
        // Until the acceptor has answered the leader's next heartbeat.
        let until = cluster.now + Duration::from_secs(2);
        while cluster.now < until {
            advance(&mut cluster);
        }
        serves(&mut cluster)
    };
    assert!(goes_on(together(8)));
}
