//! The client lane: where it sends what, and how it follows the chain.

use super::*;
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Request};
use ionian_protocols::craq::client::ClientLane;
use ionian_replication::batch::AnswersByClient;

fn lane() -> Stage<ClientLane> {
    let birth = stage::birth(kind::Client, 0, NodeId(30));
    Stage::new(config(3), &birth, |config, birth| {
        ClientLane::new(&config, birth)
    })
}

fn targets(sends: &[Envelope]) -> Vec<(u8, &'static str)> {
    let target = |envelope: &Envelope| match envelope {
        Envelope::ToChainNodes(to, message) => to.iter().next().map(|it| (it.0, message.name())),
        _ => None,
    };
    sends.iter().filter_map(target).collect()
}

fn submit(operation: Operation) -> client::In {
    client::In::Submit {
        request: Request {
            token: 1,
            operation,
            payload: (&b"a"[..]).into(),
        },
    }
}

#[test]
fn a_lane_asks_the_head_for_a_session_and_follows_the_chain() {
    let mut lane = lane();
    let sends = lane.tell(client::In::Chain {
        chain: chain(1, &[(1, 1), (2, 1)]),
    });
    assert_eq!(
        targets(&sends),
        [(1, "chain_node::Write")],
        "the new head gets it at once"
    );
    let sends = lane.tell(client::In::Chain {
        chain: chain(0, &[(2, 1)]),
    });
    assert_eq!(targets(&sends), [], "an older chain");
    // The head does not answer: another node hands the request on.
    let mut asked = Vec::new();
    while asked.len() < 4 {
        asked.extend(targets(&lane.timer()).into_iter().map(|(node, _)| node));
    }
    assert!(asked.iter().any(|node| *node != 1), "{asked:?}");
}

/// The answer of this chain node to a command.
fn answer(from: u8, purpose: Purpose, number: u64, outcome: Outcome) -> client::In {
    let mut answers = AnswersByClient::default();
    answers.push(&Answer {
        client: ClientId(0),
        purpose,
        number,
        outcome,
    });
    let mut answers = answers.drain(from, Slot(1));
    let (_, answers) = answers.next().expect("an answer");
    client::In::Answers { answers }
}

/// The commands for the chain nodes among these messages.
fn asked(sends: &[Envelope]) -> Vec<(u8, Purpose, u64)> {
    let commands = |envelope: &Envelope| match envelope {
        Envelope::ToChainNodes(to, In::Write { batch, .. } | In::Read { reads: batch, .. }) => {
            let node = to.iter().next().expect("a node").0;
            let named = batch.commands().map(|it| (node, it.purpose, it.number));
            named.collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    sends.iter().flat_map(commands).collect()
}

/// A lane with a session that it did not have to ask for again.
fn open_lane() -> Stage<ClientLane> {
    // Another of the same seed asks again, which shows the number.
    let [(_, purpose, number)] = asked_by_timer(&mut lane())[..] else {
        panic!("a session is asked for");
    };
    let mut lane = lane();
    lane.tell(answer(2, purpose, number, Outcome::Opened(SessionId(1))));
    lane
}

/// The first commands that its timer sends.
fn asked_by_timer(lane: &mut Stage<ClientLane>) -> Vec<(u8, Purpose, u64)> {
    loop {
        let asked = asked(&lane.timer());
        if !asked.is_empty() {
            return asked;
        }
    }
}

/// The node may be the head of a later chain, of which the head says nothing.
#[test]
fn writes_stay_with_the_node_that_has_them_answered() {
    let mut lane = open_lane();
    let done = |number| {
        let purpose = Purpose::Execute(SessionId(1));
        answer(2, purpose, number, Outcome::Done((&b"x"[..]).into()))
    };
    let write = || submit(Operation::Write);
    let [(0, _, first)] = asked(&lane.tell(write()))[..] else {
        panic!("the head gets the write");
    };
    let [(1, _, again)] = asked_by_timer(&mut lane)[..] else {
        panic!("another node gets it");
    };
    assert_eq!(first, again);
    lane.tell(done(first));
    for _ in 0..3 {
        let [(1, _, number)] = asked(&lane.tell(write()))[..] else {
            panic!("the same node gets the next");
        };
        lane.tell(done(number));
    }
    // The head is right: it is tried when a second has passed.
    lane.tell(client::In::Chain {
        chain: chain(0, &[(0, 1), (1, 1), (2, 1)]),
    });
    lane.now = lane.now + Duration::from_millis(1000);
    for (node, name) in [(0, "a try"), (1, "no answer yet")] {
        let sends = asked(&lane.tell(write()));
        assert_eq!(sends[0].0, node, "{name}");
        if node == 1 {
            lane.tell(done(sends[0].2));
            lane.tell(done(sends[0].2 - 1));
        }
    }
    assert_eq!(asked(&lane.tell(write()))[0].0, 0, "the head has answered");
}

/// The tail answers writes while it reaches no acceptor of the master.
#[test]
fn an_answer_to_a_write_says_nothing_of_reads() {
    let mut lane = open_lane();
    let read = || submit(Operation::Read(ReadLevel::Linearizable));
    let [(silent, Purpose::Read, number)] = asked(&lane.tell(read()))[..] else {
        panic!("a node is asked");
    };
    let [(other, Purpose::Read, again)] = asked_by_timer(&mut lane)[..] else {
        panic!("another node is asked");
    };
    assert!(silent != other && again == number);
    lane.tell(answer(
        silent,
        Purpose::Execute(SessionId(1)),
        9,
        Outcome::Failed,
    ));
    for _ in 0..3 {
        assert_ne!(asked(&lane.tell(read()))[0].0, silent);
    }
    // Its answer to a read does, also when another was first.
    lane.tell(answer(other, Purpose::Read, number, Outcome::Failed));
    lane.tell(answer(silent, Purpose::Read, number, Outcome::Failed));
    let nodes: Vec<u8> = (0..3).map(|_| asked(&lane.tell(read()))[0].0).collect();
    assert!(nodes.contains(&silent), "{nodes:?}");
}

#[test]
fn reads_of_a_burst_go_to_one_node_by_their_level() {
    let mut lane = lane();
    let sends = lane.tell(submit(Operation::Read(ReadLevel::Linearizable)));
    let [(first, "chain_node::Read")] = targets(&sends)[..] else {
        panic!("{sends:?}");
    };
    for level in [ReadLevel::Sequential, ReadLevel::Eventual] {
        let sends = lane.tell(submit(Operation::Read(level)));
        let [(_, "chain_node::ReadAt")] = targets(&sends)[..] else {
            panic!("{sends:?}");
        };
    }
    // It is silent: another one is asked.
    let mut again = Vec::new();
    while again.is_empty() {
        again = targets(&lane.timer())
            .into_iter()
            .filter(|(_, name)| *name == "chain_node::Read")
            .collect();
    }
    assert!(again.iter().all(|(node, _)| *node != first), "{again:?}");
}

#[test]
fn a_lane_that_leaves_its_node_answers_all_requests() {
    let mut lane = lane();
    lane.tell(submit(Operation::Change));
    let asked = lane.retired();
    let [(Envelope::ToApplication(_, reply), _)] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(reply.outcome, Err(Refusal::Unknown));
}
