//! Reads under leases, and what a removal then waits for.

use super::*;
use ionian_protocols::craq::master::ChainMaster;
use ionian_protocols::craq::message::{Announcement, Leaving, Step};

pub(super) const LEASE: Duration = Duration::from_millis(400);

pub(super) const ABC: &[(u8, u64)] = &[(0, 1), (1, 1), (2, 1)];

pub(super) fn leased(index: u8) -> Stage<ChainNode> {
    let mut layout = layout(3);
    layout.options.own.insert("lease_ms", 400);
    let config = Craq::configure(layout).expect("a deployment");
    let mut node = Stage::new(config, &birth(index), ChainNode::new);
    settle(&mut node, index, 3);
    node
}

pub(super) fn ask(number: u64, payload: &'static [u8]) -> In {
    In::Read {
        reads: read(number, payload),
        handed: false,
    }
}

pub(super) fn pass(node: &mut Stage<ChainNode>, time: Duration) {
    node.now = node.now + time;
}

/// The node gets a lease. Gives its end.
fn get_lease(node: &mut Stage<ChainNode>) -> Instant {
    let until = node.now + LEASE;
    let sends = node.tell(ask(1, b"a"));
    // The answer takes its time.
    pass(node, LEASE / 8);
    assert_eq!(answered(&master_says(node, &sends, &chain(0, ABC))), [1]);
    until
}

/// c15: the lease is counted from the time when the inquiry began.
#[test]
pub(crate) fn c15_a_read_under_a_lease_is_answered_at_once_until_its_end() {
    let mut head = leased(0);
    let until = get_lease(&mut head);
    let asked = head.asked(ask(2, b"a"));
    assert_eq!(
        (asked.sends.len(), &asked.deadlines[..]),
        (1, &[(0, until)][..])
    );
    let (envelope, fence) = asked.sends.into_iter().next().expect("an answer");
    assert_eq!((answered(&[envelope]), fence), (vec![2], None));
    head.now = until;
    let sends = head.tell(ask(3, b"a"));
    assert_eq!((answered(&sends), inquiries(&sends).len()), (vec![], 1));
}

/// c3: the process may be stopped before the answer leaves.
#[test]
pub(crate) fn c3_each_answer_under_a_lease_has_the_end_of_the_lease() {
    let mut head = leased(0);
    let until = get_lease(&mut head);
    let sequential = In::ReadAt {
        reads: read(2, b"a"),
        executed: Slot(0),
    };
    assert_eq!(head.asked(sequential).deadlines, []);
    let asked = head.asked(ask(3, b"a"));
    let places: Vec<usize> = (0..asked.sends.len()).collect();
    let deadlines = asked.deadlines;
    assert_eq!(
        deadlines
            .iter()
            .map(|(place, _)| *place)
            .collect::<Vec<_>>(),
        places
    );
    assert!(deadlines.iter().all(|(_, end)| *end == until));
}

/// c3: those that go through an unbatcher too.
#[test]
fn c3_answers_through_an_unbatcher_have_the_end_of_the_lease() {
    let mut layout = layout(3);
    layout.instances = numbered(vec![
        vec![NodeId(30), NodeId(31)],
        Vec::new(),
        vec![NodeId(0), NodeId(1), NodeId(2)],
        vec![NodeId(40), NodeId(41)],
        vec![NodeId(20), NodeId(21), NodeId(22)],
        vec![NodeId(20), NodeId(21), NodeId(22)],
        vec![NodeId(20), NodeId(21), NodeId(22)],
        vec![NodeId(20), NodeId(21), NodeId(22)],
    ]);
    layout.options.own.insert("lease_ms", 400);
    let config = Craq::configure(layout).expect("a deployment");
    let mut head = Stage::new(config, &birth(0), ChainNode::new);
    settle(&mut head, 0, 3);
    let until = head.now + LEASE;
    let sends = head.tell(ask(1, b"a"));
    master_says(&mut head, &sends, &chain(0, ABC));
    let asked = head.asked(ask(2, b"a"));
    let [(Envelope::ToUnbatchers(..), None)] = &asked.sends[..] else {
        panic!("answers: {:?}", asked.sends);
    };
    assert_eq!(asked.deadlines, [(0, until)]);
}

