//! The time of the log, where clocks are wrong.

use crate::stage::{Stage, batch, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::multipaxos::leader::{self, Leader};
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::replica::{self, Replica};
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, kind, proxy_leader, unbatcher};
use ionian_replication::batch::{Batch, Command, Purpose, Value};

/// The true time, in milliseconds.
const NOW: u64 = 1_800_000_000_000;
const DAY: u64 = 86_400_000;

fn layout() -> Layout {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        ..Layout::default()
    }
}

/// A leader on node 0 whose clock shows this. It leads by the promises of acceptors 0, which lives
/// with it, and 1.
fn leading(clock: u64) -> (Stage<Leader>, Vec<Envelope>) {
    let config = MultiPaxos::configure(layout()).expect("a deployment");
    let mut stage = Stage::new(config, &birth(kind::Leader, 0, NodeId(0)), Leader::new);
    stage.now = Instant(clock * 1000);
    stage.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
    let (forgotten, watermark) = (Slot(0), Slot(0));
    let votes = Votes {
        start,
        end,
        next,
        votes: Vec::new(),
        forgotten,
        watermark,
    };
    let round = stage.role.round();
    let mut sent = Vec::new();
    for (from, clock) in [
        (AcceptorId(0), Timestamp(clock)),
        (AcceptorId(1), Timestamp(NOW)),
    ] {
        sent = stage.tell(leader::In::Phase1b {
            from,
            round,
            votes: votes.clone(),
            clock,
        });
    }
    assert!(stage.role.is_leading());
    (stage, sent)
}

/// The time that is stamped into a batch proposed now.
fn stamped(stage: &mut Stage<Leader>) -> u64 {
    let (proposer, near, batch) = (Proposer::Leader {}, Set::EMPTY, batch("x"));
    let sent = stage.tell(leader::In::Propose {
        proposer,
        near,
        batch,
        again: false,
    });
    let stamps = sent.iter().find_map(|envelope| match envelope {
        Envelope::ToProxyLeaders(_, proxy_leader::In::Phase2a { value, .. }) => Some(value.stamp.0),
        _ => None,
    });
    stamps.expect("it is proposed")
}

#[test]
pub(crate) fn a_leader_whose_clock_is_a_day_ahead_stamps_no_more_than_the_others_show_and_tells_replicas_so()
 {
    let (mut stage, sent) = leading(NOW + DAY);
    let told = sent.iter().find_map(|envelope| match envelope {
        Envelope::ToReplicas(_, replica::In::Heartbeat { time, .. }) => Some(time.0),
        _ => None,
    });
    assert_eq!(told, Some(NOW + 500));
    assert_eq!(stamped(&mut stage), NOW + 500);
    assert_eq!(stage.figure("clock_corrected_ms"), DAY - 500);
}

#[test]
fn time_that_a_leader_of_before_ran_ahead_goes_on_at_half_the_speed_and_deadlines_are_met() {
    let (mut stage, _) = leading(NOW);
    // What was executed a day ahead is forgotten by the acceptors: replicas know how far the log
    // has got.
    let (from, round) = (ReplicaId(1), stage.role.round());
    let times = Times {
        clock: Timestamp(NOW),
        log: Timestamp(NOW + DAY),
    };
    stage.tell(leader::In::Executed {
        from,
        executed: Slot(0),
        kept: Slot(0),
        round,
        times,
    });
    assert_eq!(stamped(&mut stage), NOW + DAY);
    let deadline = Timestamp(NOW + DAY + 2000);
    let proposes = |sent: Vec<Envelope>| {
        sent.iter()
            .any(|envelope| matches!(envelope, Envelope::ToProxyLeaders(..)))
    };
    stage.now = stage.now + Duration::from_millis(3990);
    assert!(!proposes(stage.tell(leader::In::AdvanceClock { deadline })));
    stage.now = stage.now + Duration::from_millis(10);
    assert!(
        proposes(stage.tell(leader::In::AdvanceClock { deadline })),
        "what is to expire in 2 s does so in 4"
    );
    assert_eq!(stamped(&mut stage), NOW + DAY + 2000);
}

/// A replica on each of these nodes, and everything else, with numbers of their own.
fn of_nodes(f: usize, nodes: &[u16]) -> Layout {
    let places: Vec<(u8, NodeId)> = nodes
        .iter()
        .map(|node| (*node as u8, NodeId(*node)))
        .collect();
    Layout {
        epoch: Epoch(1),
        instances: vec![places.into_iter().collect(); 8],
        ..Layout { f, ..layout() }
    }
}

