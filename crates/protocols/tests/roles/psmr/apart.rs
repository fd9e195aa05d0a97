//! Groups with leaders, proxy leaders and acceptors of their own.

use super::*;
use ionian_kernel::layout::{Address, LayoutError};
use ionian_kernel::wire::Reader;
use ionian_protocols::multipaxos::{acceptor, leader};

/// Groups 0 and 1, and g_all, which is number 2.
const ALL: u8 = 2;

/// Every role on nodes of its own, with this number of acceptors.
fn divided(acceptors: usize) -> Layout {
    let mut places = (0..).map(NodeId);
    let counts = [1, 0, 0, 6, 6, acceptors, 2, 0];
    let instances = counts.map(|count| places.by_ref().take(count).collect());
    Layout {
        f: 1,
        instances: numbered(instances.to_vec()),
        options: with(&[("groups", 2), ("apart", 1)], Options::default()),
        ..Layout::default()
    }
}

fn stage(kind: u8, index: u8) -> Stage {
    Stage::of(divided(9), (kind, index), true)
}

fn phase1a(group: u8) -> Message {
    let message = acceptor::In::Phase1a {
        from: LeaderId(group),
        round: Round::new(Epoch(0), 1, LeaderId(group)),
        start: Slot(0),
        end: Slot(1),
    };
    within(group.into(), multipaxos::Message::Acceptor(message))
}

#[test]
fn an_instance_has_a_part_in_its_own_group_alone() {
    let mut acceptor = stage(kind::Acceptor, 4);
    for group in [0, ALL, 3] {
        let now = acceptor.now;
        let Stage {
            instance, outbox, ..
        } = &mut acceptor;
        instance.on_message(now, phase1a(group), outbox);
        instance.on_burst_end(now, outbox);
        assert!(outbox.is_empty(), "group {group}");
    }
    let sent = acceptor.tell(phase1a(1));
    let [Routed::Roles { message, .. }] = &sent[..] else {
        panic!("it sends {sent:?}");
    };
    let Message::InGroup { group: 1, message } = message else {
        panic!("it sends {message:?}");
    };
    let is_promise = matches!(
        message,
        multipaxos::Message::Leader(leader::In::Phase1b { .. })
    );
    assert!(is_promise, "{message:?}");
}

/// Its records name the group: one of another group is that of another deployment.
#[test]
fn a_record_of_a_group_that_the_instance_has_no_part_in_is_refused() {
    let records = |index| {
        let at = Address {
            kind: kind::Acceptor,
            index,
        };
        let config = PSmr::configure(divided(9)).expect("a deployment");
        PSmr::founding_records(&config, at, Slot(7))
    };
    let begun: Vec<usize> = (0..9).map(|index| records(index).len()).collect();
    assert_eq!(begun, [0, 0, 1, 0, 0, 1, 0, 0, 1], "g_all's acceptors");
    let recover = |index| {
        let bytes = Bytes::from(records(2)[0].clone());
        let mut acceptor = stage(kind::Acceptor, index);
        acceptor.instance.recover(&mut Reader::new(&bytes))
    };
    assert!(recover(5).is_ok());
    let fault = recover(4).expect_err("it is of group 1");
    assert_eq!(
        fault.to_string(),
        "2 is out of range for a group of the instance"
    );
}

#[test]
fn each_group_needs_what_a_deployment_needs() {
    let fault = |acceptors| match PSmr::configure(divided(acceptors)) {
        Ok(_) => String::new(),
        Err(LayoutError(fault)) => fault,
    };
    assert_eq!(fault(9), "");
    let lacks = "of the 3 groups, to which leaders, proxy leaders and acceptors belong by their numbers, group 2: \
                 2 acceptors in majorities tolerate f=0, not f=1: there must be at least 2f+1 = 3";
    assert_eq!(fault(8), lacks);
    let service = {
        let config = PSmr::configure(divided(9)).expect("a deployment");
        PSmr::service(&config, Epoch(0))
    };
    let parts: Vec<Vec<u8>> = service.parts.iter().map(|it| it.iter().collect()).collect();
    assert_eq!(parts, [[0, 3], [1, 4], [2, 5]]);
    let voters = service.voters.expect("acceptors vote");
    let without = |lost: &[u8]| {
        let left = (0..9).filter(|index| !lost.contains(index)).collect();
        (voters.write.is_met(left), voters.read.is_met(left))
    };
    assert_eq!(without(&[0, 1, 2]), (true, true), "one of each group");
    assert_eq!(without(&[1, 4]), (false, false), "two of group 1");
    let proxy_leaders = service.needs.iter().filter(|need| {
        need.by.kind == kind::ProxyLeader && !need.by.is_met([0, 1, 3].into_iter().collect())
    });
    assert_eq!(proxy_leaders.count(), 1, "none of g_all is left");
}