/// The way to the tail alone may be cut: what the read must see is applied.
#[test]
fn a_dirty_read_that_became_clean_is_answered_under_the_lease_without_the_tail() {
    let mut head = leased(0);
    let until = get_lease(&mut head);
    head.tell(write(b"a"));
    assert_eq!(answered(&head.tell(ask(2, b"a"))), []);
    let asked = head.asked(ack(1, 0, 1, 1));
    let ends: Vec<_> = asked.deadlines.iter().map(|(_, end)| *end).collect();
    let sends: Vec<_> = asked.sends.into_iter().map(|(it, _)| it).collect();
    assert_eq!((answered(&sends), ends), (vec![2], vec![until]));
    // Without a lease it needs an inquiry.
    head.tell(write(b"a"));
    assert_eq!(answered(&head.tell(ask(3, b"a"))), []);
    head.now = until;
    let sends = head.tell(ack(1, 0, 2, 2));
    assert_eq!(answered(&sends), []);
    assert_eq!(
        answered(&master_says(&mut head, &sends, &chain(0, ABC))),
        [3]
    );
}

#[test]
fn a_lease_is_renewed_after_a_third_of_its_length_and_only_if_there_are_reads() {
    let mut head = leased(0);
    let first = get_lease(&mut head);
    assert_eq!(inquiries(&head.tell(ask(2, b"a"))), []);
    pass(&mut head, LEASE / 3);
    assert_eq!(inquiries(&head.tell(beat(1, 0, true))), []);
    let renewed = head.now + LEASE;
    let sends = head.tell(ask(3, b"a"));
    assert_eq!((answered(&sends), inquiries(&sends).len()), (vec![3], 1));
    master_says(&mut head, &sends, &chain(0, ABC));
    head.now = first;
    assert_eq!(head.asked(ask(4, b"a")).deadlines[..1], [(0, renewed)]);
}

#[test]
fn a_member_that_is_leaving_gets_no_lease_and_answers_what_it_has_asked_for() {
    let mut head = leased(0);
    let sends = head.tell(ask(1, b"a"));
    let leaving = announced(0, 1);
    assert_eq!(answered(&master_says(&mut head, &sends, &leaving)), [1]);
    let sends = head.tell(ask(2, b"a"));
    assert_eq!((answered(&sends), inquiries(&sends).len()), (vec![], 1));
}

#[test]
fn a_lease_ends_with_its_epoch() {
    let mut head = leased(0);
    get_lease(&mut head);
    let two = chain(1, &[(0, 1), (1, 1)]);
    head.tell(In::Chain { chain: two });
    assert_eq!(answered(&head.tell(ask(2, b"a"))), []);
}

/// c4: it may have been removed, and another tail may have committed more.
#[test]
pub(crate) fn c4_the_tail_says_what_is_committed_under_its_lease_or_after_an_inquiry() {
    let mut tail = leased(2);
    let query = |inquiry| In::Query {
        from: ChainNodeId(0),
        epoch: ChainEpoch(0),
        inquiry,
    };
    let committed = |inquiry| In::Committed {
        epoch: ChainEpoch(0),
        inquiry,
        committed: Slot(0),
    };
    let began = tail.now;
    let sends = tail.tell(query(1));
    assert_eq!(between_nodes(sends.clone()), []);
    let sends = master_says(&mut tail, &sends, &chain(0, ABC));
    assert_eq!(between_nodes(sends), [to(0, committed(1))]);
    let asked = tail.asked(query(2));
    assert_eq!(asked.sends, [(to(0, committed(2)), None)]);
    assert_eq!(asked.deadlines, [(0, began + LEASE)]);
}

/// What the tail says was true after the read had come in.
#[test]
fn a_dirty_read_needs_no_inquiry_beside_that_of_the_tail() {
    let mut head = leased(0);
    head.tell(write(b"a"));
    let sends = head.tell(ask(1, b"a"));
    assert_eq!(inquiries(&sends), []);
    let [Envelope::ToChainNodes(_, In::Query { inquiry, .. })] = &sends[..] else {
        panic!("a question to the tail: {sends:?}");
    };
    let committed = In::Committed {
        epoch: ChainEpoch(0),
        inquiry: *inquiry,
        committed: Slot(1),
    };
    assert_eq!(answered(&head.tell(committed)), [1]);
}

/// The founding chain, in which `by` has announced that `node` is leaving.
pub(super) fn announced(node: u8, by: u8) -> Chain {
    let announced = Announcement {
        epoch: ChainEpoch(0),
        revision: 1,
    };
    let leaving = Leaving {
        node: ChainNodeId(node),
        by: ChainNodeId(by),
        announced,
    };
    Chain {
        leaving: vec![leaving],
        ..revised(1, chain(0, ABC))
    }
}