#[test]
fn clocks_of_nodes_that_have_left_do_not_count_and_more_may_be_wrong_where_more_may_fail() {
    let shows = |stage: &mut Stage<Leader>, replica: u8, clock: u64| {
        let (from, round) = (ReplicaId(replica), stage.role.round());
        let times = Times {
            clock: Timestamp(clock),
            log: Timestamp(0),
        };
        stage.tell(leader::In::Executed {
            from,
            executed: Slot(0),
            kept: Slot(0),
            round,
            times,
        });
    };
    // One node's clock is wrong, and so it is replaced; then that of the new one is: at no time is
    // it more than one.
    let (mut stage, _) = leading(NOW);
    shows(&mut stage, 2, NOW + DAY);
    stage.reconfigure(MultiPaxos::configure(of_nodes(1, &[0, 1, 3])).expect("a deployment"));
    shows(&mut stage, 3, NOW + DAY);
    assert_eq!(stamped(&mut stage), NOW);
    // Three nodes become five, of which two may be wrong.
    let (mut stage, _) = leading(NOW);
    stage.reconfigure(MultiPaxos::configure(of_nodes(2, &[0, 1, 2, 3, 4])).expect("a deployment"));
    for (replica, clock) in [(1, NOW), (2, NOW), (3, NOW + DAY), (4, NOW + DAY)] {
        shows(&mut stage, replica, clock);
    }
    assert_eq!(stamped(&mut stage), NOW);
}

/// Answers every read with the time that it receives, and waits for one deadline.
struct Alarm(u64);

impl StateMachine for Alarm {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, now: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        reply.extend_from_slice(&now.0.to_le_bytes());
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        (now.0 < self.0).then_some(Timestamp(self.0))
    }
}

/// A replica that knows the leader's time of `NOW`, and that of the state machine's deadline, a
/// second later.
fn awaiting(clock: u64) -> Stage<Replica> {
    let config = MultiPaxos::configure(layout()).expect("a deployment");
    let machine = || Box::new(Alarm(NOW + 1000)) as Box<dyn StateMachine>;
    let birth = Birth {
        machine: &machine,
        ..birth(kind::Replica, 1, NodeId(1))
    };
    let mut stage = Stage::new(config, &birth, Replica::new);
    stage.now = Instant(clock * 1000);
    let (round, executed, keep) = (Round::new(Epoch(0), 1, LeaderId(0)), Slot(0), Slot(0));
    stage.tell(replica::In::Heartbeat {
        round,
        executed,
        keep,
        time: Timestamp(NOW),
    });
    stage.tell(replica::In::Chosen {
        slot: Slot(0),
        value: Value {
            stamp: Timestamp(NOW),
            batch: Batch::default(),
        },
        replier: ReplicaId(0),
    });
    stage
}

/// The deadline for which it asks when its timer next runs out on one, and when that is.
fn asks(stage: &mut Stage<Replica>) -> Option<(u64, Instant)> {
    (0..1000).find_map(|_| {
        let sent = stage.timer();
        sent.iter().find_map(|envelope| match envelope {
            Envelope::ToLeaders(_, leader::In::AdvanceClock { deadline }) => {
                Some((deadline.0, stage.now))
            }
            _ => None,
        })
    })
}

/// A leader whose time goes at half the speed is always behind the time that a replica takes to be:
/// had it to reach that, and not the deadline, nothing would expire before a write comes.
#[test]
pub(crate) fn a_replica_goes_on_asking_for_the_deadline() {
    let deadlines =
        |mut stage: Stage<Replica>| [(); 3].map(|_| asks(&mut stage).expect("asks").0 - NOW);
    assert_eq!(deadlines(awaiting(NOW)), [1000; 3]);
}

#[test]
fn a_replica_whose_clock_is_a_day_ahead_reads_and_asks_by_the_time_of_the_leader() {
    let mut stage = awaiting(NOW + DAY);
    let start = stage.now;
    let read = |stage: &mut Stage<Replica>| {
        let (client, purpose) = (ClientId(1), Purpose::Read);
        let reads = Batch::one(&Command {
            client,
            purpose,
            number: 1,
            floor: 0,
            payload: bytes::Bytes::new(),
        });
        let sent = stage.tell(replica::In::Read {
            reads,
            executed: Slot(0),
        });
        let answered = sent.iter().find_map(|envelope| match envelope {
            Envelope::ToUnbatchers(_, unbatcher::In::Results { answers }) => {
                answers.iter().next().map(|answer| answer.outcome)
            }
            _ => None,
        });
        let Some(ionian_replication::batch::Outcome::Done(reply)) = answered else {
            panic!("{sent:?}")
        };
        u64::from_le_bytes(reply[..].try_into().unwrap())
    };
    stage.now = start + Duration::from_millis(400);
    assert_eq!(read(&mut stage), NOW + 400);
    // It asks for the time when the deadline has come by the leader's time, and not a day too
    // early.
    assert_eq!(
        asks(&mut stage),
        Some((NOW + 1000, start + Duration::from_millis(1000)))
    );
}
