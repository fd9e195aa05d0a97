//! The rules of an unbatcher (compartmentalization, section 4.2), one test each. All that it asks
//! of its driver is compared.

use crate::servers::{config, only};
use crate::stage::{self, Stage};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Role;
use ionian_kernel::time::Duration;
use ionian_protocols::multipaxos::unbatcher::{In, Unbatcher};
use ionian_protocols::multipaxos::{Envelope, client, kind, replica};
use ionian_replication::batch::{Answer, Answers, AnswersByClient, Outcome, Purpose};

fn unbatcher() -> Stage<Unbatcher> {
    let birth = stage::birth(kind::Unbatcher, 2, NodeId(2));
    let mut unbatcher = Stage::new(config(Options::default()), &birth, Unbatcher::new);
    unbatcher.timer();
    unbatcher
}

/// Answers of replica 1 to these clients, each with a number of its own.
fn answers(all: &[(u8, u64)]) -> Answers {
    let mut answers = AnswersByClient::default();
    for (client, number) in all {
        answers.push(&Answer {
            client: ClientId(*client),
            purpose: Purpose::Execute(SessionId(1)),
            number: *number,
            outcome: Outcome::Done("done"),
        });
    }
    answers.take_some(1, Slot(7))
}

/// "Upon receiving a batch of results, an unbatcher forwards each result to the client" (4.2): one
/// message to each client, with all that is for it, in order.
#[test]
fn each_client_gets_its_answers_and_no_others_in_one_message() {
    let mut unbatcher = unbatcher();
    let results = In::Results {
        answers: answers(&[(2, 0), (0, 5), (2, 1)]),
    };
    let to = |client, all: &[(u8, u64)]| {
        let answers = answers(all);
        Envelope::ToClients(Set::one(ClientId(client)), client::In::Answers { answers })
    };
    let expected = vec![to(2, &[(2, 0), (2, 1)]), to(0, &[(0, 5)])];
    assert_eq!(unbatcher.asked(results), only(expected));
}

#[test]
fn an_unbatcher_keeps_nothing_of_one_batch_for_the_next() {
    let mut unbatcher = unbatcher();
    for number in 0..3 {
        let answers = answers(&[(1, number)]);
        let expected = Envelope::ToClients(
            Set::one(ClientId(1)),
            client::In::Answers {
                answers: answers.clone(),
            },
        );
        assert_eq!(
            unbatcher.asked(In::Results { answers }),
            only(vec![expected])
        );
    }
}

/// Replicas use another when they do not hear of it.
#[test]
fn an_unbatcher_tells_replicas_that_it_is_there() {
    let mut unbatcher = unbatcher();
    let from = UnbatcherId(2);
    let alive = Envelope::ToReplicas(Set::first(3), replica::In::UnbatcherAlive { from });
    for _ in 0..3 {
        let before = unbatcher.now;
        assert_eq!(unbatcher.woken(), only(vec![alive.clone()]));
        assert_eq!(unbatcher.now, before + Duration::from_millis(250));
    }
    assert!(unbatcher.role.next_timer().is_some());
}
