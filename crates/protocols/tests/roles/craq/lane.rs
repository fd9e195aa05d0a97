//! The client lane: where it sends what, and how it follows the chain.

use super::*;
use ionian_kernel::client::{Operation, ReadLevel, Request};
use ionian_protocols::craq::client::ClientLane;

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
        chain: chain(1, &[(1, 1, true), (2, 1, true)]),
    });
    assert_eq!(
        targets(&sends),
        [(1, "chain_node::Write")],
        "the new head gets it at once"
    );
    let sends = lane.tell(client::In::Chain {
        chain: chain(0, &[(2, 1, true)]),
    });
    assert_eq!(targets(&sends), [], "an older chain");
    // The head does not answer: another node hands the request on.
    let mut asked = Vec::new();
    while asked.len() < 4 {
        asked.extend(targets(&lane.timer()).into_iter().map(|(node, _)| node));
    }
    assert!(asked.iter().any(|node| *node != 1), "{asked:?}");
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
