//! A change of the membership takes a lane from its node. Its application waits for the answer to
//! every request that it gave this lane.

use super::*;
use crate::stage::{Outside, with_acceptors};
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::multipaxos::MultiPaxos;

fn refused(token: u64, refusal: Refusal, seen: u64) -> Envelope {
    reply(token, None, Err(refusal), seen)
}

#[test]
fn a_lane_that_leaves_its_node_answers_all_requests() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    lane.tell(submit_write(71, "b"));
    lane.tell(done(0));
    lane.tell(submit(72, Operation::Change, "change"));
    lane.tell(submit_read(73, ReadLevel::Eventual));
    let refusals = vec![
        refused(71, Refusal::Unknown, 9),
        refused(72, Refusal::Unknown, 9),
        refused(73, Refusal::Unavailable, 9),
    ];
    assert_eq!(lane.retired(), only(refusals));
    assert_eq!(lane.retired(), only(vec![]), "once each");
}

#[test]
fn what_waited_for_a_session_was_not_executed() {
    let (mut lane, _) = opening(config(Options::default()));
    lane.tell(submit_write(70, "a"));
    let refusals = vec![refused(70, Refusal::Unavailable, 0)];
    assert_eq!(lane.retired(), only(refusals));
}

#[test]
fn the_node_passes_these_answers_on() {
    let layout = with_acceptors(&[0, 1, 2]);
    let (address, here) = (
        Address {
            kind: kind::Client,
            index: 0,
        },
        NodeId(0),
    );
    assert_eq!(layout.node_of(address), Some(here));
    let config = MultiPaxos::configure(layout.clone()).expect("a deployment");
    let birth = stage::birth(address.kind, address.index, here);
    let mut outside = Outside::default();
    let mut node = Node::<MultiPaxos>::new(&config, true);
    node.host(address, MultiPaxos::instantiate(&config, birth));
    node.start(Instant::ZERO, &mut outside);
    let request = Request {
        token: 70,
        operation: Operation::Read(ReadLevel::Eventual),
        payload: Bytes::new(),
    };
    node.submit(ClientId(0), request);
    node.settle(Instant::ZERO, &mut outside);
    assert_eq!(outside.replies, []);
    let mut elsewhere: Layout = layout;
    elsewhere.instances[kind::Client as usize] = [(0, NodeId(90))].into_iter().collect();
    let config = MultiPaxos::configure(elsewhere.clone()).expect("a deployment");
    node.reconfigure(Instant::ZERO, (&elsewhere, &config, here), &mut outside);
    let refused = Reply::refused(70, Refusal::Unavailable);
    assert_eq!(outside.replies, [refused]);
    assert!(!node.hosts(address));
}