/// The steps that a node writes to the master's log, in a session that it opens.
pub(crate) fn steps(node: &mut Stage<ChainNode>, sends: &[Envelope]) -> Vec<Step> {
    use ionian_kernel::wire::decode_all;
    let mut steps = Vec::new();
    let mut sends = sends.to_vec();
    while let Some(envelope) = sends.pop() {
        let Envelope::ToLeaders(_, multipaxos::leader::In::Propose { batch, .. }) = envelope else {
            continue;
        };
        for command in batch.commands() {
            match command.purpose {
                Purpose::Open => {
                    let mut answers = ionian_replication::batch::AnswersByClient::default();
                    answers.push(&Answer {
                        client: command.client,
                        purpose: command.purpose,
                        number: command.number,
                        outcome: Outcome::<Vec<u8>>::Opened(SessionId(9)),
                    });
                    let answers = answers.take_some(0, Slot(0));
                    let message = multipaxos::client::In::Answers { answers };
                    sends.extend(node.tell(In::Master { message }));
                }
                _ => steps.extend(decode_all::<Step>(&command.payload.to_vec().into()).ok()),
            }
        }
    }
    steps
}

/// c2: a member is removed when each lease that it may have is over, and the clocks may differ by a
/// tenth in their rates. The wait begins with a time later than that of the burst in which the
/// announcement came.
#[test]
pub(crate) fn c2_a_removal_waits_until_the_leases_are_over() {
    let mut head = leaving::waits_for_silent_1();
    let learned = head.now;
    let step = leaving::next_step(&mut head, &announced(1, 0), |_| {});
    assert_eq!(step, remove(0, 1));
    assert_eq!(head.now.since(learned), leaving::WAIT);
}

fn master() -> ChainMaster {
    ChainMaster::new(chain(0, ABC), 1, true)
}

pub(super) fn suspect(from: u8, node: u8) -> Step {
    super::master::suspect(0, from, node)
}

pub(super) fn announcement(revision: u64) -> Announcement {
    Announcement {
        epoch: ChainEpoch(0),
        revision,
    }
}

pub(super) fn remove(from: u8, revision: u64) -> Step {
    Step::Remove {
        from: ChainNodeId(from),
        life: 1,
        announced: announcement(revision),
    }
}

pub(super) fn withdraw(from: u8, revision: u64) -> Step {
    Step::Withdraw {
        from: ChainNodeId(from),
        life: 1,
        announced: announcement(revision),
    }
}

/// The chains that the steps lead to.
fn chains(steps: &[Step]) -> Vec<Chain> {
    let mut master = master();
    let step = |step: &Step| {
        master.step(*step);
        master.chain().clone()
    };
    steps.iter().map(step).collect()
}

#[test]
fn a_member_is_announced_before_it_is_removed() {
    let after = chain(1, &[(0, 1), (2, 1)]);
    let all = chains(&[
        suspect(0, 1),
        suspect(2, 1),
        remove(2, 7),
        remove(1, 1),
        remove(2, 1),
    ]);
    let told = announced(1, 0);
    // Any member may have waited, so node 1 itself may leave.
    assert_eq!(all[..3], [told.clone(), told.clone(), told]);
    assert_eq!(all[3..], [after.clone(), after]);
}

#[test]
fn an_announcement_that_was_withdrawn_removes_no_member() {
    let all = chains(&[
        suspect(0, 1),
        withdraw(2, 1),
        withdraw(0, 1),
        remove(0, 1),
        suspect(0, 1),
        remove(0, 1),
    ]);
    let told = announced(1, 0);
    assert_eq!(all[..2], [told.clone(), told], "it is not that of node 2");
    let founding = revised(2, chain(0, ABC));
    assert_eq!(all[2..4], [founding.clone(), founding]);
    // The next one has another number.
    assert_eq!(all[4].leaving[0].announced, announcement(3));
    assert_eq!(all[5], all[4]);
}

/// Others make their own, and wait anew.
#[test]
fn announcements_of_a_member_that_is_removed_are_void() {
    let all = chains(&[suspect(1, 2), suspect(0, 1), remove(0, 2), remove(0, 1)]);
    let after = chain(1, &[(0, 1), (2, 1)]);
    assert_eq!(all[1].leaving.len(), 2);
    assert_eq!(all[2..], [after.clone(), after]);
}
