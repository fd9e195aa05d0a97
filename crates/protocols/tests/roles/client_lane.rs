//! The rules of a client lane (compartmentalization, sections 2.3, 3.4, 3.6 and 4.1; sessions in
//! ARCHITECTURE.md), one test each. All that it asks of its driver is compared.

mod passed_on;
mod retiring;

use crate::servers::{config, only, round, without};
use crate::stage::{self, Stage};
use bytes::Bytes;
use ionian_kernel::client::{LaneLimits, Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Asked;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::trace::CommandId;
use ionian_protocols::multipaxos::client::{ClientLane, In};
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::multipaxos::message::{Proposer, ReaderId};
use ionian_protocols::multipaxos::{
    Envelope, acceptor, batcher, kind, leader, read_batcher, replica,
};
use ionian_replication::batch::{Answer, Answers, AnswersByClient, Purpose};
use ionian_replication::batch::{Batch, BatchBuilder, Command, Outcome};
use std::sync::Arc;

const ID: ClientId = ClientId(1);
/// Its session.
const SESSION: SessionId = SessionId(4);

/// Commands in that session.
const WRITE: Purpose = Purpose::Execute(SESSION);

/// The lane on node 1, without a session yet; and the nonce by which it asks for one.
fn opening(config: Arc<Config>) -> (Stage<ClientLane>, u64) {
    let birth = stage::birth(kind::Client, ID.0, NodeId(1));
    let mut lane = Stage::unstarted(ClientLane::new(config, &birth), true);
    let asked = lane.started();
    let batch = match &asked.sends[..] {
        [(Envelope::ToBatchers(_, batcher::In::Commands { commands }), _)] => commands,
        [(Envelope::ToLeaders(_, leader::In::Propose { batch, .. }), _)] => batch,
        _ => panic!("{asked:?}"),
    };
    let commands: Vec<_> = batch.commands().map(|one| one.to_owned()).collect();
    let [command] = &commands[..] else {
        panic!("{commands:?}")
    };
    let open = of_session(Purpose::Open, command.number, 0, "");
    assert_eq!(*command, open);
    (lane, command.number)
}

/// The same with its session.
fn open_in(config: Arc<Config>) -> Stage<ClientLane> {
    let (mut lane, nonce) = opening(config);
    let opened = (Purpose::Open, nonce, Outcome::Opened(SESSION));
    assert_eq!(lane.asked(answers(1, &[opened])), only(vec![]));
    lane
}

fn open() -> Stage<ClientLane> {
    open_in(config(Options::default()))
}

/// The same in a deployment without batchers and read batchers.
fn direct() -> Stage<ClientLane> {
    open_in(without(
        &[kind::Batcher, kind::ReadBatcher],
        Options::default(),
    ))
}

fn of_session(purpose: Purpose, number: u64, floor: u64, payload: &'static str) -> Command {
    Command {
        client: ID,
        purpose,
        number,
        floor,
        payload: payload.into(),
    }
}

fn write(number: u64, floor: u64, payload: &'static str) -> Command {
    of_session(WRITE, number, floor, payload)
}

fn batch(commands: &[Command]) -> Batch {
    let mut batch = BatchBuilder::default();
    commands.iter().for_each(|command| batch.push(command));
    batch.take()
}

fn submit(token: u64, operation: Operation, payload: &'static str) -> In {
    In::Submit {
        request: Request {
            token,
            operation,
            payload: payload.into(),
        },
    }
}

fn submit_write(token: u64, payload: &'static str) -> In {
    submit(token, Operation::Write, payload)
}

fn submit_read(token: u64, level: ReadLevel) -> In {
    submit(token, Operation::Read(level), "?")
}

/// Answers of replica 1, which had executed every slot below `executed`.
fn answers(executed: u64, all: &[(Purpose, u64, Outcome)]) -> In {
    let mut answers = AnswersByClient::default();
    for (purpose, number, outcome) in all.iter().cloned() {
        answers.push(&Answer {
            client: ID,
            purpose,
            number,
            outcome,
        });
    }
    let answers: Answers = answers.take_some(1, Slot(executed));
    In::Answers { answers }
}

fn done(number: u64) -> In {
    let outcome = Outcome::Done(Bytes::from("done"));
    answers(9, &[(WRITE, number, outcome)])
}

fn to_batcher(batcher: u8, commands: &[Command]) -> Envelope {
    let commands = batch(commands);
    Envelope::ToBatchers(
        Set::one(BatcherId(batcher)),
        batcher::In::Commands { commands },
    )
}

fn to_leader(leader: u8, command: &Command, again: bool) -> Envelope {
    let message = leader::In::Propose {
        proposer: Proposer::Client { id: ID },
        near: Set::one(ReplicaId(1)),
        batch: Batch::one(command),
        again,
    };
    Envelope::ToLeaders(Set::one(LeaderId(leader)), message)
}

/// A write.
fn written(number: u64) -> Option<CommandId> {
    Some(CommandId {
        client: ID,
        sessionless: false,
        number,
    })
}

/// A read.
fn read(number: u64) -> Option<CommandId> {
    written(number).map(|command| CommandId {
        sessionless: true,
        ..command
    })
}

/// The reply to this command, if the cluster has answered it, when the lane has seen the slots
/// below `seen`.
fn reply(
    token: u64,
    command: Option<CommandId>,
    outcome: Result<&'static str, Refusal>,
    seen: u64,
) -> Envelope {
    let reply = Reply {
        token,
        command,
        outcome: outcome.map(Bytes::from),
        seen: Slot(seen),
    };
    Envelope::ToApplication(ID, reply)
}

/// The number of the one read that goes to a replica, and the slot below which that must have
/// executed everything.
fn read_of(asked: &Asked<Envelope>) -> (u64, Slot) {
    let [(Envelope::ToReplicas(to, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let replica::In::Read { reads, executed } = message else {
        panic!("{message:?}")
    };
    let number = reads.commands().next().expect("a read").number;
    let expected = of_session(Purpose::Read, number, 0, "?");
    assert_eq!(*reads, batch(&[expected]));
    assert_eq!(*to, Set::one(ReplicaId(1)), "the one on its node");
    (number, *executed)
}

// Sessions and writes.

#[test]
fn a_lane_opens_its_session_through_the_log_when_it_starts() {
    opening(config(Options::default()));
    opening(without(&[kind::Batcher], Options::default()));
}

#[test]
fn writes_wait_for_the_session_and_then_go_to_the_batcher_of_the_node_together() {
    let (mut lane, nonce) = opening(config(Options::default()));
    for (token, payload) in [(70, "a"), (71, "b")] {
        assert_eq!(lane.asked(submit_write(token, payload)), only(vec![]));
    }
    let opened = (Purpose::Open, nonce, Outcome::Opened(SESSION));
    let expected = to_batcher(1, &[write(0, 0, "a"), write(1, 0, "b")]);
    assert_eq!(lane.asked(answers(1, &[opened])), only(vec![expected]));
}

#[test]
fn a_session_that_was_opened_for_an_earlier_process_is_not_used() {
    let (mut lane, nonce) = opening(config(Options::default()));
    let other = (Purpose::Open, nonce ^ 1, Outcome::Opened(SESSION));
    lane.tell(submit_write(70, "a"));
    assert_eq!(lane.asked(answers(1, &[other])), only(vec![]));
}

/// "The client sends the command to the leader" (2.3), where there are no batchers.
#[test]
fn where_there_are_no_batchers_each_write_goes_to_the_leader() {
    let mut lane = direct();
    for number in 0..2 {
        let expected = to_leader(0, &write(number, 0, "a"), false);
        let asked = lane.asked(submit_write(70 + number, "a"));
        assert_eq!(asked, only(vec![expected]));
    }
}

/// The floor: the cluster may forget answers that the lane has.
#[test]
fn writes_say_below_which_number_all_answers_have_come() {
    let mut lane = open();
    for number in 0..3 {
        lane.tell(submit_write(70 + number, "a"));
    }
    // Answers come in any order; number 0 is still missing.
    assert_eq!(
        lane.asked(done(1)),
        only(vec![reply(71, written(1), Ok("done"), 9)])
    );
    let expected = to_batcher(1, &[write(3, 0, "a")]);
    assert_eq!(lane.asked(submit_write(73, "a")), only(vec![expected]));
    assert_eq!(
        lane.asked(done(0)),
        only(vec![reply(70, written(0), Ok("done"), 9)])
    );
    let expected = to_batcher(1, &[write(4, 2, "a")]);
    assert_eq!(lane.asked(submit_write(74, "a")), only(vec![expected]));
}

#[test]
fn an_answer_that_comes_again_is_ignored() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    assert_eq!(
        lane.asked(done(0)),
        only(vec![reply(70, written(0), Ok("done"), 9)])
    );
    assert_eq!(lane.asked(done(0)), only(vec![]));
}

#[test]
fn an_answer_in_another_session_is_ignored() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    let other = (
        Purpose::Execute(SessionId(9)),
        0,
        Outcome::Done(Bytes::from("done")),
    );
    assert_eq!(lane.asked(answers(9, &[other])), only(vec![]));
}

/// The same command, so that it takes effect once.
#[test]
fn a_write_that_is_not_answered_goes_to_another_batcher_under_the_same_number() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    let sent_at = lane.now;
    let asked = lane.woken();
    let [(Envelope::ToBatchers(to, _), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let other = to.iter().next().expect("a batcher").0;
    assert_ne!(other, 1);
    let expected = to_batcher(other, &[write(0, 0, "a")]);
    assert_eq!(asked, only(vec![expected]));
    let waited = lane.now.since(sent_at);
    let retry_after = LaneLimits::default().retry_after;
    assert!((retry_after..retry_after + Duration::from_millis(1)).contains(&waited));
}

#[test]
fn where_there_are_no_batchers_a_write_that_is_not_answered_goes_to_the_next_leader() {
    let mut lane = direct();
    lane.tell(submit_write(70, "a"));
    let expected = to_leader(1, &write(0, 0, "a"), true);
    assert_eq!(lane.woken(), only(vec![expected]));
}

/// l10: a client that learns of the new leader does not wait for its retry timer.
#[test]
fn a_new_leader_gets_all_writes_that_are_not_answered_at_once() {
    let mut lane = direct();
    for number in 0..3 {
        lane.tell(submit_write(70 + number, "a"));
    }
    lane.tell(done(1));
    let again = [0, 2].map(|number| to_leader(2, &write(number, 0, "a"), true));
    let message = In::NewLeader { round: round(1, 2) };
    assert_eq!(lane.asked(message), only(again.to_vec()));
}

#[test]
fn a_leader_that_does_not_lead_names_the_one_to_ask() {
    let mut lane = direct();
    lane.tell(submit_write(70, "a"));
    let message = In::NotLeader { round: round(1, 2) };
    let expected = to_leader(2, &write(0, 0, "a"), true);
    assert_eq!(lane.asked(message.clone()), only(vec![expected]));
    assert_eq!(lane.asked(message), only(vec![]), "that is known");
}

#[test]
fn where_there_are_batchers_they_propose_again_to_a_new_leader() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    let message = In::NewLeader { round: round(1, 2) };
    assert_eq!(lane.asked(message), only(vec![]));
}

/// It may have been executed before the session was forgotten, or not.
#[test]
fn what_was_sent_in_a_session_that_the_cluster_has_forgotten_has_an_unknown_outcome() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    let asked = lane.asked(answers(9, &[(WRITE, 0, Outcome::NoSession)]));
    let [reply_to_it, (Envelope::ToBatchers(to, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(
        *reply_to_it,
        (reply(70, None, Err(Refusal::Unknown), 9), Some(0))
    );
    let batcher::In::Commands { commands } = message else {
        panic!("{message:?}")
    };
    let sessions: Vec<_> = commands.commands().map(|one| one.purpose).collect();
    assert_eq!((to.len(), sessions), (1, vec![Purpose::Open]));
}

#[test]
fn a_write_that_is_never_answered_has_an_unknown_outcome_in_the_end() {
    let mut lane = open();
    lane.tell(submit_write(70, "a"));
    let submitted = lane.now;
    let expected = (reply(70, None, Err(Refusal::Unknown), 1), Some(0));
    while !lane.woken().sends.contains(&expected) {
        let patience = LaneLimits::default().patience;
        assert!(lane.now <= submitted + 2 * patience, "it waits without end");
    }
    assert_eq!(lane.now, submitted + LaneLimits::default().patience);
}

#[test]
fn a_write_that_was_never_sent_has_no_effect_in_the_end() {
    let (mut lane, _) = opening(config(Options::default()));
    lane.tell(submit_write(70, "a"));
    let submitted = lane.now;
    let expected = (reply(70, None, Err(Refusal::Unavailable), 0), Some(0));
    while !lane.woken().sends.contains(&expected) {
        let patience = LaneLimits::default().patience;
        assert!(lane.now <= submitted + 2 * patience, "it waits without end");
    }
}

#[test]
fn requests_beyond_the_limits_of_the_lane_are_refused_at_once() {
    let limits = LaneLimits {
        in_flight: 2,
        in_flight_bytes: 10,
        payload_bytes: 8,
        ..LaneLimits::default()
    };
    let options = Options {
        lane: limits,
        ..Options::default()
    };
    let mut lane = open_in(config(options));
    let refused = |token, refusal| only(vec![reply(token, None, Err(refusal), 1)]);
    let asked = lane.asked(submit_write(70, "123456789"));
    assert_eq!(asked, refused(70, Refusal::TooLarge));
    lane.tell(submit_write(71, "1234567"));
    let asked = lane.asked(submit_write(72, "1234"));
    assert_eq!(asked, refused(72, Refusal::Busy), "too many bytes");
    lane.tell(submit_write(73, "1"));
    let asked = lane.asked(submit_write(74, "1"));
    assert_eq!(asked, refused(74, Refusal::Busy), "too many requests");
    lane.tell(done(0));
    let expected = to_batcher(1, &[write(2, 1, "1")]);
    assert_eq!(lane.asked(submit_write(75, "1")), only(vec![expected]));
}

// Reads.

/// Linearizable reads bypass the leader (3.4); many share an inquiry of a read batcher (4.1).
#[test]
fn linearizable_reads_go_to_the_read_batcher_of_the_node() {
    let mut lane = open();
    let asked = lane.asked(submit_read(70, ReadLevel::Linearizable));
    let [(Envelope::ToReadBatchers(to, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let read_batcher::In::Reads { reads } = message else {
        panic!("{message:?}")
    };
    let number = reads.commands().next().expect("a read").number;
    let expected = batch(&[of_session(Purpose::Read, number, 0, "?")]);
    assert_eq!((*to, reads), (Set::one(ReadBatcherId(1)), &expected));
    let answer = (Purpose::Read, number, Outcome::Done(Bytes::from("x")));
    let asked = lane.asked(answers(3, &[answer]));
    assert_eq!(asked, only(vec![reply(70, read(number), Ok("x"), 3)]));
}

/// "Upon receiving PreReadAck messages from a read quorum, the client sends Read to a replica"
/// (3.4).
#[test]
fn where_there_are_no_read_batchers_the_lane_asks_a_read_quorum_and_then_a_replica() {
    let mut lane = direct();
    let asked = lane.asked(submit_read(70, ReadLevel::Linearizable));
    let [(Envelope::ToAcceptors(acceptors, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let acceptor::In::PreRead { from, inquiry } = *message else {
        panic!("{message:?}")
    };
    assert_eq!((acceptors.len(), from), (2, ReaderId::Client { id: ID }));
    let ack = |from, watermark| In::PreReadAck {
        from: AcceptorId(from),
        inquiry,
        watermark: Slot(watermark),
        epoch: Epoch::default(),
    };
    assert_eq!(lane.asked(ack(0, 7)), only(vec![]));
    let (_, executed) = read_of(&lane.asked(ack(1, 5)));
    assert_eq!(executed, Slot(7));
}

/// The inquiry of a linearizable read, which the lane has just begun.
fn inquires(asked: &Asked<Envelope>) -> u64 {
    let [(Envelope::ToAcceptors(_, acceptor::In::PreRead { inquiry, .. }), _)] = asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    inquiry
}

/// A read quorum of acceptors answers: the replica that gets the read of the inquiry, and the
/// number of the read.
fn goes_to(lane: &mut Stage<ClientLane>, inquiry: u64) -> (ReplicaId, u64) {
    let ack = |from| In::PreReadAck {
        from: AcceptorId(from),
        inquiry,
        watermark: Slot(3),
        epoch: Epoch::default(),
    };
    assert_eq!(lane.asked(ack(0)), only(vec![]));
    let asked = lane.asked(ack(1));
    let [(Envelope::ToReplicas(to, replica::In::Read { reads, .. }), _)] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let number = reads.commands().next().expect("a read").number;
    (to.iter().next().expect("a replica"), number)
}

/// Lets time pass until it asks acceptors on behalf of a read that was not answered.
fn asks_again(lane: &mut Stage<ClientLane>) -> u64 {
    for _ in 0..100 {
        let asked = lane.woken();
        if let [(Envelope::ToAcceptors(..), _)] = asked.sends[..] {
            return inquires(&asked);
        }
    }
    panic!("it does not ask again")
}

/// Reads went to one replica, and then to another one.
#[test]
fn a_read_that_is_not_answered_makes_the_lane_suspect_the_replica_that_had_it() {
    let mut lane = direct();
    // The replica of its node does not answer the first read, and another one gets it.
    let first = inquires(&lane.asked(submit_read(70, ReadLevel::Linearizable)));
    assert_eq!(goes_to(&mut lane, first).0, ReplicaId(1));
    let again = asks_again(&mut lane);
    let (other, _) = goes_to(&mut lane, again);
    assert_ne!(other, ReplicaId(1));
    // Now the replica of its node answers: it gets the next read, and answers that too.
    lane.tell(answers(3, &[]));
    let next = inquires(&lane.asked(submit_read(71, ReadLevel::Linearizable)));
    let (to, number) = goes_to(&mut lane, next);
    assert_eq!(to, ReplicaId(1));
    let answer = (Purpose::Read, number, Outcome::Done(Bytes::from("x")));
    lane.tell(answers(3, &[answer]));
    // The first read stays unanswered. The other replica had it last.
    let again = asks_again(&mut lane);
    assert_eq!(goes_to(&mut lane, again).0, ReplicaId(1));
}

#[test]
fn a_read_that_acceptors_leave_unanswered_makes_the_lane_suspect_no_replica() {
    let mut lane = direct();
    lane.tell(submit_read(70, ReadLevel::Linearizable));
    let resend_after = Options::default().lane.retry_after;
    lane.waited(resend_after * 2);
    let next = inquires(&lane.asked(submit_read(71, ReadLevel::Linearizable)));
    assert_eq!(goes_to(&mut lane, next).0, ReplicaId(1));
}

/// "A sequential read must see what this client has written and read" (3.6).
#[test]
fn a_sequential_read_must_see_all_that_was_answered_to_the_lane() {
    let mut lane = open();
    let (_, executed) = read_of(&lane.asked(submit_read(70, ReadLevel::Sequential)));
    assert_eq!(executed, Slot(1), "the slot of its session");
    lane.tell(submit_write(71, "a"));
    lane.tell(done(0));
    let (number, executed) = read_of(&lane.asked(submit_read(72, ReadLevel::Sequential)));
    assert_eq!(executed, Slot(9));
    // What a read has seen counts too.
    let answer = (Purpose::Read, number, Outcome::Done(Bytes::from("x")));
    lane.tell(answers(12, &[answer]));
    let (_, executed) = read_of(&lane.asked(submit_read(73, ReadLevel::Sequential)));
    assert_eq!(executed, Slot(12));
}

#[test]
fn an_eventual_read_asks_for_no_slot() {
    let mut lane = open();
    lane.tell(submit_write(71, "a"));
    lane.tell(done(0));
    let (_, executed) = read_of(&lane.asked(submit_read(72, ReadLevel::Eventual)));
    assert_eq!(executed, Slot(0));
}

#[test]
fn reads_need_no_session() {
    let (mut lane, _) = opening(config(Options::default()));
    read_of(&lane.asked(submit_read(70, ReadLevel::Eventual)));
}

#[test]
fn a_read_that_is_not_answered_goes_to_another_replica() {
    let mut lane = open();
    let (number, _) = read_of(&lane.asked(submit_read(70, ReadLevel::Eventual)));
    let asked = lane.woken();
    let [(Envelope::ToReplicas(to, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let reads = batch(&[of_session(Purpose::Read, number, 0, "?")]);
    let executed = Slot(0);
    assert_eq!(*message, replica::In::Read { reads, executed });
    assert!(!to.contains(ReplicaId(1)), "{to:?}");
}

#[test]
fn a_write_that_came_as_a_read_is_refused() {
    let mut lane = open();
    let (number, _) = read_of(&lane.asked(submit_read(70, ReadLevel::Eventual)));
    let asked = lane.asked(answers(9, &[(Purpose::Read, number, Outcome::NotARead)]));
    assert_eq!(
        asked,
        only(vec![reply(70, read(number), Err(Refusal::NotARead), 9)])
    );
}

/// A node that comes back knows no leader, and asks one after the other: those that are down must
/// not make it wait longer and longer for the next.
#[test]
fn the_wait_for_a_session_grows_when_all_leaders_were_asked() {
    let direct = without(&[kind::Batcher, kind::ReadBatcher], Options::default());
    let leaders = direct.all::<LeaderId>(kind::Leader).len() as u64;
    assert!(leaders > 1);
    let retry_after = Options::default().lane.retry_after;
    let (mut lane, _) = opening(direct);
    let mut asked_at = lane.now;
    for attempt in 0..3 * leaders {
        while lane.woken().sends.is_empty() {}
        let waited = lane.now.since(asked_at);
        asked_at = lane.now;
        let usual = retry_after * (1 << (attempt / leaders)) as u32;
        assert_eq!(waited, usual, "attempt {attempt}");
    }
}
